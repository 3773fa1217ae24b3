//! Knowledge that is out of date: when a statement may be run again, and what is forgotten.

use super::*;

const EXECUTED: &[u8] = b"B\0\0\0\x13\0pp1\0\0\x01\0\x01\0\0\0\x01\0\x01E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
const PARSE_PP2: &[u8] = b"P\0\0\0\x13pp2\0SELECT 1\0\0\0D\0\0\0\x09Spp2\0";
const EXECUTED_PP2: &[u8] = b"B\0\0\0\x13\0pp2\0\0\x01\0\x01\0\0\0\x01\0\x01E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";

fn seven() -> Vec<u8> {
    [PARSED, TAKES_NOTHING, GIVES_ID, BOUND, ROW_7, &complete("SELECT 1"), READY].concat()
}

/// A statement that is prepared on the line already.
fn prepared() -> (Dialogue, impl Fn() -> Vec<Request> + Clone + 'static) {
    let select = learned("SELECT 1", &[]);
    let ask = move || vec![query(&select, &())];
    (Dialogue::new().asks(ask.clone()).says(&[&seven()]).hears(["ran 1: id=Some(7)"]), ask)
}

fn refused(code: &str) -> String {
    format!("Database/Failed: the database reported an error: ERROR {code}: as it is")
}

#[test]
fn a_plan_whose_result_has_changed_is_parsed_again_and_rows_are_read_as_it_is_described_now() {
    let (dialogue, ask) = prepared();
    let name = [PARSED, TAKES_NOTHING, GIVES_NAME, BOUND, ROW_X, &complete("SELECT 1"), READY].concat();
    dialogue
        .asks(ask.clone())
        .sends(&[EXECUTED])
        .says(&[&error("0A000"), READY])
        .hears(["stale, parse again: 0A000"])
        .asks(ask)
        .sends(&[b"C\0\0\0\x09Spp1\0", PARSE_PP2, EXECUTED_PP2])
        .says(&[CLOSED, &name])
        .hears(["ran 1: name=Some(Some(\"x\"))"])
        .check();
}

#[test]
fn a_statement_that_has_vanished_is_parsed_again() {
    let (dialogue, ask) = prepared();
    dialogue.asks(ask).says(&[&error("26000"), READY]).hears(["stale, parse again: 26000"]).check();
}

#[test]
fn types_that_do_not_fit_any_more_are_learnt_again() {
    for code in ["42804", "42883", "42P08", "42P18", "42725", "42846", "42P02", "22P03", "08P01"] {
        let (dialogue, ask) = prepared();
        let heard = format!("stale, learn again: {code}");
        dialogue.asks(ask).says(&[&error(code), READY]).hears([&*heard]).check();
    }
}

#[test]
fn other_errors_are_told_as_they_are() {
    for code in ["22P02", "42P01", "57014", "40001", "53200", ""] {
        let (dialogue, ask) = prepared();
        dialogue.asks(ask).says(&[&error(code), READY]).hears([&*refused(code)]).check();
    }
}

#[test]
fn in_a_transaction_nothing_is_run_again() {
    for code in ["0A000", "26000", "42804"] {
        let (dialogue, ask) = prepared();
        let heard = refused(code) + ", in transaction";
        dialogue.asks(ask).says(&[&error(code), READY_IN_FAILED_TRANSACTION]).hears([&*heard]).check();
    }
}

#[test]
fn what_was_bound_or_executed_is_not_run_again() {
    for code in ["0A000", "26000", "42804"] {
        for before in [BOUND.to_vec(), [BOUND, ROW_7].concat(), [BOUND, &complete("SELECT 0")].concat()] {
            let (dialogue, ask) = prepared();
            dialogue.asks(ask).says(&[&before, &error(code), READY]).hears([&*refused(code)]).check();
        }
    }
}

#[test]
fn a_batch_is_run_again_only_if_none_of_it_was_executed() {
    let (a, b) = (learned("a", &[]), learned("b", &[]));
    let ask = move || vec![Request::batch(vec![part(&a, &()), part(&b, &())])];
    let prepared = [PARSED, TAKES_NOTHING, NO_DATA].concat();
    let done = [BOUND, &complete("UPDATE 1")].concat();
    let dialogue = || {
        let says = [&*prepared, &done, &prepared, &done, READY].concat();
        Dialogue::new().asks(ask.clone()).says(&[&says]).hears(["ran 1 1"])
    };
    let heard = "stale, parse again: 0A000";
    dialogue().asks(ask.clone()).says(&[&error("0A000"), READY]).hears([heard]).check();
    let heard = "Database/Failed: batch item 1: the database reported an error: ERROR 0A000: as it is";
    dialogue().asks(ask.clone()).says(&[&done, &error("0A000"), READY]).hears([heard]).check();
}

