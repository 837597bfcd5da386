//! quinn's streams as this server uses them: what is written waits in the stream's queue, which is sent as fast as the client takes it, so
//! writing never waits; and what was wrong with a client ends its stream or its connection in one place.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    io,
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use quinn::{VarInt, WriteError};

use super::{
    code::Code,
    endpoint::SEND_WINDOW,
    seat::{Seat, whose},
};
use crate::{Hold, Holding, block::Block};

/// Bytes that are read at once.
pub(super) const PIECE: usize = 8 << 10;
/// Bytes that may come beside those that anybody reads.
const UNREAD: u64 = 8 << 20;
/// Bytes that a client may send for each that is read: who writes bytes one by one has a datagram for each.
const PER_BYTE: u64 = 64;
/// A connection's part of what all may hold, as far as it is with quinn.
const SHARES: usize = 64;
/// What quinn may have of a connection's answers when memory is short.
const LEAST_WINDOW: usize = 64 << 10;

/// What a client did wrong.
#[derive(Debug)]
pub(super) enum Fault {
    /// It concerns one request.
    Stream(Code),
    /// Nothing that comes after it could be trusted.
    Connection(Code),
    /// The head is larger than allowed: it can be answered.
    TooLarge,
    /// The client left, or reset the stream.
    Left(io::Error),
}

/// What the streams of a connection share.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) connection: quinn::Connection,
    /// Bytes that the client takes of a head (SETTINGS_MAX_FIELD_SECTION_SIZE).
    pub(super) largest_head: Cell<u64>,
    seat: Arc<Seat>,
    /// From where the client came.
    peer: IpAddr,
    /// Bytes that were read of its streams.
    read: Cell<u64>,
    /// What quinn has of answers.
    given: RefCell<Hold>,
    /// The number of [`Wire::confirmed`] that it goes by.
    heard: Cell<u64>,
    window: Cell<usize>,
}

impl Wire {
    /// `given`: for what quinn has of its answers.
    pub(super) fn new(connection: &quinn::Connection, seat: &Arc<Seat>, peer: IpAddr, given: Hold) -> Wire {
        Wire {
            connection: connection.clone(),
            largest_head: Cell::new(VarInt::MAX.into_inner()),
            seat: Arc::clone(seat),
            peer: whose(peer),
            read: Cell::new(0),
            given: RefCell::new(given),
            heard: Cell::new(seat.confirmed()),
            window: Cell::new(SEND_WINDOW),
        }
    }

    /// Bytes that the client has confirmed to have; a number to be compared with an earlier one.
    pub(super) fn confirmed(&self) -> u64 {
        self.seat.confirmed()
    }

    /// Whether the client is not any more where it came from, beyond what a network does to an address (RFC 9000, 9).
    pub(super) fn has_moved(&self) -> bool {
        whose(self.connection.remote_address().ip()) != self.peer
    }

    /// quinn was given so many bytes more. What it has is counted nearly: the client confirms packets.
    pub(super) fn gave(&self, bytes: usize) {
        let now = self.confirmed();
        let confirmed = now.saturating_sub(self.heard.replace(now));
        let mut given = self.given.borrow_mut();
        let had = given.bytes().saturating_add(bytes);
        given.set(had.saturating_sub(usize::try_from(confirmed).unwrap_or(usize::MAX)).min(SEND_WINDOW));
    }

    /// quinn was told to drop a stream to which it had been given so many bytes in all.
    pub(super) fn took_back(&self, bytes: usize) {
        let mut given = self.given.borrow_mut();
        let left = given.bytes().saturating_sub(bytes);
        given.set(left);
    }

    /// quinn has nothing of any answer.
    pub(super) fn gave_all(&self) {
        self.heard.set(self.confirmed());
        self.given.borrow_mut().set(0);
    }

    /// quinn takes less of answers, the shorter memory is, and never much of all that may be held: it takes at once what it may.
    pub(super) fn go_by(&self, holding: &Holding) {
        let most = holding.limit().map_or(SEND_WINDOW, |limit| SEND_WINDOW.min(limit / SHARES));
        let window = holding.ready(most).max(LEAST_WINDOW);
        if self.window.replace(window) != window {
            self.connection.set_send_window(window as u64);
        }
    }

    pub(super) fn has_read(&self, bytes: usize) {
        self.read.set(self.read.get().saturating_add(bytes as u64));
    }

    /// Whether far more has come than was read, or than it takes to confirm what was sent: quinn keeps the whole datagram of each byte that
    /// waits for those before it, and counts one.
    pub(super) fn is_flooded(&self) -> bool {
        let fair = self.read.get().saturating_mul(PER_BYTE).saturating_add(self.confirmed());
        self.connection.stats().udp_rx.bytes > fair.saturating_add(UNREAD)
    }

    /// Ends it. What waits is dropped; a second end is none.
    pub(super) fn close(&self, code: Code, reason: &str) {
        self.connection.close(code.number(), reason.as_bytes());
    }
}

/// The writing half of a stream, with what waits in it.
pub(super) struct Out {
    stream: quinn::SendStream,
    queue: VecDeque<Block>,
    /// Its end was said, or that there is none.
    over: bool,
    /// Bytes that quinn was given, of a stream that the client does not have.
    given: usize,
}

impl Out {
    pub(super) fn new(stream: quinn::SendStream) -> Rc<RefCell<Out>> {
        Rc::new(RefCell::new(Out { stream, queue: VecDeque::new(), over: false, given: 0 }))
    }

    /// Adds what is to be sent. Once the end was said, it is dropped.
    pub(super) fn put(&mut self, data: Bytes) {
        if !self.over && !data.is_empty() {
            self.queue.push_back(Block::new(data));
        }
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.iter().map(|block| block.len()).fold(0, usize::saturating_add)
    }

    /// Bytes of memory that they keep.
    pub(super) fn kept(&self) -> usize {
        self.queue.iter().map(Block::kept).fold(0, usize::saturating_add)
    }

    /// Writes as much as quinn takes. Ready: all of it. The number: bytes that it took.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> (Poll<io::Result<()>>, usize) {
        let mut taken = 0usize;
        while let Some(data) = self.queue.front_mut() {
            match Pin::new(&mut self.stream).poll_write(cx, data) {
                Poll::Pending => return (Poll::Pending, taken),
                Poll::Ready(Ok(n)) => {
                    data.advance(n);
                    self.given = self.given.saturating_add(n);
                    if data.is_empty() {
                        self.queue.pop_front();
                    }
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

    /// Bytes that quinn has had of it, unless the client has all of them.
    pub(super) fn given(&self) -> usize {
        self.given
    }

    /// The client has all of it.
    pub(super) fn settle(&mut self) {
        self.given = 0;
    }

    /// Says that nothing more comes.
    pub(super) fn finish(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            // It fails when the client wants no more.
            let _ = self.stream.finish();
        }
    }

    /// Says that what came is not all.
    pub(super) fn reset(&mut self, code: Code) {
        self.queue.clear();
        if !std::mem::replace(&mut self.over, true) {
            let _ = self.stream.reset(code.number());
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
        // quinn would finish it, and half an answer would look whole. Of one that was finished quinn would keep what the client has not confirmed,
        // for as long as anything of the connection. It fails when the client has all.
        self.queue.clear();
        let _ = self.stream.reset(Code::INTERNAL_ERROR.number());
    }
}
