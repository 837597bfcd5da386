//! What the fuzzers of `fuzz/` and of the tests feed, with what must hold of it. Compiled for them alone.

use crate::{
    Limits,
    buffer::{Buffer, Decoder},
    h1::parse::{Framing, Outline, Parser},
    h3::fuzzed as h3,
};

fn limits() -> Limits {
    Limits { head_size: 1024, header_count: 8, uri_length: 200, ..Limits::default() }
}

/// Reads a head that comes in pieces of so many bytes.
fn outcome(input: &[u8], piece: usize) -> Result<Option<(usize, Outline)>, u16> {
    let (mut parser, mut bytes) = (Parser::default(), input.to_vec());
    let mut end = 0;
    while end < bytes.len() {
        end = (end + piece).min(bytes.len());
        match parser.feed(&mut bytes[..end], &limits()) {
            Ok(None) => {}
            Ok(Some((len, outline))) => {
                assert!(len <= end);
                return Ok(Some((len, outline)));
            }
            Err(refusal) => return Err(refusal.status),
        }
    }
    Ok(None)
}

/// However a head is cut into pieces, the same comes of it, or it is refused; what is accepted ends in an empty line and has no control characters.
pub fn head(input: &[u8]) {
    let whole = outcome(input, input.len().max(1));
    for piece in [1, 3, 17] {
        let pieces = outcome(input, piece);
        // What is both too large and malformed is refused for what showed first.
        let limit = [&whole, &pieces].iter().any(|outcome| matches!(outcome, Err(414 | 431)));
        if !(limit && whole.is_err() && pieces.is_err()) {
            assert_eq!(format!("{whole:?}"), format!("{pieces:?}"), "in pieces of {piece}");
        }
    }
    if let Ok(Some((len, outline))) = whole {
        let head = &input[..len];
        assert!(head.ends_with(b"\r\n\r\n"));
        assert!(!head.iter().any(|b| *b == 0 || *b == 0x7f || (*b < b' ' && !b"\r\n\t".contains(b))));
        assert!(head.windows(2).all(|two| (two[0] == b'\r') == (two[1] == b'\n')));
        if outline.framing == Framing::Chunked {
            let lower = head.to_ascii_lowercase();
            assert!(!lower.windows(16).any(|name| name == b"\ncontent-length:"), "two framings");
        }
    }
}

fn decoded(framing: Framing, input: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<u8>, bool), u16> {
    let (mut buffer, mut decoder, mut body) = (Buffer::default(), Decoder::new(framing), Vec::new());
    for bytes in input.chunks(piece) {
        buffer.make_room();
        buffer.data.extend_from_slice(bytes);
        decoder.decode(&mut buffer, &limits()).map_err(|refusal| refusal.status)?;
        let n = buffer.body().len().div_ceil(2);
        body.extend_from_slice(&buffer.body()[..n]);
        buffer.consume(n);
    }
    body.extend_from_slice(buffer.body());
    buffer.consume(usize::MAX);
    Ok((body, buffer.raw().to_vec(), decoder.is_over()))
}

/// However a body is cut into pieces, the same is decoded of it, and it is no longer than what came.
pub fn body(input: &[u8]) {
    let whole = decoded(Framing::Chunked, input, input.len().max(1));
    for piece in [1, 5, 64] {
        assert_eq!(whole, decoded(Framing::Chunked, input, piece), "in pieces of {piece}");
    }
    if let Ok((body, rest, over)) = &whole {
        assert!(body.len() + rest.len() <= input.len());
        assert!(*over || rest.len() <= 1024);
    }
}

/// See [`crate::proxy_protocol`].
pub fn proxy_header(input: &[u8]) {
    crate::proxy_protocol::fuzzed(input);
}

/// A request of HTTP/3, a control stream and a field section: the first byte says which, and how it is cut into pieces.
pub fn http3(input: &[u8]) {
    let [how, rest @ ..] = input else { return };
    let piece = usize::from(how / 3 % 16) + 1;
    match how % 3 {
        0 => h3::request(rest, piece),
        1 => h3::control(rest, piece),
        _ => h3::fields(rest),
    }
}
