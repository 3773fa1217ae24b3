//! Values of every type, there and back: as a parameter and from the server's own text, and what the server makes of them
//! as text. Run on MySQL and on MariaDB, in the binary protocol and in text.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mysql_pipeline::types::{Date, DateTime, Decimal, FromSql, Json, Time, ToSql};
use mysql_pipeline::{Config, Pool, PoolBuilder};

use super::{drop_table, table};

/// Which server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// MySQL.
    MySql,
    /// MariaDB.
    MariaDb,
}

/// A pool whose sessions take zero dates.
pub fn lenient(config: Config) -> PoolBuilder {
    Pool::builder(config).connections(2).setup(["SET sql_mode = 'NO_ENGINE_SUBSTITUTION'"])
}

/// A column of one type, and rows with values.
struct Column<'a> {
    pool: &'a Pool,
    sql_type: &'a str,
    /// What makes text of `v`.
    shown: &'a str,
}

impl<'a> Column<'a> {
    fn new(pool: &'a Pool, sql_type: &'a str) -> Self {
        Self { pool, sql_type, shown: "CAST(v AS CHAR CHARACTER SET utf8mb4)" }
    }

    /// Each value as a parameter, and as an expression of the server's; it is the same value and has this text. With
    /// NULL besides.
    async fn holds<T>(&self, values: &[(T, &str, &str)])
    where
        T: ToSql + for<'v> FromSql<'v> + PartialEq + Debug + Sync + Send,
    {
        let Self { pool, sql_type, shown } = *self;
        let table = table(pool, "value", &format!("id INT PRIMARY KEY, v {sql_type} NULL")).await;
        for (id, (value, expression, _)) in (0_i32..).zip(values) {
            let insert = format!("INSERT INTO {table} VALUES (?, ?), (?, {expression})");
            let done = pool.execute(insert, (2 * id, value, 2 * id + 1)).await;
            done.unwrap_or_else(|error| panic!("{sql_type} {value:?}: {error:?}"));
        }
        pool.execute(format!("INSERT INTO {table} VALUES (-1, ?)"), (None::<T>,)).await.expect("a NULL");
        let rows: Vec<(i32, Option<T>, Option<String>)> = pool
            .query(format!("SELECT id, v, {shown} FROM {table} ORDER BY id"), ())
            .await
            .unwrap_or_else(|error| panic!("{sql_type}: {error:?}"));
        assert_eq!(rows.len(), 2 * values.len() + 1);
        for (id, value, text) in rows {
            match usize::try_from(id).ok().and_then(|id| values.get(id / 2)) {
                Some((expected, _, shown)) => {
                    assert_eq!(value.as_ref(), Some(expected), "{sql_type} {id}");
                    assert_eq!(text.as_deref(), Some(*shown), "{sql_type} {id}");
                }
                None => assert_eq!((value, text), (None, None), "{sql_type}"),
            }
        }
        drop_table(pool, &table).await;
    }

    /// Values of this type cannot be had as a `T`, and the error says so.
    async fn is_not<T>(&self, expression: &str, why: &str)
    where
        T: for<'v> FromSql<'v> + Debug,
    {
        let Self { pool, sql_type, .. } = *self;
        let table = table(pool, "value", &format!("v {sql_type}")).await;
        pool.execute(format!("INSERT INTO {table} VALUES ({expression})"), ()).await.expect("inserted");
        let error = pool.query_one::<(T,)>(format!("SELECT v FROM {table}"), ()).await.expect_err(sql_type);
        assert!(error.to_string().contains(why), "{sql_type}: {error}");
        drop_table(pool, &table).await;
    }
}

/// Everything below.
pub async fn check(pool: &Pool, server: Server) {
    numbers(pool).await;
    texts_and_bytes(pool, server).await;
    dates_and_times(pool).await;
    dates_of_other_crates(pool).await;
    documents(pool, server).await;
    numbers_of_other_crates(pool).await;
    special(pool, server).await;
}

