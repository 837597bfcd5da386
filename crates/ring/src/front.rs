//! The ring as the front holds it: admission, the queue, waking workers, hearing from them, and what to do when one dies.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicUsize, Ordering::*, fence},
    },
    task::Waker,
    time::Duration,
};

use rustix::{
    thread::futex,
    time::{ClockId, clock_gettime},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    exchange::{Exchange, Failure},
    head::{self, Field, HeadTooLarge},
    hub::Hub,
    layout::*,
    memory::Memory,
};

/// Sizes of a ring, fixed when it is made.
#[derive(Debug, Clone)]
pub struct Config {
    /// Exchanges at one time, queued or being served: 1 to 1024. More requests wait in [`Ring::admit`].
    pub slots: u32,
    /// The most workers that will ever run at one time: 1 to 1024.
    pub workers: u32,
    /// Bytes for one request head.
    pub request_head: usize,
    /// Bytes for one response head.
    pub response_head: usize,
    /// Bytes of each of a slot's two body rings; rounded up to a power of two.
    pub body: usize,
}

impl Config {
    /// What serves `workers` workers well: enough slots to keep each busy without the front's help.
    pub fn for_workers(workers: u32) -> Config {
        let workers = workers.clamp(1, HY_MAX_WORKERS);
        Config {
            slots: (workers * 2).clamp(64, HY_MAX_SLOTS),
            workers,
            request_head: 80 << 10,
            response_head: 48 << 10,
            body: 128 << 10,
        }
    }
}

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

/// More requests wait than allowed; answer 503.
#[derive(Debug, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

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

/// The front's record of a slot.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) life: Life,
    pub(crate) waker: Option<Waker>,
    pub(crate) failure: Option<Failure>,
    permit: Option<OwnedSemaphorePermit>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// On the free list.
    #[default]
    Free,
    /// Taken by [`Ring::admit`], not submitted.
    Admitted,
    /// An [`Exchange`] holds it.
    Live,
    /// Its [`Exchange`] is gone, but a worker still holds the claim.
    Orphan,
}

pub(crate) struct Inner {
    free: Vec<u32>,
    pub(crate) entries: Vec<Entry>,
    tail: u64,
    unflushed: u32,
    condemned: Vec<u32>,
    scratch: Vec<u8>,
    woken: Vec<Waker>,
}

/// One application's shared memory, as the front holds it.
pub struct Ring {
    pub(crate) memory: Memory,
    inner: Mutex<Inner>,
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    workers: u32,
    mask_words: usize,
    bell_words: usize,
}

/// After how many submissions workers are woken without waiting for the event loop to park: not every turn of it parks.
const FLUSH_EVERY: u32 = 16;

pub(crate) fn claim(state: u32, worker: u32, ticket: u64) -> u64 {
    u64::from(state) | u64::from(worker) << HY_CLAIM_WORKER_SHIFT | ticket << HY_CLAIM_TICKET_SHIFT
}
pub(crate) fn claim_state(claim: u64) -> u32 {
    (claim & HY_CLAIM_STATE_MASK as u64) as u32
}
pub(crate) fn claim_worker(claim: u64) -> u32 {
    (claim >> HY_CLAIM_WORKER_SHIFT & HY_CLAIM_WORKER_MASK as u64) as u32
}

