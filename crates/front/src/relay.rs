//! The body of a script's answer on its way to the client.
//!
//! It promises that clients which read slowly do not hold the workers when others need them. A worker waits for its client once the ring and a
//! little memory here are full; but as soon as requests wait for a worker, what it still writes goes into a temporary file. Where that cannot
//! be, a client that takes what it is given is waited for, and one that takes next to nothing is cut off. A finished worker is never
//! waited with: what it left in the ring is taken at once, and its slot is free.
//!
//! A request whose body fails meanwhile gets no whole answer, since the script has not seen what it was asked.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use hayate_http::{Exchange, Hold};
use hayate_ring::{Exchange as Job, Failure, Ring};
use tokio::time::Sleep;

use crate::{
    account::Account,
    compress::{Broken, CHUNK, Encoding},
    descriptors::Share,
    promise::Promise,
    request_body::{BodyFailure, Keep, Pump, Rest},
    temp::{Owner, Reading, TempFile, TempSpace},
};

/// Bytes of one answer that may wait in memory, while there is enough.
const MEMORY: usize = 128 << 10;
/// Bytes of one answer that may go through its temporary file, as nginx limits it.
const FILE: u64 = 1 << 30;
/// Bytes that are written to the file, or handed to the connection, at one time, if as many are there.
const BLOCK: usize = 64 << 10;
/// Pieces smaller than this are put together.
const PIECE: usize = 16 << 10;
/// How often a worker that waits for its client is asked whether others need it.
const LOOK: Duration = Duration::from_millis(100);
/// How long a client may take nothing at all while others need its worker and there is no file; and over how long its pace is looked at.
const PATIENCE: Duration = Duration::from_secs(1);
const WATCHED: Duration = Duration::from_secs(3);
/// Both, where as much as may is kept for it in a file already.
const KEPT: Duration = Duration::from_secs(10);
/// In how long it has to take what is kept for it then.
const WHOLE: Duration = Duration::from_secs(3600);

enum Piece {
    Memory(BytesMut),
    File { at: u64, len: u64 },
}

/// A write that is going on.
type Writing = Pin<Box<dyn Future<Output = io::Result<TempFile>>>>;

/// What the script has written and the client has not taken. Pieces are in order.
#[derive(Default)]
struct Waiting {
    pieces: VecDeque<Piece>,
    /// Bytes of the pieces in memory.
    memory: usize,
}

impl Waiting {
    fn put(&mut self, bytes: Bytes) {
        self.memory += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Memory(last)) if last.len() + bytes.len() <= PIECE => last.extend_from_slice(&bytes),
            _ => self.pieces.push_back(Piece::Memory(bytes.into())),
        }
    }

    fn put_in_file(&mut self, from: u64, n: u64) {
        match self.pieces.back_mut() {
            Some(Piece::File { at, len }) if *at + *len == from => *len += n,
            _ => self.pieces.push_back(Piece::File { at: from, len: n }),
        }
    }
}

/// A client whose worker others need, and whose answer cannot be kept.
struct Pressed {
    why: io::Error,
    /// How long it may take nothing at all, and over how long its pace is looked at.
    patience: (Duration, Duration),
    /// What it had taken when it was last looked at.
    taken: u64,
    since: Instant,
    lately: (u64, Instant),
}

/// A script that has sent its head and is still sending its body. Dropping it tells the script that nobody reads any more.
pub(crate) struct Relay {
    ring: Arc<Ring>,
    /// `None` once all of the answer was taken out of the ring.
    job: Option<Job>,
    pump: Option<Box<Pump>>,
    waiting: Waiting,
    /// Bytes that may wait in memory now.
    most: usize,
    /// How the answer ended, once it has.
    end: Option<Result<(), Failure>>,
    space: Arc<TempSpace>,
    owner: Owner,
    /// Bytes a second below which a client is slow; 0: none is.
    least_rate: u64,
    files: Share,
    file: Option<TempFile>,
    /// Bytes in the temporary file.
    written: u64,
    writing: Option<(u64, Bytes, Writing)>,
    reading: Option<Reading>,
    look: Option<Pin<Box<Sleep>>>,
    pressed: Option<Pressed>,
    /// The client was too slow.
    cut: bool,
    /// What became of the request's body, where that ended the answer.
    spoilt: Option<BodyFailure>,
    /// What goes to the client goes through this.
    encoding: Option<Encoding>,
    /// Others are to have their turn.
    rests: bool,
}

