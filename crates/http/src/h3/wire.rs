//! quinn's streams as this server uses them: what is written waits in the stream's queue, which is sent as fast as the client takes it, so
//! writing never waits; and what was wrong with a client ends its stream or its connection in one place.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use quinn::WriteError;

use super::{code::Code, pulse};
use crate::block::Block;

/// Bytes that are read at once.
pub(super) const PIECE: usize = 8 << 10;

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
}

impl Wire {
    /// Bytes that the client has confirmed to have on its present way here; a number to be compared with an earlier one.
    pub(super) fn confirmed(&self) -> u64 {
        pulse::confirmed(&self.connection)
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
}

impl Out {
    pub(super) fn new(stream: quinn::SendStream) -> Rc<RefCell<Out>> {
        Rc::new(RefCell::new(Out { stream, queue: VecDeque::new(), over: false }))
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
        // quinn would finish it, and half an answer would look whole.
        self.reset(Code::INTERNAL_ERROR);
    }
}
