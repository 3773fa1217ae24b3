//! Values there and back: each type as a parameter and in a row, alone and in arrays, and values that no Rust type can
//! hold.

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;
use std::time::{Duration, SystemTime};

use integration_tests::own_name;

use super::side::types::{
    Bits, Circle, FromSql, Interval, Kind, Line, LineSegment, Money, Multirange, Numeric, Path, Point,
    Polygon, Range, Rectangle, Timestamp, ToSql, Type,
};
use super::side::{ErrorKind, Outcome, Pool, Row, pool};

/// Sends each value as a parameter of the type, compares what comes back, and what the server makes of its text.
async fn round_trip<T>(pool: &Pool, sql_type: &str, values: &[(T, &str)])
where
    T: ToSql + for<'a> FromSql<'a> + PartialEq + Debug + Clone + Sync + Send,
{
    let there = format!("SELECT $1::{sql_type}");
    for (value, text) in values {
        let (back,): (T,) =
            pool.query_one(&there, (value,)).await.unwrap_or_else(|error| panic!("{sql_type}: {error}"));
        assert_eq!(&back, value, "{sql_type} there and back");
        let (from_text,): (T,) = pool
            .query_one(format!("SELECT {text}::{sql_type}"), ())
            .await
            .unwrap_or_else(|error| panic!("{sql_type} {text}: {error}"));
        assert_eq!(&from_text, value, "{sql_type} {text}");
        let (some,): (Option<T>,) = pool.query_one(&there, (Some(value),)).await.expect("an optional value");
        assert_eq!(some.as_ref(), Some(value));
    }
    let (none,): (Option<T>,) = pool.query_one(&there, (None::<T>,)).await.expect("a NULL");
    assert_eq!(none, None, "{sql_type}");
    // All of them in an array, with a NULL in between.
    let array: Vec<Option<T>> = values.iter().map(|(value, _)| Some(value.clone())).chain([None]).collect();
    let (back,): (Vec<Option<T>>,) = pool
        .query_one(format!("SELECT $1::{sql_type}[]"), (&array,))
        .await
        .unwrap_or_else(|error| panic!("{sql_type}[]: {error}"));
    assert_eq!(back, array, "{sql_type}[]");
    let (empty,): (Vec<T>,) =
        pool.query_one(format!("SELECT '{{}}'::{sql_type}[]"), ()).await.expect("an empty array");
    assert_eq!(empty, [], "{sql_type}[]");
}

#[tokio::test]
async fn numbers_and_truth() {
    let pool = pool().await;
    round_trip(&pool, "bool", &[(true, "'t'"), (false, "'f'")]).await;
    round_trip(&pool, "\"char\"", &[(65_i8, "'A'"), (0, "''")]).await;
    round_trip(&pool, "int2", &[(0_i16, "0"), (i16::MAX, "32767"), (i16::MIN, "'-32768'")]).await;
    round_trip(&pool, "int4", &[(0_i32, "0"), (i32::MAX, "2147483647"), (i32::MIN, "'-2147483648'")]).await;
    round_trip(
        &pool,
        "int8",
        &[(0_i64, "0"), (i64::MAX, "9223372036854775807"), (i64::MIN, "'-9223372036854775808'")],
    )
    .await;
    round_trip(&pool, "oid", &[(0_u32, "0"), (u32::MAX, "4294967295")]).await;
    let infinity = f32::INFINITY;
    round_trip(
        &pool,
        "float4",
        &[
            (0.0_f32, "0"),
            (1.5, "1.5"),
            (f32::MAX, "'3.4028235e38'"),
            (infinity, "'inf'"),
            (-infinity, "'-inf'"),
        ],
    )
    .await;
    let infinity = f64::INFINITY;
    round_trip(
        &pool,
        "float8",
        &[
            (0.1_f64, "0.1"),
            (f64::MIN_POSITIVE, "'2.2250738585072014e-308'"),
            (infinity, "'inf'"),
            (-infinity, "'-inf'"),
        ],
    )
    .await;
    let (nan, negative_zero): (f64, f64) =
        pool.query_one("SELECT $1::float8, $2::float8", (f64::NAN, -0.0_f64)).await.expect("special values");
    assert!(nan.is_nan() && negative_zero == 0.0 && negative_zero.is_sign_negative());
    let (nan,): (f32,) = pool.query_one("SELECT 'NaN'::float4", ()).await.expect("no number");
    assert!(nan.is_nan());
    pool.close().await;
}

