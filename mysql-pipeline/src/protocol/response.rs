//! The packets that end a command: OK, ERR and the answer to a prepare.
//!
//! Without `CLIENT_DEPRECATE_EOF` a result set would also hold EOF packets; it is always negotiated here.

use super::{lenenc, malformed};
use crate::error::{DatabaseError, Fault};

/// What the server says of its session in every OK. Source: MySQL internals, `SERVER_STATUS_flags_enum`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(u16);

impl Default for Status {
    /// What a session begins with.
    fn default() -> Self {
        Self(0x0002)
    }
}

impl Status {
    /// A transaction is open.
    pub(crate) fn in_transaction(self) -> bool {
        self.0 & 0x0001 != 0
    }

    /// Each statement is committed by itself.
    pub(crate) fn autocommits(self) -> bool {
        self.0 & 0x0002 != 0
    }

    /// Another result of the same command follows.
    pub(crate) fn more_results(self) -> bool {
        self.0 & 0x0008 != 0
    }

    /// A tracked setting of the session was changed by this command.
    pub(crate) fn session_changed(self) -> bool {
        self.0 & 0x4000 != 0
    }
}

/// An OK packet, also in its form with the header `0xFE` that ends the rows of a result.
///
/// Source: MySQL internals, `OK_Packet`: header, affected rows and last insert id (length-encoded), status and
/// warnings (two bytes each), then with `CLIENT_SESSION_TRACK` words for humans behind their length, and what was tracked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) affected_rows: u64,
    pub(crate) last_insert_id: u64,
    pub(crate) status: Status,
    pub(crate) warnings: u16,
    /// Such as `Rows matched: 1  Changed: 0  Warnings: 0`.
    pub(crate) info: Option<Box<str>>,
}

impl Done {
    pub(crate) fn parse(packet: &[u8]) -> Result<Self, Fault> {
        Self::read(packet).ok_or_else(|| malformed("a broken OK packet"))
    }

    fn read(packet: &[u8]) -> Option<Self> {
        let mut rest = packet.get(1..)?;
        let affected_rows = lenenc::take(&mut rest)?;
        let last_insert_id = lenenc::take(&mut rest)?;
        let ([status_low, status_high, warnings_low, warnings_high], mut rest) = rest.split_first_chunk()?;
        let info = lenenc::take_bytes(&mut rest).filter(|info| !info.is_empty());
        Some(Self {
            affected_rows,
            last_insert_id,
            status: Status(u16::from_le_bytes([*status_low, *status_high])),
            warnings: u16::from_le_bytes([*warnings_low, *warnings_high]),
            info: info.map(|info| String::from_utf8_lossy(info).into()),
        })
    }
}

/// The first packet of the answer to a prepare; definitions of parameters and columns follow, one packet each.
///
/// Source: MySQL internals, `COM_STMT_PREPARE_OK`: 0, id (4), columns (2), parameters (2), 0, warnings (2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) id: StatementId,
    pub(crate) columns: u16,
    pub(crate) parameters: u16,
}

/// What the server calls a statement; valid on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatementId(pub(crate) u32);

impl Prepared {
    pub(crate) fn parse(packet: &[u8]) -> Result<Self, Fault> {
        let Some([0x00, id @ .., c0, c1, p0, p1, _, _, _]) = packet.first_chunk::<12>() else {
            return Err(malformed("a broken answer to a prepare"));
        };
        Ok(Self {
            id: StatementId(u32::from_le_bytes(*id)),
            columns: u16::from_le_bytes([*c0, *c1]),
            parameters: u16::from_le_bytes([*p0, *p1]),
        })
    }

    /// How many definitions follow.
    pub(crate) fn definitions(self) -> u32 {
        u32::from(self.columns) + u32::from(self.parameters)
    }
}

/// An ERR packet. Source: MySQL internals, `ERR_Packet`: `0xFF`, number (2), `#` and five characters of SQLSTATE
/// (missing before the handshake is over), message.
pub(crate) fn parse_error(packet: &[u8]) -> Result<DatabaseError, Fault> {
    let Some(([0xFF, low, high], rest)) = packet.split_first_chunk() else {
        return Err(malformed("a broken ERR packet"));
    };
    let (state, message) = match rest.split_first_chunk::<6>() {
        Some(([b'#', state @ ..], message)) => (String::from_utf8_lossy(state).into_owned(), message),
        _ => ("HY000".to_owned(), rest),
    };
    Ok(DatabaseError::new(
        u16::from_le_bytes([*low, *high]),
        state,
        String::from_utf8_lossy(message).into_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ok_packet_is_read_and_every_shorter_one_refused() {
        // header, 1 row affected, last insert id 300 (two bytes), in a transaction + autocommit, 2 warnings
        let packet = b"\x00\x01\xFC\x2C\x01\x03\x00\x02\x00";
        let done = Done::parse(packet).expect("whole");
        assert_eq!((done.affected_rows, done.last_insert_id, done.warnings), (1, 300, 2));
        assert!(done.status.in_transaction() && !done.status.more_results());
        for end in 0..packet.len() {
            assert!(Done::parse(&packet[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn an_answer_to_a_prepare_is_read_and_every_shorter_one_refused() {
        // header, id 7, 2 columns, 1 parameter, filler, no warnings
        let packet = b"\x00\x07\0\0\0\x02\0\x01\0\x00\0\0";
        let prepared = Prepared::parse(packet).expect("whole");
        assert_eq!(prepared, Prepared { id: StatementId(7), columns: 2, parameters: 1 });
        assert_eq!(prepared.definitions(), 3);
        for end in 0..packet.len() {
            assert!(Prepared::parse(&packet[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn an_error_is_read_with_and_without_sqlstate() {
        // 1062 = 0x0426
        let error = parse_error(b"\xFF\x26\x04#23000Duplicate entry").expect("whole");
        assert_eq!((error.number(), error.sqlstate(), error.message()), (1062, "23000", "Duplicate entry"));
        let error = parse_error(b"\xFF\x10\x04Too many connections").expect("whole");
        assert_eq!(
            (error.number(), error.sqlstate(), error.message()),
            (1040, "HY000", "Too many connections")
        );
        assert!(parse_error(b"\xFF\x10").is_err());
    }
}
