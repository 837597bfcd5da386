//! How fast a client sends a body, and how fast it takes an answer. Only time counts in which it was waited for.

use std::{
    fmt,
    rc::Rc,
    time::{Duration, Instant},
};

use crate::Limits;

/// Over how long a body is watched while others wait for the worker that reads it.
const WANTED: Duration = Duration::from_secs(3);
/// The same while others wait for the space that it is stored in: an honest line may stall for longer than [`WANTED`].
const STORED: Duration = Duration::from_secs(10);
/// In how long all that is stored of such a body would have to come.
const WHOLE: Duration = Duration::from_secs(600);

/// Follows one body. Nothing of it costs anything as long as nobody has to wait for the client.
#[derive(Default)]
pub(crate) struct Pace {
    /// Bytes.
    received: u64,
    waited: Duration,
    /// For how long it was waited, less the time that what came may take: never less than nothing, so what came quickly is no credit.
    behind: Duration,
    /// It is waited for now.
    since: Option<Instant>,
    /// What the first two were when it was last looked at, [`WANTED`] or [`STORED`] ago or less.
    lately: (u64, Duration),
    slow_lately: bool,
    wanted: Option<Rc<dyn Fn() -> bool>>,
    /// What it holds is the space that it is stored in, not a worker.
    stored: bool,
    /// As [`Limits`] has them.
    rate: u64,
    timeout: Duration,
}

impl Pace {
    pub(crate) fn end(&mut self) {
        if self.received > 0 || self.since.is_some() || self.wanted.is_some() {
            *self = Pace::default();
        }
    }

    pub(crate) fn hurry(&mut self, stored: bool, wanted: Rc<dyn Fn() -> bool>) {
        (self.stored, self.wanted) = (stored, Some(wanted));
    }

    pub(crate) fn waits(&mut self, limits: &Limits) {
        (self.rate, self.timeout) = (limits.body_rate, limits.body_timeout);
        if self.rate > 0 {
            self.since.get_or_insert_with(Instant::now);
        }
    }

    pub(crate) fn came(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes as u64);
        let waited = self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.waited = self.waited.saturating_add(waited);
        self.behind = behind(self.behind, waited, bytes, self.rate);
    }

    /// Further behind [`Limits::body_rate`] than a single pause may last; or below it lately, where others wait for what it holds up. One
    /// that is stored has to come faster the more of it there is: so that all of it would have come in [`WHOLE`].
    pub(crate) fn is_too_slow(&mut self) -> bool {
        let Some(since) = self.since else { return false };
        let pause = since.elapsed();
        let waited = self.waited.saturating_add(pause);
        if self.rate == 0 || waited < WANTED {
            return false;
        }
        let (received, since) = self.lately;
        let (over, share) = if self.stored { (STORED, self.received / WHOLE.as_secs()) } else { (WANTED, 0) };
        if waited.saturating_sub(since) >= over {
            let enough = self.rate.max(share).saturating_mul(over.as_secs());
            self.slow_lately = self.received.saturating_sub(received) < enough;
            self.lately = (self.received, waited);
        }
        self.behind.saturating_add(pause) > self.timeout
            || (self.slow_lately && self.wanted.as_ref().is_some_and(|wanted| wanted()))
    }
}

/// How far somebody is behind who was waited for, and for whom `bytes` went at last; `rate`: the least, in bytes a second, 0 for none.
fn behind(before: Duration, waited: Duration, bytes: usize, rate: u64) -> Duration {
    // Not in milliseconds: at 100,000 bytes a second a piece of 99 would be worth nothing, and pieces of 199 half of what they are.
    let allowed = (bytes as u64).saturating_mul(1_000_000_000).checked_div(rate).unwrap_or(u64::MAX);
    before.saturating_add(waited).saturating_sub(Duration::from_nanos(allowed))
}

/// How far a client is behind with taking an answer: the time for which it was waited, less the time that what it took may take at the
/// least rate. Never less than nothing, so that a quick beginning is no credit for the rest.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Lag {
    behind: Duration,
    /// It is waited for now.
    since: Option<Instant>,
    /// What it may be behind.
    patience: Duration,
}

impl Lag {
    /// It has taken so many bytes, and is waited for from now on if it takes no more for now.
    pub(crate) fn wrote(self, pending: bool, bytes: usize, limits: &Limits) -> Lag {
        let now = Instant::now();
        let waited = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.after(waited, bytes, limits.write_rate).until(pending.then_some(now), limits)
    }

