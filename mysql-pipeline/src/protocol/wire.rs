//! One connection's protocol after the handshake: requests in, answers out.
//!
//! The server works on one command after the other and answers in that order; each succeeds or fails alone. What a
//! request becomes:
//!
//! ```text
//!  statement with an id here    EXECUTE
//!  statement not known here     PREPARE ── id ──▶ EXECUTE      only what wants this statement waits
//!  the first of a transaction   opening ── OK ──▶ EXECUTE      if the opening fails, the statement is not run
//!  a script                     SET_OPTION, QUERY, SET_OPTION  several statements are allowed for its text alone
//!  a procedure, in one          SAVEPOINT, EXECUTE, RELEASE    there is none any more if the transaction was ended by it
//!  the end of a transaction     COMMIT, unless the server has undone it: then nothing is sent, and the asker is told
//! ```
//!
//! and what a command is answered with (`CLIENT_DEPRECATE_EOF` is always negotiated):
//!
//! ```text
//!  PREPARE          ERR | id, counts, then one packet per parameter and column
//!  EXECUTE, QUERY   one or several of  OK | number of columns, one packet per column, rows, OK (0xFE)
//!                   an ERR ends them
//!  CLOSE, QUIT      nothing: they take no place among the answers
//! ```
//!
//! Sees bytes only. Sources: MySQL internals, the responses of `COM_QUERY`, `COM_STMT_PREPARE` and
//! `COM_STMT_EXECUTE`, and "Sequence ID".

mod pending;
#[cfg(test)]
mod tests;
mod work;

use std::sync::Arc;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};
use wire_pipeline::answer::{Budget, Collector};
use wire_pipeline::buffer::{Out, ReadBuffer};
use wire_pipeline::wire::{Condition, Framed, Occasion, Received, Request as _, Statements, Wire};

pub(crate) use pending::Pending;
use pending::{Command, Kind, Row, State, Step};
use work::{Guard, Work};

use super::answer::{Answer, ResultSet};
use super::cache::{Cache, Found};
use super::command::{self, Bound, LARGEST_PACKET};
use super::packet::Header;
use super::request::{Request, What};
use super::response::{Done, Prepared, Status, parse_error};
use super::{lenenc, malformed};
use crate::error::{DatabaseError, ErrorKind, Fault, Outcome};
use crate::statement::{Class, Learned, chooses_database, script_chooses_database};

/// A table or a result has no more columns than this. Source: MySQL manual, "Limits on Table Column Count".
const MOST_COLUMNS: u64 = 4096;

/// What a connection knows of itself.
#[derive(Debug)]
pub(crate) struct MySqlWire {
    budget: Arc<Budget>,
    cache: Cache,
    /// Runs on a new session, and again after a reset.
    setup: Arc<[Bytes]>,
    /// As of the latest OK; an ERR does not bring one.
    status: Status,
    /// Settings were changed by somebody other than the engine.
    touched: bool,
    /// Chooses the configured database again, which a reset does not.
    home: Option<Bytes>,
    /// Another database was chosen since.
    away: bool,
    /// The transaction that was opened, until it ends.
    work: Option<Work>,
    /// The largest packet that the server takes; it ends the connection over a larger one.
    max_packet: usize,
    last_words: Option<Arc<DatabaseError>>,
    /// The server's number for this connection.
    number: Option<u32>,
}

impl MySqlWire {
    pub(crate) fn new(budget: &Arc<Budget>, statement_cache: usize, setup: Arc<[Bytes]>) -> Self {
        Self {
            budget: Arc::clone(budget),
            cache: Cache::new(statement_cache),
            setup,
            status: Status::default(),
            touched: false,
            home: None,
            away: false,
            work: None,
            max_packet: usize::MAX,
            last_words: None,
            number: None,
        }
    }

    /// The same with the server's number for its connection.
    pub(crate) fn with_number(self, number: u32) -> Self {
        Self { number: Some(number), ..self }
    }

    /// The same with the database that it was opened with.
    pub(crate) fn with_database(self, database: Option<&str>) -> Self {
        let home = database.map(|name| Bytes::from(format!("USE `{}`", name.replace('`', "``"))));
        Self { home, ..self }
    }

    pub(crate) fn number(&self) -> Option<u32> {
        self.number
    }

    /// Why a request cannot be sent, if it cannot.
    fn refusal(&self, request: &Request) -> Option<Fault> {
        let bytes = request.bytes();
        if bytes >= self.max_packet {
            return Some(too_large(bytes, self.max_packet));
        }
        if !request.part || request.opening.is_some() {
            return None;
        }
        match &self.work {
            None => Some(work::not_open()),
            Some(work) => work.refusal(&request.what),
        }
    }

