//! The pool's options: their names, defaults, ranges and meaning.
//!
//! This module may know what the engine needs to be told; it must not know where to connect or as whom, which
//! is the rest of the configuration. [`OPTIONS`] is what documentation is compared with, and a test compares
//! it with the defaults in code.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::units::{self, Plain};
use super::{invalid, quoted_list};
use crate::error::{Error, ServerError};
use crate::options::Routing;
use crate::transport::Transport;

/// One option of the pool, as documentation shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionInfo {
    /// Its name in URLs, in the key=value form and as a builder method.
    pub name: &'static str,
    /// Its default, written as the option itself can be written; `none` or `from config` if it has no value
    /// of its own.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

const fn option(name: &'static str, default: &'static str, meaning: &'static str) -> OptionInfo {
    OptionInfo { name, default, meaning }
}

/// Every option of the pool with its default and meaning.
pub const OPTIONS: &[OptionInfo] = &[
    option(
        "connections",
        "8",
        "fixed number of pipes, 1 to 1024; all but two may be leased, one of two, and none of one",
    ),
    option("max_in_flight", "256", "entries per pipe, 1 to 65,536; 1 switches pipelining off"),
    option("max_answer_bytes", "256 MiB", "one answer over this fails alone"),
    option("answer_budget", "1 GiB", "bytes of answers that the pool holds at a time"),
    option("queue_bytes", "4 MiB", "bytes per pipe that wait to be sent"),
    option("connect_timeout", "10 s", "name resolution, TCP, TLS, authentication and set-up together"),
    option(
        "query_timeout",
        "30 s",
        "shared queries and statements on leases, queueing included; streams and COPY: per step",
    ),
    option("acquire_timeout", "5 s", "waiting for a lease"),
    option(
        "stall_timeout",
        "10 s",
        "a pipe whose oldest answer is this far behind its query's deadline is replaced",
    ),
    option(
        "lease_report_after",
        "30 s",
        "a lease held for longer is reported once, as a warning of `tracing` with the place in the code that took it; 0 = never",
    ),
    option(
        "statement_cache",
        "256",
        "prepared statements per pipe, 0 to 65,536; 0 = no named statements (transaction poolers)",
    ),
    option(
        "max_lifetime",
        "30 min",
        "a pipe is replaced after this time ± 10 %, one at a time, after its successor is ready; 0 = never",
    ),
    option("setup", "none", "statements that every new pipe runs, and again after a reset"),
    option("password", "from config", "a value or an async provider (rotating tokens)"),
];

/// The table of the pool's options, for documentation. A macro, because attributes take no constants.
#[doc(hidden)]
#[macro_export]
macro_rules! option_table {
    () => {
        "\
| option | default | meaning |\n\
|---|---|---|\n\
| `connections` | 8 | fixed number of pipes, 1 to 1024; all but two may be leased, one of two, and none of one |\n\
| `max_in_flight` | 256 | entries per pipe, 1 to 65,536; 1 switches pipelining off |\n\
| `max_answer_bytes` | 256 MiB | one answer over this fails alone |\n\
| `answer_budget` | 1 GiB | bytes of answers that the pool holds at a time |\n\
| `queue_bytes` | 4 MiB | bytes per pipe that wait to be sent |\n\
| `connect_timeout` | 10 s | name resolution, TCP, TLS, authentication and set-up together |\n\
| `query_timeout` | 30 s | shared queries and statements on leases, queueing included; streams and COPY: per step |\n\
| `acquire_timeout` | 5 s | waiting for a lease |\n\
| `stall_timeout` | 10 s | a pipe whose oldest answer is this far behind its query's deadline is replaced |\n\
| `lease_report_after` | 30 s | a lease held for longer is reported once, as a warning of `tracing` with the place in the code that took it; 0 = never |\n\
| `statement_cache` | 256 | prepared statements per pipe, 0 to 65,536; 0 = no named statements (transaction poolers) |\n\
| `max_lifetime` | 30 min | a pipe is replaced after this time ± 10 %, one at a time, after its successor is ready; 0 = never |\n\
| `setup` | none | statements that every new pipe runs, and again after a reset |\n\
| `password` | from config | a value or an async provider (rotating tokens) |\n\
| `routing` | by least expected work | how the pipe for a query is chosen; set by the builders only |\n\
"
    };
}

