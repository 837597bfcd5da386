//! Strict framing: where heads and bodies begin and end in what a client sends, and whether all of it is plainly HTTP/1.
//!
//! hyper and httparse are lenient where a proxy in front may not be (bare LF, Content-Length beside Transfer-Encoding), and a
//! difference of opinion about where a request ends is how requests are smuggled. So this keeps an account of its own. What it lets pass,
//! hyper takes as well: no refusal is hyper's, which would come without a page and without a line in the log. It does no I/O.

use crate::{
    Limits,
    head::{BodyLength, HeadReader, header_line},
    target,
};

/// Why a request was refused: the status to answer, and words for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) reason: &'static str,
    /// In the middle of a body; else at the start of a head.
    pub(crate) in_body: bool,
}

pub(crate) const fn refuse(status: u16, reason: &'static str) -> Refusal {
    Refusal { status, reason, in_body: false }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Between two messages, or inside a head.
    Head,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// Refused: nothing more is read.
    Refused,
}

/// Follows the framing of one direction of a connection.
pub(crate) struct Framing {
    place: Place,
    head: HeadReader,
    head_size: usize,
    /// A line that is not complete yet (chunk sizes and trailers only; heads are held as a whole).
    line: Vec<u8>,
    /// Heads that have passed.
    heads: u64,
    originals: Vec<(u64, Vec<u8>)>,
}

/// What became of a piece of input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All of it may pass.
    Pass,
    /// It may pass up to here; the rest is the beginning of a head that is not complete.
    Hold(usize),
    /// It may pass up to here; what follows is refused.
    Refuse(usize, Refusal),
}

impl Framing {
    pub(crate) fn new(limits: &Limits) -> Framing {
        Framing {
            place: Place::Head,
            head: HeadReader::new(limits),
            head_size: limits.head_size,
            line: Vec::new(),
            heads: 0,
            originals: Vec::new(),
        }
    }

    /// Whether the connection is in the middle of a body.
    pub(crate) fn in_body(&self) -> bool {
        !matches!(self.place, Place::Head | Place::Refused)
    }

    /// Heads that have passed.
    pub(crate) fn heads(&self) -> u64 {
        self.heads
    }

    /// The targets that were disguised since the last call, each with the number of its head, from 0.
    pub(crate) fn take_originals(&mut self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.originals)
    }

    /// Looks at a piece of input. In heads that it passes, a target that hyper would not take is disguised, in place. What is held has to
    /// come again, at the beginning of the next piece.
    pub(crate) fn feed(&mut self, input: &mut [u8]) -> Verdict {
        let mut at = 0;
        // Each turn takes at least a byte: a head, a part of a body, a line or its beginning.
        while let Some(rest) = input.get_mut(at..).filter(|rest| !rest.is_empty()) {
            let taken = match self.place {
                Place::Refused => return Verdict::Refuse(at, refuse(400, "data after a refused request")),
                Place::Head => match self.head.read(rest) {
                    Ok(Some(head)) => {
                        if let Some(target) = head.disguise.and_then(|range| rest.get_mut(range)) {
                            self.originals.push((self.heads, target.to_vec()));
                            target::disguise(target);
                        }
                        self.heads = self.heads.wrapping_add(1);
                        self.line.clear();
                        self.place = match head.body {
                            BodyLength::Known(0) => Place::Head,
                            BodyLength::Known(n) => Place::Body(n),
                            BodyLength::Chunked => Place::ChunkSize,
                        };
                        head.len
                    }
                    Ok(None) => return Verdict::Hold(at),
                    Err(refusal) => {
                        self.place = Place::Refused;
                        return Verdict::Refuse(at, refusal);
                    }
                },
                Place::Body(left) => {
                    let n = left.min(rest.len() as u64);
                    self.place = if n == left { Place::Head } else { Place::Body(left.saturating_sub(n)) };
                    n as usize
                }
                Place::Chunk(left) => {
                    let n = left.min(rest.len() as u64);
                    self.place =
                        if n == left { Place::ChunkEnd } else { Place::Chunk(left.saturating_sub(n)) };
                    n as usize
                }
                Place::ChunkSize | Place::ChunkEnd | Place::Trailers => match self.line_of_body(rest) {
                    Ok(n) => n,
                    Err(refusal) => {
                        self.place = Place::Refused;
                        return Verdict::Refuse(at, Refusal { in_body: true, ..refusal });
                    }
                },
            };
            at = at.saturating_add(taken);
        }
        Verdict::Pass
    }

    /// Takes bytes up to the end of a line of the chunked coding; returns how many.
    fn line_of_body(&mut self, rest: &[u8]) -> Result<usize, Refusal> {
        let end = memchr::memchr(b'\n', rest);
        let n = end.map_or(rest.len(), |i| i.saturating_add(1));
        self.line.extend_from_slice(rest.get(..n).unwrap_or(rest));
        let limit = if self.place == Place::Trailers { self.head_size } else { 256 };
        if self.line.len() > limit {
            return Err(refuse(400, "a chunk's size line or the trailers are too long"));
        }
        if end.is_none() {
            // Refused as early as possible: what follows a chunk is CR LF, nothing else.
            if self.place == Place::ChunkEnd && !b"\r\n".starts_with(&self.line) {
                return Err(refuse(400, "a chunk is longer than its size"));
            }
            return Ok(n);
        }
        let Some(line) = self.line.strip_suffix(b"\r\n") else {
            return Err(refuse(400, "a line of the chunked body does not end in CR LF"));
        };
        if memchr::memchr3(b'\r', b'\n', b'\0', line).is_some() {
            return Err(refuse(400, "control characters in the chunked body's lines"));
        }
        self.place = match self.place {
            Place::ChunkSize => {
                let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
                let (size, extension) = line.split_at(digits);
                let size = std::str::from_utf8(size).ok().and_then(|size| u64::from_str_radix(size, 16).ok());
                // Chunk extensions are ignored, but they must look like some.
                let extension = extension.trim_ascii_start();
                match size {
                    Some(_) if extension.first().is_some_and(|b| *b != b';') => {
                        return Err(refuse(400, "a chunk's size is malformed"));
                    }
                    Some(0) => Place::Trailers,
                    Some(size) if size <= u64::MAX >> 4 => Place::Chunk(size),
                    _ => return Err(refuse(400, "a chunk's size is malformed")),
                }
            }
            Place::ChunkEnd if line.is_empty() => Place::ChunkSize,
            Place::ChunkEnd => return Err(refuse(400, "a chunk is longer than its size")),
            Place::Trailers if line.is_empty() => Place::Head,
            Place::Trailers => {
                header_line(line)?;
                Place::Trailers
            }
            // It has no lines.
            place @ (Place::Head | Place::Body(_) | Place::Chunk(_) | Place::Refused) => place,
        };
        self.line.clear();
        Ok(n)
    }
}

