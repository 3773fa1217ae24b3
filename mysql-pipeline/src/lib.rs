//! MySQL driver that pipelines thousands of queries over a few connections. **Not usable yet.**
//!
//! Only the core of the protocol stands so far: framing, preparing and executing statements as a pure state machine
//! on the engine `wire-pipeline`, with its tests. There is no way to connect, no authentication, no encryption, no
//! pool to call and no value types; nothing of this crate is public except the errors.

mod error;
// The faces that call it are still to come; until then only tests do.
#[cfg_attr(not(test), expect(dead_code, reason = "the faces that call it are still to come"))]
mod protocol;
#[cfg_attr(not(test), expect(dead_code, reason = "the faces that call it are still to come"))]
mod statement;

pub use error::{DatabaseError, ErrorKind, Outcome, Phase};
