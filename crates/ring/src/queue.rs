//! The queue: requests that wait for a worker. The front puts them in and may take them back; workers take them out.

use std::sync::atomic::Ordering::*;

use crate::{
    front::{Life, Ring, claim, claim_state, now},
    layout::*,
};

/// After how many submissions workers are woken without waiting for the event loop to park: not every turn of it parks.
const FLUSH_EVERY: u32 = 16;

impl Ring {
    /// Requests submitted that no worker has taken yet.
    pub fn queued(&self) -> usize {
        let header = self.memory.header();
        header.queue_tail().load(Relaxed).saturating_sub(header.queue_head().load(Relaxed)) as usize
    }

    /// Whether requests wait for a worker, here or in [`Ring::admit`].
    pub fn is_wanted(&self) -> bool {
        // Those that gave up do not count; see is_full.
        self.is_full(1, self.waiting())
    }

    /// Puts a written slot into the queue.
    pub(crate) fn publish(&self, index: u32) {
        let mut inner = self.lock();
        let ticket = inner.tail;
        self.make_room(ticket);
        inner.tail = ticket + 1;
        inner.entries[index as usize].life = Life::Live;
        let words = self.memory.slot(index);
        words.submitted_at().store(now(), Relaxed);
        words.claim().store(claim(HY_QUEUED, 0, ticket), Release);
        self.memory.cell(ticket).store(index, Relaxed);
        self.memory.header().queue_tail().store(ticket + 1, Release);
        inner.unflushed += 1;
        if inner.unflushed >= FLUSH_EVERY {
            self.flush_locked(&mut inner);
        }
    }

    /// Cells outnumber slots four to one, but a cancelled request keeps its cell until the head passes it. If that many were
    /// cancelled while no worker looked, the front moves the head itself, as any worker would.
    fn make_room(&self, ticket: u64) {
        let header = self.memory.header();
        loop {
            let head = header.queue_head().load(Acquire);
            if ticket - head < self.memory.cells() as u64 {
                return;
            }
            // The very head that was looked at above: a worker may have moved it since, to a request that is waiting.
            let moved = self.skip_settled(head);
            assert!(moved, "fewer slots than cells, so the oldest of a full queue was cancelled or claimed");
        }
    }

    /// Whether `limit` requests wait already, `more` of them outside the queue.
    pub(crate) fn is_full(&self, limit: usize, more: usize) -> bool {
        if self.queued() + more < limit {
            return false;
        }
        // Those that gave up keep their cells until somebody moves the head past them, and the workers may all be busy.
        self.skip_all_settled();
        self.queued() + more >= limit
    }

    /// Moves the queue's head from `head` on if the request there is no longer queued, as any worker would; `false` when it still
    /// is. `head` was read from the memory just now and is below the tail.
    fn skip_settled(&self, head: u64) -> bool {
        let index = self.memory.cell(head).load(Relaxed);
        if self.memory.slot(index).claim().load(Acquire) == claim(HY_QUEUED, 0, head) {
            return false;
        }
        // Lost against a worker that did the same: as good.
        let _ = self.memory.header().queue_head().compare_exchange(head, head + 1, AcqRel, Relaxed);
        true
    }

    /// Takes a queued request back. `false` when a worker was faster.
    pub(crate) fn cancel(&self, index: u32, seen: u64) -> bool {
        let words = self.memory.slot(index);
        let cancelled = claim_state(seen) == HY_QUEUED
            && words.claim().compare_exchange(seen, claim(HY_DONE, 0, 0), AcqRel, Relaxed).is_ok();
        if cancelled {
            self.skip_all_settled();
        }
        cancelled
    }

    /// Moves the head past cells whose request was taken back, as a worker would: they must not count as waiting.
    fn skip_all_settled(&self) {
        let header = self.memory.header();
        loop {
            let head = header.queue_head().load(Acquire);
            if head == header.queue_tail().load(Acquire) || !self.skip_settled(head) {
                return;
            }
        }
    }
}
