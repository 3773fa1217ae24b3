//! Packets and the frames that carry them.
//!
//! A packet travels in frames of at most 2^24 − 1 bytes, each behind a header of three bytes of length (little
//! endian) and one of sequence. A frame of exactly that size is continued by the next one, so that a packet whose
//! length is a multiple of it ends with an empty frame. Source: MySQL internals, "MySQL Packets" and "Sending More
//! Than 16Mb".
//!
//! The sequence starts at 0 with every command and runs on through its response. With several commands under way
//! there is one count per command and none per connection.

use bytes::{BufMut, Bytes};
#[cfg(test)]
use wire_pipeline::answer::Chunks;
use wire_pipeline::buffer::Out;

/// A frame of this size is continued by the next one.
pub(crate) const FULL: usize = 0xFF_FFFF;

/// The number that the next frame of a dialogue must bear; it wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sequence(pub(crate) u8);

impl Sequence {
    /// Whether `header` bears this number; then the next one is expected.
    pub(crate) fn accept(&mut self, header: Header) -> bool {
        let fits = self.is_next(header);
        self.0 = self.0.wrapping_add(u8::from(fits));
        fits
    }

    /// Whether `header` bears this number.
    pub(crate) fn is_next(self, header: Header) -> bool {
        header.sequence == self.0
    }
}

/// What stands before a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes behind the header.
    pub(crate) len: usize,
    pub(crate) sequence: u8,
}

impl Header {
    pub(crate) const LEN: usize = 4;

    /// The header at the front of `bytes`, if it is whole.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, sequence] = *bytes.first_chunk::<{ Self::LEN }>()?;
        Some(Self { len: u32::from_le_bytes([a, b, c, 0]) as usize, sequence })
    }

    pub(crate) fn write(self, out: &mut Out) {
        let [a, b, c, _] = (self.len as u32).to_le_bytes();
        out.tail().put_slice(&[a, b, c, self.sequence]);
    }

    /// Header and body.
    pub(crate) fn total(self) -> usize {
        Self::LEN + self.len
    }

    /// Another frame of the same packet follows.
    pub(crate) fn is_continued(self) -> bool {
        self.len == FULL
    }
}

/// Writes one command, `head` and `body` together in as many frames as it takes, and returns the number that the
/// first frame of its response bears. A large body is not copied. `head` is short.
pub(crate) fn write_command(out: &mut Out, head: &[u8], body: &Bytes) -> Sequence {
    let mut sequence = 0_u8;
    let mut head = head;
    let mut body = body.clone();
    loop {
        let len = (head.len() + body.len()).min(FULL);
        let header = Header { len, sequence };
        header.write(out);
        out.tail().put_slice(head);
        out.push(&body.split_to(len - head.len()));
        head = &[];
        sequence = sequence.wrapping_add(1);
        if !header.is_continued() {
            return Sequence(sequence);
        }
    }
}

/// The packets in what was collected of an answer, put together where they came in several frames; for tests, rows are
/// read in place.
#[cfg(test)]
pub(crate) struct Packets<'a> {
    chunks: smallvec::SmallVec<[&'a [u8]; 1]>,
    at: usize,
}

#[cfg(test)]
impl<'a> Packets<'a> {
    pub(crate) fn new(chunks: &'a Chunks) -> Self {
        Self { chunks: chunks.iter().map(|chunk| &chunk[..]).collect(), at: 0 }
    }

    fn frame(&mut self) -> Option<(Header, &'a [u8])> {
        while let Some(chunk) = self.chunks.get_mut(self.at) {
            let Some(header) = Header::parse(chunk) else {
                self.at += 1;
                continue;
            };
            let (frame, rest) = chunk.split_at_checked(header.total())?;
            *chunk = rest;
            return Some((header, frame.get(Header::LEN..)?));
        }
        None
    }
}

#[cfg(test)]
impl<'a> Iterator for Packets<'a> {
    type Item = std::borrow::Cow<'a, [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut header, first) = self.frame()?;
        if !header.is_continued() {
            return Some(first.into());
        }
        let mut packet = first.to_vec();
        while header.is_continued() {
            let (next, body) = self.frame()?;
            packet.extend_from_slice(body);
            header = next;
        }
        Some(packet.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(out: &mut Out) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !out.is_empty() {
            bytes.extend_from_slice(out.front());
            out.advance(out.front().len());
        }
        bytes
    }

    #[test]
    fn a_small_command_is_one_frame_with_sequence_0() {
        let mut out = Out::default();
        let next = write_command(&mut out, &[0x16], &Bytes::from_static(b"DO 1"));
        // length 5, sequence 0, COM_STMT_PREPARE
        assert_eq!(written(&mut out), b"\x05\0\0\x00\x16DO 1");
        assert_eq!(next, Sequence(1));
    }

    #[test]
    fn a_large_command_is_split_and_a_full_frame_is_never_the_last() {
        // (bytes of the body behind a head of one byte, lengths of the frames)
        let cases: [(usize, &[usize]); 4] = [
            (FULL - 2, &[FULL - 1]),
            (FULL - 1, &[FULL, 0]),
            (FULL, &[FULL, 1]),
            (2 * FULL - 1, &[FULL, FULL, 0]),
        ];
        for (size, frames) in cases {
            let mut out = Out::default();
            let body: Bytes = (0..size).map(|n| (n % 251) as u8).collect();
            let next = write_command(&mut out, &[0x17], &body);
            assert_eq!(next, Sequence(frames.len() as u8), "{size}");
            let bytes = written(&mut out);
            let mut rest = &bytes[..];
            let mut packet = Vec::new();
            for (number, len) in frames.iter().enumerate() {
                let header = Header::parse(rest).expect("a header");
                assert_eq!(header, Header { len: *len, sequence: number as u8 }, "{size}");
                packet.extend_from_slice(&rest[Header::LEN..header.total()]);
                rest = &rest[header.total()..];
            }
            assert!(rest.is_empty());
            assert_eq!(packet[0], 0x17);
            assert!(packet[1..] == body[..], "{size}");
        }
    }

    #[test]
    fn a_wrong_number_is_not_accepted_and_the_right_ones_wrap() {
        let mut sequence = Sequence(255);
        assert!(!sequence.accept(Header { len: 1, sequence: 0 }));
        assert!(sequence.accept(Header { len: 1, sequence: 255 }));
        assert!(sequence.accept(Header { len: 1, sequence: 0 }));
        assert_eq!(sequence, Sequence(1));
    }
}