const KIB: usize = 1 << 10;
const MIB: usize = KIB << 10;
const GIB: usize = MIB << 10;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const CONNECTIONS: RangeInclusive<usize> = 1..=1024;
const MAX_IN_FLIGHT: RangeInclusive<usize> = 1..=65_536;
const STATEMENT_CACHE: RangeInclusive<usize> = 0..=65_536;
const MAX_TIMEOUT: Duration = Duration::from_secs(7 * DAY.as_secs());
const MAX_LIFETIME: Duration = Duration::from_secs(365 * DAY.as_secs());

/// The pool's options.
///
#[doc = crate::option_table!()]
///
/// Durations are written as plain seconds or with a unit (`500ms`, `30s`, `10min`, `1h`, `1d`); timeouts lie
/// between 1 ms and 7 days, and there is no way to wait for ever. Sizes are written as plain bytes or with a
/// unit (`64kB`, `4MiB`, `1GiB`, powers of 1024) and are at least 1 byte.
#[derive(Clone)]
pub struct PoolOptions {
    connections: usize,
    max_in_flight: usize,
    max_answer_bytes: usize,
    answer_budget: usize,
    queue_bytes: usize,
    connect_timeout: Duration,
    query_timeout: Duration,
    acquire_timeout: Duration,
    stall_timeout: Duration,
    lease_report_after: Duration,
    statement_cache: usize,
    max_lifetime: Duration,
    setup: Vec<String>,
    routing: Routing,
    transport: Option<Transport>,
    seed: Option<u64>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            connections: 8,
            max_in_flight: 256,
            max_answer_bytes: 256 * MIB,
            answer_budget: GIB,
            queue_bytes: 4 * MIB,
            connect_timeout: Duration::from_secs(10),
            query_timeout: Duration::from_secs(30),
            acquire_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(10),
            lease_report_after: Duration::from_secs(30),
            statement_cache: 256,
            max_lifetime: Duration::from_secs(30 * 60),
            setup: Vec::new(),
            routing: Routing::default(),
            transport: None,
            seed: None,
        }
    }
}

impl PoolOptions {
    /// Number of pipes.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Entries per pipe.
    pub fn max_in_flight(&self) -> usize {
        self.max_in_flight
    }

    /// The largest answer, in bytes.
    pub fn max_answer_bytes(&self) -> usize {
        self.max_answer_bytes
    }

    /// Bytes of answers that the pool holds at a time.
    pub fn answer_budget(&self) -> usize {
        self.answer_budget
    }

    /// Bytes per pipe that wait to be sent.
    pub fn queue_bytes(&self) -> usize {
        self.queue_bytes
    }

    /// The time in which a pipe must be connected and set up.
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// The time in which a query must be answered, queueing included.
    pub fn query_timeout(&self) -> Duration {
        self.query_timeout
    }

    /// How long to wait for a lease.
    pub fn acquire_timeout(&self) -> Duration {
        self.acquire_timeout
    }

    /// How far the oldest answer of a pipe may be behind its query's deadline before the pipe is replaced.
    pub fn stall_timeout(&self) -> Duration {
        self.stall_timeout
    }

    /// After how long a lease is reported as held too long; `None` for never.
    pub fn lease_report_after(&self) -> Option<Duration> {
        (!self.lease_report_after.is_zero()).then_some(self.lease_report_after)
    }

    /// Prepared statements per pipe; 0 when statements are not named.
    pub fn statement_cache(&self) -> usize {
        self.statement_cache
    }

    /// After how long a pipe is replaced; `None` for never.
    pub fn max_lifetime(&self) -> Option<Duration> {
        (!self.max_lifetime.is_zero()).then_some(self.max_lifetime)
    }

    /// Statements that every new pipe runs.
    pub fn setup(&self) -> &[String] {
        &self.setup
    }

    /// What makes byte streams in place of TCP connections. Only the builders set it.
    pub fn transport(&self) -> Option<&Transport> {
        self.transport.as_ref()
    }

