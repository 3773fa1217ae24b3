//! A manager for classical checkout pools: one task per connection at a time.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use mysql_pipeline::deadpool::{Manager, Pool};
//!
//! let config = "mysql://app:secret@db.internal/app".parse()?;
//! let pool = Pool::builder(Manager::new(config)).max_size(8).build()?;
//! let connection = pool.get().await?;
//! let (one,): (i32,) = connection.query_one("SELECT 1", ()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `pg-pipeline` has the same module on purpose: a manager is of one type of connection.

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};

use crate::{Config, Connection, Error};

/// A checkout pool of [`Connection`]s.
pub type Pool = managed::Pool<Manager>;

/// Connects for a checkout pool.
#[derive(Debug, Clone)]
pub struct Manager {
    config: Config,
}

impl Manager {
    /// Connects with `config`; its options of the pipelined pool that concern one connection hold.
    pub fn new(config: Config) -> Self {
        Self { config }
    }
}

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = Error;

    async fn create(&self) -> Result<Connection, Error> {
        Connection::connect(self.config.clone()).await
    }

    /// A connection that was lost is not handed out again. Session state is kept, as checkout pools do.
    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<Error> {
        if connection.is_closed() {
            return Err(RecycleError::message("the connection was lost"));
        }
        Ok(())
    }
}
