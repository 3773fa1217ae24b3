//! One exclusive connection without a pool.
//!
//! `pg-pipeline`'s file of this name has the same face on purpose, as every handle has: concrete types, each call one delegation.

use std::sync::Arc;

use crate::batch::Batch;
use crate::caller::{Caller, Knowledge, Lane, Leased, Takes};
use crate::client::{client, sealed::Sealed};
use crate::config::Config;
use crate::connect::MyDriver;
use crate::error::Error;

/// A connection of its own: what a classical checkout pool manages, and what tools use.
///
/// It does not reconnect: once lost it stays lost, and [`is_closed`](Self::is_closed) tells. Statements may be
/// pipelined. When it is dropped, what is under way is finished and the connection ends.
pub struct Connection {
    leased: Leased,
    knowledge: Arc<Knowledge>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    ///
    /// What cannot be used in the configuration, or why there is no connection.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let options = config.pool_options().into();
        let knowledge = Knowledge::new(config.pool_options());
        let driver = MyDriver::new(config)?;
        let lease = wire_pipeline::pool::exclusive(driver, options).await?;
        Ok(Self { leased: Leased::new(lease, Takes::Everything), knowledge })
    }

    /// Runs a script of several statements, separated by semicolons; the results are discarded.
    ///
    /// # Errors
    ///
    /// As [`Session::batch_execute`](crate::Session::batch_execute).
    pub async fn batch_execute(&self, script: &str) -> Result<(), Error> {
        self.caller().script(script).await?;
        Ok(())
    }

    /// Statements that succeed or fail together, sent in one go.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self.caller())
    }

    /// Whether the connection was lost.
    pub fn is_closed(&self) -> bool {
        !self.leased.lease.is_alive()
    }

    /// Says goodbye, and waits until the connection has ended.
    pub async fn close(self) {
        let ended = self.leased.lease.ended();
        drop(self);
        ended.await;
    }
}

impl Sealed for Connection {
    fn caller(&self) -> Caller<'_> {
        Caller::new(&self.knowledge, Lane::Leased(&self.leased))
    }
}

client!(Connection);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}
