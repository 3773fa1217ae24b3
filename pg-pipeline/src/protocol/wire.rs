//! One connection's protocol after the handshake: requests in, answers out.
//!
//! Every request ends with its own Sync (a script with its own ReadyForQuery), so an answer is final at ReadyForQuery
//! and nowhere before: an error that Sync raises after CommandComplete belongs to this request.
//!
//! ```text
//!  per statement:  [Parse '1'] [ParameterDescription 't'] [RowDescription 'T' | NoData 'n']   when it is parsed here
//!                  BindComplete '2'  DataRow 'D'*  (CommandComplete 'C' | EmptyQueryResponse 'I')
//!  ErrorResponse 'E' anywhere: the server skips to Sync
//!  ReadyForQuery 'Z': the answer is complete
//!  NoticeResponse 'N', ParameterStatus 'S', NotificationResponse 'A', CloseComplete '3': anywhere
//! ```
//!
//! Sees bytes only. Sources: PostgreSQL documentation, "Extended Query", "Pipelining" and "Message Formats".

mod pending;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::BufMut as _;
use postgres_protocol::message::frontend;
use postgres_types::Type;
use smallvec::SmallVec;
use wire_pipeline::answer::Budget;
use wire_pipeline::buffer::{Out, ReadBuffer};
use wire_pipeline::wire::{Condition, Framed, Occasion, Received, Request as _, Statements, Wire};

pub(crate) use pending::Pending;
use pending::{Ending, Kind, Parses, PendingPart};

use super::answer::{Answer, Ran, Stale};
use super::cache::{Cache, Prepared, StatementId};
use super::fields::parse_error_fields;
use super::messages::{Header, Reader, Tag, Verb, largest, malformed};
use super::request::{Learn, Part, Request, Run};
use super::startup::BackendKey;
use crate::error::{DatabaseError, ErrorKind, Fault, Outcome};
use crate::statement::{Learned, chains, check_text};

/// Bytes of all parameters that the server reports, as in the connection phase; one reports below 1 KiB.
const MOST_PARAMETERS: usize = 256 * 1024;
/// A row that is larger is collected as it arrives instead of being gathered in the read buffer first.
const LARGE_ROW: usize = 8 * 1024;

/// What a connection knows of itself.
pub(crate) struct PgWire {
    budget: Arc<Budget>,
    cache: Cache,
    setup: Arc<[String]>,
    /// The transaction status of the latest ReadyForQuery: idle, in a transaction, in a failed one.
    status: u8,
    /// The transaction that was opened last was ended by a script.
    ended: bool,
    /// Settings were changed by somebody other than the engine.
    touched: bool,
    /// Statements were prepared or dropped by name: only DISCARD ALL puts that right.
    prepared_by_name: bool,
    /// As reported by ParameterStatus.
    parameters: HashMap<Box<str>, Box<str>>,
    /// Bytes of the names and values in `parameters`.
    parameter_bytes: usize,
    /// A row of which a part has arrived: bytes to come.
    row_left: usize,
    last_words: Option<Arc<DatabaseError>>,
    /// What cancels what this connection is at.
    key: Option<BackendKey>,
}

impl PgWire {
    /// The same with what cancels what its connection is at.
    pub(crate) fn with_key(self, key: Option<BackendKey>) -> Self {
        Self { key, ..self }
    }

    pub(crate) fn key(&self) -> Option<&BackendKey> {
        self.key.as_ref()
    }

    pub(crate) fn new(
        budget: &Arc<Budget>,
        statement_cache: usize,
        setup: Arc<[String]>,
        parameters: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let parameters: HashMap<Box<str>, Box<str>> =
            parameters.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self {
            budget: Arc::clone(budget),
            cache: Cache::new(statement_cache),
            setup,
            status: b'I',
            ended: false,
            touched: false,
            prepared_by_name: false,
            parameter_bytes: parameters.iter().map(|(name, value)| name.len() + value.len()).sum(),
            parameters,
            row_left: 0,
            last_words: None,
            key: None,
        }
    }

    fn frame_run(&mut self, run: &Run, closes: &mut Closes, out: &mut Out) -> Kind {
        self.frame_closes(closes, out);
        let opened = run.all().count() > run.parts.len();
        let parts = run.all().map(|part| self.frame_part(part, closes, out)).collect();
        frontend::sync(out.tail());
        Kind::Run { parts, opened, part: run.in_transaction || run.ends, rows: run.rows }
    }

