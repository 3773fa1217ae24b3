//! What can be given for a statement's parameters, and how it is encoded.
//!
//! Encoding runs in the task that asks, before anything is queued: a `ToSql` that fails, or is slow, or panics,
//! harms nobody else. The shapes that parameters may have are written in the engine; the trait and `params!` are
//! written again in `mysql-pipeline` on purpose, for its own [`ToSql`].

use std::cell::Cell;

use bytes::{BufMut, Bytes, BytesMut};
use postgres_types::{Format, IsNull, ToSql, Type};

use crate::error::{ErrorKind, Fault, Outcome};

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
/// # use pg_pipeline::params;
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
/// Source: PostgreSQL documentation, Message Formats, Bind (Int16, taken as unsigned by the server).
pub(crate) const MOST: usize = 65_535;

/// The largest message that the server takes (`PQ_LARGE_MESSAGE_LIMIT`, `MaxAllocSize` in its sources).
const LARGEST: usize = 0x3fff_ff00;

/// Encodes parameters into the middle of a Bind message: formats, count and values.
///
/// Source: PostgreSQL documentation, Message Formats, Bind.
pub(crate) fn encode<P: Params + ?Sized>(params: &P, types: &[Type]) -> Result<Bytes, Fault> {
    check_count(params.count())?;
    if params.count() != types.len() {
        return Err(refuse(format!(
            "the statement takes {} parameters, and {} were given",
            types.len(),
            params.count()
        )));
    }
    // Taken out while the values' own code runs: that may encode parameters itself.
    let mut out = SCRATCH.take();
    out.clear();
    put_formats(params, types, &mut out)?;
    out.put_u16(types.len() as u16);
    let mut index = 0;
    params
        .each(&mut |value| {
            let Some(r#type) = types.get(index) else { return Ok(()) };
            index += 1;
            put_value(value, r#type, index, &mut out).map_err(crate::Error::from)
        })
        .map_err(crate::Error::into_fault)?;
    if index != types.len() {
        return Err(refuse(format!("the parameters said to be {} and were {index}", types.len())));
    }
    if out.len() > MOST_SCRATCH {
        return Ok(out.freeze());
    }
    let bound = Bytes::copy_from_slice(&out);
    SCRATCH.set(out);
    Ok(bound)
}

thread_local! {
    /// Small parameters are encoded here and copied out, so that each takes one allocation of its own size.
    static SCRATCH: Cell<BytesMut> = Cell::default();
}

/// Parameters that are larger keep the buffer in which they were encoded.
const MOST_SCRATCH: usize = 4 * 1024;

/// More parameters than the protocol can count are refused before anything is sent.
pub(crate) fn check_count(count: usize) -> Result<(), Fault> {
    if count <= MOST {
        return Ok(());
    }
    Err(refuse(format!(
        "{count} parameters were given, and the protocol takes at most {MOST}; pass arrays instead of single values"
    )))
}

fn put_formats<P: Params + ?Sized>(params: &P, types: &[Type], out: &mut BytesMut) -> Result<(), Fault> {
    let mut formats = types.iter();
    let mut all_binary = true;
    let mut look = |value: &dyn ToSql| {
        all_binary &=
            formats.next().is_none_or(|r#type| matches!(value.encode_format(r#type), Format::Binary));
        Ok(())
    };
    params.each(&mut look).map_err(crate::Error::into_fault)?;
    if all_binary {
        // One code for all of them.
        out.put_u16(1);
        out.put_u16(1);
        return Ok(());
    }
    out.put_u16(types.len() as u16);
    let mut formats = types.iter();
    params
        .each(&mut |value| {
            if let Some(r#type) = formats.next() {
                out.put_u16(u16::from(matches!(value.encode_format(r#type), Format::Binary)));
            }
            Ok(())
        })
        .map_err(crate::Error::into_fault)
}

fn put_value(value: &dyn ToSql, r#type: &Type, number: usize, out: &mut BytesMut) -> Result<(), Fault> {
    let start = out.len();
    out.put_i32(-1);
    let null = value.to_sql_checked(r#type, out).map_err(|error| {
        Fault::new(
            ErrorKind::Encode,
            Outcome::NotSent,
            format!("parameter ${number} cannot be encoded as {}", r#type.name()),
        )
        .with_source(error)
    })?;
    if out.len() > LARGEST {
        return Err(refuse(format!(
            "the parameters up to ${number} are larger than the 1 GB that the server takes"
        )));
    }
    match null {
        IsNull::Yes => out.truncate(start + 4),
        IsNull::No if is_text(r#type) && out[start + 4..].contains(&0) => {
            return Err(refuse(format!(
                "parameter ${number} contains a NUL character, which no text of PostgreSQL can; use bytea"
            )));
        }
        IsNull::No => {
            let length = (out.len() - start - 4) as u32;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(())
}

/// Types whose binary form is their text.
fn is_text(r#type: &Type) -> bool {
    [Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME, Type::JSON, Type::XML].contains(r#type)
}

fn refuse(message: String) -> Fault {
    Fault::new(ErrorKind::Encode, Outcome::NotSent, message)
}

wire_pipeline::parameter_shapes! { Params of ToSql, crate::Error }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_one_format_for_all() {
        let bytes =
            encode(&(7_i32, "x", None::<i64>), &[Type::INT4, Type::TEXT, Type::INT8]).expect("encodes");
        assert_eq!(
            &bytes[..],
            [
                &[0, 1, 0, 1][..],         // one format code: binary
                &[0, 3],                   // three values
                &[0, 0, 0, 4, 0, 0, 0, 7], // int4
                &[0, 0, 0, 1, b'x'],       // text
                &[0xff, 0xff, 0xff, 0xff], // NULL
            ]
            .concat()
        );
    }

    #[test]
    fn what_does_not_fit_is_named_and_nothing_is_sent() {
        let wrong_count = encode(&(1_i32,), &[]).expect_err("too many");
        assert_eq!(wrong_count.to_string(), "the statement takes 0 parameters, and 1 were given");
        let wrong_type = encode(&("x",), &[Type::INT4]).expect_err("wrong type");
        assert!(wrong_type.to_string().contains("$1 cannot be encoded as int4"), "{wrong_type}");
        assert_eq!((wrong_type.kind(), wrong_type.outcome()), (ErrorKind::Encode, Outcome::NotSent));
        let nul = encode(&("a\0b",), &[Type::TEXT]).expect_err("no text");
        assert_eq!((nul.kind(), nul.outcome()), (ErrorKind::Encode, Outcome::NotSent), "{nul}");
        assert!(encode(&(&b"a\0b"[..],), &[Type::BYTEA]).is_ok());
        assert!(check_count(65_535).is_ok());
        assert!(check_count(65_536).expect_err("one too many").to_string().contains("at most 65535"));
    }

    #[test]
    fn every_shape_of_parameters_encodes_the_same() {
        let types = [Type::INT4, Type::TEXT];
        let expected = encode(&(7_i32, "x"), &types).expect("tuple");
        let (n, text) = (7_i32, "x");
        assert_eq!(encode(&params![n, text], &types).expect("macro"), expected);
        assert_eq!(encode(&&params![n, text][..], &types).expect("slice"), expected);
        let refs: Vec<&(dyn ToSql + Sync)> = vec![&n, &text];
        assert_eq!(encode(&refs, &types).expect("refs"), expected);
        let boxes: Vec<Box<dyn ToSql + Send + Sync>> = vec![Box::new(n), Box::new(text)];
        assert_eq!(encode(&boxes, &types).expect("boxes"), expected);
        assert_eq!(&encode(&(), &[]).expect("none")[..], [0, 1, 0, 1, 0, 0]);
    }
}
