//! Memory for what has not arrived as a whole: heads, and the beginnings of bodies. What one connection may hold is limited elsewhere; this
//! limits what all hold together, so that many slow clients cost no more than a few.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes worth giving back to the system.
const LARGE: usize = 4 << 20;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Gather {
    used: AtomicUsize,
    limit: AtomicUsize,
    /// What of it is in heads.
    heads: AtomicUsize,
    /// The most that was used since [`Gather::shrank`].
    most: AtomicUsize,
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

    /// The memory of one head has changed.
    pub(crate) fn head_changed(&self, before: usize, now: usize) {
        // Two's complement: what is added may be less than nothing.
        self.heads.fetch_add(now.wrapping_sub(before), Relaxed);
    }

    /// How many of `excess` bytes those are to give back who hold so many bytes of heads: threads know only their own connections, and each
    /// does its part.
    pub(crate) fn part(&self, excess: usize, own: usize) -> usize {
        let all = self.heads.load(Relaxed).max(own).max(1);
        usize::try_from(excess as u128 * own as u128 / all as u128).unwrap_or(excess)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_and_given_back() {
        let gather = Arc::new(Gather::default());
        gather.set_limit(100_000);
        let mut shares: Vec<Share> = (0..4).map(|_| gather.share()).collect();
        let fits: Vec<bool> = shares.iter_mut().map(|share| share.set(30_000)).collect();
        assert_eq!(fits, [true, true, true, false]);
        assert_eq!(gather.excess(), Some(120_000 - 75_000));
        shares[0].set(1_000);
        assert_eq!(gather.excess(), None);
        gather.head_changed(0, 8_000);
        assert_eq!(gather.part(3_000, 8_000), 3_000);
        gather.head_changed(8_000, 2_000);
        gather.head_changed(0, 6_000);
        assert_eq!(
            (gather.part(4_000, 2_000), gather.part(4_000, 6_000), gather.part(4_000, 0)),
            (1_000, 3_000, 0)
        );
        drop(shares);
        assert_eq!(gather.used.load(Relaxed), 0);
    }
}
