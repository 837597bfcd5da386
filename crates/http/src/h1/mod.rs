//! HTTP/1.0 and 1.1: the life of a connection.
//!
//! ```text
//!          ┌───────────────────────────────────────────────┐
//!          ▼                                               │ persistent, and the rest of the body came
//!  Idle ──► Head ──► Serving (Exchange) ──► Flushing ──────┤
//!   │        │ refused ─► Serving (an error page) ─┐       │ the end was announced
//!   │        │ left, late                          ▼       ▼
//!   └────────┴────────────────────────────────► Closing ◄── Lingering (what the client still sends is thrown away)
//! ```
//!
//! [`serve`] is that life, written as one function; [`Turn`] is what a request and its answer need of the connection. A handler that
//! returns without a whole answer cuts the connection, so that the client sees the loss.

pub(crate) mod encode;
pub(crate) mod half_close;
mod out;
pub(crate) mod parse;

use std::{
    any::Any,
    future::poll_fn,
    io,
    os::fd::BorrowedFd,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;

use crate::{
    Answer, BodyError, Clock, Exchange, Handler, Head, Hold, Length, Limits, Refusal, Version, Wait,
    buffer::{Buffer, Decoder},
    closing::{self, Until},
    exchange::Turns,
    h1::{
        encode::{Carry, Connection},
        half_close::{HalfClose, Look, PROBE},
        out::Out,
        parse::{Framing, Outline, Parser},
    },
    head::Spans,
    holding::Patience,
    io::Io,
    pool::{self, BLOCK},
    stream::Kept,
};

/// Bytes of an unwanted body that are worth reading so that the connection can go on.
const DRAINED: usize = 256 << 10;
/// The same of one whose client was told nothing, since nobody knew its length; to read more costs more than a connection.
const MOST_DRAINED: usize = 16 << 20;
/// Bytes of the next requests that are taken in while one is being answered.
const AHEAD: usize = 2 * BLOCK;
/// As much of what was refused is shown to the handler.
const SHOWN: usize = 8 << 10;

/// Where an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its head was not given yet.
    Waiting,
    /// Its body is being sent.
    Sending(Carry),
    /// All of it was given.
    Finished,
}

/// A connection while it serves a request.
#[derive(Debug)]
pub struct Turn {
    io: Io,
    buffer: Buffer,
    out: Out,
    clock: Rc<Clock>,
    limits: Rc<Limits>,
    decoder: Decoder,
    framing: Framing,
    version: Version,
    head_only: bool,
    /// The client waits for leave to send its body.
    expects: bool,
    persistent: bool,
    /// The client was told that the present answer is the last one.
    announced: bool,
    stage: Stage,
    sent: u64,
    /// Bytes that the kernel has taken for the client, of all answers.
    written: u64,
    /// The client sends no more.
    ended: bool,
    half_close: HalfClose,
    kept: Kept,
    /// Before a request is read.
    patience: Patience,
    /// What is held for the request: its head, of so many bytes, what came after it, and what of the answer was not taken.
    hold: Hold,
    head: usize,
}

impl Turn {
    fn new(io: Io, clock: Rc<Clock>, limits: Rc<Limits>) -> Turn {
        let hold = Hold::new(clock.holding());
        Turn {
            hold,
            head: 0,
            io,
            buffer: Buffer::default(),
            out: Out::default(),
            clock,
            limits,
            decoder: Decoder::new(Framing::None),
            framing: Framing::None,
            version: Version::Http11,
            head_only: false,
            expects: false,
            persistent: false,
            announced: false,
            stage: Stage::Waiting,
            sent: 0,
            written: 0,
            ended: false,
            half_close: HalfClose::default(),
            kept: Kept::default(),
            patience: Patience::default(),
        }
    }

    pub(crate) fn clock(&self) -> &Rc<Clock> {
        &self.clock
    }

    /// A request begins.
    fn take(&mut self, outline: Outline, head: &Head) {
        self.decoder = Decoder::new(outline.framing);
        self.framing = outline.framing;
        self.version = outline.version;
        self.persistent = outline.persistent;
        self.expects = outline.expects;
        self.head_only = head.method() == b"HEAD";
        self.head = head.size();
        self.holds();
        self.stage = Stage::Waiting;
        self.sent = 0;
        self.clock.begin();
    }

