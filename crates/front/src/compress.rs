//! Content codings: which one a client takes (RFC 9110, 12.5.3), which answers are worth one, and the encoders.
//!
//! It promises that an answer is encoded only where its headers can say so truthfully: never what is encoded already, part of a
//! whole, without a body, or set aside by its application; that whatever a script has sent so far can be decoded as soon as the script
//! pauses; and that a serving thread encodes [`CHUNK`] bytes at a time before others have their turn, and [`TURN`] at most of all answers of a
//! connection. Memory of one encoder is bounded by the window and the level, and that of all by a limit: above it answers go out as they are.

use std::{
    borrow::Cow,
    future::Future,
    io,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Context,
};

use bytes::{Bytes, BytesMut};
use hayate_http::{Answer, Exchange, Head, Version};
use serde::{Deserialize, Serialize};

use crate::{
    reply::{Body, Reply, set},
    runtime,
};

/// Bytes that are encoded in one turn of a serving thread: about a millisecond.
pub(crate) const CHUNK: usize = 32 << 10;
/// Bytes, within a chunk, that a connection may encode in one turn, with those of its answers that were passed over for [`PATIENT`] turns.
const TURN: usize = 4 * CHUNK;
const PATIENT: u32 = 16;
/// Bytes of the window of br and zstd, as a power of two: 128 KB. A larger one packs pages no better, and each stream has one.
const WINDOW: u32 = 17;

/// A content coding, by its registered name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coding {
    /// RFC 8878.
    #[serde(rename = "zstd")]
    Zstd,
    /// RFC 7932.
    #[serde(rename = "br")]
    Brotli,
    /// RFC 1952.
    #[serde(rename = "gzip")]
    Gzip,
}

impl Coding {
    /// Bytes that an encoder may take, with what it has not given yet. Measured, and rounded up: docs/compression.md.
    fn memory(self, level: u32) -> u64 {
        match (self, level) {
            (Coding::Gzip, _) => 512 << 10,
            (Coding::Brotli, ..=4) | (Coding::Zstd, ..=3) => 2 << 20,
            (Coding::Brotli | Coding::Zstd, 5) | (Coding::Zstd, 4) => 4 << 20,
            (Coding::Brotli, 6..=7) | (Coding::Zstd, 6..=9) => 12 << 20,
            (Coding::Brotli, 8) => 20 << 20,
            (Coding::Brotli, _) | (Coding::Zstd, 10..=12) => 44 << 20,
            (Coding::Zstd, _) => 72 << 20,
        }
    }

    /// As it stands in headers.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }
}

/// Which answers are encoded, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compression {
    /// Those that may be used, with their levels: of two that a client likes as well, the first.
    pub codings: Vec<(Coding, u32)>,
    /// Bytes below which an answer stays as it is, where its length is known.
    pub min_size: u64,
    /// Bytes for the encoders of all answers together.
    pub memory: u64,
    /// Media types, in lower case; one `*` in each stands for anything.
    pub types: Vec<String>,
}

impl Compression {
    /// Levels that a coding has here. What is higher needs much more time, or memory.
    pub fn levels(coding: Coding) -> std::ops::RangeInclusive<u32> {
        match coding {
            Coding::Zstd => 1..=15,
            Coding::Brotli => 0..=9,
            Coding::Gzip => 1..=9,
        }
    }

    fn fits(&self, content_type: &[u8]) -> bool {
        let kind = content_type.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let starts = |text: &[u8], with: &[u8]| {
            text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with))
        };
        let ends = |text: &[u8], with: &[u8]| {
            let at = text.len().checked_sub(with.len());
            at.and_then(|at| text.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(with))
        };
        self.types.iter().any(|pattern| match pattern.split_once('*') {
            None => kind.eq_ignore_ascii_case(pattern.as_bytes()),
            Some((start, end)) => {
                kind.len() >= start.len() + end.len()
                    && starts(kind, start.as_bytes())
                    && ends(kind, end.as_bytes())
            }
        })
    }
}

/// The memory of all encoders.
#[derive(Debug, Default)]
pub(crate) struct Memory(AtomicU64);

/// One encoder's part of it.
struct Share {
    of: Arc<Memory>,
    bytes: u64,
}

impl Memory {
    fn take(self: &Arc<Self>, bytes: u64, limit: u64) -> Option<Share> {
        let before = self.0.fetch_add(bytes, Relaxed);
        let share = Share { of: Arc::clone(self), bytes };
        (before.saturating_add(bytes) <= limit).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Relaxed);
    }
}

