//! The engine's own errors, each written once: what happened, and what to do next.

use std::io;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Outcome, Phase, ServerError};
use crate::stats::LeaseStats;

pub(crate) fn closed<S: ServerError>() -> Error<S> {
    Error::new(ErrorKind::Closed, Outcome::NotSent, "the pool is closed; connect a new one")
}

pub(crate) fn lease_over<S: ServerError>() -> Error<S> {
    Error::new(
        ErrorKind::Closed,
        Outcome::NotSent,
        "the connection behind this lease is gone, and its session state with it; take a new one",
    )
}

pub(crate) fn runtime_gone<S: ServerError>() -> Error<S> {
    Error::new(
        ErrorKind::Closed,
        Outcome::NotSent,
        "the runtime that this pool was connected on has ended; connect the pool on the runtime that uses it",
    )
}

pub(crate) fn forked<S: ServerError>() -> Error<S> {
    Error::new(
        ErrorKind::Closed,
        Outcome::NotSent,
        "the pool was connected before this process was forked, and belongs to the other one; connect a pool after the \
         fork",
    )
}

pub(crate) fn server_closed<S: ServerError>() -> Error<S> {
    Error::new(ErrorKind::Io, Outcome::Unknown, "the connection was closed by the server")
}

pub(crate) fn io<S: ServerError>(doing: &'static str, error: io::Error) -> Error<S> {
    Error::new(ErrorKind::Io, Outcome::Unknown, format!("the connection was lost while {doing}"))
        .with_source(error)
}

pub(crate) fn silent<S: ServerError>(overdue: Duration) -> Error<S> {
    Error::new(
        ErrorKind::Io,
        Outcome::Unknown,
        format!(
            "the connection was given up: an answer is overdue by {} ms (stall_timeout)",
            overdue.as_millis()
        ),
    )
}

pub(crate) fn cancel_unknown<S: ServerError>() -> Error<S> {
    Error::new(
        ErrorKind::Io,
        Outcome::Unknown,
        "the connection was given up: a request to stop what it had worked on is still on its way, and might hit \
         something else",
    )
}

pub(crate) fn panicked<S: ServerError>() -> Error<S> {
    Error::new(
        ErrorKind::Protocol,
        Outcome::Unknown,
        "the code that speaks to the server panicked, so its connection was given up; the panic's message says where",
    )
}

pub(crate) fn not_settled<S: ServerError>() -> Error<S> {
    Error::new(
        ErrorKind::Io,
        Outcome::Unknown,
        "the session could not be put right, so its connection is replaced",
    )
}

pub(crate) fn connect_timeout<S: ServerError>(limit: Duration) -> Error<S> {
    Error::timeout(
        Phase::Connect,
        Outcome::NotSent,
        format!(
            "timed out in phase connect: no connection within connect_timeout ({} ms)",
            limit.as_millis()
        ),
    )
}

/// No place in the pool; `fill` says how full it is.
pub(crate) fn no_room<S: ServerError>(waited: Duration, fill: &str) -> Error<S> {
    queue_timeout(waited, &format!("the pool is full: {fill}"))
}

/// A place in the pool, but no pipe.
pub(crate) fn not_taken<S: ServerError>(
    waited: Duration,
    waiting: usize,
    open: usize,
    connections: usize,
    slow: bool,
) -> Error<S> {
    let why =
        if slow { "; statements that are known to be slow go one at a time to a part of them" } else { "" };
    queue_timeout(
        waited,
        &format!(
            "no connection could take it; {waiting} more wait, {open} of {connections} connections are up{why}"
        ),
    )
}

/// A place on a pipe, and not sent; `out` requests were out before it, the oldest for `oldest`.
pub(crate) fn not_sent<S: ServerError>(waited: Duration, out: usize, oldest: Duration) -> Error<S> {
    let why = match out {
        0 => "its connection was not ready to send it".to_owned(),
        _ => format!("{out} before it have no answer yet, the oldest of them for {} ms", rounded(oldest)),
    };
    queue_timeout(waited, &why)
}

/// In whole milliseconds, to the nearest.
fn rounded(time: Duration) -> u128 {
    (time.as_micros() + 500) / 1_000
}

fn queue_timeout<S: ServerError>(waited: Duration, why: &str) -> Error<S> {
    Error::timeout(
        Phase::Queue,
        Outcome::NotSent,
        format!("timed out in phase queue after {} ms: {why}", rounded(waited)),
    )
}

/// `left` bytes wait for the kernel.
pub(crate) fn send_timeout<S: ServerError>(waited: Duration, left: usize) -> Error<S> {
    Error::timeout(
        Phase::Send,
        Outcome::Unknown,
        format!(
            "timed out in phase send after {} ms: the server does not read fast enough, {left} bytes are not sent yet",
            rounded(waited)
        ),
    )
}

/// `ahead` requests were sent before it and have no answer either.
pub(crate) fn answer_timeout<S: ServerError>(waited: Duration, ahead: usize) -> Error<S> {
    let why = match ahead {
        0 => "the server is still at it".to_owned(),
        _ => format!("{ahead} before it have no answer either"),
    };
    Error::timeout(
        Phase::Answer,
        Outcome::Unknown,
        format!("timed out in phase answer after {} ms: sent, and {why}", rounded(waited)),
    )
}

pub(crate) fn lease_timeout<S: ServerError>(
    limit: Duration,
    leased: usize,
    most: usize,
    oldest: &LeaseStats,
) -> Error<S> {
    Error::timeout(
        Phase::Lease,
        Outcome::NotSent,
        format!(
            "timed out in phase lease: no lease within acquire_timeout ({} ms), {leased} of {most} are held, the \
             oldest for {:.1} s, taken at {}; hold leases for a shorter time or raise `connections`",
            limit.as_millis(),
            oldest.held_for.as_secs_f64(),
            oldest.taken_at,
        ),
    )
}

pub(crate) fn nothing_to_lease<S: ServerError>(limit: Duration, leased: usize, most: usize) -> Error<S> {
    Error::timeout(
        Phase::Lease,
        Outcome::NotSent,
        format!(
            "timed out in phase lease: no lease within acquire_timeout ({} ms), {leased} of {most} are held, and of \
             the other connections none was up and free in time",
            limit.as_millis(),
        ),
    )
}

pub(crate) fn no_leases<S: ServerError>() -> Error<S> {
    Error::new(
        ErrorKind::Config,
        Outcome::NotSent,
        "a pool of one connection cannot lease it; set `connections` to 2 or more",
    )
}

pub(crate) fn rolled_back<S: ServerError>() -> Error<S> {
    Error::new(
        ErrorKind::SessionState,
        Outcome::Failed,
        "a statement opened a transaction on a shared connection; it was rolled back, and this statement with it; \
         use a transaction or a session of the pool for such work",
    )
}

pub(crate) fn transaction_unknown<S: ServerError>() -> Error<S> {
    Error::new(
        ErrorKind::SessionState,
        Outcome::Unknown,
        "a statement opened a transaction on a shared connection, and it is not known how that ended; use a \
         transaction or a session of the pool for such work",
    )
}
