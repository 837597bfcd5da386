//! Memory for what has not arrived as a whole: heads, and the beginnings of bodies. What one connection may hold is limited elsewhere; this
//! limits what all hold together, so that many slow clients cost no more than a few.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Notify;

/// Bytes worth giving back to the system.
const LARGE: usize = 4 << 20;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Gather {
    used: AtomicUsize,
    limit: AtomicUsize,
    /// The most that was used since [`Gather::shrank`].
    most: AtomicUsize,
    /// The limit is passed.
    pub(crate) pressed: Notify,
}

impl Gather {
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Relaxed);
    }

    /// Bytes to be given back before there is room again, a quarter of all more than needed; `None` when there is room.
    pub(crate) fn excess(&self) -> Option<usize> {
        let (used, limit) = (self.used.load(Relaxed), self.limit.load(Relaxed));
        (used > limit).then(|| used.saturating_sub(limit - limit / 4))
    }

    pub(crate) fn was_large(&self) -> bool {
        self.most.load(Relaxed) >= LARGE
    }

    /// Whether much was used and half of it no more is; said once for each time.
    pub(crate) fn shrank(&self) -> bool {
        let used = self.used.load(Relaxed);
        let shrank = self.was_large() && used <= self.most.load(Relaxed) / 2;
        if shrank {
            self.most.store(used, Relaxed);
        }
        shrank
    }

    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { gather: Arc::clone(self), bytes: 0 }
    }
}

/// What one of them holds; given back when this goes.
pub(crate) struct Share {
    gather: Arc<Gather>,
    bytes: usize,
}

impl Share {
    /// It holds so many bytes now. `false`: all together hold too many.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let used = &self.gather.used;
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let now = used.fetch_add(more, Relaxed).saturating_add(more);
            self.gather.most.fetch_max(now, Relaxed);
        } else {
            used.fetch_sub(self.bytes - bytes, Relaxed);
        }
        self.bytes = bytes;
        self.gather.excess().is_none()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The beginning of a head.
pub(crate) struct Held {
    bytes: Vec<u8>,
    share: Share,
}

impl Held {
    pub(crate) fn new(share: Share) -> Held {
        Held { bytes: Vec::new(), share }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Appends, in a buffer not much larger than what it holds. Returns its size.
    pub(crate) fn push(&mut self, more: &[u8]) -> usize {
        let len = self.bytes.len();
        if self.bytes.capacity().saturating_sub(len) < more.len() {
            self.bytes.reserve_exact(more.len().max(len / 2).max(512));
        }
        self.bytes.extend_from_slice(more);
        if !self.share.set(self.bytes.capacity()) {
            self.share.gather.pressed.notify_one();
        }
        self.bytes.capacity()
    }

    /// All of it; it is empty then.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.share.set(0);
        std::mem::take(&mut self.bytes)
    }

    /// What stands before `at`, which is taken out.
    pub(crate) fn take_before(&mut self, at: usize) -> Vec<u8> {
        if at == 0 {
            return Vec::new();
        }
        let mut before = self.take();
        let rest = before.split_off(at.min(before.len()));
        self.push(&rest);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_and_given_back() {
        let gather = Arc::new(Gather::default());
        gather.set_limit(100_000);
        let mut held: Vec<Held> = (0..4).map(|_| Held::new(gather.share())).collect();
        for head in &mut held {
            for _ in 0..31_000 {
                head.push(b"x");
            }
            assert!(head.bytes.capacity() < 48_000, "not much larger than what it holds");
        }
        let excess = gather.excess().unwrap();
        assert!(excess > 25_000 + 24_000, "{excess}");
        assert_eq!(held[0].take_before(1_000).len(), 1_000);
        assert_eq!(held[0].bytes().len(), 30_000);
        assert_eq!(held[1].take().len(), 31_000);
        assert!(held[1].is_empty());
        drop(held);
        assert_eq!(gather.used.load(Relaxed), 0);
    }
}