#[tokio::test]
async fn texts_and_bytes() {
    let pool = pool().await;
    let long = "ä€😀".repeat(10_000);
    let texts: Vec<(String, String)> = ["", " ", "it''s", "Zeile\nund\tTab \\ \"", "ünï©ødé 😀", &long]
        .iter()
        .map(|text| (text.replace("''", "'"), format!("'{text}'")))
        .collect();
    let values: Vec<(String, &str)> =
        texts.iter().map(|(text, quoted)| (text.clone(), quoted.as_str())).collect();
    round_trip(&pool, "text", &values).await;
    round_trip(&pool, "varchar", &values).await;
    round_trip(&pool, "name", &values[..2]).await;
    round_trip(&pool, "bpchar", &[("ab".to_owned(), "'ab'"), ("ab ".to_owned(), "'ab '")]).await;
    let all: Vec<u8> = (0..=255).collect();
    let hex = all.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    round_trip(
        &pool,
        "bytea",
        &[
            (Vec::new(), "''"),
            (all.clone(), &format!("'\\x{hex}'")),
            (vec![0; 100_000], "repeat('\\000', 100000)"),
        ],
    )
    .await;
    // Borrowed where the row lives.
    let row: Row = pool.query_one("SELECT 'text'::text, $1::bytea", (&all[..],)).await.expect("a row");
    assert_eq!((row.get::<&str>(0), row.get::<&[u8]>(1)), ("text", &all[..]));
    pool.close().await;
}

#[tokio::test]
async fn points_in_time() {
    let pool = pool().await;
    let epoch = SystemTime::UNIX_EPOCH;
    let day = Duration::from_secs(86_400);
    for sql_type in ["timestamp", "timestamptz"] {
        let values = [
            (epoch, "'1970-01-01 00:00:00+00'"),
            (epoch + day * 10_957, "'2000-01-01 00:00:00+00'"),
            (epoch + Duration::from_micros(1_234_567_890_123_456), "'2009-02-13 23:31:30.123456+00'"),
            (epoch - day * 365, "'1969-01-01 00:00:00+00'"),
            (epoch - Duration::from_micros(1), "'1969-12-31 23:59:59.999999+00'"),
        ];
        round_trip(&pool, sql_type, &values).await;
    }
    pool.close().await;
}

#[tokio::test]
async fn times_that_no_rust_type_can_hold_are_errors_and_no_panics() {
    let pool = pool().await;
    for sql_type in ["timestamp", "timestamptz"] {
        for text in ["infinity", "-infinity", "4714-11-24 BC", "294276-12-31 23:59:59.999999"] {
            // Within what `SystemTime` can hold the value is right; beyond it an error says so.
            let row: Row = pool
                .query_one(
                    format!("SELECT '{text}'::{sql_type}, extract(year FROM '{text}'::{sql_type})::float8"),
                    (),
                )
                .await
                .expect("a row");
            let special: Timestamp<SystemTime> = row.get(0);
            match row.try_get::<SystemTime>(0) {
                Ok(time) => assert_eq!(special, Timestamp::Value(time), "{text}"),
                Err(error) => {
                    assert!(text.contains("infinity"), "{text}: {error}");
                    assert_eq!(
                        (error.kind(), error.outcome()),
                        (ErrorKind::Decode, Outcome::Completed),
                        "{text}"
                    );
                    assert!(error.to_string().contains("Timestamp<SystemTime>"), "{error}");
                }
            }
            assert_eq!(special == Timestamp::PosInfinity, text == "infinity");
            assert_eq!(special == Timestamp::NegInfinity, text == "-infinity");
            // The rest of the row, and the pool, are not concerned.
            row.get::<f64>(1);
        }
    }
    for text in ["infinity", "-infinity", "4714-11-24 BC"] {
        let row: Row = pool.query_one(format!("SELECT '{text}'::date, 7"), ()).await.expect("a row");
        row.try_get::<SystemTime>(0).expect_err("a date is no point in time");
        assert_eq!(row.get::<i32>(1), 7);
        let (special,): (Special,) =
            pool.query_one(format!("SELECT '{text}'::date"), ()).await.expect("a date");
        match text {
            "infinity" => assert_eq!(special, pg_pipeline::types::Date::PosInfinity),
            "-infinity" => assert_eq!(special, pg_pipeline::types::Date::NegInfinity),
            _ => assert_eq!(special, pg_pipeline::types::Date::Value(Days(-2_451_545))),
        }
    }
    let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 50);
    let sent = tokio::spawn({
        let pool = pool.clone();
        async move { pool.query_one::<Row>("SELECT $1::timestamptz", (far,)).await.map(drop) }
    });
    // Encoding is the caller's; whatever it makes of the value, the pool goes on.
    drop(sent.await);
    pool.query_one::<(i32,)>("SELECT 1", ()).await.expect("works");
    pool.close().await;
}

