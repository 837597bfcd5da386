//! One request in flight: its body going in, its answer coming out.

use std::{
    sync::{Arc, atomic::Ordering::*, atomic::fence},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};

use crate::{
    head::ResponseHead,
    layout::*,
    ring::{Entry, Inner, Life, Ring, TICK, claim_state, claim_worker, now_nearly},
};

/// Why a request has no complete answer. Each leaves the exchange finished: drop it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The worker died. `started`: part of an answer was there already.
    #[error("the worker died while it served this request")]
    WorkerDied {
        /// Whether the head of an answer had been published.
        started: bool,
    },
    /// request_timeout passed; the worker is being killed.
    #[error("the request ran longer than request_timeout")]
    RequestTimeout {
        /// Whether the head of an answer had been published.
        started: bool,
    },
    /// No worker was free within queue_timeout.
    #[error("no worker was free within queue_timeout")]
    QueueTimeout,
    /// No worker had taken it when its ring ended: it can be submitted again, whatever it is.
    #[error("the application's processes ended before one of them took this request")]
    NotTaken,
    /// No worker of this application can take it, and none will soon; see [`Ring::turn_away`].
    #[error("the application cannot serve now")]
    Unavailable,
    /// The worker wrote positions or lengths that cannot be; it is being killed.
    #[error("the worker broke the protocol of the shared memory")]
    Malformed,
}

/// The worker takes no more of the request body: it has answered, or it is gone. Not an error: discard the rest.
#[derive(Debug, Clone, Copy)]
pub struct RequestClosed;

/// A submitted request. One task may wait for it; dropping it aborts what is not finished.
pub struct Exchange {
    ring: Arc<Ring>,
    index: u32,
    sent: u64,
    taken: u64,
    /// Informational heads that were given out.
    informs: u32,
    quiet: bool,
}

impl Exchange {
    pub(crate) fn new(ring: Arc<Ring>, index: u32) -> Exchange {
        Exchange { ring, index, sent: 0, taken: 0, informs: 0, quiet: false }
    }

    /// Has news wake the task. Look again after this: news that came before it wake nobody. Returns why nothing will come, if so.
    fn wait(&self, cx: &mut Context<'_>) -> Option<Failure> {
        let mut inner = self.ring.lock();
        let entry = inner.entry(self.index);
        match &mut entry.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Exchange::failure(entry)
    }

    fn failure(entry: &Entry) -> Option<Failure> {
        // The answer of a dead worker was whole when it died; if it is no more, somebody has overwritten it.
        entry.failure.or(entry.dead.then_some(Failure::Malformed))
    }

    /// It has run for too long. To be asked after what the worker has written was seen: it may have been written as PHP ended the request.
    fn overdue(&self) -> Option<Failure> {
        let is = self.ring.is_overdue(self.index);
        is.then(|| {
            Exchange::failure(self.ring.lock().entry(self.index))
                .unwrap_or(Failure::RequestTimeout { started: true })
        })
    }

    fn malformed(&self) -> Failure {
        let mut inner = self.ring.lock();
        self.ring.condemn(&mut inner, self.index);
        *inner.entry(self.index).failure.get_or_insert(Failure::Malformed)
    }

    /// A word that only the front writes is not what it wrote: nobody knows who did that.
    fn overwritten(&self) -> Failure {
        let mut inner = self.ring.lock();
        inner.broken.get_or_insert("a position that only the front writes was overwritten");
        *inner.entry(self.index).failure.get_or_insert(Failure::Malformed)
    }

    /// Wakes the worker if it waits for this slot. Call after publishing something it may wait for.
    fn nudge(&self) {
        if let Some(worker) = self.waiting_worker() {
            self.ring.wake_worker(worker);
        }
    }

    /// The worker that is to be woken now, if it waits for this slot.
    fn waiting_worker(&self) -> Option<u32> {
        // Pairs with the worker's "announce, then look again".
        fence(SeqCst);
        let words = self.ring.memory.slot(self.index);
        let waits = words.worker_waits().load(Relaxed) != 0 && words.worker_waits().swap(0, SeqCst) != 0;
        waits.then(|| claim_worker(words.claim().load(Relaxed)))
    }