    /// Frames a request that may be sent.
    fn frame_allowed(&mut self, request: &mut Request, out: &mut Out) -> Framed<Self> {
        let Request { what, opening, rows, own, guarded, .. } = request;
        if let What::Execute { statement, bound } = what {
            return self.frame_execute(statement, bound, *rows, *guarded, opening, out);
        }
        if let Some(text) = opening.take() {
            return self.frame_opening(&text, out);
        }
        let command = match what {
            What::Script(text) => {
                if !*own && script_chooses_database(&String::from_utf8_lossy(text)) {
                    self.chooses_database();
                }
                return self.frame_script(text, *own, *guarded, out);
            }
            What::Query(text) => {
                if !*own && chooses_database(&String::from_utf8_lossy(text)) {
                    self.chooses_database();
                }
                let guard = guarded.then(|| Guard::set(out));
                let asks = *own && text == LARGEST_PACKET;
                let kind = if asks { Kind::LargestPacket(SmallVec::new()) } else { Kind::Text };
                let pending = self.pending(Command::new(kind, command::query(out, text)));
                let pending = Pending { own: *own, wants_rows: *rows && !*own, ..pending };
                return Framed::Sent(Guard::release(guard, pending, out));
            }
            What::Commit { .. } => {
                Command::new(Kind::Commit, command::query(out, &Bytes::from_static(b"COMMIT")))
            }
            What::Rollback => {
                Command::new(Kind::Rollback, command::query(out, &Bytes::from_static(b"ROLLBACK")))
            }
            What::Dialogue { packet, sequence } => {
                self.cache.clear();
                Command::new(Kind::Dialogue(Vec::new()), command::dialogue(out, packet, *sequence))
            }
            What::Execute { .. } | What::Reset => {
                // From here on the server knows no statement, and what is written from here on must not use one.
                self.cache.clear();
                Command::new(Kind::Reset, command::reset_connection(out))
            }
        };
        Framed::Sent(Pending { own: *own, wants_rows: *rows && !*own, ..self.pending(command) })
    }

    fn frame_execute(
        &mut self,
        statement: &Arc<Learned>,
        bound: &Bound,
        rows: bool,
        guarded: bool,
        opening: &mut Option<Bytes>,
        out: &mut Out,
    ) -> Framed<Self> {
        let found = self.cache.find_or_ask(statement);
        if let Found::Ready(prepared) = found
            && prepared.parameters != bound.count
        {
            return Framed::Refused(wrong_count(prepared.parameters, bound.count));
        }
        for id in self.cache.take_to_close() {
            command::close(out, id);
        }
        let opening = opening.take().map(|text| Command::new(Kind::Opening, command::query(out, &text)));
        match (found, opening) {
            (Found::Ready(prepared), None) => {
                let guard = guarded.then(|| Guard::set(out));
                let sequence = command::execute(out, prepared.id, bound);
                let kind = Kind::Execute { statement: Arc::clone(statement), id: prepared.id };
                if statement.class == Class::Database {
                    self.chooses_database();
                }
                let pending = self.pending(Command::new(kind, sequence));
                let pending = Pending { wants_rows: rows, binary: true, ..pending };
                Framed::Sent(Guard::release(guard, pending, out))
            }
            (Found::Asked(key), None) => Framed::Waits { key },
            (Found::Ready(_) | Found::Asked(_), Some(opening)) => {
                let key = self.cache.next_key();
                Framed::Ahead { pending: self.pending(opening).ahead(key), key }
            }
            (Found::New(key), opening) => {
                let sequence = command::prepare(out, &statement.text);
                let kind = Kind::Prepare { statement: Arc::clone(statement), key, prepared: None };
                let prepare = Command::new(kind, sequence);
                let pending = match opening {
                    Some(opening) => Pending { then: smallvec![prepare], ..self.pending(opening) },
                    None => self.pending(prepare),
                };
                Framed::Ahead { pending: pending.ahead(key), key }
            }
        }
    }

    /// What is written now chooses another database. Prepared statements stay in the one that was chosen when they were
    /// prepared, so that none may be used behind this.
    ///
    /// Source: `Prepared_statement::m_db` in MySQL's and MariaDB's `sql_prepare.cc`.
    fn chooses_database(&mut self) {
        self.cache.forget_all();
        self.away = true;
    }

