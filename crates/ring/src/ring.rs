//! The ring as the front holds it: what it is made of, admission, and slots. What the front does with it is in [`crate::queue`],
//! [`crate::wake`], [`crate::workers`], [`crate::sweep`], [`crate::end`] and [`crate::exchange`].
//!
//! All threads of the front use one ring. The truth is [`Inner`], under a lock that is held for dozens of instructions and over no system call. What
//! is outside of it is atomic, and says why that is enough. A slot belongs to the thread that has submitted its request: only that one
//! touches its positions and its bodies, until the exchange is dropped.

use std::{
    any::Any,
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*},
    },
    task::Waker,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    exchange::{Exchange, Failure},
    head::{HeadTooLarge, Records},
    hub::Hub,
    layout::*,
    memory::Memory,
    queue::Queue,
    sweep::{Look, Stillness},
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
            // 128: with fewer, a hundred connections have requests wait for a slot, each with a timer of its own and one more turn of its task.
            slots: (workers * 2).clamp(128, HY_MAX_SLOTS),
            workers,
            request_head: 80 << 10,
            response_head: 48 << 10,
            body: 128 << 10,
        }
    }
}

/// Why a request gets no slot; answer 503.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// More requests wait than allowed.
    #[error("the queue is full")]
    QueueFull,
    /// The application's processes end, and none take their place.
    #[error("the application is being stopped")]
    Stopped,
}

/// See [`Slot::keep`].
type Kept = Arc<dyn Any + Send + Sync>;

/// The front's record of a slot: what it knows of it without asking the shared memory.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) life: Life,
    pub(crate) waker: Option<Waker>,
    pub(crate) failure: Option<Failure>,
    permit: Option<OwnedSemaphorePermit>,
    /// What the caller wants kept as long as a worker may hold it.
    kept: Option<Kept>,
    /// Under which ticket it waits in the queue; `None`: it does not, or no more.
    pub(crate) ticket: Option<u64>,
    /// The last ticket it had, which its claim bears.
    pub(crate) last_ticket: u64,
    /// CLOCK_MONOTONIC, ns
    pub(crate) submitted_at: u64,
    pub(crate) head_len: u32,
    /// The thread that it belongs to, as a number of the hub's.
    pub(crate) bell: u32,
    /// How long a worker may spend on it, where that is not what holds for all.
    pub(crate) timeout: Option<Duration>,
    /// More of its body may come.
    pub(crate) open: bool,
    /// Whoever submitted it has all of its body, and can submit it once more.
    pub(crate) repeatable: bool,
    /// What `aborted` in the memory must be.
    pub(crate) aborted: u32,
    /// No worker can touch it any more, whatever its claim says.
    pub(crate) dead: bool,
    /// What the last sweep saw of it.
    pub(crate) look: Look,
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
    entries: Vec<Entry>,
    pub(crate) queue: Queue,
    /// Requests that wait in [`Ring::admit`] for a slot.
    pub(crate) waiting: usize,
    /// Slots that are admitted and not submitted yet.
    pub(crate) admitted: usize,
    /// Workers that broke the protocol, for the next sweep to name.
    pub(crate) condemned: Vec<u32>,
    /// What is wrong with the memory, when that names no worker.
    pub(crate) broken: Option<&'static str>,
    /// Nothing in here is served any more; see [`Ring::end`].
    pub(crate) ended: bool,
    /// The oldest request that waited at the last sweep, and for how many sweeps it has been that.
    pub(crate) stalled: (u64, u32),
    /// Tasks to wake, collected while the ring is locked, for [`Ring::unlock`].
    pub(crate) woken: Vec<Waker>,
    /// What sweeps saw of each worker, and when the last one was, CLOCK_MONOTONIC ns.
    pub(crate) stillness: Box<[Stillness]>,
    pub(crate) swept_at: u64,
    /// Workers to rouse, the same; they have been told to wake.
    pub(crate) stirred: Vec<u32>,
    /// Leave to take a slot, for those who wait for one; the same.
    pub(crate) permits: Vec<OwnedSemaphorePermit>,
    /// What was kept for requests that are over; the same, for dropping it may take locks.
    pub(crate) released: Vec<Kept>,
}

