//! Reads HTTP/1 answers from bytes as they come (RFC 9112). No I/O here.
//!
//! Promises the same verdict however the bytes are cut into pieces, memory bounded by [`HEAD_LIMIT`], and no panic on any
//! input. Strict where a sloppy reading could take one answer's bytes for another's: lengths, chunk sizes, line ends.

use httparse::{EMPTY_HEADER, Status};

use super::Answer;
use crate::failure::Failure;

/// Largest head, and largest chunk size line or trailer line, in bytes.
const HEAD_LIMIT: usize = 64 * 1024;
/// Most header lines.
const HEADER_LIMIT: usize = 128;

/// How far an answer has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Feed more.
    More,
    /// The answer is complete. This many bytes of the last piece belonged to it; any further ones should not be there.
    Complete(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// Bytes of body that are to come.
    Length(u64),
    UntilClose,
    ChunkSize,
    Chunk(u64),
    /// The line end after a chunk's data.
    ChunkEnd,
    Trailers,
    Done,
}

/// A reader for the answers on one connection.
#[derive(Debug)]
pub(crate) struct Parser {
    state: State,
    /// The beginning of a head or line that is not complete.
    pending: Vec<u8>,
    answer_to_head: bool,
    keep_alive: bool,
}

impl Parser {
    pub(crate) fn new() -> Self {
        Self { state: State::Head, pending: Vec::new(), answer_to_head: false, keep_alive: false }
    }

    /// Makes it ready for the next answer. An answer to HEAD has no body, whatever its head says.
    pub(crate) fn start(&mut self, answer_to_head: bool) {
        self.state = State::Head;
        self.pending.clear();
        self.answer_to_head = answer_to_head;
        self.keep_alive = false;
    }

    /// The server will take another request on this connection. Holds once the answer is complete.
    pub(crate) fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Reads a piece.
    pub(crate) fn feed(&mut self, piece: &[u8], answer: &mut Answer) -> Result<Progress, Failure> {
        let mut at = 0;
        while self.state != State::Done {
            let rest = &piece[at..];
            if rest.is_empty() && !matches!(self.state, State::Length(0)) {
                return Ok(Progress::More);
            }
            at += match self.state {
                State::Head => self.head(rest, answer)?,
                State::Length(left) => {
                    let taken = take(rest, left);
                    answer.push_body(&rest[..taken]);
                    let left = left - taken as u64;
                    self.state = if left == 0 { State::Done } else { State::Length(left) };
                    taken
                }
                State::UntilClose => {
                    answer.push_body(rest);
                    rest.len()
                }
                State::Chunk(left) => {
                    let taken = take(rest, left);
                    answer.push_body(&rest[..taken]);
                    let left = left - taken as u64;
                    self.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
                    taken
                }
                State::ChunkSize => self.line(rest, |line| match chunk_size(line)? {
                    0 => Some(State::Trailers),
                    size => Some(State::Chunk(size)),
                })?,
                State::ChunkEnd => self.line(rest, |line| line.is_empty().then_some(State::ChunkSize))?,
                State::Trailers => {
                    self.line(rest, |line| Some(if line.is_empty() { State::Done } else { State::Trailers }))?
                }
                State::Done => 0,
            };
        }
        Ok(Progress::Complete(at))
    }

