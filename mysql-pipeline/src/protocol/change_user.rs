//! `COM_CHANGE_USER`: another user on the same connection, as a state machine without socket.
//!
//! It may know the packets of that dialogue and their numbers; who sends and hears them is the connection's.
//!
//! ```text
//!  begin ─► COM_CHANGE_USER, sequence 0, in the name of no method
//!   0xFE: the method of the account and a fresh challenge ─► response
//!   0x01, 0x02, bare data: see `auth`                     ─► send
//!   OK (the connection hears that)                        ─► the session is new, and set up by nobody yet
//! ```
//!
//! The server can check a first response only against the challenge that it sent last, which after a change of methods is
//! no longer the greeting's. A first response by a method that no account has costs a round trip, and makes it send one.
//!
//! Sources: MySQL internals, `COM_CHANGE_USER`; `parse_com_change_user_packet` in MySQL's and MariaDB's sources.

use bytes::BufMut as _;

use super::startup::COLLATION;
use crate::auth::{Authentication, NONCE, Passwords, Plugin, Terms, Verdict};
use crate::error::{ErrorKind, Fault, Outcome};

/// No server has a method of this name.
const NO_METHOD: &str = "none_yet";

/// One change of users under way.
pub(crate) struct ChangeUser {
    authentication: Authentication,
    /// Nothing was answered before the server has named a method.
    named: bool,
}

impl ChangeUser {
    /// Begins, and gives the command.
    pub(crate) fn begin(
        terms: Terms,
        user: &str,
        password: Option<&str>,
        database: Option<&str>,
    ) -> Result<(Self, Vec<u8>), Fault> {
        for (name, value) in [("user", Some(user)), ("database", database)] {
            if value.is_some_and(|value| value.contains('\0')) {
                let message = format!("`{name}` contains a NUL byte");
                return Err(Fault::new(ErrorKind::Config, Outcome::NotSent, message));
            }
        }
        let passwords = Passwords([password.map(str::to_owned), None, None]);
        // What it would answer now is not sent.
        let (authentication, _) = Authentication::begin(terms, passwords, Plugin::Native, &[0; NONCE])?;
        let mut packet = vec![0x11];
        packet.put_slice(user.as_bytes());
        // No response (its length), behind the name's NUL.
        packet.put_slice(&[0, 0]);
        packet.put_slice(database.unwrap_or_default().as_bytes());
        packet.put_u8(0);
        packet.put_u16_le(u16::from(COLLATION));
        packet.put_slice(NO_METHOD.as_bytes());
        packet.put_u8(0);
        Ok((Self { authentication, named: false }, packet))
    }

    /// Takes a packet that is neither OK nor ERR, and gives the one to send.
    pub(crate) fn receive(&mut self, packet: &[u8]) -> Result<Vec<u8>, Fault> {
        let verdict = match packet {
            [0xFE, request @ ..] => {
                self.named = true;
                return self.authentication.switch(request);
            }
            _ if !self.named => Err(malformed()),
            [0x02, request @ ..] => return self.authentication.next_factor(request),
            [0x01, data @ ..] => self.authentication.more(data),
            packet => self.authentication.bare(packet),
        };
        match verdict? {
            Verdict::Send(packet) => Ok(packet),
            // The connection hears that one itself.
            Verdict::Wait => Err(malformed()),
        }
    }
}

#[cold]
fn malformed() -> Fault {
    Fault::new(
        ErrorKind::Protocol,
        Outcome::Unknown,
        "the server sent a packet that does not belong into a change of users",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &[u8] = b"\xFEmysql_native_password\0abcdefghijklmnopqrst\0";

    fn begin() -> ChangeUser {
        ChangeUser::begin(Terms::default(), "app", Some("secret"), None).expect("a beginning").0
    }

    #[test]
    fn the_command_is_written_byte_by_byte_and_says_nothing_of_the_password() {
        let (_, packet) =
            ChangeUser::begin(Terms::default(), "app", Some("secret"), Some("db")).expect("begun");
        // command, user, no response, database, collation 45, method
        assert_eq!(packet, b"\x11app\0\0db\0\x2D\0none_yet\0");
        let (_, packet) = ChangeUser::begin(Terms::default(), "app", None, None).expect("begun");
        assert_eq!(packet, b"\x11app\0\0\0\x2D\0none_yet\0");
    }

    #[test]
    fn the_servers_method_is_answered_and_so_is_what_follows() {
        let mut change = begin();
        let native = change.receive(SWITCH).expect("an answer");
        assert_eq!((native.len(), native[0]), (20, 0x88));
        // MariaDB tries another one of the account's methods.
        let signature =
            change.receive(b"\xFEclient_ed25519\0abcdefghijklmnopqrstabcdefghijkl").expect("an answer");
        assert_eq!(signature.len(), 64);
        let ask = ChangeUser::begin(
            Terms { key: crate::auth::ServerKey::Ask, ..Terms::default() },
            "app",
            Some("secret"),
            None,
        );
        let mut change = ask.expect("begun").0;
        change.receive(b"\xFEcaching_sha2_password\0abcdefghijklmnopqrst\0").expect("a digest");
        assert_eq!(change.receive(&[0x01, 0x04]).expect("the key is asked for"), [0x02]);
    }

    #[test]
    fn what_does_not_belong_there_ends_it() {
        for packets in [
            &[&b"\x01\x04"[..]][..],
            &[b"\x05"],
            &[b""],
            &[b"\x02x\0"],
            &[SWITCH, b"\x01\x04"],
            &[SWITCH, b""],
        ] {
            let mut change = begin();
            let (last, before) = packets.split_last().expect("one at least");
            for packet in before {
                change.receive(packet).expect("in turn");
            }
            assert!(change.receive(last).is_err(), "{packets:?}");
        }
        for (user, database) in [("a\0b", None), ("a", Some("d\0x"))] {
            let refused = ChangeUser::begin(Terms::default(), user, None, database);
            assert_eq!(refused.err().expect("refused").kind(), ErrorKind::Config);
        }
    }
}