type Special = pg_pipeline::types::Date<Days>;

/// Days since 2000-01-01, as they travel.
#[derive(Debug, PartialEq)]
struct Days(i32);

impl<'a> FromSql<'a> for Days {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(i32::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(r#type: &Type) -> bool {
        *r#type == Type::DATE
    }
}

#[tokio::test]
async fn addresses_and_pairs() {
    let pool = pool().await;
    let values = [
        (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)), "'192.168.0.1'"),
        (IpAddr::V6(Ipv6Addr::LOCALHOST), "'::1'"),
    ];
    round_trip(&pool, "inet", &values).await;
    let extension = own_name("hstore");
    // Only where the server has the extension.
    if pool.execute(format!("CREATE SCHEMA {extension}"), ()).await.is_ok()
        && pool.execute(format!("CREATE EXTENSION hstore SCHEMA {extension}"), ()).await.is_ok()
    {
        let map: HashMap<String, Option<String>> =
            [("a".to_owned(), Some("1".to_owned())), ("b".to_owned(), None)].into();
        let (back,): (HashMap<String, Option<String>>,) = pool
            .query_one(format!("SELECT $1::{extension}.hstore"), (&map,))
            .await
            .expect("an extension's type");
        assert_eq!(back, map);
        pool.execute("DROP EXTENSION hstore", ()).await.expect("dropped");
    }
    pool.execute(format!("DROP SCHEMA {extension}"), ()).await.expect("dropped");
    pool.close().await;
}

#[tokio::test]
async fn arrays_of_other_shapes() {
    let pool = pool().await;
    let row: Row = pool
        .query_one("SELECT '{{1,2},{3,4}}'::int4[], '[5:6]={7,8}'::int4[], ARRAY[NULL, 'x']::text[]", ())
        .await
        .expect("a row");
    let error = row.try_get::<Vec<i32>>(0).expect_err("two dimensions do not fit into one");
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert_eq!(row.get::<Vec<i32>>(1), [7, 8]);
    assert_eq!(row.get::<Vec<Option<&str>>>(2), [None, Some("x")]);
    row.try_get::<Vec<String>>(2).expect_err("a NULL is no String");
    let numbers: Vec<i64> = (0..50_000).collect();
    let (back, count): (Vec<i64>, i32) =
        pool.query_one("SELECT $1::int8[], cardinality($1::int8[])", (&numbers,)).await.expect("many");
    assert_eq!((back, count), (numbers, 50_000));
    let (any,): (i64,) = pool
        .query_one("SELECT count(*) FROM generate_series(1, 10) n WHERE n = ANY($1)", (&[2, 3, 99][..],))
        .await
        .expect("ANY takes a slice");
    assert_eq!(any, 2);
    pool.close().await;
}

#[derive(Debug, Clone, PartialEq, ToSql, FromSql)]
#[postgres(name = "colour", rename_all = "snake_case")]
enum Colour {
    DarkRed,
    Blue,
}

#[derive(Debug, Clone, PartialEq, ToSql, FromSql)]
#[postgres(name = "pixel")]
struct Pixel {
    x: i32,
    y: Option<i32>,
    colour: Colour,
}

#[derive(Debug, Clone, PartialEq, ToSql, FromSql)]
#[postgres(name = "positive")]
struct Positive(i32);

