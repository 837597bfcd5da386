//! The head of an HTTP/1 request: strict, and one pass over its bytes.
//!
//! A difference of opinion about where a request ends is how requests are smuggled past a proxy. So what RFC 9112 lets a server tolerate is
//! refused here: a bare LF, white space before a colon, folded lines, two lengths, a length beside a coding, codings other than
//! chunked. httparse was looked at first: it tolerates bare LFs and any number of empty lines before a request, and begins anew
//! with each piece of a head that comes slowly; with a second look that finds what it let pass, this one is shorter.
//!
//! The parser goes line by line, as lines become complete, and remembers how far it has looked. It changes the case of header names in
//! place, and nothing else.

use crate::{
    Limits, Refusal, Version,
    head::{Span, Spans},
    refusal::refuse,
};

/// How a request's body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// So many bytes, more than 0.
    Length(u64),
    /// In the chunked coding.
    Chunked,
}

/// Lengths above are refused: nothing that is added to one overflows.
const LONGEST: u64 = u64::MAX >> 4;

/// What the request line and the headers say of the message itself.
#[derive(Debug, Clone, Copy)]
pub struct Outline {
    /// The request's version; only 1.0 or 1.1.
    pub version: Version,
    /// Its body's.
    pub framing: Framing,
    /// Whether the connection may serve another request.
    pub persistent: bool,
    /// Whether the client waits for 100 (Continue) before it sends its body.
    pub expects: bool,
}

/// Reads one head, in as many pieces as it takes.
#[derive(Debug, Default)]
pub struct Parser {
    /// Where the first line that is not complete begins.
    line: usize,
    /// Up to where the end of that line was looked for.
    seen: usize,
    version: Option<Version>,
    pub(crate) spans: Spans,
    hosts: u32,
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    expects: bool,
}

impl Parser {
    /// Begins anew, with what it has allocated.
    pub fn reset(&mut self) {
        let mut fields = std::mem::take(&mut self.spans.fields);
        fields.clear();
        *self = Parser { spans: Spans { fields, ..Spans::default() }, ..Parser::default() };
    }

    /// Looks at the beginning of `input`, all of it that has come so far. Gives the head's length in bytes once it is whole.
    pub fn feed(&mut self, input: &mut [u8], limits: &Limits) -> Result<Option<(usize, Outline)>, Refusal> {
        loop {
            let found = memchr::memchr(b'\n', input.get(self.seen..).unwrap_or_default());
            let Some(end) = found.map(|at| self.seen + at) else {
                self.seen = input.len();
                return self.partial(input, limits);
            };
            let next = end + 1;
            if next > limits.head_size {
                return Err(self.too_large(end - self.line, limits));
            }
            let line = self.line..end.saturating_sub(1);
            if end == self.line || input.get(end - 1) != Some(&b'\r') {
                return Err(refuse(400, "a line does not end in CR LF"));
            }
            (self.line, self.seen) = (next, next);
            if line.is_empty() {
                match self.version {
                    Some(version) => return self.whole(version).map(|outline| Some((next, outline))),
                    // An empty line before a request is to be ignored (RFC 9112, 2.2); more than one is noise.
                    None if line.start == 0 => continue,
                    None => return Err(refuse(400, "the request line is malformed")),
                }
            }
            if self.version.is_none() {
                self.request_line(input, line.start, line.end, limits)?;
            } else {
                if self.spans.fields.len() >= limits.header_count {
                    return Err(refuse(431, "too many headers"));
                }
                self.field(input, line.start, line.end)?;
            }
        }
    }

    /// More is needed. Says so early when nothing could make a head of it.
    fn partial(&self, input: &[u8], limits: &Limits) -> Result<Option<(usize, Outline)>, Refusal> {
        let pending = input.len() - self.line.min(input.len());
        if self.version.is_none() && is_long(pending, limits) {
            return Err(refuse(414, "the request target is too long"));
        }
        if input.len() > limits.head_size {
            return Err(refuse(431, "the request's head is too large"));
        }
        Ok(None)
    }

    fn too_large(&self, line: usize, limits: &Limits) -> Refusal {
        match self.version {
            None if line > limits.uri_length => refuse(414, "the request target is too long"),
            _ => refuse(431, "the request's head is too large"),
        }
    }