impl Inner {
    pub(crate) fn slots(&self) -> std::ops::Range<u32> {
        0..self.entries.len() as u32
    }

    /// Whether something was collected for [`Ring::unlock`].
    pub(crate) fn has_errands(&self) -> bool {
        let (permits, released) = (self.permits.is_empty(), self.released.is_empty());
        !(self.woken.is_empty() && self.stirred.is_empty() && permits && released)
    }

    /// The record of a slot.
    #[allow(
        clippy::indexing_slicing,
        reason = "slot numbers are the front's own: from the free list, from its copy of the cells, or counted; never from the memory"
    )]
    pub(crate) fn entry(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }
}

/// What one thread of the front counts for itself; on a line pair of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    /// Requests submitted since this thread last woke workers. Only this thread writes it.
    pub(crate) unflushed: AtomicU32,
}

/// See [`Ring::open_body`].
pub struct OpenBody(#[allow(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// One application's shared memory, as the front holds it.
pub struct Ring {
    pub(crate) memory: Memory,
    config: Config,
    inner: Mutex<Inner>,
    slots: Arc<Semaphore>,
    open_bodies: Arc<Semaphore>,
    /// No more requests are admitted; `successor`, if any, takes them.
    pub(crate) closed: AtomicBool,
    pub(crate) successor: Mutex<Option<Arc<Ring>>>,
    /// Whoever sweeps has stopped doing so until it is nudged.
    resting: AtomicBool,
    nudged: Notify,
    /// Of each slot, how much of the answer's body was taken: what `response_taken` in the memory must be. Written by the thread that the
    /// slot belongs to, and read by the sweep, which may see it late: then it takes the worker for one that has to wait, until the next sweep.
    taken: Box<[AtomicU64]>,
    /// Of each slot, whether its request has run for too long: PHP ends it then, and what it writes as it does is no answer.
    overdue: Box<[AtomicBool]>,
    /// Workers between [`Ring::prepare_worker`] and [`Ring::worker_died`], by bit. Read without the lock by those who wake workers: what
    /// they see late is a worker that has just died, and its death wakes another one if requests wait.
    alive: [AtomicU64; HY_MASK_WORDS as usize],
    /// Which hub's threads these are.
    hub: u64,
    pub(crate) tallies: Box<[Tally]>,
    pub(crate) workers: u32,
    pub(crate) mask_words: usize,
    pub(crate) bell_words: usize,
}

pub(crate) fn claim(state: u32, worker: u32, ticket: u64) -> u64 {
    u64::from(state) | u64::from(worker) << HY_CLAIM_WORKER_SHIFT | ticket << HY_CLAIM_TICKET_SHIFT
}
pub(crate) fn claim_state(claim: u64) -> u32 {
    (claim & HY_CLAIM_STATE_MASK as u64) as u32
}
pub(crate) fn claim_worker(claim: u64) -> u32 {
    (claim >> HY_CLAIM_WORKER_SHIFT & HY_CLAIM_WORKER_MASK as u64) as u32
}
pub(crate) fn claim_ticket(claim: u64) -> u64 {
    claim >> HY_CLAIM_TICKET_SHIFT
}

/// CLOCK_MONOTONIC in ns, the clock of all times in the memory.
pub(crate) fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The same, at most a [`TICK`] late.
pub(crate) fn now_nearly() -> u64 {
    let t = clock_gettime(ClockId::MonotonicCoarse);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// ns between two ticks of the kernel's, at most (CONFIG_HZ is 100 or more).
pub(crate) const TICK: u64 = 10_000_000;

impl Ring {
    /// Makes the memory and joins it to the hub. Fails when memory or descriptors run out.
    ///
    /// `slots` and `workers` outside 1 to 1024 are an error as well.
    pub fn create(config: &Config, hub: &Hub) -> io::Result<Arc<Ring>> {
        if !(1..=HY_MAX_SLOTS).contains(&config.slots) || !(1..=HY_MAX_WORKERS).contains(&config.workers) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("not a ring: {config:?}")));
        }
        let memory = Memory::create(config, hub.threads())?;
        let ring = Arc::new(Ring {
            inner: Mutex::new(Inner {
                // The lowest slot is handed out first and the last one freed is reused first: few pages stay touched.
                free: (0..config.slots).rev().collect(),
                entries: (0..config.slots).map(|_| Entry::default()).collect(),
                queue: Queue::new(memory.cells()),
                waiting: 0,
                admitted: 0,
                condemned: Vec::new(),
                broken: None,
                ended: false,
                stalled: (0, 0),
                woken: Vec::new(),
                stillness: vec![Stillness::default(); config.workers as usize].into_boxed_slice(),
                swept_at: 0,
                stirred: Vec::new(),
                permits: Vec::new(),
                released: Vec::new(),
            }),
            slots: Arc::new(Semaphore::new(config.slots as usize)),
            open_bodies: Arc::new(Semaphore::new(config.workers as usize / 2)),
            workers: config.workers,
            mask_words: (config.workers as usize).div_ceil(64),
            bell_words: (config.slots as usize).div_ceil(64),
            closed: AtomicBool::new(false),
            successor: Mutex::default(),
            resting: AtomicBool::new(true),
            nudged: Notify::new(),
            taken: (0..config.slots).map(|_| AtomicU64::new(0)).collect(),
            overdue: (0..config.slots).map(|_| AtomicBool::new(false)).collect(),
            alive: Default::default(),
            hub: hub.id(),
            tallies: (0..hub.threads()).map(|_| Tally::default()).collect(),
            config: config.clone(),
            memory,
        });
        hub.add(&ring);
        Ok(ring)
    }

    /// The memory, for the host's descriptor `HY_FD_MEMORY`.
    pub fn memory_fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// A ring of the same sizes with memory of its own.
    pub fn create_alike(&self, hub: &Hub) -> io::Result<Arc<Ring>> {
        Ring::create(&self.config, hub)
    }

    /// The record of all slots. Whoever frees slots or has somebody woken under it lets go of it by [`Ring::unlock`].
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// The number of the present thread; `None`: it is none of the front's.
    pub(crate) fn here(&self) -> Option<u32> {
        Hub::here(self.hub)
    }

    pub(crate) fn is_alive(&self, worker: u32) -> bool {
        let word = self.alive.get(worker as usize / 64);
        word.is_some_and(|word| word.load(Acquire) >> (worker % 64) & 1 != 0)
    }

    pub(crate) fn set_alive(&self, worker: u32, alive: bool) {
        if let Some(word) = self.alive.get(worker as usize / 64) {
            let bit = 1 << (worker % 64);
            let _ = if alive { word.fetch_or(bit, AcqRel) } else { word.fetch_and(!bit, AcqRel) };
        }
    }

    /// The mask words that are in use, each with its number.
    pub(crate) fn alive(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.alive.iter().take(self.mask_words).map(|word| word.load(Acquire)).enumerate()
    }

    /// Takes a slot, waiting in order of arrival while all are in use. Fails at once when `limit` requests wait already,
    /// here and for a worker taken together. Cancel-safe. A ring that was handed over sends the request to its successor.
    pub async fn admit(self: &Arc<Self>, limit: usize) -> Result<Slot, Refused> {
        let mut ring = Arc::clone(self);
        loop {
            // Successors are younger, so this ends.
            while let Some(next) = ring.successor() {
                ring = next;
            }
            match ring.admit_here(limit).await {
                Err(Refused::Stopped) if ring.successor().is_some() => {}
                outcome => return outcome,
            }
        }
    }

    async fn admit_here(self: &Arc<Self>, limit: usize) -> Result<Slot, Refused> {
        let permit = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let waiting = self.line_up(limit)?;
                let permit = Arc::clone(&self.slots).acquire_owned();
                let permit = permit.await.map_err(|_closed| Refused::Stopped)?;
                return self.take_slot(permit, usize::MAX, Some(waiting));
            }
        };
        self.take_slot(permit, limit, None)
    }

    /// Whoever may wait is counted in the same moment, or two threads would both take the last place.
    fn line_up(&self, limit: usize) -> Result<Waiting<'_>, Refused> {
        let mut inner = self.lock();
        if !self.closed.load(Relaxed) && self.is_full(&mut inner, limit) {
            return Err(Refused::QueueFull);
        }
        inner.waiting += 1;
        Ok(Waiting(self))
    }

    fn take_slot(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        limit: usize,
        waiting: Option<Waiting<'_>>,
    ) -> Result<Slot, Refused> {
        // After `waiting` in the order of drops: that takes the lock itself.
        let mut inner = self.lock();
        if self.closed.load(Relaxed) {
            return Err(Refused::Stopped);
        }
        if self.is_full(&mut inner, limit) {
            return Err(Refused::QueueFull);
        }
        // A permit stands for a free slot, so there is one.
        let index = inner.free.pop().ok_or(Refused::QueueFull)?;
        // As [`Ring::free`] has left it, or as it was made.
        let entry = inner.entry(index);
        (entry.life, entry.permit) = (Life::Admitted, Some(permit));
        inner.admitted += 1;
        if let Some(waiting) = waiting {
            // In the same moment, so that it is never counted twice.
            inner.waiting = inner.waiting.saturating_sub(1);
            std::mem::forget(waiting);
        }
        drop(inner);
        Ok(Slot { ring: Arc::clone(self), index, len: 0, submitted: false })
    }

    /// Leave to submit a request whose body is still to come, for as long as it is kept. Half of the workers at most wait for such
    /// bodies; `None`: submit it when the body is whole.
    pub fn open_body(&self) -> Option<OpenBody> {
        if let Some(next) = self.successor() {
            return next.open_body();
        }
        Arc::clone(&self.open_bodies).try_acquire_owned().ok().map(OpenBody)
    }

    /// Requests that wait in [`Ring::admit`] for a slot.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Slots in use: queued, being served, or still held by a worker after the answer.
    pub fn active(&self) -> usize {
        let inner = self.lock();
        inner.entries.len() - inner.free.len()
    }

    /// To be called by whoever sweeps before it stops doing so; then it looks once more at [`Ring::active`], and waits for
    /// [`Ring::nudged`].
    pub fn rest(&self) {
        self.resting.store(true, SeqCst);
    }

    /// Whoever sweeps does so again.
    pub fn attend(&self) {
        self.resting.store(false, SeqCst);
    }

    /// Wakes whoever sweeps, if it rests. Cheap; each submission does it.
    pub fn nudge(&self) {
        if self.resting.load(SeqCst) && self.resting.swap(false, SeqCst) {
            self.nudged.notify_one();
        }
    }

    /// Waits until requests are submitted to a ring whose sweeper rests. Cancel-safe.
    pub async fn nudged(&self) {
        self.nudged.notified().await;
    }

    pub(crate) fn taken(&self, index: u32) -> u64 {
        self.taken.get(index as usize).map_or(0, |taken| taken.load(Relaxed))
    }

    pub(crate) fn is_overdue(&self, index: u32) -> bool {
        self.overdue.get(index as usize).is_some_and(|overdue| overdue.load(Acquire))
    }

    pub(crate) fn set_overdue(&self, index: u32, is: bool) {
        if let Some(overdue) = self.overdue.get(index as usize) {
            overdue.store(is, Release);
        }
    }

    pub(crate) fn set_taken(&self, index: u32, taken: u64) {
        if let Some(word) = self.taken.get(index as usize) {
            word.store(taken, Relaxed);
        }
    }

    pub(crate) fn close_slots(&self) {
        self.slots.close();
    }

    /// Puts a slot that no worker can touch any more back on the free list.
    pub(crate) fn free(&self, inner: &mut Inner, index: u32) {
        self.memory.slot(index).claim().store(claim(HY_FREE, 0, 0), Release);
        self.waits_no_more(inner, index);
        let entry = std::mem::take(inner.entry(index));
        if entry.life == Life::Admitted {
            inner.admitted = inner.admitted.saturating_sub(1);
        }
        inner.free.push(index);
        inner.released.extend(entry.kept);
        // Only now may the next one in line look for a free slot. Who waits in line is counted; telling one is for after the lock.
        if inner.waiting > 0 {
            inner.permits.extend(entry.permit);
        }
    }
}

