//! A scripted PostgreSQL server: enough of the protocol to greet, to hear requests, and to answer them well.
//!
//! Source of the messages: PostgreSQL documentation, "Message Formats".

use std::io;

#[path = "../talk.rs"]
mod talk;

use super::ErrorKind;
pub use talk::{Peer, Talk};

/// ReadyForQuery, idle.
pub const READY: &[u8] = b"Z\0\0\0\x05I";

/// A message of the client.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Its type.
    pub tag: u8,
    /// What follows its length.
    pub body: Vec<u8>,
}

/// Everything up to one Sync, or one simple query.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The messages, in order.
    pub messages: Vec<Heard>,
    /// The text of the statement that is bound last, or parsed if none is bound, or of the simple query.
    pub text: String,
    /// Something is executed, not only prepared.
    pub runs: bool,
}

impl Talk {
    /// Hears the startup message; TLS is refused where it is asked for.
    pub async fn hear_startup(&mut self) -> io::Result<()> {
        loop {
            let [a, b, c, d] = self.fill(4).await?[..] else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            if self.fill(length.saturating_sub(4)).await? != [4, 210, 22, 47] {
                return Ok(());
            }
            self.say(b"N").await?;
        }
    }

    /// Hears the next request. The client's leaving is an error, which ends the script.
    pub async fn hear(&mut self) -> io::Result<Asked> {
        let mut asked = Asked { messages: Vec::new(), text: String::new(), runs: false };
        loop {
            let header = self.fill(5).await?;
            let [tag, a, b, c, d] = header[..] else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            let body = self.fill(length.saturating_sub(4)).await?;
            let mut strings = body.split(|byte| *byte == 0).map(<[u8]>::to_vec);
            let (first, second) = (strings.next().unwrap_or_default(), strings.next().unwrap_or_default());
            match tag {
                b'P' => {
                    asked.text = String::from_utf8_lossy(&second).into_owned();
                    self.texts.insert(first, asked.text.clone());
                }
                b'B' => asked.text = self.texts.get(&second).cloned().unwrap_or_default(),
                b'E' => asked.runs = true,
                b'Q' => (asked.text, asked.runs) = (String::from_utf8_lossy(&first).into_owned(), true),
                b'X' => return Err(io::ErrorKind::ConnectionAborted.into()),
                _ => {}
            }
            asked.messages.push(Heard { tag, body });
            if matches!(tag, b'S' | b'Q') {
                return Ok(asked);
            }
        }
    }
}

/// A message of the server.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("small").to_be_bytes();
    [&[tag], &length[..], body].concat()
}

/// What a server says to a client that it takes.
pub fn greeting() -> Vec<u8> {
    [
        message(b'R', &[0; 4]),
        message(b'S', b"TimeZone\0UTC\0"),
        message(b'K', &[0, 0, 0, 1, 0, 0, 0, 2]),
        READY.to_vec(),
    ]
    .concat()
}

/// ErrorResponse.
pub fn refusal(severity: &str, code: &str) -> Vec<u8> {
    message(b'E', format!("S{severity}\0V{severity}\0C{code}\0Mas it is\0\0").as_bytes())
}

/// ParameterDescription.
pub fn takes(types: &[u32]) -> Vec<u8> {
    let types: Vec<u8> = types.iter().flat_map(|oid| oid.to_be_bytes()).collect();
    message(b't', &[&((types.len() / 4) as u16).to_be_bytes(), &types[..]].concat())
}

/// RowDescription: columns named `c`, in binary.
pub fn gives(types: &[u32]) -> Vec<u8> {
    let columns = types.iter().flat_map(|oid| {
        [&b"c\0\0\0\0\0\0\0"[..], &oid.to_be_bytes(), b"\xff\xff\xff\xff\xff\xff\0\x01"].concat()
    });
    let columns: Vec<u8> = columns.collect();
    message(b'T', &[&(types.len() as u16).to_be_bytes(), &columns[..]].concat())
}

/// DataRow.
pub fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        let length = value.map_or(u32::MAX, |value| value.len() as u32);
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(value.unwrap_or_default());
    }
    message(b'D', &body)
}

/// A good answer. A statement gives the number at its end as an int4, and takes a bytea if it mentions `$1`.
pub fn answer(asked: &Asked) -> Vec<u8> {
    let words = asked.text.rsplit(' ').next().unwrap_or_default();
    let number: i32 = words.parse().unwrap_or(0);
    let done = [row(&[Some(&number.to_be_bytes())]), message(b'C', b"SELECT 1\0")].concat();
    let bytea: &[u32] = if asked.text.contains("$1") { &[17] } else { &[] };
    asked
        .messages
        .iter()
        .flat_map(|heard| match heard.tag {
            b'P' => message(b'1', b""),
            b'D' => [takes(bytea), gives(&[23])].concat(),
            b'B' => message(b'2', b""),
            b'C' => message(b'3', b""),
            b'E' => done.clone(),
            b'S' => READY.to_vec(),
            b'Q' if asked.text.is_empty() => [&message(b'I', b"")[..], READY].concat(),
            b'Q' => [&message(b'C', b"DO\0")[..], READY].concat(),
            _ => Vec::new(),
        })
        .collect()
}

