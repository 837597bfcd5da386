//! The body of a script's answer on its way to the client.
//!
//! It promises that clients which read slowly do not hold the workers when others need them. A worker waits for its client once the ring and a
//! little memory here are full; but as soon as requests wait for a worker, what it still writes goes into a temporary file. A finished
//! worker is never waited with: what it left in the ring is taken at once, and its slot is free.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use hayate_ring::{Exchange, Ring};
use parking_lot::{Mutex, MutexGuard};
use tokio::task::AbortHandle;

use crate::{
    request_body::{Keep, Pump},
    temp::{Owner, Reading, TempFile, TempSpace},
};

/// Bytes of one answer that may wait in memory.
const MEMORY: usize = 128 << 10;
/// Bytes of one answer that may go through its temporary file, as nginx limits it.
const FILE: u64 = 1 << 30;
/// Bytes that are written to the file at one time, if as many are there.
const BLOCK: usize = 64 << 10;
/// Pieces smaller than this are put together.
const PIECE: usize = 16 << 10;
/// How often a worker that waits for its client is asked whether others need it.
const LOOK: Duration = Duration::from_millis(100);

enum Piece {
    Memory(BytesMut),
    File { at: u64, len: u64 },
}

/// What the script has written and the client has not taken. Pieces are in order.
#[derive(Default)]
struct Waiting {
    pieces: VecDeque<Piece>,
    /// Bytes of the pieces in memory.
    memory: usize,
    file: Option<TempFile>,
    /// The answer's end, and what is wrong with it.
    end: Option<io::Result<()>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Waiting {
    fn put(&mut self, bytes: Bytes) {
        self.memory += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Memory(last)) if last.len() + bytes.len() <= PIECE => last.extend_from_slice(&bytes),
            _ => self.pieces.push_back(Piece::Memory(bytes.into())),
        }
        self.wake_reader();
    }

    fn put_in_file(&mut self, from: u64, n: u64) {
        match self.pieces.back_mut() {
            Some(Piece::File { at, len }) if *at + *len == from => *len += n,
            _ => self.pieces.push_back(Piece::File { at: from, len: n }),
        }
        self.wake_reader();
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The end of it that hyper reads. Dropping it tells the script that nobody reads any more.
pub(crate) struct Relay {
    waiting: Arc<Mutex<Waiting>>,
    reading: Option<Reading>,
    task: AbortHandle,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock()
}

impl Relay {
    pub(crate) fn start(ring: Arc<Ring>, exchange: Exchange, pump: Option<Pump>, keep: Keep<'_>) -> Relay {
        let waiting = Arc::default();
        let temp = (Arc::clone(keep.space), keep.owner);
        let script =
            Script { ring, exchange, pump, waiting: Arc::clone(&waiting), temp, written: 0, end: None };
        Relay { waiting, reading: None, task: tokio::spawn(script.run()).abort_handle() }
    }

    /// The next bytes; an error when the answer breaks off, so that hyper cuts the connection and the client sees that it is not whole.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(Pin::new(reading).poll(cx)).and_then(|read| read);
                self.reading = None;
                return Poll::Ready(Some(read));
            }
            let mut waiting = lock(&self.waiting);
            let waiting = &mut *waiting;
            match waiting.pieces.front_mut() {
                Some(Piece::Memory(bytes)) => {
                    let bytes = std::mem::take(bytes).freeze();
                    waiting.pieces.pop_front();
                    waiting.memory -= bytes.len();
                    if let Some(writer) = waiting.writer.take() {
                        writer.wake();
                    }
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Piece::File { at, len }) => {
                    let Some(file) = &waiting.file else {
                        return Poll::Ready(Some(Err(io::Error::other("the temporary file is gone"))));
                    };
                    let (n, reading) = file.read(*at, *len);
                    (*at, *len) = (*at + n, *len - n);
                    if *len == 0 {
                        waiting.pieces.pop_front();
                    }
                    self.reading = Some(reading);
                }
                None => {
                    return match waiting.end.take() {
                        Some(Ok(())) => {
                            waiting.end = Some(Ok(()));
                            Poll::Ready(None)
                        }
                        Some(Err(error)) => {
                            waiting.end = Some(Ok(()));
                            Poll::Ready(Some(Err(error)))
                        }
                        None => {
                            waiting.reader = Some(cx.waker().clone());
                            Poll::Pending
                        }
                    };
                }
            }
        }
    }
}

