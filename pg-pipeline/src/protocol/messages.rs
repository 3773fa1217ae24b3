//! Messages of the server, as far as they must be read to know where an answer ends and what it holds.
//!
//! Source throughout: PostgreSQL documentation, "Message Formats".

use std::sync::{Arc, OnceLock};

use postgres_types::{Oid, Type};

use crate::error::{ErrorKind, Fault, Outcome};

/// The first five bytes of a message: type, and length of what follows with the length itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) tag: u8,
    /// Bytes behind the header.
    pub(crate) body: usize,
}

impl Header {
    pub(crate) const LEN: usize = 5;

    /// The header at the beginning of `data`, or `None` while it is incomplete.
    pub(crate) fn read(data: &[u8]) -> Result<Option<Self>, Fault> {
        let [tag, a, b, c, d, ..] = data else { return Ok(None) };
        let length = i32::from_be_bytes([*a, *b, *c, *d]);
        let body = usize::try_from(length).ok().and_then(|length| length.checked_sub(4));
        match body {
            Some(body) => Ok(Some(Self { tag: *tag, body })),
            None => Err(malformed("a message's length")),
        }
    }

    /// Header and body together.
    pub(crate) fn total(self) -> usize {
        self.body + Self::LEN
    }
}

/// The largest body that a message of this type may have; `None` for types that do not come after the handshake.
/// Rows have no limit here: they are collected as they arrive.
pub(crate) fn largest(tag: u8) -> Option<usize> {
    Some(match tag {
        // ParseComplete, BindComplete, CloseComplete, NoData, EmptyQueryResponse.
        b'1' | b'2' | b'3' | b'n' | b'I' => 0,
        b'Z' => 1,
        // A tag has at most 64 bytes in the server's memory (`COMPLETION_TAG_BUFSIZE`); others may say more.
        b'C' => 1024,
        // As many types as can be counted.
        b't' => 2 + 4 * 65_535,
        b'S' => 64 * 1024,
        // Texts that users choose: errors, notices, notifications, names of columns. They must fit into memory.
        b'E' | b'N' | b'A' | b'T' => 64 << 20,
        // CopyInResponse, CopyOutResponse, CopyBothResponse: a format per column.
        b'G' | b'H' | b'W' => 3 + 2 * 65_535,
        _ => return None,
    })
}

#[cold]
pub(crate) fn malformed(what: &'static str) -> Fault {
    Fault::new(ErrorKind::Protocol, Outcome::Unknown, format!("the server broke the protocol: {what}"))
}

/// What a statement's rows look like, as one pipe's server described it.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) fields: Box<[Field]>,
    /// The columns with their types, once these are known.
    pub(crate) columns: OnceLock<Arc<[crate::column::Column]>>,
}

/// One column as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: Box<str>,
    pub(crate) type_oid: Oid,
}

impl Description {
    /// The body of a RowDescription.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Fault> {
        let broken = || malformed("a row description");
        let mut rest = Reader(body);
        let count = rest.u16().ok_or_else(broken)?;
        let mut fields = Vec::new();
        for _ in 0..count {
            let name = rest.c_string().ok_or_else(broken)?;
            // Table, column number; then type; then its size, modifier and the format.
            rest.skip(6).ok_or_else(broken)?;
            let type_oid = rest.u32().ok_or_else(broken)?;
            rest.skip(8).ok_or_else(broken)?;
            fields.push(Field { name: String::from_utf8_lossy(name).into(), type_oid });
        }
        if !rest.0.is_empty() {
            return Err(broken());
        }
        let description = Self { fields: fields.into(), columns: OnceLock::new() };
        description.resolve(Type::from_oid);
        Ok(description)
    }

    /// Makes the columns if `lookup` knows all types. Returns the first type that it does not know.
    pub(crate) fn resolve(&self, lookup: impl Fn(Oid) -> Option<Type>) -> Option<Oid> {
        if self.columns.get().is_some() {
            return None;
        }
        let mut columns = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            match lookup(field.type_oid) {
                Some(r#type) => columns.push(crate::column::Column::new(field.name.clone(), r#type)),
                None => return Some(field.type_oid),
            }
        }
        let _ = self.columns.set(columns.into());
        None
    }
}

/// The parameter types in the body of a ParameterDescription.
pub(crate) fn parameter_types(body: &[u8]) -> Result<Box<[Oid]>, Fault> {
    let broken = || malformed("a parameter description");
    let mut rest = Reader(body);
    let count = rest.u16().ok_or_else(broken)?;
    let types = (0..count).map(|_| rest.u32()).collect::<Option<_>>().ok_or_else(broken)?;
    if rest.0.is_empty() { Ok(types) } else { Err(broken()) }
}

