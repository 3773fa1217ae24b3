//! Values there and back: each type as a parameter and in a row, at both ends of its range.

use super::side::types::{Date, DateTime, Decimal, Time};
use super::side::values::{self, Server};
use super::side::{Row, config, drop_table, params, pool, table};

#[tokio::test]
async fn each_type_comes_back_as_it_went_and_as_the_server_shows_it() {
    let pool = values::lenient(config().await).connect().await.expect("a pool");
    values::check(&pool, Server::MySql).await;
    pool.close().await;
}

#[tokio::test]
async fn each_type_of_mariadb_does_so_too() {
    let url = test_servers::mariadb().await.expect("a MariaDB server").url().to_owned();
    let pool = values::lenient(url.parse().expect("its URL")).connect().await.expect("a pool");
    values::check(&pool, Server::MariaDb).await;
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
