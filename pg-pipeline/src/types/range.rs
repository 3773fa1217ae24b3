//! Ranges and multiranges of any type that has them, the user's own too.
//!
//! Source of the formats: `range_send` and `multirange_send` in PostgreSQL's sources.

use std::error::Error as StdError;
use std::ops::Bound;

use bytes::{Buf as _, BufMut as _, BytesMut};
use postgres_types::{FromSql, IsNull, Kind, ToSql, Type, to_sql_checked};

type BoxError = Box<dyn StdError + Sync + Send>;

/// A range: nothing at all, or what is between two bounds. The server brings ranges of integers and dates into the form
/// `[a,b)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Range<T> {
    /// `empty`.
    Empty,
    /// From the first bound to the second.
    Between(Bound<T>, Bound<T>),
}

impl<T> From<std::ops::Range<T>> for Range<T> {
    fn from(range: std::ops::Range<T>) -> Self {
        Self::Between(Bound::Included(range.start), Bound::Excluded(range.end))
    }
}

impl<T> From<std::ops::RangeInclusive<T>> for Range<T> {
    fn from(range: std::ops::RangeInclusive<T>) -> Self {
        let (start, end) = range.into_inner();
        Self::Between(Bound::Included(start), Bound::Included(end))
    }
}

impl<T> From<std::ops::RangeFrom<T>> for Range<T> {
    fn from(range: std::ops::RangeFrom<T>) -> Self {
        Self::Between(Bound::Included(range.start), Bound::Unbounded)
    }
}

impl<T> From<std::ops::RangeTo<T>> for Range<T> {
    fn from(range: std::ops::RangeTo<T>) -> Self {
        Self::Between(Bound::Unbounded, Bound::Excluded(range.end))
    }
}

impl<T> From<std::ops::RangeFull> for Range<T> {
    fn from(_: std::ops::RangeFull) -> Self {
        Self::Between(Bound::Unbounded, Bound::Unbounded)
    }
}

/// Ranges in their order, with gaps between them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Multirange<T>(pub Vec<Range<T>>);

const EMPTY: u8 = 0x01;
const LOWER_INCLUDED: u8 = 0x02;
const UPPER_INCLUDED: u8 = 0x04;
const LOWER_UNBOUNDED: u8 = 0x08;
const UPPER_UNBOUNDED: u8 = 0x10;

fn broken() -> BoxError {
    "a range that ends early, or goes on behind its end".into()
}

/// A value behind its length.
fn take<'a>(raw: &mut &'a [u8]) -> Result<&'a [u8], BoxError> {
    let (length, rest) = raw.split_first_chunk::<4>().ok_or_else(broken)?;
    let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| broken())?;
    let (value, rest) = rest.split_at_checked(length).ok_or_else(broken)?;
    *raw = rest;
    Ok(value)
}

/// Writes a value behind its length.
fn put(
    out: &mut BytesMut,
    write: impl FnOnce(&mut BytesMut) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    let start = out.len();
    out.put_i32(0);
    write(out)?;
    let length = i32::try_from(out.len() - start - 4)?;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

impl<T> Range<T> {
    fn read<'a>(element: &Type, mut raw: &'a [u8]) -> Result<Self, BoxError>
    where
        T: FromSql<'a>,
    {
        if raw.is_empty() {
            return Err(broken());
        }
        let flags = raw.get_u8();
        if flags & EMPTY != 0 {
            return if raw.is_empty() { Ok(Self::Empty) } else { Err(broken()) };
        }
        let mut bound = |unbounded, included| -> Result<Bound<T>, BoxError> {
            if flags & unbounded != 0 {
                return Ok(Bound::Unbounded);
            }
            let value = T::from_sql(element, take(&mut raw)?)?;
            Ok(if flags & included != 0 { Bound::Included(value) } else { Bound::Excluded(value) })
        };
        let (lower, upper) =
            (bound(LOWER_UNBOUNDED, LOWER_INCLUDED)?, bound(UPPER_UNBOUNDED, UPPER_INCLUDED)?);
        if raw.is_empty() { Ok(Self::Between(lower, upper)) } else { Err(broken()) }
    }

    fn write(&self, element: &Type, out: &mut BytesMut) -> Result<(), BoxError>
    where
        T: ToSql,
    {
        let Self::Between(lower, upper) = self else {
            out.put_u8(EMPTY);
            return Ok(());
        };
        let flags = |bound: &Bound<T>, included, unbounded| match bound {
            Bound::Included(_) => included,
            Bound::Excluded(_) => 0,
            Bound::Unbounded => unbounded,
        };
        out.put_u8(
            flags(lower, LOWER_INCLUDED, LOWER_UNBOUNDED) | flags(upper, UPPER_INCLUDED, UPPER_UNBOUNDED),
        );
        for bound in [lower, upper] {
            if let Bound::Included(value) | Bound::Excluded(value) = bound {
                put(out, |out| match value.to_sql(element, out)? {
                    IsNull::No => Ok(()),
                    IsNull::Yes => {
                        Err("a range's bound cannot be NULL; leave it out (`Bound::Unbounded`)".into())
                    }
                })?;
            }
        }
        Ok(())
    }
}