    /// The seed of the pool's random numbers; `None` takes one from the operating system. Only the builders set it.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Sets the option `name` from its text; `None` if the pool has no such option.
    #[doc(hidden)]
    pub fn set<S: ServerError>(&mut self, name: &str, value: &str) -> Option<Result<(), Error<S>>> {
        let seconds = |value| units::duration(name, value, Plain::Seconds);
        Some(match name {
            "connections" => store(&mut self.connections, units::count(name, value)),
            "max_in_flight" => store(&mut self.max_in_flight, units::count(name, value)),
            "max_answer_bytes" => store(&mut self.max_answer_bytes, units::bytes(name, value)),
            "answer_budget" => store(&mut self.answer_budget, units::bytes(name, value)),
            "queue_bytes" => store(&mut self.queue_bytes, units::bytes(name, value)),
            "connect_timeout" => store(&mut self.connect_timeout, seconds(value)),
            "query_timeout" => store(&mut self.query_timeout, seconds(value)),
            "acquire_timeout" => store(&mut self.acquire_timeout, seconds(value)),
            "stall_timeout" => store(&mut self.stall_timeout, seconds(value)),
            "lease_report_after" => store(&mut self.lease_report_after, seconds(value)),
            "statement_cache" => store(&mut self.statement_cache, units::count(name, value)),
            "max_lifetime" => store(&mut self.max_lifetime, seconds(value)),
            "setup" => {
                self.setup.push(value.to_owned());
                Ok(())
            }
            _ => return None,
        })
    }

    /// Whether every value lies in its range; the error names the option that does not, and the range.
    #[doc(hidden)]
    pub fn check<S: ServerError>(&self) -> Result<(), Error<S>> {
        check_count("connections", self.connections, &CONNECTIONS)?;
        check_count("max_in_flight", self.max_in_flight, &MAX_IN_FLIGHT)?;
        check_count("statement_cache", self.statement_cache, &STATEMENT_CACHE)?;
        let sizes = [
            ("max_answer_bytes", self.max_answer_bytes),
            ("answer_budget", self.answer_budget),
            ("queue_bytes", self.queue_bytes),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, bytes)| *bytes == 0) {
            return Err(invalid(format!("`{name}` must be at least 1 byte")));
        }
        let timeouts = [
            ("connect_timeout", self.connect_timeout),
            ("query_timeout", self.query_timeout),
            ("acquire_timeout", self.acquire_timeout),
            ("stall_timeout", self.stall_timeout),
        ];
        let allowed = Duration::from_millis(1)..=MAX_TIMEOUT;
        if let Some((name, _)) = timeouts.iter().find(|(_, time)| !allowed.contains(time)) {
            return Err(invalid(format!(
                "`{name}` must lie between 1 ms and 7 days; no wait is without a limit"
            )));
        }
        if !self.max_lifetime.is_zero()
            && !(Duration::from_secs(1)..=MAX_LIFETIME).contains(&self.max_lifetime)
        {
            return Err(invalid("`max_lifetime` must be 0 (never) or lie between 1 s and 365 days"));
        }
        if self.lease_report_after > MAX_LIFETIME {
            return Err(invalid("`lease_report_after` must be 0 (never) or at most 365 days"));
        }
        if self.setup.iter().any(|statement| statement.contains('\0')) {
            return Err(invalid("`setup` contains a NUL byte"));
        }
        Ok(())
    }
}

/// For the builders of the drivers: values are stored as they come, and checked when connecting.
macro_rules! setters {
    ($($setter:ident $field:ident: $type:ty;)+) => {
        impl PoolOptions {
            $(
                #[doc(hidden)]
                pub fn $setter(&mut self, value: $type) {
                    self.$field = value;
                }
            )+
        }
    };
}

setters! {
    set_connections connections: usize;
    set_max_in_flight max_in_flight: usize;
    set_max_answer_bytes max_answer_bytes: usize;
    set_answer_budget answer_budget: usize;
    set_queue_bytes queue_bytes: usize;
    set_connect_timeout connect_timeout: Duration;
    set_query_timeout query_timeout: Duration;
    set_acquire_timeout acquire_timeout: Duration;
    set_stall_timeout stall_timeout: Duration;
    set_lease_report_after lease_report_after: Duration;
    set_statement_cache statement_cache: usize;
    set_max_lifetime max_lifetime: Duration;
    set_setup setup: Vec<String>;
    set_routing routing: Routing;
    set_transport transport: Option<Transport>;
    set_seed seed: Option<u64>;
}

impl From<&PoolOptions> for crate::Options {
    fn from(options: &PoolOptions) -> Self {
        Self {
            connections: options.connections,
            max_in_flight: options.max_in_flight,
            max_answer_bytes: options.max_answer_bytes,
            answer_budget: options.answer_budget,
            queue_bytes: options.queue_bytes,
            connect_timeout: options.connect_timeout,
            query_timeout: options.query_timeout,
            acquire_timeout: options.acquire_timeout,
            stall_timeout: options.stall_timeout,
            lease_report_after: options.lease_report_after,
            max_lifetime: options.max_lifetime,
            batches_out: crate::options::BatchesOut::Adaptive,
            routing: options.routing,
            seed: options.seed,
        }
    }
}

