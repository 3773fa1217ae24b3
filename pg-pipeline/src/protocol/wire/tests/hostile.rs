//! Servers that do not keep to the protocol: an error each time, never a panic, and no memory for what they announce.

use super::*;

fn select() -> Request {
    query(&learned("SELECT $1", &[Type::INT4]), &(7,))
}

fn unknown() -> Request {
    Request::learn(Learned::new(StatementKey::of("SELECT $1")))
}

/// What the first error says that these bytes cause in answer to `request`.
fn broken(request: Request, pieces: &[&[u8]]) -> String {
    let mut line = Line::new(64);
    line.send(vec![request]);
    let mut heard = Vec::new();
    let error = line.receive(&pieces.concat(), &mut heard).expect_err("the protocol is broken");
    assert!(heard.is_empty(), "{heard:?}");
    describe_error(&error)
}

#[test]
fn messages_out_of_place_end_the_connection() {
    let described = [PARSED, TAKES_INT4, GIVES_ID].concat();
    let done = [&described, BOUND, &complete("SELECT 1")[..]].concat();
    let copied = message(b'd', b"data");
    for pieces in [
        // The order is Parse, Describe, Bind, Execute; each is answered once.
        &[BOUND][..],
        &[PARSED, PARSED],
        &[PARSED, BOUND],
        &[PARSED, GIVES_ID],
        &[PARSED, NO_DATA],
        &[TAKES_INT4],
        &[PARSED, TAKES_INT4, TAKES_INT4],
        &[PARSED, TAKES_INT4, BOUND],
        &[&described, GIVES_ID],
        &[&described, NO_DATA],
        &[&described, ROW_7],
        &[&described, EMPTY],
        &[&described, &complete("SELECT 1")],
        &[&described, BOUND, BOUND],
        &[&described, BOUND, PARSED],
        &[&described, BOUND, GIVES_ID],
        &[&done, ROW_7],
        &[&done, BOUND],
        &[&done, &complete("SELECT 1")],
        // An answer that ends before everything was answered.
        &[READY],
        &[PARSED, READY],
        &[&described, READY],
        &[&described, BOUND, READY],
        &[&described, BOUND, ROW_7, READY],
        // Behind an error there is nothing but ReadyForQuery.
        &[&error("22012"), PARSED],
        &[&error("22012"), &complete("SELECT 1")],
        &[&error("22012"), ROW_7],
        &[&error("22012"), CLOSED],
        &[&error("22012"), &error("22012")],
        // What nobody asked for.
        &[CLOSED],
        &[&copied],
        // Of the connection phase.
        &[b"R\0\0\0\x08\0\0\0\0"],
        &[b"K\0\0\0\x0c\0\0\0\x01\0\0\0\x02"],
        // Malformed.
        &[b"1\0\0\0\x05\0"],
        &[b"Z\0\0\0\x04"],
        &[b"Z\0\0\0\x06II"],
        &[&done, b"Z\0\0\0\x05X"],
        &[&described, BOUND, b"C\0\0\0\x08SELE"],
        &[PARSED, b"t\0\0\0\x0a\0\x02\0\0\0\x17"],
        &[PARSED, TAKES_INT4, b"T\0\0\0\x06\xff\xff"],
        &[b"E\0\0\0\x05x"],
        &[b"N\0\0\0\x06xx"],
        &[b"S\0\0\0\x09name\0"],
        &[b"S\0\0\0\x0bn\0v\0w\0\0"],
        // Impossible lengths.
        &[b"1\0\0\0\x03"],
        &[b"Z\xff\xff\xff\xff"],
        &[&described, BOUND, b"D\0\0\0\x00"],
    ] {
        let error = broken(select(), pieces);
        assert!(
            error.starts_with("Protocol/Unknown: the server "),
            "{}: {error}",
            pieces.concat().escape_ascii()
        );
    }
}

#[test]
fn learning_and_scripts_have_an_order_too() {
    for pieces in [
        &[READY][..],
        &[PARSED, READY],
        &[PARSED, TAKES_INT4, READY],
        &[PARSED, TAKES_INT4, GIVES_ID, BOUND],
        &[PARSED, TAKES_INT4, GIVES_ID, ROW_7],
        &[PARSED, TAKES_INT4, GIVES_ID, &complete("SELECT 1")],
        &[EMPTY],
    ] {
        assert!(broken(unknown(), pieces).starts_with("Protocol/Unknown: the server broke"));
    }
    for pieces in [&[READY][..], &[PARSED], &[BOUND], &[TAKES_INT4], &[NO_DATA], &[GIVES_ID, READY]] {
        assert!(
            broken(Request::script("x", false), pieces).starts_with("Protocol/Unknown: the server broke")
        );
    }
}