/// CLOCK_MONOTONIC in ns, the clock of all times in the memory.
pub(crate) fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Ring {
    /// Makes the memory and joins it to the hub. Fails when memory or descriptors run out.
    ///
    /// # Panics
    /// When `slots` or `workers` is outside 1 to 1024.
    pub fn create(config: &Config, hub: &Hub) -> io::Result<Arc<Ring>> {
        assert!((1..=HY_MAX_SLOTS).contains(&config.slots), "slots: {}", config.slots);
        assert!((1..=HY_MAX_WORKERS).contains(&config.workers), "workers: {}", config.workers);
        let ring = Arc::new(Ring {
            memory: Memory::create(config)?,
            inner: Mutex::new(Inner {
                // The lowest slot is handed out first and the last one freed is reused first: few pages stay touched.
                free: (0..config.slots).rev().collect(),
                entries: (0..config.slots).map(|_| Entry::default()).collect(),
                tail: 0,
                unflushed: 0,
                condemned: Vec::new(),
                scratch: Vec::new(),
                woken: Vec::new(),
            }),
            slots: Arc::new(Semaphore::new(config.slots as usize)),
            waiting: AtomicUsize::new(0),
            workers: config.workers,
            mask_words: (config.workers as usize).div_ceil(64),
            bell_words: (config.slots as usize).div_ceil(64),
        });
        hub.add(&ring);
        Ok(ring)
    }

    /// The memory, for the host's descriptor `HY_FD_MEMORY`.
    pub fn memory_fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds the ring")
    }

    /// Takes a slot, waiting in order of arrival while all are in use. Fails at once when `limit` requests wait already,
    /// here and for a worker taken together. Cancel-safe.
    pub async fn admit(self: &Arc<Self>, limit: usize) -> Result<Slot, QueueFull> {
        let permit = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                if self.is_full(limit, self.waiting.load(Relaxed)) {
                    return Err(QueueFull);
                }
                struct Waiting<'a>(&'a AtomicUsize);
                impl Drop for Waiting<'_> {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, Relaxed);
                    }
                }
                self.waiting.fetch_add(1, Relaxed);
                let _waiting = Waiting(&self.waiting);
                Arc::clone(&self.slots).acquire_owned().await.expect("never closed")
            }
        };
        if self.is_full(limit, 0) {
            return Err(QueueFull);
        }
        let mut inner = self.lock();
        let index = inner.free.pop().expect("a permit stands for a free slot");
        inner.entries[index as usize] =
            Entry { life: Life::Admitted, permit: Some(permit), ..Entry::default() };
        let mut scratch = std::mem::take(&mut inner.scratch);
        scratch.clear();
        drop(inner);
        Ok(Slot { ring: Arc::clone(self), index, records: scratch, submitted: false })
    }

    /// Whether `limit` requests wait already, `more` of them outside the queue.
    fn is_full(&self, limit: usize, more: usize) -> bool {
        if self.queued() + more < limit {
            return false;
        }
        // Those that gave up keep their cells until somebody moves the head past them, and the workers may all be busy.
        let header = self.memory.header();
        let tail = header.queue_tail().load(Acquire);
        loop {
            let head = header.queue_head().load(Acquire);
            if head >= tail || !self.skip_settled(head) {
                break;
            }
        }
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

    /// Requests submitted that no worker has taken yet.
    pub fn queued(&self) -> usize {
        let header = self.memory.header();
        header.queue_tail().load(Relaxed).saturating_sub(header.queue_head().load(Relaxed)) as usize
    }

    /// Requests that wait in [`Ring::admit`] for a slot.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Slots in use: queued, being served, or still held by a worker after the answer.
    pub fn active(&self) -> usize {
        let inner = self.lock();
        inner.entries.len() - inner.free.len()
    }

    /// Idle workers, asleep for want of requests.
    pub fn sleeping_workers(&self) -> u32 {
        let header = self.memory.header();
        (0..self.mask_words).map(|i| header.sleepers(i).load(Relaxed).count_ones()).sum()
    }

    /// Puts a written slot into the queue.
    fn publish(&self, index: u32) {
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

    /// Wakes as many sleeping workers as there are requests submitted since the last call.
    pub fn flush(&self) {
        self.flush_locked(&mut self.lock());
    }

    fn flush_locked(&self, inner: &mut Inner) {
        let wanted = std::mem::take(&mut inner.unflushed);
        if wanted > 0 {
            self.wake_sleepers(wanted);
        }
    }

    fn wake_sleepers(&self, mut wanted: u32) {
        // Pairs with the worker's "announce, then look at the queue again".
        fence(SeqCst);
        let header = self.memory.header();
        for i in 0..self.mask_words {
            let word = header.sleepers(i);
            let mut seen = word.load(Relaxed);
            while wanted > 0 && seen != 0 {
                // The lowest bit first: a hot worker stays hot, and the highest become idle and may be let go.
                let bit = seen & seen.wrapping_neg();
                if word.fetch_and(!bit, SeqCst) & bit != 0 {
                    self.wake_worker(i as u32 * 64 + bit.trailing_zeros());
                    wanted -= 1;
                }
                seen = word.load(Relaxed);
            }
        }
    }

    pub(crate) fn wake_worker(&self, index: u32) {
        if index >= self.workers {
            return; // a worker wrote nonsense into the mask
        }
        let words = self.memory.worker(index);
        let wake: &AtomicU32 = words.wake();
        wake.store(1, SeqCst);
        // Shared between processes, so not FUTEX_PRIVATE. It cannot fail for a valid address.
        let _ = futex::wake(wake, futex::Flags::empty(), 1);
    }

    /// Leaves the sleep announced and no doorbell unheard. Both matter: news may concern only slots that nobody waits for, and then
    /// the event loop goes to sleep after this whatever was drained.
    pub(crate) fn announce_sleep(&self) {
        let header = self.memory.header();
        loop {
            header.front_sleeping().store(1, SeqCst);
            fence(SeqCst);
            if (0..self.bell_words).all(|i| header.doorbells(i).load(Relaxed) == 0) {
                return;
            }
            self.drain();
        }
    }

    pub(crate) fn cancel_sleep(&self) {
        let header = self.memory.header();
        if header.front_sleeping().load(Relaxed) != 0 {
            header.front_sleeping().store(0, SeqCst);
        }
    }

    /// Looks at every slot whose doorbell was rung: wakes the task that waits for it, or frees it.
    pub fn drain(&self) {
        let header = self.memory.header();
        let mut inner = None;
        for i in 0..self.bell_words {
            if header.doorbells(i).load(Relaxed) == 0 {
                continue;
            }
            let mut bits = header.doorbells(i).swap(0, SeqCst);
            let inner = inner.get_or_insert_with(|| self.lock());
            while bits != 0 {
                let index = i as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                let Some(entry) = inner.entries.get(index as usize) else { continue };
                match entry.life {
                    Life::Live => {
                        let waker = inner.entries[index as usize].waker.take();
                        inner.woken.extend(waker);
                    }
                    Life::Orphan => {
                        if claim_state(self.memory.slot(index).claim().load(Acquire)) == HY_DONE {
                            self.free(inner, index);
                        }
                    }
                    Life::Free | Life::Admitted => {}
                }
            }
        }
        if let Some(inner) = inner {
            wake_all(inner);
        }
    }

    /// Puts a slot that no worker can touch any more back on the free list.
    pub(crate) fn free(&self, inner: &mut Inner, index: u32) {
        self.memory.slot(index).claim().store(claim(HY_FREE, 0, 0), Release);
        let entry = std::mem::take(&mut inner.entries[index as usize]);
        inner.free.push(index);
        // Only now may the next one in line look for a free slot.
        drop(entry.permit);
    }

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

    /// Takes a queued request back. `false` when a worker was faster.
    pub(crate) fn cancel(&self, index: u32, seen: u64) -> bool {
        let words = self.memory.slot(index);
        let cancelled = claim_state(seen) == HY_QUEUED
            && words.claim().compare_exchange(seen, claim(HY_DONE, 0, 0), AcqRel, Relaxed).is_ok();
        if cancelled {
            self.skip_cancelled();
        }
        cancelled
    }

    /// Moves the head past cells whose request was taken back, as a worker would: they must not count as waiting.
    fn skip_cancelled(&self) {
        let header = self.memory.header();
        loop {
            let head = header.queue_head().load(Acquire);
            if head == header.queue_tail().load(Relaxed) {
                return;
            }
            let index = self.memory.cell(head).load(Relaxed);
            if self.memory.slot(index).claim().load(Acquire) == claim(HY_QUEUED, 0, head) {
                return;
            }
            let _ = header.queue_head().compare_exchange(head, head + 1, AcqRel, Relaxed);
        }
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

/// Runs the collected wakers with the ring unlocked: a waker may run code that locks it.
fn wake_all(mut inner: MutexGuard<'_, Inner>) {
    if inner.woken.is_empty() {
        return;
    }
    let mut woken = std::mem::take(&mut inner.woken);
    drop(inner);
    for waker in woken.drain(..) {
        waker.wake();
    }
}

/// A slot that was admitted and is being filled; dropping it gives it back.
pub struct Slot {
    ring: Arc<Ring>,
    index: u32,
    records: Vec<u8>,
    submitted: bool,
}

impl Slot {
    /// Adds a field of the request head.
    pub fn put(&mut self, field: Field, value: &[u8]) -> Result<(), HeadTooLarge> {
        head::record(&mut self.records, self.ring.memory.request_head.size, field as u16, b"", value)
    }

    /// Adds a header; the name in lower case.
    pub fn header(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadTooLarge> {
        let max = self.ring.memory.request_head.size;
        head::record(&mut self.records, max, HY_FIELD_HEADER as u16, name, value)
    }

    /// Hands the request to the workers. With `has_body`, the body follows through [`Exchange::poll_send`].
    pub fn submit(mut self, has_body: bool) -> Exchange {
        let ring = Arc::clone(&self.ring);
        let words = ring.memory.slot(self.index);
        words.reset();
        ring.memory.write(self.index, ring.memory.request_head, 0, &self.records);
        words.request_head_len().store(self.records.len() as u32, Relaxed);
        let state = if has_body { HY_REQUEST_OPEN } else { HY_REQUEST_COMPLETE };
        words.request_state().store(state, Relaxed);
        ring.publish(self.index);
        self.submitted = true;
        Exchange::new(ring, self.index)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut inner = self.ring.lock();
        inner.scratch = std::mem::take(&mut self.records);
        if !self.submitted {
            self.ring.free(&mut inner, self.index);
        }
    }
}