/// The answer to `SELECT 7`.
pub fn seven() -> Vec<u8> {
    [message(b'2', b""), row(&[Some(&[0, 0, 0, 7])]), message(b'C', b"SELECT 1\0"), READY.to_vec()].concat()
}

/// What is no answer, and known not to be one at once.
pub fn garbage() -> Vec<Vec<u8>> {
    let bound = message(b'2', b"");
    vec![
        b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        b"\x15\x03\x03\0\x02\x02\x46".to_vec(),
        vec![0; 64],
        vec![0xff; 64],
        // Announced, and never sent: judged by the header alone.
        b"E\x7f\xff\xff\xff".to_vec(),
        b"T\x7f\xff\xff\xff".to_vec(),
        b"2\x7f\xff\xff\xff".to_vec(),
        [&bound[..], b"C\x7f\xff\xff\xff"].concat(),
        // Out of place.
        [&bound[..], &bound].concat(),
        [&bound[..], READY].concat(),
        READY.to_vec(),
        gives(&[23]),
        message(b'G', &[0; 3]),
        message(b'H', &[0; 3]),
    ]
}

/// The first words of servers of other protocols.
pub fn other_protocols() -> Vec<Vec<u8>> {
    // MySQL's greeting begins with its length, which may look like the type of a message.
    let handshake =
        |first: u8| [&[first, 0, 0, 0, 10][..], b"8.4.6\0\x08\0\0\0abcdefgh\0\xff\xf7\xff\x02"].concat();
    [b'J', b'R', b'N', b'E', b'S', b'K', b'Z', b'v', b'D'].map(handshake).into()
}

/// A refusal for a greeting, its kind, and what is seen of it.
pub fn refusals() -> Vec<(Vec<u8>, ErrorKind, &'static str)> {
    [("53300", ErrorKind::Connect), ("57P03", ErrorKind::Connect), ("28P01", ErrorKind::Auth)]
        .map(|(code, kind)| (refusal("FATAL", code), kind, code))
        .into()
}

/// Ways of logging in that are not offered: Kerberos V5, SCM credentials, GSSAPI, SSPI, and one that nobody knows.
pub fn strange_demands() -> Vec<Vec<u8>> {
    [2_u32, 6, 7, 9, 99].map(|code| message(b'R', &code.to_be_bytes())).into()
}

/// The beginning of an answer whose row never comes.
pub fn announced_row() -> Vec<u8> {
    [&message(b'2', b"")[..], b"D\x7f\xff\xff\xff\0\x01"].concat()
}

/// The parts of an answer of very many rows, of which the second can be said again and again.
pub fn many_rows() -> [Vec<u8>; 3] {
    let end = [&message(b'C', b"SELECT 2000000\0")[..], READY].concat();
    [message(b'2', b""), row(&[Some(&[0, 0, 0, 7])]).repeat(10_000), end]
}

/// What a server says when it ends a session, and what is seen of it.
pub fn last_word() -> (Vec<u8>, &'static str) {
    (refusal("FATAL", "57P01"), "57P01")
}

/// What nobody has asked for and is told from an answer.
pub fn unasked() -> Vec<Vec<u8>> {
    let nine = [row(&[Some(&[0, 0, 0, 9])]), message(b'C', b"SELECT 1\0")].concat();
    vec![
        READY.to_vec(),
        message(b'C', b"SELECT 1\0"),
        row(&[Some(&[0, 0, 0, 9])]),
        refusal("ERROR", "22012"),
        [&message(b'2', b"")[..], &nine, READY].concat(),
    ]
}

/// What a server says without being asked for it while it works, and what it goes on saying without end.
pub fn chatter() -> Vec<(Vec<u8>, Vec<u8>)> {
    let notice = message(b'N', format!("SNOTICE\0VNOTICE\0C00000\0M{}\0\0", "x".repeat(1_000)).as_bytes());
    let notification = message(b'A', b"\0\0\0\x01channel\0payload\0");
    let reports = message(b'S', b"TimeZone\0UTC\0");
    let bound = message(b'2', b"");
    let [begin, rows, _] = many_rows();
    vec![
        (Vec::new(), notice.repeat(60)),
        (bound, [notification, reports].concat().repeat(1_000)),
        (begin, rows),
    ]
}

/// What a server says from the first byte to the last of the connection phase.
pub fn connection_phase() -> Vec<Vec<u8>> {
    vec![greeting()]
}
