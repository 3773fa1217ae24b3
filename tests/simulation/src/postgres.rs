//! PostgreSQL's side of a connection: trust, the extended and the simple protocol, prepared statements by name.
//!
//! Sources: PostgreSQL documentation, "Message Flow" and "Message Formats".

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
        session: Session::new(&server, connection, node),
        statements: HashMap::new(),
        portal: None,
        skipping: false,
    };
    // However it ends, the client finds out by itself.
    let _ = backend.run().await;
}

struct Backend {
    io: End,
    input: BytesMut,
    out: Vec<u8>,
    session: Session,
    statements: HashMap<String, Text>,
    /// The unnamed portal.
    portal: Option<(Text, Option<Args>)>,
    /// After an error everything up to Sync is skipped.
    skipping: bool,
}

/// SQLSTATEs, and what they mean to the one who asked.
const SYNTAX: &str = "42601";
const NO_STATEMENT: &str = "26000";
const PLAN_CHANGED: &str = "0A000";
const UNIQUE: &str = "23505";
const SERIALIZATION: &str = "40001";
const DEADLOCK: &str = "40P01";
const STOPPED: &str = "57014";
const READ_ONLY: &str = "25006";
const NO_SAVEPOINT: &str = "3B001";
const NOT_OPEN: &str = "25P01";
const DIVIDED_BY_ZERO: &str = "22012";
const IN_FAILED: &str = "25P02";
/// The code of a request to stop, and what it must know of a connection.
const CANCEL: u32 = 80_877_102;
const SECRET: u32 = 7;
const INT8: u32 = 20;
const TEXT: u32 = 25;

impl Backend {
    async fn run(&mut self) -> io::Result<()> {
        self.start().await?;
        loop {
            let (tag, body) = self.message().await?;
            match tag {
                b'X' => return Ok(()),
                b'Q' => {
                    self.simple(&body).await?;
                    self.flush().await?;
                }
                b'S' => {
                    self.sync().await?;
                    self.flush().await?;
                }
                _ if self.skipping => {}
                tag => {
                    if let Err(code) = self.extended(tag, body).await? {
                        self.refuse(code);
                        self.skipping = true;
                    }
                    // A server sends when its buffer is full.
                    if self.out.len() > 8192 {
                        self.flush().await?;
                    }
                }
            }
        }
    }

    /// The startup message; what accepts it, parameters, the key, and that the server is ready.
    async fn start(&mut self) -> io::Result<()> {
        let length = loop {
            if let Some(length) = self.input.first_chunk().map(|length| u32::from_be_bytes(*length) as usize)
                && self.input.len() >= length
            {
                break length;
            }
            self.fill().await?;
        };
        let mut message = self.input.split_to(length);
        message.advance(4);
        if message.try_get_u32() == Ok(CANCEL) {
            return self.cancel(message).await;
        }
        if self.consider("starting").await?.is_some() {
            let refused = self.fatal("53300");
            self.flush().await?;
            return refused;
        }
        self.put(b'R', |out| out.put_u32(0));
        self.put(b'S', |out| out.put_slice(b"server_version\x0018.0\0"));
        let connection = self.session.connection as u32;
        self.put(b'K', |out| {
            out.put_u32(connection);
            out.put_u32(SECRET);
        });
        self.put(b'Z', |out| out.put_u8(b'I'));
        self.flush().await
    }

