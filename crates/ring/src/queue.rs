//! The queue: requests that wait for a worker. The front puts them in and may take them back; workers take them out.
//!
//! The truth is [`Queue`], in memory of the front's own: which slot was published under which ticket, and which of them still wait as
//! far as the front has seen. Head, tail and cells in the shared memory are what workers go by; the front writes them, and never computes,
//! indexes or loops with what stands there.

use std::sync::atomic::Ordering::*;

use crate::{
    exchange::Failure,
    layout::*,
    ring::{Inner, Life, Ring, claim, now},
};

/// After how many submissions a worker is woken without waiting for the end of the event loop's turn, which may be long. One, and not as many as
/// there are requests: where no processor is free each would interrupt the turn.
const WAKE_EVERY: u32 = 16;

/// The front's copy of the queue. Every ticket below `settled` waits no more.
pub(crate) struct Queue {
    /// The slot published under a ticket, at `ticket & mask`; of meaning from `settled` to `tail`.
    cells: Box<[u32]>,
    mask: u64,
    settled: u64,
    tail: u64,
    /// Entries whose `ticket` is set: they wait, as far as is known.
    waiting: usize,
    /// The shared head is not below this, or somebody moved it back. The tail is never more than one round ahead of it.
    pushed: u64,
}

impl Queue {
    /// `cells` is the number of cells in the shared memory, a power of two.
    pub(crate) fn new(cells: usize) -> Queue {
        Queue {
            cells: vec![0; cells].into_boxed_slice(),
            mask: cells as u64 - 1,
            settled: 0,
            tail: 0,
            waiting: 0,
            pushed: 0,
        }
    }

    fn slot(&self, ticket: u64) -> Option<u32> {
        self.cells.get((ticket & self.mask) as usize).copied()
    }

    /// Whether the next ticket's cell is that of a ticket from `from` on.
    fn reaches(&self, from: u64) -> bool {
        self.tail.saturating_sub(from) > self.mask
    }
}

impl Ring {
    /// Requests submitted that no worker has taken yet.
    pub fn queued(&self) -> usize {
        let mut inner = self.lock();
        self.settle(&mut inner);
        inner.queue.waiting
    }

    /// Whether requests wait for a worker, here or in [`Ring::admit`].
    pub fn is_wanted(&self) -> bool {
        match self.successor() {
            Some(next) => next.is_wanted(),
            None => {
                let mut inner = self.lock();
                self.settle(&mut inner);
                inner.waiting > 0 || inner.queue.waiting > 0
            }
        }
    }

    /// Puts a written slot into the queue. `head_len`: bytes of its head.
    pub(crate) fn publish(&self, index: u32, head_len: u32, open: bool) {
        let submitted_at = now();
        self.set_taken(index, 0);
        self.set_overdue(index, false);
        let here = self.here();
        // Whom nobody has to ring for hears by its waker all the same: any thread may wake a task.
        let bell = here.unwrap_or(0);
        let words = self.memory.slot(index);
        words.submitted_at().store(submitted_at, Relaxed);
        words.bell().store(bell, Relaxed);
        let mut inner = self.lock();
        inner.admitted = inner.admitted.saturating_sub(1);
        let entry = inner.entry(index);
        entry.life = Life::Live;
        entry.submitted_at = submitted_at;
        entry.head_len = head_len;
        entry.bell = bell;
        entry.open = open;
        if inner.ended {
            let entry = inner.entry(index);
            entry.failure = Some(Failure::NotTaken);
            entry.dead = true;
            return;
        }
        if inner.queue.reaches(inner.queue.pushed) {
            self.make_room(&mut inner);
        }
        let ticket = inner.queue.tail;
        words.claim().store(claim(HY_QUEUED, 0, ticket), Release);
        self.enqueue(&mut inner, index, ticket);
        inner.queue.waiting += 1;
        self.memory.header().queue_tail().store(inner.queue.tail, Release);
        drop(inner);
        // Each thread wakes for what it has submitted itself: another one may park before this does, or long after.
        match here.and_then(|thread| self.tallies.get(thread as usize)) {
            Some(tally) => {
                let unflushed = tally.unflushed.load(Relaxed).saturating_add(1);
                tally.unflushed.store(unflushed, Relaxed);
                if unflushed.is_multiple_of(WAKE_EVERY) {
                    self.wake_sleepers(1);
                }
            }
            // A thread that never parks in the hub.
            None => drop(self.wake_sleepers(1)),
        }
    }

