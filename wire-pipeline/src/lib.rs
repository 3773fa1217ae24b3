//! The engine under `pg-pipeline` and `mysql-pipeline`: it knows pipelines and no protocol.
//!
//! Applications use one of the drivers; this crate is for whoever writes one.
//!
//! A **pipe** is one connection: a queue of entries not yet sent, a FIFO of entries that await answers, and one task,
//! the pump, that moves bytes. An **entry** is one request on its way. A **pool** is a fixed set of pipes. A **lease**
//! is one pipe out of sharing for as long as somebody needs its session.
//!
//! A driver implements [`wire::Wire`] (a pure state machine that frames requests and recognises answers) and
//! [`wire::Driver`] (how to connect), and gets [`Pool`] and [`Lease`].

pub mod answer;
pub mod attempts;
pub mod buffer;
pub mod call;
pub mod config;
pub mod error;
pub mod estimate;
pub mod held;
pub mod lease;
pub mod options;
pub mod pool;
pub mod retry;
pub mod row;
pub mod savepoint;
pub mod socket;
pub mod statement;
pub mod stats;
#[cfg(feature = "tls")]
pub mod tls;
pub mod transport;
pub mod wire;

mod client;
mod entry;
mod faults;
mod fork;
mod gate;
mod jitter;
#[cfg(test)]
mod model;
mod pipe;
mod shapes;
mod sync;

pub use lease::Lease;
pub use options::Options;
pub use pool::Pool;
