//! MySQL's side of a connection: cached authentication, commands, prepared statements by number, autocommit.
//!
//! Sources: MySQL internals, "Connection Phase", "Command Phase", `Protocol::ColumnDefinition41`.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::link::End;
use crate::server::{Mood, Server};
use crate::session::Session;
use crate::text::{Args, Text, check, padding};

/// Serves one connection until it ends.
pub async fn serve(io: End, server: Arc<Server>, connection: usize, node: usize) {
    let mut backend = Backend {
        io,
        input: BytesMut::new(),
        out: Vec::new(),
        sequence: 0,
        session: Session::new(&server, connection, node),
        autocommit: true,
        changed: false,
        statements: HashMap::new(),
        prepared: 0,
        several: false,
    };
    // However it ends, the client finds out by itself.
    let _ = backend.run().await;
}

struct Backend {
    io: End,
    input: BytesMut,
    out: Vec<u8>,
    sequence: u8,
    session: Session,
    autocommit: bool,
    /// The command has changed the session.
    changed: bool,
    statements: HashMap<u32, Text>,
    /// The number that was given last.
    prepared: u32,
    /// A text may hold several statements.
    several: bool,
}

const LONGLONG: u8 = 8;
const VAR_STRING: u8 = 253;

const SYNTAX: u16 = 1064;
const DUPLICATE: u16 = 1062;
const NO_STATEMENT: u16 = 1243;
const PREPARE_AGAIN: u16 = 1615;
const NO_ROOM: u16 = 1461;
const DEADLOCK: u16 = 1213;
const LOCK_TIMEOUT: u16 = 1205;
const TOO_MANY: u16 = 1040;
const SHUTDOWN: u16 = 1053;
const STOPPED: u16 = 1317;
const READ_ONLY: u16 = 1290;
const NO_SAVEPOINT: u16 = 1305;
const NO_SUCH_THREAD: u16 = 1094;
const OUT_OF_RANGE: u16 = 1690;

