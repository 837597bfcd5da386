//! HTTP/3 (RFC 9114), on the crate `quinn`.
//!
//! A connection is one future, and so are the requests on it, as with HTTP/2. Packets, loss, flow control and amplification are quinn's; what is
//! here is frames and field sections, what a client can make this process keep, and that a stream whose client takes too long ends
//! alone. The crate `h3` had that place before: it took cut and contradictory requests for whole ones, and showed too little of them for that
//! to be repaired from outside.
//!
//! A connection keeps at most [`Limits::streams`] heads, 1 MiB of answers, and what its windows let come; all of it counts. Its handler is told
//! what those heads take that have not come as a whole. What is over leaves nothing of that with quinn, whoever ended it.

mod code;
mod control;
mod endpoint;
mod frames;
#[cfg(any(test, feature = "fuzzed"))]
#[allow(clippy::panic)]
pub(crate) mod fuzzed;
mod pulse;
mod qpack;
mod request;
mod seat;
mod wire;

use std::{
    any::Any,
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    io,
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{
    FutureExt,
    stream::{FuturesUnordered, Stream},
};
use http::Response;
use quinn::VarInt;
use tokio::time::sleep;

use self::{
    code::Code,
    control::Others,
    request::{Fields, Incoming},
    seat::Served,
    wire::{Fault, Out, Settled, Wire},
};
use crate::{
    Answer, BodyError, Clock, Exchange, Handler, Head, Hold, Length, Limits, Refusal, Version, Wait,
    exchange::Turns,
    holding::{Patience, REQUEST},
    messages::{Opening, Said, content_length, expects_continue, go_on, head, informational},
    pace::Lag,
    refusal::refuse,
    stream::{Body, Kept, Progress},
    tls::Agreed,
};

pub use endpoint::{Caller, Endpoint, Secret};

/// How long a connection that ends is kept for requests that were sent before their client knew.
const LAST_CALL: Duration = Duration::from_secs(1);
/// Bytes of a body that are looked at although nobody wants it.
const DISCARDED: usize = 256 << 10;

/// Bytes that a request takes before its head is whole: its task, and what quinn keeps of its stream.
const WAITING: usize = 2 << 10;

/// A connection on which TLS and HTTP/3 were agreed.
#[derive(Debug)]
pub struct Connection {
    open: Open,
    agreed: Agreed,
    peer: IpAddr,
    /// The window for all that the client sends, as it begins.
    receive: usize,
}

/// A connection that quinn has; ended by being dropped, whatever drops it.
#[derive(Debug)]
struct Open {
    connection: quinn::Connection,
    seat: Served,
}

impl Drop for Open {
    fn drop(&mut self) {
        let connection = &self.connection;
        // A second end is none.
        connection.close(Code::NO_ERROR.number(), b"");
        // What came on streams at which nobody has looked would be kept until quinn forgets the connection. No others come any more.
        while let Some(Ok((_, mut stream))) = connection.accept_bi().now_or_never() {
            let _ = stream.stop(Code::REQUEST_REJECTED.number());
        }
        while let Some(Ok(mut stream)) = connection.accept_uni().now_or_never() {
            let _ = stream.stop(Code::NO_ERROR.number());
        }
    }
}

/// A request and its answer on one stream.
#[derive(Debug)]
pub struct Turn {
    from: Incoming,
    body: Body,
    /// Bytes of the body that came.
    came: u64,
    /// Of these, thrown away.
    discarded: usize,
    /// What was wrong with it before the handler was asked.
    wrong: Option<BodyError>,
    progress: Progress,
    out: Rc<RefCell<Out>>,
    /// The head, of so many bytes, what waits in `out`, and what came and is not whole.
    hold: Hold,
    head: usize,
    gone: Gone,
    kept: Kept,
    wire: Rc<Wire>,
    clock: Rc<Clock>,
    limits: Rc<Limits>,
}

/// Waits for the client to want no more.
struct Gone(Option<Settled>);

impl std::fmt::Debug for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gone").field(&self.0.is_some()).finish()
    }
}

