//! Queries on MySQL: what goes in comes out, of every type, and what goes wrong is named.

use integration_tests::mysql::{config, drop_table, pool, table};
use integration_tests::own_name;
use mysql_pipeline::types::{Date, DateTime, Decimal, Time};
use mysql_pipeline::{
    CallOptions, Client, Connection, DatabaseError, ErrorKind, FromRow, Outcome, Pool, Row, Statement, params,
};

#[derive(Debug, PartialEq, FromRow)]
struct World {
    id: i32,
    #[from_row(rename = "randomnumber")]
    random_number: Option<i32>,
}

#[tokio::test]
async fn one_family_of_calls_serves_rows_tuples_and_structs() {
    let pool = pool().await;
    let sql = "SELECT CAST(? AS SIGNED) AS id, CAST(? AS SIGNED) AS randomnumber";
    let by_struct: World = pool.query_one(sql, (7, 8)).await.expect("a row");
    assert_eq!(by_struct, World { id: 7, random_number: Some(8) });
    let row: Row = pool.query_one(&Statement::new(sql), params![7, None::<i32>]).await.expect("a row");
    assert_eq!((row.get::<i64>("id"), row.get::<Option<i32>>(1)), (7, None));
    let none: Option<(i32,)> = pool.query_opt("SELECT 1 FROM DUAL WHERE ? = 2", (1,)).await.expect("no row");
    assert_eq!(none, None);
    let several: Vec<(i64,)> = pool.query("SELECT 1 UNION ALL SELECT 2", ()).await.expect("rows");
    assert_eq!(several, [(1,), (2,)]);
    let error = pool.query_one::<(i64,)>("SELECT 1 UNION ALL SELECT 2", ()).await.expect_err("two");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::RowCount, Outcome::Completed));
    pool.ping().await.expect("it answers");
    pool.close().await;
}

