//! What the fuzzers of `fuzz/` and of the tests feed, with what must hold of it. Compiled for them alone.

use crate::connection::{Answer, Parser, Progress};

/// The verdict, the status and the body of an answer that comes in pieces of so many bytes.
fn outcome(input: &[u8], piece: usize, to_head: bool) -> (Option<usize>, bool, u16, Vec<u8>) {
    let (mut parser, mut answer) = (Parser::new(), Answer::new(true, true));
    parser.start(to_head);
    let mut at = 0;
    for bytes in input.chunks(piece) {
        match parser.feed(bytes, &mut answer) {
            Ok(Progress::More) => at += bytes.len(),
            Ok(Progress::Complete(used)) => return (Some(at + used), true, answer.status, answer.body),
            Err(_) => return (None, false, 0, Vec::new()),
        }
    }
    let ended = parser.end().is_ok();
    (None, ended, answer.status, answer.body)
}

/// However an answer is cut into pieces, the same comes of it.
pub fn answer(input: &[u8]) {
    for to_head in [false, true] {
        let whole = outcome(input, input.len().max(1), to_head);
        for piece in [1, 4, 33] {
            assert_eq!(whole, outcome(input, piece, to_head), "in pieces of {piece}, to HEAD: {to_head}");
        }
    }
}