/// Ends what is to end because of it.
fn end_for(fault: Fault, from: &mut Incoming, out: &RefCell<Out>, wire: &Wire) -> io::Error {
    match fault {
        Fault::Stream(code) => {
            from.stop(code);
            out.borrow_mut().reset(code);
            io::Error::new(io::ErrorKind::InvalidData, code.name())
        }
        Fault::Connection(code) => {
            wire.breaks(code);
            io::Error::new(io::ErrorKind::InvalidData, code.name())
        }
        Fault::TooLarge => io::ErrorKind::InvalidData.into(),
        Fault::Left(error) => error,
    }
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
        self.body.consume(n);
    }

    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<&[u8], BodyError>> {
        if let Some(error) = self.wrong.take() {
            return Poll::Ready(Err(error));
        }
        while self.body.piece.is_empty() && !self.body.over {
            if std::mem::take(&mut self.body.expects) {
                self.write_head(&go_on());
                if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
                    return Poll::Ready(Err(BodyError::Left(error)));
                }
            }
            match self.poll_piece(cx) {
                Poll::Pending => {
                    if self.clock.is_late() {
                        return Poll::Ready(Err(BodyError::Left(io::ErrorKind::TimedOut.into())));
                    }
                    self.clock.waits_for_body(&self.limits);
                    self.clock.listen(cx);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    self.clock.wait(Wait::Nothing, &self.limits);
                    return Poll::Ready(Err(error));
                }
            }
            self.clock.body_came(self.body.piece.len(), &self.limits);
        }
        Poll::Ready(Ok(&self.body.piece))
    }

    /// See [`Exchange::discard_body`].
    pub(crate) fn discard_body(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        while !self.body.is_over() && !self.body.expects && self.discarded <= DISCARDED {
            if let Some(error) = self.wrong.take() {
                return Err(error);
            }
            if self.body.piece.is_empty() {
                match self.poll_piece(cx) {
                    Poll::Pending => break,
                    Poll::Ready(came) => came?,
                }
            }
            self.discarded = self.discarded.saturating_add(self.body.consume(usize::MAX));
        }
        Ok(())
    }

    pub(crate) fn keep(&mut self, kept: Box<dyn Any>) {
        self.kept.put(kept);
    }

    /// The next piece of the body, or its end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let Poll::Ready(came) = self.from.poll_body(cx) else {
            // Trailers, perhaps.
            self.holds();
            return Poll::Pending;
        };
        let refused = |why| Poll::Ready(Err(BodyError::Refused(refuse(400, why))));
        match came {
            Ok(Some(piece)) => {
                self.came = self.came.saturating_add(piece.len() as u64);
                if self.body.len.is_some_and(|len| self.came > len) {
                    return refused("the body is longer than Content-Length says");
                }
                self.body.piece = piece;
            }
            Ok(None) if self.body.len.is_some_and(|len| self.came != len) => {
                return refused("the body is shorter than Content-Length says");
            }
            Ok(None) => {
                self.body.over = true;
                self.body.len = Some(self.came);
            }
            Err(fault) => {
                let error = end_for(fault, &mut self.from, &self.out, &self.wire);
                return Poll::Ready(Err(BodyError::Left(error)));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// `false`: the client takes no head of that size.
    fn write_head(&mut self, head: &Response<()>) -> bool {
        let status = head.status();
        let status = [(&b":status"[..], status.as_str().as_bytes())];
        let fields = head.headers().iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        let (section, size) = qpack::encode(status.into_iter().chain(fields));
        if size as u64 > self.wire.largest_head.get() {
            return false;
        }
        self.write_frame(0x1, section.into());
        true
    }

    fn write_frame(&mut self, kind: u8, payload: Bytes) {
        let mut begin = vec![kind];
        frames::put(&mut begin, payload.len() as u64);
        let mut out = self.out.borrow_mut();
        out.put(begin.into());
        out.put(payload);
    }

    pub(crate) fn inform(&mut self, answer: &Answer) {
        if !self.progress.has_begun()
            && let Some(head) = informational(answer)
        {
            // One that is too large for the client is left out.
            self.write_head(&head);
        }
    }

    pub(crate) fn begin(&mut self, answer: &Answer, length: Length) -> bool {
        let Some(Opening { head, .. }) = self.progress.begin(answer, length) else { return false };
        let fits = self.write_head(&head);
        if !fits {
            self.out.borrow_mut().reset(Code::INTERNAL_ERROR);
            self.progress.fail();
        }
        fits
    }

    pub(crate) fn send(&mut self, data: Bytes) {
        let data = self.progress.add(data);
        if !data.is_empty() {
            self.write_frame(0x0, data);
            self.holds();
        }
    }

    /// Counts what is held for this stream now.
    fn holds(&mut self) {
        let waiting = self.out.borrow().kept();
        self.hold.set(self.head.saturating_add(waiting).saturating_add(self.from.held()));
    }

    pub(crate) fn finish(&mut self) {
        self.progress.finish();
    }

    /// What waits for its window is in the queue.
    pub(crate) fn taken(&self) -> u64 {
        self.progress.sent().saturating_sub(self.out.borrow().waiting() as u64)
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.progress.has_failed() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let (written, taken) = self.out.borrow_mut().poll_write(cx);
        self.holds();
        match written {
            Poll::Pending => {
                if self.clock.is_late() {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                self.clock.wrote(true, taken, &self.limits);
                self.clock.listen(cx);
                return Poll::Pending;
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => self.clock.wrote(false, taken, &self.limits),
        }
        if self.progress.is_finished() {
            self.out.borrow_mut().finish();
            self.progress.end();
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.progress.is_over() {
            // It would have all of it, and that is no leaving.
            return Poll::Pending;
        }
        let out = &self.out;
        let gone = self.gone.0.get_or_insert_with(|| out.borrow().settled());
        gone.as_mut().poll(cx).map(drop)
    }

    /// The handler is done with it.
    async fn end(mut self, watch: &Clock) {
        let sent = self.progress.is_finished() && poll_fn(|cx| self.poll_flush(cx)).await.is_ok();
        if !sent {
            self.out.borrow_mut().reset(Code::INTERNAL_ERROR);
            self.from.stop(Code::INTERNAL_ERROR);
            return;
        }
        let unwanted = !self.body.is_over();
        if unwanted {
            // The answer is whole; the rest of the request is not wanted (RFC 9114, 4.1).
            self.from.stop(Code::NO_ERROR);
        }
        settle(&self.out, &self.wire, watch, &self.limits).await;
        if unwanted {
            // By now its client knows.
            self.wire.forgives(self.limits.window);
        }
    }
}

/// Waits for the client to have all of a stream that was finished, as long as it takes enough of what the connection sends, and no longer than
/// all that quinn has by now may take: what one that reads nothing, or all but this, does not take stands in this process.
async fn settle(out: &RefCell<Out>, wire: &Wire, watch: &Clock, limits: &Limits) {
    let mut settled = out.borrow().settled();
    let mut before = wire.confirmed();
    let began = Instant::now();
    let all = (wire.has() as u64).checked_div(limits.write_rate).map(Duration::from_secs);
    let end = all.map_or(Duration::MAX, |all| all.saturating_add(limits.write_timeout));
    let mut lag = Lag::default().wrote(true, 0, limits);
    loop {
        let clock = watch.stream();
        clock.wrote(true, 0, limits);
        let over = poll_fn(|cx| {
            if settled.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            if clock.is_late() {
                return Poll::Ready(false);
            }
            clock.listen(cx);
            Poll::Pending
        });
        if over.await {
            return;
        }
        let now = wire.confirmed();
        let taken = now.saturating_sub(before);
        before = now;
        lag = lag.wrote(true, usize::try_from(taken).unwrap_or(usize::MAX), limits);
        if taken == 0 || (limits.write_rate > 0 && lag.is_too_long()) || began.elapsed() > end {
            // Finished, so a reset is no more; what waits goes with the connection.
            wire.close(Code::EXCESSIVE_LOAD, "too little is taken");
            return;
        }
    }
}

/// What a stream needs of its connection.
struct Surroundings<H: Handler> {
    handler: Rc<H>,
    wire: Rc<Wire>,
    clock: Rc<Clock>,
    limits: Rc<Limits>,
    /// Bytes of all heads that have not come as a whole.
    heads: Cell<usize>,
    /// How many of these there are.
    awaited: Cell<usize>,
}

/// A head that is waited for; counted as such until this goes.
struct Awaited<H: Handler>(Rc<Surroundings<H>>);

impl<H: Handler> Awaited<H> {
    fn new(on: &Rc<Surroundings<H>>) -> Awaited<H> {
        on.awaited.set(on.awaited.get().saturating_add(1));
        Awaited(Rc::clone(on))
    }
}

impl<H: Handler> Drop for Awaited<H> {
    fn drop(&mut self) {
        self.0.awaited.set(self.0.awaited.get().saturating_sub(1));
    }
}

/// The memory of one head that has not come as a whole; given back when this goes.
struct Unfinished<'a, H: Handler> {
    on: &'a Surroundings<H>,
    bytes: usize,
}

impl<H: Handler> Unfinished<'_, H> {
    fn holds(&mut self, bytes: usize) {
        // A connection that was given up for them has been told off already.
        if bytes == self.bytes || self.on.clock.is_late() {
            return;
        }
        let others = self.on.heads.get().saturating_sub(self.bytes);
        self.bytes = bytes;
        self.on.heads.set(others.saturating_add(bytes));
        self.on.handler.holds(self.on.heads.get());
    }
}

impl<H: Handler> Drop for Unfinished<'_, H> {
    fn drop(&mut self) {
        self.holds(0);
    }
}

/// Waits for the head, as long as a head may take.
async fn head_of<H: Handler>(
    on: &Surroundings<H>,
    from: &mut Incoming,
    clock: &Clock,
) -> Result<Fields, Fault> {
    clock.wait(Wait::Head, &on.limits);
    let mut unfinished = Unfinished { on, bytes: 0 };
    let mut patience = Patience::default();
    let mut room: Option<Pin<Box<dyn Future<Output = ()> + '_>>> = None;
    let fields = poll_fn(|cx| {
        if clock.is_late() {
            return Poll::Ready(Err(Fault::Left(io::ErrorKind::TimedOut.into())));
        }
        clock.listen(cx);
        if unfinished.bytes > 0 {
            ready!(room.get_or_insert_with(|| Box::pin(on.handler.has_room())).as_mut().poll(cx));
            room = None;
        }
        // A few bytes are a head of 30 KB, and so many of them may be ready at one time that what they hold could not be let go of behind them.
        // The client may ask again (RFC 9114, 4.1.1).
        if ready!(patience.poll_share(cx, clock.holding())) {
            return Poll::Ready(Err(Fault::Stream(Code::REQUEST_REJECTED)));
        }
        let came = from.poll_head(cx);
        if came.is_pending() {
            unfinished.holds(from.held());
        }
        came
    });
    let fields = fields.await;
    clock.wait(Wait::Nothing, &on.limits);
    fields
}

/// What a stream brings until its head is whole.
struct Begun<H: Handler> {
    awaited: Awaited<H>,
    hold: Hold,
    send: quinn::SendStream,
    receive: quinn::RecvStream,
}

async fn answer<H: Handler>(on: Rc<Surroundings<H>>, begun: Begun<H>) {
    let Begun { awaited, mut hold, send, receive } = begun;
    let (clock, limits) = (on.clock.stream(), Rc::clone(&on.limits));
    let (mut from, out) = (Incoming::new(receive, limits.head_size, &on.wire), Out::new(send, &on.wire));
    let (head, refusal, head_only) = match head_of(&on, &mut from, &clock).await {
        Ok(fields) => {
            let said = Said {
                method: fields.method(),
                path: fields.path(),
                authority: fields.authority(),
                fields: || fields.regular(),
            };
            let (head, refusal) = head(&said, Version::Http3, &limits);
            (head, refusal, said.method == b"HEAD")
        }
        Err(Fault::TooLarge) => {
            let refusal = refuse(431, "the request's head is too large");
            (Head::empty(), Some(refusal), false)
        }
        Err(fault) => {
            // What is left is reset by being dropped.
            let _ = end_for(fault, &mut from, &out, &on.wire);
            return;
        }
    };
    drop(awaited);
    if on.wire.has_moved() {
        // Who it was goes by the address that the connection came from, for rules, counts and logs. It is asked for again, on another one.
        from.stop(Code::REQUEST_REJECTED);
        out.borrow_mut().reset(Code::REQUEST_REJECTED);
        on.clock.ask_to_end();
        return;
    }
    let body = Body {
        piece: Bytes::new(),
        over: false,
        len: content_length(&head).unwrap_or_default(),
        expects: expects_continue(&head),
    };
    hold.set(head.size().saturating_add(REQUEST));
    let turn = Turn {
        from,
        body,
        came: 0,
        discarded: 0,
        head: hold.bytes(),
        hold,
        wrong: None,
        progress: Progress::new(head_only),
        out,
        gone: Gone(None),
        kept: Kept::default(),
        wire: Rc::clone(&on.wire),
        clock,
        limits,
    };
    // Boxed: a stream without a head has no room for its handler.
    Box::pin(respond(&on, turn, &head, refusal)).await;
}

async fn respond<H: Handler>(
    on: &Surroundings<H>,
    mut turn: Turn,
    head: &Head,
    mut refusal: Option<Refusal>,
) {
    // Most requests have no body, and say so by the stream's end, which mostly is there.
    if let Poll::Ready(Err(error)) = poll_fn(|cx| Poll::Ready(turn.poll_piece(cx))).await {
        match error {
            BodyError::Refused(why) if refusal.is_none() => refusal = Some(why),
            error => turn.wrong = Some(error),
        }
    }
    match refusal {
        None => on.handler.handle(&mut Exchange { head, turn: Turns::H3(&mut turn) }).await,
        Some(refusal) => {
            let mut exchange = Exchange { head: &Head::empty(), turn: Turns::H3(&mut turn) };
            on.handler.refused(&mut exchange, refusal, head.raw()).await;
        }
    }
    turn.end(&on.clock).await;
}

impl Connection {
    /// What was agreed upon.
    pub fn agreed(&self) -> Agreed {
        self.agreed.clone()
    }

    /// Serves it until its end. To be dropped when its clock is late.
    pub(crate) async fn serve<H: Handler>(self, handler: Rc<H>, limits: Rc<Limits>, clock: Rc<Clock>) {
        let Connection { open, peer, receive, .. } = self;
        let connection = &open.connection;
        let holding = Rc::clone(clock.holding());
        let wire = Rc::new(Wire::new(connection, &open.seat.0, peer, &holding, receive));
        wire.go_by(&holding, &limits);
        let (watched, its_clock) = (Rc::downgrade(&wire), Rc::downgrade(&clock));
        clock.watch(move || {
            let is_last = its_clock.upgrade().is_some_and(|clock| clock.is_last());
            // Who vanishes while the connection is to end holds up a stop. At other times it costs nobody anything until `idle_timeout`.
            watched.upgrade().is_some_and(|wire| wire.is_flooded() || (wire.is_silent() && is_last))
        });
        // A client that lets the server open no stream has the time of a head.
        clock.wait(Wait::Head, &limits);
        let Ok(mut others) = Others::open(&wire, limits.head_size).await else { return };
        let on = Rc::new(Surroundings {
            handler,
            wire: Rc::clone(&wire),
            clock: Rc::clone(&clock),
            limits: Rc::clone(&limits),
            heads: Cell::new(0),
            awaited: Cell::new(0),
        });
        let accept = || {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_bi().await })
        };
        let mut accepting = accept();
        let mut streams = FuturesUnordered::new();
        // The first stream that was not accepted; a client numbers them by four.
        let mut next = 0u64;
        let mut last_call: Option<Pin<Box<tokio::time::Sleep>>> = None;
        poll_fn(|cx| {
            loop {
                // It says which requests it still takes, so one that is to end with an answer ends as any.
                if clock.is_last() && last_call.is_none() {
                    others.say_goodbye(next);
                    let wait = wire.connection.rtt().saturating_mul(3).min(LAST_CALL);
                    last_call = Some(Box::pin(sleep(wait)));
                }
                match others.poll(cx) {
                    Ok(()) => {}
                    Err(Fault::Connection(code) | Fault::Stream(code)) => {
                        wire.breaks(code);
                        return Poll::Ready(());
                    }
                    Err(Fault::Left(_) | Fault::TooLarge) => return Poll::Ready(()),
                }
                match accepting.as_mut().poll(cx) {
                    Poll::Ready(Ok((mut send, mut receive))) => {
                        accepting = accept();
                        if last_call.is_some() {
                            // It was told that this one is not answered. Both fail when the client is gone.
                            let _ = send.reset(Code::REQUEST_REJECTED.number());
                            let _ = receive.stop(Code::REQUEST_REJECTED.number());
                            continue;
                        }
                        others.request_came();
                        wire.serves(true);
                        next = u64::from(VarInt::from(send.id())).saturating_add(4);
                        let (awaited, hold) = (Awaited::new(&on), Hold::with(&holding, WAITING));
                        streams.push(answer(Rc::clone(&on), Begun { awaited, hold, send, receive }));
                        continue;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => {}
                }
                match Pin::new(&mut streams).poll_next(cx) {
                    Poll::Ready(Some(())) => continue,
                    Poll::Ready(None) if others.are_done() => return Poll::Ready(()),
                    Poll::Ready(None) => {
                        if last_call.as_mut().is_some_and(|wait| wait.as_mut().poll(cx).is_ready()) {
                            return Poll::Ready(());
                        }
                        clock.wait(Wait::Idle, &limits);
                        wire.serves(false);
                    }
                    // So far it has no request (see [`Wait::Head`]).
                    Poll::Pending if on.awaited.get() == streams.len() => clock.waits_for_heads(),
                    Poll::Pending => clock.wait(Wait::Nothing, &limits),
                }
                wire.look();
                wire.go_by(&holding, &limits);
                clock.listen(cx);
                return Poll::Pending;
            }
        })
        .await;
        if let Some(code) = wire.broken() {
            on.handler.broke(code.name());
        }
    }
}
