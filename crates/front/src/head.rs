//! A request's head, line by line, as its bytes come: whether it is plainly one of HTTP/1, where it ends, and what body follows.
//!
//! It promises to look at each line once, however small the pieces in which a client sends it, and to refuse a line as soon as it is there.

use std::ops::Range;

use crate::{
    Limits,
    framing::{Refusal, is_token, refuse},
    host::Host,
    target,
};

/// A whole head.
pub(crate) struct Head {
    pub(crate) len: usize,
    /// Where its target is, if hyper would not take that as it stands.
    pub(crate) disguise: Option<Range<usize>>,
    pub(crate) body: BodyLength,
}

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    /// So many bytes, maybe none.
    Known(u64),
    Chunked,
}

/// Reads one head after the other.
pub(crate) struct HeadReader {
    head_size: usize,
    header_count: usize,
    uri_length: usize,
    seen: Seen,
}

/// What is known of a head that is not complete. Positions count from its beginning.
#[derive(Default)]
struct Seen {
    /// Where the first line begins that was not looked at.
    at: usize,
    /// Up to here there is no end of that line.
    searched: usize,
    /// Whether it is HTTP/1.1, and where its target is if that needs a disguise.
    request: Option<(bool, Option<Range<usize>>)>,
    hosts: usize,
    headers: usize,
    length: Option<Vec<u8>>,
    chunked: bool,
}

impl HeadReader {
    pub(crate) fn new(limits: &Limits) -> HeadReader {
        HeadReader {
            head_size: limits.head_size,
            header_count: limits.header_count,
            uri_length: limits.uri_length.min(target::LONGEST),
            seen: Seen::default(),
        }
    }

    /// Looks for a whole head at the start of `input`; `None` when more bytes are needed. The next time `input` begins with the same bytes,
    /// and has more of them.
    pub(crate) fn read(&mut self, input: &[u8]) -> Result<Option<Head>, Refusal> {
        let mut seen = std::mem::take(&mut self.seen);
        // An empty line before a request is to be ignored (RFC 9112, 2.2); more than one is noise.
        if seen.at == 0 {
            if input == b"\r" {
                return Ok(None);
            }
            if input.starts_with(b"\r\n") {
                seen.at = 2;
            }
        }
        loop {
            let from = seen.searched.max(seen.at);
            let end = memchr::memchr(b'\n', input.get(from..).unwrap_or_default());
            let Some(end) = end.and_then(|n| from.checked_add(n)) else {
                let pending = input.len().saturating_sub(seen.at);
                if seen.request.is_none() && pending > self.uri_length.saturating_add(64) {
                    return Err(refuse(414, "the request target is too long"));
                }
                if input.len() > self.head_size {
                    return Err(refuse(431, "the request's head is too large"));
                }
                seen.searched = input.len();
                self.seen = seen;
                return Ok(None);
            };
            let line_at = seen.at;
            let line = input.get(line_at..end).unwrap_or_default();
            seen.at = end.saturating_add(1);
            if seen.at > self.head_size {
                let too_long = seen.request.is_none() && line.len() > self.uri_length;
                return Err(if too_long {
                    refuse(414, "the request target is too long")
                } else {
                    refuse(431, "the request's head is too large")
                });
            }
            let Some(line) = line.strip_suffix(b"\r") else {
                return Err(refuse(400, "a line does not end in CR LF"));
            };
            let Some((http_1_1, disguise)) = &seen.request else {
                seen.request = Some(self.request_line(line, line_at)?);
                continue;
            };
            if line.is_empty() {
                let body = seen.body(*http_1_1)?;
                return Ok(Some(Head { len: seen.at, disguise: disguise.clone(), body }));
            }
            seen.headers = seen.headers.saturating_add(1);
            if seen.headers > self.header_count {
                return Err(refuse(431, "too many headers"));
            }
            seen.header(line)?;
        }
    }

