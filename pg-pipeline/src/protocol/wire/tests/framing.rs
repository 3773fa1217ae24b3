//! Requests on their way out, byte by byte.

use super::*;

/// `SELECT $1`, parsed as `pp1` with an int4, and described.
const PARSE_PP1: &[u8] = b"P\0\0\0\x18pp1\0SELECT $1\0\0\x01\0\0\0\x17D\0\0\0\x09Spp1\0";
/// `pp1` bound to the int4 7, in binary both ways, to the unnamed portal.
const BIND_PP1: &[u8] = b"B\0\0\0\x1b\0pp1\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01";
const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";
const SYNC: &[u8] = b"S\0\0\0\x04";

fn select() -> Arc<Learned> {
    learned("SELECT $1", &[Type::INT4])
}

#[test]
fn a_statement_is_parsed_described_bound_and_run_in_one_write_and_later_only_bound_and_run() {
    let select = select();
    let ask = move || vec![query(&select, &(7,))];
    Dialogue::new()
        .asks(ask.clone())
        .sends(&[PARSE_PP1, BIND_PP1, EXECUTE, SYNC])
        .says(&[PARSED, TAKES_INT4, GIVES_ID, BOUND, ROW_7, &complete("SELECT 1"), READY])
        .hears(["ran 1: id=Some(7)"])
        .asks(ask)
        .sends(&[BIND_PP1, EXECUTE, SYNC])
        .says(&[BOUND, ROW_7, ROW_7, &complete("SELECT 2"), READY])
        .hears(["ran 2: id=Some(7): id=Some(7)"])
        .check();
}

#[test]
fn what_is_framed_behind_a_parse_binds_at_once() {
    let select = select();
    Dialogue::new()
        .asks(move || vec![query(&select, &(7,)), query(&select, &(7,))])
        .sends(&[PARSE_PP1, BIND_PP1, EXECUTE, SYNC, BIND_PP1, EXECUTE, SYNC])
        .says(&[
            &[PARSED, TAKES_INT4, GIVES_ID, BOUND, ROW_7, &complete("SELECT 1"), READY].concat(),
            &[BOUND, ROW_7, &complete("SELECT 1"), READY].concat(),
        ])
        .hears(["ran 1: id=Some(7)", "ran 1: id=Some(7)"])
        .check();
}

#[test]
fn two_handles_of_the_same_text_share_what_is_prepared() {
    let (first, second) = (select(), select());
    Dialogue::new()
        .asks(move || vec![query(&first, &(7,)), query(&second, &(7,))])
        .sends(&[PARSE_PP1, BIND_PP1, EXECUTE, SYNC, BIND_PP1, EXECUTE, SYNC])
        .check();
}

#[test]
fn an_unknown_statement_is_parsed_without_types_and_then_bound_by_the_same_name() {
    let unknown = Learned::new(StatementKey::of("SELECT $1"));
    let then = Arc::clone(&unknown);
    Dialogue::new()
        .asks(move || vec![Request::learn(Arc::clone(&unknown))])
        .sends(&[b"P\0\0\0\x14pp1\0SELECT $1\0\0\0", b"D\0\0\0\x09Spp1\0", SYNC])
        .says(&[PARSED, TAKES_INT4, GIVES_ID, READY])
        .hears(["learnt [23]"])
        .asks(move || {
            then.learn([Type::INT4].into());
            vec![query(&then, &(7,))]
        })
        .sends(&[BIND_PP1, EXECUTE, SYNC])
        .says(&[BOUND, ROW_7, &complete("SELECT 1"), READY])
        .hears(["ran 1: id=Some(7)"])
        .check();
}

#[test]
fn what_was_evicted_is_closed_in_line_before_what_takes_its_place() {
    let (a, b) = (select(), learned("SELECT 'x'", &[]));
    let again = Arc::clone(&a);
    Dialogue::with_cache(1)
        .asks(move || vec![query(&a, &(7,)), query(&b, &())])
        .sends(&[
            &[PARSE_PP1, BIND_PP1, EXECUTE, SYNC].concat(),
            b"C\0\0\0\x09Spp1\0",
            b"P\0\0\0\x15pp2\0SELECT 'x'\0\0\0D\0\0\0\x09Spp2\0",
            b"B\0\0\0\x13\0pp2\0\0\x01\0\x01\0\0\0\x01\0\x01",
            EXECUTE,
            SYNC,
        ])
        .says(&[
            &[PARSED, TAKES_INT4, GIVES_ID, BOUND, ROW_7, &complete("SELECT 1"), READY].concat(),
            &[CLOSED, PARSED, TAKES_NOTHING, GIVES_NAME, BOUND, ROW_X, &complete("SELECT 1"), READY].concat(),
        ])
        .hears(["ran 1: id=Some(7)", "ran 1: name=Some(Some(\"x\"))"])
        .asks(move || vec![query(&again, &(7,))])
        .sends(&[
            b"C\0\0\0\x09Spp2\0",
            b"P\0\0\0\x18pp3\0SELECT $1\0\0\x01\0\0\0\x17D\0\0\0\x09Spp3\0",
            b"B\0\0\0\x1b\0pp3\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01",
            EXECUTE,
            SYNC,
        ])
        .says(&[CLOSED, PARSED, TAKES_INT4, GIVES_ID, BOUND, ROW_7, &complete("SELECT 1"), READY])
        .hears(["ran 1: id=Some(7)"])
        .check();
}

