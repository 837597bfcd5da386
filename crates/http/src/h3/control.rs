//! The streams of a connection besides requests (RFC 9114, 6.2): each side's control stream, and QPACK's, which have nothing to say where
//! there is no dynamic table.
//!
//! It promises: the client's streams are read only as far as a budget goes, which each request renews a little; of them no more are kept than
//! the transport allows at one time; nothing of them waits in quinn; and whatever must not be there ends the connection.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::Future,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use quinn::{ConnectionError, ReadError};

use super::{
    code::Code,
    frames::{Frames, Integer, Kind, Step, only, put},
    wire::{Fault, Out, Wire},
};

/// Bytes of a client's own streams that are read without any request; each request adds a few, for what is said of its priority.
const BUDGET: usize = 16 << 10;
const BUDGET_PER_REQUEST: usize = 1 << 10;
/// Bytes that are read at once: little is said on these.
const PIECE: usize = 512;
/// What a read costs besides its bytes.
const READ_COST: usize = 64;
/// Bytes of a stream's type, at most.
const LONGEST_TYPE: usize = 8;
/// Bytes of a payload that is gathered: settings are the longest.
const LARGEST_PAYLOAD: u64 = 4 << 10;

/// SETTINGS_MAX_FIELD_SECTION_SIZE.
const LARGEST_HEAD: u64 = 0x6;

/// What one of the client's streams is.
#[derive(Debug)]
enum Role {
    /// Its type has not come.
    Unsaid(Integer),
    Control(Box<Control>),
    /// Of QPACK: what changes the dynamic table.
    Encoder,
    /// Of QPACK: what was made of it. Whether an integer goes on.
    Decoder(bool),
}

/// Which streams there are already.
#[derive(Debug, Default)]
struct Seen {
    control: bool,
    encoder: bool,
    decoder: bool,
}

impl Role {
    /// `None`: nobody knows the type, and the stream is not wanted.
    fn of(kind: u64, seen: &mut Seen) -> Result<Option<Role>, Fault> {
        let (seen, role) = match kind {
            0x0 => (&mut seen.control, Role::Control(Box::default())),
            0x2 => (&mut seen.encoder, Role::Encoder),
            0x3 => (&mut seen.decoder, Role::Decoder(false)),
            // Pushes are the server's.
            0x1 => return Err(Fault::Connection(Code::STREAM_CREATION_ERROR)),
            _ => return Ok(None),
        };
        if std::mem::replace(seen, true) {
            return Err(Fault::Connection(Code::STREAM_CREATION_ERROR));
        }
        Ok(Some(role))
    }

    /// What came on it. The word is the control stream's.
    fn take(&mut self, input: &mut Bytes) -> Result<Option<Said>, Fault> {
        match self {
            Role::Unsaid(_) => Ok(None),
            Role::Control(control) => control.take(input),
            Role::Encoder => {
                // The table has no room; that it has none may be said again (Set Dynamic Table Capacity, of 0).
                if std::mem::take(input).iter().any(|byte| *byte != 0x20) {
                    return Err(Fault::Connection(Code::QPACK_ENCODER_STREAM_ERROR));
                }
                Ok(None)
            }
            Role::Decoder(goes_on) => {
                for byte in std::mem::take(input) {
                    // Streams may be cancelled; there is nothing to acknowledge.
                    if !*goes_on && byte & 0xc0 != 0x40 {
                        return Err(Fault::Connection(Code::QPACK_DECODER_STREAM_ERROR));
                    }
                    *goes_on = if *goes_on { byte & 0x80 != 0 } else { byte & 0x3f == 0x3f };
                }
                Ok(None)
            }
        }
    }
}

/// What a client says on its control stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It takes heads of so many bytes.
    LargestHead(u64),
    /// It sends no more requests.
    Goodbye,
}

/// The client's control stream.
#[derive(Debug, Default)]
struct Control {
    frames: Frames,
    payload: Vec<u8>,
    settled: bool,
    goaway: Option<u64>,
    max_push: Option<u64>,
}

impl Control {
    fn take(&mut self, input: &mut Bytes) -> Result<Option<Said>, Fault> {
        while let Some(step) = self.frames.next(input) {
            let kind = match step {
                Step::Begins(kind, len) => {
                    self.begins(kind, len)?;
                    kind
                }
                Step::Payload(Kind::Unknown, _) => continue,
                Step::Payload(kind, payload) => {
                    self.payload.extend_from_slice(&payload);
                    kind
                }
            };
            if self.frames.is_between() {
                let payload = std::mem::take(&mut self.payload);
                if let Some(said) = self.frame(kind, &payload)? {
                    return Ok(Some(said));
                }
            }
        }
        Ok(None)
    }

