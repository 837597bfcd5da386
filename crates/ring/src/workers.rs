//! Workers as the ring knows them: their records, their deaths, and those that have to be ended.

use std::{sync::atomic::Ordering::*, time::Duration};

use crate::{
    exchange::Failure,
    front::{Inner, Life, Ring, claim, claim_state, claim_worker, now},
    layout::*,
    wake::wake_all,
};

/// When to give a request up; see [`Ring::sweep`].
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The longest a request may wait for a worker, from its submission.
    pub queue_timeout: Duration,
    /// The longest a worker may spend on a request, time spent waiting for the client not counted.
    pub request_timeout: Option<Duration>,
}

/// A worker that [`Ring::sweep`] found above its limit or breaking the protocol: to be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdue {
    /// Its index.
    pub worker: u32,
    /// `true`: request_timeout passed. `false`: it wrote nonsense into the memory.
    pub timed_out: bool,
}

/// What a worker says of itself in the memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerRecord {
    /// `enum hy_worker_state`
    pub state: u32,
    /// `enum hy_retired`
    pub retired: u32,
    /// Requests served since its fork.
    pub requests: u64,
    /// Resident bytes after the last request; 0 when it is not measured.
    pub memory: u64,
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
}

impl Ring {
    /// Readies the record of a worker that is about to be forked under this index; its predecessor must be gone.
    pub fn prepare_worker(&self, index: u32) {
        let words = self.memory.worker(index);
        words.wake().store(0, Relaxed);
        words.quit().store(0, Relaxed);
        words.state().store(HY_WORKER_STARTING, Relaxed);
        words.retired().store(HY_RETIRED_NOT, Relaxed);
        for sum in [words.requests(), words.rewinds(), words.clean_ns(), words.scan_ns(), words.copy_ns()] {
            sum.store(0, Relaxed);
        }
        words.cold_pages().store(0, Relaxed);
        words.hot_pages().store(0, Relaxed);
        words.tracking().store(HY_TRACKING_OFF, Relaxed);
        words.memory().store(0, Release);
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
            memory: words.memory().load(Relaxed),
            rewinds: words.rewinds().load(Relaxed),
            clean_ns: words.clean_ns().load(Relaxed),
            scan_ns: words.scan_ns().load(Relaxed),
            copy_ns: words.copy_ns().load(Relaxed),
            cold_pages: words.cold_pages().load(Relaxed),
            hot_pages: words.hot_pages().load(Relaxed),
            tracking: words.tracking().load(Relaxed),
        }
    }

    /// Settles everything a worker held. To be called once it is known dead (reaped), before its index is used again.
    /// Returns how many requests it took with it.
    pub fn worker_died(&self, worker: u32) -> usize {
        let header = self.memory.header();
        header.sleepers(worker as usize / 64).fetch_and(!(1 << (worker % 64)), SeqCst);
        let mut lost = 0;
        let mut inner = self.lock();
        for index in 0..inner.entries.len() as u32 {
            if !matches!(inner.entries[index as usize].life, Life::Live | Life::Orphan) {
                continue;
            }
            let words = self.memory.slot(index);
            let seen = words.claim().load(Acquire);
            let state = claim_state(seen);
            if !(state == HY_CLAIMED || state == HY_DONE) || claim_worker(seen) != worker {
                continue;
            }
            if inner.entries[index as usize].life == Life::Orphan {
                self.free(&mut inner, index);
                continue;
            }
            let response = words.response_state().load(Acquire);
            if state == HY_CLAIMED && response != HY_RESPONSE_COMPLETE {
                let started = response != HY_RESPONSE_NONE;
                inner.entries[index as usize].failure.get_or_insert(Failure::WorkerDied { started });
                lost += 1;
            }
            // Nobody will touch it any more; what was answered can still be read.
            words.claim().store(claim(HY_DONE, worker, 0), Release);
            let waker = inner.entries[index as usize].waker.take();
            inner.woken.extend(waker);
        }
        wake_all(inner);
        // It may have died with a wake-up in hand that was meant for a request still in the queue.
        if self.queued() > 0 {
            self.wake_sleepers(1);
        }
        lost
    }

    /// Ends the requests that waited or ran too long, and names the workers to kill for it. To be called every so often while
    /// [`Ring::active`] is not 0.
    pub fn sweep(&self, limits: &Limits) -> Vec<Overdue> {
        let now = now();
        let mut inner = self.lock();
        let mut overdue: Vec<Overdue> =
            inner.condemned.drain(..).map(|worker| Overdue { worker, timed_out: false }).collect();
        for index in 0..inner.entries.len() as u32 {
            let life = inner.entries[index as usize].life;
            if !matches!(life, Life::Live | Life::Orphan) {
                continue;
            }
            let words = self.memory.slot(index);
            let seen = words.claim().load(Acquire);
            match claim_state(seen) {
                HY_QUEUED => {
                    let waited = now.saturating_sub(words.submitted_at().load(Relaxed));
                    if waited > limits.queue_timeout.as_nanos() as u64 && self.cancel(index, seen) {
                        inner.entries[index as usize].failure = Some(Failure::QueueTimeout);
                        let waker = inner.entries[index as usize].waker.take();
                        inner.woken.extend(waker);
                    }
                }
                HY_CLAIMED => {
                    let Some(limit) = limits.request_timeout else { continue };
                    let claimed = words.claimed_at().load(Relaxed);
                    if claimed == 0 {
                        continue; // between its claim and its look at the clock
                    }
                    let mut blocked = words.blocked_ns().load(Relaxed);
                    let since = words.blocked_since().load(Relaxed);
                    if since != 0 {
                        blocked = blocked.saturating_add(now.saturating_sub(since));
                    }
                    let ran = now.saturating_sub(claimed).saturating_sub(blocked);
                    if ran > limit.as_nanos() as u64 {
                        overdue.push(Overdue { worker: claim_worker(seen), timed_out: true });
                        if life == Life::Live {
                            let started = words.response_state().load(Acquire) != HY_RESPONSE_NONE;
                            let entry = &mut inner.entries[index as usize];
                            entry.failure.get_or_insert(Failure::RequestTimeout { started });
                            let waker = entry.waker.take();
                            inner.woken.extend(waker);
                        }
                    }
                }
                _ => {}
            }
        }
        wake_all(inner);
        overdue
    }

    /// Notes that the worker holding a slot broke the protocol; the next [`Ring::sweep`] names it.
    pub(crate) fn condemn(&self, inner: &mut Inner, index: u32) {
        let seen = self.memory.slot(index).claim().load(Acquire);
        let worker = claim_worker(seen);
        if matches!(claim_state(seen), HY_CLAIMED | HY_DONE) && worker < self.workers {
            inner.condemned.push(worker);
        }
    }
}
