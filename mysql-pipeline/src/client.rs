//! What every handle can do: one family of calls, as a trait and as methods.

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

/// The calls as methods, so that nobody has to import the trait.
macro_rules! client {
    ($type:ty) => {
        client!($type, {});
    };
    ($type:ty, {$($generics:tt)*}) => {
        impl<$($generics)*> crate::client::Client for $type {}

        impl<$($generics)*> $type {
            /// Runs a statement and returns all its rows.
            ///
            /// `R` is [`Row`](crate::Row), a tuple, or a struct with `#[derive(FromRow)]`. Rows are collected whole
            /// within `max_answer_bytes`.
            ///
            /// Cancel safe: dropped before its bytes went out, the statement never runs; dropped later, its answer
            /// is read and discarded.
            ///
            /// # Errors
            ///
            /// What the server refuses ([`Database`](crate::ErrorKind::Database)), parameters that do not fit
            /// ([`Encode`](crate::ErrorKind::Encode)), values that do not ([`Decode`](crate::ErrorKind::Decode)),
            /// deadlines and lost connections; [`outcome`](crate::Error::outcome) says whether it ran.
            pub async fn query<R: crate::FromRow>(
                &self,
                statement: impl crate::IntoStatement,
                params: impl crate::Params,
            ) -> Result<Vec<R>, crate::Error> {
                crate::client::sealed::Sealed::caller(self).query(statement, params).await
            }

            /// Runs a statement that returns exactly one row.
            ///
            /// # Errors
            ///
            /// As [`query`](Self::query), and [`RowCount`](crate::ErrorKind::RowCount) on none or several rows.
            pub async fn query_one<R: crate::FromRow>(
                &self,
                statement: impl crate::IntoStatement,
                params: impl crate::Params,
            ) -> Result<R, crate::Error> {
                crate::client::sealed::Sealed::caller(self).query_one(statement, params).await
            }

            /// Runs a statement that returns one row or none.
            ///
            /// # Errors
            ///
            /// As [`query`](Self::query), and [`RowCount`](crate::ErrorKind::RowCount) on several rows.
            pub async fn query_opt<R: crate::FromRow>(
                &self,
                statement: impl crate::IntoStatement,
                params: impl crate::Params,
            ) -> Result<Option<R>, crate::Error> {
                crate::client::sealed::Sealed::caller(self).query_opt(statement, params).await
            }

            /// Runs a statement and discards its rows.
            ///
            /// # Errors
            ///
            /// As [`query`](Self::query).
            pub async fn execute(
                &self,
                statement: impl crate::IntoStatement,
                params: impl crate::Params,
            ) -> Result<crate::Executed, crate::Error> {
                crate::client::sealed::Sealed::caller(self).execute(statement, params).await
            }
        }
    };
}

pub(crate) use client;