    /// Gives the slot the next ticket, which its claim bears already. The shared tail is the caller's to move.
    fn enqueue(&self, inner: &mut Inner, index: u32, ticket: u64) {
        let entry = inner.entry(index);
        (entry.ticket, entry.last_ticket) = (Some(ticket), ticket);
        let queue = &mut inner.queue;
        if let Some(cell) = queue.cells.get_mut((ticket & queue.mask) as usize) {
            *cell = index;
        }
        self.memory.cell(ticket).store(index, Relaxed);
        // 48 bits of it fit a claim: enough for a million requests a second over nine years.
        queue.tail = ticket + 1;
    }

    /// The tail has come round to where workers may still look. Cells of requests that were taken, or taken back, are free. If the oldest request still
    /// waits, then most cells behind it belong to requests that gave up, since cells outnumber slots four to one: those that do wait get
    /// new tickets, in their order.
    fn make_room(&self, inner: &mut Inner) {
        self.settle(inner);
        if inner.queue.reaches(inner.queue.settled) {
            let old = inner.queue.settled..inner.queue.tail;
            inner.queue.settled = inner.queue.tail;
            for ticket in old {
                let Some(index) = inner.queue.slot(ticket) else { continue };
                if inner.entry(index).ticket != Some(ticket) {
                    continue;
                }
                let next = inner.queue.tail;
                let words = self.memory.slot(index);
                let (from, to) = (claim(HY_QUEUED, 0, ticket), claim(HY_QUEUED, 0, next));
                if words.claim().compare_exchange(from, to, AcqRel, Relaxed).is_ok() {
                    self.enqueue(inner, index, next);
                } else {
                    self.waits_no_more(inner, index);
                }
            }
            self.memory.header().queue_tail().store(inner.queue.tail, Release);
        }
        // Most often it is further on.
        self.memory.header().queue_head().fetch_max(inner.queue.settled, AcqRel);
        inner.queue.pushed = inner.queue.settled;
    }

    /// Passes the oldest requests that wait no more. Each ticket is passed once, so this costs a look or two for each request.
    pub(crate) fn settle(&self, inner: &mut Inner) {
        while inner.queue.settled != inner.queue.tail {
            let ticket = inner.queue.settled;
            if let Some(index) = inner.queue.slot(ticket)
                && inner.entry(index).ticket == Some(ticket)
            {
                if self.memory.slot(index).claim().load(Acquire) == claim(HY_QUEUED, 0, ticket) {
                    return;
                }
                self.waits_no_more(inner, index);
            }
            inner.queue.settled += 1;
        }
    }

    /// Requests that wait, as far as is known, and the ticket of the oldest. Exact after [`Ring::settle`], but for what workers do meanwhile.
    pub(crate) fn oldest_waiting(inner: &Inner) -> (usize, u64) {
        (inner.queue.waiting, inner.queue.settled)
    }

    pub(crate) fn waits_no_more(&self, inner: &mut Inner, index: u32) {
        if inner.entry(index).ticket.take().is_some() {
            inner.queue.waiting = inner.queue.waiting.saturating_sub(1);
        }
    }

    /// Whether `limit` requests wait already: in the queue, on their way into it, and for a slot.
    pub(crate) fn is_full(&self, inner: &mut Inner, limit: usize) -> bool {
        let all = |inner: &Inner| {
            inner.queue.waiting.saturating_add(inner.admitted).saturating_add(inner.waiting) >= limit
        };
        // What is known is never too low; only when it matters are the claims looked at.
        if !all(inner) {
            return false;
        }
        self.settle(inner);
        all(inner)
    }

    /// Takes a queued request back. `false` when a worker was faster, or it never waited.
    pub(crate) fn cancel(&self, inner: &mut Inner, index: u32) -> bool {
        let Some(ticket) = inner.entry(index).ticket else { return false };
        self.waits_no_more(inner, index);
        let (from, to) = (claim(HY_QUEUED, 0, ticket), claim(HY_DONE, 0, ticket));
        self.memory.slot(index).claim().compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }

    /// Whether tail, cells and head in the shared memory are what they can be. Head and claims are read in this order: a worker moves the
    /// head only past claims that have changed.
    pub(crate) fn queue_is_sound(&self, inner: &mut Inner) -> bool {
        let header = self.memory.header();
        let head = header.queue_head().load(Acquire);
        self.settle(inner);
        let queue = &inner.queue;
        let cell = |ticket| queue.slot(ticket) == Some(self.memory.cell(ticket).load(Relaxed));
        header.queue_tail().load(Relaxed) == queue.tail
            && (queue.pushed..=queue.settled).contains(&head)
            && (queue.settled..queue.tail).all(cell)
    }
}
