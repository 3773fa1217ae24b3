//! Values and rows from bytes, whole, broken and hostile.

use wire_pipeline::row::Rows as _;

use super::*;
use crate::error::ErrorKind;

fn array(dimensions: u32, length: u32, body: &[u8]) -> Vec<u8> {
    let mut raw = Vec::new();
    for word in [dimensions, 0, 23, length, 1] {
        raw.extend_from_slice(&word.to_be_bytes());
    }
    raw.extend_from_slice(body);
    raw
}

fn custom(name: &str, kind: Kind) -> Type {
    Type::new(name.to_owned(), 100_000, kind, "public".to_owned())
}

#[test]
fn a_value_has_the_bytes_for_the_elements_that_it_claims() {
    let ints = Type::INT4_ARRAY;
    let holds = |raw: &[u8]| has_what_it_claims(&ints, raw);
    assert!(holds(&array(1, 2, &[0; 16])));
    assert!(holds(&array(1, 2, &[255; 8])), "two NULLs");
    assert!(!holds(&array(1, 3, &[255; 8])));
    assert!(!holds(&array(1, u32::MAX, &[255; 8])));
    assert!(holds(&[0; 12]), "an empty array");
    let hstore = custom("hstore", Kind::Simple);
    assert!(has_what_it_claims(&hstore, b"\0\0\0\x01\0\0\0\x01a\xff\xff\xff\xff"));
    assert!(!has_what_it_claims(&hstore, b"\x7f\xff\xff\xff\0\0\0\x01a\xff\xff\xff\xff"));
}

#[test]
fn claims_inside_of_other_values_are_looked_at_too() {
    let hostile = array(1, 0x7fff_ffff, &[255; 8]);
    let domain = custom("numbers", Kind::Domain(Type::INT4_ARRAY));
    assert!(!has_what_it_claims(&domain, &hostile));
    let fields = vec![postgres_types::Field::new("n".to_owned(), Type::INT4_ARRAY)];
    let pair = custom("pair", Kind::Composite(fields));
    let within = |raw: &[u8]| {
        [&[0, 0, 0, 1, 0, 0, 3, 0xef], &u32::try_from(raw.len()).unwrap().to_be_bytes()[..], raw].concat()
    };
    assert!(!has_what_it_claims(&pair, &within(&hostile)));
    assert!(has_what_it_claims(&pair, &within(&array(1, 2, &[255; 8]))));
    let pairs = custom("_pair", Kind::Array(pair));
    let element = within(&hostile);
    let length = u32::try_from(element.len()).unwrap().to_be_bytes();
    assert!(!has_what_it_claims(&pairs, &array(1, 1, &[&length, &element[..]].concat())));
}

/// Decodes the row's first column as each of the types, and forgets what comes of it.
macro_rules! decode_all {
    ($row:ident: $($type:ty),+ $(,)?) => {
        $(
            let _ = $row.try_get::<$type>(0);
            let _ = $row.try_get::<Option<Vec<$type>>>(0);
            let _ = $row.try_get::<Vec<Option<$type>>>(0);
        )+
    };
}

#[test]
fn no_bytes_of_any_type_take_the_task_down_or_memory_that_they_only_announce() {
    // Panics of decoders are expected here and caught: their messages are of no interest.
    let (hook, here) = (std::panic::take_hook(), std::thread::current().id());
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() != here {
            hook(info);
        }
    }));
    let mut types: Vec<Type> = (1..20_000).filter_map(Type::from_oid).collect();
    assert!(types.len() > 150, "{}", types.len());
    types.push(custom("hstore", Kind::Simple));
    types.push(custom("numbers", Kind::Domain(Type::INT4_ARRAY)));
    types.push(custom("mood", Kind::Enum(vec!["ok".to_owned()])));
    let mut state = 0x5eed_u64;
    let mut random = move |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % limit
    };
    for r#type in types {
        for _ in 0..40 {
            let mut value: Vec<u8> = (0..random(40)).map(|_| random(256) as u8).collect();
            if random(2) == 0 {
                // Small numbers and huge ones, where counts and lengths are.
                for word in value.chunks_exact_mut(4) {
                    let choice = [0, 1, 2, 0x7fff_ffff, 0x8000_0000, u32::MAX][random(6) as usize];
                    word.copy_from_slice(&choice.to_be_bytes());
                }
            }
            let row = row(r#type.clone(), &value);
            decode_all!(row: bool, i8, i16, i32, i64, u32, f32, f64, String, &str, Vec<u8>, &[u8], Box<str>,
                std::time::SystemTime, std::net::IpAddr,
                std::collections::HashMap<String, Option<String>>);
        }
    }
    drop(std::panic::take_hook());
}

