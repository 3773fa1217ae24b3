//! Both ways of access by one driver, written once for all of them.
//!
//! A macro, because each driver has types of its own; they are the same in name and use.

/// The stores of the driver `$driver`: its statements for a row and for a sleep of some seconds, and the type of its
/// `SELECT 1`.
macro_rules! stores {
    ($driver:ident, by_id: $by_id:expr, sleep: $sleep:expr, one: $one:ty) => {
        use std::time::Duration;

        use anyhow::{Context as _, Result};
        use deadpool::Runtime;
        use deadpool::managed::PoolError;
        use $driver::deadpool as checkout;
        use $driver::{Config, Error, ErrorKind, Outcome, Pool, Routing, Statement};

        use super::{Failure, Sample, Store, World, samples};

        /// Requests share the connections of the driver's pool.
        #[derive(Clone)]
        pub(crate) struct Pipelined {
            pool: Pool,
            by_id: Statement,
        }

        impl Store for Pipelined {
            async fn connect(url: &str, connections: usize) -> Result<Self> {
                let pool = Pool::builder(config(url)?).connections(connections).connect().await?;
                Ok(Self { pool, by_id: Statement::new($by_id) })
            }

            async fn world(&self, id: i32) -> Result<World, Failure> {
                Ok(self.pool.query_one(&self.by_id, (id,)).await?)
            }

            async fn ping(&self) -> Result<(), Failure> {
                Ok(self.pool.ping().await?)
            }

            fn samples(&self) -> Vec<Sample> {
                samples::of_pool(&self.pool.stats())
            }

            async fn close(self) {
                self.pool.close().await;
            }
        }

        /// Quick queries and slow ones on one pool.
        #[derive(Clone)]
        pub(crate) struct Mixed {
            pool: Pool,
            by_id: Statement,
            sleep: Statement,
        }

        impl super::Mixed for Mixed {
            async fn connect(url: &str, connections: usize, routing: Routing) -> Result<Self> {
                let pool =
                    Pool::builder(config(url)?).connections(connections).routing(routing).connect().await?;
                Ok(Self { pool, by_id: Statement::new($by_id), sleep: Statement::new($sleep) })
            }

            async fn quick(&self, id: i32) -> Result<World, Failure> {
                Ok(self.pool.query_one(&self.by_id, (id,)).await?)
            }

            async fn sleep(&self, time: Duration) -> Result<(), Failure> {
                self.pool.execute(&self.sleep, (time.as_secs_f64(),)).await?;
                Ok(())
            }

            async fn close(self) {
                self.pool.close().await;
            }
        }

        /// Each request takes a connection for itself and gives it back.
        #[derive(Clone)]
        pub(crate) struct Checkout {
            pool: checkout::Pool,
            by_id: Statement,
        }

        impl Store for Checkout {
            async fn connect(url: &str, connections: usize) -> Result<Self> {
                let pool = checkout::Pool::builder(checkout::Manager::new(config(url)?))
                    .max_size(connections)
                    .runtime(Runtime::Tokio1)
                    .wait_timeout(Some(ANSWER))
                    .build()?;
                // As the pipelined store does: a database that cannot be reached is found out now.
                drop(pool.get().await?);
                Ok(Self { pool, by_id: Statement::new($by_id) })
            }

            async fn world(&self, id: i32) -> Result<World, Failure> {
                let connection = self.pool.get().await?;
                Ok(connection.query_one(&self.by_id, (id,)).await?)
            }

            async fn ping(&self) -> Result<(), Failure> {
                let connection = self.pool.get().await?;
                let (_,): ($one,) = connection.query_one("SELECT 1", ()).await?;
                Ok(())
            }

            fn samples(&self) -> Vec<Sample> {
                samples::of_checkout(&self.pool.status())
            }

            async fn close(self) {
                self.pool.close();
            }
        }

        /// A request is answered within this time even when the database is not, unless the URL says otherwise.
        const ANSWER: Duration = Duration::from_secs(5);

        fn config(url: &str) -> Result<Config> {
            let mut config: Config = url.parse().context("the URL of the database cannot be used")?;
            // As most of the others: whoever wants to measure encryption says so in the URL.
            if !url.to_ascii_lowercase().contains("ssl") {
                config = config.option("sslmode", "disable")?;
            }
            let usual = Config::new().pool_options().query_timeout();
            Ok(if config.pool_options().query_timeout() == usual {
                config.query_timeout(ANSWER)
            } else {
                config
            })
        }

        impl From<Error> for Failure {
            fn from(error: Error) -> Self {
                Self::new(error.kind(), error.outcome())
            }
        }

        impl From<PoolError<Error>> for Failure {
            fn from(error: PoolError<Error>) -> Self {
                match error {
                    PoolError::Backend(error) => error.into(),
                    PoolError::Timeout(_) => Self::new(ErrorKind::Timeout, Outcome::NotSent),
                    _ => Self::new(ErrorKind::Closed, Outcome::NotSent),
                }
            }
        }
    };
}

pub(super) use stores;