    /// Something that is no request is to be answered.
    fn take_refused(&mut self) {
        let outline =
            Outline { version: Version::Http11, framing: Framing::None, persistent: false, expects: false };
        self.take(outline, &Head::empty());
    }

    pub(crate) fn body_len(&self) -> Option<u64> {
        match self.framing {
            Framing::None => Some(0),
            Framing::Length(n) => Some(n),
            Framing::Chunked => None,
        }
    }

    pub(crate) fn body_is_over(&self) -> bool {
        self.decoder.is_over() && self.buffer.body().is_empty()
    }

    /// Nobody reads what is left of it. Where that is known to be more than is worth reading, the answer says that the connection ends.
    pub(crate) fn leave_body(&mut self) {
        let large = self.body_len().is_some_and(|len| len > DRAINED as u64);
        if large && self.stage == Stage::Waiting && !self.body_is_over() {
            self.persistent = false;
        }
    }

    pub(crate) fn consume(&mut self, n: usize) {
        self.buffer.consume(n);
    }

    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<&[u8], BodyError>> {
        while self.buffer.body().is_empty() && !self.decoder.is_over() {
            if !self.buffer.is_empty() {
                let decoded = self.decoder.decode(&mut self.buffer, &self.limits);
                if let Err(refusal) = decoded {
                    self.persistent = false;
                    return Poll::Ready(Err(BodyError::Refused(refusal)));
                }
                self.clock.body_came(self.buffer.body().len(), &self.limits);
                if !self.buffer.body().is_empty() || self.decoder.is_over() {
                    break;
                }
            }
            if self.expects {
                self.expects = false;
                self.out.text().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            if !self.out.is_empty()
                && let Poll::Ready(Err(error)) = self.poll_flush(cx)
            {
                return Poll::Ready(Err(BodyError::Left(error)));
            }
            let error = match self.buffer.poll_read(&mut self.io, cx) {
                Poll::Pending => {
                    self.clock.waits_for_body(&self.limits);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => io::ErrorKind::UnexpectedEof.into(),
                Poll::Ready(Err(error)) => error,
                Poll::Ready(Ok(_)) => {
                    self.clock.wait(Wait::Nothing, &self.limits);
                    continue;
                }
            };
            self.clock.wait(Wait::Nothing, &self.limits);
            self.persistent = false;
            self.ended = true;
            return Poll::Ready(Err(BodyError::Left(error)));
        }
        Poll::Ready(Ok(self.buffer.body()))
    }

    pub(crate) fn inform(&mut self, answer: &Answer) {
        if self.stage == Stage::Waiting
            && self.version == Version::Http11
            && matches!(answer.status(), 102..200)
        {
            encode::informational(answer, self.out.text());
        }
    }

    pub(crate) fn keep(&mut self, kept: Box<dyn Any>) {
        self.kept.put(kept);
    }

    pub(crate) fn begin(&mut self, answer: &Answer, length: Length) -> bool {
        if self.stage != Stage::Waiting {
            return false;
        }
        // An informational status alone would be no answer.
        let internal;
        let answer = if answer.status() < 200 {
            internal = Answer::new(500);
            &internal
        } else {
            answer
        };
        let bodiless = matches!(answer.status(), 204 | 304);
        let length = if answer.status() == 204 { Length::None } else { length };
        let carry = match length {
            _ if bodiless || self.head_only => Carry::None,
            Length::None => Carry::Length(0),
            Length::Exact(n) => Carry::Length(n),
            Length::Unknown if self.version >= Version::Http11 => Carry::Chunks,
            Length::Unknown => Carry::End,
        };
        // Without a length a client would wait for the end of a body that there is not.
        let said =
            if length == Length::None && !bodiless && !self.head_only { Length::Exact(0) } else { length };
        self.persistent &= carry != Carry::End && !self.clock.is_last();
        // A body that the client holds back ends the connection.
        self.persistent &= !self.expects || self.body_is_over();
        let connection = match (self.persistent, self.version) {
            (false, _) => Connection::Close,
            (true, Version::Http10) => Connection::KeepAlive,
            (true, _) => Connection::Unsaid,
        };
        self.announced = !self.persistent;
        encode::head(answer, self.version, said, carry, connection, self.out.text());
        self.stage = Stage::Sending(carry);
        true
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.stage != Stage::Waiting
    }

    pub(crate) fn send(&mut self, mut data: Bytes) {
        let Stage::Sending(carry) = &mut self.stage else { return };
        match carry {
            Carry::None => return,
            Carry::Length(left) => {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
            }
            Carry::Chunks | Carry::End => {}
        }
        if data.is_empty() {
            return;
        }
        self.sent += data.len() as u64;
        if *carry == Carry::Chunks {
            use std::io::Write;
            // Writing to a Vec does not fail.
            let _ = write!(self.out.text(), "{:x}\r\n", data.len());
            self.out.data(data);
            self.out.text().extend_from_slice(b"\r\n");
        } else {
            self.out.data(data);
        }
    }

    pub(crate) fn takes_files(&self) -> bool {
        self.io.is_plain() && matches!(self.stage, Stage::Sending(Carry::Length(1..)))
    }

    pub(crate) fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        at: &mut u64,
        end: u64,
    ) -> Poll<io::Result<()>> {
        if !self.takes_files() {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        }
        // What comes before it. Not each time: that would tell the clock that the client is waited for no more.
        if !self.out.is_empty() {
            ready!(self.poll_flush(cx))?;
        }
        let mut progress = 0;
        let sent = loop {
            let Stage::Sending(Carry::Length(left)) = &mut self.stage else { break Ok(()) };
            // What goes beyond the answer's length is dropped, as of other bodies.
            let most = usize::try_from(end.saturating_sub(*at).min(*left)).unwrap_or(usize::MAX);
            if most == 0 {
                break Ok(());
            }
            match self.io.poll_send_file(file, at, most, cx) {
                Poll::Ready(Ok(0)) => break Err(io::ErrorKind::UnexpectedEof.into()),
                Poll::Ready(Ok(n)) => {
                    *left = left.saturating_sub(n as u64);
                    self.sent = self.sent.saturating_add(n as u64);
                    self.written = self.written.saturating_add(n as u64);
                    progress += n;
                }
                Poll::Ready(Err(error)) => break Err(error),
                Poll::Pending => {
                    self.clock.has_sent(self.sent);
                    self.clock.wrote(true, progress, &self.limits);
                    return Poll::Pending;
                }
            }
        };
        self.clock.has_sent(self.sent);
        self.clock.wrote(false, progress, &self.limits);
        Poll::Ready(sent)
    }

    pub(crate) fn finish(&mut self) {
        let Stage::Sending(carry) = self.stage else { return };
        match carry {
            // It promised more.
            Carry::Length(1..) => return,
            Carry::Chunks => self.out.text().extend_from_slice(b"0\r\n\r\n"),
            _ => {}
        }
        self.stage = Stage::Finished;
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    pub(crate) fn taken(&self) -> u64 {
        self.written.saturating_sub(self.io.in_flight())
    }

    pub(crate) fn close(&mut self) {
        self.persistent = false;
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (clock, limits, written) = (&self.clock, &self.limits, &mut self.written);
        let flushed = self.out.poll_flush(&mut self.io, cx, |pending, n| {
            *written = written.saturating_add(n as u64);
            clock.wrote(pending, n, limits);
        });
        self.holds();
        flushed
    }

    /// Counts what is held for the request now.
    fn holds(&mut self) {
        let both = self.buffer.data.capacity().saturating_add(self.out.size());
        self.hold.set(self.head.saturating_add(both));
    }

    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // What comes now is the request's body, of which the handler hears by reading it; or the next request.
        // All that wait could send so much at one time.
        let ahead = self.clock.holding().ready(AHEAD);
        while self.decoder.is_over() && !self.ended && self.buffer.data.len() < ahead {
            let _ = ready!(self.io.poll_readable(cx));
            match ready!(self.buffer.poll_read(&mut self.io, cx)) {
                Ok(0) => self.ended = true,
                Ok(_) => self.holds(),
                Err(_) => return Poll::Ready(()),
            }
        }
        // With so much of the next requests there, the end of the input is not read; it is looked for now and then.
        while self.decoder.is_over() {
            match ready!(self.half_close.poll(&self.io, self.ended, cx)) {
                Look::Gone => return Poll::Ready(()),
                Look::Probe => {
                    let interim = self.stage == Stage::Waiting && self.version == Version::Http11;
                    if interim && self.out.is_empty() {
                        self.out.text().extend_from_slice(PROBE);
                        if let Poll::Ready(Err(_)) = self.poll_flush(cx) {
                            return Poll::Ready(());
                        }
                    }
                }
            }
        }
        Poll::Pending
    }

    /// Whether something of the client's was not read, or more of a body is to come: then closing would reset the connection. What has come
    /// while nobody read, as while the kernel sends a file, is with the kernel, which is asked: nobody else has to be waited for, and most
    /// clients have sent nothing more and leave as soon as they have their answer.
    fn owes_reading(&self) -> bool {
        let nothing_waits = self.body_is_over() && self.buffer.is_empty() && !self.io.has_unread();
        !self.ended && !nothing_waits
    }

    /// Whether a next request may come before the client has all of its answer: it was not told that there will be no other.
    fn may_be_asked(&self) -> bool {
        !self.announced && self.io.in_flight() > 0
    }

    /// Throws away what is left of the request's body, as long as a client is listened to after its answer. Whether the connection can go on.
    /// It may be much: the client was not told that the connection ends, and may have sent its next request.
    async fn drain(&mut self) -> bool {
        let mut drained = 0usize;
        loop {
            if self.decoder.decode(&mut self.buffer, &self.limits).is_err() {
                return false;
            }
            let n = self.buffer.body().len();
            self.buffer.consume(n);
            drained = drained.saturating_add(n);
            if self.body_is_over() {
                // Of what was waited for nothing is left.
                self.hold.set(0);
                return true;
            }
            if self.expects || drained > MOST_DRAINED || self.linger().await == 0 {
                return false;
            }
        }
    }

    /// Waits for what a client still sends that has its answer, as long as that may take. The number of bytes; 0: nothing more comes.
    async fn linger(&mut self) -> usize {
        let read = poll_fn(|cx| {
            loop {
                // Nothing is kept for what does not come, and what is kept counts.
                self.buffer.release();
                self.holds();
                self.clock.wait(Wait::Linger, &self.limits);
                ready!(self.io.poll_readable(cx))?;
                if let Poll::Ready(read) = self.buffer.poll_read(&mut self.io, cx) {
                    return Poll::Ready(read);
                }
            }
        });
        let n = read.await.unwrap_or_default();
        self.ended |= n == 0;
        n
    }

    /// Closes, but lets a client that still sends read its answer first: unread bytes, and what comes later, would make the kernel reset the
    /// connection, and throw away what it has of the answer.
    async fn close_slowly(&mut self) {
        // Before the end is in flight as well.
        let asked = self.may_be_asked();
        if closing::shut_down(&mut self.io, &self.clock, &self.limits).await.is_err() {
            return;
        }
        let owes = self.owes_reading();
        if !self.ended && (asked || owes) {
            // Nothing of the request is kept for a client that still sends.
            self.buffer.clear();
            self.buffer.release();
            self.holds();
            let until = if owes { Until::Closed } else { Until::Taken };
            closing::linger(&mut self.io, &self.clock, &self.limits, until).await;
        }
    }
}

/// What a wait for a head ended with.
enum Begin {
    Request(usize, Outline),
    Refused(Refusal),
    /// The client is gone.
    End,
}

/// Tells the handler of a head that its connection left unfinished, also when the connection is dropped in the middle of it.
struct Reading<'a, H: Handler> {
    handler: &'a H,
    turn: &'a mut Turn,
    armed: bool,
    /// As the handler knows it.
    held: usize,
}

