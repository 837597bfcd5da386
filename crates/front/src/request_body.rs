//! The request's body on its way to a worker.
//!
//! It promises that clients which send slowly do not hold the workers. A worker is asked only when the body is whole, in memory if it is
//! small, else in a temporary file, as nginx does it. A body that the script may read while it arrives (PUT, PATCH: PHP reads that of a
//! POST to its end before the script begins) is passed on as it comes, but to half of an application's workers at most.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use hayate_ring::{Exchange, OpenBody, Ring};
use http::Method;
use http_body::Body as _;
use hyper::body::Incoming;

use crate::{
    gather::Gather,
    state::State,
    temp::{Owner, Reading, TempFile, TempSpace},
};

/// Bodies up to this size, in bytes, wait for their end in memory.
pub(crate) const MEMORY: usize = 32 << 10;

/// Where a body is kept until it is whole.
#[derive(Clone, Copy)]
pub(crate) struct Keep<'a> {
    pub(crate) gather: &'a Arc<Gather>,
    pub(crate) space: &'a Arc<TempSpace>,
    pub(crate) owner: Owner,
}

/// What is wrong with a body.
#[derive(Debug)]
pub(crate) enum BodyFailure {
    TooLarge,
    /// The client left, was too slow, or broke the framing.
    Broken,
    /// Its temporary file cannot be written or read.
    Storage(io::Error),
}

/// Moves the request's body into the ring.
pub(crate) struct Pump {
    source: Source,
    pending: Bytes,
    done: bool,
}

enum Source {
    /// As the client sends it.
    Client(Client),
    Memory(Bytes),
    File {
        file: TempFile,
        len: u64,
        at: u64,
        reading: Option<Reading>,
    },
}

struct Client {
    incoming: Incoming,
    state: Arc<State>,
    /// In bytes; 0: none.
    limit: u64,
    received: u64,
    /// Leave to let a worker wait for it.
    open: Option<OpenBody>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.state.body_ends();
    }
}

impl Client {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFailure>>> {
        loop {
            let frame = match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Pending => {
                    self.state.body_waits();
                    return Poll::Pending;
                }
                Poll::Ready(frame) => frame,
            };
            self.state.serving();
            match frame {
                None => {
                    self.open = None;
                    return Poll::Ready(None);
                }
                Some(Err(_)) => return Poll::Ready(Some(Err(BodyFailure::Broken))),
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    self.received = self.received.saturating_add(data.len() as u64);
                    self.state.body_came(data.len());
                    if self.limit != 0 && self.received > self.limit {
                        return Poll::Ready(Some(Err(BodyFailure::TooLarge)));
                    }
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, BodyFailure>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Waits for the body's end.
    async fn whole(mut self, keep: Keep<'_>) -> Result<Source, BodyFailure> {
        let Some(first) = self.next().await.transpose()? else { return Ok(Source::Memory(Bytes::new())) };
        if self.incoming.is_end_stream() {
            return Ok(Source::Memory(first));
        }
        // Pieces may be as small as a byte, and each keeps a buffer of hyper's alive: they are copied together.
        let mut gathered = BytesMut::from(first);
        let mut share = keep.gather.share();
        while gathered.len() <= MEMORY && share.set(gathered.capacity()) {
            match self.next().await.transpose()? {
                Some(more) => gathered.extend_from_slice(&more),
                None => return Ok(Source::Memory(gathered.freeze())),
            }
        }
        let file = keep.space.create(keep.owner).await.map_err(BodyFailure::Storage)?;
        let mut len = 0;
        loop {
            let piece = gathered.split().freeze();
            let size = piece.len() as u64;
            file.write(piece, len).await.map_err(BodyFailure::Storage)?;
            share.set(0);
            len = len.saturating_add(size);
            // One write for many pieces: each is handed to another thread.
            while gathered.len() <= MEMORY && (gathered.len() < 1024 || share.set(gathered.len())) {
                match self.next().await.transpose()? {
                    Some(more) => gathered.extend_from_slice(&more),
                    None if gathered.is_empty() => {
                        return Ok(Source::File { file, len, at: 0, reading: None });
                    }
                    None => break,
                }
            }
        }
    }
}

impl Pump {
    /// Begins with a request's body: ready when a worker may be asked. `None` when there is no body. `limit`: its greatest size in bytes, 0
    /// for none.
    pub(crate) async fn begin(
        incoming: Incoming,
        method: &Method,
        state: &Arc<State>,
        limit: u64,
        ring: &Arc<Ring>,
        keep: Keep<'_>,
    ) -> Result<Option<Pump>, BodyFailure> {
        if incoming.is_end_stream() {
            return Ok(None);
        }
        let small = incoming.size_hint().exact().is_some_and(|len| len <= MEMORY as u64);
        let mut client = Client { incoming, state: Arc::clone(state), limit, received: 0, open: None };
        if !small && *method != Method::POST {
            client.open = ring.open_body();
        }
        state.body_begins(client.open.is_some().then(|| Arc::clone(ring)));
        let source = match client.open {
            Some(_) => Source::Client(client),
            None => pin!(client.whole(keep)).await?,
        };
        state.serving();
        Ok(Some(Pump { source, pending: Bytes::new(), done: false }))
    }

    /// The body's length in bytes, if all of it is there.
    pub(crate) fn len(&self) -> Option<u64> {
        match &self.source {
            Source::Client(_) => None,
            Source::Memory(bytes) => Some(bytes.len() as u64),
            Source::File { len, .. } => Some(*len),
        }
    }

    /// Whether nothing is left to move.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Goes back to the body's beginning, for another worker; `false` when that is gone.
    pub(crate) fn again(&mut self) -> bool {
        self.pending = Bytes::new();
        self.done = false;
        match &mut self.source {
            Source::Client(client) => return client.received == 0,
            Source::Memory(_) => {}
            Source::File { at, reading, .. } => {
                *at = 0;
                *reading = None;
            }
        }
        true
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, from: u64) -> Poll<Option<Result<Bytes, BodyFailure>>> {
        match &mut self.source {
            Source::Client(client) => client.poll_next(cx),
            Source::Memory(bytes) => Poll::Ready((from == 0 && !bytes.is_empty()).then(|| Ok(bytes.clone()))),
            Source::File { file, len, at, reading } => {
                if *at == *len && reading.is_none() {
                    return Poll::Ready(None);
                }
                let read = reading.get_or_insert_with(|| {
                    let (n, read) = file.read(*at, *len - *at);
                    *at += n;
                    read
                });
                let result = ready!(Pin::new(read).poll(cx)).and_then(|read| read);
                *reading = None;
                Poll::Ready(Some(result.map_err(BodyFailure::Storage)))
            }
        }
    }

    /// Moves what can be moved. Ready when the body is over, one way or another; then it [`Pump::is_done`].
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
    ) -> Poll<Result<(), BodyFailure>> {
        let result = loop {
            if !self.pending.is_empty() {
                match exchange.poll_send(cx, &mut self.pending) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(())) => {}
                    // The worker wants no more of it; hyper deals with the rest.
                    Poll::Ready(Err(_closed)) => break Ok(()),
                }
            }
            match ready!(self.poll_next(cx, exchange.sent())) {
                Some(Ok(data)) => self.pending = data,
                end => {
                    exchange.end_request(end.is_none());
                    break end.transpose().map(|_| ());
                }
            }
        };
        self.done = true;
        Poll::Ready(result)
    }
}
