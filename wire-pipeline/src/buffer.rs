//! The two buffers between a socket and a protocol.
//!
//! [`ReadBuffer`] holds what was received and not yet understood; [`Out`] holds what was framed and not yet
//! handed to the kernel. Neither knows a protocol, and neither grows by what a peer merely announces.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// Received bytes that a protocol has not used up.
pub struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReadBuffer {
    /// Room for one read: large enough for the answers of a batch, small enough for a pool of eight to be light.
    const ROOM: usize = 16 * 1024;

    /// An empty buffer; nothing is allocated before the first read.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0 }
    }

    /// What is there.
    pub fn data(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Marks `count` bytes as used up.
    pub fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Room to read into, never empty. Grows only when the buffer is full of bytes that did arrive.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start > 0 && self.bytes.len() - self.end < Self::ROOM / 4 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == 0 && self.bytes.len() > 4 * Self::ROOM {
            // One large message is over: give its memory back.
            self.bytes = Vec::new();
        }
        if self.end == self.bytes.len() {
            let grown = (self.bytes.len() * 2).max(Self::ROOM);
            self.bytes.resize(grown, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Tells that `count` bytes of the room were filled.
    pub fn filled(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(self.bytes.len());
    }

    /// Appends bytes, as a read would.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.filled(count);
            bytes = &bytes[count..];
        }
    }
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// Framed bytes on their way to the kernel.
///
/// Small pieces are copied together, so that a batch leaves in one system call; a large one is kept as it is, so
/// that a value of many megabytes exists once.
#[derive(Default)]
pub struct Out {
    segments: VecDeque<Bytes>,
    tail: BytesMut,
    /// Bytes in `segments`.
    sealed: usize,
}

impl Out {
    /// Pieces of at least this size are not copied.
    const LARGE: usize = 32 * 1024;

    /// The buffer that small pieces are appended to.
    pub fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    /// Appends `bytes`, by copy when they are few.
    pub fn push(&mut self, bytes: &Bytes) {
        if bytes.len() < Self::LARGE {
            self.tail.extend_from_slice(bytes);
            return;
        }
        if !self.tail.is_empty() {
            let tail = self.tail.split().freeze();
            self.sealed += tail.len();
            self.segments.push_back(tail);
        }
        self.sealed += bytes.len();
        self.segments.push_back(bytes.clone());
    }

    /// How many bytes wait to be written.
    pub fn len(&self) -> usize {
        self.sealed + self.tail.len()
    }

    /// Whether nothing waits to be written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next bytes to write.
    pub fn front(&self) -> &[u8] {
        self.segments.front().map_or(&self.tail, |segment| segment)
    }

    /// Takes off `count` bytes that the kernel has accepted.
    pub fn advance(&mut self, count: usize) {
        let Some(front) = self.segments.front_mut() else {
            let count = count.min(self.tail.len());
            self.tail.advance(count);
            if self.tail.is_empty() && self.tail.capacity() > 4 * Self::LARGE {
                self.tail = BytesMut::new();
            }
            return;
        };
        let count = count.min(front.len());
        front.advance(count);
        self.sealed -= count;
        if front.is_empty() {
            self.segments.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_come_out_in_order_whatever_the_sizes() {
        let mut buffer = ReadBuffer::new();
        let all: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        let mut seen = Vec::new();
        for (turn, piece) in all.chunks(7_919).enumerate() {
            buffer.extend(piece);
            let take = if turn % 3 == 0 { buffer.data().len() } else { buffer.data().len() / 2 };
            seen.extend_from_slice(&buffer.data()[..take]);
            buffer.consume(take);
        }
        seen.extend_from_slice(buffer.data());
        assert_eq!(seen, all);
    }

    #[test]
    fn memory_of_a_large_message_is_given_back() {
        let mut buffer = ReadBuffer::new();
        buffer.extend(&vec![1; 1_000_000]);
        buffer.consume(1_000_000);
        assert!(buffer.room().len() <= ReadBuffer::ROOM);
    }

    #[test]
    fn large_pieces_keep_their_place_between_small_ones() {
        let mut out = Out::default();
        let large = Bytes::from(vec![b'L'; Out::LARGE]);
        out.tail().extend_from_slice(b"one");
        out.push(&large);
        out.push(&Bytes::from_static(b"two"));
        assert_eq!(out.len(), Out::LARGE + 6);
        let mut written = Vec::new();
        while !out.is_empty() {
            let count = out.front().len().min(1_000);
            written.extend_from_slice(&out.front()[..count]);
            out.advance(count);
        }
        assert_eq!(&written[..4], b"oneL");
        assert_eq!(&written[written.len() - 4..], b"Ltwo");
    }
}
