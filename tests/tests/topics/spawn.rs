//! Where calls may be made from: spawned tasks, other runtimes, functions over any client, and a pool that outlives its
//! runtime.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use integration_tests::{eventually, own_name};

use super::side::dialect::{ECHO, ECHO_BOTH, ECHO_TEXT, NEGATE, sleep};
use super::side::{
    CallOptions, Client, Connection, Error, ErrorKind, Outcome, Pool, Row, Statement, asleep, config,
    drop_table, named_config, params, pool, sql, table,
};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_with_arguments_of_every_kind_can_be_spawned() {
    static STATEMENT: &str = ECHO_BOTH;
    let pool = pool().await;
    let handle = Statement::new(STATEMENT);
    let mut tasks = Vec::new();
    for n in 0..20_i32 {
        let text = format!("text {n}");
        let expected = (n, text.clone());
        // Owned text and parameters.
        let (pool_, sql, owned) = (pool.clone(), STATEMENT.to_owned(), text.clone());
        tasks.push((expected.clone(), tokio::spawn(async move { pool_.query_one(sql, (n, owned)).await })));
        // Borrowed from what the task owns.
        let (pool_, owned) = (pool.clone(), text.clone());
        tasks.push((
            expected.clone(),
            tokio::spawn(async move { pool_.query_one(STATEMENT, (n, owned.as_str())).await }),
        ));
        let (pool_, owned, sql) = (pool.clone(), text.clone(), STATEMENT.to_owned());
        tasks.push((
            expected.clone(),
            tokio::spawn(async move {
                let rows: Vec<Row> = pool_.query(&sql, params![n, owned]).await?;
                Ok((rows[0].get(0), rows[0].get(1)))
            }),
        ));
        // A handle, shared and owned, and a text that may be either.
        let (pool_, owned, sql) = (pool.clone(), text.clone(), handle.clone());
        tasks
            .push((expected.clone(), tokio::spawn(async move { pool_.query_one(&sql, (&n, &owned)).await })));
        let (pool_, owned) = (pool.clone(), text.clone());
        let sql: Cow<'static, str> = if n % 2 == 0 { STATEMENT.into() } else { STATEMENT.to_owned().into() };
        tasks.push((expected.clone(), tokio::spawn(async move { pool_.query_one(sql, (n, owned)).await })));
        // Through a view, in an `Arc`, in a transaction and on a session.
        let (pool_, owned, sql) = (Arc::new(pool.clone()), text.clone(), handle.clone());
        tasks.push((
            expected.clone(),
            tokio::spawn(async move {
                let view = pool_.with(CallOptions::new().timeout(Duration::from_secs(20)).idempotent());
                view.query_one(sql, (n, owned)).await
            }),
        ));
        let (pool_, owned) = (pool.clone(), text);
        tasks.push((
            expected,
            tokio::spawn(async move {
                let tx = pool_.begin().await?;
                let row: (i32, String) = tx.query_one(STATEMENT, (n, &owned)).await?;
                tx.commit().await?;
                let session = pool_.session().await?;
                assert_eq!(session.query_opt(STATEMENT, (n, &owned)).await?.as_ref(), Some(&row));
                Ok(row)
            }),
        ));
    }
    for (expected, task) in tasks {
        let got: Result<(i32, String), Error> = task.await.expect("no panic");
        assert_eq!(got.expect("an answer"), expected);
    }
    pool.close().await;
}

