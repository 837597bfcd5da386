//! Whom to let go is decided for all threads together: each says whom it has, and the last one chooses. So it does not matter on which thread a
//! connection is, and nothing has to be counted while there is enough for all.
//!
//! A thread that says nothing, for it is held up, delays a decision until the next one is due; then those who have spoken decide. What the
//! silent ones hold is not let go of at others' expense.

use std::{
    mem,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use crate::crowd::One;

/// The least time between the beginnings of two rounds.
const BREATH: Duration = Duration::from_millis(100);
/// The same for memory once the round before is decided: what was chosen counts no more when it is asked again.
const SHORT_BREATH: Duration = Duration::from_millis(20);

/// What there is too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Memory for answers and heads: who holds most is cut off.
    Memory,
    /// Room for newcomers: who does nothing is let go.
    Room,
}

/// A connection, by its thread and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) thread: usize,
    pub(crate) id: u64,
}

/// One that may have to go, and whose it is: `None` for those without an address.
pub(crate) type Candidate = One<Option<IpAddr>, Place>;

/// What threads have said.
#[derive(Default)]
pub(crate) struct Candidates {
    pub(crate) all: Vec<Candidate>,
    /// How many were asked to go and may still be on their way.
    pub(crate) leaving: usize,
}

/// How much of the memory that is held beyond the limit is for those to give up whose threads have spoken: `excess` of `used` in all, but not
/// what the silent ones hold. Their turn comes with the next decision.
pub(crate) fn excess_of_those_who_spoke(all: &[Candidate], used: usize, excess: usize) -> usize {
    let theirs = all.iter().fold(0usize, |sum, one| sum.saturating_add(one.weight));
    excess.saturating_sub(used.saturating_sub(theirs))
}

/// One decision.
pub(crate) struct Round {
    pub(crate) want: Want,
    said: Mutex<Said>,
}

struct Said {
    said: Candidates,
    /// Threads that have not spoken yet; 0: it is decided.
    missing: usize,
}

impl Round {
    /// A thread has these. All that there are, if it is the last one.
    pub(crate) fn say(&self, mut theirs: Candidates) -> Option<Candidates> {
        let mut said = self.said.lock();
        if said.missing == 0 {
            return None;
        }
        said.said.all.append(&mut theirs.all);
        said.said.leaving = said.said.leaving.saturating_add(theirs.leaving);
        said.missing -= 1;
        (said.missing == 0).then(|| mem::take(&mut said.said))
    }

    fn is_decided(&self) -> bool {
        self.said.lock().missing == 0
    }

    /// What was said so far, if nobody has decided.
    fn end(&self) -> Option<Candidates> {
        let mut said = self.said.lock();
        (mem::take(&mut said.missing) > 0).then(|| mem::take(&mut said.said))
    }
}

/// The rounds for one thing.
#[derive(Default)]
pub(crate) struct Rounds {
    /// When the last one began: milliseconds.
    began: AtomicU64,
    last: Mutex<Option<Arc<Round>>>,
}

impl Rounds {
    /// Begins one for so many threads, if it is time for it; and what was said in the one before, if that has come to no end.
    pub(crate) fn begin(&self, want: Want, threads: usize) -> Option<(Arc<Round>, Option<Candidates>)> {
        let time = clock_gettime(ClockId::MonotonicCoarse);
        let now = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default());
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let before = self.began.load(Relaxed);
        let due = before == 0 || now >= before.saturating_add(self.breath(want).as_millis() as u64);
        // Of several threads one does it.
        if !due || self.began.compare_exchange(before, now, Relaxed, Relaxed).is_err() {
            return None;
        }
        let said = Mutex::new(Said { said: Candidates::default(), missing: threads.max(1) });
        let round = Arc::new(Round { want, said });
        let former = self.last.lock().replace(Arc::clone(&round));
        Some((round, former.and_then(|former| former.end())))
    }

    fn breath(&self, want: Want) -> Duration {
        let decided = || self.last.lock().as_ref().is_some_and(|last| last.is_decided());
        if want == Want::Memory && decided() { SHORT_BREATH } else { BREATH }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(thread: usize) -> Candidates {
        let it = Some(Place { thread, id: 7 });
        Candidates { all: vec![One { it, of: None, weight: 1, rank: (false, 0) }], leaving: 1 }
    }

    #[test]
    fn what_silent_threads_hold_is_nobody_elses_excess() {
        let of = |weights: &[usize]| {
            let ones = weights.iter().map(|weight| Candidate {
                it: None,
                of: None,
                weight: *weight,
                rank: (false, 0),
            });
            ones.collect::<Vec<_>>()
        };
        // All have spoken, and hold a little more by now.
        assert_eq!(excess_of_those_who_spoke(&of(&[60, 40]), 100, 25), 25);
        assert_eq!(excess_of_those_who_spoke(&of(&[60, 50]), 100, 25), 25);
        // The one that is silent holds more than is too much.
        assert_eq!(excess_of_those_who_spoke(&of(&[10, 20]), 100, 25), 0);
        assert_eq!(excess_of_those_who_spoke(&of(&[50, 40]), 100, 25), 15);
        assert_eq!(excess_of_those_who_spoke(&of(&[]), 100, 25), 0);
    }

    #[test]
    fn the_last_thread_decides_and_one_that_is_held_up_is_waited_for_until_the_next_time() {
        let rounds = Rounds::default();
        let (first, former) = rounds.begin(Want::Memory, 3).unwrap();
        assert!(former.is_none() && rounds.begin(Want::Memory, 3).is_none(), "not so soon");
        assert!(first.say(one(0)).is_none() && first.say(one(1)).is_none());
        let said = first.say(one(2)).unwrap();
        assert_eq!((said.all.len(), said.leaving), (3, 3));
        assert!(first.say(one(0)).is_none(), "it is decided");
        assert_eq!(rounds.breath(Want::Memory), SHORT_BREATH);
        rounds.began.store(1, Relaxed);
        let (second, former) = rounds.begin(Want::Memory, 3).unwrap();
        assert!(former.is_none() && second.say(one(0)).is_none());
        assert_eq!(rounds.breath(Want::Memory), BREATH, "it is not decided");
        rounds.began.store(1, Relaxed);
        let (_, former) = rounds.begin(Want::Memory, 3).unwrap();
        assert_eq!(former.unwrap().all.len(), 1);
        assert!(second.say(one(1)).is_none());
    }
}
