//! Bad input as only PostgreSQL sees it: parameters of the wrong type, NUL in texts, and errors with all their fields.

use super::bad_input::refused;
use super::side::{Config, ErrorKind, Outcome, Row, drop_table, pool, server};
use integration_tests::own_name;

#[tokio::test]
async fn a_server_that_refuses_names_the_user_and_no_password_shows() {
    let server = server().await.expect("a server");
    for (user, password) in [("scram_user", "hush-hush-7531"), ("no_such_user", "hush-hush-7531")] {
        let config: Config = server.url_for(user, password).parse().expect("a URL");
        let error = refused(config).await;
        assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Auth, Some("28P01")));
        assert!(
            error.to_string().contains(user) && !format!("{error} {error:?}").contains(password),
            "{error}"
        );
    }
    let error = refused(server.url_for("scram_user", "").parse().expect("a URL")).await;
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Auth, Outcome::NotSent));
    assert!(error.to_string().contains("set `password`"), "{error}");
    let error = refused(Config::new().host("/no/such/directory").user("u")).await;
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.to_string().contains("/no/such/directory"), "{error}");
}

#[tokio::test]
async fn parameters_of_the_wrong_type_and_nul_are_refused() {
    let pool = pool().await;
    let sql = "SELECT $1::int4 + $2::int4";
    let error = pool.query::<Row>(sql, (1, "two")).await.expect_err("a wrong type");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(error.to_string().contains("$2 cannot be encoded as int4"), "{error}");
    assert!(!error.to_string().contains("two"), "no parameter shows: {error}");
    let error = pool.query::<Row>("SELECT $1::text", ("a\0b",)).await.expect_err("no NUL in a text");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
    assert!(error.to_string().contains("$1 contains a NUL"), "{error}");
    // In an array it is the server that finds it.
    let error = pool.query::<Row>("SELECT $1::text[]", (vec!["a\0b"],)).await.expect_err("nor in an array");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    for sql in ["SELECT '\0'", "\0"] {
        let error = pool.query::<Row>(sql, ()).await.expect_err("no NUL in a statement");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
        assert!(error.to_string().contains("NUL"), "{error}");
        let session = pool.session().await.expect("a session");
        let error = session.batch_execute(sql).await.expect_err("nor in a script");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
        session.batch_execute("SELECT 1").await.expect("works");
    }
    pool.close().await;
}

#[tokio::test]
async fn statements_that_the_server_refuses_carry_everything_that_it_says() {
    let pool = pool().await;
    let name = own_name("fields");
    pool.execute(format!("CREATE TABLE {name} (n int4 CONSTRAINT {name}_check CHECK (n > 0))"), ())
        .await
        .expect("a table");
    let error = pool.execute("SELEC 1", ()).await.expect_err("a slip");
    let said = error.as_database().expect("the server's error");
    assert_eq!((said.severity(), said.code(), said.position()), ("ERROR", "42601", Some(1)));
    let error = pool.execute(format!("INSERT INTO {name} VALUES ($1)"), (-5,)).await.expect_err("checked");
    let said = error.as_database().expect("the server's error");
    assert_eq!((said.table(), said.schema()), (Some(name.as_str()), Some("public")));
    assert_eq!(said.constraint(), Some(format!("{name}_check").as_str()));
    assert!(said.detail().is_some_and(|detail| detail.contains("-5")), "rows are quoted in the detail");
    assert!(!format!("{error} {error:?}").contains("-5"), "and nowhere else");
    assert!(said.routine().is_some() && said.file().is_some() && said.line().is_some());
    let error = pool.execute("SELECT * FROM no_such_table_at_all", ()).await.expect_err("no table");
    assert_eq!(error.sqlstate(), Some("42P01"));
    let error = pool.execute("SELECT 1/$1::int4", (0,)).await.expect_err("division");
    assert_eq!(
        (error.kind(), error.outcome(), error.sqlstate()),
        (ErrorKind::Database, Outcome::Failed, Some("22012"))
    );
    assert!(!error.is_retryable());
    // Several statements in one are for scripts.
    let error = pool.execute("SELECT 1; SELECT 2", ()).await.expect_err("two statements");
    assert_eq!(error.sqlstate(), Some("42601"));
    let error = pool.batch_execute("SELECT 1; SELECT 1/0").await.expect_err("division");
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Database, Some("22012")));
    drop_table(&pool, &name).await;
    pool.close().await;
}

#[tokio::test]
async fn empty_statements_are_no_errors() {
    let pool = pool().await;
    for sql in ["", ";", " \n ", "-- a comment", "/* */"] {
        assert_eq!(pool.execute(sql, ()).await.expect(sql).rows_affected(), 0);
        assert!(pool.query::<Row>(sql, ()).await.expect(sql).is_empty());
        assert!(pool.query_opt::<Row>(sql, ()).await.expect(sql).is_none());
        let error = pool.query_one::<Row>(sql, ()).await.expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::RowCount);
        pool.batch_execute(sql).await.expect(sql);
    }
    pool.close().await;
}