async fn numbers(pool: &Pool) {
    let of = |sql_type| Column::new(pool, sql_type);
    of("TINYINT").holds(&[(i8::MIN, "-128", "-128"), (0, "0", "0"), (i8::MAX, "127", "127")]).await;
    of("TINYINT UNSIGNED").holds(&[(0_u8, "0", "0"), (u8::MAX, "255", "255")]).await;
    of("BOOL").holds(&[(true, "TRUE", "1"), (false, "FALSE", "0")]).await;
    of("SMALLINT").holds(&[(i16::MIN, "-32768", "-32768"), (i16::MAX, "32767", "32767")]).await;
    of("SMALLINT UNSIGNED").holds(&[(u16::MAX, "65535", "65535")]).await;
    of("MEDIUMINT").holds(&[(-8_388_608, "-8388608", "-8388608"), (8_388_607, "8388607", "8388607")]).await;
    of("MEDIUMINT UNSIGNED").holds(&[(16_777_215_u32, "16777215", "16777215")]).await;
    of("INT")
        .holds(&[(i32::MIN, "-2147483648", "-2147483648"), (i32::MAX, "2147483647", "2147483647")])
        .await;
    of("INT UNSIGNED").holds(&[(u32::MAX, "4294967295", "4294967295")]).await;
    of("INT(5) ZEROFILL").holds(&[(42_u32, "42", "00042")]).await;
    let (least, most) = ("-9223372036854775808", "9223372036854775807");
    of("BIGINT").holds(&[(i64::MIN, least, least), (i64::MAX, most, most)]).await;
    let most = "18446744073709551615";
    of("BIGINT UNSIGNED").holds(&[(u64::MAX, most, most), (0, "0", "0")]).await;
    of("BIGINT UNSIGNED").holds(&[(i128::from(u64::MAX), most, most)]).await;
    of("YEAR").holds(&[(1901_u16, "1901", "1901"), (2155, "2155", "2155"), (0, "0", "0000")]).await;
    // Six digits, which is what a FLOAT has as text.
    of("FLOAT").holds(&[(0.0_f32, "0", "0"), (-1.5, "-1.5", "-1.5"), (1e10, "1e10", "10000000000")]).await;
    of("DOUBLE")
        .holds(&[
            (0.1_f64, "0.1", "0.1"),
            (f64::MAX, "1.7976931348623157e308", "1.7976931348623157e308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308", "2.2250738585072014e-308"),
            (-0.25, "-0.25", "-0.25"),
        ])
        .await;
    let decimal = |text: &str| text.parse::<Decimal>().expect("a number");
    let long = "-12345678901234567890123456789012345.123456789012345678901234567890";
    of("DECIMAL(65,30)").holds(&[(decimal(long), long, long)]).await;
    let largest = "9".repeat(65);
    of("DECIMAL(65,0)").holds(&[(decimal(&largest), &largest, &largest)]).await;
    of("DECIMAL(65,0)").holds(&[(i128::MAX, &i128::MAX.to_string(), &i128::MAX.to_string())]).await;
    // Whole ones are integers, as far as they fit; others are not cut.
    of("DECIMAL(20,0)")
        .holds(&[(-42_i64, "-42", "-42"), (i64::MAX, "9223372036854775807", "9223372036854775807")])
        .await;
    of("DECIMAL(20,0)").holds(&[(u64::MAX, most, most)]).await;
    of("DECIMAL(5,1)").is_not::<i64>("4.2", "invalid digit").await;
    of("DECIMAL(20,0)").is_not::<i32>("2147483648", "too large").await;
    of("BIGINT").is_not::<u8>("256", "out of range").await;
    of("INT").is_not::<String>("1", "INT is not converted to").await;
    let bits = |shown| Column { shown, ..of("BIT(12)") };
    bits("CAST(v + 0 AS CHAR)").holds(&[(0xABC_u16, "b'101010111100'", "2748"), (0, "0", "0")]).await;
    let bits = Column { shown: "CAST(v + 0 AS CHAR)", ..of("BIT(64)") };
    bits.holds(&[(u64::MAX, "18446744073709551615", most)]).await;
    let bit = Column { shown: "CAST(v + 0 AS CHAR)", ..of("BIT(1)") };
    bit.holds(&[(true, "1", "1"), (false, "0", "0")]).await;
}