impl Backend {
    async fn run(&mut self) -> io::Result<()> {
        self.start().await?;
        loop {
            let body = self.packet().await?;
            let Some((command, body)) = body.split_first() else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            self.sequence = 1;
            self.changed = false;
            match command {
                0x01 => return Ok(()),
                0x03 => self.query(body).await?,
                0x0E => self.ok(0x00, 0, false),
                0x16 => self.prepare(body).await?,
                0x17 => self.execute(body).await?,
                0x19 => {
                    let id = body.first_chunk().map_or(0, |id| u32::from_le_bytes(*id));
                    self.statements.remove(&id);
                    continue;
                }
                0x1B => {
                    self.several = body.first() == Some(&0);
                    self.ok(0xFE, 0, false);
                }
                0x1F => self.reset().await?,
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
            self.flush().await?;
        }
    }

    /// The handshake, the response, "the cache knows you", and OK.
    async fn start(&mut self) -> io::Result<()> {
        if self.consider("starting").await?.is_some() {
            self.error(TOO_MANY);
            self.flush().await?;
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        // All capabilities but SSL.
        let [low, high] = [0xF7FF_u16, 0xFFFF];
        let connection = self.session.connection as u32;
        self.put(|out| {
            out.put_u8(10);
            out.put_slice(b"8.4.0\0");
            out.put_u32_le(connection);
            out.put_slice(b"abcdefgh\0");
            out.put_u16_le(low);
            out.put_slice(&[45, 2, 0]);
            out.put_u16_le(high);
            out.put_u8(21);
            out.put_bytes(0, 10);
            out.put_slice(b"ijklmnopqrst\0caching_sha2_password\0");
        });
        self.flush().await?;
        let _response = self.packet().await?;
        self.sequence = 2;
        self.put(|out| out.put_slice(&[0x01, 0x03]));
        self.ok(0x00, 0, false);
        self.flush().await
    }

    async fn prepare(&mut self, body: &[u8]) -> io::Result<()> {
        let text = Text::parse(&String::from_utf8_lossy(body));
        if let Some(reason) = self.consider("prepare").await? {
            self.refused(if reason % 2 == 0 { SYNTAX } else { NO_ROOM });
            return Ok(());
        }
        self.prepared += 1;
        let id = self.prepared;
        self.statements.insert(id, text);
        let takes = text.takes();
        let gives = u16::from(matches!(text, Text::Echo { .. })) * 3;
        self.put(|out| {
            out.put_u8(0);
            out.put_u32_le(id);
            out.put_u16_le(gives);
            out.put_u16_le(takes);
            out.put_slice(&[0, 0, 0]);
        });
        for index in 0..takes {
            self.column("?", if index < 4 { LONGLONG } else { VAR_STRING });
        }
        if gives > 0 {
            self.columns();
        }
        Ok(())
    }

    async fn execute(&mut self, body: &[u8]) -> io::Result<()> {
        let id = body.first_chunk().map_or(0, |id| u32::from_le_bytes(*id));
        let takes = self.statements.get(&id).map_or(0, |text| text.takes());
        let args = parameters(body, usize::from(takes));
        if let Some(reason) = self.consider("execute").await? {
            match reason % 4 {
                0 => {
                    self.statements.remove(&id);
                }
                1 => return self.done(PREPARE_AGAIN),
                2 => return self.done(DEADLOCK),
                _ => return self.done(LOCK_TIMEOUT),
            }
        }
        let Some(text) = self.statements.get(&id).copied() else { return self.done(NO_STATEMENT) };
        if let Some(args) = args
            && let Err(number) = self.works(args).await
        {
            return self.done(number);
        }
        self.perform(text, args, true, false)
    }

    async fn query(&mut self, body: &[u8]) -> io::Result<()> {
        let script = String::from_utf8_lossy(body).into_owned();
        let statements: Vec<&str> = if self.several {
            script.split(';').map(str::trim).filter(|statement| !statement.is_empty()).collect()
        } else {
            vec![script.trim()]
        };
        for (index, statement) in statements.iter().enumerate() {
            let text = Text::parse(statement);
            if let Some(reason) = self.consider("query").await? {
                if text == Text::Commit {
                    self.roll_back();
                    return self.done(DEADLOCK);
                }
                return self.done(if reason % 2 == 0 { SYNTAX } else { LOCK_TIMEOUT });
            }
            let args = Text::args(statement);
            if let Some(args) = args
                && matches!(text, Text::Echo { .. } | Text::Write { .. })
                && let Err(number) = self.works(args).await
            {
                return self.done(number);
            }
            if let Text::Kill(connection) = text {
                return self.kill(connection as usize).await;
            }
            let failed = self.out.len();
            self.perform(text, args, false, index + 1 < statements.len())?;
            if self.out.get(failed + 4) == Some(&0xFF) {
                break;
            }
        }
        Ok(())
    }

    /// Works on a statement; the error's number if nothing comes of it.
    async fn works(&mut self, args: Args) -> Result<(), u16> {
        if self.session.works(args).await {
            return Err(STOPPED);
        }
        if self.session.server().conflicts(args) {
            return Err(if args.id % 2 == 0 { DEADLOCK } else { LOCK_TIMEOUT });
        }
        Ok(())
    }

    /// Has another connection stop what it is at.
    async fn kill(&mut self, connection: usize) -> io::Result<()> {
        let server = Arc::clone(self.session.server());
        server.wants_to_stop(self.session.node, connection);
        tokio::time::sleep(Duration::from_millis(server.dawdles())).await;
        if server.stops(connection) {
            self.ok(0, 0, false);
            return Ok(());
        }
        self.done(NO_SUCH_THREAD)
    }

    /// Runs a statement and writes its answer.
    fn perform(&mut self, text: Text, args: Option<Args>, binary: bool, more: bool) -> io::Result<()> {
        // Without autocommit every statement is part of a transaction.
        let works = matches!(text, Text::Echo { .. } | Text::Write { .. } | Text::Savepoint(_));
        if !self.autocommit && works && !self.session.open {
            self.session.begin();
        }
        match (text, args) {
            (Text::Echo { variant }, Some(args)) => {
                self.session.run(text, args);
                if args.size < 0 {
                    return self.done(DUPLICATE);
                }
                self.put(|out| out.put_u8(3));
                self.columns();
                let (check, padding) = (check(args, variant), padding(args));
                self.put(|out| {
                    if binary {
                        out.put_slice(&[0, 0]);
                        out.put_i64_le(args.id);
                        out.put_i64_le(check);
                    } else {
                        lenenc(out, args.id.to_string().as_bytes());
                        lenenc(out, check.to_string().as_bytes());
                    }
                    lenenc(out, padding.as_bytes());
                });
                self.ok(0xFE, 0, more);
            }
            (Text::Write { .. }, Some(_)) if self.session.server().refuses_to_write(self.session.node) => {
                return self.done(READ_ONLY);
            }
            (Text::Write { .. }, Some(args)) => {
                self.session.run(text, args);
                if args.size < 0 {
                    self.session.undo(args.id);
                    return self.done(DUPLICATE);
                }
                if self.autocommit && !self.session.open {
                    self.session.commit();
                }
                self.ok(0, 1, more);
            }
            (Text::Begin, _) => {
                self.session.commit();
                self.session.begin();
                self.ok(0, 0, more);
            }
            (Text::Commit, _) => {
                self.session.commit();
                self.ok(0, 0, more);
            }
            (Text::Rollback, _) => {
                self.roll_back();
                self.ok(0, 0, more);
            }
            (Text::Autocommit(on), _) => {
                if on && !self.autocommit {
                    self.session.commit();
                }
                self.changed |= on != self.autocommit;
                self.autocommit = on;
                self.ok(0, 0, more);
            }
            (Text::Savepoint(number), _) => {
                // Outside of a transaction it is gone with the statement.
                if self.session.open {
                    self.session.set_savepoint(number);
                }
                self.ok(0, 0, more);
            }
            (Text::Back(number), _) => {
                if !self.session.go_back(number) {
                    return self.done(NO_SAVEPOINT);
                }
                self.ok(0, 0, more);
            }
            (Text::Release(number), _) => {
                if !self.session.release(number) {
                    return self.done(NO_SAVEPOINT);
                }
                self.ok(0, 0, more);
            }
            (Text::AskReadOnly, _) => {
                if self.session.server().is_read_only(self.session.node) {
                    return self.done(OUT_OF_RANGE);
                }
                self.put(|out| out.put_u8(1));
                self.column("EXP(1000 * @@global.read_only)", VAR_STRING);
                self.put(|out| lenenc(out, b"1"));
                self.ok(0xFE, 0, more);
            }
            (Text::Mark(marker), _) => {
                self.session.mark(marker);
                self.changed = true;
                self.ok(0, 0, more);
            }
            (Text::MaxPacket, _) => {
                self.put(|out| out.put_u8(1));
                self.column("@@max_allowed_packet", LONGLONG);
                self.put(|out| lenenc(out, b"67108864"));
                self.ok(0xFE, 0, more);
            }
            (Text::Echo { .. } | Text::Write { .. }, None) => return self.done(SYNTAX),
            (Text::Reset | Text::Kill(_) | Text::Other, _) => self.ok(0, 0, more),
        }
        Ok(())
    }

    async fn reset(&mut self) -> io::Result<()> {
        self.roll_back();
        self.session.mark(0);
        self.statements.clear();
        self.autocommit = true;
        self.several = false;
        if self.consider("reset").await?.is_some() {
            return self.done(LOCK_TIMEOUT);
        }
        self.ok(0, 0, false);
        Ok(())
    }

    fn roll_back(&mut self) {
        self.session.roll_back();
    }

    /// The command ends with an error; some undo the whole transaction.
    #[expect(clippy::unnecessary_wraps, reason = "commands end with it")]
    fn done(&mut self, number: u16) -> io::Result<()> {
        if number == DEADLOCK {
            self.roll_back();
        }
        self.refused(number);
        Ok(())
    }

    fn refused(&mut self, number: u16) {
        self.error(number);
    }

    fn error(&mut self, number: u16) {
        self.put(|out| {
            out.put_u8(0xFF);
            out.put_u16_le(number);
            out.put_slice(b"#HY000refused");
        });
    }

    fn ok(&mut self, header: u8, affected: u8, more: bool) {
        let status = u16::from(self.session.open)
            | u16::from(self.autocommit) << 1
            | u16::from(more) << 3
            | u16::from(self.changed) << 14;
        self.put(|out| {
            out.put_slice(&[header, affected, 0]);
            out.put_u16_le(status);
            out.put_u16_le(0);
        });
    }

    fn columns(&mut self) {
        for (name, kind) in [("id", LONGLONG), ("check", LONGLONG), ("padding", VAR_STRING)] {
            self.column(name, kind);
        }
    }

    fn column(&mut self, name: &str, kind: u8) {
        self.put(|out| {
            lenenc(out, b"def");
            out.put_slice(&[0, 0, 0]);
            lenenc(out, name.as_bytes());
            lenenc(out, name.as_bytes());
            out.put_slice(&[0x0C, 45, 0]);
            out.put_u32_le(1024);
            out.put_u8(kind);
            out.put_slice(&[0, 0, 0, 0, 0]);
        });
    }

    async fn consider(&mut self, at: &'static str) -> io::Result<Option<u64>> {
        match self.session.server().mood(self.session.connection, at) {
            Mood::Fine => Ok(None),
            Mood::Refuses(reason) => Ok(Some(reason)),
            Mood::Dies => {
                self.error(SHUTDOWN);
                self.flush().await?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            Mood::Vanishes => Err(io::ErrorKind::ConnectionAborted.into()),
            Mood::Pauses(time) => {
                self.flush().await?;
                tokio::time::sleep(Duration::from_millis(time)).await;
                Ok(None)
            }
        }
    }

    /// One packet; each takes the next number of its dialogue.
    fn put(&mut self, body: impl FnOnce(&mut Vec<u8>)) {
        let at = self.out.len();
        self.out.put_slice(&[0, 0, 0, self.sequence]);
        self.sequence = self.sequence.wrapping_add(1);
        body(&mut self.out);
        let length = (self.out.len() - at - 4) as u32;
        self.out[at..at + 3].copy_from_slice(&length.to_le_bytes()[..3]);
    }

    async fn packet(&mut self) -> io::Result<BytesMut> {
        loop {
            if let [a, b, c, _, ..] = self.input[..] {
                let total = 4 + u32::from_le_bytes([a, b, c, 0]) as usize;
                if self.input.len() >= total {
                    let mut packet = self.input.split_to(total);
                    packet.advance(4);
                    return Ok(packet);
                }
            }
            if self.io.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.io.write_all(&self.out).await?;
        self.out.clear();
        Ok(())
    }
}

/// A text behind its length.
fn lenenc(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        length @ 0..=250 => out.put_u8(length as u8),
        length @ 251..=0xFFFF => {
            out.put_u8(0xFC);
            out.put_u16_le(length as u16);
        }
        length => {
            out.put_u8(0xFD);
            out.put_slice(&(length as u32).to_le_bytes()[..3]);
        }
    }
    out.put_slice(text);
}

/// Behind the id (4), flags (1) and iterations (4): bitmap (1), 1, types of two bytes, then four numbers of eight bytes,
/// and perhaps one more that tells nothing.
fn parameters(body: &[u8], count: usize) -> Option<Args> {
    let mut values = body.get(9 + 1 + 1 + 2 * count..)?;
    let mut next = || values.try_get_i64_le().ok();
    Some(Args { id: next()?, owner: next()?, work: next()?, size: next()? })
}