    /// An opening alone: what it opens for needs nothing else first.
    fn frame_opening(&mut self, text: &Bytes, out: &mut Out) -> Framed<Self> {
        let key = self.cache.next_key();
        let opening = Command::new(Kind::Opening, command::query(out, text));
        Framed::Ahead { pending: self.pending(opening).ahead(key), key }
    }

    fn frame_script(&mut self, text: &Bytes, own: bool, guarded: bool, out: &mut Out) -> Framed<Self> {
        let guard = guarded.then(|| Guard::set(out));
        let on = Command::new(Kind::Option, command::multi_statements(out, true));
        let text = Command::new(Kind::Text, command::query(out, text));
        let off = Command::new(Kind::Option, command::multi_statements(out, false));
        let pending = Pending { then: smallvec![text, off], own, ..self.pending(on) };
        Framed::Sent(Guard::release(guard, pending, out))
    }

    fn pending(&self, command: Command) -> Pending {
        Pending {
            command,
            then: SmallVec::new(),
            key: None,
            own: false,
            part: false,
            ended: false,
            binary: false,
            wants_rows: false,
            error: None,
            results: SmallVec::new(),
            columns: 0,
            rows: 0,
            collector: Collector::new(&self.budget),
        }
    }

    /// Nothing is under way: all that a server may say now is why it goes.
    fn unasked(&mut self, input: &ReadBuffer) -> Result<Received<Self>, Fault> {
        let data = input.data();
        let Some(header) = Header::parse(data) else { return Ok(Received::More) };
        match data.get(Header::LEN..header.total()) {
            Some(packet @ [0xFF, ..]) => Err(self.ended(parse_error(packet)?)),
            Some(_) => Err(malformed("an answer that nobody asked for")),
            None if data.get(Header::LEN).is_some_and(|first| *first != 0xFF) => {
                Err(malformed("an answer that nobody asked for"))
            }
            None => Ok(Received::More),
        }
    }

    /// The server ends the connection and says why.
    fn ended(&mut self, words: DatabaseError) -> Fault {
        self.last_words = Some(Arc::new(words));
        Fault::new(ErrorKind::Io, Outcome::Unknown, "the server ended the connection")
    }

    /// One whole packet that is not a row.
    fn packet(&mut self, pending: &mut Pending, packet: &[u8], header: Header) -> Result<Step, Fault> {
        if !pending.command.sequence.accept(header) {
            return Err(match packet {
                // A server that gives up an idle session says so unasked, and counts that as a dialogue of its own;
                // a command that was sent meanwhile is not executed any more. Source: MySQL 8.0.24 release notes.
                [0xFF, ..] if header.sequence == 0 => self.ended(parse_error(packet)?),
                _ => malformed("a packet out of order"),
            });
        }
        if let [0xFF, ..] = packet {
            let error = parse_error(packet)?;
            if error.is_fatal() {
                return Err(self.ended(error));
            }
            return Ok(self.command_refused(pending, error));
        }
        match pending.command.state {
            State::First => self.first(pending, packet),
            State::Definitions { left } => {
                if pending.wants_rows && !matches!(pending.command.kind, Kind::Prepare { .. }) {
                    pending.collect(header, packet);
                }
                match left.saturating_sub(1) {
                    0 => Ok(self.defined(pending)),
                    left => {
                        pending.command.state = State::Definitions { left };
                        Ok(Step::Next)
                    }
                }
            }
            // What is neither a row nor an error ends the rows: the header 0xFE, and otherwise an OK.
            State::Rows { .. } => self.result_done(pending, Done::parse(packet)?),
        }
    }

    fn first(&mut self, pending: &mut Pending, packet: &[u8]) -> Result<Step, Fault> {
        if let Kind::Prepare { prepared, .. } = &mut pending.command.kind {
            let answer = Prepared::parse(packet)?;
            *prepared = Some(answer);
            if answer.definitions() > 0 {
                pending.command.state = State::Definitions { left: answer.definitions() };
                return Ok(Step::Next);
            }
            return Ok(self.defined(pending));
        }
        if let (Kind::Dialogue(said), [1..=255, ..]) = (&mut pending.command.kind, packet) {
            // `caching_sha2_password`: the cache knows the user, and OK follows unasked.
            if packet == [0x01, 0x03] {
                return Ok(Step::Next);
            }
            packet.clone_into(said);
            return Ok(pending.command_done());
        }
        match packet {
            [0x00, ..] => self.result_done(pending, Done::parse(packet)?),
            [0xFE, ..] if matches!(pending.command.kind, Kind::Option) => {
                self.result_done(pending, Done::parse(packet)?)
            }
            // `LOAD DATA LOCAL`: what the server would read next are the commands behind this one.
            [0xFB, ..] => Err(malformed("a request for a file, which is not offered")),
            mut count => {
                let columns = lenenc::take(&mut count).filter(|columns| *columns <= MOST_COLUMNS);
                let (Some(columns), []) = (columns, count) else {
                    return Err(malformed("a broken number of columns"));
                };
                pending.columns = columns as u16;
                pending.command.state = State::Definitions { left: columns as u32 };
                Ok(Step::Next)
            }
        }
    }

