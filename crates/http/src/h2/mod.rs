//! HTTP/2 (RFC 9113), on the `h2` crate.
//!
//! A connection is one future; the requests on it are answered side by side within it. Header compression, flow control, and the budgets
//! against floods (resets, settings, pings, continuations, empty frames) are that crate's; what is here is the translation, and that a
//! stream whose client takes too long ends alone.

mod given;
mod parting;

use std::{
    any::Any,
    cell::Cell,
    collections::VecDeque,
    future::poll_fn,
    io::{self, IoSlice},
    ops::RangeInclusive,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use ::h2::{
    Ping, Reason, RecvStream, SendStream,
    server::{Builder, SendResponse},
};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, Stream};
use http::Request;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::sleep,
};

use self::{
    given::{Given, Part, Tail, bound},
    parting::{End, LAST_CALL, Parting},
};
use crate::{
    Answer, BodyError, Clock, Exchange, Handler, Head, Hold, Io, Length, Limits, Version, Wait,
    block::Counted,
    closing::{self, Until},
    exchange::Turns,
    h1::half_close::{HalfClose, Look},
    holding::REQUEST,
    messages::{Opening, Said, content_length, expects_continue, go_on, head, informational},
    stream::{Body, Kept, Progress},
};

/// What a client begins with, as far as nothing else does (RFC 9113, 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of an answer that h2 keeps until the socket takes them: less would cost more turns than it saves memory, more saves none.
const SEND_BUFFER: RangeInclusive<usize> = 16 << 10..=256 << 10;

/// Bytes of a file that are read at least.
const LEAST: usize = 8 << 10;

/// Fewer bytes of an answer go to h2 only if they are the last ones, or h2 has no others of that answer.
const CRUMB: usize = 1 << 10;

/// Bytes of a body that are thrown away once the answer is whole.
const DISCARDED: usize = 256 << 10;

/// The same for each stream of a connection.
fn send_buffer(limits: &Limits) -> usize {
    let part = limits.send_buffer / usize::try_from(limits.streams).unwrap_or(usize::MAX).max(1);
    part.clamp(*SEND_BUFFER.start(), *SEND_BUFFER.end())
}

/// A request and its answer on one stream.
#[derive(Debug)]
pub struct Turn {
    from: RecvStream,
    body: Body,
    respond: SendResponse<Part>,
    progress: Progress,
    /// As long as something may be added to the answer.
    to: Option<SendStream<Part>>,
    queue: VecDeque<Counted>,
    /// Bytes in the queue.
    waiting: usize,
    given: Rc<Given>,
    /// The head, and what of the body nobody has read.
    hold: Hold,
    /// Bytes of the head.
    head: usize,
    /// Nobody is to read the body, of which so many bytes were thrown away.
    unwanted: Option<usize>,
    kept: Kept,
    clock: Rc<Clock>,
    limits: Rc<Limits>,
    input: Rc<Input>,
}

fn other(error: ::h2::Error) -> io::Error {
    io::Error::other(error)
}

