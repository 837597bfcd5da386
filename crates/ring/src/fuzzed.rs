//! What the fuzzers of `fuzz/` and of the tests feed, with what must hold of it. Compiled for them alone.

use crate::ResponseHead;

/// A head that is accepted names nothing outside of its bytes, and as many headers as it says.
pub fn response_head(input: &[u8]) {
    if let Some(head) = ResponseHead::parse(input.to_vec()) {
        let named: usize = head.headers().map(|(name, value)| name.len() + value.len() + 6).sum();
        assert!(named + head.reason().map_or(0, <[u8]>::len) + 6 <= input.len());
    }
}