#[test]
fn an_idle_connection_takes_only_what_a_server_may_say_unasked() {
    for said in
        [PARSED, BOUND, CLOSED, NO_DATA, EMPTY, READY, ROW_7, GIVES_ID, &error("22012"), &complete("SET")]
    {
        let error = Line::new(64).receive(said, &mut Vec::new()).expect_err("nobody asked");
        assert!(error.to_string().contains("nobody asked for"), "{error}");
    }
}

#[test]
fn other_protocols_are_seen_by_their_first_bytes() {
    for said in [
        &b"HTTP/1.1 200 OK\r\n\r\n"[..],
        b"\x16\x03\x03\0\x7a\x02\0\0\x76",
        b"J\0\0\0\x0a8.4.6\0",
        b"\0\0\0\0\0",
    ] {
        let error = broken(select(), &[said]);
        assert!(error.starts_with("Protocol/Unknown: the server broke the protocol: a message"), "{error}");
    }
}

#[test]
fn an_announced_length_takes_no_memory() {
    // A row of 2 GiB, and one of 65,535 columns of which none follows.
    let described = [PARSED, TAKES_INT4, GIVES_ID, BOUND].concat();
    let mut line = Line::new(64);
    line.send(vec![select()]);
    line.receive(&[&described, &b"D\x7f\xff\xff\xff\xff\xff"[..]].concat(), &mut Vec::new())
        .expect("it may come");
    assert!(line.budget.held() < 64);
    assert!(line.input.room().len() <= 16 * 1024);
    let pieces = [&described, &b"D\0\0\0\x06\xff\xff"[..], &complete("SELECT 1"), READY].concat();
    let mut line = Line::new(64);
    line.send(vec![select()]);
    let mut heard = Vec::new();
    line.receive(&pieces, &mut heard).expect("the frame is whole");
    assert!(heard[0].contains("Protocol/Completed"), "{heard:?}");
    // Other messages must fit, and are judged by their header.
    for header in
        [b"E\x7f\xff\xff\xff", b"T\x7f\xff\xff\xff", b"N\x7f\xff\xff\xff", b"Z\0\0\x10\0", b"C\x01\0\0\0"]
    {
        assert!(broken(select(), &[header]).contains("a message of impossible size"));
    }
}

#[test]
fn a_server_cannot_fill_the_memory_with_parameters() {
    let mut line = Line::new(64);
    let value = "v".repeat(60_000);
    // The same one over and over is kept once.
    for _ in 0..100 {
        line.receive(&parameter("x", &value), &mut Vec::new()).expect("one parameter");
    }
    let mut names = 0..100;
    let error = names.find_map(|n| line.receive(&parameter(&format!("x{n}"), &value), &mut Vec::new()).err());
    assert!(error.expect("too many").to_string().contains("more parameters than any server has"));
    assert!(names.start < 10);
}

/// Numbers that a seed repeats (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % limit.max(1)
    }
}

#[test]
fn whatever_comes_is_an_answer_or_an_error() {
    let whole = [
        PARSED.to_vec(),
        TAKES_INT4.to_vec(),
        GIVES_ID.to_vec(),
        GIVES_NAME.to_vec(),
        NO_DATA.to_vec(),
        BOUND.to_vec(),
        ROW_7.to_vec(),
        ROW_X.to_vec(),
        CLOSED.to_vec(),
        EMPTY.to_vec(),
        complete("SELECT 1"),
        complete("DISCARD ALL"),
        error("0A000"),
        error("26000"),
        notice(),
        notification(),
        parameter("TimeZone", "x"),
        READY.to_vec(),
        READY.to_vec(),
        READY.to_vec(),
        READY_IN_TRANSACTION.to_vec(),
    ];
    let mut random = Random(0x5eed);
    for round in 0..20_000 {
        let mut line = Line::new(random.below(3));
        let requests = (0..random.below(4)).map(|_| match random.below(5) {
            0 => select(),
            1 => unknown(),
            2 => Request::script("x", false),
            3 => opened(select()),
            _ => Request::batch(vec![part(&learned("a", &[]), &()), part(&learned("b", &[]), &())]),
        });
        let requests: Vec<_> = requests.collect();
        let asked = requests.len();
        line.send(requests);
        let mut heard = Vec::new();
        for _ in 0..random.below(40) {
            let mut piece = whole[random.below(whole.len())].clone();
            if round % 2 == 0 {
                // Noise instead of messages, and messages with noise in them.
                let at = random.below(piece.len());
                piece[at] = random.below(256) as u8;
                if random.below(4) == 0 {
                    piece = (0..random.below(64)).map(|_| random.below(256) as u8).collect();
                }
            }
            if line.receive(&piece, &mut heard).is_err() {
                break;
            }
        }
        assert!(heard.len() <= asked, "round {round}");
        let budget = Arc::clone(&line.budget);
        drop(line);
        assert_eq!(budget.held(), 0, "round {round}");
    }
}
