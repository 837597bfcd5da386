//! Words of others as they may be shown on a terminal, of root perhaps: what applications say, and how their files are called.
//!
//! It promises that no such text moves the cursor, changes colours, or passes for a line of Hayate's own.

use std::{borrow::Cow, path::Path};

pub use hayate_front::json_without_controls as json;
use hayate_pool::is_acted_upon;
pub use hayate_pool::shown as plain;

/// For text within a line of ours: what it has of further lines is indented.
pub fn within_line(text: &str) -> Cow<'_, str> {
    if text.contains('\n') { Cow::Owned(text.replace('\n', "\n        ")) } else { Cow::Borrowed(text) }
}

/// Of words of others within a line, in characters.
const LONGEST: usize = 300;

/// Words of others within a line: no end of a line, and not endless.
pub fn word(text: &str) -> String {
    escaped(&cut(text, LONGEST))
}

/// The first so many characters, and a sign that there are more.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most).and_then(|(at, _)| text.get(..at)) {
        Some(begin) => Cow::Owned(format!("{begin}…")),
        None => Cow::Borrowed(text),
    }
}

/// The name of a file within a line.
pub fn path(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

fn escaped(text: &str) -> String {
    if text.chars().any(is_acted_upon) { text.escape_debug().to_string() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_acts_upon() {
        assert_eq!(plain("a\x1b[31mb\u{9b}c\rd\x7f\n\te"), "a?[31mb?c?d?\n\te");
        assert_eq!(json("{\"a\":\"\u{9b}31m\x7f é\"}"), "{\"a\":\"\\u009b31m\\u007f é\"}");
        assert_eq!(path(Path::new("/a/\u{e9} \"b")), "/a/\u{e9} \"b");
        assert_eq!(path(Path::new("/a\n  php\x1b")), "/a\\n  php\\u{1b}");
        assert_eq!(plain("a\u{202e}b\u{2028}c\u{2066}"), "a?b?c?");
        assert_eq!(word("a\n\u{202e}"), "a\\n\\u{202e}");
        assert_eq!(word(&"é".repeat(9000)), "é".repeat(LONGEST) + "…");
        assert_eq!(within_line("why\nother: serving"), "why\n        other: serving");
    }
}