    fn frame_part(&mut self, part: &Part, closes: &mut Closes, out: &mut Out) -> PendingPart {
        let framed = if let Some(prepared) = self.cache.get(&part.statement) {
            PendingPart { prepared, parses: Parses::No }
        } else {
            let types = part.statement.parameters().unwrap_or_default();
            self.frame_parse(&part.statement, types, closes, out)
        };
        frame_bind(&framed.prepared, part, out);
        // Execute of the unnamed portal without a limit on rows.
        out.tail().extend_from_slice(b"E\0\0\0\x09\0\0\0\0\0");
        framed
    }

    /// Parse, then Describe of the statement; before them the Close of what had to make room.
    fn frame_parse(
        &mut self,
        learned: &Arc<Learned>,
        types: &[Type],
        closes: &mut Closes,
        out: &mut Out,
    ) -> PendingPart {
        let prepared = self.cache.insert(learned);
        self.frame_closes(closes, out);
        let tail = out.tail();
        // Texts were checked for NUL when they were learnt, and for size: writing cannot fail.
        let _ = frontend::parse(&prepared.name, &learned.text, types.iter().map(Type::oid), tail);
        let _ = frontend::describe(b'S', &prepared.name, tail);
        PendingPart { prepared, parses: Parses::Asked }
    }

    fn frame_learn(&mut self, learn: &Learn, closes: &mut Closes, out: &mut Out) -> Kind {
        let opening = learn.opening.as_ref().map(|part| self.frame_part(part, closes, out));
        let part = self.frame_parse(&learn.statement, &[], closes, out);
        frontend::sync(out.tail());
        Kind::Learn { opening, part }
    }

    /// Forgets what turned out not to be prepared, or to be prepared from what is out of date. `failed_at_bind` is
    /// the part at whose Bind the server refused.
    fn forget_unusable(&mut self, parts: &[PendingPart], failed_at_bind: Option<usize>) {
        for (index, part) in parts.iter().enumerate() {
            if part.parses == Parses::Asked {
                // It was not parsed: those who bind it meanwhile learn that it does not exist.
                self.cache.remove(&part.prepared, false);
            } else if failed_at_bind == Some(index) {
                // What is known of it is out of date, or the binding was wrong: cheap to parse again.
                self.cache.remove(&part.prepared, true);
            }
        }
    }

    /// Closes of evicted statements go out with whatever goes out next: their answers belong to its Sync.
    fn frame_closes(&mut self, closes: &mut Closes, out: &mut Out) {
        for id in self.cache.take_to_close() {
            // Names are our own and hold no NUL, so writing cannot fail.
            let _ = frontend::close(b'S', &id.name(), out.tail());
            closes.push(id);
        }
    }

    /// Reads one message, which is whole unless it is a row.
    fn message(&mut self, head: Option<&mut Pending>, tag: u8, body: &[u8]) -> Result<Option<Done>, Fault> {
        match tag {
            b'N' => {
                let notice = parse_error_fields(body)?;
                crate::notice::log(&notice);
                // A server that gives up in a hurry says so in a warning (`quickdie` in its sources), and hangs up.
                if matches!(notice.code(), "57P01" | "57P02") {
                    self.last_words = Some(Arc::new(notice));
                }
                return Ok(None);
            }
            b'S' => {
                self.parameter_status(body, head.as_deref().is_some_and(Pending::is_own))?;
                return Ok(None);
            }
            // Notifications reach whoever listens; a shared session does not.
            b'A' => return Ok(None),
            b'E' => {
                let error = parse_error_fields(body)?;
                if error.is_fatal() {
                    self.last_words = Some(Arc::new(error));
                    return Err(Fault::new(
                        ErrorKind::Io,
                        Outcome::Unknown,
                        "the server ended the connection",
                    ));
                }
                return match head {
                    Some(pending) if pending.error.is_none() => {
                        pending.error = Some(Box::new(error));
                        Ok(None)
                    }
                    Some(_) => Err(malformed("a second error before it was ready")),
                    None => Err(malformed("an error that nobody asked for")),
                };
            }
            _ => {}
        }
        let Some(pending) = head else { return Err(malformed("an answer that nobody asked for")) };
        match tag {
            b'Z' => {
                let [status] = *body else { return Err(malformed("a ReadyForQuery")) };
                if !matches!(status, b'I' | b'T' | b'E') {
                    return Err(malformed("a transaction status"));
                }
                self.status = status;
                // What sounded like a farewell was somebody's own warning.
                self.last_words = None;
                return Ok(Some(Done));
            }
            b'G' | b'H' | b'W' => {
                return Err(Fault::new(
                    ErrorKind::Protocol,
                    Outcome::Unknown,
                    "the statement started a COPY, which is not offered here; its connection was closed",
                ));
            }
            // The server skips everything up to Sync.
            _ if pending.error.is_some() => return Err(malformed("an answer behind an error")),
            b'3' => pending.closed()?,
            b'C' => {
                let tag = Tag::parse(body)?;
                self.heed(tag, pending.is_own());
                pending.complete(tag)?;
            }
            _ => pending.message(tag, body)?,
        }
        Ok(None)
    }

