//! Types with a form of their own, and no more than that: money, bits, points and their like.

use std::error::Error as StdError;
use std::fmt;
use std::str::FromStr;

use bytes::{Buf as _, BufMut as _, BytesMut};
use postgres_types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

type BoxError = Box<dyn StdError + Sync + Send>;

/// `money`: an amount in the smallest unit of the currency of `lc_monetary`, such as cents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Money(pub i64);

impl<'a> FromSql<'a> for Money {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?)))
    }

    accepts!(MONEY);
}

impl ToSql for Money {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_i64(self.0);
        Ok(IsNull::No)
    }

    accepts!(MONEY);
    to_sql_checked!();
}

/// `bit` and `varbit`: bits in a row. Shown and read as `0` and `1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Bits(pub Vec<bool>);

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|bit| f.write_str(if *bit { "1" } else { "0" }))
    }
}

/// The text has other characters than `0` and `1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoBits;

impl fmt::Display for NoBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bits are written as 0 and 1")
    }
}

impl StdError for NoBits {}

impl FromStr for Bits {
    type Err = NoBits;

    fn from_str(text: &str) -> Result<Self, NoBits> {
        let bits = text.bytes().map(|byte| match byte {
            b'0' => Ok(false),
            b'1' => Ok(true),
            _ => Err(NoBits),
        });
        bits.collect::<Result<_, _>>().map(Self)
    }
}

/// Source of the format: `bit_send` in PostgreSQL's `varbit.c`: the number of bits, then the bits, the highest first.
impl<'a> FromSql<'a> for Bits {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        let (count, bytes) = raw.split_first_chunk::<4>().ok_or("bits that end early")?;
        let count = usize::try_from(i32::from_be_bytes(*count))?;
        if bytes.len() != count.div_ceil(8) {
            return Err("bits of impossible size".into());
        }
        let bit = |at: usize| bytes.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0);
        Ok(Self((0..count).map(bit).collect()))
    }

    accepts!(BIT, VARBIT);
}

impl ToSql for Bits {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_i32(i32::try_from(self.0.len())?);
        for eight in self.0.chunks(8) {
            out.put_u8(eight.iter().enumerate().fold(0, |byte, (at, bit)| byte | u8::from(*bit) << (7 - at)));
        }
        Ok(IsNull::No)
    }

    accepts!(BIT, VARBIT);
    to_sql_checked!();
}

/// `point`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Upwards.
    pub y: f64,
}

impl Point {
    fn take(raw: &mut &[u8]) -> Result<Self, BoxError> {
        if raw.len() < 16 {
            return Err("a point that ends early".into());
        }
        Ok(Self { x: raw.get_f64(), y: raw.get_f64() })
    }

    fn put(self, out: &mut BytesMut) {
        out.put_f64(self.x);
        out.put_f64(self.y);
    }
}

/// `line`: the points where `a·x + b·y + c` is zero.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "said above")]
pub struct Line {
    pub a: f64,
    pub b: f64,
    pub c: f64,
}

/// `lseg`: between two points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LineSegment(pub Point, pub Point);

/// `box`: the upper right corner, then the lower left, as the server orders them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rectangle(pub Point, pub Point);

/// `path`: from point to point, and back to the first one if it is closed.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// Whether it leads back.
    pub closed: bool,
    /// At least one.
    pub points: Vec<Point>,
}

/// `polygon`: its corners.
#[derive(Debug, Clone, PartialEq)]
pub struct Polygon(pub Vec<Point>);

/// `circle`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Circle {
    /// Its middle.
    pub center: Point,
    /// Not below zero.
    pub radius: f64,
}

fn whole<T>(value: T, rest: &[u8]) -> Result<T, BoxError> {
    if rest.is_empty() { Ok(value) } else { Err("a shape that goes on behind its end".into()) }
}

fn take_points(raw: &mut &[u8]) -> Result<Vec<Point>, BoxError> {
    let (count, rest) = raw.split_first_chunk::<4>().ok_or("points that end early")?;
    let count = usize::try_from(i32::from_be_bytes(*count))?;
    if rest.len() != count.saturating_mul(16) {
        return Err("points of impossible number".into());
    }
    *raw = rest;
    (0..count).map(|_| Point::take(raw)).collect()
}

