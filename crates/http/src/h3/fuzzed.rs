//! What must hold of whatever a client of HTTP/3 sends. Compiled for fuzzers alone.

use super::{control, qpack, request};

/// However a stream is cut into pieces, the same body comes of it, or the same fault; and it is shorter than what came.
pub(crate) fn request(stream: &[u8], piece: usize) {
    if stream.is_empty() {
        return;
    }
    let whole = request::body_of(stream, stream.len());
    assert_eq!(request::body_of(stream, piece), whole);
    assert!(whole.map_or(0, |body| body.len()) < stream.len());
}

/// However a control stream is cut into pieces, it says the same.
pub(crate) fn control(stream: &[u8], piece: usize) {
    assert_eq!(control::said(stream, piece), control::said(stream, stream.len()));
}

/// No section gives more than its limit, whatever its table and its code of Huffman's make of few bytes.
pub(crate) fn fields(section: &[u8]) {
    let mut size = 0;
    let _ = qpack::decode(section, 4096, |name, value| size += name.len() + value.len() + qpack::FIELD_COST);
    assert!(size <= 4096);
}