    /// Remembers what a command changed.
    fn heed(&mut self, tag: Tag, own: bool) {
        match tag.verb {
            Verb::Other | Verb::Begin | Verb::Commit | Verb::Rollback => {}
            Verb::Session => self.touched |= !own,
            Verb::Prepared => {
                self.touched |= !own;
                self.prepared_by_name |= !own;
            }
            Verb::Forgot => {
                self.touched |= !own;
                self.prepared_by_name |= !own;
                self.cache.forget_described();
            }
        }
    }

    fn parameter_status(&mut self, body: &[u8], own: bool) -> Result<(), Fault> {
        let mut rest = Reader(body);
        let (Some(name), Some(value), true) = (rest.c_string(), rest.c_string(), rest.0.is_empty()) else {
            return Err(malformed("a ParameterStatus"));
        };
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        let before = self.parameters.insert((&*name).into(), (&*value).into());
        self.touched |= !own && before.as_deref() != Some(&*value);
        let known = before.map_or(0, |before| name.len() + before.len());
        self.parameter_bytes = self.parameter_bytes.saturating_sub(known) + name.len() + value.len();
        if self.parameter_bytes > MOST_PARAMETERS {
            return Err(malformed("more parameters than any server has"));
        }
        Ok(())
    }

    /// The oldest request's answer is complete.
    fn conclude(&mut self, pending: &mut Pending) -> Result<Answer, Fault> {
        let error = pending.error.take().map(|error| *error);
        if pending.is_own() {
            self.touched = false;
            self.prepared_by_name &= error.is_some();
        }
        if error.is_none() && !pending.is_whole() {
            return Err(malformed("an answer that ended too early"));
        }
        // Behind an error the server skipped them: they go out again.
        self.cache.close_again(&pending.closes);
        let failed_at_bind = (error.is_some() && !pending.bound).then_some(pending.at);
        // What is part of a transaction that was ended before is part of another one, which nobody commits.
        let ended_before = self.ended && pending.is_part();
        self.ended |= pending.has_ended_it(self.status);
        match &pending.kind {
            Kind::Run { parts, opened, rows, .. } => {
                self.forget_unusable(parts, failed_at_bind);
                if ended_before {
                    return Err(told_with(ended(), error));
                }
                let skip = usize::from(*opened);
                if let Some(error) = error {
                    let error = pending.own_cause(error);
                    let several = parts.len() > 1 + skip;
                    let stale = pending.stale(&error, self.status);
                    let mut error = Fault::refused(error);
                    if several {
                        error = error.context(format!("batch item {}", pending.at.saturating_sub(skip)));
                    }
                    return match stale {
                        Some((relearn, safe)) => Ok(Answer::Stale(Stale { error, relearn, safe })),
                        None => Err(error),
                    };
                }
                let description = parts.last().and_then(|part| part.prepared.description.get().cloned());
                if *rows && description.is_none() {
                    return Err(undescribed());
                }
                let tags = pending.tags.iter().skip(skip).copied().collect();
                let rows = pending.rows()?;
                Ok(Answer::Ran(Ran { tags, description: description.flatten(), rows }))
            }
            Kind::Learn { opening, part } => {
                self.forget_unusable(opening.as_slice(), failed_at_bind);
                if let Some(error) = error {
                    self.cache.remove(&part.prepared, part.parses != Parses::Asked);
                    return Err(Fault::refused(error));
                }
                let parameters =
                    pending.parameters.take().ok_or_else(|| malformed("no parameter description"))?;
                Ok(Answer::Learnt { parameters })
            }
            Kind::Script { in_transaction: Some(_), .. } if self.ended => {
                let ran = !ended_before && error.is_none();
                let outcome = if ran { Outcome::Completed } else { Outcome::Unknown };
                Err(told_with(ended().with_outcome(outcome), error))
            }
            Kind::Script { alone: true, .. } if self.status != b'I' && error.is_none() => Err(Fault::new(
                ErrorKind::SessionState,
                Outcome::Failed,
                "the script left a transaction open, which is rolled back; end it with COMMIT",
            )),
            Kind::Script { .. } => match error {
                Some(error) => Err(Fault::refused(error)),
                None => Ok(Answer::Script),
            },
        }
    }

