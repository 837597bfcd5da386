//! The ring as the front holds it: what it is made of, admission, and slots. What the front does with it is in [`crate::queue`],
//! [`crate::wake`], [`crate::workers`], [`crate::sweep`], [`crate::end`] and [`crate::exchange`].

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*},
    },
    task::Waker,
};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    exchange::{Exchange, Failure},
    head::{self, Field, HeadTooLarge},
    hub::Hub,
    layout::*,
    memory::Memory,
    queue::Queue,
    sweep::Look,
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

/// The front's record of a slot: what it knows of it without asking the shared memory.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) life: Life,
    pub(crate) waker: Option<Waker>,
    pub(crate) failure: Option<Failure>,
    permit: Option<OwnedSemaphorePermit>,
    /// Under which ticket it waits in the queue; `None`: it does not, or no more.
    pub(crate) ticket: Option<u64>,
    /// The last ticket it had, which its claim bears.
    pub(crate) last_ticket: u64,
    /// CLOCK_MONOTONIC, ns
    pub(crate) submitted_at: u64,
    pub(crate) head_len: u32,
    /// More of its body may come.
    pub(crate) open: bool,
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
    /// Requests submitted since workers were last woken.
    pub(crate) unflushed: u32,
    /// Workers that broke the protocol, for the next sweep to name.
    pub(crate) condemned: Vec<u32>,
    /// What is wrong with the memory, when that names no worker.
    pub(crate) broken: Option<&'static str>,
    /// Nothing in here is served any more; see [`Ring::end`].
    pub(crate) ended: bool,
    /// Workers between [`Ring::prepare_worker`] and [`Ring::worker_died`], by bit.
    pub(crate) alive: [u64; HY_MASK_WORDS as usize],
    /// When each worker was last woken for a request, CLOCK_MONOTONIC ns; 0: it has moved since.
    pub(crate) woken_at: Vec<u64>,
    /// The oldest request that waited at the last sweep, and for how many sweeps it has been that.
    pub(crate) stalled: (u64, u32),
    scratch: Vec<u8>,
    /// Collected while the ring is locked, to be run once it is not.
    pub(crate) woken: Vec<Waker>,
}

impl Inner {
    pub(crate) fn slots(&self) -> std::ops::Range<u32> {
        0..self.entries.len() as u32
    }

    /// The record of a slot.
    #[allow(
        clippy::indexing_slicing,
        reason = "slot numbers are the front's own: from the free list, from its copy of the cells, or counted; never from the memory"
    )]
    pub(crate) fn entry(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    pub(crate) fn is_alive(&self, worker: u32) -> bool {
        self.alive.get(worker as usize / 64).is_some_and(|word| word >> (worker % 64) & 1 != 0)
    }

    pub(crate) fn set_alive(&mut self, worker: u32, alive: bool) {
        if let Some(word) = self.alive.get_mut(worker as usize / 64) {
            let bit = 1 << (worker % 64);
            *word = if alive { *word | bit } else { *word & !bit };
        }
    }
}

/// See [`Ring::open_body`].
pub struct OpenBody(#[allow(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// One application's shared memory, as the front holds it.
pub struct Ring {
    pub(crate) memory: Memory,
    config: Config,
    inner: Mutex<Inner>,
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    open_bodies: Arc<Semaphore>,
    /// No more requests are admitted; `successor`, if any, takes them.
    pub(crate) closed: AtomicBool,
    pub(crate) successor: Mutex<Option<Arc<Ring>>>,
    /// Whoever sweeps has stopped doing so until it is nudged.
    resting: AtomicBool,
    nudged: Notify,
    /// Of each slot, how much of the answer's body was taken: what `response_taken` in the memory must be.
    taken: Box<[AtomicU64]>,
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

/// Locks what no code of this crate can panic over while it holds it. Should that ever prove wrong, one request's trouble is not to become
/// everybody's: each update under these locks leaves the data fit for the next.
pub(crate) fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CLOCK_MONOTONIC in ns, the clock of all times in the memory.
pub(crate) fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Ring {
    /// Makes the memory and joins it to the hub. Fails when memory or descriptors run out.
    ///
    /// `slots` and `workers` outside 1 to 1024 are an error as well.
    pub fn create(config: &Config, hub: &Hub) -> io::Result<Arc<Ring>> {
        if !(1..=HY_MAX_SLOTS).contains(&config.slots) || !(1..=HY_MAX_WORKERS).contains(&config.workers) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("not a ring: {config:?}")));
        }
        let memory = Memory::create(config)?;
        let ring = Arc::new(Ring {
            inner: Mutex::new(Inner {
                // The lowest slot is handed out first and the last one freed is reused first: few pages stay touched.
                free: (0..config.slots).rev().collect(),
                entries: (0..config.slots).map(|_| Entry::default()).collect(),
                queue: Queue::new(memory.cells()),
                unflushed: 0,
                condemned: Vec::new(),
                broken: None,
                ended: false,
                alive: [0; HY_MASK_WORDS as usize],
                woken_at: vec![0; config.workers as usize],
                stalled: (0, 0),
                scratch: Vec::new(),
                woken: Vec::new(),
            }),
            slots: Arc::new(Semaphore::new(config.slots as usize)),
            waiting: AtomicUsize::new(0),
            open_bodies: Arc::new(Semaphore::new(config.workers as usize / 2)),
            workers: config.workers,
            mask_words: (config.workers as usize).div_ceil(64),
            bell_words: (config.slots as usize).div_ceil(64),
            closed: AtomicBool::new(false),
            successor: Mutex::default(),
            resting: AtomicBool::new(true),
            nudged: Notify::new(),
            taken: (0..config.slots).map(|_| AtomicU64::new(0)).collect(),
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

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        unpoisoned(&self.inner)
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
                if self.is_full(&mut self.lock(), limit, self.waiting.load(Relaxed)) {
                    return Err(Refused::QueueFull);
                }
                struct Waiting<'a>(&'a AtomicUsize);
                impl Drop for Waiting<'_> {
                    fn drop(&mut self) {
                        self.0.fetch_sub(1, Relaxed);
                    }
                }
                self.waiting.fetch_add(1, Relaxed);
                let _waiting = Waiting(&self.waiting);
                Arc::clone(&self.slots).acquire_owned().await.map_err(|_closed| Refused::Stopped)?
            }
        };
        let mut inner = self.lock();
        if self.closed.load(Relaxed) {
            return Err(Refused::Stopped);
        }
        if self.is_full(&mut inner, limit, 0) {
            return Err(Refused::QueueFull);
        }
        // A permit stands for a free slot, so there is one.
        let index = inner.free.pop().ok_or(Refused::QueueFull)?;
        *inner.entry(index) = Entry { life: Life::Admitted, permit: Some(permit), ..Entry::default() };
        let mut scratch = std::mem::take(&mut inner.scratch);
        scratch.clear();
        drop(inner);
        Ok(Slot { ring: Arc::clone(self), index, records: scratch, submitted: false })
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
        self.waiting.load(Relaxed)
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
        inner.free.push(index);
        // Only now may the next one in line look for a free slot.
        drop(entry.permit);
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
        ring.publish(self.index, self.records.len() as u32, has_body);
        ring.nudge();
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
