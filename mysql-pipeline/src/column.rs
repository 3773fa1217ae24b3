//! Columns of a result: what a statement's rows are made of.
//!
//! `pg-pipeline`'s file of this name has the same face on purpose: a column's type is the server's.

use crate::protocol::lenenc;
use crate::types::Type;

/// A column of a result.
#[derive(Debug, Clone)]
pub struct Column {
    name: Box<str>,
    r#type: Type,
}

impl Column {
    /// Source: MySQL internals, `Protocol::ColumnDefinition41`: catalogue, schema, table, original table, name,
    /// original name; then a length (12), collation (2), width (4), type (1), flags (2), decimals (1), filler (2).
    pub(crate) fn parse(definition: &[u8]) -> Option<Self> {
        let mut rest = definition;
        for _ in 0..4 {
            lenenc::take_bytes(&mut rest)?;
        }
        let name = lenenc::take_bytes(&mut rest)?;
        lenenc::take_bytes(&mut rest)?;
        let fixed = lenenc::take_bytes(&mut rest)?;
        let [c0, c1, _, _, _, _, code, f0, f1, ..] = *fixed else { return None };
        let r#type = Type::new(code, u16::from_le_bytes([f0, f1]), u16::from_le_bytes([c0, c1]));
        Some(Self { name: String::from_utf8_lossy(name).into(), r#type })
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