impl<H: Handler> Drop for Reading<'_, H> {
    fn drop(&mut self) {
        if self.held > 0 {
            self.handler.holds(0);
        }
        if self.armed && !self.turn.buffer.is_empty() {
            let late = self.turn.clock.is_late();
            let head = self.turn.buffer.raw();
            self.handler.unfinished(head.get(..head.len().min(SHOWN)).unwrap_or_default(), late);
        }
    }
}

impl<H: Handler> Reading<'_, H> {
    /// Tells the handler how much memory an unfinished head takes.
    fn holds(&mut self, bytes: usize) {
        if self.held != bytes {
            self.held = bytes;
            self.handler.holds(bytes);
        }
    }

    async fn head(&mut self, parser: &mut Parser, spare: &mut Vec<u8>) -> Begin {
        loop {
            let turn = &mut *self.turn;
            if !turn.buffer.is_empty() {
                match parser.feed(turn.buffer.raw(), &turn.limits) {
                    Ok(Some((len, outline))) => {
                        self.armed = false;
                        return Begin::Request(len, outline);
                    }
                    Err(refusal) => {
                        self.armed = false;
                        return Begin::Refused(refusal);
                    }
                    Ok(None) => {}
                }
                // Only now: nearly every head comes at once, and the clock costs something.
                turn.clock.wait(Wait::Head, &turn.limits);
                if turn.ended {
                    return Begin::End;
                }
                let held = turn.buffer.shrink();
                self.holds(held);
                self.handler.has_room().await;
                let read = poll_fn(|cx| {
                    let turn = &mut *self.turn;
                    let read = turn.buffer.poll_read_on(&mut turn.io, cx);
                    if read.is_pending() {
                        self.holds(held);
                    }
                    read
                });
                match read.await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return Begin::End,
                }
                continue;
            }
            if turn.ended {
                return Begin::End;
            }
            turn.clock.wait(Wait::Idle, &turn.limits);
            // Nothing is kept for a connection that idles.
            turn.buffer.release();
            turn.out.release();
            pool::give(std::mem::take(spare));
            let read = poll_fn(|cx| {
                let turn = &mut *self.turn;
                turn.clock.listen(cx);
                // A request that has come is answered, also by a connection that is to end.
                if turn.io.poll_readable(cx)?.is_ready() {
                    // Heads that are ready to be read at one time could not be let go of behind each other.
                    ready!(turn.patience.poll_room(cx, turn.clock.holding()));
                    if let Poll::Ready(read) = turn.buffer.poll_read(&mut turn.io, cx) {
                        return Poll::Ready(read);
                    }
                }
                if turn.clock.ends() {
                    return Poll::Ready(Ok(0));
                }
                self.holds(0);
                Poll::Pending
            });
            match read.await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Begin::End,
            }
        }
    }
}

