//! A request's stream, as it is read: a head, a body, perhaps trailers, an end (RFC 9114, 4.1).
//!
//! It promises: a request is taken for whole only when its stream is over, between two frames; what is no request is told apart from a client
//! that left; and no more is read than somebody asks for, [`PIECE`] bytes at a time, or than a budget allows when nothing of use comes of
//! it. It waits for nothing but the stream.

use std::{
    io,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use quinn::ReadError;

use super::{
    code::Code,
    frames::{Frames, Kind, Step},
    qpack,
    wire::{Fault, PIECE, Wire},
};
use crate::{h1::parse::lower, head::Span, messages::is_of_a_connection};

/// The fields of a head, with the pseudo headers apart.
#[derive(Debug, Default)]
pub(super) struct Fields {
    bytes: Vec<u8>,
    pseudo: [Option<Span>; 4],
    regular: Vec<(Span, Span)>,
    malformed: bool,
}

/// The pseudo headers of requests, by their place in [`Fields`].
const PSEUDO: [&[u8]; 4] = [b":method", b":scheme", b":authority", b":path"];

impl Fields {
    fn add(&mut self, name: &[u8], value: &[u8]) {
        let span = |bytes: &mut Vec<u8>, part: &[u8]| {
            let from = bytes.len();
            bytes.extend_from_slice(part);
            Span::new(from..bytes.len())
        };
        let value_is_fine = !value.iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f);
        self.malformed |= !value_is_fine;
        if name.first() != Some(&b':') {
            // In lower case, as they have to come (RFC 9114, 4.2).
            self.malformed |= name.is_empty() || name.iter().any(|b| lower(*b) != *b || *b == 0);
            let name = span(&mut self.bytes, name);
            let value = span(&mut self.bytes, value);
            self.regular.push((name, value));
            return;
        }
        // Once, before all others, and none but a request's (4.3); extended CONNECT was not offered.
        let place = PSEUDO.iter().zip(&mut self.pseudo).find(|(known, _)| **known == name);
        match place {
            Some((_, place @ None)) if self.regular.is_empty() => {
                *place = Some(span(&mut self.bytes, value));
            }
            _ => self.malformed = true,
        }
    }

    fn pseudo(&self, place: usize) -> Option<&[u8]> {
        self.pseudo.get(place).copied().flatten().map(|span| span.of(&self.bytes))
    }

    /// Whether the pseudo headers are those of a request (4.3.1, 4.4).
    fn is_a_request(&self) -> bool {
        let said = |place| self.pseudo(place).is_some_and(|value| !value.is_empty());
        match self.method() {
            b"CONNECT" => self.pseudo(1).is_none() && self.pseudo(3).is_none() && said(2),
            method => {
                let path = self.pseudo(3).unwrap_or_default();
                let asterisk = method == b"OPTIONS" && path == b"*";
                !method.is_empty() && said(1) && (path.starts_with(b"/") || asterisk)
            }
        }
    }

    pub(super) fn method(&self) -> &[u8] {
        self.pseudo(0).unwrap_or_default()
    }

    pub(super) fn authority(&self) -> Option<&[u8]> {
        self.pseudo(2)
    }

    pub(super) fn path(&self) -> Option<&[u8]> {
        self.pseudo(3)
    }

    /// Names and values, in order.
    pub(super) fn regular(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.regular.iter().map(|(name, value)| (name.of(&self.bytes), value.of(&self.bytes)))
    }
}

/// The fields of a request's head. `limit`: bytes that they may come to.
pub(super) fn head(section: &[u8], limit: usize) -> Result<Fields, Fault> {
    let mut fields = Fields::default();
    qpack::decode(section, limit, |name, value| fields.add(name, value)).map_err(|why| match why {
        qpack::Failed::Malformed => Fault::Connection(Code::QPACK_DECOMPRESSION_FAILED),
        qpack::Failed::TooLarge => Fault::TooLarge,
    })?;
    if fields.malformed || !fields.is_a_request() {
        return Err(Fault::Stream(Code::MESSAGE_ERROR));
    }
    Ok(fields)
}

/// Looks at trailers, which nobody is told of.
fn trailers(section: &[u8], limit: usize) -> Result<(), Fault> {
    let mut fields = Fields::default();
    qpack::decode(section, limit, |name, value| fields.add(name, value)).map_err(|why| match why {
        qpack::Failed::Malformed => Fault::Connection(Code::QPACK_DECOMPRESSION_FAILED),
        qpack::Failed::TooLarge => Fault::Stream(Code::EXCESSIVE_LOAD),
    })?;
    let pseudo = fields.pseudo.iter().any(Option::is_some);
    if fields.malformed || pseudo || fields.regular().any(|(name, value)| is_of_a_connection(name, value)) {
        return Err(Fault::Stream(Code::MESSAGE_ERROR));
    }
    Ok(())
}

