//! What came from outside, as the log shows it.

use std::fmt;

/// Bytes of it that are shown.
const MOST: usize = 256;

/// Shows the beginning of some bytes, in ASCII, without anything that a terminal obeys.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_at_checked(MOST) {
            Some((begin, rest)) if !rest.is_empty() => {
                write!(f, "{}... ({} bytes)", begin.escape_ascii(), self.0.len())
            }
            _ => self.0.escape_ascii().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_shown_and_nothing_moves_the_cursor() {
        assert_eq!(Shown("/a\x1b[2J\u{9b}1".as_bytes()).to_string(), "/a\\x1b[2J\\xc2\\x9b1");
        assert_eq!(Shown(&[b'a'; MOST]).to_string(), "a".repeat(MOST));
        assert_eq!(Shown(&[b'a'; 8000]).to_string(), "a".repeat(MOST) + "... (8000 bytes)");
    }
}