    /// The script that undoes what a session's holder may have changed; DISCARD ALL without dropping our statements.
    /// Source: PostgreSQL documentation, "DISCARD".
    fn reset_script(&mut self) -> &'static str {
        if self.prepared_by_name {
            self.cache.clear();
            return "DISCARD ALL";
        }
        "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; \
         SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES"
    }
}

/// An answer is complete.
struct Done;

/// Evicted statements whose Close goes out with a request.
type Closes = SmallVec<[StatementId; 1]>;

/// A script has ended the transaction that its handle stands for.
#[cold]
fn ended() -> Fault {
    Fault::new(
        ErrorKind::SessionState,
        Outcome::Unknown,
        "a script ended the transaction behind its handle's back; use commit() or rollback(), or pool.session() for \
         transactions of your own",
    )
}

fn told_with(fault: Fault, error: Option<DatabaseError>) -> Fault {
    error.into_iter().fold(fault, |fault, error| fault.with_server(Arc::new(error)))
}

/// What would have opened the transaction failed.
#[cold]
fn not_open() -> Fault {
    Fault::new(ErrorKind::SessionState, Outcome::NotSent, "the transaction could not be opened, or is over")
}

/// The request that parsed the statement was interrupted between Parse and Describe, and this one was behind it.
#[cold]
fn undescribed() -> Fault {
    Fault::new(
        ErrorKind::Decode,
        Outcome::Completed,
        "the statement ran, but its rows cannot be read: the server was interrupted before it described them",
    )
}

impl Wire for PgWire {
    type Request = Request;
    type Pending = Pending;
    type Answer = Answer;
    type Server = DatabaseError;

    fn frame(&mut self, request: &mut Request, out: &mut Out) -> Framed<Self> {
        if request.opens() {
            self.ended = false;
        } else if self.ended && request.is_part() {
            let outcome = if request.is_end() { Outcome::Unknown } else { Outcome::NotSent };
            return Framed::Refused(ended().with_outcome(outcome));
        }
        // The status is up to date: nothing follows an opening before it is answered.
        if self.status == b'I' && request.needs_transaction() {
            return Framed::Refused(not_open());
        }
        let mut closes = Closes::new();
        let kind = match request {
            Request::Run(run) => self.frame_run(run, &mut closes, out),
            Request::Learn(learn) => self.frame_learn(learn, &mut closes, out),
            Request::Script(script) => {
                let text = script.text();
                if let Err(error) = check_text(&text) {
                    return Framed::Refused(error);
                }
                let _ = frontend::query(&text, out.tail());
                let ending = || Ending::NotYet { opening: script.opens(), chains: chains(&text) };
                let in_transaction = script.in_transaction.then(ending);
                Kind::Script { own: script.own, in_transaction, alone: script.alone }
            }
        };
        Framed::Sent(Pending::new(kind, closes, &self.budget))
    }