pub(crate) fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing() -> Framing {
        Framing::new(&Limits { head_size: 1000, header_count: 5, uri_length: 100, ..Limits::default() })
    }

    /// Fed at once and byte by byte, with held bytes fed again as the guard does.
    fn verdict(input: &[u8]) -> Result<usize, u16> {
        let whole = match framing().feed(&mut input.to_vec()) {
            Verdict::Pass => Ok(input.len()),
            Verdict::Hold(at) => Ok(at),
            Verdict::Refuse(_, refusal) => Err(refusal.status),
        };
        let mut slow = framing();
        let (mut held, mut passed) = (Vec::new(), 0);
        let mut split = Ok(());
        for b in input {
            held.push(*b);
            match slow.feed(&mut held) {
                Verdict::Pass => {
                    passed += held.len();
                    held.clear();
                }
                Verdict::Hold(at) => {
                    passed += at;
                    held.drain(..at);
                }
                Verdict::Refuse(_, refusal) => {
                    split = Err(refusal.status);
                    break;
                }
            }
        }
        assert_eq!(whole, split.map(|()| passed), "{}", String::from_utf8_lossy(input));
        whole
    }

    #[test]
    fn plain_requests_pass_whole() {
        for input in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: v\r\n\r\nGET / HTTP/1.0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
        ] {
            assert_eq!(verdict(input), Ok(input.len()), "{}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn an_incomplete_head_is_held() {
        assert_eq!(framing().feed(&mut b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec()), Verdict::Hold(0));
        let two = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /";
        assert_eq!(framing().feed(&mut two.to_vec()), Verdict::Hold(two.len() - 5));
    }

    #[test]
    fn what_is_not_plainly_http_is_refused() {
        let head = |extra: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{extra}\r\n").into_bytes();
        for extra in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: \u{b}chunked\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 5 5\r\n",
            "Content-Length: \r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length: 18446744073709551615\r\n",
            "Host: b\r\n",
            "X : y\r\n",
            ": y\r\n",
            "X\r\n",
            "X: a\0b\r\n",
            "X: a\rb\r\n",
            "X: a\n",
            "X: a\r\n b\r\n",
        ] {
            assert_eq!(verdict(&head(extra)), Err(400), "{extra:?}");
        }
        for input in [
            &b"GET / HTTP/1.1\nHost: a\r\n\r\n"[..],
            b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
            b"GET /\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a:x\r\n\r\n",
            b"GET http://x@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET http://a:b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            assert_eq!(verdict(input), Err(400), "{}", String::from_utf8_lossy(input));
        }
        assert_eq!(verdict(b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"), Err(505));
    }

    #[test]
    fn a_target_that_hyper_would_not_take_is_disguised_and_kept() {
        let mut input =
            b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /?q=<b>#x HTTP/1.1\r\nHost: a\r\n\r\nGET /<".to_vec();
        let mut framing = framing();
        let len = input.len();
        assert_eq!(framing.feed(&mut input), Verdict::Hold(len - 6));
        let text = std::str::from_utf8(&input).unwrap();
        assert!(text.contains("GET /?q=!b!!x HTTP/1.1\r\n") && text.ends_with("GET /<"), "{text}");
        assert_eq!(framing.take_originals(), [(1, b"/?q=<b>#x".to_vec())]);
        assert_eq!(framing.take_originals(), []);
    }

    #[test]
    fn chunked_bodies_are_followed_exactly() {
        let body = |body: &str| {
            let mut all = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            all.extend(body.as_bytes());
            verdict(&all)
        };
        assert!(body("3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n").is_ok());
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
            "0\r\nbad trailer\r\n\r\n",
        ] {
            assert_eq!(body(wrong), Err(400), "{wrong:?}");
        }
        assert_eq!(body(&format!("3;{}\r\n", "x".repeat(400))), Err(400));
    }

    #[test]
    fn limits() {
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(200));
        assert_eq!(verdict(long.as_bytes()), Err(414));
        let large = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(2000));
        assert_eq!(verdict(large.as_bytes()), Err(431));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(5));
        assert_eq!(verdict(many.as_bytes()), Err(431));
    }
}
