//! Where the front sleeps: an eventfd for all rings of a front, and the two hooks of its event loop. Workers that run others' code get an
//! eventfd of their own from the pool, which is only watched.
//!
//! Workers write the eventfd only when the front said that it is about to sleep, so under load there are next to no
//! wake-ups. The owner of the event loop registers [`Hub::event_fd`] edge-triggered (it is never read: each write is a
//! new edge), calls [`Hub::before_park`] before every sleep and [`Hub::after_unpark`] after it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, Weak},
};

use rustix::event::EventfdFlags;

use crate::front::{Ring, unpoisoned};

/// The meeting point of the event loop and the rings.
pub struct Hub {
    event: OwnedFd,
    rings: Mutex<Vec<Weak<Ring>>>,
}

impl Hub {
    /// Makes the eventfd. Fails when the process is out of descriptors.
    pub fn new() -> io::Result<Arc<Hub>> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Hub { event, rings: Mutex::default() }))
    }

    /// To be watched edge-triggered for readability, never read, and passed to hosts that are trusted (tests) as descriptor `HY_FD_EVENT`: who has it can fill it, and
    /// make the front's own write wait.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub(crate) fn add(&self, ring: &Arc<Ring>) {
        let mut rings = unpoisoned(&self.rings);
        rings.retain(|ring| ring.strong_count() > 0);
        rings.push(Arc::downgrade(ring));
    }

    fn each(&self, mut f: impl FnMut(&Ring)) {
        let rings = unpoisoned(&self.rings);
        for ring in rings.iter().filter_map(Weak::upgrade) {
            f(&ring);
        }
    }

    /// Wakes workers for what was submitted, announces the sleep, and looks once more for news; tasks that have some are woken
    /// before this returns, so that the event loop sees them and does not sleep.
    pub fn before_park(&self) {
        self.each(|ring| {
            ring.flush();
            if !ring.announce_sleep() {
                // Never read, so it could only fail after 2^64 - 2 writes.
                let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
            }
        });
    }

    /// Takes the announcement back and wakes the tasks that have news.
    pub fn after_unpark(&self) {
        self.each(|ring| {
            ring.cancel_sleep();
            ring.drain();
        });
    }
}