/// A range of int4 as it travels: flags, then the bounds that are there, each with its length.
#[derive(Debug, PartialEq)]
struct Span(i32, i32);

impl<'a> FromSql<'a> for Span {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let bound = |at: usize| -> Result<i32, Box<dyn std::error::Error + Sync + Send>> {
            Ok(i32::from_be_bytes(raw.get(at..at + 4).ok_or("too short")?.try_into()?))
        };
        Ok(Self(bound(5)?, bound(13)?))
    }

    fn accepts(r#type: &Type) -> bool {
        matches!(r#type.kind(), Kind::Range(element) if *element == Type::INT4)
    }
}

#[tokio::test]
async fn types_of_the_databases_own() {
    let pool = pool().await;
    let schema = own_name("own");
    pool.batch_execute(&format!(
        "CREATE SCHEMA {schema};
         CREATE TYPE {schema}.colour AS ENUM ('dark_red', 'blue');
         CREATE TYPE {schema}.pixel AS (x int4, y int4, colour {schema}.colour);
         CREATE DOMAIN {schema}.positive AS int4 CHECK (VALUE > 0);
         CREATE DOMAIN {schema}.pixels AS {schema}.pixel[];
         CREATE TYPE {schema}.span AS RANGE (subtype = int4);
         CREATE TABLE {schema}.t (c {schema}.colour, p {schema}.pixel, ps {schema}.pixel[], d {schema}.positive, s {schema}.span)"
    ))
    .await
    .expect("types");
    round_trip(
        &pool,
        &format!("{schema}.colour"),
        &[(Colour::DarkRed, "'dark_red'"), (Colour::Blue, "'blue'")],
    )
    .await;
    let pixel = Pixel { x: 1, y: None, colour: Colour::Blue };
    round_trip(&pool, &format!("{schema}.pixel"), &[(pixel.clone(), "'(1,,blue)'")]).await;
    let done = pool
        .execute(
            format!("INSERT INTO {schema}.t VALUES ($1, $2, $3, $4, '[1,5)')"),
            (Colour::DarkRed, &pixel, vec![pixel.clone(), pixel.clone()], Positive(3)),
        )
        .await
        .expect("a row");
    assert_eq!(done.rows_affected(), 1);
    let (c, p, ps, d, s): (Colour, Pixel, Vec<Pixel>, i32, Span) =
        pool.query_one(format!("SELECT * FROM {schema}.t"), ()).await.expect("the row");
    assert_eq!((c, p, ps.len(), d, s), (Colour::DarkRed, pixel, 2, 3, Span(1, 5)));
    // What the row says of its columns.
    let row: Row =
        pool.query_one(format!("SELECT c, p, s, d, t FROM {schema}.t"), ()).await.expect("the row");
    let kinds: Vec<&Type> = row.columns().iter().map(pg_pipeline::Column::type_).collect();
    assert_eq!((kinds[0].name(), kinds[0].schema()), ("colour", schema.as_str()));
    assert!(matches!(kinds[0].kind(), Kind::Enum(labels) if labels == &["dark_red", "blue"]));
    assert!(
        matches!(kinds[1].kind(), Kind::Composite(fields) if fields.len() == 3 && fields[2].name() == "colour")
    );
    assert!(matches!(kinds[2].kind(), Kind::Range(_)));
    assert_eq!(kinds[3], &Type::INT4, "a domain is described as its base type");
    assert!(matches!(kinds[4].kind(), Kind::Composite(fields) if fields.len() == 5), "a table's row");
    let error = pool
        .execute(format!("INSERT INTO {schema}.t (d) VALUES ($1)"), (Positive(-1),))
        .await
        .expect_err("checked");
    assert_eq!(error.sqlstate(), Some("23514"));
    pool.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.expect("dropped");
    pool.close().await;
}

