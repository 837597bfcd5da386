//! Sleep and wake-up, both ways: workers that sleep for want of requests, and the front that sleeps for want of news. Both follow one
//! pattern (host/layout.h, rule 4): announce the sleep, look again, sleep; the other side publishes, fences, and looks for the announcement.
//! `tests/model.rs` explores its interleavings.

use std::sync::{
    MutexGuard,
    atomic::{AtomicU32, Ordering::*, fence},
};

use rustix::thread::futex;

use crate::front::{Inner, Life, Ring, now};

/// How often the front looks at doorbells before it turns to its other work. Workers ring once or twice for a request.
const LOOKS: u32 = 8;

impl Ring {
    /// Idle workers, asleep for want of requests.
    pub fn sleeping_workers(&self) -> u32 {
        let header = self.memory.header();
        let inner = self.lock();
        let words = inner.alive.iter().take(self.mask_words).enumerate();
        words.map(|(i, alive)| (header.sleepers(i).load(Relaxed) & alive).count_ones()).sum()
    }

    /// Wakes as many sleeping workers as there are requests submitted since the last call.
    pub fn flush(&self) {
        self.flush_locked(&mut self.lock());
    }

    pub(crate) fn flush_locked(&self, inner: &mut Inner) {
        let wanted = std::mem::take(&mut inner.unflushed);
        if wanted > 0 {
            self.wake_sleepers(inner, wanted);
        }
    }

    /// Wakes `wanted` sleeping workers, or as many as there are. Returns how many it woke.
    pub(crate) fn wake_sleepers(&self, inner: &mut Inner, wanted: u32) -> u32 {
        // Pairs with the worker's "announce, then look at the queue again".
        fence(SeqCst);
        let header = self.memory.header();
        let mut woken = 0;
        for (i, alive) in inner.alive.iter().take(self.mask_words).enumerate() {
            let word = header.sleepers(i);
            // Each worker once at most, whatever somebody writes there meanwhile; a bit of nobody's stands for nobody.
            let mut seen = word.load(Relaxed) & alive;
            while woken < wanted && seen != 0 {
                // The lowest bit first: a hot worker stays hot, and the highest become idle and may be let go.
                let bit = seen & seen.wrapping_neg();
                seen &= !bit;
                if word.fetch_and(!bit, SeqCst) & bit != 0 {
                    let worker = i as u32 * 64 + bit.trailing_zeros();
                    if let Some(at) = inner.woken_at.get_mut(worker as usize)
                        && *at == 0
                    {
                        *at = now();
                    }
                    self.wake_worker(worker);
                    woken += 1;
                }
            }
        }
        woken
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
    /// the event loop goes to sleep after this whatever was drained. `false`: doorbells do not stop ringing, so the event loop is to
    /// look at everything else and come back rather than sleep.
    pub(crate) fn announce_sleep(&self) -> bool {
        let header = self.memory.header();
        for _ in 0..LOOKS {
            header.front_sleeping().store(1, SeqCst);
            fence(SeqCst);
            if (0..self.bell_words).all(|i| header.doorbells(i).load(Relaxed) == 0) {
                return true;
            }
            self.drain();
        }
        false
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
                if !inner.slots().contains(&index) {
                    continue; // nobody's doorbell
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
            wake_all(inner);
        }
    }
}

/// Runs the collected wakers with the ring unlocked: a waker may run code that locks it.
pub(crate) fn wake_all(mut inner: MutexGuard<'_, Inner>) {
    if inner.woken.is_empty() {
        return;
    }
    let mut woken = std::mem::take(&mut inner.woken);
    drop(inner);
    for waker in woken.drain(..) {
        waker.wake();
    }
}