impl<'a, T: FromSql<'a>> FromSql<'a> for Range<T> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        let Kind::Range(element) = ty.kind() else { return Err(broken()) };
        Self::read(element, raw)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Range(element) if T::accepts(element))
    }
}

impl<T: ToSql> ToSql for Range<T> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        let Kind::Range(element) = ty.kind() else { return Err(broken()) };
        self.write(element, out)?;
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Range(element) if T::accepts(element))
    }

    to_sql_checked!();
}

impl<'a, T: FromSql<'a>> FromSql<'a> for Multirange<T> {
    fn from_sql(ty: &Type, mut raw: &'a [u8]) -> Result<Self, BoxError> {
        let Kind::Multirange(element) = ty.kind() else { return Err(broken()) };
        let (count, rest) = raw.split_first_chunk::<4>().ok_or_else(broken)?;
        let count = usize::try_from(i32::from_be_bytes(*count)).map_err(|_| broken())?;
        raw = rest;
        // Each takes five bytes at least: what is only announced takes no memory.
        if count > raw.len() / 5 {
            return Err(broken());
        }
        let ranges = (0..count).map(|_| Range::read(element, take(&mut raw)?)).collect::<Result<_, _>>()?;
        if raw.is_empty() { Ok(Self(ranges)) } else { Err(broken()) }
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Multirange(element) if T::accepts(element))
    }
}

impl<T: ToSql> ToSql for Multirange<T> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        let Kind::Multirange(element) = ty.kind() else { return Err(broken()) };
        out.put_i32(i32::try_from(self.0.len())?);
        for each in &self.0 {
            put(out, |out| each.write(element, out))?;
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Multirange(element) if T::accepts(element))
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sent_as_the_server_sends_them_and_no_bytes_make_them_panic() {
        let mut out = BytesMut::new();
        let range: Range<i32> = (1..5).into();
        range.to_sql(&Type::INT4_RANGE, &mut out).expect("encodes");
        assert_eq!(out[..], [0x02, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 5]);
        assert_eq!(Range::from_sql(&Type::INT4_RANGE, &out).expect("decodes"), range);
        for end in 0..out.len() {
            assert!(Range::<i32>::from_sql(&Type::INT4_RANGE, &out[..end]).is_err(), "{end}");
        }
        let mut several = BytesMut::new();
        let ranges = Multirange(vec![range, (7..).into()]);
        ranges.to_sql(&Type::INT4MULTI_RANGE, &mut several).expect("encodes");
        assert_eq!(Multirange::from_sql(&Type::INT4MULTI_RANGE, &several).expect("decodes"), ranges);
        for at in 0..several.len() {
            for byte in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut changed = several.clone();
                changed[at] = byte;
                let _ = Multirange::<i32>::from_sql(&Type::INT4MULTI_RANGE, &changed);
            }
        }
        assert!(Multirange::<i32>::from_sql(&Type::INT4MULTI_RANGE, &[0x7F, 0xFF, 0xFF, 0xFF]).is_err());
        assert!(
            <Range<i32> as ToSql>::accepts(&Type::INT4_RANGE)
                && !<Range<i32> as ToSql>::accepts(&Type::INT8_RANGE)
        );
    }
}