/// Where in the request the stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    Body,
    Trailers,
    /// Nothing may follow but what nobody knows.
    After,
}

/// Follows the frames of a request's stream; knows nothing of the stream itself.
#[derive(Debug)]
struct Request {
    frames: Frames,
    part: Part,
    /// The field section that comes.
    section: Vec<u8>,
    /// Bytes that a section's fields may come to.
    limit: usize,
}

/// What came of a piece.
#[derive(Debug)]
enum Came {
    /// The head is whole.
    Head(Fields),
    /// Some of the body.
    Body(Bytes),
}

impl Request {
    /// Takes the next thing of use out of what came. `None`: all of it was taken.
    fn take(&mut self, input: &mut Bytes) -> Result<Option<Came>, Fault> {
        while let Some(step) = self.frames.next(input) {
            let whole = self.frames.is_between();
            match (step, self.part) {
                (Step::Begins(Kind::Unknown, _) | Step::Payload(Kind::Unknown, _), _) => {}
                (Step::Begins(Kind::Headers, len), Part::Head | Part::Body) => {
                    // Encoded, a head is hardly larger than decoded.
                    let most = self.limit.saturating_mul(2);
                    if usize::try_from(len).map_or(true, |len| len > most) {
                        return Err(match self.part {
                            Part::Head => Fault::TooLarge,
                            _ => Fault::Stream(Code::EXCESSIVE_LOAD),
                        });
                    }
                    if self.part == Part::Body {
                        self.part = Part::Trailers;
                    }
                    if whole {
                        // Not even the prefix of a section.
                        return Err(Fault::Connection(Code::QPACK_DECOMPRESSION_FAILED));
                    }
                }
                (Step::Payload(Kind::Headers, payload), part) => {
                    self.section.extend_from_slice(&payload);
                    if !whole {
                        continue;
                    }
                    let section = std::mem::take(&mut self.section);
                    if part == Part::Head {
                        self.part = Part::Body;
                        return head(&section, self.limit).map(Came::Head).map(Some);
                    }
                    trailers(&section, self.limit)?;
                    self.part = Part::After;
                }
                (Step::Begins(Kind::Data, _), Part::Body) => {}
                (Step::Payload(Kind::Data, payload), _) => return Ok(Some(Came::Body(payload))),
                (Step::Begins(..) | Step::Payload(..), _) => {
                    return Err(Fault::Connection(Code::FRAME_UNEXPECTED));
                }
            }
        }
        Ok(None)
    }

    /// The stream is over.
    fn end(&self) -> Result<(), Fault> {
        if !self.frames.is_between() {
            return Err(Fault::Connection(Code::FRAME_ERROR));
        }
        match self.part {
            Part::Head => Err(Fault::Stream(Code::REQUEST_INCOMPLETE)),
            _ => Ok(()),
        }
    }
}

/// The reading half of a request's stream.
#[derive(Debug)]
pub(super) struct Incoming {
    stream: quinn::RecvStream,
    request: Request,
    input: Bytes,
    over: bool,
    /// Something was wrong with it: nothing more is taken out of it.
    failed: bool,
    /// Bytes that may still be read with nothing of use in them, and their number after something was.
    budget: usize,
    whole: usize,
    wire: Rc<Wire>,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Of a connection that is over quinn would keep what nobody has read.
        self.stop(Code::INTERNAL_ERROR);
    }
}

impl Incoming {
    /// `limit`: bytes that the fields of its head may come to.
    pub(super) fn new(stream: quinn::RecvStream, limit: usize, wire: &Rc<Wire>) -> Incoming {
        let request = Request { frames: Frames::default(), part: Part::Head, section: Vec::new(), limit };
        // A head as it comes, and as much again for frames that nobody knows.
        let whole = limit.saturating_mul(4).saturating_add(PIECE);
        Incoming {
            stream,
            request,
            input: Bytes::new(),
            over: false,
            failed: false,
            budget: whole,
            whole,
            wire: Rc::clone(wire),
        }
    }

    /// Bytes of memory that hold what has come of a head, and of what follows it.
    pub(super) fn held(&self) -> usize {
        self.request.section.capacity().saturating_add(self.input.len())
    }

