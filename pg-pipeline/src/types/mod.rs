//! Types of values: `postgres-types`, and the types that a database defines for itself.
//!
//! Every public `ToSql` and `FromSql` type of `postgres-types` works, and so do its derives: depend on `postgres-types`
//! with the features that you need (`derive`, `with-uuid-1`, `with-chrono-0_4`, `with-serde_json-1` …). A type that is not built in (an enum, a composite, a
//! domain, a type of an extension) is looked up in the catalogue when it is first met, and remembered per pool.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

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
/// `pg_attribute`.
pub(crate) const LOOK_UP: &str = "\
    SELECT t.typname::text, t.typtype, t.typelem, r.rngsubtype, t.typbasetype, n.nspname::text, t.typrelid \
    FROM pg_catalog.pg_type t \
    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
    LEFT JOIN pg_catalog.pg_range r ON r.rngtypid = t.oid \
    WHERE t.oid = $1";

pub(crate) const LOOK_UP_LABELS: &str =
    "SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = $1 ORDER BY enumsortorder";

pub(crate) const LOOK_UP_FIELDS: &str = "\
    SELECT attname::text, atttypid FROM pg_catalog.pg_attribute \
    WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