async fn texts_and_bytes(pool: &Pool, server: Server) {
    let of = |sql_type| Column::new(pool, sql_type);
    let text = |text: &str| text.to_owned();
    let long = "é𝄞x".repeat(20_000);
    for sql_type in
        ["TEXT", "MEDIUMTEXT", "LONGTEXT", "VARCHAR(200)", "CHAR(200)", "VARCHAR(200) COLLATE utf8mb4_bin"]
    {
        let values = [
            (text("é𝄞"), "'é𝄞'", "é𝄞"),
            (text(""), "''", ""),
            (text("it's \\ \""), "CONCAT('it''s ', CHAR(92 USING utf8mb4), ' \"')", "it's \\ \""),
        ];
        of(sql_type).holds(&values).await;
    }
    of("LONGTEXT").holds(&[(long.clone(), &format!("'{long}'"), &long)]).await;
    of("TINYTEXT").holds(&[(text("ß"), "'ß'", "ß")]).await;
    // Whatever a column's character set is, texts come as UTF-8.
    for charset in
        ["latin1", "latin2", "cp1250", "utf8mb3", "ucs2", "utf16", "utf16le", "utf32", "gbk", "sjis"]
    {
        let (value, quoted) =
            if matches!(charset, "gbk" | "sjis") { ("中", "'中'") } else { ("äé", "'äé'") };
        let sql_type = format!("VARCHAR(20) CHARACTER SET {charset}");
        Column::new(pool, &sql_type).holds(&[(text(value), quoted, value)]).await;
    }
    // Collations whose numbers need two bytes.
    let collations: &[&str] = match server {
        Server::MySql => {
            &["utf8mb4_0900_ai_ci", "utf8mb4_ja_0900_as_cs", "utf8mb4_zh_0900_as_cs", "utf8mb4_sv_0900_as_cs"]
        }
        Server::MariaDb => {
            &["utf8mb4_uca1400_ai_ci", "utf8mb4_uca1400_swedish_nopad_as_cs", "utf8mb4_uca1400_german2_as_ci"]
        }
    };
    for collation in collations {
        Column::new(pool, &format!("VARCHAR(20) COLLATE {collation}"))
            .holds(&[(text("é𝄞"), "'é𝄞'", "é𝄞")])
            .await;
    }
    of("ENUM('a','ü')").holds(&[(text("ü"), "2", "ü"), (text("a"), "'a'", "a")]).await;
    of("SET('a','b')").holds(&[(text("a,b"), "3", "a,b"), (text(""), "''", "")]).await;
    for (sql_type, name) in
        [("ENUM('a')", "ENUM"), ("SET('a')", "SET"), ("CHAR(1)", "CHAR"), ("BINARY(1)", "BINARY")]
    {
        let table = table(pool, "value", &format!("v {sql_type}")).await;
        pool.execute(format!("INSERT INTO {table} VALUES ('a')"), ()).await.expect("inserted");
        let row: super::Row = pool.query_one(format!("SELECT v FROM {table}"), ()).await.expect("a row");
        assert_eq!(row.columns()[0].type_().name(), name);
        drop_table(pool, &table).await;
    }
    let bytes: Vec<u8> = (0..=255).collect();
    let hex = bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02X}"));
    for sql_type in ["BLOB", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB", "VARBINARY(256)"] {
        let size = if sql_type == "TINYBLOB" { 255 } else { 256 };
        let column = Column { shown: "HEX(v)", ..of(sql_type) };
        let hex = &hex[..2 * size];
        column.holds(&[(bytes[..size].to_vec(), &format!("X'{hex}'"), hex), (Vec::new(), "''", "")]).await;
    }
    let column = Column { shown: "HEX(v)", ..of("BINARY(4)") };
    column.holds(&[(vec![1_u8, 0, 255, 0], "X'0100FF00'", "0100FF00")]).await;
    of("BLOB").is_not::<String>("X'FF'", "invalid utf-8").await;
}

