//! The wire protocol: messages out, messages in, framing.
//!
//! What lives here sees bytes and never a socket, a clock or a pool.

pub(crate) mod answer;
mod cache;
pub(crate) mod fields;
pub(crate) mod messages;
pub(crate) mod request;
pub(crate) mod role;
pub(crate) mod startup;
pub(crate) mod wire;