#[test]
fn without_a_cache_every_request_parses_the_unnamed_statement_and_nothing_comes_between() {
    let (a, b) = (select(), learned("SELECT 'x'", &[]));
    let first = [
        &b"P\0\0\0\x15\0SELECT $1\0\0\x01\0\0\0\x17D\0\0\0\x06S\0"[..],
        b"B\0\0\0\x18\0\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01",
        EXECUTE,
        SYNC,
    ]
    .concat();
    let second = [
        &b"P\0\0\0\x12\0SELECT 'x'\0\0\0D\0\0\0\x06S\0"[..],
        b"B\0\0\0\x10\0\0\0\x01\0\x01\0\0\0\x01\0\x01",
        EXECUTE,
        SYNC,
    ]
    .concat();
    let seven = [PARSED, TAKES_INT4, GIVES_ID, BOUND, ROW_7, &complete("SELECT 1"), READY].concat();
    let x = [PARSED, TAKES_NOTHING, GIVES_NAME, BOUND, ROW_X, &complete("SELECT 1"), READY].concat();
    Dialogue::with_cache(0)
        .asks(move || vec![query(&a, &(7,)), query(&b, &()), query(&a, &(7,))])
        .sends(&[&first, &second, &first])
        .says(&[&seven, &x, &seven])
        .hears(["ran 1: id=Some(7)", "ran 1: name=Some(Some(\"x\"))", "ran 1: id=Some(7)"])
        .check();
}

#[test]
fn a_batch_shares_one_sync_and_gives_one_count_per_statement() {
    let select = select();
    Dialogue::new()
        .asks(move || vec![Request::batch(vec![part(&select, &(7,)), part(&select, &(7,))])])
        .sends(&[PARSE_PP1, BIND_PP1, EXECUTE, BIND_PP1, EXECUTE, SYNC])
        .says(&[
            &[PARSED, TAKES_INT4, NO_DATA, BOUND, &complete("INSERT 0 2")].concat(),
            &[BOUND, &complete("UPDATE 3"), READY].concat(),
        ])
        .hears(["ran 2 3"])
        .check();
}

#[test]
fn a_batch_larger_than_the_cache_closes_in_line() {
    let (a, b) = (learned("a", &[]), learned("b", &[]));
    let bind = |id: &[u8]| [b"B\0\0\0\x13\0pp", id, b"\0\0\x01\0\x01\0\0\0\x01\0\x01", EXECUTE].concat();
    let done = [TAKES_NOTHING, NO_DATA, BOUND, &complete("UPDATE 1")].concat();
    Dialogue::with_cache(1)
        .asks(move || vec![Request::batch(vec![part(&a, &()), part(&b, &()), part(&a, &())])])
        .sends(&[
            &[b"P\0\0\0\x0cpp1\0a\0\0\0D\0\0\0\x09Spp1\0", &bind(b"1")[..]].concat(),
            &[b"C\0\0\0\x09Spp1\0P\0\0\0\x0cpp2\0b\0\0\0D\0\0\0\x09Spp2\0", &bind(b"2")[..]].concat(),
            &[b"C\0\0\0\x09Spp2\0P\0\0\0\x0cpp3\0a\0\0\0D\0\0\0\x09Spp3\0", &bind(b"3")[..]].concat(),
            SYNC,
        ])
        .says(&[PARSED, &done, CLOSED, PARSED, &done, CLOSED, PARSED, &done, READY])
        .hears(["ran 1 1 1"])
        .check();
}

