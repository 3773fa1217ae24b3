//! Whether this process is a fork of the one that a pool was made in.
//!
//! A child that forks inherits the sockets and none of the threads: what it asked would wait for ever, and two processes
//! that wrote to one connection would get each other's answers. `fork` calls back in the child, so asking costs one load.
//! A child that is made by the bare system call, past the C library, is not noticed.
//!
//! Source: POSIX, `pthread_atfork`.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks lie between this process and the first one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The process that something was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one.
    pub(crate) fn this() -> Self {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(watch);
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this process is another one now.
    pub(crate) fn is_over(self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.0
    }
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "the C library offers it to no safe code")]
fn watch() {
    extern "C" fn forked() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: `forked` only adds to an atomic number, which is allowed in a child before it does anything else; and it
    // lives as long as the process. When there is no memory for it, forks are not noticed.
    unsafe {
        libc::pthread_atfork(None, None, Some(forked));
    }
}

#[cfg(not(unix))]
fn watch() {}
