//! Says a thing once a minute, and how often it has happened, so that nobody fills the log from outside.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hayate_http::seconds;

/// Seconds before the same is said again.
const PAUSE: u64 = 60;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Reminder {
    /// In [`seconds`]; 0: never yet.
    said: AtomicU64,
    times: AtomicU64,
}

impl Reminder {
    /// For one that lasts as long as the process.
    pub(crate) const fn new() -> Reminder {
        Reminder { said: AtomicU64::new(0), times: AtomicU64::new(0) }
    }

    /// It has happened. How often since it was last spoken of, if it is time to speak of it.
    pub(crate) fn happened(&self) -> Option<u64> {
        self.at(seconds())
    }

    fn at(&self, now: u64) -> Option<u64> {
        self.times.fetch_add(1, Relaxed);
        let before = self.said.load(Relaxed);
        let due = before == 0 || before.saturating_add(PAUSE) <= now;
        // Of several threads one speaks.
        (due && self.said.compare_exchange(before, now, Relaxed, Relaxed).is_ok())
            .then(|| self.times.swap(0, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_a_minute_with_its_number() {
        let reminder = Reminder::default();
        let said: Vec<_> = [5, 5, 64, 65, 65, 200].iter().map(|now| reminder.at(*now)).collect();
        assert_eq!(said, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
