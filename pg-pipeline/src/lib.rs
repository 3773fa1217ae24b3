//! PostgreSQL driver on tokio that pipelines thousands of queries over a few connections.
//!
//! A query usually checks a connection out of a pool, waits for its answer, and gives it back: with 8 connections, 8
//! queries run. Here a [`Pool`] keeps a few connections and sends the queries of all tasks down all of them without
//! waiting for answers in between:
//!
//! ```text
//!        checkout, one connection                pipelined, one connection
//!   task A  ──query──▶                       task A ──query──▶
//!           ◀─answer──                       task B ──query──▶
//!   task B            ──query──▶             task C ──query──▶
//!                     ◀─answer──                    ◀─answer── A
//!   task C                      ──query──▶          ◀─answer── B
//!                               ◀─answer──          ◀─answer── C
//! ```
//!
//! ```no_run
//! use pg_pipeline::{FromRow, Pool};
//!
//! #[derive(FromRow)]
//! struct User {
//!     id: i32,
//!     name: String,
//! }
//!
//! # async fn example() -> Result<(), pg_pipeline::Error> {
//! let pool = Pool::connect("postgres://app:secret@db.internal/app").await?;
//! let user: User = pool.query_one("SELECT id, name FROM users WHERE id = $1", (7,)).await?;
//! let renamed = pool.execute("UPDATE users SET name = $2 WHERE id = $1", (user.id, "Ada")).await?;
//! assert_eq!(renamed.rows_affected(), 1);
//!
//! let tx = pool.begin().await?; // one connection alone, for as long as it lives
//! tx.execute("UPDATE accounts SET balance = balance - $1 WHERE id = 1", (10_i64,)).await?;
//! tx.execute("UPDATE accounts SET balance = balance + $1 WHERE id = 2", (10_i64,)).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is shared and what is not
//!
//! Connections of the pool are stateless. A statement whose first word opens or ends a transaction or changes the
//! session (`BEGIN`, `SET`, `LISTEN`, temporary tables …) is refused before it is sent, and the error names the right
//! call: [`Pool::begin`] or [`Pool::session`], which take one connection out of sharing. So are calls of functions that
//! do such a thing (`set_config`, `pg_advisory_lock` and its kin but for those that end with their transaction), and
//! temporary tables by `SELECT … INTO TEMP` or in the schema `pg_temp`. What slips through inside of a function of one's
//! own is noticed by what the server reports, and the connection is put right before anybody else uses it; settings
//! and locks that the server does not report are not: call such functions on a session.
//!
//! # Transactions
//!
//! [`Pool::begin`] gives a [`Transaction`], whose statements are pipelined too; [`Transaction::savepoint`] a part of it
//! that can be undone alone, after an error too. [`Pool::transaction`] sets its isolation and access, which go out with
//! BEGIN, and [`run`](TransactionBuilder::run)s work in it: again from the beginning after a serialization failure or a
//! deadlock, and never when it is not known whether it was committed.
//!
//! Who holds connections, since when, and where in the code they were taken, is in [`PoolStats::leases`].
//!
//! # Cancel safety
//!
//! Every future may be dropped at any await. A statement whose future is dropped before its bytes went out never runs;
//! dropped later, it runs, and its answer is read and discarded. A dropped [`Transaction`] or [`Session`], and a
//! [`Pool::begin`] that is dropped half-way, leave no open transaction behind; a dropped [`Savepoint`] is undone before
//! anything else of its transaction is sent.
//!
//! # Errors
//!
//! [`Error::kind`] says what went wrong, [`Error::outcome`] what is known of the statement.
//!
//! | situation | kind | outcome |
//! |---|---|---|
//! | an option or URL that cannot be used | `Config` | `NotSent` |
//! | server down, name unknown, server refuses the connection | `Connect` | `NotSent` |
//! | wrong password, unknown user, unknown method | `Auth` | `NotSent` |
//! | no connection in time (phase connect) | `Timeout` | `NotSent` |
//! | parameters that do not fit: their number or type, more than 65,535 of them, NUL in a text | `Encode` | `NotSent` |
//! | a statement that a shared connection may not run | `SessionState` | `NotSent` |
//! | the server refuses the statement | `Database` | `Failed` |
//! | somebody cancels the statement on the server | `Database` | `Failed` |
//! | a constraint that is checked only at the end of its transaction | `Database` | `Failed` |
//! | COMMIT of a transaction that the server has undone, or turned into ROLLBACK | `Database` | `Failed` |
//! | COMMIT whose answer did not come | `Io` | `Unknown` |
//! | a handle of a transaction that is over | `SessionState` | `NotSent` |
//! | a handle of a savepoint that was rolled back with an earlier one | `SessionState` | `NotSent` |
//! | a script or procedure that ends the transaction it is part of | `SessionState` | `Completed` |
//! | COMMIT or ROLLBACK of a transaction that was ended so, and `run` of such work | `SessionState` | `Unknown` |
//! | no or several rows where one was asked for | `RowCount` | `Completed` |
//! | a value that is not of the type asked for | `Decode` | `Completed` |
//! | an answer over `max_answer_bytes`, or over what `answer_budget` leaves | `Busy` | `Completed` |
//! | deadline passed before it was sent (phase queue) | `Timeout` | `NotSent` |
//! | deadline passed before a lease was free (phase lease) | `Timeout` | `NotSent` |
//! | deadline passed while it was sent (phase send) | `Timeout` | `Unknown` |
//! | deadline passed before it was answered (phase answer) | `Timeout` | `Unknown` |
//! | connection lost after its bytes went out | `Io` | `Unknown` |
//! | connection lost before that, on a pool | none: it goes to another connection | |
//! | connection lost before that, on a lease | `Io`, later `Closed` | `NotSent` |
//! | the server breaks the protocol | `Protocol` | `Unknown` |
//! | the pool is closed, or its runtime has ended | `Closed` | `NotSent` |
//! | a script on the pool that leaves a transaction open | `SessionState` | `Failed` |
//! | a transaction slipped onto a shared connection: behind it, once it was rolled back | `SessionState` | `Failed` |
//!
//! Nothing but what was never sent is run again without being asked, except a statement whose plan went stale, of which
//! the server had executed nothing. [`Statement::idempotent`] and [`CallOptions::idempotent`] allow more. The parameter
//! types of a statement that nobody has used yet are asked for first: on up to three connections, when they are lost;
//! then the error is `Io`, and `NotSent`, because the statement itself was not.
//!
//! # Options
//!
//! By the same names in the URL (`?connections=8`), in [`Config`] and in [`PoolBuilder`].
//!
#![doc = wire_pipeline::option_table!()]
//!
//! # Runtimes
//!
//! A pool works on the tokio runtime that it was connected on and may be called from others. An application with one
//! runtime per core gives each its own pool of at least four connections. Where that runtime is not driven (one of a
//! single thread that nobody blocks on), nothing moves: no answer comes, and no deadline ends the wait.
//!
//! A pool belongs to its process. After `fork`, calls of the child's copy fail at once (`Closed`, `NotSent`) and the
//! parent's go on; the child connects a pool of its own, and must not drop the parent's runtime, which would wait for
//! threads that the child does not have.
//!
//! # Features
//!
//! `derive` (default): `#[derive(FromRow)]`. `tls` (default): encrypted connections, by rustls with ring. `deadpool`: a
//! manager for classical checkout pools. Types of other crates (`with-uuid-1` …) are features of `postgres-types`.