    /// The next thing of use. `None`: the request is whole.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Came>, Fault>> {
        if self.failed {
            return Poll::Ready(Err(Fault::Left(io::ErrorKind::InvalidData.into())));
        }
        let next = self.poll_any(cx);
        self.failed = matches!(next, Poll::Ready(Err(_)));
        next
    }

    fn poll_any(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Came>, Fault>> {
        loop {
            if let Some(came) = self.request.take(&mut self.input)? {
                self.budget = self.whole;
                return Poll::Ready(Ok(Some(came)));
            }
            if self.over {
                return Poll::Ready(self.request.end().map(|()| None));
            }
            let mut piece = [0; PIECE];
            let n = ready!(self.stream.poll_read(cx, &mut piece)).map_err(|error| match error {
                ReadError::Reset(_) => Fault::Left(io::ErrorKind::ConnectionReset.into()),
                other => Fault::Left(other.into()),
            })?;
            self.over = n == 0;
            if self.over {
                self.wire.is_whole();
            }
            self.wire.has_read(n);
            self.budget = self.budget.checked_sub(n).ok_or(Fault::Stream(Code::EXCESSIVE_LOAD))?;
            // Copied: a datagram must not be held by the few bytes of it that are wanted.
            self.input = Bytes::copy_from_slice(piece.get(..n).unwrap_or_default());
        }
    }

    /// Waits for the head.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Fields, Fault>> {
        Poll::Ready(match ready!(self.poll_next(cx))? {
            Some(Came::Head(fields)) => Ok(fields),
            _ => Err(Fault::Stream(Code::REQUEST_INCOMPLETE)),
        })
    }

    /// Waits for some of the body. `None`: the request is whole.
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Fault>> {
        loop {
            return Poll::Ready(Ok(match ready!(self.poll_next(cx))? {
                Some(Came::Body(piece)) => Some(piece),
                Some(Came::Head(_)) => continue,
                None => None,
            }));
        }
    }

    /// Asks the client to send no more.
    pub(super) fn stop(&mut self, code: Code) {
        // It fails when the stream is over.
        let _ = self.stream.stop(code.number());
    }
}

