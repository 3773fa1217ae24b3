//! What becomes of a notice: an event of `tracing`, with its severity and code. Texts may quote data and stay out.

use crate::error::DatabaseError;

pub(crate) fn log(notice: &DatabaseError) {
    if notice.severity() == "WARNING" {
        tracing::warn!(code = notice.code(), "the server sent a warning");
    } else {
        tracing::debug!(severity = notice.severity(), code = notice.code(), "the server sent a notice");
    }
}
