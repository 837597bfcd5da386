//! How many slow requests the log tells of. Each costs the zygote some hundred reads and the application's log up to 16 KB, and where a page is slow,
//! visitors bring it about as often as they like: what the application itself has to say must not be crowded out.
//!
//! It promises [`BURST`] at once and [`RATE`] a second in the long run, and that what was left out is said with the next.

use std::time::Duration;

use tokio::time::Instant;

/// At once: as many as hang where something that all need hangs.
pub(crate) const BURST: u32 = 256;
/// A second.
const RATE: u32 = 4;

/// Of one application.
pub(crate) struct Told {
    /// It may tell of [`BURST`] at once when this has passed. It is moved on by each: a leaky bucket, as one number.
    empty_at: Instant,
    left_out: u64,
}

impl Told {
    pub(crate) fn new(now: Instant) -> Told {
        Told { empty_at: now, left_out: 0 }
    }

    /// Whether one may be told; with it, how many were left out since the last one. If not, it is one of those.
    pub(crate) fn admits(&mut self, now: Instant) -> Option<u64> {
        let next = self.empty_at.max(now) + Duration::from_secs(1) / RATE;
        if next > now + Duration::from_secs(1) * BURST / RATE {
            self.left_out += 1;
            return None;
        }
        self.empty_at = next;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_told_and_then_some_a_second() {
        let start = Instant::now();
        let mut told = Told::new(start);
        let burst: Vec<_> = (0..BURST + 10).filter_map(|_| told.admits(start)).collect();
        assert_eq!(burst, vec![0; BURST as usize]);
        let later = start + Duration::from_secs(1);
        let told_later: Vec<_> = (0..100).filter_map(|_| told.admits(later)).collect();
        assert_eq!(told_later, [10, 0, 0, 0]);
        let much_later = start + Duration::from_secs(1000);
        assert_eq!(told.admits(much_later), Some(96));
    }
}