#[tokio::test]
async fn parameters_take_the_types_that_the_server_infers() {
    let pool = pool().await;
    let (sum,): (i32,) =
        pool.query_one("SELECT $1 + 1", (41,)).await.expect("inferred from the other operand");
    assert_eq!(sum, 42);
    let error = pool.query_one::<Row>("SELECT $1 + 1", (41_i64,)).await.expect_err("int4 was inferred");
    assert!(error.to_string().contains("$1 cannot be encoded as int4"), "{error}");
    let rows: Vec<(i32,)> = pool
        .query("SELECT generate_series(1, 10) LIMIT $1 OFFSET $2", (2_i64, 3_i64))
        .await
        .expect("LIMIT takes int8");
    assert_eq!(rows, [(4,), (5,)]);
    let (text,): (String,) = pool.query_one("SELECT $1", ("a",)).await.expect("text if nothing else is said");
    assert_eq!(text, "a");
    // One parameter, used twice.
    let (one, two): (i64, i64) =
        pool.query_one("SELECT $1::int8, $1", (3_i64,)).await.expect("once is enough");
    assert_eq!((one, two), (3, 3));
    let values: Vec<Box<dyn ToSql + Send + Sync>> = vec![Box::new(1), Box::new("b"), Box::new(None::<bool>)];
    let row: Row = pool.query_one("SELECT $1::int4, $2::text, $3::bool", values).await.expect("boxed");
    assert_eq!((row.get::<i32>(0), row.get::<&str>(1), row.get::<Option<bool>>(2)), (1, "b", None));
    pool.close().await;
}

/// Sends each value as a parameter of the type: it comes back, as it does from the server's own text, and has this text as
/// psql prints it.
async fn prints<T>(pool: &Pool, sql_type: &str, values: &[(T, &str)])
where
    T: ToSql + for<'a> FromSql<'a> + PartialEq + Debug + Sync + Send,
{
    for (value, text) in values {
        let sql = format!("SELECT $1::{sql_type}, $1::{sql_type}::text, $2::text::{sql_type}");
        let (back, shown, read): (T, String, T) = pool
            .query_one(sql, (value, text))
            .await
            .unwrap_or_else(|error| panic!("{sql_type} {text}: {error}"));
        assert_eq!((&back, shown.as_str(), &read), (value, *text, value), "{sql_type}");
    }
    let (none,): (Option<T>,) = pool.query_one(format!("SELECT NULL::{sql_type}"), ()).await.expect("a NULL");
    assert_eq!(none, None, "{sql_type}");
}

