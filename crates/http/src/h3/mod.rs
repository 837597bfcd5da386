//! HTTP/3 (RFC 9114), on the crates `quinn` (QUIC) and `h3`. Experimental, as that one is.
//!
//! A connection is one future, and so are the requests on it, as with HTTP/2. Packets, loss, flow control and amplification are quinn's; frames and
//! field sections are `h3`'s; what is here is the translation, what a client can make this process keep, and that a stream whose client
//! takes too long ends alone.
//!
//! Besides the streams' windows a connection keeps at most [`Limits::streams`] heads, and 1 MiB of answers.

mod endpoint;
mod streams;

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use ::h3::{
    error::{Code, StreamError},
    ext::Protocol,
    server::{self, RequestResolver, RequestStream},
};
use bytes::{Buf, Bytes};
use futures_util::{
    FutureExt,
    stream::{FuturesUnordered, Stream},
};
use http::Response;
use tokio::time::sleep;

use self::streams::{Both, Gate, Held, Out, Quic, Settled, Shared};
use crate::{
    Answer, BodyError, Clock, Exchange, Handler, Head, Length, Limits, Version, Wait,
    exchange::Turns,
    messages::{Opening, content_length, expects_continue, go_on, head, informational, opening},
    refusal::refuse,
    tls::Agreed,
};

pub use endpoint::{Caller, Endpoint, Secret};

/// Bytes of a field section, at most: the map that `h3` puts fields into holds 24,000 of at least 32 bytes.
const LARGEST_HEAD: usize = 24_000 * 32;
/// How long a connection that ends is kept for requests that were sent before their client knew.
const LAST_CALL: Duration = Duration::from_secs(1);

/// A connection on which TLS and HTTP/3 were agreed.
#[derive(Debug)]
pub struct Connection {
    connection: quinn::Connection,
    agreed: Agreed,
}

/// Where an answer is.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Waiting,
    /// Bytes still promised, `None` when nothing was.
    Sending(Option<u64>),
    /// Nothing more is added.
    Over,
}

/// A request and its answer on one stream.
pub struct Turn {
    stream: RequestStream<Both, Bytes>,
    out: Rc<RefCell<Out>>,
    gate: Rc<Gate>,
    piece: Bytes,
    body_over: bool,
    body_len: Option<u64>,
    /// What was wrong with it before the handler was asked.
    wrong: Option<BodyError>,
    /// Bytes of the body that came.
    came: u64,
    expects: bool,
    head_only: bool,
    stage: Stage,
    finished: bool,
    sent: u64,
    gone: Option<Settled>,
    clock: Rc<Clock>,
    limits: Rc<Limits>,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("stage", &self.stage).field("out", &self.out).finish_non_exhaustive()
    }
}

