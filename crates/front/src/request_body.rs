//! The request's body on its way to a worker.
//!
//! It promises that clients which send slowly do not hold the workers. A worker is asked only when the body is whole, in memory if it is
//! small, else in a temporary file, as nginx does it; when there is little space left for those, or there are too many, slow ones give way.
//! Where an application asks for it (`request_buffering = false`), a body that the script may read while it arrives (PUT, PATCH: PHP reads
//! that of a POST to its end before the script begins) is passed on as it comes, but to half of its workers at most.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use hayate_http::{BodyError, Exchange, Memory};
use hayate_ring::{Exchange as Job, OpenBody, Ring};
use tokio::time::{Instant, Sleep, sleep};

use crate::{
    answer_files::AnswerFiles,
    descriptors::Files,
    gather::{Gather, Share},
    temp::{Owner, Reading, TempFile, TempSpace},
};

/// Bodies up to this size, in bytes, wait for their end in memory.
pub(crate) const MEMORY: usize = 32 << 10;

/// Up to so many they do so where all bodies together hold too much as well: their connections hold more.
const ALWAYS: usize = 1 << 10;

/// How long a script whose client has left may take nothing of a body that is here before it is told.
const IDLE: Duration = Duration::from_secs(5);

/// How often a script that writes for nobody is listened to at one time.
const TURNS: usize = 16;

/// Where a body is kept until it is whole.
#[derive(Clone, Copy)]
pub(crate) struct Keep<'a> {
    pub(crate) gather: &'a Arc<Gather>,
    pub(crate) answers: &'a Memory,
    pub(crate) space: &'a Arc<TempSpace>,
    pub(crate) owner: Owner,
    /// Where files come from.
    pub(crate) files: Files<'a>,
    /// What of answers is open.
    pub(crate) answer_files: &'a Arc<AnswerFiles>,
    /// Bytes a second below which a client is slow; 0: none is.
    pub(crate) least_rate: u64,
}

/// What is wrong with a body.
#[derive(Debug)]
pub(crate) enum BodyFailure {
    TooLarge,
    /// The client left, or was too slow.
    Left,
    /// It broke the framing: why.
    Malformed(&'static str),
    /// Its temporary file cannot be written or read.
    Storage(io::Error),
}

/// Moves the request's body into the ring. Boxed where it goes from hand to hand: most requests have none.
pub(crate) struct Pump {
    source: Source,
    pending: Bytes,
    done: bool,
}

enum Source {
    /// As the client sends it.
    Client(Client),
    /// It counts as long as it waits.
    Memory(Bytes, #[expect(dead_code, reason = "it counts until it is dropped")] Share),
    File {
        file: TempFile,
        len: u64,
        at: u64,
        reading: Option<Reading>,
    },
}

struct Client {
    /// In bytes; 0: none.
    limit: u64,
    received: u64,
    /// Leave to let a worker wait for it.
    open: Option<OpenBody>,
}

impl Client {
    /// Has `take` copy what has come; how many bytes, 0 at the end.
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange<'_>,
        take: impl FnOnce(&[u8]),
    ) -> Poll<Result<usize, BodyFailure>> {
        let n = match ready!(exchange.poll_body(cx)) {
            Ok(piece) => {
                self.received = self.received.saturating_add(piece.len() as u64);
                if self.limit != 0 && self.received > self.limit {
                    return Poll::Ready(Err(BodyFailure::TooLarge));
                }
                take(piece);
                piece.len()
            }
            Err(BodyError::Left(_)) => return Poll::Ready(Err(BodyFailure::Left)),
            Err(BodyError::Refused(refusal)) => {
                return Poll::Ready(Err(BodyFailure::Malformed(refusal.reason)));
            }
        };
        exchange.consume(n);
        if n == 0 {
            self.open = None;
        }
        Poll::Ready(Ok(n))
    }

