//! Frames on a stream (RFC 9114, 7.1), and variable-length integers (RFC 9000, 16).
//!
//! It promises: each byte is looked at once, nothing is gathered but a frame's type and length, and a stream that ends within a frame is
//! known as such. What a frame means where it stands is its reader's affair.

use bytes::{Buf, Bytes};

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    CancelPush,
    Settings,
    GoAway,
    MaxPushId,
    /// PUSH_PROMISE, which only servers send, and the types of HTTP/2 that HTTP/3 has not: an error wherever it stands.
    Forbidden,
    /// To be passed over.
    Unknown,
}

impl Kind {
    fn of(number: u64) -> Kind {
        match number {
            0x0 => Kind::Data,
            0x1 => Kind::Headers,
            0x3 => Kind::CancelPush,
            0x4 => Kind::Settings,
            0x7 => Kind::GoAway,
            0xd => Kind::MaxPushId,
            0x2 | 0x5 | 0x6 | 0x8 | 0x9 => Kind::Forbidden,
            _ => Kind::Unknown,
        }
    }
}

/// The next thing that a stream says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A frame begins, with so many bytes of payload.
    Begins(Kind, u64),
    /// Some of its payload; never empty.
    Payload(Kind, Bytes),
}

/// An integer that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Integer {
    value: u64,
    /// Bytes that are to come; 0 before the first.
    left: u8,
}

impl Integer {
    /// Takes what of it is there. `Some`: it is whole, and the next begins.
    pub(super) fn read(&mut self, input: &mut Bytes) -> Option<u64> {
        while input.has_remaining() {
            let byte = input.get_u8();
            if self.left == 0 {
                (self.value, self.left) = (u64::from(byte & 0x3f), 1 << (byte >> 6));
            } else {
                self.value = self.value << 8 | u64::from(byte);
            }
            self.left -= 1;
            if self.left == 0 {
                return Some(self.value);
            }
        }
        None
    }

    /// Whether none was begun.
    pub(super) fn is_between(&self) -> bool {
        self.left == 0
    }
}

/// Adds an integer; those above 2^62 are none.
pub(super) fn put(to: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => to.push(value as u8),
        0x40..0x4000 => to.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => to.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => to.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Where in its frames a stream is.
#[derive(Debug, Default)]
pub(super) struct Frames {
    integer: Integer,
    /// The type of the frame that begins.
    kind: Option<Kind>,
    /// The frame that is there, and what of its payload is to come.
    open: Option<(Kind, u64)>,
}

impl Frames {
    /// Takes the next thing out of what came. `None`: all of it was taken.
    pub(super) fn next(&mut self, input: &mut Bytes) -> Option<Step> {
        if let Some((kind, left)) = &mut self.open {
            let n = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            if n == 0 {
                return None;
            }
            let (kind, payload) = (*kind, input.split_to(n));
            *left -= n as u64;
            if *left == 0 {
                self.open = None;
            }
            return Some(Step::Payload(kind, payload));
        }
        let kind = match self.kind {
            Some(kind) => kind,
            None => *self.kind.insert(Kind::of(self.integer.read(input)?)),
        };
        let len = self.integer.read(input)?;
        self.kind = None;
        self.open = (len > 0).then_some((kind, len));
        Some(Step::Begins(kind, len))
    }

    /// Whether the last frame is whole.
    pub(super) fn is_between(&self) -> bool {
        self.open.is_none() && self.kind.is_none() && self.integer.is_between()
    }
}

/// The only integer of a payload. `None`: it is not one, or there is more.
pub(super) fn only(payload: &[u8]) -> Option<u64> {
    let mut input = Bytes::copy_from_slice(payload);
    Integer::default().read(&mut input).filter(|_| input.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: &[u8], piece: usize) -> (Vec<(Kind, u64, Vec<u8>)>, bool) {
        let (mut frames, mut seen) = (Frames::default(), Vec::new());
        for piece in stream.chunks(piece.max(1)) {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(step) = frames.next(&mut input) {
                match step {
                    Step::Begins(kind, len) => seen.push((kind, len, Vec::new())),
                    Step::Payload(kind, payload) => {
                        assert!(!payload.is_empty());
                        let last = seen.last_mut().unwrap();
                        assert_eq!(last.0, kind);
                        last.2.extend_from_slice(&payload);
                    }
                }
            }
            assert!(input.is_empty());
        }
        (seen, frames.is_between())
    }

    #[test]
    fn frames_are_followed_however_they_are_cut() {
        let stream = b"\x01\x02ab\x00\x00\x00\x40\x03xyz\x40\x55\x80\x00\x00\x01u\xc0\x00\x00\x00\x00\x00\x00\x07\x01\x00";
        for piece in 1..stream.len() + 1 {
            let (seen, between) = read(stream, piece);
            assert_eq!(
                seen,
                [
                    (Kind::Headers, 2, b"ab".to_vec()),
                    (Kind::Data, 0, Vec::new()),
                    (Kind::Data, 3, b"xyz".to_vec()),
                    (Kind::Unknown, 1, b"u".to_vec()),
                    (Kind::GoAway, 1, b"\0".to_vec()),
                ]
            );
            assert!(between);
        }
        for (len, whole) in
            [(0, true), (1, false), (2, false), (3, false), (4, true), (5, false), (6, true), (7, false)]
        {
            assert_eq!(read(&stream[..len], 3).1, whole, "{len} bytes");
        }
    }

    #[test]
    fn integers_are_written_as_they_are_read() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, (1 << 62) - 1] {
            let mut made = Vec::new();
            put(&mut made, value);
            assert_eq!(only(&made), Some(value));
            assert_eq!(only(&made[..made.len() - 1]), None);
            made.push(0);
            assert_eq!(only(&made), None);
        }
    }

    #[test]
    fn fuzz_frames() {
        let seeds: [&[u8]; 2] = [b"\x01\x02ab\x00\x00\x00\x03xyz", b"\x40\x55\x80\x00\x00\x01u\x07\x01\x00"];
        let pieces: [&[u8]; 4] =
            [b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\x00\x00", b"\x01", b"\x80\x00\x00\x05"];
        hayate_fuzz::run("frames", &seeds, &pieces, |random, input| {
            let whole = read(input, input.len());
            assert_eq!(read(input, 1 + random.below(9)), whole);
        });
    }
}