impl Turn {
    pub(crate) fn clock(&self) -> &Rc<Clock> {
        &self.clock
    }

    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::Waiting)
    }

    pub(crate) fn body_len(&self) -> Option<u64> {
        self.body_len
    }

    pub(crate) fn body_is_over(&self) -> bool {
        self.body_over && self.piece.is_empty()
    }

    pub(crate) fn consume(&mut self, n: usize) {
        self.piece.advance(n.min(self.piece.len()));
    }

    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<&[u8], BodyError>> {
        if let Some(error) = self.wrong.take() {
            return Poll::Ready(Err(error));
        }
        while self.piece.is_empty() && !self.body_over {
            if std::mem::take(&mut self.expects) {
                self.write_head(go_on());
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
            self.clock.body_came(self.piece.len(), &self.limits);
        }
        Poll::Ready(Ok(&self.piece))
    }

    /// The next piece of the body, or its end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        // What was read already first, then one piece more at a time: else as much would be read as there is, for each small frame in it.
        let piece = loop {
            self.gate.open(0);
            if let Poll::Ready(piece) = poll_data(&mut self.stream, cx) {
                break piece;
            }
            self.gate.open(1);
            if let Poll::Ready(piece) = poll_data(&mut self.stream, cx) {
                break piece;
            }
            if !self.gate.has_passed() {
                return Poll::Pending;
            }
        };
        self.gate.renew();
        match piece {
            Ok(Some(piece)) => {
                self.came = self.came.saturating_add(piece.len() as u64);
                if self.body_len.is_some_and(|len| self.came > len) {
                    let why = refuse(400, "the body is longer than Content-Length says");
                    return Poll::Ready(Err(BodyError::Refused(why)));
                }
                self.piece = piece;
            }
            Ok(None) if self.body_len.is_some_and(|len| self.came != len) => {
                let why = refuse(400, "the body is shorter than Content-Length says");
                return Poll::Ready(Err(BodyError::Refused(why)));
            }
            Ok(None) => {
                self.body_over = true;
                self.body_len = Some(self.came);
            }
            Err(error) => return Poll::Ready(Err(BodyError::Left(io::Error::other(error)))),
        }
        Poll::Ready(Ok(()))
    }

    fn write_head(&mut self, head: Response<()>) {
        // It waits for nothing; and it fails when the stream is over.
        let _ = self.stream.send_response(head).now_or_never();
    }

    pub(crate) fn inform(&mut self, answer: &Answer) {
        if matches!(self.stage, Stage::Waiting)
            && let Some(head) = informational(answer)
        {
            self.write_head(head);
        }
    }

    pub(crate) fn begin(&mut self, answer: &Answer, length: Length) {
        if !matches!(self.stage, Stage::Waiting) {
            return;
        }
        let Opening { head, left, ends } = opening(answer, length, self.head_only);
        self.stage = match self.stream.send_response(head).now_or_never() {
            Some(Ok(())) if !ends => Stage::Sending(left),
            Some(Ok(())) => Stage::Over,
            // The client takes no head of that size, or is gone.
            _ => {
                self.out.borrow_mut().reset(Code::H3_INTERNAL_ERROR.value());
                Stage::Over
            }
        };
    }

    pub(crate) fn send(&mut self, mut data: Bytes) {
        let Stage::Sending(left) = &mut self.stage else { return };
        if let Some(left) = left {
            data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= data.len() as u64;
        }
        if !data.is_empty() {
            self.sent += data.len() as u64;
            let _ = self.stream.send_data(data).now_or_never();
        }
    }

    pub(crate) fn finish(&mut self) {
        self.finished = match &self.stage {
            Stage::Waiting => false,
            // It promised more.
            Stage::Sending(Some(1..)) => false,
            _ => true,
        };
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// What waits for its window is in the queue.
    pub(crate) fn taken(&self) -> u64 {
        self.sent.saturating_sub(self.out.borrow().waiting() as u64)
    }

    /// Nothing to do: others share the connection.
    pub(crate) fn close(&mut self) {}

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut out = self.out.borrow_mut();
        let (written, taken) = out.poll_write(cx);
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
        if self.finished {
            out.finish();
            self.stage = Stage::Over;
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(self.stage, Stage::Over) {
            // It would have all of it, and that is no leaving.
            return Poll::Pending;
        }
        let out = &self.out;
        let gone = self.gone.get_or_insert_with(|| out.borrow().settled());
        gone.as_mut().poll(cx).map(drop)
    }

    /// The handler is done with it.
    async fn end(mut self, connection: &quinn::Connection, watch: &Clock) {
        let sent = self.finished && poll_fn(|cx| self.poll_flush(cx)).await.is_ok();
        if !sent {
            self.out.borrow_mut().reset(Code::H3_INTERNAL_ERROR.value());
            self.stream.stop_sending(Code::H3_INTERNAL_ERROR);
            return;
        }
        if !self.body_is_over() {
            // The answer is whole; the rest of the request is not wanted (RFC 9114, 4.1).
            self.stream.stop_sending(Code::H3_NO_ERROR);
        }
        settle(&self.out, connection, watch, &self.limits).await;
    }
}

/// Waits for the client to have all of a stream that was finished, as long as some of it goes out: what one that reads nothing does not
/// take stands in this process.
async fn settle(out: &Rc<RefCell<Out>>, connection: &quinn::Connection, watch: &Clock, limits: &Limits) {
    let mut settled = out.borrow().settled();
    let mut before = None;
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
        let now = connection.stats().frame_tx.stream;
        if before.replace(now) == Some(now) {
            // Finished, so a reset is no more; what waits goes with the connection.
            connection.close(streams::code(Code::H3_EXCESSIVE_LOAD.value()), b"nothing is read");
            return;
        }
    }
}

