//! What an answer says of the session, and what puts the session right.

use wire_pipeline::error::{ErrorKind, Outcome};
use wire_pipeline::wire::Occasion;

use super::*;

const PARTS_OF_DISCARD: &str = "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; \
    SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES";

fn script() -> Vec<Request> {
    vec![Request::script("x", false)]
}

/// A line on which a script was answered like this.
fn after(pieces: &[&[u8]]) -> Line {
    let mut line = Line::new(64);
    line.send(script());
    line.receive(&pieces.concat(), &mut Vec::new()).expect("well formed");
    line
}

/// The texts that settle `line`, which are answered well; afterwards it is clean.
fn settle(line: &mut Line, occasion: Occasion) -> Vec<String> {
    let requests = line.wire.settle(occasion);
    let texts = requests
        .iter()
        .map(|request| match request {
            Request::Script(script) if script.own => script.text(),
            other => panic!("not the engine's own: {other:?}"),
        })
        .collect();
    for request in requests {
        line.send(vec![request]);
        // What the engine itself sets does not count.
        let reported = parameter("TimeZone", &format!("settled {}", line.fifo.len()));
        line.receive(&[&reported, &complete("SET")[..], READY].concat(), &mut Vec::new())
            .expect("well formed");
    }
    assert_eq!(line.wire.condition(), Condition::Clean);
    texts
}

#[test]
fn commands_that_change_the_session_touch_it() {
    for (tag, heard) in [
        ("SET", "script, touched"),
        ("RESET", "script, touched"),
        ("LISTEN", "script, touched"),
        ("UNLISTEN", "script, touched"),
        ("DECLARE CURSOR", "script, touched"),
        ("LOAD", "script, touched"),
        ("PREPARE", "script, touched"),
        ("DEALLOCATE", "script, touched"),
        ("DISCARD ALL", "script, touched"),
        ("DISCARD TEMP", "script, touched"),
        ("SELECT 1", "script"),
        ("CREATE TABLE", "script"),
        ("ROLLBACK", "script"),
        ("SETTLED 1", "script"),
    ] {
        Dialogue::new().asks(script).says(&[&complete(tag), READY]).hears([heard]).check();
    }
}

#[test]
fn a_parameter_that_changes_touches_the_session() {
    let changed = parameter("TimeZone", "Europe/Vienna");
    Dialogue::new()
        .asks(script)
        .says(&[&changed, &complete("SELECT 1"), READY])
        .hears(["script, touched"])
        .check();
    // Also one of which nothing was known, and one that is reported between two answers.
    let new = parameter("search_path", "x");
    Dialogue::new().asks(script).says(&[&complete("DO"), &new, READY]).hears(["script, touched"]).check();
    Dialogue::new()
        .asks(Vec::new)
        .says(&[&changed])
        .asks(script)
        .says(&[&complete("SELECT 1"), READY])
        .hears(["script, touched"])
        .check();
}

#[test]
fn an_open_transaction_shows_whether_it_has_failed_or_not() {
    Dialogue::new()
        .asks(script)
        .says(&[&complete("BEGIN"), READY_IN_TRANSACTION])
        .hears(["script, in transaction"])
        .asks(script)
        .says(&[&error("22012"), READY_IN_FAILED_TRANSACTION])
        .hears(["Database/Failed: the database reported an error: ERROR 22012: as it is, in transaction"])
        .asks(script)
        .says(&[&complete("ROLLBACK"), READY])
        .hears(["script"])
        .check();
}

#[test]
fn a_new_connection_runs_the_setup() {
    assert_eq!(settle(&mut Line::new(64), Occasion::Connected), ["SET a = 1"]);
}

#[test]
fn a_touched_session_is_reset_and_set_up_again() {
    let mut line = after(&[&complete("SET"), READY]);
    assert_eq!(settle(&mut line, Occasion::Tainted), [PARTS_OF_DISCARD, "SET a = 1"]);
}

#[test]
fn an_open_transaction_is_rolled_back_and_costs_no_reset_unless_something_was_set() {
    for status in [READY_IN_TRANSACTION, READY_IN_FAILED_TRANSACTION] {
        let mut line = after(&[&complete("BEGIN"), status]);
        assert_eq!(settle(&mut line, Occasion::Tainted), ["ROLLBACK"]);
        let mut line = after(&[&complete("BEGIN"), &complete("SET"), status]);
        assert_eq!(settle(&mut line, Occasion::Tainted), ["ROLLBACK", PARTS_OF_DISCARD, "SET a = 1"]);
    }
}

#[test]
fn a_returned_lease_is_reset_when_its_holder_may_have_changed_something() {
    let clean = [&complete("SELECT 1")[..], READY].concat();
    assert!(settle(&mut after(&[&clean]), Occasion::Returned { touched: false }).is_empty());
    let texts = settle(&mut after(&[&clean]), Occasion::Returned { touched: true });
    assert_eq!(texts, [PARTS_OF_DISCARD, "SET a = 1"]);
    let mut line = after(&[&complete("LISTEN"), READY]);
    assert_eq!(settle(&mut line, Occasion::Returned { touched: false }), [PARTS_OF_DISCARD, "SET a = 1"]);
    let mut line = after(&[&complete("BEGIN"), READY_IN_TRANSACTION]);
    assert_eq!(settle(&mut line, Occasion::Returned { touched: false }), ["ROLLBACK"]);
}