/// What a CommandComplete says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tag {
    pub(crate) rows: u64,
    pub(crate) verb: Verb,
}

/// The verbs that change what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Verb {
    #[default]
    Other,
    /// A transaction began, unless one was open.
    Begin,
    /// A transaction ended, and what it did stays.
    Commit,
    /// A transaction ended, or went back to a savepoint.
    Rollback,
    /// It changed the session.
    Session,
    /// It changed the session, and which statements are prepared.
    Prepared,
    /// As [`Self::Prepared`], and no statement that was prepared before it exists any more.
    Forgot,
}

impl Tag {
    /// The body of a CommandComplete: `INSERT 0 5`, `UPDATE 3`, `CREATE TABLE`.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Fault> {
        let text = body.strip_suffix(&[0]).ok_or_else(|| malformed("a command tag"))?;
        let last = text.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        let rows = std::str::from_utf8(last).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0);
        let verb = match text {
            b"BEGIN" | b"START TRANSACTION" => Verb::Begin,
            b"COMMIT" | b"PREPARE TRANSACTION" => Verb::Commit,
            b"ROLLBACK" => Verb::Rollback,
            b"SET" | b"RESET" | b"LISTEN" | b"UNLISTEN" | b"DECLARE CURSOR" | b"CLOSE CURSOR"
            | b"CLOSE CURSOR ALL" | b"LOAD" => Verb::Session,
            b"PREPARE" | b"DEALLOCATE" | b"DISCARD" | b"DISCARD TEMP" | b"DISCARD PLANS"
            | b"DISCARD SEQUENCES" => Verb::Prepared,
            b"DEALLOCATE ALL" | b"DISCARD ALL" => Verb::Forgot,
            _ => Verb::Other,
        };
        Ok(Self { rows, verb })
    }
}

/// Reads a body piece by piece; every read may find it too short.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*bytes))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*bytes))
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.u32().map(u32::cast_signed)
    }

    pub(crate) fn c_string(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.take(end)?;
        self.skip(1)?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_COLUMNS: &[u8] = b"\0\x02id\0\0\0\x40\0\0\x01\0\0\0\x17\0\x04\xff\xff\xff\xff\0\x01\
        name\0\0\0\x40\0\0\x02\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\x01";

    #[test]
    fn headers() {
        assert_eq!(Header::read(b"Z\0\0\0").expect("incomplete"), None);
        assert_eq!(Header::read(b"Z\0\0\0\x05I").expect("whole"), Some(Header { tag: b'Z', body: 1 }));
        assert!(Header::read(b"Z\0\0\0\x03").is_err());
        assert!(Header::read(b"Z\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn descriptions_and_every_truncation_of_one() {
        let description = Description::parse(TWO_COLUMNS).expect("whole");
        assert_eq!(&*description.fields[0].name, "id");
        assert_eq!(description.fields[1].type_oid, 25);
        assert!(description.columns.get().is_some(), "both types are built in");
        for end in 0..TWO_COLUMNS.len() {
            assert!(Description::parse(&TWO_COLUMNS[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn an_announced_count_allocates_nothing() {
        assert!(Description::parse(b"\xff\xff").is_err());
        assert!(parameter_types(b"\xff\xff\0\0\0\x17").is_err());
        assert_eq!(&*parameter_types(b"\0\x01\0\0\0\x17").expect("whole"), &[23]);
    }

    #[test]
    fn tags() {
        let tag = |text: &str| Tag::parse(format!("{text}\0").as_bytes()).expect("a tag");
        assert_eq!(tag("INSERT 0 5"), Tag { rows: 5, verb: Verb::Other });
        assert_eq!(tag("SELECT 18446744073709551615").rows, u64::MAX);
        assert_eq!(tag("SELECT 99999999999999999999").rows, 0);
        assert_eq!(tag("CREATE TABLE"), Tag::default());
        assert_eq!(tag("ROLLBACK").verb, Verb::Rollback);
        assert_eq!(tag("START TRANSACTION").verb, Verb::Begin);
        assert_eq!(tag("PREPARE TRANSACTION").verb, Verb::Commit);
        assert_eq!(tag("SET").verb, Verb::Session);
        assert_eq!(tag("PREPARE").verb, Verb::Prepared);
        assert_eq!(tag("DEALLOCATE ALL").verb, Verb::Forgot);
        assert!(Tag::parse(b"SELECT 1").is_err());
    }
}
