//! Memory for what has not arrived as a whole: heads, and the beginnings of bodies. What one connection may hold is limited elsewhere; this
//! limits what all hold together, so that many slow clients cost no more than a few.
//!
//! Bodies may have half of it, and go to files when that is used: what they hold beyond never makes room scarce for heads, which have nowhere
//! to go. So who sends bodies costs nobody else a head.
//!
//! When it is too much, the oldest unfinished heads are given up, whichever thread has them: all threads enter theirs in one list. A head that
//! comes at once, as nearly all do, is never in it. Until that has happened no more is read of any of them ([`Gather::has_room`]): what came
//! at one time on many connections would else be read to its end before anybody looks.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

/// Bytes worth giving back to the system.
const LARGE: usize = 4 << 20;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Gather {
    heads_used: AtomicUsize,
    bodies_used: AtomicUsize,
    limit: AtomicUsize,
    heads: Mutex<Heads>,
    /// The most that was used since [`Gather::shrank`].
    most: AtomicUsize,
}

impl Gather {
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Relaxed);
    }

    /// What counts of all that is held: of bodies no more than they may have.
    fn used(&self) -> usize {
        let bodies = self.bodies_used.load(Relaxed).min(self.limit.load(Relaxed) / 2);
        self.heads_used.load(Relaxed).saturating_add(bodies)
    }

    fn is_full(&self) -> bool {
        self.used() > self.limit.load(Relaxed)
    }

    fn has_too_many_bodies(&self) -> bool {
        self.bodies_used.load(Relaxed) > self.limit.load(Relaxed) / 2 || self.is_full()
    }

    /// Whether more may be taken in: what is on its way out counts no more.
    pub(crate) fn has_room(&self) -> bool {
        !self.is_full() || {
            let chosen = self.heads.lock().chosen;
            self.used().saturating_sub(chosen) <= self.limit.load(Relaxed)
        }
    }

    /// Chooses heads to be given up until there is room again, and a quarter of the limit more. All that began up to the one named here are
    /// chosen; `None` when there is nothing to give up.
    pub(crate) fn choose_heads(&self) -> Option<HeadNumber> {
        let mut heads = self.heads.lock();
        let limit = self.limit.load(Relaxed);
        // Those chosen before are on their way out.
        let used = self.used().saturating_sub(heads.chosen);
        if used <= limit {
            return None;
        }
        let excess = used.saturating_sub(limit - limit / 4);
        let mut freed = 0usize;
        let mut last = None;
        let Heads { all, chosen, .. } = &mut *heads;
        for (number, head) in all.iter_mut().filter(|(_, head)| !head.chosen) {
            if freed >= excess {
                break;
            }
            head.chosen = true;
            freed = freed.saturating_add(head.bytes);
            last = Some(HeadNumber(*number));
        }
        *chosen = chosen.saturating_add(freed);
        last
    }

    pub(crate) fn was_large(&self) -> bool {
        self.most.load(Relaxed) >= LARGE
    }

    /// Whether much was used and half of it no more is; said once for each time.
    pub(crate) fn shrank(&self) -> bool {
        let used = self.held();
        let shrank = self.was_large() && used <= self.most.load(Relaxed) / 2;
        if shrank {
            self.most.store(used, Relaxed);
        }
        shrank
    }

    fn held(&self) -> usize {
        self.heads_used.load(Relaxed).saturating_add(self.bodies_used.load(Relaxed))
    }

    /// For a body of which no byte is held yet.
    pub(crate) fn body(self: &Arc<Self>) -> Share {
        Share { gather: Arc::clone(self), bytes: 0, of_body: true }
    }

    /// For a head of which no byte is held yet.
    pub(crate) fn head(self: &Arc<Self>) -> Head {
        Head { share: Share { gather: Arc::clone(self), bytes: 0, of_body: false }, number: None }
    }
}

/// Unfinished heads in the order in which they began.
#[derive(Default)]
struct Heads {
    all: BTreeMap<u64, Entry>,
    next: u64,
    /// Bytes of those that are chosen to be given up, and still there.
    chosen: usize,
}

struct Entry {
    bytes: usize,
    chosen: bool,
}

/// The place of an unfinished head among those of all threads; the smaller, the older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeadNumber(u64);

/// The memory of a head while it is not whole; out of the list when this goes.
pub(crate) struct Head {
    share: Share,
    number: Option<HeadNumber>,
}