fn put_points(points: &[Point], out: &mut BytesMut) -> Result<(), BoxError> {
    out.put_i32(i32::try_from(points.len())?);
    for point in points {
        point.put(out);
    }
    Ok(())
}

/// Source of the formats: `geo_ops.c` in PostgreSQL's sources.
macro_rules! shapes {
    ($($type:ty, $sql:ident, $raw:ident => $read:expr, $value:ident, $out:ident => $write:expr;)+) => {$(
        impl<'a> FromSql<'a> for $type {
            fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
                let mut rest = raw;
                let value = {
                    let $raw = &mut rest;
                    $read
                };
                whole(value, rest)
            }

            accepts!($sql);
        }

        impl ToSql for $type {
            fn to_sql(&self, _: &Type, $out: &mut BytesMut) -> Result<IsNull, BoxError> {
                let $value = self;
                $write;
                Ok(IsNull::No)
            }

            accepts!($sql);
            to_sql_checked!();
        }
    )+};
}

shapes! {
    Point, POINT, raw => Self::take(raw)?, point, out => point.put(out);
    Line, LINE, raw => {
        if raw.len() < 24 {
            return Err("a line that ends early".into());
        }
        Self { a: raw.get_f64(), b: raw.get_f64(), c: raw.get_f64() }
    }, line, out => for number in [line.a, line.b, line.c] {
        out.put_f64(number);
    };
    LineSegment, LSEG, raw => Self(Point::take(raw)?, Point::take(raw)?), segment, out => {
        segment.0.put(out);
        segment.1.put(out);
    };
    Rectangle, BOX, raw => Self(Point::take(raw)?, Point::take(raw)?), corners, out => {
        corners.0.put(out);
        corners.1.put(out);
    };
    Path, PATH, raw => {
        let (closed, rest) = raw.split_first().ok_or("a path that ends early")?;
        *raw = rest;
        Self { closed: *closed != 0, points: take_points(raw)? }
    }, path, out => {
        out.put_u8(path.closed.into());
        put_points(&path.points, out)?;
    };
    Polygon, POLYGON, raw => Self(take_points(raw)?), corners, out => put_points(&corners.0, out)?;
    Circle, CIRCLE, raw => {
        let center = Point::take(raw)?;
        if raw.len() < 8 {
            return Err("a circle that ends early".into());
        }
        Self { center, radius: raw.get_f64() }
    }, circle, out => {
        circle.center.put(out);
        out.put_f64(circle.radius);
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_read_and_written() {
        let bits: Bits = "1010101011".parse().expect("bits");
        let mut out = BytesMut::new();
        bits.to_sql(&Type::VARBIT, &mut out).expect("encodes");
        assert_eq!(out[..], [0, 0, 0, 10, 0xAA, 0xC0]);
        assert_eq!(Bits::from_sql(&Type::VARBIT, &out).expect("decodes"), bits);
        assert_eq!(bits.to_string(), "1010101011");
        assert_eq!("102".parse::<Bits>(), Err(NoBits));
        for bad in [&[][..], &[0, 0, 0, 9, 0], &[0xFF; 4], &[0x7F, 0xFF, 0xFF, 0xFF, 0]] {
            assert!(Bits::from_sql(&Type::BIT, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_bytes_are_read_as_a_shape_of_another_size() {
        for length in 0..80 {
            let raw = vec![0; length];
            assert_eq!(Point::from_sql(&Type::POINT, &raw).is_ok(), length == 16);
            assert_eq!(Line::from_sql(&Type::LINE, &raw).is_ok(), length == 24);
            assert_eq!(Circle::from_sql(&Type::CIRCLE, &raw).is_ok(), length == 24);
            assert_eq!(LineSegment::from_sql(&Type::LSEG, &raw).is_ok(), length == 32);
            assert_eq!(Rectangle::from_sql(&Type::BOX, &raw).is_ok(), length == 32);
            assert_eq!(Polygon::from_sql(&Type::POLYGON, &raw).is_ok(), length == 4);
            assert_eq!(Path::from_sql(&Type::PATH, &raw).is_ok(), length == 5);
        }
        assert!(Polygon::from_sql(&Type::POLYGON, &[0x7F, 0xFF, 0xFF, 0xFF]).is_err());
    }
}
