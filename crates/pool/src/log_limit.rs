//! How much an application may log: so much that no application in its right mind comes near it, and so little that one which logs without
//! end neither fills the server's log faster than that can be written, nor takes the serving thread's time, nor crowds out the others' lines.
//!
//! What is over the limit is dropped and counted, and said in the log every few seconds and when it is over.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Bytes and records of a second, in the long run.
const BYTES: f64 = 1_048_576.0;
const RECORDS: f64 = 5_000.0;
/// As many seconds' worth may come at once.
const BURST: f64 = 4.0;
/// When more bytes than this wait to be written, who logs much waits for the others: an application that has used more than an eighth of
/// its burst logs nothing until fewer do.
const BACKLOG: usize = 1 << 20;
const QUIET: f64 = 7.0 / 8.0;
/// How often lost lines are spoken of while they are being lost.
const SAID_EVERY: Duration = Duration::from_secs(5);
const SAID_AGAIN: Duration = Duration::from_secs(1);

static BACKLOG_OF: OnceLock<fn() -> usize> = OnceLock::new();
/// Lines dropped, by application, since the start. Generations and hosts come and go. A lock that blocks is fit for it: it is held for one
/// look into the map or one addition, never across a wait, and by the thread that supervises the pools alone, which serves no connection.
static DROPPED: Mutex<BTreeMap<Arc<str>, u64>> = Mutex::new(BTreeMap::new());

/// Says how to learn how many bytes of the log wait to be written. Without it none do.
pub fn set_log_backlog(of: fn() -> usize) {
    let _ = BACKLOG_OF.set(of);
}

/// Lines of this application's that were dropped since the start.
pub(crate) fn dropped(app: &str) -> u64 {
    DROPPED.lock().unwrap_or_else(PoisonError::into_inner).get(app).copied().unwrap_or_default()
}

/// One application's allowance, of one host.
pub(crate) struct Limit {
    app: Arc<str>,
    /// What is left, in seconds' worth.
    bytes: f64,
    records: f64,
    at: Instant,
    dropped: u64,
    said: Instant,
}

impl Limit {
    pub(crate) fn new(app: Arc<str>, now: Instant) -> Limit {
        Limit { app, bytes: BURST, records: BURST, at: now, dropped: 0, said: now }
    }

    /// Whether a record of so many bytes may be logged; if not it is counted, as so many lines.
    pub(crate) fn admits(&mut self, now: Instant, bytes: usize, lines: u64) -> bool {
        let passed = now.saturating_duration_since(mem::replace(&mut self.at, now)).as_secs_f64();
        self.bytes = (self.bytes + passed).min(BURST);
        self.records = (self.records + passed).min(BURST);
        let crowded = BACKLOG_OF.get().map_or(0, |backlog| backlog()) > BACKLOG;
        let needed = if crowded { BURST * QUIET } else { 0.0 };
        if self.bytes < needed || self.records < needed || self.bytes <= 0.0 || self.records <= 0.0 {
            self.dropped += lines;
            *DROPPED
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(Arc::clone(&self.app))
                .or_default() += lines;
            return false;
        }
        self.bytes -= bytes as f64 / BYTES;
        self.records -= 1.0 / RECORDS;
        true
    }

    /// How many lines were dropped, if it is time to say so: now and then, and sooner when one was logged again, which there may be many of.
    pub(crate) fn take_dropped(&mut self, now: Instant, logged: bool) -> Option<u64> {
        let silent = now.saturating_duration_since(self.said);
        let due = self.dropped > 0 && (silent >= SAID_EVERY || (logged && silent >= SAID_AGAIN));
        due.then(|| {
            self.said = now;
            mem::take(&mut self.dropped)
        })
    }

    /// The same, when no more will come.
    pub(crate) fn take_last_dropped(&mut self) -> Option<u64> {
        (self.dropped > 0).then(|| mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flood(limit: &mut Limit, from: Instant, seconds: u32, bytes: usize, each: u32) -> u64 {
        let step = Duration::from_secs(1) / each;
        (0..seconds * each).filter(|n| limit.admits(from + step * *n, bytes, 1)).count() as u64
    }

    #[test]
    fn who_logs_without_end_gets_so_much_and_the_rest_is_counted() {
        let now = Instant::now();
        let mut limit = Limit::new("flood".into(), now);
        let admitted = flood(&mut limit, now, 10, 100, 100_000);
        let most = RECORDS * (10.0 + BURST);
        assert!((admitted as f64 - most).abs() < most / 100.0, "{admitted} of {most}");
        assert_eq!(dropped("flood"), 1_000_000 - admitted);
        let mut limit = Limit::new("wide".into(), now);
        let admitted = flood(&mut limit, now, 10, 100_000, 1000);
        let most = BYTES * (10.0 + BURST) / 100_000.0;
        assert!((admitted as f64 - most).abs() < most / 50.0, "{admitted} of {most}");
        let later = now + Duration::from_secs(100);
        assert!(limit.admits(later, 100, 1), "afterwards it may go on");
        assert_eq!(limit.take_dropped(later, true), Some(10_000 - admitted));
        assert_eq!(limit.take_dropped(later, true), None);
    }

    #[test]
    fn who_logs_as_much_as_others_do_loses_nothing() {
        let now = Instant::now();
        let mut limit = Limit::new("steady".into(), now);
        assert_eq!(flood(&mut limit, now, 20, 200, 4_000), 80_000);
        assert_eq!((dropped("steady"), limit.take_dropped(now, true)), (0, None));
    }
}