    /// The next informational head, if there is one: `None` until [`Exchange::poll_head`] wakes again. To be asked after each call of
    /// that, until it has none, and no more once the answer's body was asked for.
    pub fn take_informational(&mut self) -> Result<Option<ResponseHead>, Failure> {
        let words = self.ring.memory.slot(self.index);
        let area = self.ring.memory.response_body;
        // The worker's word, copied once. They are the first bytes of the ring.
        let end = words.response_informed().load(Acquire);
        if end == self.taken {
            return Ok(None);
        }
        let most = (area.size as u64).min(u64::from(HY_INFORM_BYTES));
        if end > most || self.taken > end || self.informs >= HY_INFORM_MOST {
            return Err(self.malformed());
        }
        if words.response_taken().load(Relaxed) != self.taken {
            return Err(self.overwritten());
        }
        let mut raw = Vec::new();
        self.ring.memory.read(self.index, area, self.taken as usize, (end - self.taken) as usize, &mut raw);
        let Some((len, rest)) = raw.split_first_chunk() else { return Err(self.malformed()) };
        let len = u32::from_ne_bytes(*len) as usize;
        let head = rest.get(..len).and_then(|head| ResponseHead::parse(head.to_vec()));
        let Some(head) = head else { return Err(self.malformed()) };
        self.informs += 1;
        self.taken += (size_of::<u32>() + len) as u64;
        self.ring.set_taken(self.index, self.taken);
        words.response_taken().store(self.taken, Release);
        Ok(Some(head))
    }