#[tokio::test]
async fn each_type_of_our_own_is_as_psql_prints_it() {
    let pool = pool().await;
    let numeric = |text: &str| text.parse::<Numeric>().expect(text);
    let long = format!("-{}.{}", "9".repeat(300), "1".repeat(200));
    let texts = [
        "0",
        "1",
        "-1",
        "0.0001",
        "-0.00000000000000000001",
        "10000",
        "99999999",
        "1.000",
        "0.00",
        "12345678901234567890.12345",
        "NaN",
        "Infinity",
        "-Infinity",
        &long,
    ];
    prints(&pool, "numeric", &texts.map(|text| (numeric(text), text))).await;
    prints(&pool, "numeric(10,2)", &[(numeric("12.50"), "12.50")]).await;
    let decimal = "-1234567890.0123456789".parse::<rust_decimal::Decimal>().expect("a number");
    prints(&pool, "numeric", &[(decimal, "-1234567890.0123456789")]).await;
    let interval = |months, days, microseconds| Interval { months, days, microseconds };
    prints(
        &pool,
        "interval",
        &[
            (interval(0, 0, 0), "00:00:00"),
            (interval(14, 3, 14_706_000_007), "1 year 2 mons 3 days 04:05:06.000007"),
            (interval(-1, 2, -1), "-1 mons +2 days -00:00:00.000001"),
            (interval(i32::MAX, 0, 0), "178956970 years 7 mons"),
        ],
    )
    .await;
    let infinite: Result<(Interval, Interval), _> =
        pool.query_one("SELECT 'infinity'::interval, '-infinity'::interval", ()).await;
    if let Ok(infinite) = infinite {
        assert_eq!(infinite, (Interval::INFINITY, Interval::NEG_INFINITY));
    }
    prints(
        &pool,
        "int4range",
        &[
            (Range::from(1..5), "[1,5)"),
            (Range::Empty, "empty"),
            ((..7).into(), "(,7)"),
            ((3..).into(), "[3,)"),
            ((..).into(), "(,)"),
        ],
    )
    .await;
    let (closed,): (Range<i32>,) =
        pool.query_one("SELECT $1::int4range", (Range::from(1..=4),)).await.expect("a range");
    assert_eq!(closed, Range::from(1..5), "the server's own form");
    let numrange = Range::Between(Bound::Excluded(numeric("1.5")), Bound::Included(numeric("2.25")));
    prints(&pool, "numrange", &[(numrange, "(1.5,2.25]")]).await;
    prints(
        &pool,
        "int8multirange",
        &[
            (Multirange(vec![(1_i64..3).into(), (7..).into()]), "{[1,3),[7,)}"),
            (Multirange(Vec::new()), "{}"),
        ],
    )
    .await;
    let name = own_name("span");
    let create =
        format!("CREATE TYPE {name} AS RANGE (subtype = float8, multirange_type_name = {name}_many)");
    pool.execute(create, ()).await.expect("a type");
    prints(&pool, &name, &[(Range::from(0.5..1.5), "[0.5,1.5)")]).await;
    prints(&pool, &format!("{name}_many"), &[(Multirange(vec![(0.5..1.5).into()]), "{[0.5,1.5)}")]).await;
    pool.execute(format!("DROP TYPE {name}"), ()).await.expect("dropped");
    let bits = |text: &str| text.parse::<Bits>().expect(text);
    prints(&pool, "varbit", &[(bits("10101"), "10101"), (bits(""), ""), (bits("1111000011"), "1111000011")])
        .await;
    prints(&pool, "bit(3)", &[(bits("101"), "101")]).await;
    let (money, cents): (Money, String) = pool
        .query_one("SELECT $1::money, (($1::money)::numeric * 100)::int8::text", (Money(-123_456),))
        .await
        .expect("money");
    assert_eq!((money, cents.as_str()), (Money(-123_456), "-123456"));
    let point = |x, y| Point { x, y };
    let (a, b) = (point(1.5, -2.0), point(0.25, -3.0));
    prints(&pool, "point", &[(a, "(1.5,-2)")]).await;
    prints(&pool, "line", &[(Line { a: 1.0, b: -1.0, c: 0.5 }, "{1,-1,0.5}")]).await;
    prints(&pool, "lseg", &[(LineSegment(a, b), "[(1.5,-2),(0.25,-3)]")]).await;
    prints(&pool, "box", &[(Rectangle(a, b), "(1.5,-2),(0.25,-3)")]).await;
    prints(
        &pool,
        "path",
        &[
            (Path { closed: true, points: vec![a, b] }, "((1.5,-2),(0.25,-3))"),
            (Path { closed: false, points: vec![a] }, "[(1.5,-2)]"),
        ],
    )
    .await;
    prints(&pool, "polygon", &[(Polygon(vec![a, b, a]), "((1.5,-2),(0.25,-3),(1.5,-2))")]).await;
    prints(&pool, "circle", &[(Circle { center: a, radius: 2.5 }, "<(1.5,-2),2.5>")]).await;
    pool.close().await;
}

#[tokio::test]
async fn types_of_other_crates_are_features_of_this_one() {
    let pool = pool().await;
    let id = uuid::Uuid::from_u128(0x0123_4567_89AB_4CDE_8F01_2345_6789_ABCD);
    prints(&pool, "uuid", &[(id, "01234567-89ab-4cde-8f01-23456789abcd")]).await;
    prints(&pool, "jsonb", &[(serde_json::json!({"k": [1, null]}), r#"{"k": [1, null]}"#)]).await;
    let day = chrono::NaiveDate::from_ymd_opt(2026, 11, 30).expect("a day");
    let time = chrono::NaiveTime::from_hms_micro_opt(23, 59, 58, 123_456).expect("a time");
    prints(&pool, "date", &[(day, "2026-11-30")]).await;
    prints(&pool, "timestamp", &[(day.and_time(time), "2026-11-30 23:59:58.123456")]).await;
    prints(&pool, "timestamptz", &[(day.and_time(time).and_utc(), "2026-11-30 23:59:58.123456+00")]).await;
    prints(&pool, "time", &[(time, "23:59:58.123456")]).await;
    let day = time::Date::from_calendar_date(2026, time::Month::November, 30).expect("a day");
    prints(&pool, "date", &[(day, "2026-11-30")]).await;
    pool.close().await;
}