    fn begins(&mut self, kind: Kind, len: u64) -> Result<(), Fault> {
        if !self.settled && kind != Kind::Settings {
            return Err(Fault::Connection(Code::MISSING_SETTINGS));
        }
        match kind {
            Kind::Unknown => Ok(()),
            Kind::Settings if self.settled => Err(Fault::Connection(Code::FRAME_UNEXPECTED)),
            Kind::Settings | Kind::GoAway | Kind::MaxPushId | Kind::CancelPush if len > LARGEST_PAYLOAD => {
                Err(Fault::Connection(Code::EXCESSIVE_LOAD))
            }
            Kind::Settings | Kind::GoAway | Kind::MaxPushId | Kind::CancelPush => Ok(()),
            Kind::Data | Kind::Headers | Kind::Forbidden => Err(Fault::Connection(Code::FRAME_UNEXPECTED)),
        }
    }

    fn frame(&mut self, kind: Kind, payload: &[u8]) -> Result<Option<Said>, Fault> {
        let number = || only(payload).ok_or(Fault::Connection(Code::FRAME_ERROR));
        match kind {
            Kind::Settings => {
                self.settled = true;
                settings(payload).map(|largest| largest.map(Said::LargestHead))
            }
            Kind::GoAway => {
                let id = number()?;
                if self.goaway.replace(id).is_some_and(|before| id > before) {
                    return Err(Fault::Connection(Code::ID_ERROR));
                }
                Ok(Some(Said::Goodbye))
            }
            Kind::MaxPushId => {
                let id = number()?;
                if self.max_push.replace(id).is_some_and(|before| id < before) {
                    return Err(Fault::Connection(Code::ID_ERROR));
                }
                Ok(None)
            }
            // Nothing was pushed.
            Kind::CancelPush => number().and(Err(Fault::Connection(Code::ID_ERROR))),
            _ => Ok(None),
        }
    }
}

/// The only one of a client's settings that this server minds.
fn settings(payload: &[u8]) -> Result<Option<u64>, Fault> {
    let mut input = Bytes::copy_from_slice(payload);
    let (mut ids, mut largest) = (Vec::new(), None);
    while input.has_remaining() {
        let id = Integer::default().read(&mut input);
        let value = Integer::default().read(&mut input);
        let (Some(id), Some(value)) = (id, value) else {
            return Err(Fault::Connection(Code::FRAME_ERROR));
        };
        // Those of HTTP/2 that HTTP/3 has not (7.2.4.1), and none twice.
        if matches!(id, 0x0 | 0x2..=0x5) || ids.contains(&id) {
            return Err(Fault::Connection(Code::SETTINGS_ERROR));
        }
        ids.push(id);
        if id == LARGEST_HEAD {
            largest = Some(value);
        }
    }
    Ok(largest)
}

/// What came of a stream, in order. All of it is taken out of quinn as it comes: what waits there for what precedes it is nobody's, and a client
/// could have it wait for ever.
#[derive(Debug, Default)]
struct Pieces {
    /// Bytes that were handed on.
    taken: u64,
    /// Where in the stream each begins; none overlap.
    there: BTreeMap<u64, Bytes>,
}

impl Pieces {
    fn put(&mut self, at: u64, piece: &[u8]) {
        // Copied: a datagram must not be held by the few bytes of it that are wanted.
        self.there.insert(at, Bytes::copy_from_slice(piece));
    }

    /// The next one, if it has come.
    fn next(&mut self) -> Option<Bytes> {
        let piece = self.there.remove(&self.taken)?;
        self.taken = self.taken.saturating_add(piece.len() as u64);
        Some(piece)
    }
}

/// One of the client's.
struct Theirs {
    stream: quinn::RecvStream,
    role: Role,
    pieces: Pieces,
}

type Accepting = Pin<Box<dyn Future<Output = Result<quinn::RecvStream, ConnectionError>>>>;

/// All of them.
pub(super) struct Others {
    wire: Rc<Wire>,
    own: Rc<RefCell<Out>>,
    accepting: Accepting,
    streams: Vec<Theirs>,
    seen: Seen,
    budget: usize,
    goodbye: bool,
}

impl Drop for Others {
    fn drop(&mut self) {
        for Theirs { stream, .. } in &mut self.streams {
            // Of a connection that is over quinn would keep what nobody has read. It fails when the stream is over.
            let _ = stream.stop(Code::NO_ERROR.number());
        }
    }
}

fn accepting(wire: &Wire) -> Accepting {
    let connection = wire.connection.clone();
    Box::pin(async move { connection.accept_uni().await })
}