async fn dates_and_times(pool: &Pool) {
    let of = |sql_type| Column::new(pool, sql_type);
    let date = |year, month, day| Date { year, month, day };
    let zero = DateTime::default();
    of("DATE")
        .holds(&[
            (date(2026, 11, 30), "'2026-11-30'", "2026-11-30"),
            (date(9999, 12, 31), "'9999-12-31'", "9999-12-31"),
            (date(1000, 1, 1), "'1000-01-01'", "1000-01-01"),
            (Date::default(), "'0000-00-00'", "0000-00-00"),
            (date(2026, 0, 15), "'2026-00-15'", "2026-00-15"),
            (date(2024, 2, 29), "'2024-02-29'", "2024-02-29"),
        ])
        .await;
    let at = |hour, minute, second, microsecond| DateTime {
        date: date(2026, 11, 30),
        hour,
        minute,
        second,
        microsecond,
    };
    of("DATETIME").holds(&[(at(23, 59, 58, 0), "'2026-11-30 23:59:58'", "2026-11-30 23:59:58")]).await;
    of("DATETIME").holds(&[(zero, "'0000-00-00 00:00:00'", "0000-00-00 00:00:00")]).await;
    of("DATETIME(6)")
        .holds(&[
            (at(23, 59, 58, 123_456), "'2026-11-30 23:59:58.123456'", "2026-11-30 23:59:58.123456"),
            (at(0, 0, 0, 1), "'2026-11-30 00:00:00.000001'", "2026-11-30 00:00:00.000001"),
            (at(0, 0, 0, 0), "'2026-11-30'", "2026-11-30 00:00:00.000000"),
        ])
        .await;
    of("TIMESTAMP(3)")
        .holds(&[(at(1, 2, 3, 450_000), "'2026-11-30 01:02:03.45'", "2026-11-30 01:02:03.450")])
        .await;
    let time = |microseconds| Time::from_microseconds(microseconds).expect("in range");
    of("TIME").holds(&[(Time::MAX, "'838:59:59'", "838:59:59"), (Time::default(), "0", "00:00:00")]).await;
    of("TIME(6)")
        .holds(&[
            (time(-Time::MAX.as_microseconds()), "'-838:59:59'", "-838:59:59.000000"),
            (time(-1), "'-00:00:00.000001'", "-00:00:00.000001"),
            (time(90_061_000_001), "'25:01:01.000001'", "25:01:01.000001"),
        ])
        .await;
    of("TIME").holds(&[(Duration::from_secs(90_061), "'25:01:01'", "25:01:01")]).await;
    of("TIME").is_not::<Duration>("'-00:00:01'", "below zero").await;
    let moment = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    of("TIMESTAMP").holds(&[(moment(1_700_000_000), "'2023-11-14 22:13:20'", "2023-11-14 22:13:20")]).await;
    let before = UNIX_EPOCH - Duration::from_micros(1);
    of("DATETIME(6)").holds(&[(before, "'1969-12-31 23:59:59.999999'", "1969-12-31 23:59:59.999999")]).await;
    of("DATETIME").is_not::<SystemTime>("'0000-00-00'", "NULLIF").await;
    let error =
        pool.execute("DO ?", (UNIX_EPOCH + Duration::from_secs(1 << 40),)).await.expect_err("year 36812");
    assert!(error.to_string().contains("years from 0 to 9999"), "{error}");
    let error = pool.execute("DO ?", (Duration::from_secs(839 * 3600),)).await.expect_err("839 hours");
    assert!(error.to_string().contains("838:59:59"), "{error}");
}

