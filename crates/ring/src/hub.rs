//! Where the front sleeps: for each of its threads an eventfd, and the two hooks of its event loop. Workers that run others' code get
//! eventfds of their own from the pool, one for each thread, which are only watched.
//!
//! Workers write a thread's eventfd only when that thread said that it is about to sleep, so under load there are next to no wake-ups. Whoever
//! owns the event loop calls [`Hub::attach`] on its thread, [`Hub::before_park`] before every sleep and [`Hub::after_unpark`] after it, and
//! [`Hub::look`] now and then while it does not come to sleep. A thread looks only at slots of its own: those of requests that it has submitted.

use std::{
    cell::Cell,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::Handle,
};

use crate::{layout::HY_MAX_BELLS, ring::Ring};

thread_local! {
    /// Which hub this thread sleeps at, and its number there.
    static HERE: Cell<Option<(u64, u32)>> = const { Cell::new(None) };
}

/// The meeting point of the front's threads and the rings.
pub struct Hub {
    /// Tells hubs apart, for there may be several in a process.
    id: u64,
    threads: Box<[Thread]>,
}

struct Thread {
    event: OwnedFd,
    rings: Mutex<Vec<Weak<Ring>>>,
    runtime: OnceLock<Handle>,
}

impl Hub {
    /// The most threads that a front may have.
    pub const MOST: u32 = HY_MAX_BELLS;

    /// For a front of that many threads, 1 to [`Hub::MOST`]. Fails when the process is out of descriptors.
    pub fn new(threads: u32) -> io::Result<Arc<Hub>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let thread = |_| {
            let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Thread { event, rings: Mutex::default(), runtime: OnceLock::new() })
        };
        let threads = (0..threads.clamp(1, Hub::MOST)).map(thread).collect::<io::Result<_>>()?;
        Ok(Arc::new(Hub { id: NEXT.fetch_add(1, Relaxed), threads }))
    }

    /// How many threads the front has.
    pub fn threads(&self) -> u32 {
        self.threads.len() as u32
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// This thread is the front's thread of that number from now on, and `runtime` its event loop. Panics when there is no such number: it is
    /// what the front started the thread with, before it serves.
    pub fn attach(&self, thread: u32, runtime: &Handle) {
        assert!(thread < self.threads(), "thread {thread} of {}", self.threads());
        HERE.set(Some((self.id, thread)));
        if let Some(thread) = self.threads.get(thread as usize) {
            // The first one stays, should there be another.
            let _ = thread.runtime.set(runtime.clone());
        }
    }

    /// The number of the present thread; `None`: it is none of the front's, and does not sleep here.
    pub(crate) fn here(id: u64) -> Option<u32> {
        HERE.get().filter(|(hub, _)| *hub == id).map(|(_, thread)| thread)
    }

    /// A thread's eventfd: to be watched edge-triggered for readability, never read, and passed to hosts that are trusted (tests) from
    /// `HY_FD_EVENTS` on: who has it can fill it, and make the front's own write wait.
    pub fn event_fd(&self, thread: u32) -> Option<BorrowedFd<'_>> {
        self.threads.get(thread as usize).map(|thread| thread.event.as_fd())
    }

    /// Has each write to an eventfd wake the thread's event loop, as long as the result is kept. It is only watched: each write is a new
    /// edge, so nobody has to read it, and whatever others do to it is their loss.
    pub fn watch(&self, thread: u32, event: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
        let runtime = self.threads.get(thread as usize).and_then(|thread| thread.runtime.get());
        let _of_that_thread = runtime.map(Handle::enter);
        // SAFETY: the registration owns the descriptor, and nobody else closes or replaces it.
        unsafe { AsyncFd::register_with_interest(event, Interest::READABLE) }.map_err(Into::into)
    }

    /// Watches the thread's own eventfd, which [`Hub::before_park`] writes.
    pub fn watch_own(&self, thread: u32) -> io::Result<AsyncFd<OwnedFd>> {
        let event = self.event_fd(thread).ok_or(io::ErrorKind::InvalidInput)?;
        self.watch(thread, event.try_clone_to_owned()?)
    }

    pub(crate) fn add(&self, ring: &Arc<Ring>) {
        for thread in &self.threads {
            let mut rings = thread.rings.lock();
            rings.retain(|ring| ring.strong_count() > 0);
            rings.push(Arc::downgrade(ring));
        }
    }

    fn each(&self, thread: u32, mut f: impl FnMut(&Thread, &Ring)) {
        let Some(thread) = self.threads.get(thread as usize) else { return };
        let rings = thread.rings.lock();
        for ring in rings.iter().filter_map(Weak::upgrade) {
            f(thread, &ring);
        }
    }

    /// Wakes workers for what this thread has submitted, announces its sleep, and looks once more for news; tasks that have some are woken
    /// before this returns, so that the event loop sees them and does not sleep.
    pub fn before_park(&self, thread: u32) {
        self.each(thread, |own, ring| {
            ring.flush(thread);
            if !ring.announce_sleep(thread) {
                // Never read, so it could only fail after 2^64 - 2 writes.
                let _ = rustix::io::write(&own.event, &1u64.to_ne_bytes());
            }
        });
    }

    /// What a thread does before and after a sleep, for one that has had work for so long that it did not sleep: wakes workers for what it has
    /// submitted, and the tasks that have news.
    pub fn look(&self, thread: u32) {
        self.each(thread, |_, ring| {
            ring.flush(thread);
            ring.drain(thread);
        });
    }

    /// Takes the announcement back and wakes the tasks that have news.
    pub fn after_unpark(&self, thread: u32) {
        self.each(thread, |_, ring| {
            ring.cancel_sleep(thread);
            ring.drain(thread);
        });
    }
}