    /// Adds what comes next; how many bytes, 0 at the end.
    async fn next(&mut self, exchange: &mut Exchange<'_>, to: &mut BytesMut) -> Result<usize, BodyFailure> {
        poll_fn(|cx| self.poll_next(cx, exchange, |piece| to.extend_from_slice(piece))).await
    }

    /// Waits for the body's end.
    async fn whole(mut self, exchange: &mut Exchange<'_>, keep: Keep<'_>) -> Result<Source, BodyFailure> {
        let mut gathered = BytesMut::new();
        let mut share = keep.gather.body();
        while gathered.len() <= MEMORY && (share.set(gathered.capacity()) || gathered.len() <= ALWAYS) {
            if exchange.body_is_over() || self.next(exchange, &mut gathered).await? == 0 {
                return Ok(Source::Memory(gathered.freeze(), share));
            }
        }
        let files = keep.files.share();
        let Some(permit) = files.take().await else {
            let full = "too many files are open for clients (LimitNOFILE)";
            return Err(BodyFailure::Storage(io::Error::new(io::ErrorKind::QuotaExceeded, full)));
        };
        let file = keep.space.create(keep.owner, permit).await.map_err(BodyFailure::Storage)?;
        // Where space for others is short, who holds much of it and sends slowly gives way.
        let (space, owner) = (Arc::clone(keep.space), keep.owner);
        exchange.hurry(true, Rc::new(move || space.is_short_for(&owner) || files.is_short()));
        let mut len = 0;
        loop {
            let piece = gathered.split().freeze();
            let size = piece.len() as u64;
            file.write(piece, len).await.map_err(BodyFailure::Storage)?;
            share.set(0);
            len = len.saturating_add(size);
            // One write for many pieces: each is handed to another thread.
            while gathered.len() <= MEMORY && (gathered.len() < 1024 || share.set(gathered.len())) {
                if self.next(exchange, &mut gathered).await? > 0 {
                    continue;
                }
                if gathered.is_empty() {
                    return Ok(Source::File { file, len, at: 0, reading: None });
                }
                break;
            }
        }
    }
}

impl Pump {
    /// Begins with a request's body: ready when a worker may be asked. `None` when there is no body. `limit`: its greatest size in bytes, 0
    /// for none. `ring`: whose workers may wait for it, if any may.
    pub(crate) async fn begin(
        exchange: &mut Exchange<'_>,
        limit: u64,
        ring: Option<&Arc<Ring>>,
        keep: Keep<'_>,
    ) -> Result<Option<Box<Pump>>, BodyFailure> {
        if exchange.body_is_over() {
            return Ok(None);
        }
        let small = exchange.body_len().is_some_and(|len| len <= MEMORY as u64);
        let mut client = Client { limit, received: 0, open: None };
        let open = ring.filter(|_| !small).and_then(|ring| Some((ring, ring.open_body()?)));
        let source = match open {
            Some((ring, open)) => {
                client.open = Some(open);
                let ring = Arc::clone(ring);
                exchange.hurry(false, Rc::new(move || ring.is_wanted()));
                Source::Client(client)
            }
            None => Box::pin(client.whole(exchange, keep)).await?,
        };
        Ok(Some(Box::new(Pump { source, pending: Bytes::new(), done: false })))
    }

    /// The body's length in bytes, if all of it is there.
    pub(crate) fn len(&self) -> Option<u64> {
        match &self.source {
            Source::Client(_) => None,
            Source::Memory(bytes, _) => Some(bytes.len() as u64),
            Source::File { len, .. } => Some(*len),
        }
    }

    /// Whether all of it is here.
    pub(crate) fn is_whole(&self) -> bool {
        !matches!(self.source, Source::Client(_))
    }

    /// Whether it waits in a temporary file.
    pub(crate) fn has_file(&self) -> bool {
        matches!(self.source, Source::File { .. })
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
            Source::Memory(..) => {}
            Source::File { at, reading, .. } => {
                *at = 0;
                *reading = None;
            }
        }
        true
    }

