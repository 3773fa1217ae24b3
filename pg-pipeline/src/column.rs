//! Columns of a result: what a statement's rows are made of.
//!
//! `mysql-pipeline`'s file of this name has the same face on purpose: a column's type is the server's.

use postgres_types::Type;

/// A column of a result.
#[derive(Debug, Clone)]
pub struct Column {
    name: Box<str>,
    r#type: Type,
}

impl Column {
    pub(crate) fn new(name: Box<str>, r#type: Type) -> Self {
        Self { name, r#type }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    pub fn type_(&self) -> &Type {
        &self.r#type
    }
}

impl wire_pipeline::row::Named for Column {
    fn name(&self) -> &str {
        self.name()
    }
}
