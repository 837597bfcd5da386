//! Sleep and wake-up, both ways: workers that sleep for want of requests, and the front that sleeps for want of news. Both follow one
//! pattern (host/layout.h, rule 4): announce the sleep, look again, sleep; the other side publishes, fences, and looks for the announcement.
//! Each thread of the front sleeps and wakes for itself, and wakes workers for what it has submitted itself. `tests/model.rs` explores the
//! interleavings.

use std::sync::atomic::{AtomicU32, Ordering::*, fence};

use parking_lot::MutexGuard;
use rustix::thread::futex;

use crate::ring::{Inner, Life, Ring};

/// How often the front looks at doorbells before it turns to its other work. Workers ring once or twice for a request.
const LOOKS: u32 = 8;

impl Ring {
    /// Idle workers, asleep for want of requests.
    pub fn sleeping_workers(&self) -> u32 {
        let header = self.memory.header();
        self.alive().map(|(i, alive)| (header.sleepers(i).load(Relaxed) & alive).count_ones()).sum()
    }

    /// Wakes a sleeping worker for each request that this thread has submitted since its last call and that waits. Those that were taken
    /// meanwhile need nobody.
    pub(crate) fn flush(&self, thread: u32) {
        let Some(tally) = self.tallies.get(thread as usize) else { return };
        let submitted = tally.unflushed.load(Relaxed);
        if submitted > 0 {
            tally.unflushed.store(0, Relaxed);
            let waiting = u32::try_from(self.queued()).unwrap_or(u32::MAX);
            self.wake_sleepers(submitted.min(waiting));
        }
    }

    /// Wakes `wanted` sleeping workers, or as many as there are. Returns how many it woke. Makes system calls, so not under the lock.
    pub(crate) fn wake_sleepers(&self, wanted: u32) -> u32 {
        self.choose_sleepers(wanted, |worker| self.rouse(worker))
    }

    /// Takes up to `wanted` announcements of sleep back. Returns how many; their workers are to be roused.
    pub(crate) fn choose_sleepers(&self, wanted: u32, mut chosen: impl FnMut(u32)) -> u32 {
        // Pairs with the worker's "announce, then look at the queue again".
        fence(SeqCst);
        let header = self.memory.header();
        let mut woken = 0;
        for (i, alive) in self.alive() {
            let word = header.sleepers(i);
            // Each worker once at most, whatever somebody writes there meanwhile; a bit of nobody's stands for nobody.
            let mut seen = word.load(Relaxed) & alive;
            while woken < wanted && seen != 0 {
                // The lowest bit first: a hot worker stays hot, and the highest become idle and may be let go.
                let bit = seen & seen.wrapping_neg();
                seen &= !bit;
                if word.fetch_and(!bit, SeqCst) & bit != 0 {
                    let worker = i as u32 * 64 + bit.trailing_zeros();
                    self.say_wake(worker);
                    chosen(worker);
                    woken += 1;
                }
            }
        }
        woken
    }

    pub(crate) fn wake_worker(&self, index: u32) {
        self.say_wake(index);
        self.rouse(index);
    }

    /// The first half of waking a worker: it will not go to sleep any more.
    pub(crate) fn say_wake(&self, index: u32) {
        if index < self.workers {
            self.memory.worker(index).wake().store(1, SeqCst);
        } // else a worker wrote nonsense into the mask
    }

    /// The second half: it sleeps no more. A system call, so not under the lock.
    fn rouse(&self, index: u32) {
        if index < self.workers {
            let words = self.memory.worker(index);
            let wake: &AtomicU32 = words.wake();
            // Shared between processes, so not FUTEX_PRIVATE. It cannot fail for a valid address.
            let _ = futex::wake(wake, futex::Flags::empty(), 1);
        }
    }

    /// Leaves the sleep announced and no doorbell unheard. Both matter: news may concern only slots that nobody waits for, and then
    /// the event loop goes to sleep after this whatever was drained. `false`: doorbells do not stop ringing, so the event loop is to
    /// look at everything else and come back rather than sleep.
    pub(crate) fn announce_sleep(&self, thread: u32) -> bool {
        let bell = self.memory.bell(thread);
        for _ in 0..LOOKS {
            bell.sleeping().store(1, SeqCst);
            fence(SeqCst);
            if (0..self.bell_words).all(|i| bell.doorbells(i).load(Relaxed) == 0) {
                return true;
            }
            self.drain(thread);
        }
        false
    }

    pub(crate) fn cancel_sleep(&self, thread: u32) {
        let bell = self.memory.bell(thread);
        if bell.sleeping().load(Relaxed) != 0 {
            bell.sleeping().store(0, SeqCst);
        }
    }

    /// Looks at every slot of the thread's own whose doorbell was rung: wakes the task that waits for it, or frees it.
    pub(crate) fn drain(&self, thread: u32) {
        let bell = self.memory.bell(thread);
        let mut inner = None;
        for i in 0..self.bell_words {
            if bell.doorbells(i).load(Relaxed) == 0 {
                continue;
            }
            let mut bits = bell.doorbells(i).swap(0, SeqCst);
            let inner = inner.get_or_insert_with(|| self.lock());
            while bits != 0 {
                let index = i as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                if !inner.slots().contains(&index) || inner.entry(index).bell != thread {
                    continue; // nobody's doorbell, or that of a slot which was another thread's when its worker began
                }
                match inner.entry(index).life {
                    Life::Live => {
                        let waker = inner.entry(index).waker.take();
                        inner.woken.extend(waker);
                    }
                    Life::Orphan => self.free_if_done(inner, index),
                    Life::Free | Life::Admitted => {}
                }
            }
        }
        if let Some(inner) = inner {
            self.unlock(inner);
        }
    }

    /// Lets go of the lock, and wakes the tasks and workers that were collected under it: a waker may run code that takes the lock, and
    /// waking a worker is a system call. What was kept for others goes then, too.
    pub(crate) fn unlock(&self, mut inner: MutexGuard<'_, Inner>) {
        if !inner.has_errands() {
            return;
        }
        let (woken, stirred) = (std::mem::take(&mut inner.woken), std::mem::take(&mut inner.stirred));
        let permits = std::mem::take(&mut inner.permits);
        let released = std::mem::take(&mut inner.released);
        drop(inner);
        drop((permits, released));
        for waker in woken {
            waker.wake();
        }
        for worker in stirred {
            self.rouse(worker);
        }
    }
}