    /// Waits for the head of the answer.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, Failure>> {
        // The waker first, then the look: a doorbell between the two is not lost.
        let words = self.ring.memory.slot(self.index);
        if words.response_state().load(Acquire) == HY_RESPONSE_NONE {
            let failure = self.wait(cx);
            if words.response_state().load(Acquire) == HY_RESPONSE_NONE {
                return failure.map_or(Poll::Pending, |failure| Poll::Ready(Err(failure)));
            }
        }
        if let Some(failure) = self.overdue() {
            return Poll::Ready(Err(failure));
        }
        let area = self.ring.memory.response_head;
        // Read once, then checked, then used; what is parsed is a copy.
        let len = words.response_head_len().load(Relaxed) as usize;
        if len > area.size {
            return Poll::Ready(Err(self.malformed()));
        }
        let mut raw = Vec::with_capacity(len);
        self.ring.memory.read(self.index, area, 0, len, &mut raw);
        Poll::Ready(ResponseHead::parse(raw).ok_or_else(|| self.malformed()))
    }

    /// The next bytes of the answer's body; `None` at its end. Meaningful once [`Exchange::poll_head`] was ready.
    pub fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        if let Some(taken) = self.take_body() {
            return Poll::Ready(taken);
        }
        let failure = self.wait(cx);
        match (self.take_body(), failure) {
            (Some(taken), _) => Poll::Ready(taken),
            (None, Some(failure)) => Poll::Ready(Some(Err(failure))),
            (None, None) => Poll::Pending,
        }
    }

    /// What is there, or the end; `None`: nothing yet.
    fn take_body(&mut self) -> Option<Option<Result<Bytes, Failure>>> {
        let words = self.ring.memory.slot(self.index);
        // The state before the tail: once it says COMPLETE the tail moves no more.
        let complete = words.response_state().load(Acquire) == HY_RESPONSE_COMPLETE;
        let there = words.response_tail().load(Acquire).wrapping_sub(self.taken);
        let area = self.ring.memory.response_body;
        if let Some(failure) = self.overdue() {
            return Some(Some(Err(failure)));
        }
        if there > area.size as u64 {
            return Some(Some(Err(self.malformed())));
        }
        if there == 0 {
            return complete.then_some(None);
        }
        if words.response_taken().load(Relaxed) != self.taken {
            return Some(Some(Err(self.overwritten())));
        }
        let there = there as usize;
        let at = self.taken as usize & (area.size - 1);
        let first = there.min(area.size - at);
        let mut bytes = Vec::with_capacity(there);
        self.ring.memory.read(self.index, area, at, first, &mut bytes);
        self.ring.memory.read(self.index, area, 0, there - first, &mut bytes);
        self.taken = self.taken.wrapping_add(there as u64);
        self.ring.set_taken(self.index, self.taken);
        words.response_taken().store(self.taken, Release);
        if !complete {
            self.nudge();
        }
        Some(Some(Ok(Bytes::from(bytes))))
    }

    /// Whether all of the answer is in the memory, and if so how many bytes of its body are still to be taken: then
    /// they come by [`Exchange::poll_body`] without waiting.
    pub fn remaining(&self) -> Option<u64> {
        let words = self.ring.memory.slot(self.index);
        if words.response_state().load(Acquire) != HY_RESPONSE_COMPLETE || self.ring.is_overdue(self.index) {
            return None;
        }
        let left = words.response_tail().load(Acquire).wrapping_sub(self.taken);
        (left <= self.ring.memory.response_body.size as u64).then_some(left)
    }

    /// Puts bytes of the request body into the ring until `bytes` is empty, waiting while the ring is full.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<Result<(), RequestClosed>> {
        let words = self.ring.memory.slot(self.index);
        let area = self.ring.memory.request_body;
        let mut announced = false;
        if bytes.has_remaining() && Exchange::failure(self.ring.lock().entry(self.index)).is_some() {
            return Poll::Ready(Err(RequestClosed));
        }
        while bytes.has_remaining() {
            if claim_state(words.claim().load(Acquire)) == HY_DONE {
                return Poll::Ready(Err(RequestClosed));
            }
            let inside = self.sent.wrapping_sub(words.request_taken().load(Acquire));
            if inside > area.size as u64 {
                self.malformed();
                return Poll::Ready(Err(RequestClosed));
            }
            let space = area.size - inside as usize;
            if space == 0 {
                if announced {
                    return Poll::Pending;
                }
                if self.wait(cx).is_some() {
                    return Poll::Ready(Err(RequestClosed));
                }
                words.front_wants_space().store(1, SeqCst);
                fence(SeqCst);
                announced = true;
                continue;
            }
            if words.request_tail().load(Relaxed) != self.sent {
                self.overwritten();
                return Poll::Ready(Err(RequestClosed));
            }
            let n = space.min(bytes.len());
            let at = self.sent as usize & (area.size - 1);
            let piece = bytes.split_to(n);
            let (first, second) = piece.split_at(n.min(area.size - at));
            self.ring.memory.write(self.index, area, at, first);
            self.ring.memory.write(self.index, area, 0, second);
            self.sent = self.sent.wrapping_add(n as u64);
            words.request_tail().store(self.sent, Release);
            self.nudge();
        }
        Poll::Ready(Ok(()))
    }

    /// Says that the request body is over; `whole` is false when the client left or broke the framing.
    pub fn end_request(&mut self, whole: bool) {
        let words = self.ring.memory.slot(self.index);
        let state = if whole { HY_REQUEST_COMPLETE } else { HY_REQUEST_BROKEN };
        {
            // Under the lock, for the sweep compares the two.
            let mut inner = self.ring.lock();
            inner.entry(self.index).open = false;
            words.request_state().store(state, Release);
        }
        self.nudge();
    }

    /// Gives the rest of the answer up without disturbing the script: what it still writes is thrown away, and it does not learn that
    /// nobody reads it (the answer to a HEAD, or a 304, has no body to wait for).
    pub fn discard(mut self) {
        self.quiet = true;
    }

    /// Bytes of the request body that a worker may have seen; 0 means that the request can be submitted again.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// How long the request waited for a worker; `None` before one took it.
    pub fn queue_wait(&self) -> Option<Duration> {
        let claimed = self.ring.memory.slot(self.index).claimed_at().load(Relaxed);
        // The worker's word, so no further than now, nearly: the exact clock costs as much as all else here.
        let claimed = (claimed != 0).then(|| claimed.min(now_nearly().saturating_add(TICK)))?;
        Some(Duration::from_nanos(claimed.saturating_sub(self.ring.lock().entry(self.index).submitted_at)))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut inner = self.ring.lock();
        let words = self.ring.memory.slot(self.index);
        inner.entry(self.index).waker = None;
        let done = |inner: &mut Inner| {
            inner.entry(self.index).dead || self.ring.is_done(inner, self.index, words.claim().load(Acquire))
        };
        if done(&mut inner) || self.ring.cancel(&mut inner, self.index) {
            self.ring.free(&mut inner, self.index);
            self.ring.unlock(inner);
            return;
        }
        // A worker holds it. It learns that nobody waits, and the slot is freed when it is done or dead.
        let entry = inner.entry(self.index);
        entry.life = Life::Orphan;
        entry.aborted = if self.quiet { 2 } else { 1 };
        words.aborted().store(entry.aborted, SeqCst);
        inner.stirred.extend(self.waiting_worker().inspect(|worker| self.ring.say_wake(*worker)));
        // It may have finished since the first look and rung before this was an orphan; later it rings again.
        if done(&mut inner) {
            self.ring.free(&mut inner, self.index);
        }
        self.ring.unlock(inner);
    }
}
