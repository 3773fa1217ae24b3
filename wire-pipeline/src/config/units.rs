//! How option values are written: whole numbers, switches, durations and sizes.
//!
//! This module may know an option's name, for its errors; it must not know what the option means. No error
//! repeats the value: what ended up in it may be a piece of a password.

use std::str::FromStr;
use std::time::Duration;

use super::invalid;
use crate::error::{Error, ServerError};

/// The unit of a duration that is written as a plain number.
#[derive(Debug, Clone, Copy)]
pub enum Plain {
    /// As every option of the pool.
    Seconds,
    /// As some servers' own options.
    Milliseconds,
}

const MILLISECOND: u64 = 1;
const SECOND: u64 = 1000;

/// A whole number without a unit.
pub fn count<T: FromStr, S: ServerError>(option: &str, value: &str) -> Result<T, Error<S>> {
    value.trim().parse().map_err(|_| invalid(format!("`{option}` must be a whole number in its range")))
}

/// A switch, as databases write it.
pub fn flag<S: ServerError>(option: &str, value: &str) -> Result<bool, Error<S>> {
    match value.trim() {
        "1" | "on" | "true" | "yes" => Ok(true),
        "0" | "off" | "false" | "no" => Ok(false),
        _ => Err(invalid(format!("`{option}` must be 1 or 0 (or on, off, true, false, yes, no)"))),
    }
}

/// A duration: a plain number, or a number with `ms`, `s`, `min`, `h` or `d`, the units of `postgresql.conf`.
pub fn duration<S: ServerError>(option: &str, value: &str, plain: Plain) -> Result<Duration, Error<S>> {
    let wrong = || {
        let unit = match plain {
            Plain::Seconds => "seconds",
            Plain::Milliseconds => "milliseconds",
        };
        invalid(format!(
            "`{option}` must be a number of {unit}, or a number with a unit: 500ms, 30s, 10min, 1h or 1d"
        ))
    };
    let (number, unit) = split_number(value).ok_or_else(wrong)?;
    let milliseconds = match (unit, plain) {
        ("", Plain::Milliseconds) | ("ms", _) => MILLISECOND,
        ("", Plain::Seconds) | ("s", _) => SECOND,
        ("min", _) => 60 * SECOND,
        ("h", _) => 60 * 60 * SECOND,
        ("d", _) => 24 * 60 * 60 * SECOND,
        _ => return Err(wrong()),
    };
    number.checked_mul(milliseconds).map(Duration::from_millis).ok_or_else(wrong)
}

/// A size in bytes: a plain number, or a number with a unit. As in `postgresql.conf` every unit is a power
/// of 1024, so that `4MB` and `4MiB` are the same.
pub fn bytes<S: ServerError>(option: &str, value: &str) -> Result<usize, Error<S>> {
    let wrong = || {
        invalid(format!("`{option}` must be a number of bytes, or a number with a unit: 64kB, 4MiB, 1GiB"))
    };
    let (number, unit) = split_number(value).ok_or_else(wrong)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" | "kib" => 1 << 10,
        "mb" | "mib" => 1 << 20,
        "gb" | "gib" => 1 << 30,
        "tb" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(wrong)
}

/// The leading digits and what follows them, blanks in between allowed.
fn split_number(value: &str) -> Option<(u64, &str)> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    Some((number.parse().ok()?, unit.trim_start()))
}

/// Zero leaves a value to the operating system.
pub fn nonzero(value: Duration) -> Option<Duration> {
    (!value.is_zero()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::NoServer;

    #[test]
    fn durations_take_plain_numbers_and_units() {
        let cases = [
            ("10", Plain::Seconds, 10_000),
            ("10", Plain::Milliseconds, 10),
            (" 500ms ", Plain::Seconds, 500),
            ("30s", Plain::Milliseconds, 30_000),
            ("10min", Plain::Seconds, 600_000),
            ("30 min", Plain::Seconds, 1_800_000),
            ("2h", Plain::Seconds, 7_200_000),
            ("1d", Plain::Seconds, 86_400_000),
            ("0", Plain::Seconds, 0),
        ];
        for (text, plain, milliseconds) in cases {
            assert_eq!(
                duration::<NoServer>("t", text, plain).unwrap(),
                Duration::from_millis(milliseconds),
                "{text}"
            );
        }
        for text in
            ["", "s", "-1", "1.5s", "10 minutes", "18446744073709551615", "99999999999999999999", "1s1", "1é"]
        {
            let error = duration::<NoServer>("query_timeout", text, Plain::Seconds).unwrap_err().to_string();
            assert!(error.contains("`query_timeout`"), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_take_plain_numbers_and_units() {
        for (text, size) in [
            ("0", 0),
            ("17", 17),
            ("17B", 17),
            ("64kB", 65_536),
            ("4MiB", 4 << 20),
            ("4mb", 4 << 20),
            ("1 GiB", 1 << 30),
        ] {
            assert_eq!(bytes::<NoServer>("b", text).unwrap(), size, "{text}");
        }
        for text in ["", "MiB", "-1", "1.5MiB", "4 apples", "99999999TiB", "18446744073709551616"] {
            let error = bytes::<NoServer>("queue_bytes", text).unwrap_err().to_string();
            assert!(error.contains("`queue_bytes`"), "{text}: {error}");
        }
    }

    #[test]
    fn switches_take_both_spellings() {
        assert!(flag::<NoServer>("keepalives", "1").unwrap());
        assert!(!flag::<NoServer>("keepalives", "off").unwrap());
        assert!(flag::<NoServer>("keepalives", "2").is_err());
    }
}
