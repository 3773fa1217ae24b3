//! Which role a server has: by what it reports, or else by asking it.
//!
//! Servers report `in_hot_standby` and `default_transaction_read_only` since PostgreSQL 14; older ones, and poolers that do
//! not pass them on, are asked. Source: PostgreSQL documentation, "Asynchronous status", and `target_session_attrs`.

use std::collections::BTreeMap;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::fields::parse_error_fields;
use crate::config::TargetSessionAttrs;
use crate::error::{ErrorKind, Fault, Outcome};

/// The longest message that an answer may have.
const MAX_MESSAGE: usize = 64 * 1024;

/// What is known of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Fits(bool),
    /// It must be asked this.
    Ask(&'static str),
}

/// Judges by what the server has reported.
pub(crate) fn judge(target: TargetSessionAttrs, reported: &BTreeMap<String, String>) -> Judgement {
    let is_on = |name: &str| reported.get(name).map(|value| value == "on");
    let standby = is_on("in_hot_standby");
    match target {
        TargetSessionAttrs::Any | TargetSessionAttrs::PreferStandby => Judgement::Fits(true),
        TargetSessionAttrs::Primary | TargetSessionAttrs::Standby => match standby {
            Some(standby) => Judgement::Fits(standby == (target == TargetSessionAttrs::Standby)),
            None => Judgement::Ask("SELECT pg_catalog.pg_is_in_recovery()"),
        },
        TargetSessionAttrs::ReadWrite | TargetSessionAttrs::ReadOnly => {
            match standby.zip(is_on("default_transaction_read_only")) {
                Some((standby, read_only)) => {
                    Judgement::Fits((standby || read_only) == (target == TargetSessionAttrs::ReadOnly))
                }
                None => Judgement::Ask("SHOW transaction_read_only"),
            }
        }
    }
}

/// The question as a simple query.
pub(crate) fn ask(question: &str) -> Bytes {
    let mut message = BytesMut::with_capacity(question.len() + 6);
    message.put_u8(b'Q');
    message.put_u32((question.len() + 5) as u32);
    message.put_slice(question.as_bytes());
    message.put_u8(0);
    message.freeze()
}

/// The answer to a question: one row with one value that is `t` or `on`, or not.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    yes: Option<bool>,
}

impl Answer {
    /// Takes whole messages from the front of `input`; whether the server fits, once it has said so.
    pub(crate) fn receive(
        &mut self,
        target: TargetSessionAttrs,
        input: &mut BytesMut,
    ) -> Result<Option<bool>, Fault> {
        while let Some((tag, body)) = next_message(input)? {
            match (tag, self.yes) {
                (b'D', None) => {
                    // The number of columns, the value's length, and the value.
                    let value = body.get(6..).ok_or_else(broken)?;
                    self.yes = Some(matches!(value, b"t" | b"on"));
                }
                (b'Z', Some(yes)) => {
                    let wanted = matches!(target, TargetSessionAttrs::Standby | TargetSessionAttrs::ReadOnly);
                    return Ok(Some(yes == wanted));
                }
                (b'E', _) => {
                    let error = parse_error_fields(&body)?;
                    let words = "the server does not say which role it has";
                    let fault = Fault::new(ErrorKind::Connect, Outcome::NotSent, words);
                    return Err(fault.with_server(std::sync::Arc::new(error)));
                }
                (b'T' | b'C' | b'N' | b'S', _) => {}
                _ => return Err(broken()),
            }
        }
        Ok(None)
    }
}

fn next_message(input: &mut BytesMut) -> Result<Option<(u8, Bytes)>, Fault> {
    let Some(([tag, a, b, c, d], _)) = input.split_first_chunk() else { return Ok(None) };
    let (tag, length) = (*tag, usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX));
    if !(4..=MAX_MESSAGE).contains(&length) {
        return Err(broken());
    }
    if input.len() < length + 1 {
        return Ok(None);
    }
    Ok(Some((tag, input.split_to(length + 1).split_off(5).freeze())))
}

#[cold]
fn broken() -> Fault {
    Fault::new(
        ErrorKind::Protocol,
        Outcome::NotSent,
        "the server broke the protocol when it was asked for its role",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    use TargetSessionAttrs::{Any, PreferStandby, Primary, ReadOnly, ReadWrite, Standby};

    #[test]
    fn servers_are_judged_by_what_they_report() {
        let reported = |standby: &str, read_only: &str| {
            let pairs = [("in_hot_standby", standby), ("default_transaction_read_only", read_only)];
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
        };
        for (standby, read_only, fits) in [
            ("off", "off", [true, true, false, true, false, true]),
            ("off", "on", [true, false, true, true, false, true]),
            ("on", "off", [true, false, true, false, true, true]),
        ] {
            for (target, fits) in
                [Any, ReadWrite, ReadOnly, Primary, Standby, PreferStandby].into_iter().zip(fits)
            {
                assert_eq!(judge(target, &reported(standby, read_only)), Judgement::Fits(fits), "{target:?}");
            }
        }
        let nothing = BTreeMap::new();
        assert_eq!(judge(Any, &nothing), Judgement::Fits(true));
        assert!(
            matches!(judge(Primary, &nothing), Judgement::Ask(question) if question.contains("recovery"))
        );
        assert!(
            matches!(judge(ReadOnly, &nothing), Judgement::Ask(question) if question.contains("read_only"))
        );
    }

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        [&[tag], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
    }

    #[test]
    fn an_answer_is_read_in_any_pieces_and_anything_else_refused() {
        assert_eq!(ask("SELECT 1"), &b"Q\0\0\0\x0dSELECT 1\0"[..]);
        for (value, target, fits) in [
            ("on", ReadOnly, true),
            ("off", ReadOnly, false),
            ("t", Primary, false),
            ("f", Primary, true),
            ("t", Standby, true),
        ] {
            let row = [&[0, 1, 0, 0, 0, value.len() as u8][..], value.as_bytes()].concat();
            let whole =
                [message(b'T', b"x"), message(b'D', &row), message(b'C', b"SHOW\0"), message(b'Z', b"I")]
                    .concat();
            for cut in 0..whole.len() {
                let (mut answer, mut input) = (Answer::default(), BytesMut::from(&whole[..cut]));
                assert_eq!(answer.receive(target, &mut input).expect("so far"), None);
                input.extend_from_slice(&whole[cut..]);
                assert_eq!(
                    answer.receive(target, &mut input).expect("whole"),
                    Some(fits),
                    "{value} {target:?}"
                );
            }
        }
        for bytes in [
            message(b'Z', b"I"),
            message(b'D', b"\0\x01"),
            message(b'X', b""),
            b"D\0\0\0\x03".to_vec(),
            b"D\xff\xff\xff\xff".to_vec(),
            message(b'E', b"x"),
            message(b'E', b"SERROR\0C42501\0Mno\0\0"),
        ] {
            let result = Answer::default().receive(Primary, &mut BytesMut::from(&bytes[..]));
            assert!(result.is_err(), "{}", bytes.escape_ascii());
        }
    }
}
