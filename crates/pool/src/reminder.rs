//! Says a thing at most once a minute, and then how often it happened meanwhile: a log is to name the trouble, not to be it.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

const PAUSE: Duration = Duration::from_secs(60);

/// What was said when, by its label.
#[derive(Debug, Default)]
pub(crate) struct Reminder {
    said: HashMap<&'static str, (Instant, u64)>,
}

impl Reminder {
    /// Notes that something happened. `Some`: it is to be said now, with the number of times that were passed over since the last time.
    pub(crate) fn happened(&mut self, label: &'static str, now: Instant) -> Option<u64> {
        match self.said.get_mut(label) {
            Some((at, silent)) if now.duration_since(*at) < PAUSE => {
                *silent += 1;
                None
            }
            known => {
                let silent = known.map_or(0, |(_, silent)| *silent);
                self.said.insert(label, (now, 0));
                Some(silent)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_a_minute_and_each_reason_by_itself() {
        let (mut reminder, start) = (Reminder::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(reminder.happened("a", at(0)), Some(0));
        assert_eq!(reminder.happened("a", at(1)), None);
        assert_eq!(reminder.happened("b", at(2)), Some(0));
        assert_eq!(reminder.happened("a", at(59)), None);
        assert_eq!(reminder.happened("a", at(60)), Some(2));
        assert_eq!(reminder.happened("a", at(61)), None);
        assert_eq!(reminder.happened("b", at(200)), Some(0));
    }
}