    fn receive(
        &mut self,
        mut head: Option<&mut Pending>,
        input: &mut ReadBuffer,
    ) -> Result<Received<Self>, Fault> {
        loop {
            if self.row_left > 0 {
                let Some(pending) = head.as_deref_mut() else {
                    return Err(malformed("a row that nobody asked for"));
                };
                let piece = input.data();
                let count = piece.len().min(self.row_left);
                if count == 0 {
                    return Ok(Received::More);
                }
                if pending.wants_rows() {
                    pending.collector.push(piece.get(..count).unwrap_or_default());
                }
                self.row_left -= count;
                if self.row_left == 0 {
                    pending.collector.end_message();
                }
                input.consume(count);
                continue;
            }
            let data = input.data();
            let Some(header) = Header::read(data)? else { return Ok(Received::More) };
            if header.tag == b'D' {
                let Some(pending) = head.as_deref_mut().filter(|pending| pending.allows_rows()) else {
                    return Err(malformed("a row that nobody asked for"));
                };
                pending.executed = true;
                let here = data.len().min(header.total());
                if here < header.total() && header.total() <= LARGE_ROW {
                    return Ok(Received::More);
                }
                if pending.wants_rows() {
                    pending.collector.push(data.get(..here).unwrap_or_default());
                }
                if here == header.total() {
                    pending.collector.end_message();
                }
                self.row_left = header.total() - here;
                input.consume(here);
                continue;
            }
            let largest = largest(header.tag).ok_or_else(|| malformed("a message of unknown type"))?;
            if header.body > largest {
                return Err(malformed("a message of impossible size"));
            }
            let Some(body) = data.get(Header::LEN..header.total()) else { return Ok(Received::More) };
            let done = self.message(head.as_deref_mut(), header.tag, body)?;
            input.consume(header.total());
            if let (Some(Done), Some(pending)) = (done, head.as_deref_mut()) {
                return match self.conclude(pending) {
                    // A broken dialogue, unlike a refusal, costs the connection.
                    Err(error) if error.kind() == ErrorKind::Protocol => Err(error),
                    reply => Ok(Received::Answer(reply)),
                };
            }
        }
    }

    fn condition(&self) -> Condition {
        match self.status {
            b'I' if self.touched => Condition::Touched,
            b'I' => Condition::Clean,
            _ => Condition::InTransaction,
        }
    }

    fn settle(&mut self, occasion: Occasion) -> Vec<Request> {
        let mut requests = Vec::new();
        if self.status != b'I' {
            requests.push(Request::own_script("ROLLBACK"));
        }
        let reset = match occasion {
            Occasion::Connected => false,
            // A rollback undoes what a transaction set.
            Occasion::Tainted => self.touched || self.status == b'I',
            Occasion::Returned { touched } => touched || self.touched,
            Occasion::ReadOnly => {
                requests.push(Request::own_script(FAILS_IF_READ_ONLY));
                false
            }
        };
        if reset {
            // A transaction block cannot hold DISCARD ALL, so the parts go as scripts of their own where needed.
            requests.push(Request::own_script(self.reset_script()));
        }
        if reset || occasion == Occasion::Connected {
            requests.extend(self.setup.iter().map(|statement| Request::own_script(statement.as_str())));
        }
        requests
    }

    fn goodbye(&mut self, out: &mut Out) {
        frontend::terminate(out.tail());
    }

    fn statements(&mut self) -> Statements {
        self.cache.count()
    }

    fn last_words(&self) -> Option<Arc<DatabaseError>> {
        self.last_words.clone()
    }
}

/// Fails where the server as a whole takes no writes: it is a standby, or was told so by other means than the settings
/// of this session, its user or its database.
/// Source: PostgreSQL documentation, "Recovery Information Functions" and `pg_settings`.
const FAILS_IF_READ_ONLY: &str = "SELECT 1 / (NOT (pg_catalog.pg_is_in_recovery() OR EXISTS (\
     SELECT FROM pg_catalog.pg_settings WHERE name = 'default_transaction_read_only' AND setting = 'on' \
     AND source IN ('configuration file', 'command line', 'environment variable', 'global'))))::int";

/// Bind to the unnamed portal, results in binary format.
fn frame_bind(prepared: &Prepared, part: &Part, out: &mut Out) {
    let tail = out.tail();
    // The length counts itself, the empty portal name, the statement's name, the parameters and one result format.
    let length = 4 + 1 + prepared.name.len() + 1 + part.bound.len() + 4;
    tail.put_u8(b'B');
    tail.put_u32(length as u32);
    tail.put_u8(0);
    tail.put_slice(prepared.name.as_bytes());
    tail.put_u8(0);
    out.push(&part.bound);
    out.tail().put_slice(&[0, 1, 0, 1]);
}