/// One that waits for a slot, until this goes.
struct Waiting<'a>(&'a Ring);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.waiting = inner.waiting.saturating_sub(1);
    }
}

/// A slot that was admitted and is being filled; dropping it gives it back.
pub struct Slot {
    ring: Arc<Ring>,
    index: u32,
    /// Bytes of its head so far.
    len: usize,
    submitted: bool,
}

impl Slot {
    /// Adds a field of the request head, by its number in `host/layout.h`. One that is empty is as one that is not there.
    pub fn put(&mut self, field: impl Into<u16>, value: &[u8]) -> Result<(), HeadTooLarge> {
        if value.is_empty() {
            return Ok(());
        }
        self.record(field.into(), b"", value)
    }

    fn record(&mut self, field: u16, name: &[u8], value: &[u8]) -> Result<(), HeadTooLarge> {
        self.len = self.ring.memory.put_record(self.index, self.len, field, name, value)?;
        Ok(())
    }

    /// Adds what was written beforehand.
    pub fn put_all(&mut self, records: &Records) -> Result<(), HeadTooLarge> {
        let memory = &self.ring.memory;
        let bytes = records.bytes(memory.request_head.size - self.len)?;
        memory.write(self.index, memory.request_head, self.len, bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Adds a header; the name in lower case.
    pub fn header(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadTooLarge> {
        self.record(HY_FIELD_HEADER as u16, name, value)
    }

    /// Adds a variable of `$_SERVER` by its own name.
    pub fn variable(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadTooLarge> {
        self.record(HY_FIELD_VARIABLE as u16, name, value)
    }

    /// Keeps something until no worker can be busy with the request any more: also beyond the end of its exchange, while its script runs on.
    pub fn keep(&mut self, kept: Arc<dyn Any + Send + Sync>) {
        // What it replaces is dropped after the lock, since it may be anything.
        let _replaced = self.ring.lock().entry(self.index).kept.replace(kept);
    }

    /// Gives this request a time of its own in place of [`crate::Limits::request_timeout`].
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.ring.lock().entry(self.index).timeout = Some(timeout);
    }

    /// Says that all of the body is kept: it can be submitted again where nobody has taken it, see [`Ring::can_be_moved`].
    pub fn set_repeatable(&mut self) {
        self.ring.lock().entry(self.index).repeatable = true;
    }

    /// Hands the request to the workers. With `has_body`, the body follows through [`Exchange::poll_send`].
    pub fn submit(mut self, has_body: bool) -> Exchange {
        let ring = Arc::clone(&self.ring);
        let words = ring.memory.slot(self.index);
        words.reset();
        let head_len = self.len as u32; // no more than an area, whose size is a u32 in the header
        words.request_head_len().store(head_len, Relaxed);
        let state = if has_body { HY_REQUEST_OPEN } else { HY_REQUEST_COMPLETE };
        words.request_state().store(state, Relaxed);
        self.submitted = true;
        ring.publish(self.index, head_len, has_body);
        ring.nudge();
        Exchange::new(ring, self.index)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.submitted {
            let mut inner = self.ring.lock();
            self.ring.free(&mut inner, self.index);
            self.ring.unlock(inner);
        }
    }
}