#[test]
fn the_first_statement_of_a_transaction_is_not_run_again() {
    let (dialogue, ask) = prepared();
    let begun = [PARSED, TAKES_NOTHING, NO_DATA, BOUND, &complete("BEGIN")].concat();
    let heard = refused("0A000") + ", in transaction";
    dialogue
        .asks(move || ask().into_iter().map(opened).collect())
        .says(&[&begun, &error("0A000"), READY_IN_FAILED_TRANSACTION])
        .hears([&*heard])
        .check();
}

#[test]
fn those_framed_behind_a_parse_that_fails_are_told_the_same_and_it_is_parsed_anew() {
    let select = learned("SELECT 1", &[]);
    let again = Arc::clone(&select);
    Dialogue::new()
        .asks(move || vec![query(&select, &()), query(&select, &()), query(&select, &())])
        .says(&[&error("42P01"), READY, &error("26000"), READY, &error("26000"), READY])
        .hears([&*refused("42P01"), &*refused("42P01"), &*refused("42P01")])
        // It was never parsed: there is nothing to close.
        .asks(move || vec![query(&again, &())])
        .sends(&[PARSE_PP2, EXECUTED_PP2])
        .says(&[&seven()])
        .hears(["ran 1: id=Some(7)"])
        .check();
}

#[test]
fn those_framed_behind_a_parse_that_fails_share_its_fate_where_it_is_the_statements_own() {
    let vanished = "stale, parse again: 26000";
    for (code, first, second) in [
        ("42501", refused("42501"), refused("42501")),
        ("42883", "stale, learn again: 42883".to_owned(), "stale, learn again: 42883".to_owned()),
        // Of the next one they say nothing.
        ("57014", refused("57014"), vanished.to_owned()),
        ("53200", refused("53200"), vanished.to_owned()),
    ] {
        let select = learned("SELECT 1", &[]);
        Dialogue::new()
            .asks(move || vec![query(&select, &()), query(&select, &())])
            .says(&[&error(code), READY, &error("26000"), READY])
            .hears([&*first, &*second])
            .check();
    }
}

#[test]
fn a_parse_that_was_skipped_in_a_batch_is_asked_for_again() {
    let (a, b) = (learned("a", &[]), learned("b", &[]));
    let again = Arc::clone(&b);
    Dialogue::new()
        .asks(move || vec![Request::batch(vec![part(&a, &()), part(&b, &())])])
        .says(&[PARSED, TAKES_NOTHING, NO_DATA, BOUND, &error("23505"), READY])
        .hears(["Database/Failed: batch item 0: the database reported an error: ERROR 23505: as it is"])
        .asks(move || vec![query(&again, &())])
        .sends(&[
            b"P\0\0\0\x0cpp3\0b\0\0\0D\0\0\0\x09Spp3\0",
            b"B\0\0\0\x13\0pp3\0\0\x01\0\x01\0\0\0\x01\0\x01E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04",
        ])
        .check();
}

#[test]
fn a_statement_whose_description_was_cut_off_is_parsed_again_and_nobody_reads_rows_without_one() {
    let select = learned("SELECT 1", &[]);
    let again = Arc::clone(&select);
    // A cancel request, or a timeout, comes between Parse and Describe.
    Dialogue::new()
        .asks(move || vec![query(&select, &()), query(&select, &())])
        .says(&[PARSED, &error("57014"), READY, BOUND, ROW_7, &complete("SELECT 1"), READY])
        .hears([
            &*refused("57014"),
            "Decode/Completed: the statement ran, but its rows cannot be read: the server was interrupted before it \
             described them",
        ])
        .asks(move || vec![query(&again, &())])
        .sends(&[b"C\0\0\0\x09Spp1\0", PARSE_PP2, EXECUTED_PP2])
        .says(&[CLOSED, &seven()])
        .hears(["ran 1: id=Some(7)"])
        .check();
}

#[test]
fn other_parameter_types_of_the_same_text_replace_what_was_prepared() {
    let old = learned("SELECT $1", &[Type::INT4]);
    let new = learned("SELECT $1", &[Type::TEXT]);
    Dialogue::new()
        .asks(move || vec![query(&old, &(7,)), query(&new, &("x",))])
        .sends(&[
            b"P\0\0\0\x18pp1\0SELECT $1\0\0\x01\0\0\0\x17D\0\0\0\x09Spp1\0",
            b"B\0\0\0\x1b\0pp1\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04",
            b"C\0\0\0\x09Spp1\0",
            b"P\0\0\0\x18pp2\0SELECT $1\0\0\x01\0\0\0\x19D\0\0\0\x09Spp2\0",
            b"B\0\0\0\x18\0pp2\0\0\x01\0\x01\0\x01\0\0\0\x01x\0\x01\0\x01E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04",
        ])
        .check();
}