impl Relay {
    pub(crate) fn new(ring: Arc<Ring>, job: Job, pump: Option<Box<Pump>>, keep: Keep<'_>) -> Relay {
        Relay {
            ring,
            job: Some(job),
            pump,
            waiting: Waiting::default(),
            most: MEMORY,
            end: None,
            space: Arc::clone(keep.space),
            owner: keep.owner,
            least_rate: keep.least_rate,
            files: keep.files.share(),
            file: None,
            written: 0,
            writing: None,
            reading: None,
            look: None,
            pressed: None,
            cut: false,
            spoilt: None,
            encoding: None,
            rests: false,
        }
    }

    /// Sends the body. `false`: the client is gone, or the answer broke off, of which the client learns by the end of its connection.
    pub(crate) async fn run(
        &mut self,
        exchange: &mut Exchange<'_>,
        account: &mut Account,
        promise: &mut Option<Promise>,
        encoding: Option<Encoding>,
    ) -> bool {
        self.encoding = encoding;
        let mut hold = Hold::new(exchange.clock().holding());
        let mut given = 0;
        let whole = poll_fn(|cx| {
            let done = self.poll(cx, exchange, &mut |bytes| given += bytes);
            hold.set(self.waiting.memory.saturating_add(self.under_way()));
            account.sent = exchange.sent();
            if let Some(promise) = promise {
                promise.given(given);
            }
            done
        });
        let whole = whole.await;
        if whole && let Some(promise) = promise {
            promise.ends(given);
        }
        let Some(mut encoding) = self.encoding.take().filter(|_| whole) else { return whole };
        // The client is to have what there is, also where something is missing.
        for last in [encoding.flush_if_short(), encoding.finish()] {
            match last {
                Ok(last) => exchange.send(last),
                Err(_) => return false,
            }
        }
        true
    }

    /// What its script may still read of a request that is all here, where the client has left.
    pub(crate) fn rest(&mut self) -> Option<Box<Rest>> {
        let pump = self.pump.take().filter(|pump| pump.is_whole() && !pump.is_done())?;
        Some(Box::new(Rest { pump, job: self.job.take()? }))
    }

    /// Why the answer was cut off, if it was for the request's body.
    pub(crate) fn spoilt(&mut self) -> Option<BodyFailure> {
        self.spoilt.take()
    }

    /// Moves the request's body. `false`: it has failed, and the script has seen a part of it only.
    fn poll_pump(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange<'_>) -> bool {
        let (Some(pump), Some(job)) = (&mut self.pump, &mut self.job) else { return true };
        // One that has given its answer before the body failed needs no more of it.
        let answered = job.remaining().is_some();
        let Poll::Ready(moved) = pump.poll(cx, exchange, job) else { return true };
        self.pump = None;
        self.spoilt = moved.err().filter(|_| !answered);
        self.spoilt.is_none()
    }

