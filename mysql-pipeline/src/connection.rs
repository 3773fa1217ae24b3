//! One exclusive connection without a pool.
//!
//! `pg-pipeline`'s file of this name has the same face on purpose, as every handle has: concrete types, each call one delegation.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::time::Instant;

use crate::auth::Terms;
use crate::batch::Batch;
use crate::caller::{Caller, Knowledge, Lane, Leased, Takes};
use crate::client::{client, sealed::Sealed};
use crate::config::Config;
use crate::connect::{self, MyDriver};
use crate::error::{Error, ErrorKind, Fault, Outcome};
use crate::protocol::answer::Answer;
use crate::protocol::change_user::ChangeUser;
use crate::protocol::request::{Request, What};
use crate::protocol::startup;

/// A connection of its own: what a classical checkout pool manages, and what tools use.
///
/// It does not reconnect: once lost it stays lost, and [`is_closed`](Self::is_closed) tells. Statements may be
/// pipelined. When it is dropped, what is under way is finished and the connection ends.
pub struct Connection {
    leased: Leased,
    knowledge: Arc<Knowledge>,
    setup: Arc<[Bytes]>,
    terms: Arc<Mutex<Terms>>,
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
        let (setup, terms) = (driver.setup(), driver.terms());
        let lease = wire_pipeline::pool::exclusive(driver, options).await?;
        Ok(Self { leased: Leased::new(lease, Takes::Everything), knowledge, setup, terms })
    }

    /// Becomes another user on the same connection (`COM_CHANGE_USER`): the session is a new one, with the configuration's
    /// set-up run again, in `database` or in none. An empty password counts as none. The server's name for the connection
    /// (`CONNECTION_ID()`) stays.
    ///
    /// A statement whose time is up is cancelled on the server by the configured user, where that one may.
    ///
    /// It takes the connection and gives it back when all went well: what failed half-way is nobody's session, and its
    /// connection is closed. So it is when the future is dropped.
    ///
    /// ```no_run
    /// # async fn example(connection: mysql_pipeline::Connection) -> Result<(), mysql_pipeline::Error> {
    /// let connection = connection.change_user("reporter", "secret", Some("reports")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Of kind [`ErrorKind::Auth`] if the server refuses the user, or asks for a method that is not offered, or for the
    /// password over a channel that others can read; of kind [`ErrorKind::Timeout`] if one of its words takes longer than
    /// `query_timeout`.
    pub async fn change_user(
        self,
        user: &str,
        password: &str,
        database: Option<&str>,
    ) -> Result<Self, Error> {
        self.authenticate(user, Some(password).filter(|password| !password.is_empty()), database).await?;
        for text in self.setup.iter() {
            self.ask(Request::own(What::Query(text.clone()))).await?;
        }
        Ok(self)
    }

    async fn authenticate(
        &self,
        user: &str,
        password: Option<&str>,
        database: Option<&str>,
    ) -> Result<(), Fault> {
        let seed = connect::seed().map_err(|why| {
            Fault::new(ErrorKind::Io, Outcome::NotSent, "no authentication without random numbers")
                .with_source(why)
        })?;
        let terms = self.terms.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut change, mut packet) = ChangeUser::begin(Terms { seed, ..terms }, user, password, database)?;
        let mut sequence = 0_u8;
        loop {
            let request = Request::new(What::Dialogue { packet: packet.into(), sequence });
            match self.ask(request).await {
                Ok(Answer::Said(said)) => packet = change.receive(&said)?,
                Ok(Answer::Ran(_)) => return Ok(()),
                Ok(Answer::Stale(error)) => return Err(error),
                Err(error) => {
                    let refused = error.server().cloned().map(startup::refused);
                    return Err(refused.map_or(error, |refused| refused.with_outcome(Outcome::Failed)));
                }
            }
            // The server's word had the number in between.
            sequence = sequence.wrapping_add(2);
        }
    }

    async fn ask(&self, request: Request) -> Result<Answer, Fault> {
        let deadline = Instant::now() + self.knowledge.query_timeout;
        self.leased.lease.submit(request, deadline).await
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