#[test]
fn no_bytes_of_a_row_are_read_beyond_it() {
    let columns: Arc<[Column]> =
        vec![Column::new("a".into(), Type::INT4), Column::new("b".into(), Type::TEXT)].into();
    let whole = b"D\0\0\0\x13\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x01x";
    let read = |bytes: &[u8]| {
        let budget = wire_pipeline::answer::Budget::new(1 << 20, 1 << 20);
        let mut collector = wire_pipeline::answer::Collector::new(&budget);
        collector.push(bytes);
        let chunks = collector.finish().expect("small");
        let mut rows = Rows::new(Arc::clone(&columns), chunks);
        let mut seen = Vec::new();
        while let Some(row) = rows.next()? {
            seen.push((row.try_get::<Option<i32>>(0).ok(), row.try_get::<Option<String>>(1).ok()));
        }
        Ok::<_, Fault>(seen)
    };
    assert_eq!(read(whole).expect("a row"), [(Some(Some(7)), Some(Some("x".to_owned())))]);
    for end in 1..whole.len() {
        let error = read(&whole[..end]).expect_err("cut off");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Protocol, Outcome::Completed), "{end}");
    }
    for changed in 0..8 * whole.len() {
        let mut bytes = whole.to_vec();
        bytes[changed / 8] ^= 1 << (changed % 8);
        // Another value, or an error.
        if let Ok(rows) = read(&bytes) {
            assert_eq!(rows.len(), 1, "bit {changed}");
        }
    }
}

#[test]
fn an_infinite_time_is_no_system_time() {
    use std::time::SystemTime;
    let infinite = row(Type::TIMESTAMPTZ, &i64::MAX.to_be_bytes());
    for error in [
        infinite.try_get::<SystemTime>(0).map(drop).expect_err("refused"),
        infinite.try_get::<Option<SystemTime>>(0).map(drop).expect_err("refused"),
    ] {
        assert!(error.to_string().contains("infinite"), "{error}");
    }
    let special: postgres_types::Timestamp<SystemTime> = infinite.get(0);
    assert_eq!(special, postgres_types::Timestamp::PosInfinity);
    row(Type::TIMESTAMPTZ, &0_i64.to_be_bytes()).get::<SystemTime>(0);
}

fn row(r#type: Type, value: &[u8]) -> Row {
    Row {
        columns: vec![Column::new("c".into(), r#type)].into(),
        body: Bytes::copy_from_slice(value),
        fields: smallvec::smallvec![Some((0, value.len() as u32))],
    }
}

#[test]
fn a_decoder_that_panics_is_an_error() {
    #[derive(Debug)]
    struct Panics;
    impl<'a> FromSql<'a> for Panics {
        fn from_sql(_: &Type, _: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
            panic!("not today")
        }

        fn accepts(_: &Type) -> bool {
            true
        }
    }
    let error = row(Type::INT4, &[0; 4]).try_get::<Panics>(0).expect_err("caught");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Decode, Outcome::Completed));
}

#[test]
fn missing_columns_wrong_types_and_nulls_are_named() {
    let row = row(Type::INT4, &[0, 0, 0, 7]);
    assert_eq!(row.get::<i32>(0), 7);
    assert_eq!(row.get::<Option<i32>>("c"), Some(7));
    assert!(row.try_get::<i32>("d").expect_err("missing").to_string().contains("no column d"));
    assert!(row.try_get::<String>(0).expect_err("wrong").to_string().contains("column c of type int4"));
}
