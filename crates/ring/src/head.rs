//! The two heads as they stand in the memory: request records, written by the front, and the response head, read by it.

use std::ops::Range;

use crate::layout::*;

/// The request head does not fit its area ([`crate::Config::request_head`]); answer 431.
#[derive(Debug, thiserror::Error)]
#[error("the request head is larger than its area in the shared memory")]
pub struct HeadTooLarge;

/// How a record begins.
pub(crate) type Begin = [u8; size_of::<hy_record>()];

/// The beginning of a record, and the bytes of all of it, of which there may be `room`.
pub(crate) fn record(
    field: u16,
    name: &[u8],
    value: &[u8],
    room: usize,
) -> Result<(Begin, usize), HeadTooLarge> {
    let lengths = u16::try_from(name.len()).ok().zip(u32::try_from(value.len()).ok());
    let (name_len, value_len) = lengths.ok_or(HeadTooLarge)?;
    // Two zero bytes: both are strings of C's.
    let len = size_of::<Begin>() + name.len() + value.len() + 2;
    if len > room {
        return Err(HeadTooLarge);
    }
    let ([a, b], [c, d], [e, f, g, h]) =
        (field.to_ne_bytes(), name_len.to_ne_bytes(), value_len.to_ne_bytes());
    Ok(([a, b, c, d, e, f, g, h], len))
}

/// Fields that many requests share, as they stand in the memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records(Option<Vec<u8>>);

impl Records {
    /// Each by its number in `host/layout.h`. What is too large for a record makes [`crate::Slot::put_all`] fail.
    pub fn new<'a>(fields: impl IntoIterator<Item = (impl Into<u16>, &'a [u8])>) -> Records {
        let mut bytes = Vec::new();
        let all = fields.into_iter().try_for_each(|(field, value)| {
            let (begin, _) = record(field.into(), b"", value, i32::MAX as usize)?;
            bytes.extend_from_slice(&begin);
            bytes.push(0);
            bytes.extend_from_slice(value);
            bytes.push(0);
            Ok::<_, HeadTooLarge>(())
        });
        Records(all.ok().map(|()| bytes))
    }

    /// As they stand in the memory, if there are not more than `room` bytes.
    pub(crate) fn bytes(&self, room: usize) -> Result<&[u8], HeadTooLarge> {
        self.0.as_deref().filter(|bytes| bytes.len() <= room).ok_or(HeadTooLarge)
    }
}

/// What a worker answered, before the body. A copy: the worker cannot change it any more.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    /// As the script set it; not yet checked to be a valid status.
    pub status: u16,
    headers: u16,
    raw: Vec<u8>,
    /// Where the headers begin: behind the reason phrase.
    rest_at: usize,
}

/// Bytes before the reason phrase.
const FIXED: usize = size_of::<hy_response_head>();

impl ResponseHead {
    /// `None` when the bytes are not a response head: the worker broke the protocol.
    pub(crate) fn parse(raw: Vec<u8>) -> Option<ResponseHead> {
        let [a, b, c, d, e, f] = *raw.first_chunk::<FIXED>()?;
        let status = u16::from_ne_bytes([a, b]);
        let reason_len = u16::from_ne_bytes([c, d]) as usize;
        let headers = u16::from_ne_bytes([e, f]);
        let rest_at = FIXED + reason_len;
        raw.get(..rest_at)?;
        let head = ResponseHead { status, headers, raw, rest_at };
        // Walk it once here, so that `headers` cannot fail later.
        (head.headers().count() == headers as usize).then_some(head)
    }

    /// The reason phrase that the script gave, if it did.
    pub fn reason(&self) -> Option<&[u8]> {
        self.raw.get(FIXED..self.rest_at).filter(|reason| !reason.is_empty())
    }

    /// Names and values as the script gave them, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> + '_ {
        let mut places = self.places();
        std::iter::from_fn(move || {
            let (name, value) = places.next(&self.raw)?;
            Some((self.raw.get(name)?, self.raw.get(value)?))
        })
    }

    fn places(&self) -> Places {
        Places { at: self.rest_at, left: self.headers }
    }

    /// What it was made of, and where in that names and values are.
    pub fn into_bytes(self) -> (Vec<u8>, Places) {
        let places = self.places();
        (self.raw, places)
    }
}