#[test]
fn what_opens_a_transaction_shares_the_first_statements_sync_and_its_result_stays_out() {
    let select = select();
    Dialogue::new()
        .asks(move || vec![opened(query(&select, &(7,)))])
        .sends(&[
            b"P\0\0\0\x10pp1\0BEGIN\0\0\0D\0\0\0\x09Spp1\0",
            b"B\0\0\0\x13\0pp1\0\0\x01\0\x01\0\0\0\x01\0\x01",
            EXECUTE,
            b"P\0\0\0\x18pp2\0SELECT $1\0\0\x01\0\0\0\x17D\0\0\0\x09Spp2\0",
            b"B\0\0\0\x1b\0pp2\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01",
            EXECUTE,
            SYNC,
        ])
        .says(&[
            &[PARSED, TAKES_NOTHING, NO_DATA, BOUND, &complete("BEGIN")].concat(),
            &[PARSED, TAKES_INT4, GIVES_ID, BOUND, ROW_7, &complete("SELECT 1")].concat(),
            READY_IN_TRANSACTION,
        ])
        .hears(["ran 1: id=Some(7), in transaction"])
        .check();
}

#[test]
fn what_opens_a_transaction_goes_before_a_statement_that_is_asked_for_and_shares_its_sync() {
    let unknown = Learned::new(StatementKey::of("SELECT $1"));
    let then = Arc::clone(&unknown);
    Dialogue::new()
        .asks(move || vec![opened(Request::learn(Arc::clone(&unknown)))])
        .sends(&[
            b"P\0\0\0\x10pp1\0BEGIN\0\0\0D\0\0\0\x09Spp1\0",
            b"B\0\0\0\x13\0pp1\0\0\x01\0\x01\0\0\0\x01\0\x01",
            EXECUTE,
            b"P\0\0\0\x14pp2\0SELECT $1\0\0\0D\0\0\0\x09Spp2\0",
            SYNC,
        ])
        .says(&[
            &[PARSED, TAKES_NOTHING, NO_DATA, BOUND, &complete("BEGIN")].concat(),
            &[PARSED, TAKES_INT4, GIVES_ID, READY_IN_TRANSACTION].concat(),
        ])
        .hears(["learnt [23], in transaction"])
        .asks(move || {
            then.learn([Type::INT4].into());
            vec![query(&then, &(7,))]
        })
        .sends(&[b"B\0\0\0\x1b\0pp2\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01", EXECUTE, SYNC])
        .says(&[BOUND, ROW_7, &complete("SELECT 1"), READY_IN_TRANSACTION])
        .hears(["ran 1: id=Some(7), in transaction"])
        .check();
}

#[test]
fn a_script_is_one_simple_query_and_an_opening_stands_before_it() {
    Dialogue::new()
        .asks(|| vec![Request::script("SELECT 1; SELECT 2", false), opened(Request::script("a", false))])
        .sends(&[b"Q\0\0\0\x17SELECT 1; SELECT 2\0", b"Q\0\0\0\x0cBEGIN;a\0"])
        .says(&[
            &[GIVES_ID, ROW_7, &complete("SELECT 1"), GIVES_NAME, ROW_X, &complete("SELECT 1"), READY]
                .concat(),
            &[&complete("BEGIN")[..], &complete("UPDATE 1"), READY_IN_TRANSACTION].concat(),
        ])
        .hears(["script", "script, in transaction"])
        .check();
}

#[test]
fn a_script_that_cannot_travel_is_refused_and_nothing_is_written() {
    let mut line = Line::new(64);
    let mut out = Out::default();
    let framed = line.wire.frame(&mut Request::script("SELECT '\0'", false), &mut out);
    assert!(matches!(framed, Framed::Refused(error) if error.to_string().contains("NUL")));
    assert!(out.is_empty());
}

#[test]
fn a_large_value_keeps_its_place_in_its_bind() {
    let insert = learned("i", &[Type::BYTEA]);
    let mut line = Line::new(64);
    let sent = line.send(vec![query(&insert, &(vec![7_u8; 100_000],))]);
    let bind = sent.iter().position(|byte| *byte == b'B').expect("a Bind");
    let length = sent.get(bind + 1..bind + 5).expect("its length");
    let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
    assert_eq!(sent.get(bind + 1 + length..), Some(&[EXECUTE, SYNC].concat()[..]));
}

#[test]
fn as_many_parameter_types_as_can_be_counted_fit_into_a_parse() {
    let types = vec![Type::INT4; 65_535];
    let wide = learned("w", &types);
    let mut line = Line::new(64);
    let values = vec![&7_i32 as &(dyn postgres_types::ToSql + Sync); 65_535];
    let sent = line.send(vec![query(&wide, &values)]);
    assert_eq!(sent.get(..13), Some(&b"P\0\x04\0\x08pp1\0w\0\xff\xff"[..]));
    assert!(sent.ends_with(&[EXECUTE, SYNC].concat()));
}

#[test]
fn the_farewell_is_terminate() {
    let mut out = Out::default();
    Line::new(64).wire.goodbye(&mut out);
    assert_eq!(out.front(), b"X\0\0\0\x04");
}
