//! quinn's streams, as the `h3` crate wants them.
//!
//! Not by `h3-quinn`: that panics when a stream is stopped while a read is under way, and what is written through it waits inside of futures. Here
//! writing never waits: what `h3` writes stands in the stream's queue, which the turn sends as fast as the client takes it. And reading has
//! a budget: `h3` gathers a frame until it is whole, however long it says that it is, and in however small pieces it comes.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use ::h3::{
    error::Code,
    quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf},
};
use bytes::{Buf, Bytes};
use quinn::{ConnectionError, ReadError, VarInt, WriteError};

/// Bytes that are read at once.
const PIECE: usize = 8 << 10;
/// What a piece costs besides its bytes: it stands in a list, in an allocation of its own.
const PIECE_COST: usize = 64;
/// Bytes of a client's control stream that are read without any request; each request adds a few, for what is said of its priority.
const CONTROL: usize = 16 << 10;
const CONTROL_PER_REQUEST: usize = 1 << 10;

/// A code for quinn. All of HTTP/3's fit.
pub(super) fn code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

fn lost(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into_inner() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

fn lost_with(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: lost(error) }
}

fn internal() -> ConnectionErrorIncoming {
    ConnectionErrorIncoming::InternalError("a stream without a number".to_owned())
}

fn number(id: quinn::StreamId) -> Result<StreamId, ConnectionErrorIncoming> {
    StreamId::try_from(VarInt::from(id).into_inner()).map_err(|_| internal())
}

/// What one stream may still read; see the module.
#[derive(Debug)]
pub(super) struct Gate {
    left: Cell<usize>,
    whole: usize,
    /// Pieces that may be read before somebody asks again.
    pieces: Cell<usize>,
    /// Whether one was.
    passed: Cell<bool>,
}

impl Gate {
    fn new(budget: usize) -> Gate {
        Gate {
            left: Cell::new(budget),
            whole: budget,
            pieces: Cell::new(usize::MAX),
            passed: Cell::new(false),
        }
    }

    /// What was read is used: the budget is whole again.
    pub(super) fn renew(&self) {
        self.left.set(self.whole);
    }

    /// Lets so many pieces in from now on.
    pub(super) fn open(&self, pieces: usize) {
        self.pieces.set(pieces);
        self.passed.set(false);
    }

    /// Whether one came in since then.
    pub(super) fn has_passed(&self) -> bool {
        self.passed.get()
    }

    fn charge(&self, bytes: usize) -> bool {
        let cost = bytes.saturating_add(PIECE_COST);
        match self.left.get().checked_sub(cost) {
            Some(left) => {
                self.left.set(left);
                self.pieces.set(self.pieces.get().saturating_sub(1));
                self.passed.set(true);
                true
            }
            None => false,
        }
    }
}

/// The reading half.
#[derive(Debug)]
pub(super) struct Receiver {
    stream: quinn::RecvStream,
    id: StreamId,
    gate: Rc<Gate>,
}

impl quic::RecvStream for Receiver {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if self.gate.pieces.get() == 0 {
            // Whoever has closed the gate asks again.
            return Poll::Pending;
        }
        let mut piece = [0; PIECE];
        let n = match ready!(self.stream.poll_read(cx, &mut piece)) {
            Ok(n) => n,
            Err(ReadError::Reset(code)) => {
                let error_code = code.into_inner();
                return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code }));
            }
            Err(ReadError::ConnectionLost(error)) => return Poll::Ready(Err(lost_with(error))),
            Err(other) => return Poll::Ready(Err(StreamErrorIncoming::Unknown(Box::new(other)))),
        };
        let piece = piece.get(..n).unwrap_or_default();
        if piece.is_empty() {
            return Poll::Ready(Ok(None));
        }
        if !self.gate.charge(piece.len()) {
            let error_code = Code::H3_EXCESSIVE_LOAD.value();
            quic::RecvStream::stop_sending(self, error_code);
            return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code }));
        }
        // Copied: a datagram must not be held by the few bytes of it that are wanted.
        Poll::Ready(Ok(Some(Bytes::copy_from_slice(piece))))
    }

    fn stop_sending(&mut self, error_code: u64) {
        // It fails when the stream is over.
        let _ = self.stream.stop(code(error_code));
    }

    fn recv_id(&self) -> StreamId {
        self.id
    }
}

/// The writing half, with what waits in it.
pub(super) struct Out {
    stream: quinn::SendStream,
    id: StreamId,
    queue: VecDeque<WriteBuf<Bytes>>,
    /// Its end was said, or that there is none.
    over: bool,
}