    /// Passes a request to stop on, and ends the connection.
    async fn cancel(&mut self, mut message: BytesMut) -> io::Result<()> {
        let server = Arc::clone(self.session.server());
        if let (Ok(connection), Ok(SECRET)) = (message.try_get_u32(), message.try_get_u32()) {
            server.wants_to_stop(self.session.node, connection as usize);
            tokio::time::sleep(Duration::from_millis(server.dawdles())).await;
            server.stops(connection as usize);
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    /// Parse, Bind, Describe, Execute, Close; the error's code if it is refused.
    async fn extended(&mut self, tag: u8, mut body: BytesMut) -> io::Result<Result<(), &'static str>> {
        match tag {
            b'P' => {
                let name = c_string(&mut body)?;
                let text = c_string(&mut body)?;
                if self.consider("parse").await?.is_some() {
                    return Ok(Err(SYNTAX));
                }
                if self.session.failed && !may_run_in_failed(Text::parse(&text)) {
                    return Ok(Err(IN_FAILED));
                }
                self.statements.insert(name, Text::parse(&text));
                self.put(b'1', |_| ());
            }
            b'D' => {
                body.advance(1);
                let name = c_string(&mut body)?;
                if self.consider("describe").await?.is_some() {
                    return Ok(Err(PLAN_CHANGED));
                }
                let Some(text) = self.statements.get(&name).copied() else { return Ok(Err(NO_STATEMENT)) };
                self.describe(text);
            }
            b'B' => {
                let _portal = c_string(&mut body)?;
                let name = c_string(&mut body)?;
                if let Some(reason) = self.consider("bind").await? {
                    if reason % 3 == 0 {
                        return Ok(Err("22023"));
                    }
                    if reason % 3 == 1 {
                        self.statements.remove(&name);
                        return Ok(Err(NO_STATEMENT));
                    }
                    return Ok(Err(PLAN_CHANGED));
                }
                let Some(text) = self.statements.get(&name).copied() else { return Ok(Err(NO_STATEMENT)) };
                if self.session.failed && !may_run_in_failed(text) {
                    return Ok(Err(IN_FAILED));
                }
                self.portal = Some((text, parameters(&mut body)));
                self.put(b'2', |_| ());
            }
            b'E' => {
                let Some((text, args)) = self.portal.take() else { return Ok(Err("34000")) };
                return self.execute(text, args).await;
            }
            b'C' => {
                body.advance(1);
                let name = c_string(&mut body)?;
                self.statements.remove(&name);
                self.put(b'3', |_| ());
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(Ok(()))
    }

    fn describe(&mut self, text: Text) {
        self.put(b't', |out| {
            out.put_u16(text.takes());
            for index in 0..text.takes() {
                out.put_u32(if index < 4 { INT8 } else { TEXT });
            }
        });
        if let Text::Echo { .. } = text {
            self.put(b'T', |out| {
                out.put_u16(3);
                for (name, oid) in [("id", INT8), ("check", INT8), ("padding", TEXT)] {
                    out.put_slice(name.as_bytes());
                    out.put_slice(&[0; 7]);
                    out.put_u32(oid);
                    out.put_slice(&[0, 8, 0xff, 0xff, 0xff, 0xff, 0, 1]);
                }
            });
        } else {
            self.put(b'n', |_| ());
        }
    }

    async fn execute(&mut self, text: Text, args: Option<Args>) -> io::Result<Result<(), &'static str>> {
        if let Some(args) = args {
            if self.session.works(args).await {
                return Ok(Err(STOPPED));
            }
            if self.session.server().conflicts(args) {
                return Ok(Err(if args.id % 2 == 0 { SERIALIZATION } else { DEADLOCK }));
            }
        }
        if let Some(reason) = self.consider("execute").await? {
            if text == Text::Commit {
                self.session.roll_back();
            }
            return Ok(Err(if reason % 2 == 0 { SERIALIZATION } else { UNIQUE }));
        }
        Ok(self.perform(text, args))
    }

    fn perform(&mut self, text: Text, args: Option<Args>) -> Result<(), &'static str> {
        let tag = match (text, args) {
            (Text::Echo { variant }, Some(args)) => {
                self.session.run(text, args);
                if args.size < 0 {
                    return Err(UNIQUE);
                }
                let padding = padding(args);
                self.put(b'D', |out| {
                    out.put_u16(3);
                    out.put_u32(8);
                    out.put_i64(args.id);
                    out.put_u32(8);
                    out.put_i64(check(args, variant));
                    out.put_u32(padding.len() as u32);
                    out.put_slice(padding.as_bytes());
                });
                "SELECT 1"
            }
            (Text::Write { .. }, Some(_)) if self.session.server().refuses_to_write(self.session.node) => {
                return Err(READ_ONLY);
            }
            (Text::Write { .. }, Some(args)) => {
                self.session.run(text, args);
                if args.size < 0 {
                    return Err(UNIQUE);
                }
                "INSERT 0 1"
            }
            (Text::Begin, _) => {
                self.session.begin();
                "BEGIN"
            }
            (Text::Commit, _) if self.session.failed => {
                self.session.roll_back();
                "ROLLBACK"
            }
            (Text::Commit, _) => {
                self.session.commit();
                "COMMIT"
            }
            (Text::Rollback, _) => {
                self.session.roll_back();
                "ROLLBACK"
            }
            (Text::Savepoint(_) | Text::Back(_) | Text::Release(_), _) if !self.session.open => {
                return Err(NOT_OPEN);
            }
            (Text::Savepoint(number), _) => {
                self.session.set_savepoint(number);
                "SAVEPOINT"
            }
            (Text::Back(number), _) => {
                if !self.session.go_back(number) {
                    return Err(NO_SAVEPOINT);
                }
                "ROLLBACK"
            }
            (Text::Release(number), _) => {
                if !self.session.release(number) {
                    return Err(NO_SAVEPOINT);
                }
                "RELEASE"
            }
            (Text::AskReadOnly, _) => {
                if self.session.server().is_read_only(self.session.node) {
                    return Err(DIVIDED_BY_ZERO);
                }
                "SELECT 1"
            }
            (Text::Mark(marker), _) => {
                self.session.mark(marker);
                "SET"
            }
            (Text::Reset, _) => {
                self.session.mark(0);
                "RESET"
            }
            (
                Text::Autocommit(_)
                | Text::MaxPacket
                | Text::Kill(_)
                | Text::Echo { .. }
                | Text::Write { .. },
                _,
            ) => {
                return Err(SYNTAX);
            }
            (Text::Other, _) => "OTHER",
        };
        self.complete(tag);
        Ok(())
    }

    async fn simple(&mut self, body: &[u8]) -> io::Result<()> {
        let script = String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(body)).into_owned();
        let mut empty = true;
        for statement in script.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
            empty = false;
            let text = Text::parse(statement);
            let refused = self.consider("script").await?.is_some();
            let failed = self.session.failed && !may_run_in_failed(text);
            let result = match (failed, refused) {
                (true, _) => Err(IN_FAILED),
                (false, true) => Err(SYNTAX),
                (false, false) => {
                    if statement == "DISCARD ALL" {
                        self.statements.clear();
                    }
                    self.perform(text, Text::args(statement))
                }
            };
            if let Err(code) = result {
                self.refuse(code);
                break;
            }
        }
        if empty {
            self.put(b'I', |_| ());
        }
        self.sync().await
    }

    /// The implicit transaction ends, unless an explicit one is open.
    async fn sync(&mut self) -> io::Result<()> {
        self.portal = None;
        if !self.session.open {
            // A constraint may be deferred until here.
            if self.session.writes_something() && self.consider("sync").await?.is_some() {
                self.refuse(UNIQUE);
            }
            self.session.commit();
        }
        self.skipping = false;
        let status = match (self.session.open, self.session.failed) {
            (false, _) => b'I',
            (true, false) => b'T',
            (true, true) => b'E',
        };
        self.put(b'Z', |out| out.put_u8(status));
        Ok(())
    }

    fn refuse(&mut self, code: &str) {
        if self.session.open {
            self.session.failed = true;
        } else {
            self.session.roll_back();
        }
        self.error("ERROR", code);
    }

    fn error(&mut self, severity: &str, code: &str) {
        self.put(b'E', |out| {
            for (field, value) in [(b'S', severity), (b'V', severity), (b'C', code), (b'M', "refused")] {
                out.put_u8(field);
                out.put_slice(value.as_bytes());
                out.put_u8(0);
            }
            out.put_u8(0);
        });
    }

    /// Says why, and ends.
    fn fatal(&mut self, code: &str) -> io::Result<()> {
        self.error("FATAL", code);
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    /// Whether it refuses, and why; the mood of the server takes its course.
    async fn consider(&mut self, at: &'static str) -> io::Result<Option<u64>> {
        match self.session.server().mood(self.session.connection, at) {
            Mood::Fine => Ok(None),
            Mood::Refuses(reason) => Ok(Some(reason)),
            Mood::Dies => {
                let died = self.fatal("57P01");
                self.flush().await?;
                died.map(|()| None)
            }
            Mood::Vanishes => Err(io::ErrorKind::ConnectionAborted.into()),
            Mood::Pauses(time) => {
                self.flush().await?;
                tokio::time::sleep(Duration::from_millis(time)).await;
                Ok(None)
            }
        }
    }

    fn complete(&mut self, tag: &str) {
        self.put(b'C', |out| {
            out.put_slice(tag.as_bytes());
            out.put_u8(0);
        });
    }

    fn put(&mut self, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(tag);
        let at = self.out.len();
        self.out.put_u32(0);
        body(&mut self.out);
        let length = (self.out.len() - at) as u32;
        self.out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }

    async fn message(&mut self) -> io::Result<(u8, BytesMut)> {
        loop {
            if let [tag, a, b, c, d, ..] = self.input[..] {
                let total = 1 + u32::from_be_bytes([a, b, c, d]) as usize;
                if self.input.len() >= total {
                    let mut message = self.input.split_to(total);
                    message.advance(5);
                    return Ok((tag, message));
                }
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> io::Result<()> {
        match self.io.read_buf(&mut self.input).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.io.write_all(&self.out).await?;
        self.out.clear();
        Ok(())
    }
}

/// What a transaction takes in which something has failed.
fn may_run_in_failed(text: Text) -> bool {
    matches!(text, Text::Rollback | Text::Commit | Text::Back(_))
}

fn c_string(body: &mut BytesMut) -> io::Result<String> {
    let end = body.iter().position(|byte| *byte == 0).ok_or(io::ErrorKind::InvalidData)?;
    let text = String::from_utf8_lossy(&body.split_to(end)).into_owned();
    body.advance(1);
    Ok(text)
}

/// Four numbers in binary: formats, count, then each behind its length.
fn parameters(body: &mut BytesMut) -> Option<Args> {
    let formats = usize::from(body.try_get_u16().ok()?);
    body.try_get_i16().ok().filter(|_| formats > 0);
    for _ in 1..formats {
        body.try_get_i16().ok()?;
    }
    let count = body.try_get_u16().ok()?;
    let mut next = || {
        body.try_get_u32().ok().filter(|length| *length == 8)?;
        body.try_get_i64().ok()
    };
    // A fifth tells nothing.
    if matches!(count, 4 | 5) {
        Some(Args { id: next()?, owner: next()?, work: next()?, size: next()? })
    } else {
        None
    }
}
