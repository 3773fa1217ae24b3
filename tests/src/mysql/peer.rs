//! A scripted MySQL server: enough of the protocol to greet, to hear commands, and to answer them well.
//!
//! Sources: MySQL internals, `Protocol::HandshakeV10`, `COM_STMT_PREPARE`, `COM_STMT_EXECUTE`, `COM_QUERY`, `OK_Packet`
//! and `ERR_Packet`.

use std::io;

#[path = "../talk.rs"]
mod talk;

use super::ErrorKind;
pub use talk::{Peer, Talk};

/// One command.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its number in the protocol.
    pub command: u8,
    /// What it is about: the text, or that of the statement that is executed.
    pub text: String,
    /// Something is executed, not only prepared or set up.
    pub runs: bool,
    /// What its statement is called.
    id: u32,
}

impl Talk {
    /// Greets, and hears who comes.
    pub async fn hear_startup(&mut self) -> io::Result<()> {
        self.say(&handshake()).await?;
        self.hear_packet().await.map(drop)
    }

    /// Hears the next command that is answered. The client's leaving is an error, which ends the script.
    pub async fn hear(&mut self) -> io::Result<Asked> {
        loop {
            let packet = self.hear_packet().await?;
            let [command, body @ ..] = &packet[..] else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            let text = String::from_utf8_lossy(body).into_owned();
            let next = u32::try_from(self.texts.len()).expect("few");
            let asked = match command {
                0x01 => return Err(io::ErrorKind::ConnectionAborted.into()),
                // COM_STMT_CLOSE has no answer.
                0x19 => continue,
                0x16 => {
                    self.texts.insert(next.to_le_bytes().to_vec(), text.clone());
                    Asked { command: *command, text, runs: false, id: next }
                }
                0x17 => {
                    let id = body.get(..4).unwrap_or_default();
                    let text = self.texts.get(id).cloned().unwrap_or_default();
                    Asked { command: *command, text, runs: true, id: 0 }
                }
                _ => Asked { command: *command, runs: text == "SELECT 1", text, id: 0 },
            };
            return Ok(asked);
        }
    }

    /// One packet, of as many frames as it takes.
    pub async fn hear_packet(&mut self) -> io::Result<Vec<u8>> {
        let mut packet = Vec::new();
        loop {
            let [a, b, c, _] = self.fill(4).await?[..] else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let length = u32::from_le_bytes([a, b, c, 0]) as usize;
            packet.extend(self.fill(length).await?);
            if length < 0xFF_FFFF {
                return Ok(packet);
            }
        }
    }
}

/// One frame.
pub fn packet(sequence: u8, body: &[u8]) -> Vec<u8> {
    let [a, b, c, _] = u32::try_from(body.len()).expect("small").to_le_bytes();
    [&[a, b, c, sequence], body].concat()
}

/// An OK, with autocommit.
pub const OK: &[u8] = b"\0\0\0\x02\0\0\0";
/// The OK that ends rows.
const END: &[u8] = b"\xFE\0\0\x02\0\0\0";

/// The server's first packet: version, connection 7, twenty bytes of challenge, all capabilities that matter.
pub fn handshake() -> Vec<u8> {
    let capabilities = !(1_u32 << 11 | 1 << 26);
    let [a, b, c, d] = capabilities.to_le_bytes();
    let body = [
        &b"\x0A8.4.6\0\x07\0\0\0abcdefgh\0"[..],
        &[a, b, 45, 2, 0, c, d, 21],
        &[0; 10],
        b"ijklmnopqrst\0caching_sha2_password\0",
    ];
    packet(0, &body.concat())
}

/// What a server says to a client that it takes.
pub fn greeting() -> Vec<u8> {
    packet(2, OK)
}

/// ERR.
pub fn error(sequence: u8, number: u16, state: &str) -> Vec<u8> {
    packet(sequence, &[&[0xFF], &number.to_le_bytes()[..], b"#", state.as_bytes(), b"as it is"].concat())
}

/// A column named `c`: an int or a longer type, in binary.
fn column(sequence: u8, code: u8) -> Vec<u8> {
    let names = b"\x03def\0\0\0\x01c\0\x0C\x3F\0\x0B\0\0\0";
    packet(sequence, &[&names[..], &[code, 0, 0, 0, 0, 0]].concat())
}

fn number_row(sequence: u8, number: i32) -> Vec<u8> {
    packet(sequence, &[&[0, 0][..], &number.to_le_bytes()].concat())
}

/// A row of a number, as text.
fn text_answer(number: &str) -> Vec<u8> {
    let row = [&[u8::try_from(number.len()).expect("short")], number.as_bytes()].concat();
    [packet(1, &[1]), column(2, 3), packet(3, &row), packet(4, END)].concat()
}

