//! What came from the client and was not used yet, and the decoding of bodies in it.
//!
//! ```text
//!  data:  used │ decoded body │ (gap) │ raw: as it came │ spare
//!              at             decoded  raw              len
//! ```
//!
//! The chunked coding is taken out in place: however small the chunks, the handler sees what came in one read as one slice.

use std::{
    io,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio_util::io::poll_read_buf;

use crate::{
    Limits, Refusal,
    h1::parse::{Framing, is_token},
    io::Io,
    pool::{self, BLOCK},
    refusal::refuse,
};

/// Heads up to this size are copied out of their block.
const COPIED: usize = BLOCK / 4;
/// A size line of the chunked coding, its extension included.
const SIZE_LINE: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    pub(crate) data: Vec<u8>,
    at: usize,
    decoded: usize,
    raw: usize,
}

impl Buffer {
    /// What came and is not decoded.
    pub(crate) fn raw(&mut self) -> &mut [u8] {
        self.data.get_mut(self.raw..).unwrap_or_default()
    }

    /// Whether nothing waits to be decoded.
    pub(crate) fn is_empty(&self) -> bool {
        self.raw >= self.data.len()
    }

    /// Takes `len` raw bytes out, into `to`, which is empty; what follows them stays.
    pub(crate) fn take(&mut self, len: usize, to: &mut Vec<u8>) {
        let end = self.raw.saturating_add(len).min(self.data.len());
        let all = end == self.data.len();
        if all && self.raw == 0 && len > COPIED {
            std::mem::swap(&mut self.data, to);
            self.data.clear();
        } else {
            if to.capacity() == 0 {
                *to = pool::take_for(len);
            }
            to.extend_from_slice(self.data.get(self.raw..end).unwrap_or_default());
            if all {
                // The usual case. The block is the next connection's: hundreds of requests that wait for workers hold no more than their heads,
                // and what is read next is read to where the processor has just been.
                pool::give(std::mem::take(&mut self.data));
            } else {
                self.data.drain(..end);
            }
        }
        (self.at, self.decoded, self.raw) = (0, 0, 0);
    }

    /// Reads more, as much as comes at one time; 0 at the end.
    pub(crate) fn poll_read(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.make_room();
        poll_read_buf(Pin::new(io), cx, &mut self.data)
    }

    /// The same for the rest of a head that does not come at once: what is held is not much larger than what has come.
    pub(crate) fn poll_read_on(&mut self, io: &mut Io, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut block = pool::take();
        let read = poll_read_buf(Pin::new(io), cx, &mut block);
        if let Poll::Ready(Ok(_)) = read {
            self.grow(block.len());
            self.data.extend_from_slice(&block);
        }
        pool::give(block);
        Poll::Ready(Ok(ready!(read)?))
    }

    fn grow(&mut self, more: usize) {
        let len = self.data.len();
        if self.data.capacity() - len < more {
            self.data.reserve_exact(more.max(len / 2).max(512));
        }
    }

    /// Holds no more memory than what has come needs. Returns its bytes.
    pub(crate) fn shrink(&mut self) -> usize {
        if self.data.capacity() >= BLOCK && self.data.len() < BLOCK / 2 {
            let block = std::mem::take(&mut self.data);
            self.grow(block.len());
            self.data.extend_from_slice(&block);
            pool::give(block);
        }
        self.data.capacity()
    }

    /// Makes room for one more read, after what is used has made way.
    pub(crate) fn make_room(&mut self) {
        if self.at > 0 && self.at == self.decoded {
            self.data.drain(..self.raw);
            (self.at, self.decoded, self.raw) = (0, 0, 0);
        }
        if self.data.capacity() == 0 {
            self.data = pool::take();
        } else if self.data.capacity() - self.data.len() < BLOCK / 4 {
            self.data.reserve(BLOCK);
        }
    }

    /// Throws away what is in it.
    pub(crate) fn clear(&mut self) {
        self.data.clear();
        (self.at, self.decoded, self.raw) = (0, 0, 0);
    }

    /// Gives the memory back, if nothing is in it.
    pub(crate) fn release(&mut self) {
        if self.is_empty() && self.at == self.decoded {
            pool::give(std::mem::take(&mut self.data));
            (self.at, self.decoded, self.raw) = (0, 0, 0);
        }
    }

    /// The decoded bytes that wait.
    pub(crate) fn body(&self) -> &[u8] {
        self.data.get(self.at..self.decoded).unwrap_or_default()
    }

    /// The handler has used so many of them.
    pub(crate) fn consume(&mut self, n: usize) {
        self.at = self.at.saturating_add(n).min(self.decoded);
    }