    fn request_line(&mut self, input: &[u8], from: usize, to: usize, limits: &Limits) -> Result<(), Refusal> {
        const MALFORMED: Refusal = refuse(400, "the request line is malformed");
        let line = input.get(from..to).unwrap_or_default();
        // As it would be with all but its LF there.
        if is_long(line.len() + 1, limits) {
            return Err(refuse(414, "the request target is too long"));
        }
        let method = line.iter().position(|b| *b == b' ').ok_or(MALFORMED)?;
        let (Some(name), Some(rest)) = (line.get(..method), line.get(method + 1..)) else {
            return Err(MALFORMED);
        };
        if !is_method(name) {
            return Err(MALFORMED);
        }
        let target = memchr::memchr(b' ', rest).ok_or(MALFORMED)?;
        let (Some(bytes), Some(version)) = (rest.get(..target), rest.get(target + 1..)) else {
            return Err(MALFORMED);
        };
        if bytes.is_empty() {
            return Err(MALFORMED);
        }
        if bytes.len() > limits.uri_length {
            return Err(refuse(414, "the request target is too long"));
        }
        if bytes.iter().any(|b| *b <= b' ' || *b == 0x7f) {
            return Err(refuse(400, "control characters in the request target"));
        }
        self.version = match version {
            b"HTTP/1.1" => Some(Version::Http11),
            b"HTTP/1.0" => Some(Version::Http10),
            _ if version.starts_with(b"HTTP/") && !version.contains(&b' ') => {
                return Err(refuse(505, "a version of HTTP other than 1.0 and 1.1"));
            }
            _ => return Err(MALFORMED),
        };
        self.spans.method = Span::new(from..from + method);
        let target_at = from + method + 1;
        self.spans.target = Span::new(target_at..target_at + target);
        Ok(())
    }

    fn field(&mut self, input: &mut [u8], from: usize, to: usize) -> Result<(), Refusal> {
        let line = input.get_mut(from..to).unwrap_or_default();
        let mut colon = None;
        for (at, b) in line.iter_mut().enumerate() {
            match lower(*b) {
                0 if *b == b':' && at > 0 => {
                    colon = Some(at);
                    break;
                }
                0 if at == 0 && matches!(*b, b' ' | b'\t') => {
                    return Err(refuse(400, "a folded header line"));
                }
                0 => return Err(refuse(400, "a malformed header name")),
                small => *b = small,
            }
        }
        let Some(colon) = colon else { return Err(refuse(400, "a header line without a colon")) };
        let (name, rest) = line.split_at(colon);
        let value = rest.get(1..).unwrap_or_default();
        // One comparison for all bytes, which the compiler turns into vectors.
        if value.iter().fold(false, |bad, b| bad | ((*b < b' ') & (*b != b'\t')) | (*b == 0x7f)) {
            return Err(refuse(400, "control characters in a header"));
        }
        // Only blanks are optional white space (RFC 9110, 5.6.3).
        let blank = |b: &u8| matches!(b, b' ' | b'\t');
        let begin = value.iter().position(|b| !blank(b)).unwrap_or(value.len());
        let end = value.iter().rposition(|b| !blank(b)).map_or(begin, |at| at + 1);
        let value = value.get(begin..end).unwrap_or_default();
        match name {
            b"host" => {
                self.hosts += 1;
                if value.is_empty() || !is_host(value) {
                    return Err(refuse(400, "the Host is malformed"));
                }
            }
            b"content-length" => {
                // Also two that agree: whoever sends them may be one who reads another one of them.
                if self.length.is_some() {
                    return Err(refuse(400, "more than one Content-Length"));
                }
                self.length = Some(content_length(value)?);
            }
            b"transfer-encoding" => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(refuse(400, "a Transfer-Encoding other than chunked"));
                }
                self.chunked = true;
            }
            b"connection" => {
                for option in value.split(|b| *b == b',') {
                    let option = option.trim_ascii();
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            b"expect" => self.expects |= value.eq_ignore_ascii_case(b"100-continue"),
            _ => {}
        }
        let value_at = from + colon + 1 + begin;
        let spans = (Span::new(from..from + colon), Span::new(value_at..value_at + value.len()));
        self.spans.fields.push(spans);
        Ok(())
    }

    fn whole(&self, version: Version) -> Result<Outline, Refusal> {
        let http11 = version == Version::Http11;
        if http11 && self.hosts != 1 {
            return Err(refuse(400, "HTTP/1.1 needs exactly one Host"));
        }
        if self.hosts > 1 {
            return Err(refuse(400, "more than one Host"));
        }
        let framing = match (self.length, self.chunked) {
            (Some(_), true) => return Err(refuse(400, "both Content-Length and Transfer-Encoding")),
            (None, true) if !http11 => return Err(refuse(400, "Transfer-Encoding in HTTP/1.0")),
            (None, true) => Framing::Chunked,
            (None | Some(0), false) => Framing::None,
            (Some(length), false) => Framing::Length(length),
        };
        Ok(Outline {
            version,
            framing,
            persistent: if http11 { !self.close } else { self.keep_alive && !self.close },
            expects: self.expects && http11 && framing != Framing::None,
        })
    }
}

/// Whether so much of a request line, be it whole or not, has a target or a method that is too long.
fn is_long(line: usize, limits: &Limits) -> bool {
    line > limits.uri_length + 64
}

fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    let malformed = refuse(400, "a malformed Content-Length");
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(malformed);
    }
    let value = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
    value.filter(|value| *value <= LONGEST).ok_or(malformed)
}

/// Whether it may be a method. All that are registered are of these letters; a lower-case one is most likely the end of a body
/// that somebody took for shorter than it was, with the next request behind it.
pub(crate) fn is_method(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| b.is_ascii_uppercase() || matches!(b, b'-' | b'_'))
}

/// Whether it has only bytes that a host name with a port may have (RFC 9110, 7.2).
pub(crate) fn is_host(value: &[u8]) -> bool {
    value.iter().all(|b| HOST.get(usize::from(*b)) == Some(&true))
}

#[allow(clippy::indexing_slicing, reason = "computed when this is compiled")]
const HOST: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = (b as u8).is_ascii_alphanumeric();
        b += 1;
    }
    let others = b"-._~:[]%!$&'()*+,;=";
    let mut i = 0;
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    table
};

/// Whether it is one of a token.
pub(crate) fn is_token(b: u8) -> bool {
    lower(b) != 0
}

/// A byte of a token (RFC 9110, 5.6.2) in lower case; 0 for others.
pub(crate) fn lower(b: u8) -> u8 {
    TOKEN.get(usize::from(b)).copied().unwrap_or_default()
}