impl Out {
    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.iter().map(Buf::remaining).fold(0, usize::saturating_add)
    }

    /// Writes as much as quinn takes. Ready: all of it. The number: bytes that it took.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> (Poll<io::Result<()>>, usize) {
        let mut taken = 0usize;
        while let Some(data) = self.queue.front_mut() {
            if !data.has_remaining() {
                self.queue.pop_front();
                continue;
            }
            match Pin::new(&mut self.stream).poll_write(cx, data.chunk()) {
                Poll::Pending => return (Poll::Pending, taken),
                Poll::Ready(Ok(n)) => {
                    data.advance(n.min(data.remaining()));
                    taken = taken.saturating_add(n);
                }
                Poll::Ready(Err(error)) => {
                    let kind = match error {
                        WriteError::Stopped(_) => io::ErrorKind::BrokenPipe,
                        _ => io::ErrorKind::ConnectionReset,
                    };
                    return (Poll::Ready(Err(kind.into())), taken);
                }
            }
        }
        (Poll::Ready(Ok(())), taken)
    }

    /// Says that nothing more comes.
    pub(super) fn finish(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            // It fails when the client wants no more.
            let _ = self.stream.finish();
        }
    }

    /// Says that what came is not all.
    pub(super) fn reset(&mut self, error: u64) {
        self.queue.clear();
        if !std::mem::replace(&mut self.over, true) {
            let _ = self.stream.reset(code(error));
        }
    }

    /// Waits until the client wants no more, or has all of a stream that was finished. `true`: it has all.
    pub(super) fn settled(&self) -> Settled {
        let stopped = self.stream.stopped();
        Box::pin(async move { matches!(stopped.await, Ok(None)) })
    }
}

/// See [`Out::settled`].
pub(super) type Settled = Pin<Box<dyn Future<Output = bool>>>;

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Out")
            .field("waiting", &self.waiting())
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        // quinn would finish it, and half an answer would look whole.
        self.reset(Code::H3_INTERNAL_ERROR.value());
    }
}

/// `h3`'s hold of the writing half.
#[derive(Debug)]
pub(super) struct Sender(Rc<RefCell<Out>>);

impl quic::SendStream<Bytes> for Sender {
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        let mut out = self.0.borrow_mut();
        if out.over {
            let error_code = Code::H3_REQUEST_CANCELLED.value();
            return Err(StreamErrorIncoming::StreamTerminated { error_code });
        }
        out.queue.push_back(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        // The turn does it once the queue is empty.
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self, error: u64) {
        self.0.borrow_mut().reset(error);
    }

    fn send_id(&self) -> StreamId {
        self.0.borrow().id
    }
}

/// A request's stream.
#[derive(Debug)]
pub(super) struct Both {
    send: Sender,
    receive: Receiver,
}

impl quic::RecvStream for Both {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.receive.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.receive.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.receive.recv_id()
    }
}

impl quic::SendStream<Bytes> for Both {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, error: u64) {
        self.send.reset(error);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

/// A stream as the turn holds it, beside `h3`.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) out: Rc<RefCell<Out>>,
    pub(super) gate: Rc<Gate>,
}

/// What the connection has, and `h3` does not show.
#[derive(Debug)]
pub(super) struct Shared {
    /// The request stream that came last, until its turn takes it.
    latest: RefCell<Option<Held>>,
    /// The server's own streams: settings, GOAWAY.
    own: RefCell<Vec<Rc<RefCell<Out>>>>,
    control: Rc<Gate>,
    /// Bytes that a head may have.
    head: usize,
}

impl Shared {
    /// `head`: bytes of a request's head.
    pub(super) fn new(head: usize) -> Rc<Shared> {
        Rc::new(Shared {
            latest: RefCell::default(),
            own: RefCell::default(),
            control: Rc::new(Gate::new(CONTROL)),
            head,
        })
    }

    /// The request stream that came last.
    pub(super) fn latest(&self) -> Option<Held> {
        self.latest.borrow_mut().take()
    }

    /// Sends what waits on the server's own streams, as far as it goes.
    pub(super) fn flush(&self, cx: &mut Context<'_>) {
        for out in self.own.borrow().iter() {
            // One that fails ends the connection, which is seen there.
            let _ = out.borrow_mut().poll_write(cx);
        }
    }
}