impl Turn {
    pub(crate) fn clock(&self) -> &Rc<Clock> {
        &self.clock
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    pub(crate) fn consume(&mut self, n: usize) {
        let n = self.body.consume(n);
        // It fails when the stream is over.
        let _ = self.from.flow_control().release_capacity(n);
    }

    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<&[u8], BodyError>> {
        while self.body.piece.is_empty() && !self.body.over {
            if std::mem::take(&mut self.body.expects) {
                // It fails when the stream is over, of which the next line hears.
                let _ = self.respond.send_informational(go_on());
            }
            match self.from.poll_data(cx) {
                Poll::Pending => {
                    if self.clock.is_late() {
                        return Poll::Ready(Err(BodyError::Left(io::ErrorKind::TimedOut.into())));
                    }
                    if self.input.ended.get() {
                        self.clock.wait(Wait::Nothing, &self.limits);
                        return Poll::Ready(Err(BodyError::Left(io::ErrorKind::UnexpectedEof.into())));
                    }
                    self.clock.waits_for_body(&self.limits);
                    self.clock.listen(cx);
                    return Poll::Pending;
                }
                Poll::Ready(None) => self.body.over = true,
                Poll::Ready(Some(Ok(piece))) => self.body.piece = piece,
                Poll::Ready(Some(Err(error))) => {
                    self.clock.wait(Wait::Nothing, &self.limits);
                    return Poll::Ready(Err(BodyError::Left(other(error))));
                }
            }
            self.clock.body_came(self.body.piece.len(), &self.limits);
        }
        Poll::Ready(Ok(&self.body.piece))
    }

    pub(crate) fn inform(&mut self, answer: &Answer) {
        if !self.progress.has_begun()
            && let Some(head) = informational(answer)
        {
            // It fails when the stream is over.
            let _ = self.respond.send_informational(head);
        }
    }

    /// See [`Exchange::discard_body`]. What contradicts itself h2 has reset.
    pub(crate) fn discard_body(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        let mut discarded = self.unwanted.unwrap_or_default();
        while !self.body.is_over() && !self.body.expects {
            if self.body.piece.is_empty() {
                match self.from.poll_data(cx) {
                    Poll::Pending => break,
                    Poll::Ready(None) => self.body.over = true,
                    Poll::Ready(Some(Ok(piece))) => self.body.piece = piece,
                    Poll::Ready(Some(Err(error))) => return Err(BodyError::Left(other(error))),
                }
            }
            let n = self.body.piece.len();
            discarded = discarded.saturating_add(n);
            if discarded <= DISCARDED {
                self.consume(n);
            } else {
                // It is thrown away as well, but opens the window no more, which therefore is the end of it.
                self.body.consume(n);
            }
        }
        self.unwanted = Some(discarded);
        Ok(())
    }

    pub(crate) fn keep(&mut self, kept: Box<dyn Any>) {
        self.kept.put(kept);
    }

    pub(crate) fn begin(&mut self, answer: &Answer, length: Length) -> bool {
        let Some(Opening { head, ends, .. }) = self.progress.begin(answer, length) else { return false };
        match self.respond.send_response(head, ends) {
            Ok(stream) if !ends => self.to = Some(stream),
            Ok(_) => {}
            Err(_) => self.progress.fail(),
        }
        !self.progress.has_failed()
    }

    pub(crate) fn send(&mut self, data: Bytes) {
        let data = self.progress.add(data);
        if !data.is_empty() {
            self.waiting = self.waiting.saturating_add(data.len());
            self.queue.push_back(Counted::new(data, self.clock.holding()));
            self.holds();
        }
    }

    pub(crate) fn finish(&mut self) {
        self.progress.finish();
    }

    /// What waits for its window is in the queue.
    pub(crate) fn taken(&self) -> u64 {
        self.progress.sent().saturating_sub(self.waiting as u64)
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.progress.has_failed() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        while let Some(piece) = self.queue.front() {
            let n = ready!(self.poll_capacity(cx, piece.len()))?;
            let (Some(stream), Some(piece)) = (&mut self.to, self.queue.front_mut()) else { break };
            self.clock.wrote(false, n, &self.limits);
            let (part, held) = piece.split_to(n);
            if piece.is_empty() {
                self.queue.pop_front();
            }
            self.waiting = self.waiting.saturating_sub(part.len());
            let part = Part::new(part, held, &self.given);
            let ends = self.progress.is_finished() && self.queue.is_empty();
            stream.send_data(part, ends).map_err(other)?;
            self.holds();
            if ends {
                self.end_sending();
                return Poll::Ready(Ok(()));
            }
        }
        if self.progress.is_finished()
            && let Some(stream) = &mut self.to
        {
            stream.send_data(Part::default(), true).map_err(other)?;
            self.end_sending();
        }
        Poll::Ready(Ok(()))
    }

    /// See [`Exchange::poll_room`].
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        if self.to.is_none() {
            return Poll::Ready(Ok(most));
        }
        // Who opens its window byte by byte does not have a file read byte by byte; what is too much waits in the queue, and counts.
        self.poll_capacity(cx, most).map_ok(|room| room.max(LEAST).min(most))
    }