/// Whether an answer without a coding is refused, for which nothing is looked at that has no weights.
fn refuses_identity(head: &Head) -> bool {
    head.all(b"accept-encoding").any(|said| said.contains(&b';')) && Accept::of(head).refuses_identity()
}

/// What a client says of codings, in thousandths; `None` where it says nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accept {
    zstd: Option<u16>,
    br: Option<u16>,
    gzip: Option<u16>,
    identity: Option<u16>,
    any: Option<u16>,
}

impl Accept {
    pub(crate) fn of(head: &Head) -> Accept {
        let mut accept = Accept::default();
        for item in head.all(b"accept-encoding").flat_map(|value| value.split(|b| *b == b',')) {
            let mut parts = item.split(|b| *b == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let place = match name {
                b"*" => &mut accept.any,
                _ if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") => {
                    &mut accept.gzip
                }
                _ if name.eq_ignore_ascii_case(b"br") => &mut accept.br,
                _ if name.eq_ignore_ascii_case(b"zstd") => &mut accept.zstd,
                _ if name.eq_ignore_ascii_case(b"identity") => &mut accept.identity,
                _ => continue,
            };
            // The first word on a coding counts. One that cannot be understood is taken for a refusal: that is always decodable.
            let weight = parts.find_map(|part| match part {
                [b'q' | b'Q', b'=', weight @ ..] => Some(thousandths(weight).unwrap_or(0)),
                _ => None,
            });
            place.get_or_insert(weight.unwrap_or(1000));
        }
        accept
    }

    fn weight(&self, coding: Coding) -> u16 {
        let said = match coding {
            Coding::Zstd => self.zstd,
            Coding::Brotli => self.br,
            Coding::Gzip => self.gzip,
        };
        said.or(self.any).unwrap_or(0)
    }

    fn refuses_identity(&self) -> bool {
        self.identity.or(self.any) == Some(0)
    }

    /// The one of these that the client likes best, the first of several; `None` where it likes none, or none of them as well as none.
    pub(crate) fn best(&self, codings: impl Iterator<Item = Coding>) -> Option<Coding> {
        let mut best = None;
        let mut least = self.identity.unwrap_or(0).max(1);
        for coding in codings {
            let weight = self.weight(coding);
            if weight >= least {
                best = Some(coding);
                least = weight.saturating_add(1);
            }
        }
        best
    }
}

/// A weight (RFC 9110, 12.4.2).
pub(crate) fn thousandths(weight: &[u8]) -> Option<u16> {
    let (whole, rest) = match weight {
        [whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', rest @ ..] if rest.len() <= 3 => (*whole, rest),
        _ => return None,
    };
    let mut value = u16::from(whole - b'0') * 1000;
    for (digit, unit) in rest.iter().zip([100, 10, 1]) {
        value += u16::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?) * unit;
    }
    (value <= 1000).then_some(value)
}

/// Whether a field with a list of words has one of them.
pub(crate) fn has_word(answer: &Answer, name: &[u8], words: &[&[u8]]) -> bool {
    let mut fields = answer.fields().filter(|(field, _)| field.eq_ignore_ascii_case(name));
    fields.any(|(_, value)| words.iter().any(|word| is_word_of(value, word)))
}

/// Whether a list of words has this one.
fn is_word_of(list: &[u8], word: &[u8]) -> bool {
    list.split(|b| *b == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(word))
}

/// Whether an answer says of itself that it is for one visitor.
pub(crate) fn is_private(answer: &Answer) -> bool {
    answer.get(b"set-cookie").is_some()
        || has_word(answer, b"cache-control", &[b"private", b"no-store", b"no-cache"])
}

/// What an answer's digest covers is the body as it goes out (RFC 9530), so one that has a digest stays as it is.
const DIGESTS: [&[u8]; 4] = [b"content-digest", b"repr-digest", b"digest", b"content-md5"];