    /// The next bytes; none at the end.
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange<'_>,
        from: u64,
    ) -> Poll<Result<Bytes, BodyFailure>> {
        match &mut self.source {
            Source::Client(client) => {
                let mut piece = Bytes::new();
                let n = ready!(client.poll_next(cx, exchange, |come| piece = Bytes::copy_from_slice(come)));
                Poll::Ready(n.map(|_| piece))
            }
            Source::Memory(bytes, _) => Poll::Ready(Ok(if from == 0 { bytes.clone() } else { Bytes::new() })),
            Source::File { file, len, at, reading } => {
                if *at == *len && reading.is_none() {
                    return Poll::Ready(Ok(Bytes::new()));
                }
                let read = reading.get_or_insert_with(|| {
                    let (n, read) = file.read(*at, *len - *at);
                    *at += n;
                    read
                });
                let result = ready!(Pin::new(read).poll(cx)).and_then(|read| read);
                *reading = None;
                Poll::Ready(result.map_err(BodyFailure::Storage))
            }
        }
    }

    /// Moves what can be moved. Ready when the body is over, one way or another; then it [`Pump::is_done`].
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange<'_>,
        job: &mut Job,
    ) -> Poll<Result<(), BodyFailure>> {
        let result = loop {
            if !self.pending.is_empty() {
                match job.poll_send(cx, &mut self.pending) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(())) => {}
                    // The worker wants no more of it; whoever ends the exchange deals with the rest.
                    Poll::Ready(Err(_closed)) => break Ok(()),
                }
            }
            match ready!(self.poll_next(cx, exchange, job.sent())) {
                Ok(data) if !data.is_empty() => self.pending = data,
                end => {
                    job.end_request(end.is_ok());
                    break end.map(drop);
                }
            }
        };
        self.done = true;
        Poll::Ready(result)
    }
}

/// Who has sent a whole body and left. Its script is to have all of it, not a part, unless it takes none.
#[derive(Default)]
pub(crate) struct Leaving {
    late: Option<Pin<Box<Sleep>>>,
    sent: u64,
}

impl Leaving {
    /// Ready when the client has left, and nothing that is here has to come to its script any more.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange<'_>,
        pump: Option<&Pump>,
        job: &Job,
    ) -> Poll<()> {
        if self.late.is_none() {
            ready!(exchange.poll_gone(cx));
        }
        // Where no worker has taken it nobody needs it any more.
        if pump.is_none_or(|pump| !pump.is_whole() || pump.is_done()) || job.queue_wait().is_none() {
            return Poll::Ready(());
        }
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(IDLE)));
        if job.sent() != self.sent {
            self.sent = job.sent();
            late.as_mut().reset(Instant::now() + IDLE);
        }
        late.as_mut().poll(cx)
    }
}

/// What a script may still read of its request while its answer, which has no body of its own, is on its way or sent, or after its client has
/// left.
pub(crate) struct Rest {
    pub(crate) pump: Box<Pump>,
    pub(crate) job: Job,
}

impl Rest {
    /// Moves it, as long as the script runs and its client stays, or takes what is here. What the script writes meanwhile is for nobody.
    pub(crate) async fn run(self, exchange: &mut Exchange<'_>) {
        let Rest { mut pump, mut job } = self;
        let mut leaving = Leaving::default();
        let left = poll_fn(|cx| {
            // If it fails the client has left, which reading hears as well.
            let _ = exchange.poll_flush(cx);
            for _ in 0..TURNS {
                if pump.poll(cx, exchange, &mut job).is_ready() {
                    return Poll::Ready(false);
                }
                match job.poll_body(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(_) => return Poll::Ready(false),
                    Poll::Pending => return leaving.poll(cx, exchange, Some(&pump), &job).map(|()| true),
                }
            }
            // Others are to have their turn, however much it writes.
            cx.waker().wake_by_ref();
            leaving.poll(cx, exchange, Some(&pump), &job).map(|()| true)
        });
        if !left.await {
            job.discard();
        }
    }
}