type Waiting<T> = Option<Pin<Box<dyn Future<Output = Result<T, ConnectionError>>>>>;

fn poll_waiting<T, F>(
    waiting: &mut Waiting<T>,
    begin: impl FnOnce() -> F,
    cx: &mut Context<'_>,
) -> Poll<Result<T, ConnectionError>>
where
    F: Future<Output = Result<T, ConnectionError>> + 'static,
{
    let future = waiting.get_or_insert_with(|| Box::pin(begin()));
    let result = ready!(future.as_mut().poll(cx));
    *waiting = None;
    Poll::Ready(result)
}

/// A connection.
pub(super) struct Quic {
    connection: quinn::Connection,
    requests: Waiting<(quinn::SendStream, quinn::RecvStream)>,
    others: Waiting<quinn::RecvStream>,
    opening: Waiting<quinn::SendStream>,
    shared: Rc<Shared>,
}

impl Quic {
    pub(super) fn new(connection: quinn::Connection, shared: Rc<Shared>) -> Quic {
        Quic { connection, requests: None, others: None, opening: None, shared }
    }
}

impl quic::OpenStreams<Bytes> for Quic {
    type BidiStream = Both;
    type SendStream = Sender;

    fn poll_open_bidi(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Both, StreamErrorIncoming>> {
        // A server opens none.
        Poll::Ready(Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error: internal() }))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<Sender, StreamErrorIncoming>> {
        let connection = &self.connection;
        let begin = || {
            let connection = connection.clone();
            async move { connection.open_uni().await }
        };
        let stream = ready!(poll_waiting(&mut self.opening, begin, cx)).map_err(lost_with)?;
        let id = number(stream.id())
            .map_err(|connection_error| StreamErrorIncoming::ConnectionErrorIncoming { connection_error })?;
        let out = Rc::new(RefCell::new(Out { stream, id, queue: VecDeque::new(), over: false }));
        self.shared.own.borrow_mut().push(Rc::clone(&out));
        Poll::Ready(Ok(Sender(out)))
    }

    fn close(&mut self, error: Code, reason: &[u8]) {
        self.connection.close(code(error.value()), reason);
    }
}

impl quic::Connection<Bytes> for Quic {
    type RecvStream = Receiver;
    type OpenStreams = Opener;

    fn poll_accept_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<Receiver, ConnectionErrorIncoming>> {
        let connection = &self.connection;
        let begin = || {
            let connection = connection.clone();
            async move { connection.accept_uni().await }
        };
        let stream = ready!(poll_waiting(&mut self.others, begin, cx)).map_err(lost)?;
        let id = number(stream.id())?;
        Poll::Ready(Ok(Receiver { stream, id, gate: Rc::clone(&self.shared.control) }))
    }

    fn poll_accept_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<Both, ConnectionErrorIncoming>> {
        let connection = &self.connection;
        let begin = || {
            let connection = connection.clone();
            async move { connection.accept_bi().await }
        };
        let (send, receive) = ready!(poll_waiting(&mut self.requests, begin, cx)).map_err(lost)?;
        let id = number(send.id())?;
        let control = &self.shared.control.left;
        control.set(control.get().saturating_add(CONTROL_PER_REQUEST).min(CONTROL));
        // Encoded, a head is hardly larger than decoded; and it comes in pieces.
        let gate = Rc::new(Gate::new(self.shared.head.saturating_mul(2).saturating_add(PIECE)));
        let out = Rc::new(RefCell::new(Out { stream: send, id, queue: VecDeque::new(), over: false }));
        let held = Held { out: Rc::clone(&out), gate: Rc::clone(&gate) };
        *self.shared.latest.borrow_mut() = Some(held);
        Poll::Ready(Ok(Both { send: Sender(out), receive: Receiver { stream: receive, id, gate } }))
    }

    fn opener(&self) -> Opener {
        Opener(self.connection.clone())
    }
}

/// What `h3` would open streams by, were there any to open but the connection's own; and what closes a connection.
pub(super) struct Opener(quinn::Connection);

impl quic::OpenStreams<Bytes> for Opener {
    type BidiStream = Both;
    type SendStream = Sender;

    fn poll_open_bidi(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Both, StreamErrorIncoming>> {
        Poll::Ready(Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error: internal() }))
    }

    fn poll_open_send(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Sender, StreamErrorIncoming>> {
        Poll::Ready(Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error: internal() }))
    }

    fn close(&mut self, error: Code, reason: &[u8]) {
        self.0.close(code(error.value()), reason);
    }
}
