//! A statement with its parameters as one text, for servers that have no room for prepared statements (1461), and for
//! statements that have no prepared form (1295).
//!
//! No value can become anything but a value: texts and bytes are written in hexadecimal, everything else in digits.

use std::fmt::Write as _;

use super::class::find_outside;
use crate::protocol::command::Bound;
use crate::types::{Type, Value};

/// The text with its parameters in place of their marks; `None` where that cannot be done for sure: when the marks are
/// not as many as the parameters, or a backslash makes it depend on `sql_mode` where a quoted text ends.
pub(crate) fn fill(text: &str, bound: &Bound) -> Option<String> {
    if bound.count == 0 {
        return Some(text.to_owned());
    }
    if text.contains('\\') {
        return None;
    }
    let count = usize::from(bound.count);
    let (nulls, rest) = bound.bytes.split_at_checked(count.div_ceil(8))?;
    let (types, mut values) = rest.get(1..)?.split_at_checked(2 * count)?;
    let mut filled = String::with_capacity(text.len() + 2 * values.len());
    let mut rest = text;
    for (index, code) in types.chunks_exact(2).enumerate() {
        let (before, behind) = rest.split_at_checked(find_outside(rest, b'?'))?;
        filled.push_str(before);
        rest = behind.strip_prefix('?')?;
        if code.first() == Some(&Type::NULL) || nulls.get(index / 8)? & (1 << (index % 8)) != 0 {
            filled.push_str("NULL");
            continue;
        }
        let [code, flag] = *code else { return None };
        // A parameter's sign is a flag of its own; text is what is not sent as bytes.
        let r#type = Type::new(code, if flag == 0 { 0 } else { 0x20 }, 0);
        let (value, behind) = values.split_at_checked(r#type.binary_len(values)?)?;
        values = behind;
        put(r#type, r#type.read_binary(value)?, &mut filled)?;
    }
    if find_outside(rest, b'?') < rest.len() {
        return None;
    }
    filled.push_str(rest);
    Some(filled)
}

fn put(r#type: Type, value: Value<'_>, out: &mut String) -> Option<()> {
    // Writing to a `String` does not fail.
    let _ = match value {
        Value::Int(number) => write!(out, "{number}"),
        Value::UInt(number) => write!(out, "{number}"),
        // With an exponent it is no decimal number.
        Value::Float(number) if number.is_finite() => write!(out, "{number:e}"),
        Value::Double(number) if number.is_finite() => write!(out, "{number:e}"),
        Value::Float(_) | Value::Double(_) => return None,
        Value::Bytes(text) if r#type.code() == Type::DECIMAL => {
            let number: crate::types::Decimal = std::str::from_utf8(text).ok()?.parse().ok()?;
            write!(out, "{number}")
        }
        Value::Bytes(bytes) => {
            out.push_str(if r#type.name() == "VARCHAR" { "_utf8mb4 X'" } else { "X'" });
            for byte in bytes {
                let _ = write!(out, "{byte:02X}");
            }
            out.write_str("'")
        }
        Value::Date(date) => write!(out, "'{date}'"),
        Value::DateTime(date_time) => write!(out, "'{date_time}'"),
        Value::Time(time) => write!(out, "'{time}'"),
    };
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params;
    use crate::types::Date;

    fn filled(text: &str, params: &impl params::Params) -> Option<String> {
        fill(text, &params::encode(params).expect("encodes"))
    }

    #[test]
    fn values_stand_where_their_marks_were() {
        let date = Date { year: 2026, month: 11, day: 30 };
        assert_eq!(
            filled(
                "SELECT ?, ?, ?, ?, ?, ?, ?",
                &(-7, u64::MAX, "a'b", &b"\x00"[..], None::<i32>, 0.5_f64, date)
            )
            .as_deref(),
            Some("SELECT -7, 18446744073709551615, _utf8mb4 X'612762', X'00', NULL, 5e-1, '2026-11-30'")
        );
        assert_eq!(
            filled("SELECT '?', `?`, \"?\", ? -- ?\n /* ? */ # ?", &(1,)).as_deref(),
            Some("SELECT '?', `?`, \"?\", 1 -- ?\n /* ? */ # ?")
        );
        assert_eq!(filled("DO 1", &()).as_deref(), Some("DO 1"));
    }

    #[test]
    fn what_is_not_sure_is_not_done() {
        assert_eq!(filled("SELECT ?", &(1, 2)), None);
        assert_eq!(filled("SELECT ?, ?", &(1,)), None);
        assert_eq!(filled("SELECT '\\', ?", &(1,)), None);
        assert_eq!(filled("SELECT ?", &(f64::NAN,)), None);
    }
}