/// Has an answer encoded if the client takes it so, and if that is worth it; its headers say what becomes of it. A script sets its answer aside
/// by `Content-Encoding: identity` or `Cache-Control: no-transform`.
pub(crate) async fn compress(rules: &Compression, memory: &Arc<Memory>, head: &Head, reply: &mut Reply) {
    let answer = &mut reply.answer;
    if answer.status() == 304 {
        weaken_as_asked(head, answer);
        // A cache takes these fields for those of what it has (RFC 9110, 15.4.5). What a script's answer would have been nobody knows.
        let varies = |(kind, size): &(Cow<'_, str>, u64)| {
            let size = *size;
            rules.fits(kind.as_bytes()) && size > 0 && (size >= rules.min_size || refuses_identity(head))
        };
        if answer.get(b"content-encoding").is_none() && reply.same.as_ref().is_none_or(varies) {
            vary(answer);
        }
        return;
    }
    if let Some(coding) = answer.get(b"content-encoding") {
        // Plain is no coding of its own: the header is for us alone.
        if coding.is_empty() || coding.eq_ignore_ascii_case(b"identity") {
            answer.remove(b"content-encoding");
        }
        return;
    }
    let part = answer.status() == 206;
    let small = match &reply.body {
        Body::Full(bytes) => !part && (bytes.len() as u64) < rules.min_size,
        _ => false,
    };
    // Whatever else it says, such an answer stays as it is: most are so small, and the rest is many looks into its fields.
    if small && !refuses_identity(head) {
        return;
    }
    // One look at each field, however much is asked of them.
    let (mut kind, mut aside) = (None, matches!(answer.status(), ..200 | 204..=205));
    for (name, value) in answer.fields() {
        match name.len() {
            12 if name.eq_ignore_ascii_case(b"content-type") => kind = kind.or(Some(value)),
            13 if name.eq_ignore_ascii_case(b"cache-control") => aside |= is_word_of(value, b"no-transform"),
            13 if name.eq_ignore_ascii_case(b"content-range") => aside |= !part,
            _ => aside |= DIGESTS.iter().any(|digest| name.eq_ignore_ascii_case(digest)),
        }
    }
    if aside || !kind.is_some_and(|kind| rules.fits(kind)) {
        return;
    }
    let accept = Accept::of(head);
    let size = match &reply.body {
        // A part has the fields that the whole would have (RFC 9110, 15.3.7).
        _ if part => answer.get(b"content-range").and_then(size_of_whole),
        Body::None => return,
        // The script has said another length than it has sent.
        Body::Full(_) if reply.promise.is_some() => return,
        Body::Full(bytes) => Some(bytes.len() as u64),
        Body::File(file) => Some(file.left()),
        Body::Left(len) => Some(*len),
        Body::Unknown | Body::Script(_) => reply.promise.as_ref().map(|promise| promise.said),
    };
    if size == Some(0) || size.is_some_and(|size| size < rules.min_size) && !accept.refuses_identity() {
        return;
    }
    vary(answer);
    // An answer of unknown length would end with its connection.
    if part || head.version() == Version::Http10 {
        return;
    }
    let coding = accept.best(rules.codings.iter().map(|(coding, _)| *coding));
    let chosen = rules.codings.iter().find(|(known, _)| Some(*known) == coding);
    let Some((coding, level)) = chosen else { return };
    let Some(share) = memory.take(coding.memory(*level), rules.memory) else {
        tracing::debug!("an answer goes out without {}: memory in [compression] is used up", coding.name());
        return;
    };
    match &mut reply.body {
        Body::None => return,
        // Whether it would be worth it depends on what is not there.
        Body::Unknown => return,
        Body::Left(_) => reply.body = Body::Unknown,
        Body::Full(bytes) => match whole(*coding, *level, bytes).await {
            Some(encoded) => *bytes = encoded,
            None => return,
        },
        Body::File(_) | Body::Script(_) => match Encoder::new(*coding, *level, size) {
            Ok(encoder) => {
                let encoder = Some(Box::new((encoder, share)));
                reply.encoding = Some(Encoding { encoder, left: size, dirty: false, turn: 0, over: 0 });
            }
            Err(error) => {
                tracing::error!("an answer goes out without {}: {error}", coding.name());
                return;
            }
        },
    }
    set(&mut reply.answer, "content-encoding", coding.name());
    reply.answer.remove(b"accept-ranges");
    weaken(&mut reply.answer);
}

/// Bytes of what a part is of, if its `Content-Range` says so (RFC 9110, 14.4).
fn size_of_whole(range: &[u8]) -> Option<u64> {
    std::str::from_utf8(range).ok()?.rsplit_once('/')?.1.trim().parse().ok()
}

/// Says that another client may get another answer.
pub(crate) fn vary(answer: &mut Answer) {
    if answer.get(b"vary").is_none() {
        let _ = answer.add(b"Vary", b"Accept-Encoding");
        return;
    }
    if has_word(answer, b"vary", &[b"*", b"accept-encoding"]) {
        return;
    }
    let fields = answer.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"vary"));
    let values: Vec<&[u8]> = fields.map(|(_, value)| value).filter(|value| !value.is_empty()).collect();
    let merged = [&values[..], &[b"Accept-Encoding"]].concat().join(&b", "[..]);
    // Its parts were fit for an answer.
    let _ = answer.set(b"Vary", &merged);
}

