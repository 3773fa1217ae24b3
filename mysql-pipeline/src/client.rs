//! What every handle can do: one family of calls, as a trait and as methods (which the engine writes).
//!
//! Written again in `pg-pipeline`'s file of this name on purpose: a trait of each driver's own, about its own types.

use std::future::Future;

use crate::caller::Executed;
use crate::error::Error;
use crate::params::Params;
use crate::row::FromRow;
use crate::statement::IntoStatement;

/// Something that runs statements: a pool and its views, a session, a transaction, a connection.
///
/// For functions that should work on any of them. It cannot be a trait object, because its calls are generic; code
/// that takes `&impl Client` is tested with a real server, or against a trait of the application's own.
///
/// ```no_run
/// use mysql_pipeline::{Client, Error};
///
/// async fn rename(client: &impl Client, id: i32, name: &str) -> Result<bool, Error> {
///     let done = client.execute("UPDATE users SET name = ? WHERE id = ?", (name, id)).await?;
///     Ok(done.rows_affected() == 1)
/// }
/// ```
pub trait Client: Sync + sealed::Sealed {
    /// See [`Pool::query`](crate::Pool::query).
    fn query<R: FromRow>(
        &self,
        statement: impl IntoStatement,
        params: impl Params,
    ) -> impl Future<Output = Result<Vec<R>, Error>> + Send {
        self.caller().query(statement, params)
    }

    /// See [`Pool::query_one`](crate::Pool::query_one).
    fn query_one<R: FromRow>(
        &self,
        statement: impl IntoStatement,
        params: impl Params,
    ) -> impl Future<Output = Result<R, Error>> + Send {
        self.caller().query_one(statement, params)
    }

    /// See [`Pool::query_opt`](crate::Pool::query_opt).
    fn query_opt<R: FromRow>(
        &self,
        statement: impl IntoStatement,
        params: impl Params,
    ) -> impl Future<Output = Result<Option<R>, Error>> + Send {
        self.caller().query_opt(statement, params)
    }

    /// See [`Pool::execute`](crate::Pool::execute).
    fn execute(
        &self,
        statement: impl IntoStatement,
        params: impl Params,
    ) -> impl Future<Output = Result<Executed, Error>> + Send {
        self.caller().execute(statement, params)
    }
}

pub(crate) mod sealed {
    pub trait Sealed {
        #[doc(hidden)]
        fn caller(&self) -> crate::caller::Caller<'_>;
    }
}

pub(crate) use wire_pipeline::client;