async fn dates_of_other_crates(pool: &Pool) {
    use chrono::{NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Utc};
    let of = |sql_type| Column::new(pool, sql_type);
    let (date_text, text) = ("2026-11-30", "2026-11-30 23:59:58.123456");
    let quoted = format!("'{text}'");
    let day = NaiveDate::from_ymd_opt(2026, 11, 30).expect("a day");
    let of_day = NaiveTime::from_hms_micro_opt(23, 59, 58, 123_456).expect("a time");
    of("DATE").holds(&[(day, "'2026-11-30'", date_text)]).await;
    of("DATETIME(6)").holds(&[(day.and_time(of_day), &quoted, text)]).await;
    of("TIMESTAMP(6)").holds(&[(day.and_time(of_day).and_utc(), &quoted, text)]).await;
    of("TIME(6)").holds(&[(of_day, "'23:59:58.123456'", "23:59:58.123456")]).await;
    of("TIME(6)")
        .holds(&[(TimeDelta::microseconds(-3_600_000_001), "'-01:00:00.000001'", "-01:00:00.000001")])
        .await;
    of("TIME").is_not::<NaiveTime>("'24:00:00'", "no time of day").await;
    of("DATE").is_not::<NaiveDate>("'2026-02-00'", "2026-02-00 is a day that no calendar has").await;
    of("DATETIME").is_not::<NaiveDateTime>("0", "0000-00-00").await;
    of("DATE").is_not::<chrono::DateTime<Utc>>("'2026-11-30'", "DATE is not converted").await;
    let far = NaiveDate::MAX;
    let error = pool.execute("DO ?", (far,)).await.expect_err("a far year");
    assert!(error.to_string().contains("years from 0 to 9999"), "{error}");

    let month = time::Month::November;
    let day = time::Date::from_calendar_date(2026, month, 30).expect("a day");
    let of_day = time::Time::from_hms_micro(23, 59, 58, 123_456).expect("a time");
    let primitive = time::PrimitiveDateTime::new(day, of_day);
    of("DATE").holds(&[(day, "'2026-11-30'", date_text)]).await;
    of("DATETIME(6)").holds(&[(primitive, &quoted, text)]).await;
    let east = time::UtcOffset::from_hms(2, 0, 0).expect("an offset");
    of("TIMESTAMP(6)").holds(&[(primitive.assume_utc(), &quoted, text)]).await;
    of("TIMESTAMP(6)").holds(&[(primitive.assume_utc().to_offset(east), &quoted, text)]).await;
    of("TIME(6)").holds(&[(of_day, "'23:59:58.123456'", "23:59:58.123456")]).await;
    of("TIME").holds(&[(time::Duration::hours(-838), "'-838:00:00'", "-838:00:00")]).await;
    of("TIME").is_not::<time::Time>("'-00:00:01'", "no time of day").await;
    of("DATE").is_not::<time::Date>("0", "0000-00-00").await;
}