#[tokio::test]
async fn values_of_every_type_come_back_as_they_went() {
    let pool = pool().await;
    let table = table(
        &pool,
        "every_type",
        "id INT PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, s SMALLINT, m MEDIUMINT, mu MEDIUMINT UNSIGNED, \
         i INT, iu INT UNSIGNED, b BIGINT, bu BIGINT UNSIGNED, f FLOAT, d DOUBLE, n DECIMAL(65,30), y YEAR, \
         c VARCHAR(100), x TEXT, v VARBINARY(100), l LONGBLOB, e ENUM('a','b'), st SET('a','b'), j JSON, \
         bits BIT(12), da DATE, dt DATETIME(6), ts TIMESTAMP(3) NULL, ti TIME(6), bo BOOL",
    )
    .await;
    let date = Date { year: 2026, month: 11, day: 30 };
    let date_time = DateTime { date, hour: 23, minute: 59, second: 58, microsecond: 123_456 };
    let stamp = DateTime { microsecond: 123_000, ..date_time };
    let decimal: Decimal = "-12345678901234567890.000000000000000000000000000001".parse().expect("a number");
    let insert = format!("INSERT INTO {table} VALUES ({})", ["?"; 27].join(","));
    let extremes: [(i32, i64, u64, Time); 2] = [
        (1, i64::MIN, u64::MAX, Time::MAX),
        (2, i64::MAX, 0, Time::from_microseconds(-Time::MAX.as_microseconds()).expect("in range")),
    ];
    for (id, signed, unsigned, time) in extremes {
        let low = id == 1;
        let values = params![
            id,
            if low { i8::MIN } else { i8::MAX },
            if low { u8::MAX } else { 0 },
            if low { i16::MIN } else { i16::MAX },
            if low { -8_388_608 } else { 8_388_607 },
            if low { 16_777_215 } else { 0 },
            if low { i32::MIN } else { i32::MAX },
            if low { u32::MAX } else { 0 },
            signed,
            unsigned,
            0.1_f32,
            0.1_f64,
            decimal,
            1901_u16,
            "é𝄞",
            "text",
            &[0_u8, 255][..],
            vec![1_u8; 300],
            "b",
            "a,b",
            r#"{"k": [1, null]}"#,
            0xABC_u16,
            date,
            date_time,
            stamp,
            time,
            low
        ];
        let done = pool.execute(&insert, values).await.expect("inserted");
        assert_eq!(done.rows_affected(), 1);
    }
    for (id, signed, unsigned, time) in extremes {
        let low = id == 1;
        let row: Row =
            pool.query_one(format!("SELECT * FROM {table} WHERE id = ?"), (id,)).await.expect("a row");
        assert_eq!(row.get::<i8>("t"), if low { i8::MIN } else { i8::MAX });
        assert_eq!(row.get::<u8>("tu"), if low { u8::MAX } else { 0 });
        assert_eq!(row.get::<i16>("s"), if low { i16::MIN } else { i16::MAX });
        assert_eq!(row.get::<i32>("m"), if low { -8_388_608 } else { 8_388_607 });
        assert_eq!(row.get::<u32>("mu"), if low { 16_777_215 } else { 0 });
        assert_eq!(row.get::<i32>("i"), if low { i32::MIN } else { i32::MAX });
        assert_eq!(row.get::<u32>("iu"), if low { u32::MAX } else { 0 });
        assert_eq!((row.get::<i64>("b"), row.get::<u64>("bu")), (signed, unsigned));
        assert_eq!(row.get::<f32>("f").to_bits(), 0.1_f32.to_bits());
        assert_eq!(row.get::<f64>("d").to_bits(), 0.1_f64.to_bits());
        assert_eq!(row.get::<Decimal>("n"), decimal);
        assert_eq!(row.get::<u16>("y"), 1901);
        assert_eq!((row.get::<String>("c"), row.get::<&str>("x")), ("é𝄞".to_owned(), "text"));
        assert_eq!(row.get::<&[u8]>("v"), [0, 255]);
        assert_eq!(row.get::<Vec<u8>>("l"), [1; 300]);
        assert_eq!((row.get::<&str>("e"), row.get::<&str>("st")), ("b", "a,b"));
        assert_eq!(row.get::<&str>("j"), r#"{"k": [1, null]}"#);
        assert_eq!(row.get::<u16>("bits"), 0xABC);
        assert_eq!((row.get::<Date>("da"), row.get::<DateTime>("dt")), (date, date_time));
        assert_eq!((row.get::<DateTime>("ts"), row.get::<Time>("ti")), (stamp, time));
        assert_eq!(row.get::<bool>("bo"), low);
    }
    let (sum,): (i64,) = pool.query_one(format!("SELECT SUM(id) FROM {table}"), ()).await.expect("a sum");
    assert_eq!(sum, 3);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn zero_dates_and_unknown_types_are_values_too() {
    let pool = pool().await;
    let session = pool.session().await.expect("a session");
    session.execute("SET sql_mode = ''", ()).await.expect("set");
    session
        .batch_execute("CREATE TEMPORARY TABLE z (d DATE, dt DATETIME, g GEOMETRY); INSERT INTO z VALUES ('0000-00-00', '2026-00-15 00:00:00', ST_GeomFromText('POINT(1 2)'))")
        .await
        .expect("a table");
    let (date, date_time, point): (Date, DateTime, Vec<u8>) =
        session.query_one("SELECT d, dt, g FROM z", ()).await.expect("a row");
    assert!(date.is_zero());
    assert_eq!((date_time.date.month, date_time.date.day), (0, 15));
    assert_eq!(point.len(), 25);
    drop(session);
    pool.close().await;
}

#[tokio::test]
async fn statements_tell_what_they_did() {
    let pool = pool().await;
    let table = table(&pool, "done", "id INT PRIMARY KEY AUTO_INCREMENT, n INT").await;
    let insert = format!("INSERT INTO {table} (n) VALUES (?), (?)");
    let first = pool.execute(&insert, (1, 2)).await.expect("inserted");
    assert_eq!((first.rows_affected(), first.last_insert_id()), (2, Some(1)));
    assert_eq!(first.info(), Some("Records: 2  Duplicates: 0  Warnings: 0"));
    // Found rows, not changed ones.
    let update = format!("UPDATE {table} SET n = 1 WHERE id <= 2");
    assert_eq!(pool.execute(&update, ()).await.expect("updated").rows_affected(), 2);
    assert_eq!(pool.execute(&update, ()).await.expect("updated").rows_affected(), 2);
    let warned = pool.execute("SELECT CAST('1x' AS SIGNED)", ()).await.expect("a warning");
    assert_eq!((warned.rows_affected(), warned.warnings(), warned.last_insert_id()), (1, 1, None));
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn what_the_server_refuses_is_told_with_number_and_state() {
    let pool = pool().await;
    let error = pool.query::<Row>("SELECT * FROM no_such_table", ()).await.expect_err("no table");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
    assert_eq!(
        (error.as_database().map(DatabaseError::number), error.sqlstate()),
        (Some(1146), Some("42S02"))
    );
    let wrong = pool.query::<Row>("SELECT ?", ()).await.expect_err("no parameters");
    assert_eq!((wrong.kind(), wrong.outcome()), (ErrorKind::Encode, Outcome::NotSent), "{wrong}");
    // A second statement in a text is not run.
    let two = pool.query::<Row>("SELECT 1; SELECT 2", ()).await.expect_err("two statements");
    assert_eq!(two.as_database().map(DatabaseError::number), Some(1064));
    let slow = pool.with(CallOptions::new().timeout(std::time::Duration::from_millis(50)));
    let late = slow.query::<Row>("SELECT SLEEP(0.5)", ()).await.expect_err("too slow");
    assert_eq!((late.kind(), late.outcome()), (ErrorKind::Timeout, Outcome::Unknown));
    pool.close().await;
}

#[tokio::test]
async fn statements_without_a_prepared_form_run_as_text() {
    let pool = pool().await;
    // 1295 on this server, as long as it has no prepared form.
    for sql in ["SHOW PROCESSLIST", "LOCK INSTANCE FOR BACKUP"] {
        let session = pool.session().await.expect("a session");
        for _ in 0..2 {
            session.query::<Row>(sql, ()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
    }
    pool.close().await;
}

#[tokio::test]
async fn a_schema_may_change_under_prepared_statements() {
    let pool = pool().await;
    let table = table(&pool, "changing", "a INT").await;
    pool.execute(format!("INSERT INTO {table} VALUES (1)"), ()).await.expect("inserted");
    let select = Statement::new(format!("SELECT * FROM {table}"));
    let ask = async |pool: &Pool| {
        let mut widths = Vec::new();
        for _ in 0..32 {
            let row: Row = pool.query_one(&select, ()).await.expect("a row");
            widths.push(row.len());
        }
        widths
    };
    assert_eq!(ask(&pool).await, [1; 32]);
    pool.execute(format!("ALTER TABLE {table} ADD b VARCHAR(10) DEFAULT 'x'"), ()).await.expect("altered");
    assert_eq!(ask(&pool).await, [2; 32]);
    drop_table(&pool, &table).await;
    pool.close().await;
}

#[tokio::test]
async fn procedures_give_their_rows() {
    let pool = pool().await;
    let name = own_name("proc");
    pool.execute(format!("CREATE PROCEDURE {name}(n INT) BEGIN SELECT n + 1 AS m; SELECT n + 2; END"), ())
        .await
        .expect("a procedure");
    let (m,): (i64,) = pool.query_one(format!("CALL {name}(?)"), (1,)).await.expect("a row");
    assert_eq!(m, 2);
    pool.execute(format!("DROP PROCEDURE {name}"), ()).await.expect("dropped");
    pool.close().await;
}

#[tokio::test]
async fn a_connection_of_its_own_and_a_checkout_pool() {
    async fn one(client: &impl Client) -> i64 {
        let (one,): (i64,) = client.query_one("SELECT 1", ()).await.expect("a row");
        one
    }
    let connection = Connection::connect(config().await).await.expect("a connection");
    assert_eq!(one(&connection).await, 1);
    connection.execute("SET @mine = 5", ()).await.expect("a session of its own");
    let (mine,): (i64,) = connection.query_one("SELECT @mine", ()).await.expect("a row");
    assert_eq!(mine, 5);
    connection.close().await;

    let manager = mysql_pipeline::deadpool::Manager::new(config().await);
    let pool = mysql_pipeline::deadpool::Pool::builder(manager).max_size(2).build().expect("a pool");
    let (a, b) = (pool.get().await.expect("one"), pool.get().await.expect("two"));
    assert_eq!(one(&*a).await + one(&*b).await, 2);
}
