//! Answers, as servers give them: rows, no rows, errors at every stage, and what a server may say in between.

use super::*;

const PREPARED: [&[u8]; 3] = [PARSED, TAKES_INT4, GIVES_ID];

fn select() -> impl Fn() -> Vec<Request> + Clone + 'static {
    let select = learned("SELECT $1", &[Type::INT4]);
    move || vec![query(&select, &(7,))]
}

fn plain(text: &'static str) -> impl Fn() -> Vec<Request> + Clone + 'static {
    let statement = learned(text, &[]);
    move || vec![query(&statement, &())]
}

/// One request and its answer.
fn answer(pieces: &[&[u8]], heard: &str) {
    Dialogue::new().asks(select()).says(pieces).hears([heard]).check();
}

#[test]
fn rows_nulls_and_no_rows() {
    let null = b"D\0\0\0\x0a\0\x01\xff\xff\xff\xff";
    answer(&[&PREPARED.concat(), BOUND, null, &complete("SELECT 1"), READY], "ran 1: id=None");
    answer(&[&PREPARED.concat(), BOUND, &complete("SELECT 0"), READY], "ran 0");
    Dialogue::new()
        .asks(plain("CREATE TABLE t ()"))
        .says(&[PARSED, TAKES_NOTHING, NO_DATA, BOUND, &complete("CREATE TABLE"), READY])
        .hears(["ran 0"])
        .check();
}

#[test]
fn an_empty_statement_ran_without_a_result() {
    Dialogue::new()
        .asks(plain("-- ping"))
        .says(&[PARSED, TAKES_NOTHING, NO_DATA, BOUND, EMPTY, READY])
        .hears(["ran 0"])
        .check();
    Dialogue::new().asks(|| vec![Request::script("", false)]).says(&[EMPTY, READY]).hears(["script"]).check();
}

#[test]
fn a_row_larger_than_the_read_buffer_arrives_in_pieces() {
    let select = learned("SELECT 'x'", &[]);
    let value = vec![b'v'; 100_000];
    let row = message(b'D', &[&[0, 1], &100_000_u32.to_be_bytes()[..], &value].concat());
    let mut line = Line::new(64);
    line.send(vec![query(&select, &())]);
    let answer =
        [PARSED, TAKES_NOTHING, GIVES_NAME, BOUND, &row, ROW_X, &complete("SELECT 2"), READY].concat();
    let mut heard = Vec::new();
    for piece in answer.chunks(1_000) {
        line.receive(piece, &mut heard).expect("well formed");
    }
    let expected = format!("ran 2: name=Some(Some(\"{}\")): name=Some(Some(\"x\"))", "v".repeat(100_000));
    assert!(heard == [expected]);
}

#[test]
fn an_answer_over_its_limit_fails_alone_and_the_next_one_is_right() {
    let select = learned("SELECT 'x'", &[]);
    let value = vec![b'v'; 2 << 20];
    let length = u32::try_from(value.len()).expect("small").to_be_bytes();
    let row = message(b'D', &[&[0, 1], &length[..], &value].concat());
    let mut line = Line::new(64);
    line.send(vec![query(&select, &()), query(&select, &())]);
    let mut heard = Vec::new();
    let large = [PARSED, TAKES_NOTHING, GIVES_NAME, BOUND, &row, &complete("SELECT 1"), READY].concat();
    let small = [BOUND, ROW_X, &complete("SELECT 1"), READY].concat();
    line.receive(&[large, small].concat(), &mut heard).expect("well formed");
    assert!(
        heard[0].starts_with("Busy/Completed: the answer is larger than max_answer_bytes"),
        "{}",
        heard[0]
    );
    assert_eq!(heard[1], "ran 1: name=Some(Some(\"x\"))");
}

#[test]
fn a_row_with_another_number_of_columns_is_an_error_of_its_asker() {
    let two = b"D\0\0\0\x0e\0\x02\xff\xff\xff\xff\xff\xff\xff\xff";
    answer(
        &[&PREPARED.concat(), BOUND, two, &complete("SELECT 1"), READY],
        "ran 1; Protocol/Completed: the server broke the protocol: a row with another number of columns than described",
    );
}

#[test]
fn errors_at_every_stage_belong_to_their_request_alone() {
    let refused = "Database/Failed: the database reported an error: ERROR 22012: as it is";
    let error = error("22012");
    let row = [BOUND, ROW_7].concat();
    let done = [BOUND, ROW_7, &complete("SELECT 1")].concat();
    for (stage, before) in [
        ("Parse", &[][..]),
        ("Describe", &[PARSED]),
        ("its second half", &[PARSED, TAKES_INT4]),
        ("Bind", &PREPARED),
        ("Execute", &[PARSED, TAKES_INT4, GIVES_ID, BOUND]),
        ("after a row", &[PARSED, TAKES_INT4, GIVES_ID, &row]),
        // A deferred constraint is checked when Sync commits: the statement did not succeed.
        ("Sync", &[PARSED, TAKES_INT4, GIVES_ID, &done]),
    ] {
        println!("{stage}");
        // What comes behind is a request of its own.
        let behind = || vec![Request::script("b", false)];
        Dialogue::new()
            .asks(select())
            .says(&[&before.concat(), &error, READY])
            .hears([refused])
            .asks(behind)
            .says(&[&complete("SELECT 0"), READY])
            .hears(["script"])
            .check();
    }
}

#[test]
fn errors_of_scripts_and_of_learning() {
    let refused = "Database/Failed: the database reported an error: ERROR 42601: as it is";
    Dialogue::new()
        .asks(|| vec![Request::script("SELECT 1; x", false)])
        .says(&[GIVES_ID, ROW_7, &complete("SELECT 1"), &error("42601"), READY])
        .hears([refused])
        .check();
    let unknown = Learned::new(StatementKey::of("x"));
    for before in [&[][..], PARSED, &[PARSED, TAKES_INT4].concat()] {
        let unknown = Arc::clone(&unknown);
        Dialogue::new()
            .asks(move || vec![Request::learn(Arc::clone(&unknown))])
            .says(&[before, &error("42601"), READY])
            .hears([refused])
            .check();
    }
}

#[test]
fn a_statement_that_is_asked_for_as_the_first_of_a_transaction_fails_at_every_stage_of_both() {
    let refused = "Database/Failed: the database reported an error: ERROR 42601: as it is";
    let failed = refused.to_owned() + ", in transaction";
    let begin = [PARSED, TAKES_NOTHING, NO_DATA, BOUND, &complete("BEGIN")].concat();
    for (before, status, heard) in [
        (&[][..], READY, refused),
        (PARSED, READY, refused),
        (&[PARSED, TAKES_NOTHING, NO_DATA].concat(), READY, refused),
        (&[PARSED, TAKES_NOTHING, NO_DATA, BOUND].concat(), READY, refused),
        (&begin, READY_IN_FAILED_TRANSACTION, &failed),
        (&[&begin, PARSED].concat(), READY_IN_FAILED_TRANSACTION, &failed),
        (&[&begin, PARSED, TAKES_INT4].concat(), READY_IN_FAILED_TRANSACTION, &failed),
    ] {
        let unknown = Learned::new(StatementKey::of("x"));
        Dialogue::new()
            .asks(move || vec![opened(Request::learn(Arc::clone(&unknown)))])
            .says(&[before, &error("42601"), status])
            .hears([heard])
            .check();
    }
}

#[test]
fn a_script_that_ends_the_transaction_it_runs_in_is_told_so() {
    let script = || vec![opened(Request::script("x", true))];
    let words = "a script ended the transaction behind its handle's back; use commit() or rollback(), or \
                 pool.session() for transactions of your own";
    let ended = &*format!("SessionState/Completed: {words}");
    let with_error = format!("SessionState/Unknown: {words}: ERROR 22012: as it is");
    let done = [complete("BEGIN"), complete("UPDATE 1")].concat();
    let dialogue = || Dialogue::new().asks(script);
    // One that cannot be parsed ends nothing, because nothing of it runs.
    let refused = "Database/Failed: the database reported an error: ERROR 42601: as it is";
    dialogue().says(&[&error("42601"), READY]).hears([refused]).check();
    for ends in [
        &["COMMIT", "BEGIN"][..],
        &["PREPARE TRANSACTION", "START TRANSACTION"],
        &["ROLLBACK", "SELECT 1", "BEGIN"],
    ] {
        let ends: Vec<u8> = ends.iter().flat_map(|tag| complete(tag)).collect();
        let heard = format!("{ended}, in transaction");
        dialogue().says(&[&done, &ends, READY_IN_TRANSACTION]).hears([&*heard]).check();
    }
    dialogue()
        .says(&[&done, &complete("ROLLBACK"), READY_IN_TRANSACTION])
        .hears(["script, in transaction"])
        .check();
    dialogue().says(&[&done, READY_IN_TRANSACTION]).hears(["script, in transaction"]).check();
    dialogue().says(&[&done, &complete("COMMIT"), READY]).hears([ended]).check();
    dialogue().says(&[&done, &complete("ROLLBACK"), &error("22012"), READY]).hears([&*with_error]).check();
}

#[test]
fn what_is_behind_a_script_that_ended_its_transaction_is_not_told_ok() {
    let a = learned("a", &[]);
    let words = "a script ended the transaction behind its handle's back; use commit() or rollback(), or \
                 pool.session() for transactions of your own";
    let ran = [PARSED, TAKES_NOTHING, NO_DATA, BOUND, &complete("UPDATE 1"), READY_IN_TRANSACTION].concat();
    let behind = move || query(&a, &()).in_transaction(true);
    Dialogue::new()
        .asks(|| vec![opened(Request::script("x", true))])
        .says(&[&complete("BEGIN"), READY_IN_TRANSACTION])
        .hears(["script, in transaction"])
        .asks(move || vec![Request::script("y", true), behind(), behind()])
        .says(&[
            &complete("COMMIT"),
            &complete("BEGIN"),
            READY_IN_TRANSACTION,
            &ran,
            BOUND,
            &error("40001"),
            READY_IN_FAILED_TRANSACTION,
        ])
        .hears([
            &*format!("SessionState/Completed: {words}, in transaction"),
            &*format!("SessionState/Unknown: {words}, in transaction"),
            &*format!("SessionState/Unknown: {words}: ERROR 40001: as it is, in transaction"),
        ])
        .check();
}

#[test]
fn a_batchs_error_names_the_item_and_skips_the_rest() {
    let (a, b) = (learned("a", &[]), learned("b", &[]));
    let batch = {
        let (a, b) = (Arc::clone(&a), Arc::clone(&b));
        move || Request::batch(vec![part(&a, &()), part(&b, &()), part(&a, &())])
    };
    let open = batch.clone();
    let done = [PARSED, TAKES_NOTHING, NO_DATA, BOUND, &complete("UPDATE 1")].concat();
    let heard = "Database/Failed: batch item 1: the database reported an error: ERROR 23505: as it is";
    Dialogue::new()
        .asks(move || vec![batch()])
        .says(&[&done, PARSED, TAKES_NOTHING, NO_DATA, BOUND, &error("23505"), READY])
        .hears([heard])
        .check();
    // Items are counted without what opened the transaction.
    Dialogue::new()
        .asks(move || vec![opened(open())])
        .says(&[
            &done,
            &done,
            PARSED,
            TAKES_NOTHING,
            NO_DATA,
            BOUND,
            &error("23505"),
            READY_IN_FAILED_TRANSACTION,
        ])
        .hears([&*format!("{heard}, in transaction")])
        .check();
}

#[test]
fn what_a_server_may_say_unasked_changes_nothing_wherever_it_comes() {
    let said = [
        PARSED.to_vec(),
        TAKES_INT4.to_vec(),
        GIVES_ID.to_vec(),
        BOUND.to_vec(),
        ROW_7.to_vec(),
        complete("SELECT 1"),
        READY.to_vec(),
    ];
    // The parameter is reported as it was: nobody has changed it.
    let unasked =
        [notice(), report(b'N', "WARNING", "01000"), parameter("TimeZone", "UTC"), notification()].concat();
    for at in 0..=said.len() {
        let mut pieces: Vec<&[u8]> = said.iter().map(Vec::as_slice).collect();
        pieces.insert(at, &unasked);
        answer(&pieces, "ran 1: id=Some(7)");
    }
    // And while nothing is asked.
    Dialogue::new().asks(Vec::new).says(&[&unasked]).check();
}

#[test]
fn a_fatal_error_ends_the_connection_at_any_time_and_its_words_are_kept() {
    let said = [
        PARSED.to_vec(),
        TAKES_INT4.to_vec(),
        GIVES_ID.to_vec(),
        BOUND.to_vec(),
        ROW_7.to_vec(),
        complete("SELECT 1"),
    ];
    for severity in ["FATAL", "PANIC"] {
        let fatal = report(b'E', severity, "57P01");
        for at in 0..=said.len() {
            let before = said.get(..at).expect("in range").concat();
            let dialogue = Dialogue::new().asks(select()).says(&[&before, &fatal]);
            dialogue.loses_the_connection("Io/Unknown: the server ended the connection").check();
        }
        // Behind an error, and while nothing is asked.
        let dialogue = Dialogue::new().asks(select()).says(&[&error("42601"), &fatal]);
        dialogue.loses_the_connection("Io/Unknown: the server ended the connection").check();
        let mut line = Line::new(64);
        line.receive(&fatal, &mut Vec::new()).expect_err("it ended");
        assert_eq!(line.wire.last_words().expect("words").code(), "57P01");
    }
}

#[test]
fn copy_ends_the_connection_and_says_so() {
    // CopyInResponse, CopyOutResponse and CopyBothResponse: text, one column.
    for tag in [b'G', b'H', b'W'] {
        let response = message(tag, b"\0\0\x01\0\0");
        let why = "Protocol/Unknown: the statement started a COPY, which is not offered here";
        Dialogue::new()
            .asks(|| vec![Request::script("COPY t FROM STDIN", false)])
            .says(&[&response])
            .loses_the_connection(why)
            .check();
        let dialogue = Dialogue::new().asks(select()).says(&[&PREPARED.concat(), BOUND, &response]);
        dialogue.loses_the_connection(why).check();
    }
}

#[test]
fn a_second_ready_for_query_never_becomes_another_requests_answer() {
    let whole = [&PREPARED.concat(), BOUND, ROW_7, &complete("SELECT 1"), READY].concat();
    let unknown = Learned::new(StatementKey::of("x"));
    let select = select();
    let behind: [(Box<dyn Fn() -> Request>, _); 4] = [
        (
            Box::new({
                let select = select.clone();
                move || select().remove(0)
            }),
            "an answer that ended too early",
        ),
        (Box::new(|| Request::script("b", false)), "an answer that ended too early"),
        (Box::new(|| Request::own_script("b")), "an answer that ended too early"),
        (Box::new(move || Request::learn(Arc::clone(&unknown))), "an answer that ended too early"),
    ];
    for (behind, why) in behind {
        let mut line = Line::new(64);
        let mut heard = Vec::new();
        let mut requests = select();
        requests.push(behind());
        line.send(requests);
        let error = line.receive(&[&whole, READY].concat(), &mut heard).expect_err("given up");
        assert_eq!(heard, ["ran 1: id=Some(7)"]);
        assert!(error.to_string().contains(why), "{error}");
    }
    Dialogue::new()
        .asks(select)
        .says(&[&whole, READY])
        .hears(["ran 1: id=Some(7)"])
        .loses_the_connection(
            "Protocol/Unknown: the server broke the protocol: an answer that nobody asked for",
        )
        .check();
}