    /// Bytes that threads write to the file or read from it for this answer.
    fn under_way(&self) -> usize {
        let writing = self.writing.as_ref().map_or(0, |(_, bytes, _)| bytes.len());
        let reading = if self.reading.is_some() { BLOCK } else { 0 };
        writing.saturating_add(reading)
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange<'_>,
        given: &mut dyn FnMut(u64),
    ) -> Poll<bool> {
        loop {
            if !self.poll_pump(cx, exchange) {
                return Poll::Ready(false);
            }
            if self.pump.is_none() && !exchange.body_is_over() && exchange.discard_body(cx).is_err() {
                return Poll::Ready(false);
            }
            self.most = exchange.clock().holding().ready(MEMORY);
            let came = self.poll_ring(cx, exchange);
            if self.cut {
                return Poll::Ready(false);
            }
            let before = self.waiting.memory;
            match self.poll_client(cx, exchange, given) {
                Poll::Ready(whole) => return Poll::Ready(whole),
                Poll::Pending if std::mem::take(&mut self.rests) => return Poll::Pending,
                // There is room for more.
                Poll::Pending if came || self.waiting.memory < before => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Takes what the script has written. Whether there may be more to do at once.
    fn poll_ring(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange<'_>) -> bool {
        if let Some((n, _, writing)) = &mut self.writing {
            let n = *n;
            match writing.as_mut().poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(file)) => {
                    self.file = Some(file);
                    self.waiting.put_in_file(self.written, n);
                    self.written += n;
                    self.writing = None;
                }
                Poll::Ready(Err(why)) => {
                    self.press(why, (PATIENCE, WATCHED), exchange.taken());
                    if let Some((_, bytes, _)) = self.writing.take() {
                        self.waiting.put(bytes);
                    }
                }
            }
            return true;
        }
        let Some(job) = &self.job else { return false };
        // The answer's end is there: no more than the ring can hold.
        if self.waiting.memory < self.most || job.remaining().is_some() {
            return match self.take(cx) {
                Some(bytes) => {
                    self.waiting.put(bytes);
                    true
                }
                None => self.end.is_some(),
            };
        }
        // A client that reads nothing until it has sent all would wait for ever.
        if self.pump.is_some() || self.ring.is_wanted() {
            if self.pressed.is_none() {
                if self.written < FILE {
                    return self.put_in_file(cx);
                }
                let why = io::Error::other("1 GB of it has gone through its temporary file");
                self.press(why, (KEPT, KEPT), exchange.taken());
            }
            if self.cut_off(exchange) {
                return true;
            }
        }
        let look = self.look.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK)));
        let time = look.as_mut().poll(cx).is_ready();
        if time {
            self.look = None;
        }
        time
    }

    /// The next bytes; none when there are none yet, or when the answer [has ended][Relay::end].
    fn take(&mut self, cx: &mut Context<'_>) -> Option<Bytes> {
        match self.job.as_mut()?.poll_body(cx) {
            Poll::Pending => None,
            Poll::Ready(Some(Ok(bytes))) => Some(bytes),
            Poll::Ready(end) => {
                self.end = Some(end.transpose().map(drop));
                self.pump = None;
                self.job = None;
                None
            }
        }
    }

    fn put_in_file(&mut self, cx: &mut Context<'_>) -> bool {
        // All that is there already: a script may write a byte at a time, and each write is handed to another thread.
        let mut gathered = BytesMut::new();
        while gathered.len() < BLOCK
            && let Some(more) = self.take(cx)
        {
            gathered.extend_from_slice(&more);
        }
        if gathered.is_empty() {
            return self.end.is_some();
        }
        let bytes = gathered.freeze();
        let (file, at, more) = (self.file.clone(), self.written, bytes.clone());
        let (space, owner) = (Arc::clone(&self.space), self.owner);
        let permit = if file.is_none() { self.files.try_take() } else { None };
        let writing = async move {
            let file = match file {
                Some(file) => file,
                None => {
                    let none = || io::Error::other("no descriptor is left for it (LimitNOFILE)");
                    space.create(owner, permit.ok_or_else(none)?).await?
                }
            };
            file.write(more, at).await.map(|()| file)
        };
        self.writing = Some((bytes.len() as u64, bytes, Box::pin(writing)));
        true
    }

    /// From now on the client is to take what it is given.
    fn press(&mut self, why: io::Error, patience: (Duration, Duration), taken: u64) {
        let now = Instant::now();
        self.pressed = Some(Pressed { why, patience, taken, since: now, lately: (taken, now) });
    }

    /// Bytes a second that are to be taken while others wait: what is kept has to go in an hour.
    fn rate_for_others(&self) -> u64 {
        let in_file = |piece: &Piece| if let Piece::File { len, .. } = piece { *len } else { 0 };
        let kept: u64 = self.waiting.pieces.iter().map(in_file).sum();
        if self.least_rate == 0 { 0 } else { self.least_rate.max(kept / WHOLE.as_secs()) }
    }

    /// Whether the client was cut off, for others wait for its worker, its answer cannot be kept, and it takes too little of it.
    fn cut_off(&mut self, exchange: &mut Exchange<'_>) -> bool {
        let (now, taken, least) = (Instant::now(), exchange.taken(), self.rate_for_others());
        let Some(pressed) = &mut self.pressed else { return false };
        if taken > pressed.taken {
            (pressed.taken, pressed.since) = (taken, now);
        }
        let (before, at) = pressed.lately;
        let (patience, over) = pressed.patience;
        let mut slow = now.duration_since(pressed.since) >= patience;
        if now.duration_since(at) >= over {
            slow |= taken.saturating_sub(before) < least.saturating_mul(over.as_secs());
            pressed.lately = (taken, now);
        }
        if slow {
            tracing::error!(
                "a slow client was cut off, for others wait for its worker and its answer cannot be kept: {}; see TMPDIR, and temp_size in \
                 [limits]",
                pressed.why
            );
            self.cut = true;
        }
        slow
    }

    /// Whether the client cannot decode all that was sent, and more may be long in coming.
    fn has_unseen(&self) -> bool {
        let whole = |job: &Job| job.remaining().is_some();
        self.encoding.as_ref().is_some_and(Encoding::has_unseen) && !self.job.as_ref().is_some_and(whole)
    }

    fn send(&mut self, exchange: &mut Exchange<'_>, bytes: Bytes) -> Result<(), Broken> {
        exchange.send(match &mut self.encoding {
            None => bytes,
            Some(encoding) => encoding.put(bytes)?,
        });
        Ok(())
    }

    /// Hands on what waits. Ready at the end: whether all of it went.
    fn poll_client(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange<'_>,
        given: &mut dyn FnMut(u64),
    ) -> Poll<bool> {
        loop {
            match exchange.poll_flush(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Ready(Ok(())) => {}
            }
            if self.encoding.as_mut().is_some_and(|encoding| encoding.rests(cx)) {
                self.rests = true;
                return Poll::Pending;
            }
            if let Some(reading) = &mut self.reading {
                let Poll::Ready(read) = Pin::new(reading).poll(cx) else { return Poll::Pending };
                self.reading = None;
                let Ok(bytes) = read.and_then(|read| read) else { return Poll::Ready(false) };
                given(bytes.len() as u64);
                if self.send(exchange, bytes).is_err() {
                    return Poll::Ready(false);
                }
                continue;
            }
            let mut handed = 0;
            let most = if self.encoding.is_some() { CHUNK } else { BLOCK };
            while handed < most
                && let Some(Piece::Memory(bytes)) = self.waiting.pieces.front_mut()
            {
                let bytes = match bytes.len() <= most || self.encoding.is_none() {
                    true => std::mem::take(bytes),
                    false => bytes.split_to(most),
                };
                if matches!(self.waiting.pieces.front(), Some(Piece::Memory(rest)) if rest.is_empty()) {
                    self.waiting.pieces.pop_front();
                }
                self.waiting.memory -= bytes.len();
                handed += bytes.len();
                given(bytes.len() as u64);
                if self.send(exchange, bytes.freeze()).is_err() {
                    return Poll::Ready(false);
                }
            }
            if handed > 0 {
                continue;
            }
            let unseen = self.has_unseen();
            match self.waiting.pieces.front_mut() {
                Some(Piece::File { at, len }) => {
                    let Some(file) = &self.file else { return Poll::Ready(false) };
                    let (n, reading) = file.read(*at, *len);
                    (*at, *len) = (*at + n, *len - n);
                    if *len == 0 {
                        self.waiting.pieces.pop_front();
                    }
                    self.reading = Some(reading);
                }
                Some(Piece::Memory(_)) => {}
                None if self.end.is_some() && self.writing.is_none() => {
                    return Poll::Ready(self.end == Some(Ok(())));
                }
                // The script pauses: what it has sent is to be seen.
                None if unseen => {
                    let Some(Ok(seen)) = self.encoding.as_mut().map(Encoding::flush) else {
                        return Poll::Ready(false);
                    };
                    exchange.send(seen);
                }
                // A client that has left is to be told to the script before it writes again.
                None => return exchange.poll_gone(cx).map(|()| false),
            }
        }
    }
}
