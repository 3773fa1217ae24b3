//! Statements that must be prepared again.

use super::*;

#[test]
fn a_statement_that_the_server_wants_prepared_again_is_closed_in_line() {
    // 1615 = 0x064F, 1243 = 0x04DB; only the first one still exists.
    let cases = [(b"\x0B\0\0\x01\xFF\x4F\x06#HY000??", true), (b"\x0B\0\0\x01\xFF\xDB\x04#HY000??", false)];
    for (bytes, exists) in cases {
        let statement = Learned::of("DO ?");
        let mut wire = prepared(&statement);
        let mut pending = execute(&mut wire, &statement);
        assert!(matches!(answer(&mut wire, &mut pending, bytes), Ok(Answer::Stale(_))));
        let mut out = Out::default();
        ahead(wire.frame(&mut Request::execute(&statement, one(1)), &mut out));
        let close = b"\x05\0\0\0\x19\x01\0\0\0".as_slice();
        let prepare = b"\x05\0\0\0\x16DO ?".as_slice();
        assert_eq!(written(&mut out), [if exists { close } else { &[] }, prepare].concat());
    }
}
