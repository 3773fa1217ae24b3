//! MySQL's wire protocol, as pure state machines.
//!
//! [`packet`] cuts the byte stream into packets and commands into frames, [`lenenc`] reads its numbers, [`response`]
//! reads the packets that end a command, [`startup`] is the connection phase, [`command`] writes commands, [`cache`] knows which statements a connection
//! has prepared, and [`wire`] puts them together for the engine. [`request`] and [`answer`] are what goes in and what
//! comes out. Nothing here sees a socket or a clock.

pub(crate) mod answer;
pub(crate) mod cache;
pub(crate) mod change_user;
pub(crate) mod command;
pub(crate) mod lenenc;
pub(crate) mod packet;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod startup;
pub(crate) mod wire;

use crate::error::{ErrorKind, Fault, Outcome};

/// The peer sent bytes that its protocol does not allow: the connection cannot be trusted any more.
#[cold]
pub(crate) fn malformed(what: &'static str) -> Fault {
    Fault::new(ErrorKind::Protocol, Outcome::Unknown, format!("the server sent {what}"))
}