    fn after(self, waited: Duration, bytes: usize, rate: u64) -> Lag {
        Lag { behind: behind(self.behind, waited, bytes, rate), ..self }
    }

    fn until(self, since: Option<Instant>, limits: &Limits) -> Lag {
        Lag { since, patience: limits.write_timeout, ..self }
    }

    pub(crate) fn is_too_long(&self) -> bool {
        self.since.is_some_and(|since| self.behind.saturating_add(since.elapsed()) > self.patience)
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("received", &self.received).field("waited", &self.waited).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body of which so many bytes have come in so many seconds of waiting, and that is waited for now.
    fn pace(received: u64, waited: u64) -> Pace {
        let limits = Limits { body_rate: 100, body_timeout: Duration::from_secs(60), ..Limits::default() };
        let waited = Duration::from_secs(waited);
        let behind = behind(Duration::ZERO, waited, received as usize, limits.body_rate);
        let mut pace = Pace { received, waited, behind, ..Pace::default() };
        pace.waits(&limits);
        pace
    }

    #[test]
    fn a_body_has_a_least_rate_beside_its_pauses() {
        assert!(!pace(0, 59).is_too_slow());
        assert!(pace(0, 61).is_too_slow());
        assert!(!pace(100_000, 1059).is_too_slow());
        assert!(pace(100_000, 1061).is_too_slow());
        // What is quick in the beginning has no credit.
        let mut late = pace(1 << 30, 10);
        late.behind += Duration::from_secs(61);
        assert!(late.is_too_slow());
        let mut between = pace(0, 61);
        between.came(0);
        assert!(!between.is_too_slow(), "nobody waits for it now");
    }

    #[test]
    fn whoever_takes_an_answer_too_slowly_falls_behind() {
        let limits = Limits { write_rate: 100, write_timeout: Duration::from_secs(60), ..Limits::default() };
        let wait = |lag: Lag, seconds: u64, bytes: usize| {
            lag.after(Duration::from_secs(seconds), bytes, limits.write_rate)
                .until(Some(Instant::now()), &limits)
        };
        let mut drip = Lag::default();
        for second in 0..60 {
            assert!(!drip.is_too_long(), "{second}");
            drip = wait(drip, 1, 1);
        }
        assert!(!drip.is_too_long(), "60 bytes are worth 0.6 s");
        assert!(wait(drip, 1, 1).is_too_long());
        // What is quick in the beginning has no credit.
        let mut late = wait(Lag::default(), 1, 1 << 30);
        for _ in 0..61 {
            late = wait(late, 1, 0);
        }
        assert!(late.is_too_long());
        // In large pieces, with pauses, at the rate.
        let mut bursts = Lag::default();
        for _ in 0..100 {
            bursts = wait(bursts, 50, 5_000);
            assert!(!bursts.is_too_long());
        }
        assert!(!drip.until(None, &limits).is_too_long(), "nobody waits for it");
    }

    #[test]
    fn small_pieces_are_worth_as_much_as_large_ones() {
        let mut small = Duration::ZERO;
        for _ in 0..10_000 {
            // 50 bytes each half of a millisecond, at 100,000 a second.
            small = behind(small, Duration::from_micros(500), 50, 100_000);
        }
        assert_eq!(small, Duration::ZERO);
    }

    #[test]
    fn one_that_others_wait_for_has_less_patience() {
        let mut slow = pace(200, 10);
        slow.hurry(false, Rc::new(|| false));
        assert!(!slow.is_too_slow(), "nobody wants what it holds");
        slow.hurry(false, Rc::new(|| true));
        assert!(slow.is_too_slow());
        let mut fast = pace(400, 10);
        fast.hurry(false, Rc::new(|| true));
        assert!(!fast.is_too_slow());
        // Much of it is stored: ten minutes for all of that, and no less than ten seconds are looked at.
        let held = |stored: bool, lately: u64, since: u64| {
            let mut body = pace(60_000_000, 20);
            body.hurry(stored, Rc::new(|| true));
            body.lately = (60_000_000 - lately, Duration::from_secs(since));
            body.is_too_slow()
        };
        assert!(held(true, 999_000, 9) && !held(true, 1_001_000, 9));
        assert!(!held(true, 0, 13), "a pause of seven seconds");
        // A worker that reads as it comes holds nothing else: the least rate, however much has gone through it.
        assert!(held(false, 299, 16) && !held(false, 500, 16));
    }
}