fn number_answer(number: i32) -> Vec<u8> {
    [packet(1, &[1]), column(2, 3), number_row(3, number), packet(4, END)].concat()
}

/// A good answer. A statement gives the number at its end as an int.
pub fn answer(asked: &Asked) -> Vec<u8> {
    let number = asked.text.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
    match asked.command {
        0x16 => {
            let parameters = u8::try_from(asked.text.matches('?').count()).expect("few");
            let [a, b, c, d] = asked.id.to_le_bytes();
            let mut said = packet(1, &[0, a, b, c, d, 1, 0, parameters, 0, 0, 0, 0]);
            for definition in 0..=parameters {
                said.extend(column(2 + definition, 3));
            }
            said
        }
        0x17 => number_answer(number),
        0x03 if asked.text.contains("@@max_allowed_packet") => text_answer("67108864"),
        0x03 if asked.text == "SELECT 1" => text_answer("1"),
        _ => packet(1, OK),
    }
}

/// The answer to `SELECT 7`, and where its rows begin.
pub fn seven() -> Vec<u8> {
    number_answer(7)
}

/// What is no answer, and known not to be one at once.
pub fn garbage() -> Vec<Vec<u8>> {
    vec![
        b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        b"\x15\x03\x03\0\x02\x02\x46".to_vec(),
        vec![0; 64],
        vec![0xff; 64],
        // Frames out of order, an answer of more columns than there can be, and a file that is asked for.
        packet(2, OK),
        packet(1, &[0xFC, 0xFF, 0xFF]),
        packet(1, &[0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]),
        packet(1, b"\xFB/etc/passwd"),
        packet(1, &[0]),
        packet(1, &[0xFF, 0x10]),
        packet(1, &[]),
        // A row that is not binary, one that is empty, and one that skips a number.
        [packet(1, &[1]), column(2, 3), packet(3, b"\x017")].concat(),
        [packet(1, &[1]), column(2, 3), packet(3, &[])].concat(),
        [packet(1, &[1]), column(2, 3), number_row(4, 7)].concat(),
    ]
}

/// The first words of servers of other protocols.
pub fn other_protocols() -> Vec<Vec<u8>> {
    vec![
        // PostgreSQL: an error about a startup packet that it did not like.
        b"E\0\0\0\x20SFATAL\0C08P01\0Mwhat is it?\0\0".to_vec(),
        b"R\0\0\0\x08\0\0\0\0".to_vec(),
    ]
}

/// A refusal for a greeting, its kind, and what is seen of it.
pub fn refusals() -> Vec<(Vec<u8>, ErrorKind, &'static str)> {
    vec![
        (error(2, 1040, "08004"), ErrorKind::Connect, "08004"),
        (error(2, 1053, "08S01"), ErrorKind::Connect, "08S01"),
        (error(2, 1045, "28000"), ErrorKind::Auth, "28000"),
    ]
}

/// Ways of logging in that are not offered, a password that is not given away, and a second factor that was not set.
pub fn strange_demands() -> Vec<Vec<u8>> {
    vec![
        packet(2, b"\xFEdialog\0Password: \0"),
        packet(2, b"\xFEsha256_password\0abcdefghijklmnopqrst\0"),
        packet(2, b"\xFEmysql_clear_password\0"),
        packet(2, b"\xFEauthentication_ldap_sasl_client\0x\0"),
        packet(2, b"\x02caching_sha2_password\0abcdefghijklmnopqrst\0"),
    ]
}

/// The beginning of an answer whose row never comes.
pub fn announced_row() -> Vec<u8> {
    [packet(1, &[1]), column(2, 3), b"\xFF\xFF\xFF\x03\0\0".to_vec()].concat()
}

/// The parts of an answer of very many rows, of which the second can be said again and again.
pub fn many_rows() -> [Vec<u8>; 3] {
    let rows: Vec<u8> = (0..256 * 40).flat_map(|n| number_row((3 + n % 256) as u8, 7)).collect();
    [[packet(1, &[1]), column(2, 3)].concat(), rows, packet(3, END)]
}

/// What a server says when it ends a session, and what is seen of it.
pub fn last_word() -> (Vec<u8>, &'static str) {
    (error(1, 1053, "08S01"), "08S01")
}

/// What nobody has asked for and is told from an answer.
pub fn unasked() -> Vec<Vec<u8>> {
    vec![packet(7, OK), number_row(9, 9), packet(3, END), packet(5, b"\x01")]
}

/// What a server says without end: rows. (It says nothing unasked while it works.)
pub fn chatter() -> Vec<(Vec<u8>, Vec<u8>)> {
    let [begin, rows, _] = many_rows();
    vec![(begin, rows)]
}

/// What a server says from the first byte to the last of the connection phase.
pub fn connection_phase() -> Vec<Vec<u8>> {
    vec![handshake(), greeting()]
}