/// An encoded answer has the same meaning, not the same bytes.
fn weaken(answer: &mut Answer) {
    let Some(tag) = answer.get(b"etag") else { return };
    if tag.starts_with(b"W/") {
        return;
    }
    let weak = tag.starts_with(b"\"").then(|| [b"W/", tag].concat());
    answer.remove(b"etag");
    if let Some(weak) = weak {
        let _ = answer.add(b"ETag", &weak);
    }
}

/// The client has the encoded answer: it is told that this one holds.
fn weaken_as_asked(head: &Head, answer: &mut Answer) {
    let Some(tag) = answer.get(b"etag").filter(|tag| tag.starts_with(b"\"")) else { return };
    let weak = [b"W/", tag].concat();
    let mut asked = head.all(b"if-none-match").flat_map(|value| value.split(|b| *b == b','));
    if asked.any(|asked| asked.trim_ascii() == weak) {
        weaken(answer);
    }
}

/// Whether an answer is passed over in this turn of its connection, since others of it have encoded enough. `over` says how often that was so
/// in a row: not for ever, for nobody knows in which order they are asked.
fn is_passed_over(over: &mut u32) -> bool {
    let encoded = runtime::encoded();
    let patient = *over >= PATIENT && encoded < TURN || *over >= 64 * PATIENT;
    let passed = encoded >= CHUNK && !patient;
    *over = if passed { over.saturating_add(1) } else { 0 };
    passed
}

/// All of a body that is there, if that makes it smaller.
async fn whole(coding: Coding, level: u32, bytes: &Bytes) -> Option<Bytes> {
    let mut encoder = Encoder::new(coding, level, Some(bytes.len() as u64)).ok()?;
    let mut encoded = BytesMut::new();
    let mut over = 0;
    for chunk in bytes.chunks(CHUNK) {
        while is_passed_over(&mut over) {
            tokio::task::yield_now().await;
        }
        encoded.extend_from_slice(&encoder.put(chunk).ok()?);
    }
    encoded.extend_from_slice(&encoder.finish().ok()?);
    (encoded.len() < bytes.len()).then(|| encoded.freeze())
}

/// The body of an answer on its way through an encoder.
pub(crate) struct Encoding {
    /// `None`: all was encoded. Boxed, since each answer has room for one, and few have one.
    encoder: Option<Box<(Encoder, Share)>>,
    /// Bytes of the plain body that are still to come, where its length was said. What goes beyond is left out.
    left: Option<u64>,
    /// Something was put in that has not come out for certain.
    dirty: bool,
    /// Bytes that were encoded in this turn.
    turn: usize,
    /// See [`is_passed_over`].
    over: u32,
}

/// Nothing more can come of this answer.
#[derive(Debug)]
pub(crate) struct Broken;

impl Encoding {
    /// Encodes a piece.
    pub(crate) fn put(&mut self, mut plain: Bytes) -> Result<Bytes, Broken> {
        if let Some(left) = &mut self.left {
            plain.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left = left.saturating_sub(plain.len() as u64);
        }
        let Some(encoder) = self.encoder.as_mut().filter(|_| !plain.is_empty()) else {
            return Ok(Bytes::new());
        };
        let (encoder, _) = &mut **encoder;
        self.dirty = true;
        self.turn = self.turn.saturating_add(plain.len());
        encoder.put(&plain).map_err(broken)
    }

