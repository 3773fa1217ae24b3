//! The wire protocol: messages out, messages in, framing.
//!
//! What lives here sees bytes and never a socket, a clock or a pool.

pub(crate) mod fields;
pub(crate) mod startup;
