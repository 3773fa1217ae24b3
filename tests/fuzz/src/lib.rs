//! The fuzz targets: every parser of a peer's bytes and of connection strings, for any bytes at all.
//!
//! `tests/bounded.rs` runs them in the normal suite: the seeds under `corpus`, and what is made of them by chance, with
//! the memory counted. The folder `libfuzzer` has the same targets for `cargo fuzz`, which looks for new paths by
//! coverage. What either finds becomes a file of the corpus. The README says how to run both.

mod mutate;

pub use mutate::Mutator;

/// A target: its name, which is its folder in the corpus too, and what it calls.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The driver and the parser.
    pub name: &'static str,
    /// Takes any bytes, and says how far it got; a panic is a fault.
    pub run: fn(&[u8]) -> usize,
}

/// All of them.
pub const TARGETS: [Target; 11] = [
    Target { name: "pg_connection_string", run: pg_pipeline::fuzzing::connection_string },
    Target { name: "pg_startup", run: pg_pipeline::fuzzing::startup },
    Target { name: "pg_answers", run: pg_pipeline::fuzzing::answers },
    Target { name: "pg_values", run: pg_pipeline::fuzzing::values },
    Target { name: "pg_files", run: pg_pipeline::fuzzing::files },
    Target { name: "pg_certificate", run: pg_pipeline::fuzzing::certificate },
    Target { name: "pg_role", run: pg_pipeline::fuzzing::role },
    Target { name: "mysql_connection_string", run: mysql_pipeline::fuzzing::connection_string },
    Target { name: "mysql_startup", run: mysql_pipeline::fuzzing::startup },
    Target { name: "mysql_answers", run: mysql_pipeline::fuzzing::answers },
    Target { name: "mysql_values", run: mysql_pipeline::fuzzing::values },
];

/// The target of that name.
///
/// # Panics
///
/// If there is none.
pub fn target(name: &str) -> Target {
    TARGETS.into_iter().find(|target| target.name == name).expect("a target of that name")
}
