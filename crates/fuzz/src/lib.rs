//! Broken input for the tests of parsers: seeds are mutated at random, and each parser has to keep its promises, or at least not to
//! panic. A moment with every `cargo test`; `make fuzz` for hours (`FUZZ_SECONDS` for each; `FUZZ_SEED` repeats a run).
//!
//! A plain loop, for cargo-fuzz wants a nightly compiler: it has no coverage to follow, and makes up for it by seeds that reach everywhere.
//! For tests only.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

/// How long a parser is fed when nobody says otherwise.
const MOMENT: Duration = Duration::from_millis(1500);

/// xorshift64*: repeatable, and good enough to choose what to break.
pub struct Random(u64);

impl Random {
    /// The same sequence for the same seed; 0 is taken as 1.
    pub fn new(seed: u64) -> Random {
        Random((seed | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`; 0 when that is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.any() >> 16) as usize % n.max(1)
    }

    /// One of them, of which there has to be one.
    pub fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// One of `seeds` with up to five changes, for which `pieces` are at hand.
    pub fn mutant(&mut self, seeds: &[&[u8]], pieces: &[&[u8]]) -> Vec<u8> {
        let mut bytes = self.pick(seeds).to_vec();
        for _ in 0..self.below(6) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(8)).min(bytes.len());
            match self.below(6) {
                0 => drop(bytes.splice(at..at, self.pick(pieces).iter().copied())),
                1 => drop(bytes.drain(at..end)),
                2 => drop(bytes.splice(at..end, self.pick(pieces).iter().copied())),
                3 if at < bytes.len() => bytes[at] = self.any() as u8,
                4 => {
                    let again = bytes[at..end].to_vec();
                    drop(bytes.splice(at..at, again));
                }
                _ => {
                    let other = self.pick(seeds);
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[self.below(other.len())..]);
                }
            }
        }
        bytes
    }
}

/// Feeds `one` with mutants of `seeds` for a while.
///
/// # Panics
/// When `one` does; the message has the seed of the run and the input.
pub fn run(name: &str, seeds: &[&[u8]], pieces: &[&[u8]], mut one: impl FnMut(&mut Random, &[u8])) {
    let said = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let time = said("FUZZ_SECONDS").map_or(MOMENT, Duration::from_secs);
    let seed = said("FUZZ_SEED").unwrap_or_else(|| std::process::id().into()) | 1;
    let (start, mut executions) = (Instant::now(), 0u64);
    let mut random = Random::new(seed);
    while start.elapsed() < time {
        for _ in 0..100 {
            let input = random.mutant(seeds, pieces);
            let outcome = catch_unwind(AssertUnwindSafe(|| one(&mut random, &input)));
            executions += 1;
            let shown = input.escape_ascii();
            assert!(outcome.is_ok(), "{name}, FUZZ_SEED={seed}, execution {executions}: {shown}");
        }
    }
    println!("fuzz {name}: {executions} executions in {:?}, FUZZ_SEED={seed}", start.elapsed());
}
