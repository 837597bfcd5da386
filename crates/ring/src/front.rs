//! The ring as the front holds it: what it is made of, admission, and slots. What the front does with it is in [`crate::queue`],
//! [`crate::wake`], [`crate::workers`] and [`crate::exchange`].

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering::*},
    },
    task::Waker,
};

use rustix::time::{ClockId, clock_gettime};
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

/// More requests wait than allowed; answer 503.
#[derive(Debug, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

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
    pub(crate) tail: u64,
    /// Requests submitted since workers were last woken.
    pub(crate) unflushed: u32,
    pub(crate) condemned: Vec<u32>,
    scratch: Vec<u8>,
    /// Collected while the ring is locked, to be run once it is not.
    pub(crate) woken: Vec<Waker>,
}

/// See [`Ring::open_body`].
pub struct OpenBody(#[allow(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// One application's shared memory, as the front holds it.
pub struct Ring {
    pub(crate) memory: Memory,
    inner: Mutex<Inner>,
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    open_bodies: Arc<Semaphore>,
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
            open_bodies: Arc::new(Semaphore::new(config.workers as usize / 2)),
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

    /// Leave to submit a request whose body is still to come, for as long as it is kept. Half of the workers at most wait for such
    /// bodies; `None`: submit it when the body is whole.
    pub fn open_body(&self) -> Option<OpenBody> {
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

    /// Puts a slot that no worker can touch any more back on the free list.
    pub(crate) fn free(&self, inner: &mut Inner, index: u32) {
        self.memory.slot(index).claim().store(claim(HY_FREE, 0, 0), Release);
        let entry = std::mem::take(&mut inner.entries[index as usize]);
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
