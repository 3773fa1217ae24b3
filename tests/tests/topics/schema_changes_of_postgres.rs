//! What changes on PostgreSQL besides tables: types of the database's own, the types of parameters, and statements that a
//! session forgets. A statement that goes stale in a transaction fails it.

use integration_tests::own_name;

use super::schema_changes::{filled, value};
use super::side::types::{FromSql, ToSql};
use super::side::{Client, ErrorKind, Row, all_shared, drop_table, pool, pool_of};

#[tokio::test]
async fn a_parameter_takes_values_of_its_columns_new_type() {
    let pool = pool().await;
    all_shared(&pool).await;
    let table = filled(&pool, "parameter").await;
    let sql = format!("SELECT count(*) FROM {table} WHERE v = $1");
    for _ in 0..16 {
        let (count,): (i64,) = pool.query_one(&sql, (value(3),)).await.expect("int4");
        assert_eq!(count, 1);
    }
    pool.execute(format!("ALTER TABLE {table} ALTER v TYPE int8"), ()).await.expect("altered");
    for _ in 0..16 {
        let (count,): (i64,) = pool.query_one(&sql, (i64::from(value(3)),)).await.expect("int8");
        assert_eq!(count, 1);
    }
    pool.execute(format!("ALTER TABLE {table} ALTER v TYPE text"), ()).await.expect("altered");
    for _ in 0..16 {
        let (count,): (i64,) = pool.query_one(&sql, (value(3).to_string(),)).await.expect("text");
        assert_eq!(count, 1);
    }
    let error = pool.query_one::<Row>(&sql, (1,)).await.expect_err("it takes text now");
    assert_eq!(error.kind(), ErrorKind::Encode);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn a_session_that_forgets_its_statements_goes_on() {
    let pool = pool().await;
    let session = pool.session().await.expect("a session");
    for forget in ["DEALLOCATE ALL", "DISCARD ALL"] {
        for n in 0..5 {
            let (got,): (i32,) = session.query_one("SELECT $1::int4 + 1", (n,)).await.expect("works");
            assert_eq!(got, n + 1);
            session.execute(forget, ()).await.expect("forgotten");
            let (got,): (i32,) = session.query_one("SELECT $1::int4 + 1", (n,)).await.expect("works again");
            assert_eq!(got, n + 1);
            let mut batch = session.batch();
            batch.push("SELECT $1::int4 + 1", (n,));
            batch.push("SELECT $1::int4 + 2", (n,));
            batch.execute().await.expect("works too");
            session.batch_execute(forget).await.expect("forgotten");
            let mut batch = session.batch();
            batch.push("SELECT $1::int4 + 1", (n,));
            batch.push("SELECT $1::int4 + 2", (n,));
            batch.execute().await.expect("works again");
        }
    }
    drop(session);
    all_shared(&pool).await;
    for n in 0..64 {
        let (got,): (i32,) = pool.query_one("SELECT $1::int4 + 1", (n,)).await.expect("works on every pipe");
        assert_eq!(got, n + 1);
    }
    pool.close().await;
}

#[tokio::test]
async fn inside_of_a_transaction_a_stale_statement_is_an_error_and_works_in_the_next_one() {
    let (pool, other) = (pool().await, pool().await);
    let table = filled(&other, "stale_inside").await;
    let sql = format!("SELECT * FROM {table} WHERE id = $1");
    let session = pool.session().await.expect("a session");
    for commits in [false, true] {
        session.query_one::<Row>(&sql, (1,)).await.expect("prepared");
        other.execute(format!("ALTER TABLE {table} ADD {} int4", own_name("c")), ()).await.expect("altered");
        session.execute("BEGIN", ()).await.expect("begun");
        let error = session.query_one::<Row>(&sql, (1,)).await.expect_err("its shape has changed");
        assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Database, Some("0A000")));
        let error = session.query_one::<Row>("SELECT 1", ()).await.expect_err("the transaction has failed");
        assert_eq!(error.sqlstate(), Some("25P02"));
        session.execute(if commits { "COMMIT" } else { "ROLLBACK" }, ()).await.expect("over");
        session.execute("BEGIN", ()).await.expect("begun");
        session.query_one::<Row>(&sql, (1,)).await.expect("prepared again");
        session.execute("COMMIT", ()).await.expect("over");
    }
    drop(session);
    drop_table(&other, &table).await;
    pool.close().await;
    other.close().await;
}

#[derive(Debug, Clone, Copy, PartialEq, ToSql, FromSql)]
#[postgres(name = "mood", rename_all = "lowercase")]
enum Mood {
    Sad,
    Ok,
    Happy,
}

#[derive(Debug, Clone, PartialEq, ToSql, FromSql)]
struct Item {
    name: String,
    mood: Mood,
    prices: Vec<i32>,
}

#[derive(Debug, Clone, PartialEq, ToSql, FromSql)]
#[postgres(name = "percent")]
struct Percent(i32);

/// Types have names that their Rust counterparts fix, so each test has a schema of its own.
fn create_types(schema: &str) -> String {
    format!(
        "CREATE SCHEMA {schema};
         CREATE TYPE {schema}.mood AS ENUM ('sad', 'ok', 'happy');
         CREATE TYPE {schema}.\"Item\" AS (name text, mood {schema}.mood, prices int4[]);
         CREATE DOMAIN {schema}.percent AS int4 CHECK (VALUE BETWEEN 0 AND 100);"
    )
}