    /// Waits until the client's windows let some of so many bytes go, and h2 has room for it; for how many.
    fn poll_capacity(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<io::Result<usize>> {
        let Some(stream) = &mut self.to else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        stream.reserve_capacity(wanted);
        let capacity = loop {
            let n = stream.capacity();
            // Who lets a byte go at a time would have h2 keep hundreds for each.
            if n >= wanted.min(CRUMB) || (n > 0 && self.given.is_nothing(cx)) {
                break Poll::Ready(Some(Ok(n)));
            }
            // It says each growth once only.
            match stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                waits => break waits,
            }
        };
        match capacity {
            Poll::Ready(Some(n)) => Poll::Ready(n.map_err(other)),
            Poll::Ready(None) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Poll::Pending => {
                if self.clock.is_late() {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                if self.unwanted.is_some() && self.discard_body(cx).is_err() {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                self.clock.wrote(true, 0, &self.limits);
                self.clock.listen(cx);
                self.holds();
                Poll::Pending
            }
        }
    }

    /// Counts what is held for this stream now.
    fn holds(&mut self) {
        let unread = if self.body.over { 0 } else { self.from.flow_control().used_capacity() };
        self.hold.set(self.head.saturating_add(unread));
    }

    /// All of the answer is h2's.
    fn end_sending(&mut self) {
        self.progress.end();
        self.to = None;
    }

    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.holds();
        if !self.body.over {
            // h2 says nothing of what comes to who does not read it.
            self.clock.listen(cx);
            self.input.unread.set(true);
        }
        let reset = match &mut self.to {
            Some(stream) => stream.poll_reset(cx),
            None if self.progress.is_over() => return Poll::Pending,
            None => self.respond.poll_reset(cx),
        };
        let _ = ready!(reset);
        Poll::Ready(())
    }

    /// The handler is done with it. What is left of it, when all of the answer is with h2.
    async fn end(mut self) -> Option<Tail> {
        let sent = self.progress.is_finished() && poll_fn(|cx| self.poll_flush(cx)).await.is_ok();
        if !sent {
            self.reset(Reason::INTERNAL_ERROR);
            return None;
        }
        // Clients send a small body before they look at the answer, and some take the reset of a stream for the loss of its answer.
        let mut discarded = 0;
        while !self.body.expects && discarded <= DISCARDED {
            match poll_fn(|cx| self.poll_rest(cx)).await {
                0 => break,
                n => discarded += n,
            }
        }
        // If there is more, it is not wanted (RFC 9113, 8.1): h2 says so with NO_ERROR when the stream is dropped, behind what is queued. A
        // reset sent from here would overtake the answer.
        Some(Tail::new(self.given, self.kept))
    }

    /// Throws away a piece of the body; its length, 0 when no more is waited for.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        if !self.body.piece.is_empty() {
            let n = self.body.piece.len();
            self.consume(n);
            return Poll::Ready(n);
        }
        if self.body.over || self.from.is_end_stream() {
            return Poll::Ready(0);
        }
        match self.from.poll_data(cx) {
            Poll::Pending if self.clock.is_late() || self.input.ended.get() => Poll::Ready(0),
            Poll::Pending => {
                self.clock.wait(Wait::Linger, &self.limits);
                self.clock.listen(cx);
                Poll::Pending
            }
            Poll::Ready(Some(Ok(piece))) => {
                self.body.piece = piece;
                let n = self.body.piece.len();
                self.consume(n);
                // An empty piece is one as well.
                Poll::Ready(n.max(1))
            }
            Poll::Ready(None | Some(Err(_))) => Poll::Ready(0),
        }
    }

    fn reset(&mut self, reason: Reason) {
        match &mut self.to {
            Some(stream) => stream.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }
}

/// Bytes that may come before streams look what of them is theirs and not read.
const WORTH_A_LOOK: usize = 4 << 10;

/// Bytes that a field takes in the map that h2 makes, besides its name and value: an entry of `http::HeaderMap`, about.
const FIELD: usize = 104;

/// What is held for a request as soon as h2 has it, about.
fn head_size<T>(request: &Request<T>) -> usize {
    let uri = request.uri();
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let fields = request.headers().iter();
    fields
        .map(|(name, value)| name.as_str().len().saturating_add(value.len()).saturating_add(FIELD))
        .fold(REQUEST.saturating_add(path).saturating_add(authority), usize::saturating_add)
}

/// `hold`: of its head.
async fn answer<H: Handler>(
    handler: Rc<H>,
    request: Request<RecvStream>,
    respond: SendResponse<Part>,
    mut hold: Hold,
    clock: Rc<Clock>,
    limits: Rc<Limits>,
    input: Rc<Input>,
) -> Option<Tail> {
    let (parts, from) = request.into_parts();
    let head_only = parts.method == http::Method::HEAD;
    let said = Said {
        method: parts.method.as_str().as_bytes(),
        path: parts.uri.path_and_query().map(|target| target.as_str().as_bytes()),
        authority: parts.uri.authority().map(|authority| authority.as_str().as_bytes()),
        fields: || parts.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())),
    };
    let (head, refusal) = head(&said, Version::Http2, &limits);
    let over = from.is_end_stream();
    let body = Body {
        piece: Bytes::new(),
        over,
        len: if over { Some(0) } else { content_length(&head).unwrap_or_default() },
        expects: expects_continue(&head),
    };
    // Held once only.
    drop(parts);
    hold.set(head.size().saturating_add(REQUEST));
    let mut turn = Turn {
        from,
        body,
        respond,
        progress: Progress::new(head_only),
        to: None,
        queue: VecDeque::new(),
        waiting: 0,
        given: Rc::default(),
        head: hold.bytes(),
        hold,
        unwanted: None,
        kept: Kept::default(),
        clock,
        limits,
        input,
    };
    match refusal {
        None => handler.handle(&mut Exchange { head: &head, turn: Turns::H2(&mut turn) }).await,
        Some(refusal) => {
            let mut exchange = Exchange { head: &Head::empty(), turn: Turns::H2(&mut turn) };
            handler.refused(&mut exchange, refusal, head.raw()).await;
        }
    }
    turn.end().await
}