    /// All definitions have come.
    fn defined(&mut self, pending: &mut Pending) -> Step {
        if let Kind::Prepare { statement, key, prepared: Some(prepared) } = &pending.command.kind {
            self.cache.prepared(statement, *key, *prepared);
            return pending.command_done();
        }
        pending.command.state = State::Rows { left: 0, continued: false };
        Step::Next
    }

    fn result_done(&mut self, pending: &mut Pending, done: Done) -> Result<Step, Fault> {
        self.status = done.status;
        let status = done.status;
        self.touched |=
            status.session_changed() && !pending.own && !matches!(pending.command.kind, Kind::Opening);
        let (columns, rows) = (std::mem::take(&mut pending.columns), std::mem::take(&mut pending.rows));
        if pending.key.is_some() || matches!(pending.command.kind, Kind::Option | Kind::Guard | Kind::Guarded)
        {
            if columns > 0 {
                return Err(malformed("rows where none were asked for"));
            }
        } else {
            if !pending.wants_rows {
                // The last one counts.
                pending.results.clear();
            }
            pending.keep(ResultSet { columns, rows, done });
        }
        if status.more_results() {
            pending.command.state = State::First;
            return Ok(Step::Next);
        }
        match &pending.command.kind {
            Kind::Reset => {
                self.touched = false;
                self.work = None;
            }
            Kind::Opening => self.work = Some(Work::default()),
            Kind::Commit => self.work = None,
            Kind::LargestPacket(row) => self.max_packet = pending::largest_packet(row)?,
            Kind::Execute { .. } | Kind::Text if pending.part => {
                let ended = self.work.as_mut().is_some_and(|work| work.is_ended_by(status));
                pending.ended |= ended;
            }
            Kind::Prepare { .. }
            | Kind::Execute { .. }
            | Kind::Text
            | Kind::Rollback
            | Kind::Option
            | Kind::Guard
            | Kind::Guarded
            | Kind::Dialogue(_) => {}
        }
        Ok(pending.command_done())
    }

    fn command_refused(&mut self, pending: &mut Pending, error: DatabaseError) -> Step {
        match &pending.command.kind {
            Kind::Guarded => {
                pending.ended |= self.work.as_mut().is_some_and(Work::lost_its_guard);
                return pending.command_done();
            }
            Kind::Prepare { statement, key, .. } => self.cache.refused(statement, *key),
            Kind::Execute { statement, id } if error.is_stale() => {
                let exists = error.number() != 1243;
                self.cache.forget(statement, *id, exists);
            }
            Kind::Execute { .. }
            | Kind::Text
            | Kind::LargestPacket(_)
            | Kind::Opening
            | Kind::Commit
            | Kind::Rollback
            | Kind::Option
            | Kind::Guard
            | Kind::Reset
            | Kind::Dialogue(_) => {}
        }
        if let Some(work) = &mut self.work {
            work.heed(&error);
        }
        let opens = matches!(pending.command.kind, Kind::Opening);
        pending.error.get_or_insert(error);
        let step = pending.command_done();
        if opens {
            // The prepare behind it is answered all the same, and keeps its error.
            self.work = None;
        }
        step
    }
}

impl Wire for MySqlWire {
    type Request = Request;
    type Pending = Pending;
    type Answer = Answer;
    type Server = DatabaseError;

    fn frame(&mut self, request: &mut Request, out: &mut Out) -> Framed<Self> {
        if let Some(error) = self.refusal(request) {
            return Framed::Refused(error);
        }
        match self.frame_allowed(request, out) {
            Framed::Sent(pending) => {
                Framed::Sent(Pending { part: request.part || request.ends(), ..pending })
            }
            framed => framed,
        }
    }