    /// The same of a large one, which goes to the client meanwhile.
    pub(crate) async fn send_block(
        &mut self,
        plain: Bytes,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), Broken> {
        for chunk in plain.chunks(CHUNK) {
            while is_passed_over(&mut self.over) {
                tokio::task::yield_now().await;
            }
            let encoded = self.put(plain.slice_ref(chunk))?;
            exchange.send(encoded);
            runtime::took_long();
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Whether something was put in that cannot be decoded yet.
    pub(crate) fn has_unseen(&self) -> bool {
        self.dirty
    }

    /// What the client needs to decode all that was put in.
    pub(crate) fn flush(&mut self) -> Result<Bytes, Broken> {
        match &mut self.encoder {
            Some(encoder) if std::mem::take(&mut self.dirty) => encoder.0.flush().map_err(broken),
            _ => Ok(Bytes::new()),
        }
    }

    /// The same, if the body has ended before its time.
    pub(crate) fn flush_if_short(&mut self) -> Result<Bytes, Broken> {
        if self.left.is_some_and(|left| left > 0) { self.flush() } else { Ok(Bytes::new()) }
    }

    /// The end, once only; it is broken when something is missing.
    pub(crate) fn finish(&mut self) -> Result<Bytes, Broken> {
        let encoder = self.encoder.take().filter(|_| self.left.is_none_or(|left| left == 0)).ok_or(Broken)?;
        let (encoder, _share) = *encoder;
        encoder.finish().map_err(broken)
    }

    /// Whether others are to have their turn. They will have had it when this is called the next time.
    pub(crate) fn rests(&mut self, cx: &mut Context<'_>) -> bool {
        let took_long = self.turn >= CHUNK;
        if took_long {
            self.turn = 0;
            runtime::took_long();
        }
        let rests = took_long || is_passed_over(&mut self.over);
        if rests {
            // Not by waking the task at once: alone on its thread it would be polled many times before tokio looks at sockets.
            let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
        }
        rests
    }
}

fn broken(error: io::Error) -> Broken {
    tracing::error!("an answer was cut off, for it could not be encoded: {error}");
    Broken
}

/// An encoder. What it has not given yet it keeps, a window at most.
enum Encoder {
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
}

impl Encoder {
    /// `size`: bytes that are to come, where that is known.
    fn new(coding: Coding, level: u32, size: Option<u64>) -> io::Result<Encoder> {
        Ok(match coding {
            Coding::Zstd => {
                let mut encoder =
                    zstd::stream::write::Encoder::new(Vec::new(), i32::try_from(level).unwrap_or_default())?;
                encoder.window_log(WINDOW)?;
                encoder.set_pledged_src_size(size)?;
                Encoder::Zstd(encoder)
            }
            Coding::Brotli => {
                let params = brotli::enc::BrotliEncoderParams {
                    quality: i32::try_from(level).unwrap_or_default(),
                    lgwin: WINDOW as i32,
                    size_hint: size.map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX)),
                    ..Default::default()
                };
                let writer = brotli::CompressorWriter::with_params(Vec::new(), 16 << 10, &params);
                Encoder::Brotli(Box::new(writer))
            }
            Coding::Gzip => {
                Encoder::Gzip(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level)))
            }
        })
    }

    fn put(&mut self, plain: &[u8]) -> io::Result<Bytes> {
        runtime::encodes(plain.len());
        match self {
            Encoder::Zstd(encoder) => encoder.write_all(plain)?,
            Encoder::Brotli(encoder) => encoder.write_all(plain)?,
            Encoder::Gzip(encoder) => encoder.write_all(plain)?,
        }
        Ok(self.take())
    }

    fn flush(&mut self) -> io::Result<Bytes> {
        match self {
            Encoder::Zstd(encoder) => encoder.flush()?,
            Encoder::Brotli(encoder) => encoder.flush()?,
            Encoder::Gzip(encoder) => encoder.flush()?,
        }
        Ok(self.take())
    }

    fn finish(self) -> io::Result<Bytes> {
        Ok(match self {
            Encoder::Zstd(encoder) => encoder.finish()?,
            Encoder::Brotli(encoder) => encoder.into_inner(),
            Encoder::Gzip(encoder) => encoder.finish()?,
        }
        .into())
    }

    fn take(&mut self) -> Bytes {
        std::mem::take(match self {
            Encoder::Zstd(encoder) => encoder.get_mut(),
            Encoder::Brotli(encoder) => encoder.get_mut(),
            Encoder::Gzip(encoder) => encoder.get_mut(),
        })
        .into()
    }
}

/// For [`crate::fuzzed`].
#[cfg(any(test, feature = "fuzzed"))]
pub(crate) mod fuzzed {
    use super::*;

    pub(crate) use super::thousandths;

    /// No coding that the client likes better is there, none that it refuses is taken, and one that is liked as well as none is.
    pub(crate) fn check(head: &Head) {
        let all = [Coding::Zstd, Coding::Brotli, Coding::Gzip];
        let accept = Accept::of(head);
        let most = all.iter().map(|coding| accept.weight(*coding)).max().unwrap_or(0);
        let best = accept.best(all.into_iter());
        let plain = accept.identity.unwrap_or(0).max(1);
        assert_eq!(best.map(|best| accept.weight(best)), (most >= plain).then_some(most), "{accept:?}");
        assert_eq!(best, all.into_iter().find(|coding| best.is_some() && accept.weight(*coding) == most));
        assert!(!(accept.refuses_identity() && accept.identity.is_some_and(|weight| weight > 0)));
    }
}

#[cfg(test)]
mod tests;