async fn documents(pool: &Pool, server: Server) {
    let of = |sql_type| Column::new(pool, sql_type);
    let value = serde_json::json!({"k": [1, null, "é𝄞", 1.5, true]});
    let text = match server {
        Server::MySql => r#"{"k": [1, null, "é𝄞", 1.5, true]}"#,
        // It keeps the text as it came.
        Server::MariaDb => r#"{"k":[1,null,"é𝄞",1.5,true]}"#,
    };
    let quoted = format!("'{text}'");
    of("JSON").holds(&[(value, &quoted, text)]).await;
    let typed = Json(BTreeMap::from([("k".to_owned(), vec![Some(1), None])]));
    let text = if server == Server::MySql { r#"{"k": [1, null]}"# } else { r#"{"k":[1,null]}"# };
    let quoted = format!("'{text}'");
    of("JSON").holds(&[(typed, &quoted, text)]).await;
    of("JSON").holds(&[(text.to_owned(), &quoted, text)]).await;
    of("JSON").is_not::<Json<Vec<i32>>>("'{}'", "invalid type").await;
    of("TEXT").is_not::<serde_json::Value>("'{'", "EOF").await;
}

async fn numbers_of_other_crates(pool: &Pool) {
    let of = |sql_type| Column::new(pool, sql_type);
    let text = "-1234567890123456789.123456789";
    of("DECIMAL(40,9)")
        .holds(&[(text.parse::<rust_decimal::Decimal>().expect("a number"), text, text)])
        .await;
    of("DECIMAL(40,9)").is_not::<rust_decimal::Decimal>("1234567890123456789012345678901.5", "").await;
    let text = "-12345678901234567890123456789012345.123456789012345678901234567890";
    of("DECIMAL(65,30)")
        .holds(&[(text.parse::<bigdecimal::BigDecimal>().expect("a number"), text, text)])
        .await;
    let small = "0.000000000000000000000000000001";
    of("DECIMAL(65,30)")
        .holds(&[(small.parse::<bigdecimal::BigDecimal>().expect("a number"), small, small)])
        .await;
}

async fn special(pool: &Pool, server: Server) {
    let of = |sql_type| Column::new(pool, sql_type);
    let id = uuid::Uuid::from_u128(0x0123_4567_89AB_4CDE_8F01_2345_6789_ABCD);
    let (hyphenated, simple) = ("01234567-89ab-4cde-8f01-23456789abcd", "0123456789ab4cde8f0123456789abcd");
    let column = Column { shown: "LOWER(HEX(v))", ..of("BINARY(16)") };
    column.holds(&[(id, &format!("X'{simple}'"), simple)]).await;
    of("CHAR(36)").holds(&[(id.hyphenated(), &format!("'{hyphenated}'"), hyphenated)]).await;
    of("CHAR(32)").holds(&[(id.simple(), &format!("'{simple}'"), simple)]).await;
    of("CHAR(36)").is_not::<uuid::Uuid>("'x'", "UUID").await;
    let v6: Ipv6Addr = "2001:db8::ff00:42:8329".parse().expect("an address");
    let bytes = Column { shown: "INET6_NTOA(v)", ..of("VARBINARY(16)") };
    bytes.is_not::<Ipv4Addr>("INET6_ATON('::1')", "not converted").await;
    let table = table(pool, "value", "v VARBINARY(16)").await;
    pool.execute(
        format!("INSERT INTO {table} VALUES (INET6_ATON(?)), (INET6_ATON(?))"),
        (v6, Ipv4Addr::LOCALHOST),
    )
    .await
    .expect("inserted");
    let back: Vec<(IpAddr,)> =
        pool.query(format!("SELECT v FROM {table} ORDER BY LENGTH(v)"), ()).await.expect("rows");
    assert_eq!(back, [(IpAddr::from(Ipv4Addr::LOCALHOST),), (IpAddr::from(v6),)]);
    drop_table(pool, &table).await;
    of("VARCHAR(45)")
        .holds(&[(IpAddr::from(v6), "'2001:db8::ff00:42:8329'", "2001:db8::ff00:42:8329")])
        .await;
    let point: Vec<u8> =
        [&[0_u8; 4][..], &[1, 1, 0, 0, 0], &1.5_f64.to_le_bytes(), &(-2.0_f64).to_le_bytes()].concat();
    let column = Column { shown: "ST_AsText(v)", ..of("GEOMETRY") };
    column.holds(&[(point, "ST_GeomFromText('POINT(1.5 -2)')", "POINT(1.5 -2)")]).await;
    let floats = vec![1.5_f32, -2.0, f32::MIN_POSITIVE];
    let hex = floats
        .iter()
        .flat_map(|float| float.to_le_bytes())
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02X}"));
    let column = Column { shown: "HEX(v)", ..of("VECTOR(3)") };
    column.holds(&[(floats, &format!("X'{hex}'"), &hex)]).await;
    if server == Server::MariaDb {
        of("UUID").holds(&[(id.hyphenated(), &format!("'{hyphenated}'"), hyphenated)]).await;
        of("UUID").holds(&[(hyphenated.to_owned(), &format!("'{hyphenated}'"), hyphenated)]).await;
        of("INET6").holds(&[(v6, "'2001:db8::ff00:42:8329'", "2001:db8::ff00:42:8329")]).await;
        of("INET4").holds(&[(Ipv4Addr::new(192, 0, 2, 1), "'192.0.2.1'", "192.0.2.1")]).await;
        of("INET6").is_not::<Ipv4Addr>("'::1'", "not converted").await;
    }
}