async fn use_types(client: &impl Client, schema: &str) {
    let (mood,): (Mood,) =
        client.query_one(format!("SELECT 'ok'::{schema}.mood"), ()).await.expect("an enum");
    assert_eq!(mood, Mood::Ok);
    let (mood,): (Mood,) = client
        .query_one(format!("SELECT $1::{schema}.mood"), (Mood::Happy,))
        .await
        .expect("an enum there and back");
    assert_eq!(mood, Mood::Happy);
    let item = Item { name: "tea".into(), mood: Mood::Sad, prices: vec![3, 4] };
    let (back,): (Item,) =
        client.query_one(format!("SELECT $1::{schema}.\"Item\""), (&item,)).await.expect("a composite");
    assert_eq!(back, item);
    let items = vec![item.clone(), Item { name: String::new(), ..item }];
    let (back,): (Vec<Item>,) = client
        .query_one(format!("SELECT $1::{schema}.\"Item\"[]"), (&items,))
        .await
        .expect("an array of them");
    assert_eq!(back, items);
    let (percent,): (Option<Percent>,) =
        client.query_one(format!("SELECT $1::{schema}.percent"), (Percent(5),)).await.expect("a domain");
    // A domain's values are described as those of its base type.
    assert_eq!(percent, Some(Percent(5)));
    let error = client
        .query_one::<Row>(format!("SELECT $1::{schema}.percent"), (Percent(500),))
        .await
        .expect_err("too much");
    assert_eq!(error.sqlstate(), Some("23514"));
}

#[tokio::test]
async fn types_created_after_connecting_work_at_once() {
    let (pool, other) = (pool().await, pool().await);
    all_shared(&pool).await;
    let schema = own_name("types");
    other.batch_execute(&create_types(&schema)).await.expect("types");
    use_types(&pool, &schema).await;
    let session = pool.session().await.expect("a session");
    use_types(&session, &schema).await;
    drop(session);
    // Dropped and created again, their numbers are new.
    other
        .batch_execute(&format!("DROP SCHEMA {schema} CASCADE; {}", create_types(&schema)))
        .await
        .expect("again");
    for _ in 0..8 {
        use_types(&pool, &schema).await;
    }
    other.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.expect("dropped");
    pool.close().await;
    other.close().await;
}

#[tokio::test]
async fn types_created_in_an_open_transaction_work_in_it_at_once() {
    let pool = pool_of(2).await;
    let schema = own_name("types_inside");
    let session = pool.session().await.expect("a session");
    session.batch_execute("BEGIN").await.expect("begun");
    session.batch_execute(&create_types(&schema)).await.expect("types");
    let (mood,): (Mood,) =
        session.query_one(format!("SELECT 'ok'::{schema}.mood"), ()).await.expect("an enum");
    assert_eq!(mood, Mood::Ok);
    session.batch_execute("SAVEPOINT s").await.expect("a savepoint");
    use_types_without_failing(&session, &schema).await;
    session.batch_execute("ROLLBACK").await.expect("undone");
    drop(session);
    let schema = own_name("types_inside");
    let tx = pool.begin().await.expect("a transaction");
    tx.batch_execute(&create_types(&schema)).await.expect("types");
    use_types_without_failing(&tx, &schema).await;
    tx.commit().await.expect("committed");
    use_types(&pool, &schema).await;
    pool.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.expect("dropped");
    pool.close().await;
}

async fn use_types_without_failing(client: &impl Client, schema: &str) {
    let item = Item { name: "tea".into(), mood: Mood::Sad, prices: vec![] };
    let (back, mood): (Vec<Item>, Mood) = client
        .query_one(format!("SELECT $1::{schema}.\"Item\"[], $2::{schema}.mood"), (vec![&item], Mood::Ok))
        .await
        .expect("types of this transaction");
    assert_eq!((back, mood), (vec![item], Mood::Ok));
}

#[tokio::test]
async fn a_type_that_could_not_be_looked_up_in_a_failed_transaction_is_looked_up_later() {
    let (pool, other) = (pool().await, pool().await);
    let schema = own_name("types_failed");
    other.batch_execute(&create_types(&schema)).await.expect("types");
    let sql = format!("SELECT $1::{schema}.mood");
    let session = pool.session().await.expect("a session");
    session.batch_execute("BEGIN").await.expect("begun");
    // The failure comes between learning the statement and looking its type up.
    let (learnt, failure) =
        tokio::join!(session.query_one::<(Mood,)>(&sql, (Mood::Ok,)), session.execute("SELECT 1/0", ()),);
    failure.expect_err("division by zero");
    drop(learnt);
    session.query_one::<(Mood,)>(&sql, (Mood::Ok,)).await.expect_err("the transaction has failed");
    session.batch_execute("ROLLBACK").await.expect("over");
    for client in 0..8 {
        let (mood,): (Mood,) =
            pool.query_one(&sql, (Mood::Ok,)).await.unwrap_or_else(|error| panic!("{client}: {error}"));
        assert_eq!(mood, Mood::Ok);
    }
    let (mood,): (Mood,) = session.query_one(&sql, (Mood::Sad,)).await.expect("and here");
    assert_eq!(mood, Mood::Sad);
    drop(session);
    other.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.expect("dropped");
    pool.close().await;
    other.close().await;
}