#[tokio::test]
async fn borrowed_arguments_need_not_live_longer_than_the_call() {
    let pool = pool().await;
    let texts = ["a".to_owned(), "b".to_owned()];
    // Not spawned, so that everything may be borrowed from here.
    let futures: Vec<_> =
        texts.iter().map(|text| Box::pin(pool.query_one::<(String,)>(ECHO_TEXT, (text,)))).collect();
    for (future, text) in futures.into_iter().zip(&texts) {
        assert_eq!(&future.await.expect("an answer").0, text);
    }
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_runtimes_and_threads_may_call() {
    let pool = pool().await;
    let threads: Vec<_> = (0..4_i32)
        .map(|thread| {
            let pool = pool.clone();
            std::thread::spawn(move || {
                runtime().block_on(async {
                    for n in 0..50_i32 {
                        let number = thread * 1_000 + n;
                        let (a, b) = tokio::try_join!(
                            pool.query_one::<(i32,)>(ECHO, (number,)),
                            pool.query_one::<(i32,)>(NEGATE, (number,)),
                        )
                        .expect("answers");
                        assert_eq!((a.0, b.0), (number, -number));
                    }
                    let tx = pool.begin().await.expect("a transaction");
                    tx.execute("SELECT 1", ()).await.expect("works");
                    tx.rollback().await.expect("rolled back");
                    let limit = CallOptions::new().timeout(Duration::from_millis(50));
                    let error = pool.with(limit).execute(sleep(1.0), ()).await.expect_err("too slow");
                    assert_eq!(error.kind(), ErrorKind::Timeout);
                });
            })
        })
        .collect();
    tokio::task::spawn_blocking(move || {
        for thread in threads {
            thread.join().expect("no panic");
        }
    })
    .await
    .expect("all threads");
    // Without any runtime around the call: the timers are the pool's.
    let caller = pool.clone();
    let answer =
        std::thread::spawn(move || block_on_without_a_runtime(caller.query_one::<(i32,)>("SELECT 7", ())))
            .join()
            .expect("no panic");
    assert_eq!(answer.expect("an answer"), (7,));
    let caller = pool.clone();
    let answer = std::thread::spawn(move || {
        block_on_without_a_runtime(async {
            let tx = caller.begin().await?;
            tx.execute("SELECT 1", ()).await?;
            tx.commit().await
        })
    })
    .join()
    .expect("no panic");
    answer.expect("committed");
    pool.close().await;
}

/// Polls when woken, with nothing of tokio's.
fn block_on_without_a_runtime<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_pool_whose_runtime_has_ended_says_so_and_does_not_hang() {
    static POOL: OnceLock<Pool> = OnceLock::new();
    let (transaction, session) = runtime().block_on(async {
        let pool = POOL.get_or_init(|| {
            let config = std::thread::spawn(|| runtime().block_on(config())).join().expect("a server");
            Pool::builder(config).connect_lazy().expect("never waits")
        });
        let (one,): (i32,) = pool.query_one("SELECT 1", ()).await.expect("on its own runtime");
        assert_eq!(one, 1);
        (pool.begin().await.expect("a transaction"), pool.session().await.expect("a session"))
    });
    let pool = POOL.get().expect("the pool");
    runtime().block_on(async {
        let began = Instant::now();
        let mut batch = pool.batch();
        batch.push("SELECT 1", ());
        let errors = [
            pool.query::<Row>("SELECT 1", ()).await.map(drop).expect_err("its runtime has ended"),
            pool.query::<Row>("SELECT 'unknown'", ()).await.map(drop).expect_err("its runtime has ended"),
            batch.execute().await.map(drop).expect_err("its runtime has ended"),
            pool.ping().await.expect_err("its runtime has ended"),
            pool.begin().await.map(drop).expect_err("its runtime has ended"),
            pool.session().await.map(drop).expect_err("its runtime has ended"),
        ];
        for error in errors {
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent), "{error}");
            assert!(
                error.to_string().contains("runtime") && error.to_string().contains("has ended"),
                "{error}"
            );
        }
        for error in [
            transaction.execute("SELECT 1", ()).await.map(drop).expect_err("its runtime has ended"),
            session.execute("SELECT 1", ()).await.map(drop).expect_err("its runtime has ended"),
        ] {
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Closed, Outcome::NotSent), "{error}");
        }
        drop((transaction, session));
        pool.close().await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

#[test]
fn who_waits_when_the_runtime_ends_is_told() {
    let name = own_name("runtime_ends");
    let config = runtime().block_on(named_config(&name));
    let home = runtime();
    let pool = home.block_on(async {
        let pool = Pool::builder(config).connect().await.expect("a pool");
        pool.query_one::<(i32,)>(sleep(0.0), ()).await.expect("works");
        pool
    });
    let asker = {
        let pool = pool.clone();
        std::thread::spawn(move || {
            runtime().block_on(async {
                tokio::join!(pool.query::<Row>(sleep(60.0), ()), pool.query::<Row>(sleep(61.0), ()),)
            })
        })
    };
    home.block_on(async {
        let other = super::side::pool().await;
        eventually("they sleep", || async { asleep(&other, &name).await >= 1 }).await;
    });
    drop(home);
    let (one, two) = asker.join().expect("no panic");
    for error in [one.expect_err("told"), two.expect_err("told")] {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(error.to_string().contains("runtime"), "{error}");
    }
    drop(pool);
}

/// What applications write: functions that work with whatever runs statements.
async fn add(client: &impl Client, table: &str, n: i32) -> Result<i64, Error> {
    client.execute(sql(format!("INSERT INTO {table} VALUES ($1)")), (n,)).await?;
    let found: Option<(i32,)> =
        client.query_opt(sql(format!("SELECT n FROM {table} WHERE n = $1")), (n,)).await?;
    assert_eq!(found, Some((n,)));
    let all: Vec<Row> = client.query(format!("SELECT n FROM {table}"), ()).await?;
    let (count,): (i64,) = client.query_one(format!("SELECT count(*) FROM {table}"), ()).await?;
    assert_eq!(all.len() as i64, count);
    Ok(count)
}

/// Generic and spawned: the futures are `Send` for every client.
fn spawn_add<C: Client + Send + 'static>(
    client: C,
    table: String,
    n: i32,
) -> tokio::task::JoinHandle<(C, i64)> {
    tokio::spawn(async move {
        let count = add(&client, &table, n).await.expect("works");
        (client, count)
    })
}

#[tokio::test]
async fn one_function_works_on_every_client() {
    let pool = pool().await;
    let table = table(&pool, "clients", "n int4").await;
    assert_eq!(add(&pool, &table, 1).await.expect("a pool"), 1);
    assert_eq!(add(&pool.with(CallOptions::new()), &table, 2).await.expect("a view"), 2);
    let (session, count) =
        spawn_add(pool.session().await.expect("a session"), table.clone(), 3).await.expect("no panic");
    assert_eq!(count, 3);
    drop(session);
    let (tx, count) =
        spawn_add(pool.begin().await.expect("a transaction"), table.clone(), 4).await.expect("no panic");
    assert_eq!(count, 4);
    tx.commit().await.expect("committed");
    let connection = Connection::connect(config().await).await.expect("a connection");
    let (connection, count) = spawn_add(connection, table.clone(), 5).await.expect("no panic");
    assert_eq!(count, 5);
    connection.close().await;
    assert_eq!(spawn_add(pool.clone(), table.clone(), 6).await.expect("no panic").1, 6);
    drop_table(&pool, &table).await;
    pool.close().await;
}