#[test]
fn statements_prepared_by_name_are_discarded_with_all_others_which_are_parsed_again() {
    let select = learned("SELECT 'x'", &[]);
    let mut line = Line::new(64);
    line.send(vec![query(&select, &()), Request::script("PREPARE p AS SELECT 1", false)]);
    let first = [PARSED, TAKES_NOTHING, GIVES_NAME, BOUND, ROW_X, &complete("SELECT 1"), READY].concat();
    let second = [&complete("PREPARE")[..], READY].concat();
    line.receive(&[first, second].concat(), &mut Vec::new()).expect("well formed");
    assert_eq!(settle(&mut line, Occasion::Returned { touched: false }), ["DISCARD ALL", "SET a = 1"]);
    let sent = line.send(vec![query(&select, &())]);
    assert!(sent.starts_with(b"P\0\0\0\x15pp2\0SELECT 'x'"), "{}", sent.escape_ascii());
    // The next holder prepared nothing.
    line.fifo.clear();
    assert_eq!(settle(&mut line, Occasion::Returned { touched: true }), [PARTS_OF_DISCARD, "SET a = 1"]);
}

#[test]
fn a_holder_who_discards_all_statements_needs_no_second_try() {
    let select = learned("SELECT 'x'", &[]);
    let first = Arc::clone(&select);
    let (behind, other) = (Arc::clone(&select), learned("SELECT 'y'", &[]));
    let x = [PARSED, TAKES_NOTHING, GIVES_NAME, BOUND, ROW_X, &complete("SELECT 1"), READY].concat();
    for tag in ["DISCARD ALL", "DEALLOCATE ALL"] {
        let (first, behind, other, select) =
            (Arc::clone(&first), Arc::clone(&behind), Arc::clone(&other), Arc::clone(&select));
        let again = Arc::clone(&other);
        Dialogue::new()
            .asks(move || vec![query(&first, &())])
            .says(&[&x])
            .hears(["ran 1: name=Some(Some(\"x\"))"])
            .asks(move || vec![Request::script("d", false), query(&behind, &()), query(&other, &())])
            // What was bound behind it by its old name does not exist; what was parsed behind it does.
            .says(&[&complete(tag), READY, &error("26000"), READY, &x])
            .hears([
                "script, touched",
                "stale, parse again: 26000, touched",
                "ran 1: name=Some(Some(\"x\")), touched",
            ])
            .asks(move || vec![query(&select, &()), query(&again, &())])
            .sends(&[
                b"P\0\0\0\x15pp3\0SELECT 'x'\0\0\0D\0\0\0\x09Spp3\0",
                b"B\0\0\0\x13\0pp3\0\0\x01\0\x01\0\0\0\x01\0\x01E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04",
                b"B\0\0\0\x13\0pp2\0\0\x01\0\x01\0\0\0\x01\0\x01E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04",
            ])
            .check();
    }
}

#[test]
fn a_close_that_the_server_skipped_goes_out_again() {
    let (a, b) = (learned("a", &[]), learned("b", &[]));
    let again = Arc::clone(&b);
    let done = [TAKES_NOTHING, NO_DATA, BOUND, &complete("UPDATE 1")].concat();
    // The cache has room for one: `pp1` is closed between the two statements, behind the one that fails.
    Dialogue::with_cache(1)
        .asks(move || vec![Request::batch(vec![part(&a, &()), part(&b, &())])])
        .says(&[PARSED, TAKES_NOTHING, NO_DATA, BOUND, &error("23505"), READY])
        .hears(["Database/Failed: batch item 0: the database reported an error: ERROR 23505: as it is"])
        .asks(move || vec![query(&again, &())])
        .sends(&[
            b"C\0\0\0\x09Spp1\0",
            b"P\0\0\0\x0cpp3\0b\0\0\0D\0\0\0\x09Spp3\0",
            b"B\0\0\0\x13\0pp3\0\0\x01\0\x01\0\0\0\x01\0\x01E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04",
        ])
        .says(&[CLOSED, PARSED, &done, READY])
        .hears(["ran 1"])
        .check();
}

#[test]
fn what_belongs_to_a_transaction_is_not_sent_when_that_could_not_be_opened() {
    let a = learned("a", &[]);
    let part = || query(&a, &()).in_transaction(true);
    let mut line = Line::new(8);
    let mut heard = Vec::new();
    line.send(vec![opened(part())]);
    line.receive(&[error("57014"), READY.to_vec()].concat(), &mut heard).expect("a dialogue");
    assert!(heard[0].starts_with("Database/Failed"), "{heard:?}");
    for mut request in [part(), Request::script("x", true)] {
        let Framed::Refused(error) = line.wire.frame(&mut request, &mut Out::default()) else {
            panic!("it would run outside of its transaction")
        };
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::SessionState, Outcome::NotSent));
    }
}