    /// Whether it is one of HTTP/1.1 rather than 1.0, and where its target is if that needs a disguise. `at`: where the line begins.
    fn request_line(&self, line: &[u8], at: usize) -> Result<(bool, Option<Range<usize>>), Refusal> {
        let malformed = refuse(400, "the request line is malformed");
        let mut parts = line.split(|b| *b == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed);
        };
        if method.is_empty() || !method.iter().all(|b| is_token(*b)) || target.is_empty() {
            return Err(malformed);
        }
        if target.len() > self.uri_length {
            return Err(refuse(414, "the request target is too long"));
        }
        let disguise = target::check(target).map_err(|reason| refuse(400, reason))?;
        // Within a head, whose size is limited.
        let target_at = at.saturating_add(method.len()).saturating_add(1);
        let disguise = disguise.then(|| target_at..target_at.saturating_add(target.len()));
        match version {
            b"HTTP/1.1" => Ok((true, disguise)),
            b"HTTP/1.0" => Ok((false, disguise)),
            _ if version.starts_with(b"HTTP/") => {
                Err(refuse(505, "a version of HTTP other than 1.0 and 1.1"))
            }
            _ => Err(malformed),
        }
    }
}

impl Seen {
    fn header(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let (name, value) = header_line(line)?;
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                self.hosts = self.hosts.saturating_add(1);
                // An empty one is allowed (RFC 9112, 3.2): it names no host.
                if !value.is_empty() && Host::parse(value).is_none() {
                    return Err(refuse(400, "the Host is malformed"));
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if self.length.as_ref().is_some_and(|before| before != value) {
                    return Err(refuse(400, "two values of Content-Length"));
                }
                self.length = Some(value.to_vec());
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(refuse(400, "a Transfer-Encoding other than chunked"));
                }
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn body(&self, http_1_1: bool) -> Result<BodyLength, Refusal> {
        if http_1_1 && self.hosts != 1 {
            return Err(refuse(400, "HTTP/1.1 needs exactly one Host"));
        }
        if self.hosts > 1 {
            return Err(refuse(400, "more than one Host"));
        }
        match (&self.length, self.chunked) {
            (Some(_), true) => Err(refuse(400, "both Content-Length and Transfer-Encoding")),
            (None, true) if !http_1_1 => Err(refuse(400, "Transfer-Encoding in HTTP/1.0")),
            (None, true) => Ok(BodyLength::Chunked),
            (Some(length), false) => content_length(length).map(BodyLength::Known),
            (None, false) => Ok(BodyLength::Known(0)),
        }
    }
}

/// One header field: name and trimmed value.
pub(crate) fn header_line(line: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(refuse(400, "a folded header line"));
    }
    let colon = memchr::memchr(b':', line).and_then(|colon| line.split_at_checked(colon));
    let (name, value) = colon.ok_or(refuse(400, "a header line without a colon"))?;
    let value = value.strip_prefix(b":").unwrap_or(value);
    if name.is_empty() || !name.iter().all(|b| is_token(*b)) {
        return Err(refuse(400, "a malformed header name"));
    }
    if value.iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f) {
        return Err(refuse(400, "control characters in a header"));
    }
    // Only blanks are optional white space (RFC 9110, 5.6.3).
    let from = value.iter().position(|b| !matches!(b, b' ' | b'\t')).unwrap_or(value.len());
    let to = value.iter().rposition(|b| !matches!(b, b' ' | b'\t')).map_or(from, |i| i.saturating_add(1));
    Ok((name, value.get(from..to).unwrap_or_default()))
}

fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    let malformed = refuse(400, "a malformed Content-Length");
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(malformed);
    }
    // hyper keeps the largest values for itself.
    let value = std::str::from_utf8(value).ok().and_then(|v| v.parse::<u64>().ok()).ok_or(malformed)?;
    if value > u64::MAX >> 4 { Err(malformed) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_in_pieces_of_a_byte_is_looked_at_once() {
        let limits = Limits { head_size: 1 << 20, header_count: 10_000, ..Limits::default() };
        let mut reader = HeadReader::new(&limits);
        let mut head = b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n".to_vec();
        head.extend("X: y\r\n".repeat(9_000).bytes());
        head.extend(b"\r\n");
        for n in 1..head.len() {
            assert!(reader.read(&head[..n]).unwrap().is_none());
            // All but the line that is not complete.
            assert!(n - reader.seen.at < 20 && (reader.seen.searched == n || n < 2), "at {n}");
        }
        let whole = reader.read(&head).unwrap().unwrap();
        assert_eq!((whole.len, whole.body), (head.len(), BodyLength::Known(7)));
        assert_eq!(reader.seen.at, 0, "and the next one begins afresh");
    }
}