fn poll_data(
    stream: &mut RequestStream<Both, Bytes>,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, StreamError>> {
    let data = stream.poll_recv_data(cx);
    data.map_ok(|data| data.map(|mut data| data.copy_to_bytes(data.remaining())))
}

/// What a stream needs of its connection.
struct Surroundings<H> {
    handler: Rc<H>,
    connection: quinn::Connection,
    clock: Rc<Clock>,
    limits: Rc<Limits>,
}

async fn answer<H: Handler>(on: Rc<Surroundings<H>>, resolver: RequestResolver<Quic, Bytes>, held: Held) {
    let (clock, limits) = (on.clock.stream(), Rc::clone(&on.limits));
    let Held { out, gate } = held;
    clock.wait(Wait::Head, &limits);
    let resolved = {
        let mut resolving = pin!(resolver.resolve_request());
        poll_fn(|cx| {
            if clock.is_late() {
                return Poll::Ready(None);
            }
            clock.listen(cx);
            resolving.as_mut().poll(cx).map(Some)
        })
        .await
    };
    clock.wait(Wait::Nothing, &limits);
    let (parts, stream) = match resolved {
        Some(Ok((request, stream))) => (request.into_parts().0, stream),
        // It was answered (431).
        Some(Err(StreamError::HeaderTooBig { .. })) => {
            let written = poll_fn(|cx| out.borrow_mut().poll_write(cx).0);
            if written.await.is_ok() {
                out.borrow_mut().finish();
                settle(&out, &on.connection, &on.clock, &limits).await;
            }
            return;
        }
        // The client knows why, or is gone; what is left is reset by being dropped.
        _ => return,
    };
    gate.renew();
    let mut turn = Turn {
        body_len: content_length(&parts.headers).unwrap_or_default(),
        body_over: false,
        wrong: None,
        came: 0,
        expects: expects_continue(&parts.headers),
        head_only: parts.method == http::Method::HEAD,
        stream,
        out,
        gate,
        piece: Bytes::new(),
        stage: Stage::Waiting,
        finished: false,
        sent: 0,
        gone: None,
        clock,
        limits,
    };
    // Most requests have no body, and say so by the stream's end, which mostly is there.
    if let Poll::Ready(Err(error)) = poll_fn(|cx| Poll::Ready(turn.poll_piece(cx))).await {
        turn.wrong = Some(error);
    }
    let extended = parts.extensions.get::<Protocol>().is_some();
    match head(&parts, Version::Http3, &turn.limits) {
        Ok(head) if extended => {
            let refusal = refuse(501, "Extended CONNECT is not supported");
            let mut exchange = Exchange { head: &Head::empty(), turn: Turns::H3(&mut turn) };
            on.handler.refused(&mut exchange, refusal, head.raw()).await;
        }
        Ok(head) => on.handler.handle(&mut Exchange { head: &head, turn: Turns::H3(&mut turn) }).await,
        Err((head, refusal)) => {
            let mut exchange = Exchange { head: &Head::empty(), turn: Turns::H3(&mut turn) };
            on.handler.refused(&mut exchange, refusal, head.raw()).await;
        }
    }
    turn.end(&on.connection, &on.clock).await;
}

impl Connection {
    /// What was agreed upon.
    pub fn agreed(&self) -> Agreed {
        self.agreed.clone()
    }

    /// Serves it until its end. To be dropped when its clock is late.
    pub(crate) async fn serve<H: Handler>(self, handler: Rc<H>, limits: Rc<Limits>, clock: Rc<Clock>) {
        let connection = self.connection;
        let head = limits.head_size.min(LARGEST_HEAD);
        // A client that lets the server open no stream has the time of a head.
        clock.wait(Wait::Head, &limits);
        let shared = Shared::new(head);
        let quic = Quic::new(connection.clone(), Rc::clone(&shared));
        let mut builder = server::builder();
        builder.max_field_section_size(head as u64).send_grease(false);
        let Ok(mut server) = builder.build::<_, Bytes>(quic).await else { return };
        let on = Rc::new(Surroundings {
            handler,
            connection,
            clock: Rc::clone(&clock),
            limits: Rc::clone(&limits),
        });
        let mut streams = FuturesUnordered::new();
        let mut last_call: Option<Pin<Box<tokio::time::Sleep>>> = None;
        // The client sends no more requests.
        let mut all = false;
        poll_fn(|cx| {
            loop {
                if clock.ends() && last_call.is_none() {
                    // It waits for nothing.
                    let _ = server.shutdown(0).now_or_never();
                    let wait = on.connection.rtt().saturating_mul(3).min(LAST_CALL);
                    last_call = Some(Box::pin(sleep(wait)));
                }
                shared.flush(cx);
                if !all {
                    let accepted = pin!(server.accept()).poll(cx);
                    match accepted {
                        Poll::Ready(Ok(Some(resolver))) => {
                            if let Some(held) = shared.latest() {
                                streams.push(answer(Rc::clone(&on), resolver, held));
                            }
                            continue;
                        }
                        Poll::Ready(Ok(None)) => all = true,
                        Poll::Ready(Err(_)) => return Poll::Ready(()),
                        Poll::Pending => {}
                    }
                }
                match Pin::new(&mut streams).poll_next(cx) {
                    Poll::Ready(Some(())) => continue,
                    Poll::Ready(None) if all => return Poll::Ready(()),
                    Poll::Ready(None) => {
                        if last_call.as_mut().is_some_and(|wait| wait.as_mut().poll(cx).is_ready()) {
                            return Poll::Ready(());
                        }
                        clock.wait(Wait::Idle, &limits);
                    }
                    Poll::Pending => clock.wait(Wait::Nothing, &limits),
                }
                clock.listen(cx);
                return Poll::Pending;
            }
        })
        .await;
    }
}
