//! Commands, as they go out. Each returns the number that the first frame of its response bears.
//!
//! Sources: MySQL internals, `COM_QUERY`, `COM_STMT_PREPARE`, `COM_STMT_EXECUTE`, `COM_STMT_CLOSE`,
//! `COM_RESET_CONNECTION`, `COM_SET_OPTION`, `COM_QUIT`.

use bytes::Bytes;
use wire_pipeline::buffer::Out;

use super::packet::{Header, Sequence, write_command};
use super::response::StatementId;

/// The question for the largest packet that the server takes.
pub(crate) const LARGEST_PACKET: &str = "SELECT @@max_allowed_packet";

/// The parameters of one execution, as they go out behind the statement's id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    /// How many there are.
    pub(crate) count: u16,
    /// NULL bitmap, 1 ("types follow"), types, values; nothing when there are none. Types go out every time: those of
    /// an execution that was refused may not have been kept.
    pub(crate) bytes: Bytes,
}

/// Runs a text.
pub(crate) fn query(out: &mut Out, text: &Bytes) -> Sequence {
    write_command(out, &[0x03], text)
}

/// Prepares a statement; the answer brings its id.
pub(crate) fn prepare(out: &mut Out, text: &str) -> Sequence {
    write_command(out, &[0x16], &Bytes::copy_from_slice(text.as_bytes()))
}

/// Executes a prepared statement: without a cursor (flags 0), once (iterations 1).
pub(crate) fn execute(out: &mut Out, StatementId(id): StatementId, bound: &Bound) -> Sequence {
    let [a, b, c, d] = id.to_le_bytes();
    write_command(out, &[0x17, a, b, c, d, 0x00, 0x01, 0, 0, 0], &bound.bytes)
}

/// Forgets a prepared statement. There is no response.
pub(crate) fn close(out: &mut Out, StatementId(id): StatementId) {
    let [a, b, c, d] = id.to_le_bytes();
    write_command(out, &[0x19, a, b, c, d], &Bytes::new());
}

/// Rolls back and resets the session: variables, temporary tables, locks, prepared statements.
pub(crate) fn reset_connection(out: &mut Out) -> Sequence {
    write_command(out, &[0x1F], &Bytes::new())
}

/// Lets the texts behind it hold several statements, or no longer. Source: MySQL internals, `COM_SET_OPTION`,
/// `MYSQL_OPTION_MULTI_STATEMENTS_ON` (0) and `…_OFF` (1).
pub(crate) fn multi_statements(out: &mut Out, on: bool) -> Sequence {
    write_command(out, &[0x1B, u8::from(!on), 0], &Bytes::new())
}

/// A packet of a dialogue that has begun, or begins with this one.
pub(crate) fn dialogue(out: &mut Out, packet: &Bytes, sequence: u8) -> Sequence {
    Header { len: packet.len(), sequence }.write(out);
    out.push(packet);
    Sequence(sequence.wrapping_add(1))
}

/// Says goodbye. There is no response.
pub(crate) fn quit(out: &mut Out) {
    write_command(out, &[0x01], &Bytes::new());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(write: impl FnOnce(&mut Out)) -> Vec<u8> {
        let mut out = Out::default();
        write(&mut out);
        out.front().to_vec()
    }

    #[test]
    fn commands_are_written_byte_by_byte_as_the_protocol_has_them() {
        // every one: length (3), sequence 0, command
        let prepare = bytes(|out| assert_eq!(prepare(out, "SELECT ?"), Sequence(1)));
        assert_eq!(prepare, b"\x09\0\0\0\x16SELECT ?");
        // id 7, flags 0, iterations 1; NULL bitmap 0, types follow, one LONGLONG (8, signed), value 42
        let bound = Bound { count: 1, bytes: Bytes::from_static(b"\0\x01\x08\0\x2A\0\0\0\0\0\0\0") };
        let execute = bytes(|out| assert_eq!(execute(out, StatementId(7), &bound), Sequence(1)));
        assert_eq!(execute, b"\x16\0\0\0\x17\x07\0\0\0\0\x01\0\0\0\0\x01\x08\0\x2A\0\0\0\0\0\0\0");
        assert_eq!(bytes(|out| close(out, StatementId(0x0102_0304))), b"\x05\0\0\0\x19\x04\x03\x02\x01");
        assert_eq!(bytes(quit), b"\x01\0\0\0\x01");
        let reset = bytes(|out| assert_eq!(reset_connection(out), Sequence(1)));
        assert_eq!(reset, b"\x01\0\0\0\x1F");
        let on = bytes(|out| assert_eq!(multi_statements(out, true), Sequence(1)));
        assert_eq!(on, b"\x03\0\0\0\x1B\0\0");
        let off = bytes(|out| assert_eq!(multi_statements(out, false), Sequence(1)));
        assert_eq!(off, b"\x03\0\0\0\x1B\x01\0");
        let query = bytes(|out| assert_eq!(query(out, &Bytes::from_static(b"ROLLBACK")), Sequence(1)));
        assert_eq!(query, b"\x09\0\0\0\x03ROLLBACK");
    }
}
