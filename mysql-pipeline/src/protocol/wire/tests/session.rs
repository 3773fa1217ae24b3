//! What the server says of the session, and what puts it right.

use super::*;

#[test]
fn the_session_is_judged_by_what_an_ok_says() {
    let statement = Learned::of("DO ?");
    let mut wire = prepared(&statement);
    let mut pending = execute(&mut wire, &statement);
    // in a transaction, with autocommit
    ran(answer(&mut wire, &mut pending, b"\x07\0\0\x01\x00\x00\x00\x03\x00\x00\x00"));
    assert_eq!(wire.condition(), Condition::InTransaction);
    let [rollback] = &wire.settle(Occasion::Tainted)[..] else { panic!("one request") };
    assert!(matches!(&rollback.what, What::Query(text) if text == "ROLLBACK"));

    let mut pending = execute(&mut wire, &statement);
    // a setting was changed
    ran(answer(&mut wire, &mut pending, b"\x07\0\0\x01\x00\x00\x00\x02\x40\x00\x00"));
    assert_eq!(wire.condition(), Condition::Touched);
    let mut requests = wire.settle(Occasion::Tainted);
    let [reset] = &mut requests[..] else { panic!("one request") };
    let mut out = Out::default();
    let mut pending = sent(wire.frame(reset, &mut out));
    ran(answer(&mut wire, &mut pending, OK));
    assert_eq!(wire.condition(), Condition::Clean);
    ahead(wire.frame(&mut Request::execute(&statement, one(1)), &mut out));
}

#[test]
fn a_transaction_that_comes_back_is_rolled_back_before_autocommit_is_on_again() {
    let statement = Learned::of("DO ?");
    let mut wire = prepared(&statement);
    let mut pending = execute(&mut wire, &statement);
    // no autocommit, and nothing open
    ran(answer(&mut wire, &mut pending, b"\x07\0\0\x01\x00\x00\x00\x00\x00\x00\x00"));
    assert_eq!(wire.condition(), Condition::Touched);
    let requests = wire.settle(Occasion::Returned { touched: false });
    // One text: when the ROLLBACK is refused, what would commit is not run.
    let [script] = &requests[..] else { panic!("one request") };
    assert!(script.own);
    assert!(matches!(&script.what, What::Script(text) if text == "ROLLBACK; SET autocommit = 1"));
}

#[test]
fn statements_of_one_database_are_not_used_in_another_and_a_reset_leads_back() {
    for (home, back) in [(Some("a`b"), "USE `a``b`"), (None, "SELECT EXP(1000 * (DATABASE() IS NOT NULL))")] {
        for what in [
            What::Query(Bytes::from_static(b"use other")),
            What::Script(Bytes::from_static(b"SELECT 1; /*!50000 USE */ other")),
        ] {
            let statement = Learned::of("DO ?");
            let mut wire = prepared(&statement).with_database(home);
            sent(wire.frame(&mut Request::new(what), &mut Out::default()));
            assert_eq!(wire.condition(), Condition::Touched);
            let mut out = Out::default();
            ahead(wire.frame(&mut Request::execute(&statement, one(1)), &mut out));
            // CLOSE 1, PREPARE
            assert_eq!(written(&mut out), b"\x05\0\0\0\x19\x01\0\0\0\x05\0\0\0\x16DO ?");
            let requests = wire.settle(Occasion::Returned { touched: false });
            let [reset, home] = &requests[..] else { panic!("two requests") };
            assert!(matches!(reset.what, What::Reset));
            assert!(home.own && matches!(&home.what, What::Query(text) if text == back));
            // There again; the database may be dropped meanwhile, and none is chosen then.
            let requests = wire.settle(Occasion::Returned { touched: true });
            assert_eq!(requests.len(), if back.starts_with("USE") { 2 } else { 1 });
        }
    }
}

/// A wire with an open transaction.
fn opened(statement: &Arc<Learned>) -> MySqlWire {
    let mut wire = prepared(statement);
    let mut request = Request { part: true, ..Request::execute(statement, one(1)) };
    request.opening = Some(Bytes::from_static(b"SET autocommit = 0"));
    let (mut opening, _) = ahead(wire.frame(&mut request, &mut Out::default()));
    let ok = b"\x07\0\0\x01\x00\x00\x00\x00\x00\x00\x00";
    let received = receive(&mut wire, Some(&mut opening), ok, usize::MAX);
    assert!(matches!(received, Ok(Received::Forerunner { result: Ok(()), .. })));
    wire
}

fn part(what: What) -> Request {
    Request { part: true, ..Request::new(what) }
}

#[test]
fn nothing_is_committed_after_the_server_has_undone_the_transaction() {
    // 1213 = 0x04BD, 1205 = 0x04B5
    for number in [0xBD, 0xB5] {
        let statement = Learned::of("DO ?");
        let mut wire = opened(&statement);
        let mut first = execute(&mut wire, &statement);
        let mut second = execute(&mut wire, &statement);
        let deadlock = [b"\x0D\0\0\x01\xFF", &[number][..], b"\x04#40001lost"].concat();
        answer(&mut wire, &mut first, &deadlock).expect_err("a deadlock");
        // What was on its way runs in a transaction that nobody commits.
        ran(answer(&mut wire, &mut second, b"\x07\0\0\x01\x00\x00\x00\x01\x00\x00\x00"));
        let further = What::Execute { statement: Arc::clone(&statement), bound: one(1) };
        for what in [further, What::Commit { strict: false }] {
            let mut out = Out::default();
            let Framed::Refused(error) = wire.frame(&mut part(what), &mut out) else { panic!("sent") };
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Database, Outcome::Failed));
            assert_eq!(error.server().map(DatabaseError::number), Some(0x0400 | u16::from(number)));
            assert!(out.is_empty());
        }
    }
}

#[test]
fn an_error_that_nobody_saw_keeps_a_transaction_from_being_committed() {
    let statement = Learned::of("DO ?");
    let mut wire = opened(&statement);
    let mut pending = execute(&mut wire, &statement);
    answer(&mut wire, &mut pending, NO_TABLE).expect_err("no table");
    let mut out = Out::default();
    let strict = wire.frame(&mut part(What::Commit { strict: true }), &mut out);
    assert!(matches!(strict, Framed::Refused(error) if error.outcome() == Outcome::Failed));
    // One that was seen does not: the statement alone was undone.
    let mut commit = sent(wire.frame(&mut part(What::Commit { strict: false }), &mut out));
    assert_eq!(written(&mut out), b"\x07\0\0\0\x03COMMIT");
    ran(answer(&mut wire, &mut commit, OK));
    let over = wire.frame(&mut part(What::Commit { strict: false }), &mut out);
    assert!(matches!(over, Framed::Refused(_)), "it is over");
}

#[test]
fn what_belongs_to_a_transaction_is_not_sent_outside_of_one() {
    let statement = Learned::of("DO ?");
    let mut wire = prepared(&statement);
    let mut request = Request { part: true, ..Request::execute(&statement, one(1)) };
    let mut out = Out::default();
    assert!(matches!(wire.frame(&mut request, &mut out), Framed::Refused(_)));
    assert!(out.is_empty());
    // An opening that fails opens nothing.
    request.opening = Some(Bytes::from_static(b"SET autocommit = 0"));
    let (mut opening, _) = ahead(wire.frame(&mut request, &mut out));
    let received = receive(&mut wire, Some(&mut opening), NO_TABLE, usize::MAX);
    assert!(matches!(received, Ok(Received::Forerunner { result: Err(_), .. })));
    assert!(matches!(wire.frame(&mut request, &mut out), Framed::Refused(_)));
}