/// The end of it that takes from the ring: a script that has sent its head and is still sending its body.
struct Script {
    ring: Arc<Ring>,
    exchange: Exchange,
    pump: Option<Pump>,
    waiting: Arc<Mutex<Waiting>>,
    temp: (Arc<TempSpace>, Owner),
    /// Bytes in the temporary file.
    written: u64,
    /// The ring's last word, if it was heard before its turn.
    end: Option<Option<io::Result<Bytes>>>,
}

/// However the task ends, whoever reads learns of it.
impl Drop for Script {
    fn drop(&mut self) {
        self.ends(Err(io::Error::other("the answer broke off")));
    }
}

impl Script {
    async fn run(mut self) {
        let end = loop {
            match poll_fn(|cx| self.poll_ring(cx)).await {
                None => break Ok(()),
                Some(Err(error)) => break Err(error),
                Some(Ok(bytes)) if self.has_room().await => lock(&self.waiting).put(bytes),
                Some(Ok(bytes)) => {
                    if let Err(error) = self.put_in_file(bytes).await {
                        tracing::error!(
                            "a slow client was cut off, for others wait for its worker and its answer cannot be kept: {error}; see \
                             TMPDIR, and temp_size in [limits]"
                        );
                        break Err(error);
                    }
                }
            }
        };
        self.ends(end);
    }

    fn ends(&self, end: io::Result<()>) {
        let mut waiting = lock(&self.waiting);
        waiting.end.get_or_insert(end);
        waiting.wake_reader();
    }

    fn poll_ring(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(end) = self.end.take() {
            return Poll::Ready(end);
        }
        if let Some(pump) = &mut self.pump
            && pump.poll(cx, &mut self.exchange).is_ready()
        {
            self.pump = None;
        }
        self.exchange.poll_body(cx).map(|item| item.map(|bytes| bytes.map_err(io::Error::other)))
    }

    /// Waits until more may be put into memory; `false` when it has to go into the file.
    async fn has_room(&self) -> bool {
        loop {
            // The answer's end is there: no more than the ring can hold.
            if lock(&self.waiting).memory < MEMORY || self.exchange.remaining().is_some() {
                return true;
            }
            // A client that reads nothing until it has sent all would wait for ever.
            if self.written < FILE && (self.pump.is_some() || self.ring.is_wanted()) {
                return false;
            }
            let room = poll_fn(|cx| {
                let mut waiting = lock(&self.waiting);
                if waiting.memory < MEMORY {
                    return Poll::Ready(());
                }
                waiting.writer = Some(cx.waker().clone());
                Poll::Pending
            });
            let _ = tokio::time::timeout(LOOK, room).await;
        }
    }

    async fn put_in_file(&mut self, bytes: Bytes) -> io::Result<()> {
        // What is there already goes with it: a script may write a byte at a time, and each write is handed to another thread.
        let mut gathered = BytesMut::from(bytes);
        while gathered.len() < BLOCK {
            match poll_fn(|cx| Poll::Ready(self.poll_ring(cx))).await {
                Poll::Ready(Some(Ok(more))) => gathered.extend_from_slice(&more),
                Poll::Ready(end) => {
                    self.end = Some(end);
                    break;
                }
                Poll::Pending => break,
            }
        }
        let n = gathered.len() as u64;
        let file = lock(&self.waiting).file.clone();
        let file = match file {
            Some(file) => file,
            None => {
                let file = self.temp.0.create(self.temp.1).await?;
                lock(&self.waiting).file.insert(file).clone()
            }
        };
        file.write(gathered.freeze(), self.written).await?;
        lock(&self.waiting).put_in_file(self.written, n);
        self.written += n;
        Ok(())
    }
}