    fn range(&self, len: u64) -> Range<usize> {
        let there = self.data.len() - self.raw;
        let n = usize::try_from(len).unwrap_or(usize::MAX).min(there);
        self.raw..self.raw + n
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        pool::give(std::mem::take(&mut self.data));
    }
}

/// Where in a body the raw bytes begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Length(u64),
    Size,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    Over,
}

/// Follows the framing of a request's body.
#[derive(Debug)]
pub(crate) struct Decoder {
    place: Place,
    /// Bytes of trailers so far.
    trailers: usize,
}

impl Decoder {
    pub(crate) fn new(framing: Framing) -> Decoder {
        let place = match framing {
            Framing::None => Place::Over,
            Framing::Length(length) => Place::Length(length),
            Framing::Chunked => Place::Size,
        };
        Decoder { place, trailers: 0 }
    }

    /// Whether its end has come; decoded bytes may still wait in the buffer.
    pub(crate) fn is_over(&self) -> bool {
        self.place == Place::Over
    }

    /// Decodes what can be.
    pub(crate) fn decode(&mut self, buffer: &mut Buffer, limits: &Limits) -> Result<(), Refusal> {
        loop {
            match self.place {
                Place::Over => return Ok(()),
                Place::Length(left) | Place::Chunk(left) => {
                    let piece = buffer.range(left);
                    let n = piece.len();
                    if n == 0 {
                        return Ok(());
                    }
                    if buffer.decoded != piece.start {
                        buffer.data.copy_within(piece.clone(), buffer.decoded);
                    }
                    buffer.decoded += n;
                    buffer.raw = piece.end;
                    let left = left - n as u64;
                    self.place = match (self.place, left) {
                        (Place::Length(_), 0) => Place::Over,
                        (Place::Length(_), _) => Place::Length(left),
                        (_, 0) => Place::ChunkEnd,
                        _ => Place::Chunk(left),
                    };
                }
                Place::Size | Place::ChunkEnd | Place::Trailers => {
                    if !self.line(buffer, limits)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes one line of the coding; `false` when it is not whole yet.
    fn line(&mut self, buffer: &mut Buffer, limits: &Limits) -> Result<bool, Refusal> {
        let raw = buffer.data.get(buffer.raw..).unwrap_or_default();
        let limit = if self.place == Place::Trailers {
            limits.head_size.saturating_sub(self.trailers)
        } else {
            SIZE_LINE
        };
        let end = memchr::memchr(b'\n', raw);
        if end.unwrap_or(raw.len()) >= limit {
            return Err(refuse(400, "a chunk's size line or the trailers are too long"));
        }
        let Some(end) = end else {
            // Refused as early as possible: what follows a chunk is CR LF, nothing else.
            return match self.place {
                Place::ChunkEnd if !b"\r".starts_with(raw) => {
                    Err(refuse(400, "a chunk is longer than its size"))
                }
                _ => Ok(false),
            };
        };
        let Some((line, b"\r")) = raw.get(..end).and_then(|line| line.split_at_checked(end.wrapping_sub(1)))
        else {
            return Err(refuse(400, "a line of the chunked body does not end in CR LF"));
        };
        if line.iter().any(|b| b.is_ascii_control() && *b != b'\t') {
            return Err(refuse(400, "control characters in the chunked body's lines"));
        }
        self.place = match self.place {
            Place::ChunkEnd if line.is_empty() => Place::Size,
            Place::ChunkEnd => return Err(refuse(400, "a chunk is longer than its size")),
            Place::Trailers if line.is_empty() => Place::Over,
            Place::Trailers => {
                let name = line.iter().position(|b| !is_token(*b));
                if name.is_none_or(|at| at == 0 || line.get(at) != Some(&b':')) {
                    return Err(refuse(400, "a malformed trailer"));
                }
                Place::Trailers
            }
            _ => match size(line)? {
                0 => Place::Trailers,
                n => Place::Chunk(n),
            },
        };
        if self.place == Place::Trailers {
            self.trailers = self.trailers.saturating_add(end + 1);
        }
        buffer.raw += end + 1;
        Ok(true)
    }
}

/// The number of a size line. Chunk extensions are ignored, but they must look like some.
fn size(line: &[u8]) -> Result<u64, Refusal> {
    const MALFORMED: Refusal = refuse(400, "a chunk's size is malformed");
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let (digits, extension) = line.split_at_checked(digits).ok_or(MALFORMED)?;
    let text = std::str::from_utf8(digits).map_err(|_| MALFORMED)?;
    let size = u64::from_str_radix(text, 16).map_err(|_| MALFORMED)?;
    match extension.trim_ascii_start().first() {
        None | Some(b';') if size <= u64::MAX >> 4 => Ok(size),
        _ => Err(MALFORMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `input`, which comes in pieces of so many bytes; gives the body, and what follows it.
    fn decode(framing: Framing, input: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<u8>, bool), u16> {
        let (mut buffer, mut decoder, mut body) = (Buffer::default(), Decoder::new(framing), Vec::new());
        for bytes in input.chunks(piece) {
            buffer.make_room();
            buffer.data.extend_from_slice(bytes);
            decoder.decode(&mut buffer, &Limits::default()).map_err(|refusal| refusal.status)?;
            // The handler takes a part at a time.
            let n = buffer.body().len().div_ceil(2);
            body.extend_from_slice(&buffer.body()[..n]);
            buffer.consume(n);
        }
        body.extend_from_slice(buffer.body());
        buffer.consume(usize::MAX);
        Ok((body, buffer.raw().to_vec(), decoder.is_over()))
    }

    fn chunked(input: &str) -> Result<(Vec<u8>, Vec<u8>, bool), u16> {
        let results: Vec<_> =
            [1, 2, 3, 7, 4096].map(|piece| decode(Framing::Chunked, input.as_bytes(), piece)).into();
        assert!(results.windows(2).all(|two| two[0] == two[1]), "{input:?}: {results:?}");
        results[0].clone()
    }

    #[test]
    fn bodies_of_a_length() {
        for piece in [1, 3, 100] {
            let decoded = decode(Framing::Length(5), b"helloGET /", piece);
            assert_eq!(decoded, Ok((b"hello".to_vec(), b"GET /".to_vec(), true)));
        }
        assert_eq!(decode(Framing::Length(9), b"hello", 2), Ok((b"hello".to_vec(), Vec::new(), false)));
        assert_eq!(decode(Framing::None, b"GET /", 2), Ok((Vec::new(), b"GET /".to_vec(), true)));
    }

    #[test]
    fn chunks() {
        let whole = chunked("3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\nGET");
        assert_eq!(whole, Ok((b"abc0123456789".to_vec(), b"GET".to_vec(), true)));
        assert_eq!(chunked("1\r\na\r\n1\r\nb\r\n").unwrap(), (b"ab".to_vec(), Vec::new(), false));
        for wrong in [
            "x\r\n",
            "\r\n",
            "+3\r\nabc\r\n",
            "0x3\r\nabc\r\n",
            "3 abc\r\nabc\r\n",
            "3\nabc\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc\n",
            "fffffffffffffffff\r\n",
            "ffffffffffffffff\r\n",
            "0\r\nbad trailer\r\n\r\n",
            "0\r\n: x\r\n\r\n",
            "-1\r\n",
            "3;\0\r\n",
            "3\u{c}\r\nabc\r\n",
            "3;a=\u{7f}\r\nabc\r\n",
            "0\r\nT: \u{1}\r\n\r\n",
        ] {
            assert_eq!(chunked(wrong), Err(400), "{wrong:?}");
        }
        assert_eq!(chunked(&format!("3;{}\r\n", "x".repeat(400))), Err(400));
        assert_eq!(chunked(&format!("0\r\n{}\r\n", "T: v\r\n".repeat(9000))), Err(400));
    }

    #[test]
    fn many_small_chunks_are_one_slice() {
        let (mut buffer, mut decoder) = (Buffer::default(), Decoder::new(Framing::Chunked));
        buffer.data = b"1\r\nx\r\n".repeat(1000);
        decoder.decode(&mut buffer, &Limits::default()).unwrap();
        assert_eq!(buffer.body(), b"x".repeat(1000));
    }

    /// However a body is cut into pieces, the same is decoded of it.
    #[test]
    fn fuzz_bodies() {
        let seeds: [&[u8]; 4] = [
            b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\nGET",
            b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n",
            b"0\r\n\r\n",
            b"ff\r\n",
        ];
        let pieces: [&[u8]; 10] =
            [b"\r\n", b"\n", b"\r", b"0", b"f", b";", b" ", b"\0", b"1\r\nx\r\n", b"ffffffffffffffff"];
        hayate_fuzz::run("bodies of HTTP/1", &seeds, &pieces, |random, input| {
            let whole = decode(Framing::Chunked, input, input.len().max(1));
            assert_eq!(whole, decode(Framing::Chunked, input, 1));
            assert_eq!(whole, decode(Framing::Chunked, input, 1 + random.below(9)));
            let length = Framing::Length(1 + random.below(30) as u64);
            assert_eq!(decode(length, input, input.len().max(1)), decode(length, input, 3));
            crate::fuzzed::body(input);
        });
    }
}