impl Head {
    /// It holds so many bytes now; 0: it is whole, or gone. `false`: more than before, and all together hold too many.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let before = self.share.bytes;
        if bytes == before {
            return true;
        }
        let fits = self.share.set(bytes);
        let mut heads = self.share.gather.heads.lock();
        match self.number {
            Some(HeadNumber(number)) if bytes == 0 => {
                self.number = None;
                if let Some(Entry { bytes, chosen: true }) = heads.all.remove(&number) {
                    heads.chosen = heads.chosen.saturating_sub(bytes);
                }
            }
            Some(HeadNumber(number)) => {
                let Heads { all, chosen, .. } = &mut *heads;
                if let Some(entry) = all.get_mut(&number) {
                    if entry.chosen {
                        *chosen = chosen.saturating_sub(entry.bytes).saturating_add(bytes);
                    }
                    entry.bytes = bytes;
                }
            }
            None => {
                let number = heads.next;
                heads.next = number.wrapping_add(1);
                heads.all.insert(number, Entry { bytes, chosen: false });
                self.number = Some(HeadNumber(number));
            }
        }
        fits || bytes < before
    }

    /// Its place, while some of it is held.
    pub(crate) fn number(&self) -> Option<HeadNumber> {
        self.number
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// What one of them holds; given back when this goes.
pub(crate) struct Share {
    gather: Arc<Gather>,
    bytes: usize,
    of_body: bool,
}

impl Share {
    /// It holds so many bytes now. `false`: all of its kind together hold too many.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let gather = &self.gather;
        let used = if self.of_body { &gather.bodies_used } else { &gather.heads_used };
        if bytes > self.bytes {
            used.fetch_add(bytes - self.bytes, Relaxed);
            gather.most.fetch_max(gather.held(), Relaxed);
        } else {
            used.fetch_sub(self.bytes - bytes, Relaxed);
        }
        self.bytes = bytes;
        if self.of_body { !gather.has_too_many_bodies() } else { !gather.is_full() }
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
        let mut shares: Vec<Share> = (0..4).map(|_| gather.body()).collect();
        let fits: Vec<bool> = shares.iter_mut().map(|share| share.set(15_000)).collect();
        assert_eq!(fits, [true, true, true, false]);
        assert!(shares[0].set(1_000));
        drop(shares);
        assert_eq!(gather.held(), 0);
    }

    #[test]
    fn bodies_cost_nobody_a_head() {
        let gather = Arc::new(Gather::default());
        gather.set_limit(100);
        let mut bodies: Vec<Share> = (0..10).map(|_| gather.body()).collect();
        for body in &mut bodies {
            body.set(30);
        }
        let mut heads: Vec<Head> = (0..3).map(|_| gather.head()).collect();
        let fits: Vec<bool> = heads.iter_mut().map(|head| head.set(20)).collect();
        assert_eq!(fits, [true, true, false], "they have half, whatever bodies hold");
        assert_eq!(gather.choose_heads(), heads[1].number());
        // The other way round a body that finds no room goes to a file.
        drop(bodies);
        heads.truncate(1);
        assert!(heads[0].set(100) && !gather.body().set(10));
    }

    #[test]
    fn the_oldest_heads_are_chosen_once() {
        let gather = Arc::new(Gather::default());
        gather.set_limit(100);
        let mut heads: Vec<Head> = (0..6).map(|_| gather.head()).collect();
        let fits: Vec<bool> = heads.iter_mut().take(5).map(|head| head.set(20)).collect();
        assert_eq!((fits, gather.choose_heads()), (vec![true; 5], None));
        assert!(!heads[5].set(20));
        // 120 are used, 75 may be.
        assert!(!gather.has_room());
        assert_eq!(gather.choose_heads(), heads[2].number());
        assert_eq!(gather.choose_heads(), None, "three are on their way out");
        assert!(gather.has_room());
        // One of them turned out to be whole, another has grown.
        assert!(heads[0].set(0));
        assert_eq!(heads[0].number(), None);
        heads[1].set(21);
        assert_eq!((gather.held(), gather.choose_heads()), (101, None));
        // One that comes back is the youngest.
        heads[0].set(20);
        assert_eq!(gather.heads.lock().chosen, 41);
        heads.drain(1..3);
        assert_eq!((gather.held(), gather.heads.lock().chosen), (80, 0));
        heads[1].set(50);
        assert_eq!(gather.choose_heads(), heads[1].number());
        drop(heads);
        assert!(gather.heads.lock().all.is_empty());
        assert_eq!((gather.held(), gather.heads.lock().chosen), (0, 0));
    }
}