    /// The server closed the connection: is the answer complete with that?
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        match self.state {
            State::UntilClose | State::Done => {
                self.state = State::Done;
                self.keep_alive = false;
                Ok(())
            }
            State::Head if self.pending.is_empty() => Err(Failure::Closed),
            _ => Err(Failure::Incomplete),
        }
    }

    /// Reads a head; returns how many bytes of `rest` were used.
    fn head(&mut self, rest: &[u8], answer: &mut Answer) -> Result<usize, Failure> {
        if self.pending.is_empty() {
            return match self.whole_head(rest, answer)? {
                Some(length) => Ok(length),
                None => self.keep(rest),
            };
        }
        let mut pending = std::mem::take(&mut self.pending);
        let before = pending.len();
        pending.extend_from_slice(&rest[..rest.len().min(HEAD_LIMIT - before)]);
        match self.whole_head(&pending, answer)? {
            // A head that ended in the bytes before would have been complete then.
            Some(length) => Ok(length.saturating_sub(before)),
            None if pending.len() == HEAD_LIMIT => Err(Failure::Malformed),
            None => {
                self.pending = pending;
                Ok(rest.len())
            }
        }
    }

    fn keep(&mut self, rest: &[u8]) -> Result<usize, Failure> {
        if self.pending.len() + rest.len() > HEAD_LIMIT {
            return Err(Failure::Malformed);
        }
        self.pending.extend_from_slice(rest);
        Ok(rest.len())
    }

    /// Reads a head if it is there as a whole; returns its length.
    fn whole_head(&mut self, bytes: &[u8], answer: &mut Answer) -> Result<Option<usize>, Failure> {
        let mut headers = [EMPTY_HEADER; HEADER_LIMIT];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(bytes) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(_) => return Err(Failure::Malformed),
        };
        if length > HEAD_LIMIT {
            return Err(Failure::Malformed);
        }
        let (Some(status), Some(minor_version)) = (head.code, head.version) else {
            return Err(Failure::Malformed);
        };
        if (100..200).contains(&status) && status != 101 {
            // An interim answer (100 Continue, 103 Early Hints): the real one follows.
            return Ok(Some(length));
        }
        let framing = Framing::of(head.headers, minor_version == 1)?;
        answer.status = status;
        for header in head.headers.iter() {
            answer.header(header.name, header.value);
        }
        self.keep_alive = framing.keep_alive && status != 101;
        // RFC 9112, 6.3: which body an answer has.
        self.state = if self.answer_to_head || status == 101 || status == 204 || status == 304 {
            State::Done
        } else if framing.chunked {
            State::ChunkSize
        } else if let Some(length) = framing.length {
            State::Length(length)
        } else {
            self.keep_alive = false;
            State::UntilClose
        };
        Ok(Some(length))
    }

    /// Reads up to a line end and goes on to the state that `next` makes of the line; returns how many bytes were used.
    fn line(&mut self, rest: &[u8], next: impl FnOnce(&[u8]) -> Option<State>) -> Result<usize, Failure> {
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            return self.keep(rest);
        };
        self.keep(&rest[..=end])?;
        let line = self.pending.strip_suffix(b"\r\n").ok_or(Failure::Malformed)?;
        self.state = next(line).ok_or(Failure::Malformed)?;
        self.pending.clear();
        Ok(end + 1)
    }
}

fn take(rest: &[u8], left: u64) -> usize {
    usize::try_from(left).map_or(rest.len(), |left| rest.len().min(left))
}

/// RFC 9112, 7.1: hexadecimal digits, then extensions after a semicolon.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|&byte| byte == b';').next()?.trim_ascii_end();
    if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// How the body is delimited, and what becomes of the connection.
#[derive(Default)]
struct Framing {
    length: Option<u64>,
    chunked: bool,
    keep_alive: bool,
}

impl Framing {
    fn of(headers: &[httparse::Header<'_>], http_1_1: bool) -> Result<Self, Failure> {
        let mut framing = Self { keep_alive: http_1_1, ..Self::default() };
        for header in headers {
            // Most names are of other lengths than these three: one comparison each.
            match header.name.len() {
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    let length = content_length(header.value).ok_or(Failure::Malformed)?;
                    if framing.length.is_some_and(|other| other != length) {
                        return Err(Failure::Malformed);
                    }
                    framing.length = Some(length);
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    if framing.chunked || !header.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                        return Err(Failure::Malformed);
                    }
                    framing.chunked = true;
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    for option in header.value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                        if option.eq_ignore_ascii_case(b"close") {
                            framing.keep_alive = false;
                        } else if option.eq_ignore_ascii_case(b"keep-alive") && !http_1_1 {
                            framing.keep_alive = true;
                        }
                    }
                }
                _ => {}
            }
        }
        if framing.chunked && framing.length.is_some() {
            // RFC 9112, 6.3: "ought to be handled as an error".
            return Err(Failure::Malformed);
        }
        Ok(framing)
    }
}

