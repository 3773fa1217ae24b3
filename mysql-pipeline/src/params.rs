//! What can be given for a statement's parameters, and how it is encoded.
//!
//! Encoding runs in the task that asks, before anything is queued: a `ToSql` that fails, or is slow, or panics,
//! harms nobody else. The shapes that parameters may have are written in the engine; the trait and `params!` are
//! written again in `pg-pipeline` on purpose, for its own [`ToSql`].

use bytes::{BufMut, BytesMut};

use crate::error::{ErrorKind, Fault, Outcome};
use crate::protocol::command::Bound;
use crate::types::{ParameterType, ToSql};

/// Parameters of one statement: `()`, tuples of up to 16 values, slices, arrays and `Vec`s of
/// `&(dyn ToSql + Sync)` or of boxed values, and [`params!`](crate::params).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as parameters",
    note = "give a tuple of up to 16 values (one value: `(value,)`), `params![…]`, or a slice of `&(dyn ToSql + Sync)`"
)]
pub trait Params: Send {
    /// How many parameters there are.
    fn count(&self) -> usize;

    /// Hands each parameter over, in order, until one fails.
    fn each<'a>(
        &'a self,
        take: &mut dyn FnMut(&'a dyn ToSql) -> Result<(), crate::Error>,
    ) -> Result<(), crate::Error>;
}

/// Parameters as `&(dyn ToSql + Sync)`, for more than 16 or for a number known at run time.
///
/// ```
/// # use mysql_pipeline::params;
/// let (name, age) = ("Ada", 36);
/// let parameters = params![name, age];
/// assert_eq!(parameters.len(), 2);
/// ```
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        [$(&$value as &(dyn $crate::types::ToSql + ::core::marker::Sync)),*]
    };
}

/// The most parameters that the protocol can count.
/// Source: MySQL internals, `COM_STMT_PREPARE_OK`, `num_params` (two bytes).
pub(crate) const MOST: usize = 65_535;

/// The largest packet that any server takes. Source: MySQL manual, `max_allowed_packet`.
const LARGEST: usize = 1 << 30;

/// Encodes parameters as `COM_STMT_EXECUTE` has them: NULL bitmap, 1 ("types follow"), types, values.
///
/// Source: MySQL internals, `COM_STMT_EXECUTE`.
pub(crate) fn encode<P: Params + ?Sized>(params: &P) -> Result<Bound, Fault> {
    let count = params.count();
    let Ok(counted) = u16::try_from(count) else {
        return Err(refuse(format!(
            "{count} parameters were given, and the protocol takes at most {MOST}; insert fewer rows at a time"
        )));
    };
    if count == 0 {
        return Ok(Bound::default());
    }
    let bitmap = count.div_ceil(8);
    let head = bitmap + 1 + 2 * count;
    let mut out = BytesMut::with_capacity(head + 9 * count);
    // What the types are is known when the values are written; they have their place before.
    out.put_bytes(0, head);
    let mut nulls = vec![0_u8; bitmap];
    let mut types = Vec::with_capacity(2 * count);
    let mut number = 0_usize;
    params
        .each(&mut |value| {
            let r#type = value.parameter_type();
            if r#type == ParameterType::Null {
                if let Some(byte) = nulls.get_mut(number / 8) {
                    *byte |= 1 << (number % 8);
                }
            } else {
                value.to_sql(&mut out).map_err(|error| {
                    refuse(format!("parameter {} cannot be encoded", number + 1)).with_source(error)
                })?;
            }
            types.extend_from_slice(&r#type.bytes());
            number += 1;
            if out.len() > LARGEST {
                return Err(refuse(format!(
                    "the parameters up to the {number}th are larger than the 1 GiB that any server takes"
                ))
                .into());
            }
            Ok(())
        })
        .map_err(crate::Error::into_fault)?;
    if number != count {
        return Err(refuse(format!("the parameters said to be {count} and were {number}")));
    }
    let (head, _) = out.split_at_mut(head);
    let (bits, rest) = head.split_at_mut(bitmap);
    bits.copy_from_slice(&nulls);
    if let Some((follow, places)) = rest.split_first_mut() {
        *follow = 1;
        places.copy_from_slice(&types);
    }
    Ok(Bound { count: counted, bytes: out.freeze() })
}

fn refuse(message: String) -> Fault {
    Fault::new(ErrorKind::Encode, Outcome::NotSent, message)
}

wire_pipeline::parameter_shapes! { Params of ToSql, crate::Error }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_bitmap_and_types() {
        let bound = encode(&(7_i32, "x", None::<i64>)).expect("encodes");
        assert_eq!(bound.count, 3);
        assert_eq!(
            &bound.bytes[..],
            [
                &[0b100][..],              // the third is NULL
                &[1],                      // types follow
                &[8, 0, 253, 0, 6, 0],     // LONGLONG, VAR_STRING, NULL
                &[7, 0, 0, 0, 0, 0, 0, 0], // 7
                &[1, b'x'],                // text behind its length
            ]
            .concat()
        );
        assert_eq!(encode(&(u64::MAX,)).expect("encodes").bytes[2..4], [8, 0x80], "unsigned");
        assert_eq!(encode(&(7_u64,)).expect("encodes").bytes[2..4], [8, 0]);
    }

    #[test]
    fn every_shape_of_parameters_encodes_the_same() {
        let expected = encode(&(7_i32, "x")).expect("tuple");
        let (n, text) = (7_i32, "x");
        assert_eq!(encode(&params![n, text]).expect("macro"), expected);
        assert_eq!(encode(&&params![n, text][..]).expect("slice"), expected);
        let refs: Vec<&(dyn ToSql + Sync)> = vec![&n, &text];
        assert_eq!(encode(&refs).expect("refs"), expected);
        let boxes: Vec<Box<dyn ToSql + Send + Sync>> = vec![Box::new(n), Box::new(text)];
        assert_eq!(encode(&boxes).expect("boxes"), expected);
        assert_eq!(encode(&()).expect("none"), Bound::default());
    }

    #[test]
    fn more_than_the_protocol_counts_are_refused() {
        let one = 1_i8;
        let most: Vec<&(dyn ToSql + Sync)> = vec![&one; MOST];
        assert_eq!(encode(&most).expect("as many as it can").count, u16::MAX);
        let more: Vec<&(dyn ToSql + Sync)> = vec![&one; MOST + 1];
        let error = encode(&more).expect_err("one too many");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
        assert!(error.to_string().contains("at most 65535"), "{error}");
    }

    #[test]
    fn a_value_that_fails_is_named_and_nothing_is_sent() {
        #[derive(Debug)]
        struct Fails;
        impl ToSql for Fails {
            fn parameter_type(&self) -> ParameterType {
                ParameterType::Int
            }

            fn to_sql(&self, _: &mut BytesMut) -> Result<(), Box<dyn std::error::Error + Sync + Send>> {
                Err("not today".into())
            }
        }
        let error = encode(&(1, Fails)).expect_err("fails");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Encode, Outcome::NotSent));
        assert!(error.to_string().contains("parameter 2"), "{error}");
    }
}