    fn receive(
        &mut self,
        head: Option<&mut Pending>,
        input: &mut ReadBuffer,
    ) -> Result<Received<Self>, Fault> {
        let Some(pending) = head else { return self.unasked(input) };
        loop {
            let data = input.data();
            match pending.row(data)? {
                Row::Bytes(count) => {
                    input.consume(count);
                    continue;
                }
                Row::Short => return Ok(Received::More),
                Row::Other => {}
            }
            let Some(header) = Header::parse(data) else { return Ok(Received::More) };
            if header.is_continued() {
                return Err(malformed("a packet of impossible size"));
            }
            let Some(packet) = data.get(Header::LEN..header.total()) else {
                // One that is out of order is not waited for, unless it may be the server's last word.
                let last_word =
                    header.sequence == 0 && data.get(Header::LEN).is_none_or(|first| *first == 0xFF);
                return if pending.command.sequence.is_next(header) || last_word {
                    Ok(Received::More)
                } else {
                    Err(malformed("a packet out of order"))
                };
            };
            let step = self.packet(pending, packet, header)?;
            input.consume(header.total());
            if step == Step::Complete {
                return Ok(match (pending.conclude(), &self.work) {
                    (Received::Answer(answer), Some(work)) if pending.part => {
                        Received::Answer(work.told(answer, pending.ended))
                    }
                    (received, _) => received,
                });
            }
        }
    }

    fn condition(&self) -> Condition {
        if self.status.in_transaction() {
            Condition::InTransaction
        } else if self.touched || self.away || !self.status.autocommits() {
            Condition::Touched
        } else {
            Condition::Clean
        }
    }

    fn settle(&mut self, occasion: Occasion) -> Vec<Request> {
        // What has ended a transaction may have locked tables, or changed what is not tracked.
        self.touched |= self.work.as_ref().is_some_and(Work::is_ended);
        let reset = match occasion {
            Occasion::Connected | Occasion::ReadOnly => false,
            Occasion::Tainted => self.away || self.touched || !self.status.autocommits(),
            Occasion::Returned { touched } => touched || self.away || self.touched,
        };
        self.work = None;
        let own = |text: &'static str| Request::own(What::Query(Bytes::from_static(text.as_bytes())));
        let mut requests = Vec::new();
        if reset {
            // It rolls back too.
            requests.push(Request::own(What::Reset));
            // And it stays in the database that was chosen last, or in none if that was dropped.
            // Source: MySQL manual, `mysql_reset_connection()`, "DROP DATABASE Statement".
            match (&self.home, std::mem::take(&mut self.away)) {
                (Some(home), _) => requests.push(Request::own(What::Query(home.clone()))),
                // There is no way back to none: out of range (1690), and the connection is replaced.
                (None, true) => requests.push(own("SELECT EXP(1000 * (DATABASE() IS NOT NULL))")),
                (None, false) => {}
            }
        } else if self.status.in_transaction() || !self.status.autocommits() {
            // The status is as of the latest OK, and an error may have come since: then the ROLLBACK is for nothing.
            requests.push(if self.status.autocommits() {
                own("ROLLBACK")
            } else {
                // Switching it on commits what is open: not unless the ROLLBACK has succeeded. Of one text the server
                // runs nothing behind an error.
                Request::own(What::Script(Bytes::from_static(b"ROLLBACK; SET autocommit = 1")))
            });
        }
        if occasion == Occasion::ReadOnly {
            // Out of the range of its type where the server as a whole takes no writes (error 1690).
            // Source: MySQL manual, "Out-of-Range and Overflow Handling", and the system variable `read_only`.
            requests.push(own("SELECT EXP(1000 * @@global.read_only)"));
        }
        if reset || occasion == Occasion::Connected {
            requests.extend(self.setup.iter().map(|text| Request::own(What::Query(text.clone()))));
        }
        requests
    }

    fn goodbye(&mut self, out: &mut Out) {
        command::quit(out);
    }

    fn statements(&mut self) -> Statements {
        self.cache.count()
    }

    fn last_words(&self) -> Option<Arc<DatabaseError>> {
        self.last_words.clone()
    }
}

#[cold]
fn too_large(bytes: usize, limit: usize) -> Fault {
    Fault::new(
        ErrorKind::Encode,
        Outcome::NotSent,
        format!(
            "the statement and its parameters are {bytes} bytes, and the server takes less than {limit}; raise its \
             max_allowed_packet"
        ),
    )
}

#[cold]
fn wrong_count(wanted: u16, given: u16) -> Fault {
    Fault::new(
        ErrorKind::Encode,
        Outcome::NotSent,
        format!("the statement takes {wanted} parameters, and {given} were given"),
    )
}
