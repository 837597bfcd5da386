//! Words of others as they may be shown on a terminal, of root perhaps: what applications say, and how their files are called.
//!
//! It promises that no such text moves the cursor, changes colours, or passes for a line of Hayate's own.

use std::borrow::Cow;

pub use hayate_front::json_without_controls as json;
pub use hayate_pool::shown as plain;

/// For text within a line of ours: what it has of further lines is indented.
pub fn within_line(text: &str) -> Cow<'_, str> {
    if text.contains('\n') { Cow::Owned(text.replace('\n', "\n        ")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_acts_upon() {
        assert_eq!(plain("a\x1b[31mb\u{9b}c\rd\x7f\n\te"), "a?[31mb?c?d?\n\te");
        assert_eq!(json("{\"a\":\"\u{9b}31m\x7f é\"}"), "{\"a\":\"\\u009b31m\\u007f é\"}");
        assert_eq!(within_line("why\nother: serving"), "why\n        other: serving");
    }
}