impl Others {
    /// Opens the server's own, and says what it allows: `head` bytes of a request's head. It waits until the client lets it be opened.
    pub(super) async fn open(wire: &Rc<Wire>, head: usize) -> Result<Others, ConnectionError> {
        let own = Out::new(wire.connection.open_uni().await?, wire);
        let (mut said, mut settings) = (vec![0x0, 0x4], Vec::new());
        put(&mut settings, LARGEST_HEAD);
        put(&mut settings, head as u64);
        put(&mut said, settings.len() as u64);
        said.extend_from_slice(&settings);
        own.borrow_mut().put(said.into());
        Ok(Others {
            accepting: accepting(wire),
            wire: Rc::clone(wire),
            own,
            streams: Vec::new(),
            seen: Seen::default(),
            budget: BUDGET,
            goodbye: false,
        })
    }

    /// A request came.
    pub(super) fn request_came(&mut self) {
        self.budget = self.budget.saturating_add(BUDGET_PER_REQUEST).min(BUDGET);
    }

    /// Whether the client said that it sends no more requests.
    pub(super) fn are_done(&self) -> bool {
        self.goodbye
    }

    /// Says that requests from this stream on are not answered (GOAWAY).
    pub(super) fn say_goodbye(&mut self, stream: u64) {
        let (mut said, mut id) = (vec![0x7], Vec::new());
        put(&mut id, stream);
        put(&mut said, id.len() as u64);
        said.extend_from_slice(&id);
        self.own.borrow_mut().put(said.into());
    }

    /// Does what is to be done.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        if let Poll::Ready(Err(error)) = self.own.borrow_mut().poll_write(cx).0 {
            // The client stopped it, which it must not (6.2.1); or it is gone.
            return Err(match error.kind() {
                std::io::ErrorKind::BrokenPipe => Fault::Connection(Code::CLOSED_CRITICAL_STREAM),
                _ => Fault::Left(error),
            });
        }
        // A few bytes, which would make each connection one that holds something.
        self.own.borrow_mut().settle();
        while let Poll::Ready(stream) = self.accepting.as_mut().poll(cx) {
            self.accepting = accepting(&self.wire);
            let stream = stream.map_err(|error| Fault::Left(error.into()))?;
            let (role, pieces) = (Role::Unsaid(Integer::default()), Pieces::default());
            self.streams.push(Theirs { stream, role, pieces });
        }
        let mut at = 0;
        while let Some(Theirs { stream, role, pieces }) = self.streams.get_mut(at) {
            // Of a stream that nobody knows no more than its type is read.
            let most = if matches!(role, Role::Unsaid(_)) { LONGEST_TYPE } else { PIECE };
            let read = pin!(stream.read_chunk(most, false)).poll(cx);
            let chunk = match read {
                Poll::Pending => {
                    at += 1;
                    continue;
                }
                Poll::Ready(Ok(chunk)) => chunk,
                Poll::Ready(Err(ReadError::Reset(_))) => None,
                Poll::Ready(Err(error)) => return Err(Fault::Left(error.into())),
            };
            let Some(chunk) = chunk else {
                if !matches!(role, Role::Unsaid(_)) {
                    return Err(Fault::Connection(Code::CLOSED_CRITICAL_STREAM));
                }
                self.streams.swap_remove(at);
                continue;
            };
            self.wire.has_read(chunk.bytes.len());
            let cost = chunk.bytes.len().saturating_add(READ_COST);
            self.budget = self.budget.checked_sub(cost).ok_or(Fault::Connection(Code::EXCESSIVE_LOAD))?;
            pieces.put(chunk.offset, &chunk.bytes);
            let mut wanted = true;
            while wanted && let Some(mut input) = pieces.next() {
                if let Role::Unsaid(kind) = role
                    && let Some(kind) = kind.read(&mut input)
                {
                    match Role::of(kind, &mut self.seen)? {
                        Some(known) => *role = known,
                        None => wanted = false,
                    }
                }
                while let Some(said) = role.take(&mut input)? {
                    match said {
                        Said::LargestHead(bytes) => self.wire.largest_head.set(bytes),
                        Said::Goodbye => self.goodbye = true,
                    }
                }
            }
            if !wanted {
                // It fails when the stream is over.
                let _ = stream.stop(Code::STREAM_CREATION_ERROR.number());
                self.streams.swap_remove(at);
            }
        }
        Ok(())
    }
}

