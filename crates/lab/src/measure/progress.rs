//! How far an experiment is, and how long the rest of it may take.

use std::time::{Duration, Instant};

use super::Planned;
use crate::{
    data::{Kind, Load},
    output::status,
};

/// Seconds to start an engine, to check it and to stop it, about.
const AROUND: f64 = 0.7;
/// Loads of a search for limits, about.
const STEPS: f64 = 15.0;
/// Expected seconds that have to be over before what they really took corrects the rest.
const ENOUGH: f64 = 10.0;

/// Seconds that a measurement may take.
pub fn expected(kind: Kind, load: &Load, warm_up: f64) -> f64 {
    let loads = if kind == Kind::Saturate { STEPS } else { 1.0 };
    load.expected() * loads + warm_up + AROUND
}

/// See the module.
#[derive(Debug, Default)]
pub struct Progress {
    /// Measurements that are over, and all of them.
    count: (usize, usize),
    /// Seconds that were expected for those that are over, and for the others.
    expected: (f64, f64),
    /// What those that are over really took.
    took: Duration,
}

impl Progress {
    /// There is more to do.
    pub fn add(&mut self, kind: Kind, rounds: u32, warm_up: f64, planned: &[Planned]) {
        for planned in planned.iter().filter(|planned| planned.presence.missing.is_empty()) {
            self.count.1 += rounds as usize;
            self.expected.1 += f64::from(rounds) * expected(kind, &planned.load, warm_up);
        }
    }

    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.count.0 >= self.count.1
    }

    /// Measurements of all.
    pub fn all(&self) -> usize {
        self.count.1
    }

    /// Seconds that are left: what is expected, corrected by how wrong that was so far.
    pub fn left(&self) -> f64 {
        let (over, left) = self.expected;
        let wrong = if over < ENOUGH { 1.0 } else { self.took.as_secs_f64() / over };
        left * wrong.clamp(0.5, 5.0)
    }

    /// A measurement of one subject; on a terminal it is said what runs and how long all may still take.
    pub fn during<T>(&mut self, name: &str, seconds: f64, measure: impl FnOnce() -> T) -> T {
        status::working(&format!("{name}, {} of {}", self.count.0 + 1, self.count.1), self.left());
        let begin = Instant::now();
        let done = measure();
        status::clear();
        self.took += begin.elapsed();
        self.over(seconds);
        done
    }

    /// One will not be made after all.
    pub fn without(&mut self, seconds: f64) {
        self.count.1 -= 1;
        self.expected.1 = (self.expected.1 - seconds).max(0.0);
    }

    fn over(&mut self, seconds: f64) {
        self.count.0 += 1;
        self.expected.0 += seconds;
        self.expected.1 = (self.expected.1 - seconds).max(0.0);
    }
}

/// `about 40 s`, `about 12 min`, `about 1 h 32 min`.
pub fn about(seconds: f64) -> String {
    // Nobody wants seconds of an estimate of minutes.
    let minutes = (seconds / 60.0).round() as u64;
    match seconds {
        s if s < 100.0 => format!("about {:.0} s", s.max(1.0)),
        s if s < 5400.0 => format!("about {minutes} min"),
        _ => format!("about {} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_what_it_took() {
        let mut progress = Progress { count: (0, 4), expected: (0.0, 80.0), took: Duration::ZERO };
        assert_eq!(about(progress.left()), "about 80 s");
        progress.took = Duration::from_secs(40);
        progress.over(20.0);
        // It took twice as long as expected.
        assert_eq!(about(progress.left()), "about 2 min");
        progress.without(20.0);
        assert_eq!((progress.left(), progress.all(), progress.is_over()), (80.0, 3, false));
        progress.over(20.0);
        progress.over(20.0);
        assert!(progress.is_over() && progress.left() == 0.0);
        assert_eq!(about(5500.0), "about 1 h 32 min");
    }
}
