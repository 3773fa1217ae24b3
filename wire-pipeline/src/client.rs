//! The calls that every handle of every driver has, written once with their documentation.
//!
//! A macro, because each is a method of the driver's own type and speaks the driver's own types. Knows what calls are
//! named and what they promise; how one runs is the driver's.

/// Gives a driver's handle its calls as methods, so that nobody has to import the driver's trait `Client`. The driver
/// has its words under the engine's names: `FromRow`, `IntoStatement`, `Params`, `Executed`, `Error`, `ErrorKind`, and
/// `client::sealed::Sealed`, by which a handle has a `caller`.
#[doc(hidden)]
#[macro_export]
#[expect(clippy::crate_in_macro_def, reason = "the crate is the driver that uses it")]
macro_rules! client {
    ($type:ty) => {
        $crate::client!($type, {});
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
