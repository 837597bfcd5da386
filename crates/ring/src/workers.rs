//! Workers as the ring knows them: their records and their deaths.

use std::sync::atomic::Ordering::*;

use crate::{
    exchange::Failure,
    layout::*,
    ring::{Inner, Life, Ring, claim_state, claim_ticket, claim_worker},
    sweep::Stillness,
};

/// What a worker says of itself in the memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerRecord {
    /// `enum hy_worker_state`
    pub state: u32,
    /// `enum hy_retired`
    pub retired: u32,
    /// Requests served since its fork.
    pub requests: u64,
    /// Rewinds since its fork.
    pub rewinds: u64,
    /// Of these, the time spent on releasing what requests acquired, in ns.
    pub clean_ns: u64,
    /// On finding the pages they wrote, in ns.
    pub scan_ns: u64,
    /// On putting them back, in ns.
    pub copy_ns: u64,
    /// Pages put back that are not in the hot set.
    pub cold_pages: u64,
    /// Pages in the hot set now.
    pub hot_pages: u32,
    /// `enum hy_tracking`
    pub tracking: u32,
    /// Connections put back at their server's end.
    pub resets: u64,
    /// What that took, the wait for the server included, in ns.
    pub reset_ns: u64,
    /// Connections that are kept over rewinds now.
    pub warm: u32,
}

/// What a worker that died had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    /// Requests that it had taken, whether or not their clients still wait.
    pub held: usize,
    /// Those of them that somebody waits for, and that it took with it.
    pub lost: usize,
}

impl Ring {
    /// Readies the record of a worker that is about to be forked under this index; its predecessor must be gone.
    pub fn prepare_worker(&self, index: u32) {
        self.set_alive(index, true);
        if let Some(stillness) = self.lock().stillness.get_mut(index as usize) {
            *stillness = Stillness::default();
        }
        let words = self.memory.worker(index);
        words.wake().store(0, Relaxed);
        words.quit().store(0, Relaxed);
        words.state().store(HY_WORKER_STARTING, Relaxed);
        words.retired().store(HY_RETIRED_NOT, Relaxed);
        for sum in [words.requests(), words.rewinds(), words.clean_ns(), words.scan_ns(), words.copy_ns()] {
            sum.store(0, Relaxed);
        }
        words.cold_pages().store(0, Relaxed);
        words.resets().store(0, Relaxed);
        words.reset_ns().store(0, Relaxed);
        words.warm().store(0, Relaxed);
        words.hot_pages().store(0, Relaxed);
        words.tracking().store(HY_TRACKING_OFF, Relaxed);
        words.fits_below().store(0, Release);
    }

    /// Asks a worker to leave once its current request is over.
    pub fn quit_worker(&self, index: u32) {
        self.memory.worker(index).quit().store(1, SeqCst);
        self.wake_worker(index);
    }

    /// What a worker says of itself.
    pub fn worker_record(&self, index: u32) -> WorkerRecord {
        let words = self.memory.worker(index);
        WorkerRecord {
            state: words.state().load(Relaxed),
            retired: words.retired().load(Relaxed),
            requests: words.requests().load(Relaxed),
            rewinds: words.rewinds().load(Relaxed),
            clean_ns: words.clean_ns().load(Relaxed),
            scan_ns: words.scan_ns().load(Relaxed),
            copy_ns: words.copy_ns().load(Relaxed),
            cold_pages: words.cold_pages().load(Relaxed),
            hot_pages: words.hot_pages().load(Relaxed),
            tracking: words.tracking().load(Relaxed),
            resets: words.resets().load(Relaxed),
            reset_ns: words.reset_ns().load(Relaxed),
            warm: words.warm().load(Relaxed),
        }
    }

    /// Whether a worker holds a request, finished or not, that the front has not let go.
    pub fn holds(&self, worker: u32) -> bool {
        self.holds_any(worker, |_| true)
    }

    /// Whether it holds the one of that ticket.
    pub fn runs(&self, worker: u32, ticket: u64) -> bool {
        self.holds_any(worker, |held| held == ticket)
    }

    fn holds_any(&self, worker: u32, is_meant: impl Fn(u64) -> bool) -> bool {
        let mut inner = self.lock();
        inner.slots().any(|index| {
            let entry = inner.entry(index);
            if !matches!(entry.life, Life::Live | Life::Orphan) || entry.dead {
                return false;
            }
            let seen = self.memory.slot(index).claim().load(Relaxed);
            claim_state(seen) == HY_CLAIMED && claim_worker(seen) == worker && is_meant(claim_ticket(seen))
        })
    }

    /// Settles everything a worker held. To be called once it is known dead, before its index is used again.
    pub fn worker_died(&self, worker: u32) -> Settled {
        let mut settled = Settled::default();
        if worker >= self.workers {
            return settled;
        }
        self.set_alive(worker, false);
        // A thread that took its announcement before this has woken nobody; what it has submitted is in the queue, and seen below.
        let header = self.memory.header();
        header.sleepers(worker as usize / 64).fetch_and(!(1 << (worker % 64)), SeqCst);
        let mut inner = self.lock();
        for index in inner.slots() {
            if !matches!(inner.entry(index).life, Life::Live | Life::Orphan) || inner.entry(index).dead {
                continue;
            }
            let words = self.memory.slot(index);
            let seen = words.claim().load(Acquire);
            let state = claim_state(seen);
            if !(state == HY_CLAIMED || state == HY_DONE) || claim_worker(seen) != worker {
                continue;
            }
            settled.held += 1;
            settled.lost += usize::from(self.lose(&mut inner, index));
        }
        // It may have died with a wake-up in hand that was meant for a request still in the queue.
        self.settle(&mut inner);
        let waits = Ring::oldest_waiting(&inner).0 > 0;
        self.unlock(inner);
        if waits {
            self.wake_sleepers(1);
        }
        settled
    }

    /// Gives a slot that no worker can touch any more its outcome: what was answered whole can still be read. `true` when its request
    /// was lost.
    pub(crate) fn lose(&self, inner: &mut Inner, index: u32) -> bool {
        self.waits_no_more(inner, index);
        if inner.entry(index).life == Life::Orphan {
            self.free(inner, index);
            return false;
        }
        let words = self.memory.slot(index);
        let response = words.response_state().load(Acquire);
        let entry = inner.entry(index);
        entry.dead = true;
        let lost = response != HY_RESPONSE_COMPLETE && entry.failure.is_none();
        if lost {
            let started = response != HY_RESPONSE_NONE;
            entry.failure = Some(Failure::WorkerDied { started });
        }
        let waker = entry.waker.take();
        inner.woken.extend(waker);
        lost
    }

    /// Whether a claim says that the worker is done with the request that the slot was submitted for.
    pub(crate) fn is_done(&self, inner: &mut Inner, index: u32, seen: u64) -> bool {
        claim_state(seen) == HY_DONE && claim_ticket(seen) == inner.entry(index).last_ticket
    }

    pub(crate) fn free_if_done(&self, inner: &mut Inner, index: u32) {
        if self.is_done(inner, index, self.memory.slot(index).claim().load(Acquire)) {
            self.free(inner, index);
        }
    }

    /// Notes that the worker holding a slot broke the protocol; the next [`Ring::sweep`] names it.
    pub(crate) fn condemn(&self, inner: &mut Inner, index: u32) {
        let seen = self.memory.slot(index).claim().load(Acquire);
        let worker = claim_worker(seen);
        if matches!(claim_state(seen), HY_CLAIMED | HY_DONE) && self.is_alive(worker) {
            inner.condemned.push(worker);
        }
    }
}
