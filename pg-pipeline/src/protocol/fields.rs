//! The fields of ErrorResponse and NoticeResponse.
//!
//! This module may know how fields are laid out; it must not know when a report may come or what follows from it.

use crate::error::{DatabaseError, ErrorKind, Fault, Outcome};

/// Reads the body of an ErrorResponse or NoticeResponse: type byte and C string by turns, until a zero byte.
///
/// Text that is not UTF-8 is taken lossily: before authentication the server writes in its own encoding. The
/// work and the result are bounded by the body, whose size the caller has limited.
///
/// Source: PostgreSQL documentation, "Message Formats: ErrorResponse".
///
/// # Errors
///
/// Of kind [`ErrorKind::Protocol`] if the layout is broken, with [`Outcome::Unknown`], since the caller alone
/// knows better.
pub(crate) fn parse_error_fields(mut body: &[u8]) -> Result<DatabaseError, Fault> {
    let mut error = DatabaseError::default();
    while let Some((&field, rest)) = body.split_first() {
        if field == 0 {
            return if rest.is_empty() { Ok(error) } else { Err(malformed()) };
        }
        let end = rest.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
        let (text, after) = rest.split_at(end);
        error.set_field(field, String::from_utf8_lossy(text).into_owned());
        body = after.get(1..).unwrap_or_default();
    }
    Err(malformed())
}

#[cold]
fn malformed() -> Fault {
    Fault::new(ErrorKind::Protocol, Outcome::Unknown, "the server sent a malformed error or notice")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] =
        b"SFEHLER\0VERROR\0C23505\0Mduplicate key\0DKey (id)=(1) exists.\0HUse another.\0P15\0\
                          p7\0qSELECT 1\0WPL/pgSQL\0spublic\0tworld\0cid\0dint4\0nworld_pkey\0Fnbtinsert.c\0\
                          L664\0R_bt_check_unique\0Zfuture\0\0";

    #[test]
    fn every_field_arrives() {
        let error = parse_error_fields(BODY).unwrap();
        assert_eq!(error.severity(), "ERROR");
        assert_eq!(error.code(), "23505");
        assert_eq!(error.message(), "duplicate key");
        assert_eq!(error.detail(), Some("Key (id)=(1) exists."));
        assert_eq!(error.hint(), Some("Use another."));
        assert_eq!(error.position(), Some(15));
        assert_eq!(error.internal_position(), Some(7));
        assert_eq!(error.internal_query(), Some("SELECT 1"));
        assert_eq!(error.context(), Some("PL/pgSQL"));
        assert_eq!(error.schema(), Some("public"));
        assert_eq!(error.table(), Some("world"));
        assert_eq!(error.column(), Some("id"));
        assert_eq!(error.data_type(), Some("int4"));
        assert_eq!(error.constraint(), Some("world_pkey"));
        assert_eq!(error.file(), Some("nbtinsert.c"));
        assert_eq!(error.line(), Some(664));
        assert_eq!(error.routine(), Some("_bt_check_unique"));
    }

    #[test]
    fn every_truncation_is_refused() {
        for end in 0..BODY.len() {
            let error = parse_error_fields(&BODY[..end]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{end}");
        }
        assert!(parse_error_fields(&[BODY, b"\0"].concat()).is_err());
    }

    #[test]
    fn text_of_another_encoding_is_kept_as_far_as_it_can_be() {
        let error = parse_error_fields(b"Mpass\xe9\0P-1\0L\xff\0\0").unwrap();
        assert_eq!(error.message(), "pass\u{fffd}");
        assert_eq!(error.position(), None);
        assert_eq!(error.line(), None);
    }
}
