//! Parameters that are no help to whoever encodes them, for both drivers.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::BytesMut;
use postgres_types::{IsNull, Type, to_sql_checked};

type Problem = Box<dyn Error + Sync + Send>;

/// Writes a few bytes and then fails, or panics.
#[derive(Debug)]
pub enum Spoilt {
    /// It returns an error.
    Fails,
    /// It panics.
    Panics,
}

impl Spoilt {
    fn spoil(&self, out: &mut BytesMut) -> Problem {
        out.extend_from_slice(b"half of a val");
        match self {
            Self::Fails => "it went wrong in the middle".into(),
            Self::Panics => panic!("on purpose"),
        }
    }
}

impl postgres_types::ToSql for Spoilt {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Problem> {
        Err(self.spoil(out))
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl mysql_pipeline::types::ToSql for Spoilt {
    fn parameter_type(&self) -> mysql_pipeline::types::ParameterType {
        mysql_pipeline::types::ToSql::parameter_type("")
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), Problem> {
        Err(self.spoil(out))
    }
}

/// A text that is made while it is encoded.
#[derive(Clone)]
pub struct Lazily(pub Arc<dyn Fn() -> String + Send + Sync>);

impl fmt::Debug for Lazily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lazily")
    }
}

impl postgres_types::ToSql for Lazily {
    fn to_sql(&self, r#type: &Type, out: &mut BytesMut) -> Result<IsNull, Problem> {
        postgres_types::ToSql::to_sql(&(self.0)(), r#type, out)
    }

    fn accepts(r#type: &Type) -> bool {
        *r#type == Type::TEXT
    }

    to_sql_checked!();
}

impl mysql_pipeline::types::ToSql for Lazily {
    fn parameter_type(&self) -> mysql_pipeline::types::ParameterType {
        mysql_pipeline::types::ToSql::parameter_type("")
    }

    fn to_sql(&self, out: &mut BytesMut) -> Result<(), Problem> {
        mysql_pipeline::types::ToSql::to_sql(&(self.0)(), out)
    }
}
