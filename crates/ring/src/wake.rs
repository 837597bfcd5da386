//! Sleep and wake-up, both ways: workers that sleep for want of requests, and the front that sleeps for want of news. Both follow one
//! pattern (host/layout.h, rule 4): announce the sleep, look again, sleep; the other side publishes, fences, and looks for the announcement.
//! `tests/model.rs` explores its interleavings.

use std::sync::{
    MutexGuard,
    atomic::{AtomicU32, Ordering::*, fence},
};

use rustix::thread::futex;

use crate::{
    front::{Inner, Life, Ring, claim_state},
    layout::*,
};

impl Ring {
    /// Idle workers, asleep for want of requests.
    pub fn sleeping_workers(&self) -> u32 {
        let header = self.memory.header();
        (0..self.mask_words).map(|i| header.sleepers(i).load(Relaxed).count_ones()).sum()
    }

    /// Wakes as many sleeping workers as there are requests submitted since the last call.
    pub fn flush(&self) {
        self.flush_locked(&mut self.lock());
    }

    pub(crate) fn flush_locked(&self, inner: &mut Inner) {
        let wanted = std::mem::take(&mut inner.unflushed);
        if wanted > 0 {
            self.wake_sleepers(wanted);
        }
    }

    pub(crate) fn wake_sleepers(&self, mut wanted: u32) {
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
