//! The head of an answer, without anything that is one version's own.

use std::ops::Range;

use smallvec::SmallVec;

use crate::{h1::parse::is_token, head::Span};

/// How long an answer's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// There is none, and nothing says how long it would be: 204, 304, answers to CONNECT.
    None,
    /// So many bytes. To a HEAD: it would have so many.
    Exact(u64),
    /// Nobody knows yet.
    Unknown,
}

/// A name or value that no message may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Bytes for fields that nobody has counted beforehand: those of the front itself.
const ROOM: usize = 64;

/// A status and header fields. What frames the message (Content-Length, Transfer-Encoding, Connection) is not put here: it comes from [`Length`],
/// and from the connection. So do Date and Server, where they are not put here.
#[derive(Debug, Default)]
pub struct Answer {
    status: u16,
    reason: Option<Vec<u8>>,
    bytes: Vec<u8>,
    fields: SmallVec<[(Span, Span); 16]>,
}

impl Answer {
    /// With a status from 100 to 999; others become 500.
    pub fn new(status: u16) -> Answer {
        Answer { status: if (100..1000).contains(&status) { status } else { 500 }, ..Answer::default() }
    }

    /// The same, with room for fields of so many bytes in all.
    pub fn with_room(status: u16, bytes: usize) -> Answer {
        Answer { bytes: Vec::with_capacity(bytes.saturating_add(ROOM)), ..Answer::new(status) }
    }

    /// The same, of what was written elsewhere: names and values are parts of these bytes, by [`Answer::add_part`].
    pub fn of(status: u16, bytes: Vec<u8>) -> Answer {
        Answer { bytes, ..Answer::new(status) }
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Changes it, within the same range.
    pub fn set_status(&mut self, status: u16) {
        self.status = if (100..1000).contains(&status) { status } else { 500 };
    }

    /// Words of its own beside the status, in HTTP/1; control characters in them are an error.
    pub fn set_reason(&mut self, reason: &[u8]) -> Result<(), Malformed> {
        if !is_value(reason) {
            return Err(Malformed);
        }
        self.reason = Some(reason.to_vec());
        Ok(())
    }

    /// Its own words, if it has some.
    pub fn reason(&self) -> Option<&[u8]> {
        self.reason.as_deref()
    }

    /// Adds a field, after those of the same name.
    pub fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        if !is_name(name) || !is_value(value) {
            return Err(Malformed);
        }
        let from = self.bytes.len();
        self.bytes.extend_from_slice(name);
        let between = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.fields.push((Span::new(from..between), Span::new(between..self.bytes.len())));
        Ok(())
    }

    /// Adds a field that lies in the bytes it was made [of][Answer::of].
    pub fn add_part(&mut self, name: Range<usize>, value: Range<usize>) -> Result<(), Malformed> {
        let part = |range: &Range<usize>| self.bytes.get(range.clone());
        match (part(&name), part(&value)) {
            (Some(n), Some(v)) if is_name(n) && is_value(v) => {}
            _ => return Err(Malformed),
        }
        self.fields.push((Span::new(name), Span::new(value)));
        Ok(())
    }

    /// The bytes it was made [of][Answer::of], and what was added since.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Puts a field in the place of all of its name.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        self.remove(name);
        self.add(name, value)
    }

    /// Takes all fields of a name out.
    pub fn remove(&mut self, name: &[u8]) {
        let bytes = &self.bytes;
        self.fields.retain(|(field, _)| !field.of(bytes).eq_ignore_ascii_case(name));
    }

    /// Names and values in order, as they were given.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (name.of(&self.bytes), value.of(&self.bytes)))
    }

    /// The first value of a name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| is_token(*b))
}

fn is_value(value: &[u8]) -> bool {
    !value.iter().fold(false, |bad, b| bad | ((*b < b' ') & (*b != b'\t')) | (*b == 0x7f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_added_replaced_and_removed() {
        let mut answer = Answer::new(200);
        for (name, value) in [("Content-Type", "a"), ("Set-Cookie", "x"), ("set-cookie", "y")] {
            answer.add(name.as_bytes(), value.as_bytes()).unwrap();
        }
        answer.set(b"content-type", b"b").unwrap();
        let fields: Vec<_> = answer.fields().collect();
        assert_eq!(fields, [(&b"Set-Cookie"[..], &b"x"[..]), (b"set-cookie", b"y"), (b"content-type", b"b")]);
        answer.remove(b"SET-COOKIE");
        assert_eq!(answer.get(b"Content-Type"), Some(&b"b"[..]));
        assert_eq!(answer.get(b"set-cookie"), None);
    }

    #[test]
    fn parts_lie_within_the_bytes_and_are_held_to_the_same() {
        let mut answer = Answer::of(200, b"X-A: 1\nY".to_vec());
        answer.add_part(0..3, 5..6).unwrap();
        for (name, value) in [(0..3, 5..9), (7..9, 5..6), (0..0, 5..6), (0..4, 5..6), (0..3, 5..7)] {
            assert_eq!(answer.add_part(name.clone(), value.clone()), Err(Malformed), "{name:?} {value:?}");
        }
        answer.add(b"Z", b"2").unwrap();
        assert_eq!(answer.fields().collect::<Vec<_>>(), [(&b"X-A"[..], &b"1"[..]), (b"Z", b"2")]);
    }

    #[test]
    fn nothing_can_be_smuggled_into_an_answer() {
        let mut answer = Answer::new(99);
        assert_eq!(answer.status(), 500);
        for (name, value) in [
            ("X\r\nY", "a"),
            ("X", "a\r\nY: b"),
            ("", "a"),
            ("X Y", "a"),
            ("X:", "a"),
            ("X", "a\0"),
            ("X", "\n"),
        ] {
            assert_eq!(answer.add(name.as_bytes(), value.as_bytes()), Err(Malformed), "{name:?} {value:?}");
        }
        assert_eq!(answer.set_reason(b"OK\r\nX: y"), Err(Malformed));
        assert_eq!(answer.fields().count(), 0);
    }
}