fn store<T, S: ServerError>(field: &mut T, value: Result<T, Error<S>>) -> Result<(), Error<S>> {
    value.map(|value| *field = value)
}

fn check_count<S: ServerError>(
    name: &str,
    value: usize,
    range: &RangeInclusive<usize>,
) -> Result<(), Error<S>> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(invalid(format!("`{name}` must lie between {} and {}", range.start(), range.end())))
}

/// The names of the pool's options, for the message about an unknown one.
pub fn names() -> String {
    quoted_list(OPTIONS.iter().map(|option| option.name))
}

// By hand: a set-up statement may carry a secret.
impl fmt::Debug for PoolOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolOptions")
            .field("connections", &self.connections)
            .field("max_in_flight", &self.max_in_flight)
            .field("max_answer_bytes", &self.max_answer_bytes)
            .field("answer_budget", &self.answer_budget)
            .field("queue_bytes", &self.queue_bytes)
            .field("connect_timeout", &self.connect_timeout)
            .field("query_timeout", &self.query_timeout)
            .field("acquire_timeout", &self.acquire_timeout)
            .field("stall_timeout", &self.stall_timeout)
            .field("lease_report_after", &self.lease_report_after)
            .field("statement_cache", &self.statement_cache)
            .field("max_lifetime", &self.max_lifetime)
            .field("setup", &format_args!("{} statements", self.setup.len()))
            .field("routing", &self.routing)
            .field("transport", &self.transport)
            .field("seed", &self.seed)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::config::tests::Fault;

    fn set(options: &mut PoolOptions, name: &str, value: &str) {
        options.set(name, value).unwrap().unwrap_or_else(|error: Fault| panic!("{error}"));
    }

    fn check(options: &PoolOptions) -> Result<(), Fault> {
        options.check()
    }

    #[test]
    fn the_table_states_the_defaults_in_code() {
        let defaults = format!("{:?}", PoolOptions::default());
        for OptionInfo { name, default, .. } in OPTIONS {
            if matches!(*default, "none" | "from config") {
                continue;
            }
            // Far from every default, so that a setting which does nothing shows.
            let mut options = PoolOptions::default();
            set(&mut options, name, "77");
            assert_ne!(format!("{options:?}"), defaults, "{name}");
            set(&mut options, name, default);
            assert_eq!(format!("{options:?}"), defaults, "{name}");
        }
        assert!(PoolOptions::default().setup().is_empty());
    }

    #[test]
    fn the_documented_table_is_this_table() {
        let mut table = "| option | default | meaning |\n|---|---|---|\n".to_owned();
        for OptionInfo { name, default, meaning } in OPTIONS {
            writeln!(table, "| `{name}` | {default} | {meaning} |").unwrap();
        }
        assert_eq!(crate::option_table!(), table);
    }

    #[test]
    fn values_out_of_range_are_named_with_their_range() {
        let cases = [
            ("connections", "0", "between 1 and 1024"),
            ("connections", "1025", "between 1 and 1024"),
            ("max_in_flight", "0", "between 1 and 65536"),
            ("statement_cache", "65537", "between 0 and 65536"),
            ("max_answer_bytes", "0", "at least 1 byte"),
            ("answer_budget", "0", "at least 1 byte"),
            ("queue_bytes", "0", "at least 1 byte"),
            ("connect_timeout", "0", "between 1 ms and 7 days"),
            ("query_timeout", "8d", "between 1 ms and 7 days"),
            ("acquire_timeout", "0ms", "between 1 ms and 7 days"),
            ("max_lifetime", "10ms", "0 (never) or lie between 1 s and 365 days"),
        ];
        for (name, value, range) in cases {
            let mut options = PoolOptions::default();
            set(&mut options, name, value);
            let error = check(&options).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(range), "{name}={value}: {error}");
        }
    }

    #[test]
    fn zero_means_never_for_the_lifetime() {
        let mut options = PoolOptions::default();
        assert_eq!(options.max_lifetime(), Some(Duration::from_secs(1800)));
        set(&mut options, "max_lifetime", "0");
        check(&options).unwrap();
        assert_eq!(options.max_lifetime(), None);
    }
}