/// Serves a connection until its end. To be dropped when its clock is late; the clock also says when that harms nobody.
pub async fn serve<H: Handler>(io: Io, handler: &H, limits: Rc<Limits>, clock: Rc<Clock>) {
    let mut turn = Turn::new(io, clock, limits);
    let mut parser = Parser::default();
    let mut bytes = Vec::new();
    loop {
        let mut reading = Reading { handler, turn: &mut turn, armed: true, held: 0 };
        let begin = reading.head(&mut parser, &mut bytes).await;
        drop(reading);
        let (len, outline) = match begin {
            Begin::End => {
                // Where it is the server that ends it, the last answer may still be on its way, and the next request as well.
                if turn.clock.ends() {
                    turn.close_slowly().await;
                }
                return;
            }
            Begin::Request(len, outline) => (len, outline),
            Begin::Refused(refusal) => {
                let raw = turn.buffer.raw();
                let shown = raw.get(..raw.len().min(SHOWN)).unwrap_or_default().to_vec();
                turn.clock.wait(Wait::Nothing, &turn.limits);
                turn.take_refused();
                handler
                    .refused(
                        &mut Exchange { head: &Head::empty(), turn: Turns::H1(&mut turn) },
                        refusal,
                        &shown,
                    )
                    .await;
                if turn.stage == Stage::Finished && poll_fn(|cx| turn.poll_flush(cx)).await.is_ok() {
                    turn.close_slowly().await;
                }
                return;
            }
        };
        turn.clock.wait(Wait::Nothing, &turn.limits);
        turn.buffer.take(len, &mut bytes);
        let head = Head { bytes, spans: std::mem::take(&mut parser.spans), version: outline.version };
        turn.take(outline, &head);
        handler.handle(&mut Exchange { head: &head, turn: Turns::H1(&mut turn) }).await;
        let whole = turn.stage == Stage::Finished;
        if poll_fn(|cx| turn.poll_flush(cx)).await.is_err() || !whole {
            return;
        }
        turn.kept.clear();
        Head { bytes, spans: parser.spans, .. } = head;
        bytes.clear();
        parser.reset();
        turn.head = 0;
        turn.hold.set(0);
        if !turn.body_is_over() || !turn.persistent {
            // Nothing of the request is kept for a client that still sends.
            pool::give(std::mem::take(&mut bytes));
            parser.spans = Spans::default();
        }
        if !turn.persistent || turn.clock.is_last() || !turn.drain().await {
            turn.close_slowly().await;
            return;
        }
    }
}