#[cfg_attr(not(feature = "tls"), allow(dead_code, unused_imports, reason = "what only TLS needs"))]
mod auth;
mod batch;
mod caller;
mod client;
mod column;
#[cfg_attr(not(feature = "tls"), allow(dead_code, unused_imports, reason = "what only TLS needs"))]
mod config;
mod connect;
mod connection;
#[cfg(feature = "deadpool")]
pub mod deadpool;
#[cfg_attr(not(feature = "tls"), allow(dead_code, unused_imports, reason = "what only TLS needs"))]
mod encryption;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod notice;
mod params;
mod pool;
mod protocol;
mod row;
mod session;
mod statement;
mod transaction;
pub mod types;

pub use auth::ChannelBinding;
pub use batch::Batch;
pub use caller::{CallOptions, Executed};
pub use client::Client;
pub use column::Column;
pub use config::{Config, OPTIONS, OptionInfo, PoolOptions, SslMode, SslNegotiation, TargetSessionAttrs};
pub use connection::Connection;
pub use error::{DatabaseError, Error, ErrorKind, Outcome, Phase};
pub use params::Params;
#[cfg(feature = "derive")]
pub use pipeline_derive::PgFromRow as FromRow;
pub use pool::{
    Histogram, LeaseStats, Losses, PipeState, PipeStats, Pool, PoolBuilder, PoolStats, PoolView, Work,
};
pub use row::{FromRow, Row, RowIndex};
pub use session::Session;
pub use statement::{IntoStatement, Statement};
pub use transaction::{Isolation, Savepoint, Transaction, TransactionBuilder, Tx};
pub use wire_pipeline::options::Routing;

/// What derived code refers to.
#[doc(hidden)]
pub mod __private {
    pub use wire_pipeline::row::{Field, FieldSource, FromRow};
}