fn content_length(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What became of an answer: result, status, body, keep-alive.
    type Verdict = (Result<Progress, Failure>, u16, Vec<u8>, bool);

    /// Feeds the pieces, then the end of the connection.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, answer_to_head: bool) -> Verdict {
        let (mut parser, mut answer) = (Parser::new(), Answer::new(true, false));
        parser.start(answer_to_head);
        let mut result = Ok(Progress::More);
        let mut fed = 0;
        for piece in pieces {
            result = parser.feed(piece, &mut answer);
            match result {
                Ok(Progress::More) => fed += piece.len(),
                Ok(Progress::Complete(used)) => {
                    // As if it had come in one piece.
                    result = Ok(Progress::Complete(fed + used));
                    break;
                }
                Err(_) => break,
            }
        }
        if result == Ok(Progress::More) {
            result = parser.end().map(|()| Progress::Complete(fed));
        }
        (result, answer.status, answer.body, result.is_ok() && parser.keep_alive())
    }

    fn whole(text: &str) -> Verdict {
        read([text.as_bytes()], false)
    }

    const GOOD: &[(&str, u16, &str, bool)] = &[
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, "", true),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab", 200, "ab", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", 200, "ab", true),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab", 200, "ab", false),
        ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nab", 200, "ab", true),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, "until the end", false),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, "", true),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", 304, "", true),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n",
            200,
            "hello!",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
            200,
            "0123456789",
            true,
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
            200,
            "x",
            true,
        ),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, "", false),
    ];

    const BAD: &[(&str, Failure)] = &[
        ("", Failure::Closed),
        ("HTTP/1.1 200", Failure::Incomplete),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", Failure::Incomplete),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", Failure::Incomplete),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", Failure::Incomplete),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", Failure::Malformed),
        ("HTTP/9.9 200 OK\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 2x0 OK\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", Failure::Malformed),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Failure::Malformed,
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n", Failure::Malformed),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", Failure::Malformed),
    ];

    #[test]
    fn good_answers() {
        for &(text, status, body, keep_alive) in GOOD {
            let expected = (Ok(Progress::Complete(text.len())), status, body.as_bytes().to_vec(), keep_alive);
            assert_eq!(whole(text), expected, "{text}");
        }
    }

    #[test]
    fn bad_answers() {
        for &(text, failure) in BAD {
            assert_eq!(whole(text).0, Err(failure), "{text}");
        }
    }

    #[test]
    fn bytes_behind_the_answer_are_left() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabcdef";
        assert_eq!(whole(text).0, Ok(Progress::Complete(text.len() - 4)));
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
        assert_eq!(read([text.as_bytes()], true).0, Ok(Progress::Complete(text.len())));
    }

    #[test]
    fn heads_and_lines_without_end_are_refused() {
        let pieces = vec![b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".as_slice(); 10_000];
        assert_eq!(
            read([b"HTTP/1.1 200 OK\r\n".as_slice()].into_iter().chain(pieces), false).0,
            Err(Failure::Malformed)
        );
        let line = vec![b"1".as_slice(); 100_000];
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice();
        assert_eq!(read([head].into_iter().chain(line), false).0, Err(Failure::Malformed));
    }

    fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
        let mut places: Vec<usize> =
            cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
        places.sort_unstable();
        places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(index in 0..GOOD.len() + BAD.len(), cuts: Vec<prop::sample::Index>) {
            let text = GOOD.get(index).map_or_else(|| BAD[index - GOOD.len()].0, |good| good.0);
            let pieces = cut(text.as_bytes(), &cuts);
            let (result, status, body, keep_alive) = read(pieces, false);
            let expected = whole(text);
            prop_assert_eq!(result, expected.0);
            if result.is_ok() {
                prop_assert_eq!((status, body, keep_alive), (expected.1, expected.2, expected.3));
            }
        }

        #[test]
        fn damage_is_survived(index in 0..GOOD.len(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cuts: Vec<prop::sample::Index>) {
            let mut bytes = GOOD[index].0.as_bytes().to_vec();
            for (place, byte) in damage {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            let whole = read([bytes.as_slice()], false).0;
            let pieces = read(cut(&bytes, &cuts), false).0;
            prop_assert_eq!(whole, pieces);
        }

        #[test]
        fn chunked_bodies_come_back(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8), cuts: Vec<prop::sample::Index>) {
            let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for chunk in &chunks {
                bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
            let (result, _, body, keep_alive) = read(cut(&bytes, &cuts), false);
            prop_assert_eq!(result, Ok(Progress::Complete(bytes.len())));
            prop_assert_eq!(body, chunks.concat());
            prop_assert!(keep_alive);
        }
    }

    #[test]
    fn fuzz_answers() {
        let seeds: Vec<&[u8]> = GOOD.iter().map(|(text, ..)| text.as_bytes()).collect();
        let pieces: [&[u8]; 12] = [
            b"\r\n",
            b"\n",
            b"\r",
            b"\0",
            b":",
            b"0",
            b"f",
            b";",
            b"18446744073709551615",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n",
        ];
        hayate_fuzz::run("answers to the load generator", &seeds, &pieces, |_, input| {
            crate::fuzzed::answer(input)
        });
    }
}