/// Where the headers of a [`ResponseHead`] are in its bytes.
#[derive(Debug)]
pub struct Places {
    at: usize,
    left: u16,
}

impl Places {
    /// The next name and value in these bytes, which are those of the head; `None` after the last one.
    pub fn next(&mut self, bytes: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
        self.left = self.left.checked_sub(1)?;
        let [a, b, c, d, e, f] = *bytes.get(self.at..)?.first_chunk()?;
        let name = self.at + 6..self.at + 6 + usize::from(u16::from_ne_bytes([a, b]));
        // A length of 32 bits more than a place in memory: no sum of them overflows.
        let value = name.end..name.end + u32::from_ne_bytes([c, d, e, f]) as usize;
        self.at = value.end;
        (value.end <= bytes.len()).then_some((name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, reason: &[u8], headers: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut raw = Vec::new();
        raw.extend(status.to_ne_bytes());
        raw.extend((reason.len() as u16).to_ne_bytes());
        raw.extend((headers.len() as u16).to_ne_bytes());
        raw.extend(reason);
        for (name, value) in headers {
            raw.extend((name.len() as u16).to_ne_bytes());
            raw.extend((value.len() as u32).to_ne_bytes());
            raw.extend(*name);
            raw.extend(*value);
        }
        raw
    }

    #[test]
    fn a_response_head_comes_back_as_it_was_written() {
        let raw = head(404, b"Nope", &[(b"X-A", b"1"), (b"Set-Cookie", b""), (b"X-A", b"2")]);
        let parsed = ResponseHead::parse(raw).unwrap();
        assert_eq!((parsed.status, parsed.reason()), (404, Some(&b"Nope"[..])));
        let headers: Vec<_> = parsed.headers().collect();
        assert_eq!(headers.len(), 3);
        assert_eq!(headers[2], (&b"X-A"[..], &b"2"[..]));
    }

    #[test]
    fn a_response_head_cut_anywhere_is_refused() {
        let raw = head(200, b"OK", &[(b"Content-Type", b"text/plain")]);
        for end in 0..raw.len() {
            assert!(ResponseHead::parse(raw[..end].to_vec()).is_none(), "cut at {end}");
        }
    }

    #[test]
    fn a_response_head_with_absurd_lengths_is_refused() {
        let mut raw = head(200, b"", &[(b"A", b"b")]);
        raw[8..12].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(ResponseHead::parse(raw).is_none());
    }

    #[test]
    fn fuzz_heads_of_a_hostile_worker() {
        let seeds = [
            head(404, b"Nope", &[(b"X-A", b"1"), (b"Set-Cookie", b""), (b"X-A", b"2")]),
            head(200, b"", &[(b"Content-Type", b"text/html"), (b"Location", &[b'x'; 300])]),
            head(103, b"", &[]),
        ];
        let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
        let pieces: [&[u8]; 5] =
            [b"\0", b"\xff\xff", b"\xff\xff\xff\xff", b"\x01\0\x01\0\0\0ab", b"\0\0\0\x80"];
        hayate_fuzz::run("heads of a worker", &seeds, &pieces, |_, input| {
            crate::fuzzed::response_head(input)
        });
    }

    #[test]
    fn records_stop_at_the_limit() {
        assert_eq!(record(1, b"", b"GET", 13).unwrap().1, 8 + 1 + 3 + 1);
        assert!(record(1, b"", b"GET", 12).is_err());
        assert!(record(0, &vec![b'n'; 1 << 16], b"", usize::MAX).is_err());
        assert_eq!(Records::new([(HY_FIELD_METHOD as u16, &b"GET"[..])]).bytes(13).unwrap().len(), 13);
        assert!(Records::new([(HY_FIELD_METHOD as u16, &b"GET"[..])]).bytes(12).is_err());
    }
}
