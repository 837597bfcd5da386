//! Who knows which names there are is asked before a certificate is ordered on demand, and before it is renewed.
//!
//! It promises that one who gives no answer holds up no other work: after a silence nobody is asked for ten seconds. The log hears of it once a
//! minute, and of names to which he says no as often: visitors think of names without end.

use std::time::Duration;

use tokio::time::Instant;

use super::demand::{Ask, Word};
use crate::certificate::now;

/// Seconds after which somebody who gave no answer is asked about a name again.
const AGAIN: i64 = 60;
/// Seconds for which he is asked about no other name after he has said nothing at all, which may take ten seconds each time.
const SILENCE: i64 = 10;
/// How often the log hears of the same.
const TOLD: Duration = Duration::from_secs(60);

/// What becomes of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Yes,
    No,
    /// There was no answer; after so many seconds he may be asked again.
    Unknown(i64),
}

/// What is remembered of one who is asked.
#[derive(Debug, Default)]
pub(super) struct Vouching {
    /// He is not asked before: seconds since the epoch.
    silent_until: i64,
    complained: Told,
    refused: Told,
}

/// When the log last heard of something, and how often that has happened since.
#[derive(Debug, Default)]
struct Told(Option<Instant>, u64);

impl Told {
    /// It has happened; so many times, if the log is to hear of it now.
    fn happened(&mut self) -> Option<u64> {
        let Told(at, times) = self;
        *times = times.saturating_add(1);
        if at.is_some_and(|at| at.elapsed() < TOLD) {
            return None;
        }
        *at = Some(Instant::now());
        Some(std::mem::take(times))
    }
}

impl Vouching {
    /// What becomes of a name about which nobody is to be asked now.
    pub(super) fn is_silent(&self) -> Option<Verdict> {
        let silent = self.silent_until.saturating_sub(now());
        // What is further away was noted by a clock that was set back since.
        (1..=SILENCE).contains(&silent).then_some(Verdict::Unknown(silent))
    }

    /// What becomes of a name after what was said about it.
    pub(super) fn hear(&mut self, host: &str, ask: &Ask, word: Word) -> Verdict {
        let why = match word {
            Word::Yes => return Verdict::Yes,
            Word::No => return Verdict::No,
            Word::Odd(why) => why,
            Word::Silence(why) => {
                self.silent_until = now().saturating_add(SILENCE);
                why
            }
        };
        if let Some(times) = self.complained.happened() {
            tracing::warn!(
                host,
                times,
                "no certificate is ordered: {ask}, which on_demand_ask names, cannot be asked: {why}; only what is in the last tenth of its \
                 life is renewed all the same"
            );
        }
        Verdict::Unknown(AGAIN)
    }

    /// He said no to a name that has no certificate.
    pub(super) fn refused(&mut self, host: &str, ask: &Ask) {
        if let Some(times) = self.refused.happened() {
            tracing::info!(
                host,
                times,
                "no certificate is ordered: {ask}, which on_demand_ask names, says no; said once a minute at most"
            );
        }
    }
}