/// The socket, whose clock hears whether the client takes what is written. What a stream has handed over is no longer that stream's to wait
/// for, so the connection has to be watched as well.
struct Watched<'a> {
    io: &'a mut Io,
    clock: Rc<Clock>,
    limits: Rc<Limits>,
    input: Rc<Input>,
    half_close: HalfClose,
}

/// What the connection knows of its socket, above all of its client's sending side. h2 ends all streams with it, so its end is kept back as
/// long as answers are due: the client may wait for them (shutdown(2)). Whether it does is asked by a PING, see [`HalfClose`].
#[derive(Debug)]
struct Input {
    ended: Cell<bool>,
    /// h2 may see the end.
    shown: Cell<bool>,
    /// A PING is to be sent.
    probe: Cell<bool>,
    /// Bytes that the socket has taken.
    written: Cell<u64>,
    /// Bytes that came since streams looked; and: some stream has a body that nobody reads now, and counts what has come of it.
    came: Cell<usize>,
    unread: Cell<bool>,
}

impl Default for Input {
    fn default() -> Input {
        // Nothing is due before the first request.
        Input {
            ended: Cell::new(false),
            shown: Cell::new(true),
            probe: Cell::new(false),
            written: Cell::new(0),
            came: Cell::new(0),
            unread: Cell::new(false),
        }
    }
}

impl Watched<'_> {
    fn wrote(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let bytes = if let Poll::Ready(Ok(bytes)) = result { bytes } else { 0 };
        self.clock.wrote(result.is_pending(), bytes, &self.limits);
        self.input.written.set(self.input.written.get().saturating_add(bytes as u64));
        result
    }
}

impl AsyncRead for Watched<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let input = &this.input;
        if !input.ended.get() {
            let before = to.filled().len();
            ready!(Pin::new(&mut *this.io).poll_read(cx, to))?;
            let came = to.filled().len().saturating_sub(before);
            if came > 0 || to.remaining() == 0 {
                input.came.set(input.came.get().saturating_add(came));
                return Poll::Ready(Ok(()));
            }
            input.ended.set(true);
            // Whoever runs the connection looks whether an answer is due, and who waits for the rest of a body learns that there is none.
            this.clock.wake_streams();
            cx.waker().wake_by_ref();
        }
        while !input.shown.get() {
            match ready!(this.half_close.poll(&*this.io, true, cx)) {
                Look::Gone => input.shown.set(true),
                Look::Probe => {
                    input.probe.set(true);
                    cx.waker().wake_by_ref();
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut *self.io).poll_write(cx, from);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut *self.io).poll_write_vectored(cx, from);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut *self.io).poll_flush(cx);
        self.clock.wrote(result.is_pending(), 0, &self.limits);
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS writes for that as well.
        let result = Pin::new(&mut *self.io).poll_shutdown(cx);
        self.clock.wrote(result.is_pending(), 0, &self.limits);
        result
    }
}

/// Serves a connection until its end. To be dropped when its clock is late.
pub async fn serve<H: Handler>(mut io: Io, handler: Rc<H>, limits: Rc<Limits>, clock: Rc<Clock>) {
    let until = match converse(&mut io, &handler, &limits, &clock).await {
        End::Over(until) => until,
        End::Late => return,
        End::Broken(why) => {
            handler.broke(&why);
            Until::Closed
        }
    };
    // It fails when the client is gone.
    if closing::shut_down(&mut io, &clock, &limits).await.is_ok() {
        closing::linger(&mut io, &clock, &limits, until).await;
    }
}