/// What a control stream says that comes in such pieces, or the first fault.
#[cfg(any(test, feature = "fuzzed"))]
#[allow(clippy::panic)]
pub(super) fn said(stream: &[u8], piece: usize) -> Result<Vec<Said>, String> {
    let (mut role, mut said) = (Role::Control(Box::default()), Vec::new());
    for piece in stream.chunks(piece.max(1)) {
        let mut input = Bytes::copy_from_slice(piece);
        while let Some(one) = role.take(&mut input).map_err(|fault| format!("{fault:?}"))? {
            said.push(one);
        }
        assert!(input.is_empty());
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(stream: &[u8]) -> String {
        let whole = said(stream, stream.len()).unwrap_err();
        assert_eq!(said(stream, 1).unwrap_err(), whole);
        whole
    }

    #[test]
    fn what_comes_early_waits_for_what_precedes_it() {
        let mut pieces = Pieces::default();
        pieces.put(3, b"de");
        assert_eq!(pieces.next(), None);
        pieces.put(5, b"f");
        pieces.put(0, b"abc");
        let all: Vec<_> = std::iter::from_fn(|| pieces.next()).collect();
        assert_eq!((all.concat(), pieces.taken, pieces.there.len()), (b"abcdef".to_vec(), 6, 0));
    }

    #[test]
    fn a_control_stream_is_understood() {
        let stream = b"\x04\x05\x06\x44\x00\x21\x01\x21\x02xx\x0d\x01\x07\x0d\x01\x08\x07\x01\x04\x07\x01\x00\x40\x55\x00";
        for piece in 1..stream.len() + 1 {
            let heard = said(stream, piece).unwrap();
            assert_eq!(heard, [Said::LargestHead(0x400), Said::Goodbye, Said::Goodbye]);
        }
        assert_eq!(said(b"\x04\x00", 1).unwrap(), []);
    }

    #[test]
    fn what_must_not_be_on_a_control_stream_ends_the_connection() {
        for (stream, code) in [
            (&b"\x21\x00"[..], "MISSING_SETTINGS"),
            (b"\x07\x01\x00", "MISSING_SETTINGS"),
            (b"\x04\x00\x04\x00", "FRAME_UNEXPECTED"),
            (b"\x04\x00\x00\x00", "FRAME_UNEXPECTED"),
            (b"\x04\x00\x01\x00", "FRAME_UNEXPECTED"),
            (b"\x04\x00\x05\x00", "FRAME_UNEXPECTED"),
            (b"\x04\x00\x06\x00", "FRAME_UNEXPECTED"),
            (b"\x04\x01\x06", "FRAME_ERROR"),
            (b"\x04\x02\x06\x40", "FRAME_ERROR"),
            (b"\x04\x02\x04\x00", "SETTINGS_ERROR"),
            (b"\x04\x04\x06\x01\x06\x01", "SETTINGS_ERROR"),
            (b"\x04\x00\x07\x00", "FRAME_ERROR"),
            (b"\x04\x00\x07\x02\x00\x00", "FRAME_ERROR"),
            (b"\x04\x00\x07\x01\x00\x07\x01\x04", "ID_ERROR"),
            (b"\x04\x00\x0d\x01\x04\x0d\x01\x00", "ID_ERROR"),
            (b"\x04\x00\x03\x01\x00", "ID_ERROR"),
            (b"\x04\x80\x01\x00\x00", "EXCESSIVE_LOAD"),
        ] {
            assert!(fault(stream).contains(code), "{stream:02x?}: {code}");
        }
    }

    #[test]
    fn qpacks_streams_have_nothing_to_say() {
        let take = |mut role: Role, bytes: &'static [u8]| {
            role.take(&mut Bytes::from_static(bytes)).map_err(|fault| format!("{fault:?}"))
        };
        assert!(take(Role::Encoder, b"\x20\x20").is_ok());
        assert!(take(Role::Encoder, b"\x3f\x01").unwrap_err().contains("ENCODER_STREAM"));
        assert!(take(Role::Decoder(false), b"\x44\x7f\x80\x01\x40").is_ok());
        assert!(take(Role::Decoder(false), b"\x84").unwrap_err().contains("DECODER_STREAM"));
        assert!(take(Role::Decoder(false), b"\x01").unwrap_err().contains("DECODER_STREAM"));
        let mut seen = Seen::default();
        for kind in [0, 2, 3] {
            assert!(matches!(Role::of(kind, &mut seen), Ok(Some(_))));
            assert!(Role::of(kind, &mut seen).is_err());
        }
        assert!(Role::of(1, &mut seen).is_err());
        assert!(matches!(Role::of(0x21, &mut seen), Ok(None)));
    }

    #[test]
    fn fuzz_control_streams() {
        let seeds: [&[u8]; 1] =
            [b"\x04\x05\x06\x44\x00\x21\x01\x21\x02xx\x0d\x01\x07\x0d\x01\x08\x07\x01\x04\x07\x01\x00"];
        let pieces: [&[u8]; 4] =
            [b"\x04\x00", b"\x07\x01\x04", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\x21\x01"];
        hayate_fuzz::run("control streams", &seeds, &pieces, |random, input| {
            super::super::fuzzed::control(input, 1 + random.below(9));
        });
    }
}