#[allow(clippy::indexing_slicing, reason = "computed when this is compiled")]
const TOKEN: [u8; 256] = {
    let mut table = [0; 256];
    let mut b = 0;
    while b < 256 {
        let byte = b as u8;
        if byte.is_ascii_alphanumeric() {
            table[b] = byte.to_ascii_lowercase();
        }
        b += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut i = 0;
    while i < others.len() {
        table[others[i] as usize] = others[i];
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { head_size: 1000, header_count: 5, uri_length: 100, ..Limits::default() }
    }

    /// Fed at once and byte by byte: the same has to come of it, and what is refused byte by byte is refused at the first byte that shows it.
    fn parse(input: &[u8]) -> Result<Option<(usize, Framing)>, u16> {
        let mut whole = input.to_vec();
        let at_once = Parser::default().feed(&mut whole, &limits());
        let mut slow = (Parser::default(), Vec::new());
        let mut in_pieces = Ok(None);
        for b in input {
            slow.1.push(*b);
            in_pieces = slow.0.feed(&mut slow.1, &limits());
            if !matches!(in_pieces, Ok(None)) {
                break;
            }
        }
        let short = |result: Result<Option<(usize, Outline)>, Refusal>| match result {
            Ok(found) => Ok(found.map(|(len, outline)| (len, outline.framing))),
            Err(refusal) => Err(refusal.status),
        };
        let (a, b) = (short(at_once), short(in_pieces));
        assert_eq!(a, b, "{}", String::from_utf8_lossy(input));
        a
    }

    /// What was looked at is something else when the next byte comes: lines that are complete for good, the line that is not until it is.
    /// Whoever began anew with each byte would find these, and refuse them.
    #[test]
    fn a_head_byte_by_byte_is_looked_at_once_and_each_line_once_more() {
        let head =
            format!("GET /a HTTP/1.1\r\nHost: a\r\nX: {}\r\nY: z\r\n\r\n", "x".repeat(800)).into_bytes();
        let (mut parser, mut line) = (Parser::default(), 0);
        for end in 1..head.len() {
            let mut came = vec![b'\n'; end];
            let whole = head[end - 1] == b'\n';
            let intact = if whole { line } else { end - 1 };
            came[intact..].copy_from_slice(&head[intact..end]);
            assert!(matches!(parser.feed(&mut came, &limits()), Ok(None)), "byte {end} of {}", head.len());
            if whole {
                line = end;
            }
        }
        let (len, outline) = parser.feed(&mut head.clone(), &limits()).unwrap().unwrap();
        assert_eq!((len, outline.framing, outline.persistent), (head.len(), Framing::None, true));
        assert_eq!(parser.spans.fields.len(), 3);
    }

    #[test]
    fn plain_heads() {
        let long = b"POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(parse(long), Ok(Some((long.len() - 5, Framing::Length(5)))));
        let blank = b"\r\nGET / HTTP/1.0\r\n\r\nGET";
        assert_eq!(parse(blank), Ok(Some((blank.len() - 3, Framing::None))));
        let chunked = b"POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\n\r\n";
        assert_eq!(parse(chunked), Ok(Some((chunked.len(), Framing::Chunked))));
        assert_eq!(parse(b"GET / HTTP/1.1\r\nHost: a\r\n"), Ok(None));
    }

    #[test]
    fn what_is_not_plainly_http_is_refused() {
        let head = |extra: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{extra}\r\n").into_bytes();
        for extra in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: \u{b}chunked\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
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
            "X: a\x7f\r\n",
        ] {
            assert_eq!(parse(&head(extra)), Err(400), "{extra:?}");
        }
        for input in [
            &b"GET / HTTP/1.1\nHost: a\r\n\r\n"[..],
            b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
            b"GET /\r\n\r\n",
            b" GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"helloGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
            b"GET / HTTP/1.0\r\nHost: \t\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
            b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\n",
        ] {
            assert_eq!(parse(input), Err(400), "{}", String::from_utf8_lossy(input));
        }
        assert_eq!(parse(b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"), Err(505));
    }

    #[test]
    fn limits_hold_for_whole_heads_and_for_pieces() {
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(200));
        assert_eq!(parse(long.as_bytes()), Err(414));
        let large = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(2000));
        assert_eq!(parse(large.as_bytes()), Err(431));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(5));
        assert_eq!(parse(many.as_bytes()), Err(431));
        assert_eq!(parse(&b"G".repeat(165)), Err(414), "no line that long could hold a target of 100 bytes");
    }

    #[test]
    fn names_are_in_lower_case_and_nothing_else_is_changed() {
        let mut input =
            b"GET /A%2f?B=\"<x> HTTP/1.1\r\nHoSt: Example.ORG\r\nX-Y_Z: \t a B \t\r\nEmpty:\r\n\r\nrest"
                .to_vec();
        let mut parser = Parser::default();
        let (len, outline) = parser.feed(&mut input, &limits()).unwrap().unwrap();
        let rest = input.split_off(len);
        let head = crate::Head { bytes: input, spans: parser.spans, version: outline.version };
        assert_eq!(rest, b"rest");
        assert_eq!((head.method(), head.target()), (&b"GET"[..], &b"/A%2f?B=\"<x>"[..]));
        let fields: Vec<_> = head.fields().map(|field| (field.name, field.value)).collect();
        assert_eq!(fields, [(&b"host"[..], &b"Example.ORG"[..]), (b"x-y_z", b"a B"), (b"empty", b"")]);
        assert_eq!(head.get(b"x-y_z"), Some(&b"a B"[..]));
        assert_eq!(head.get(b"x"), None);
    }

    #[test]
    fn persistence_and_expectations() {
        let outline = |head: &str| {
            let mut input = head.replace('\n', "\r\n").into_bytes();
            let outline = Parser::default().feed(&mut input, &limits()).unwrap().unwrap().1;
            (outline.persistent, outline.expects)
        };
        assert_eq!(outline("GET / HTTP/1.1\nHost: a\n\n"), (true, false));
        assert_eq!(outline("GET / HTTP/1.1\nHost: a\nConnection: x, Close\n\n"), (false, false));
        assert_eq!(outline("GET / HTTP/1.0\n\n"), (false, false));
        assert_eq!(outline("GET / HTTP/1.0\nConnection: Keep-Alive\n\n"), (true, false));
        assert_eq!(
            outline("PUT / HTTP/1.1\nHost: a\nExpect: 100-Continue\nContent-Length: 1\n\n"),
            (true, true)
        );
        assert_eq!(
            outline("PUT / HTTP/1.1\nHost: a\nExpect: 100-continue\n\n"),
            (true, false),
            "there is no body to wait for"
        );
        assert_eq!(outline("PUT / HTTP/1.0\nExpect: 100-continue\nContent-Length: 1\n\n"), (false, false));
    }

    #[test]
    fn a_long_method_is_refused_however_it_comes() {
        let line = |method: usize| [b"A".repeat(method), b" / HTTP/1.0\r\n\r\n".to_vec()].concat();
        let most = limits().uri_length + 64 - " / HTTP/1.0\r".len();
        assert_eq!(parse(&line(most)), Ok(Some((line(most).len(), Framing::None))));
        assert_eq!(parse(&line(most + 1)), Err(414));
    }

    /// However a head is cut into pieces, the same comes of it; and what is accepted ends in an empty line.
    #[test]
    fn fuzz_heads() {
        let seeds: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\nHost: a.test:80\r\nX-Y: z\r\n\r\n",
            b"POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close, x\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
            b"\r\nGET http://u@h/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        ];
        let pieces: [&[u8]; 14] = [
            b"\r\n",
            b"\n",
            b"\r",
            b"\0",
            b" ",
            b"\t",
            b":",
            b",",
            b"\x7f",
            b"\xff",
            b"18446744073709551615",
            b"Host: b\r\n",
            b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n",
        ];
        hayate_fuzz::run("heads of HTTP/1", &seeds, &pieces, |_, input| {
            if let Ok(Some((len, _))) = parse(input) {
                assert!(input[..len].ends_with(b"\r\n\r\n"));
            }
            crate::fuzzed::head(input);
        });
    }
}
