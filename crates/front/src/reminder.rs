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
        self.have_happened(1)
    }

    /// The same of several at a time; of none: what has not been spoken of yet is, once it is time.
    pub(crate) fn have_happened(&self, times: u64) -> Option<u64> {
        self.at(seconds(), times)
    }

    fn at(&self, now: u64, times: u64) -> Option<u64> {
        if self.times.fetch_add(times, Relaxed).saturating_add(times) == 0 {
            return None;
        }
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
        let said: Vec<_> = [5, 5, 64, 65, 65, 200].iter().map(|now| reminder.at(*now, 1)).collect();
        assert_eq!(said, [Some(1), None, None, Some(3), None, Some(2)]);
        assert_eq!((reminder.at(201, 7), reminder.at(270, 5)), (None, Some(12)));
        assert_eq!((reminder.at(400, 0), reminder.at(401, 3), reminder.at(402, 1)), (None, Some(3), None));
        assert_eq!((reminder.at(460, 0), reminder.at(461, 0), reminder.at(600, 0)), (None, Some(1), None));
    }
}
