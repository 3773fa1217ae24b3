//! `mysql_clear_password`: the password itself, for servers that hand it on to PAM or LDAP.
//!
//! ```text
//!  any challenge ─► the user's leave and a private channel ─► the password with a NUL
//!                   otherwise                              ─► an error that says what to do
//! ```
//!
//! Source: MySQL manual, "Client-Side Cleartext Pluggable Authentication".

use super::{Asked, Channel, auth};
use crate::error::Fault;

pub(super) fn respond(asked: &Asked<'_>) -> Result<Vec<u8>, Fault> {
    if !asked.terms.clear_text {
        return Err(auth(
            "the server asks for the password in clear (mysql_clear_password), which was not allowed; nothing was sent; \
             if the server is to see it, set enableCleartextPlugin=true",
        ));
    }
    match asked.terms.channel {
        Channel::Private => Ok(asked.password_and_nul()),
        Channel::Open | Channel::Unproven => Err(auth(
            "the server asks for the password in clear (mysql_clear_password) over a connection that others can read; \
             nothing was sent; use TLS (sslMode=REQUIRED) or a Unix socket",
        )),
    }
}