/// The body of a stream that comes in such pieces, or the first fault.
#[cfg(any(test, feature = "fuzzed"))]
#[allow(clippy::panic)]
pub(super) fn body_of(stream: &[u8], piece: usize) -> Result<Vec<u8>, String> {
    let (frames, section) = (Frames::default(), Vec::new());
    let mut request = Request { frames, part: Part::Head, section, limit: 1000 };
    let mut body = Vec::new();
    for piece in stream.chunks(piece) {
        let mut input = Bytes::copy_from_slice(piece);
        while let Some(came) = request.take(&mut input).map_err(|fault| format!("{fault:?}"))? {
            if let Came::Body(piece) = came {
                assert!(!piece.is_empty());
                body.extend_from_slice(&piece);
            }
        }
    }
    request.end().map_err(|fault| format!("{fault:?}"))?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &[(&str, &str)] =
        &[(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/x")];

    fn section(fields: &[(&str, &str)]) -> Vec<u8> {
        qpack::encode(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))).0
    }

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut made = vec![kind];
        super::super::frames::put(&mut made, payload.len() as u64);
        made.extend_from_slice(payload);
        made
    }

    fn fault(stream: &[u8]) -> String {
        let whole = body_of(stream, stream.len().max(1)).unwrap_err();
        assert_eq!(body_of(stream, 1).unwrap_err(), whole);
        whole
    }

    #[test]
    fn a_body_ends_with_its_stream() {
        let begin = frame(1, &section(GET));
        let empty = frame(0, b"");
        let unknown = frame(0x21, b"whatever");
        let trailers = frame(1, &section(&[("x-after", "1")]));
        let parts: [&[u8]; 8] =
            [&unknown, &begin, &frame(0, b"ab"), &empty, &unknown, &frame(0, b"c"), &empty, &trailers];
        let mut stream = parts.concat();
        stream.extend_from_slice(&unknown);
        for piece in 1..stream.len() + 1 {
            assert_eq!(body_of(&stream, piece).unwrap(), b"abc");
        }
    }

    #[test]
    fn what_is_cut_or_out_of_order_is_no_request() {
        let begin = frame(1, &section(GET));
        let (data, trailers) = (frame(0, b"abc"), frame(1, &section(&[("x-after", "1")])));
        let whole = [&begin[..], &data].concat();
        for cut in 1..data.len() {
            assert!(fault(&whole[..whole.len() - cut]).contains("FRAME_ERROR"), "{cut}");
        }
        assert!(fault(&begin[..begin.len() - 1]).contains("FRAME_ERROR"));
        assert!(fault(b"").contains("REQUEST_INCOMPLETE"));
        for after in [&data, &trailers] {
            let stream = [&whole[..], &trailers, after].concat();
            assert!(fault(&stream).contains("FRAME_UNEXPECTED"), "{after:?}");
        }
        assert!(fault(&data).contains("FRAME_UNEXPECTED"));
        for kind in [2, 3, 4, 5, 6, 7, 8, 9, 13] {
            for payload in [&b""[..], b"1"] {
                let stream = [&begin[..], &frame(kind, payload)].concat();
                assert!(fault(&stream).contains("FRAME_UNEXPECTED"), "{kind}");
            }
        }
        for bad in [
            &[(":path", "/")][..],
            &[("X-Upper", "1")],
            &[("bad name", "1")],
            &[("x", "a\nb")],
            &[("connection", "close")],
            &[("transfer-encoding", "chunked")],
        ] {
            let stream = [&whole[..], &frame(1, &section(bad))].concat();
            assert!(fault(&stream).contains("MESSAGE_ERROR"), "{bad:?}");
        }
        for (kind, payload) in [(1, &b""[..]), (1, b"\x00"), (1, b"\x02\x00\x80")] {
            assert!(fault(&frame(kind, payload)).contains("QPACK_DECOMPRESSION_FAILED"));
            let stream = [&whole[..], &frame(kind, payload)].concat();
            assert!(fault(&stream).contains("QPACK_DECOMPRESSION_FAILED"));
        }
        assert!(fault(&frame(1, &section(&[("x", &"y".repeat(1500))]))).contains("TooLarge"));
        assert!(fault(&frame(1, &[0; 2001])).contains("TooLarge"));
        let large = [&whole[..], &frame(1, &[0; 2001])].concat();
        assert!(fault(&large).contains("EXCESSIVE_LOAD"));
    }

    #[test]
    fn pseudo_headers_come_once_first_and_are_a_requests() {
        let connect = [(":method", "CONNECT"), (":authority", "a:1")];
        let options = [(":method", "OPTIONS"), GET[1], GET[2], (":path", "*")];
        for good in
            [GET, &connect, &options, &[GET[3], GET[2], GET[1], GET[0], ("x", "y"), ("te", "trailers")]]
        {
            assert!(head(&section(good), 1000).is_ok(), "{good:?}");
        }
        let with = |more: (&'static str, &'static str)| [GET, &[more]].concat();
        let mut bad = vec![
            vec![],
            GET[1..].to_vec(),
            vec![GET[0], GET[2], GET[3]],
            GET[..3].to_vec(),
            vec![GET[0], GET[1], GET[2], (":path", "")],
            vec![GET[0], GET[1], GET[2], (":path", "nowhere")],
            vec![GET[0], GET[1], GET[2], (":path", "*")],
            vec![(":method", ""), GET[1], GET[2], GET[3]],
            vec![GET[0], GET[1], ("x", "y"), GET[2], GET[3]],
            [&connect[..], &[GET[1]]].concat(),
            [&connect[..], &[GET[3]]].concat(),
            vec![connect[0]],
        ];
        for more in [
            GET[0],
            GET[3],
            (":authority", "b"),
            (":status", "200"),
            (":protocol", "websocket"),
            (":unknown", ""),
            (":", ""),
            ("", "y"),
            ("X-Upper", "y"),
            ("x\n", "y"),
            ("x", "a\rb"),
            ("x", "\0"),
            ("x", "\u{7f}"),
        ] {
            bad.push(with(more));
        }
        for bad in bad {
            let fault = head(&section(&bad), 1000).unwrap_err();
            assert_eq!(format!("{fault:?}"), "Stream(MESSAGE_ERROR)", "{bad:?}");
        }
    }

    #[test]
    fn fuzz_requests() {
        let begin = frame(1, &section(GET));
        let trailers = frame(1, &section(&[("x-after", "1")]));
        let seed = [&begin[..], &frame(0, b"abc"), &frame(0, b""), &frame(0x21, b"u"), &trailers].concat();
        let other = [&begin[..], &frame(0, b"0123456789")].concat();
        let pieces: [&[u8]; 5] =
            [b"\x00\x00", b"\x01\x02\x00\x00", &begin, b"\x00\x80\x00\x00\x02", b"\x21\x01"];
        hayate_fuzz::run("requests of HTTP/3", &[&seed, &other], &pieces, |random, input| {
            super::super::fuzzed::request(input, 1 + random.below(9));
        });
    }
}