async fn converse<H: Handler>(io: &mut Io, handler: &Rc<H>, limits: &Rc<Limits>, clock: &Rc<Clock>) -> End {
    let list = u32::try_from(limits.head_size).unwrap_or(u32::MAX);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.streams)
        .initial_window_size(limits.window)
        .initial_connection_window_size(limits.window.saturating_mul(4).min(i32::MAX as u32))
        .max_header_list_size(list)
        .max_pending_accept_reset_streams(limits.resets)
        .max_local_error_reset_streams(Some(limits.errors))
        .data_frame_budget(limits.frame_budget)
        .max_send_buffer_size(send_buffer(limits));
    // The preface has the time of a head.
    clock.wait(Wait::Head, limits);
    let input = Rc::<Input>::default();
    let io = Watched {
        io,
        clock: Rc::clone(clock),
        limits: Rc::clone(limits),
        input: Rc::clone(&input),
        half_close: HalfClose::default(),
    };
    let mut connection = match builder.handshake::<_, Part>(io).await {
        Ok(connection) => connection,
        Err(error) => return End::of(&error),
    };
    input.shown.set(false);
    clock.says_goodbye();
    let mut pings = connection.ping_pong();
    let mut streams = FuturesUnordered::new();
    let mut tails: Vec<Tail> = Vec::new();
    let mut parting = Parting::No;
    // A client that reads an answer sends window updates for it.
    let mut until = Until::Closed;
    poll_fn(|cx| {
        loop {
            if clock.is_last() && matches!(parting, Parting::No) {
                if streams.is_empty() && tails.is_empty() && !clock.is_writing() {
                    until = Until::Taken;
                }
                connection.graceful_shutdown();
                parting = Parting::Told(Box::pin(sleep(LAST_CALL)));
            }
            let refuses = parting.refuses(cx);
            match connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, mut respond)))) => {
                    let (clock, limits, input) = (clock.stream(), Rc::clone(limits), Rc::clone(&input));
                    let hold = Hold::with(clock.holding(), head_size(&request));
                    // A few bytes, read at one time, are a hundred requests whose heads come out of the client's table, and so many
                    // connections may be ready to be read that what they hold could not be let go of behind them. The client may ask
                    // again (RFC 9113, 8.7), as may who asks after the last call.
                    if refuses || clock.holding().is_too_much() {
                        respond.send_reset(Reason::REFUSED_STREAM);
                        continue;
                    }
                    let stream = answer(Rc::clone(handler), request, respond, hold, clock, limits, input);
                    streams.push(stream);
                    until = Until::Closed;
                    continue;
                }
                Poll::Ready(None) => return Poll::Ready(End::Over(until)),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(End::of(&error)),
                Poll::Pending => {}
            }
            // Not for each frame of a few bytes, of which a client may send any number: all streams look.
            if input.came.get() >= WORTH_A_LOOK && input.unread.take() {
                input.came.set(0);
                clock.wake_streams();
            }
            // It has tried to write all that it has.
            tails.retain_mut(|tail| tail.waits(cx, clock, input.written.get(), limits));
            if tails.iter().any(Tail::is_late) {
                return Poll::Ready(End::Late);
            }
            if input.probe.take()
                && let Some(pings) = &mut pings
                && pings.send_ping(Ping::opaque()).is_ok()
            {
                continue;
            }
            // What the streams have written goes out with the next turn of the connection: of all that have something in one piece, since each
            // turn is a record of TLS and a system call.
            let mut ended = false;
            let left = loop {
                match Pin::new(&mut streams).poll_next(cx) {
                    Poll::Ready(Some(tail)) => {
                        tails.extend(tail);
                        ended = true;
                    }
                    left => break left,
                }
            };
            if ended {
                bound(&mut tails, limits);
                continue;
            }
            match left {
                // Of answers that are whole much may still be on its way to a client that reads slowly.
                Poll::Ready(None) if clock.is_writing() || !tails.is_empty() => {
                    clock.wait(Wait::Nothing, limits);
                }
                // No stream is under way, so nothing is cut by what else would be abrupt.
                Poll::Ready(None) if matches!(parting, Parting::Refusing) => {
                    connection.abrupt_shutdown(Reason::NO_ERROR);
                    parting = Parting::Over;
                    continue;
                }
                // No answer is due any more.
                Poll::Ready(None) if input.ended.get() && !input.shown.replace(true) => continue,
                Poll::Ready(_) => clock.wait(Wait::Idle, limits),
                Poll::Pending => clock.wait(Wait::Nothing, limits),
            }
            clock.listen(cx);
            return Poll::Pending;
        }
    })
    .await
}
