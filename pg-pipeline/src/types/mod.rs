//! Types of values: `postgres-types`, and the types that a database defines for itself.
//!
//! Every public `ToSql` and `FromSql` type of `postgres-types` works, and so do its derives; its features are features of
//! this crate under the same names (`with-uuid-1`, `with-chrono-0_4`, `with-time-0_3`, `with-serde_json-1` …), and a derive
//! needs `postgres-types` itself with its feature `derive`. What it does not have is here:
//!
//! | PostgreSQL | Rust |
//! |---|---|
//! | `numeric` | [`Numeric`], exact, with `NaN` and both infinities; `rust_decimal::Decimal` with `with-rust_decimal-1` |
//! | `interval` | [`Interval`], which can become a `Duration` |
//! | ranges · multiranges, built in or made by `CREATE TYPE` | [`Range`] · [`Multirange`] |
//! | `money` · `bit`, `varbit` | [`Money`] · [`Bits`] |
//! | `point`, `line`, `lseg`, `box`, `path`, `polygon`, `circle` | [`Point`], [`Line`], [`LineSegment`], [`Rectangle`], [`Path`], [`Polygon`], [`Circle`] |
//! | `infinity` of dates and times | [`Date`], [`Timestamp`] around the type of one's choice |
//!
//! A type that is not built in (an enum, a composite, a domain, a type of an extension) is looked up in the catalogue when
//! it is first met, and remembered per pool. What has no type in Rust can be had as text: `SELECT v::text`, and
//! `$1::text::tsvector`.

mod interval;
mod numeric;
mod plain;
mod range;

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

pub use self::interval::{Interval, NoDuration, TooLong};
pub use self::numeric::{NoNumeric, Numeric};
pub use self::plain::{Bits, Circle, Line, LineSegment, Money, NoBits, Path, Point, Polygon, Rectangle};
pub use self::range::{Multirange, Range};
pub use postgres_types::*;

/// The types that a pool's database defines for itself, as far as they were met.
#[derive(Debug, Default)]
pub(crate) struct TypeCache {
    known: RwLock<HashMap<Oid, Type>>,
}

impl TypeCache {
    pub(crate) fn get(&self, oid: Oid) -> Option<Type> {
        Type::from_oid(oid)
            .or_else(|| self.known.read().unwrap_or_else(PoisonError::into_inner).get(&oid).cloned())
    }

    /// They are asked for again when they are met.
    pub(crate) fn forget(&self, types: &[Type]) {
        if types.iter().any(|r#type| Type::from_oid(r#type.oid()).is_none()) {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            for r#type in types {
                known.remove(&r#type.oid());
            }
        }
    }

    pub(crate) fn insert(&self, r#type: &Type) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(r#type.oid(), r#type.clone());
    }
}

/// A type of which nothing is known but its number: its values can be had by types that accept everything.
pub(crate) fn unknown(oid: Oid) -> Type {
    Type::new(format!("unknown type {oid}"), oid, Kind::Simple, String::new())
}

/// Sources of the queries: PostgreSQL documentation, "System Catalogs": `pg_type`, `pg_range`, `pg_enum`,
/// `pg_attribute`. Servers before 14 have no multiranges, and no column of that name.
pub(crate) const LOOK_UP: &str = "\
    SELECT t.typname::text, t.typtype, t.typelem, r.rngsubtype, t.typbasetype, n.nspname::text, t.typrelid \
    FROM pg_catalog.pg_type t \
    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
    LEFT JOIN pg_catalog.pg_range r \
    ON t.oid IN (r.rngtypid, (pg_catalog.to_jsonb(r) OPERATOR(pg_catalog.->>) 'rngmultitypid')::pg_catalog.oid) \
    WHERE t.oid = $1";

pub(crate) const LOOK_UP_LABELS: &str =
    "SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = $1 ORDER BY enumsortorder";

pub(crate) const LOOK_UP_FIELDS: &str = "\
    SELECT attname::text, atttypid FROM pg_catalog.pg_attribute \
    WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
