//! How often a visitor may ask: a leaky bucket for each key, by the generic cell rate algorithm (ITU-T I.371). A bucket is one number, the
//! time at which it will be empty; a bucket that is empty is as good as none, so forgetting it loses nothing.
//!
//! It promises that what a rule remembers is bounded, [`KEYS`] keys, however many visitors there are. When all of them are owed something
//! at once, those that asked least are forgotten first: whoever floods stays known. The time is given by the caller.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hash},
    net::IpAddr,
    time::Duration,
};

use parking_lot::Mutex;

use super::spec::{RateBy, RateSpec, client_of};

/// Keys that are remembered, in all shards together: about 4 MB.
pub(crate) const KEYS: usize = 65_536;
const SHARDS: usize = 16;

/// The buckets of one rule.
pub(crate) struct Limiter {
    /// ns between two requests at the steady rate.
    interval: u64,
    /// ns that a bucket may be ahead of the time.
    ahead: u64,
    by: RateBy,
    hash: (RandomState, RandomState),
    shards: [Mutex<HashMap<u128, u64>>; SHARDS],
}

/// Too often: seconds after which the next request will be let through, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooOften(pub(crate) u64);

impl Limiter {
    pub(crate) fn new(spec: &RateSpec) -> Limiter {
        let per = u64::try_from(spec.per.as_nanos()).unwrap_or(u64::MAX);
        let interval = (per / u64::from(spec.requests.max(1))).max(1);
        Limiter {
            interval,
            ahead: interval.saturating_mul(u64::from(spec.burst)),
            by: spec.by.clone(),
            hash: Default::default(),
            shards: Default::default(),
        }
    }

    /// Who is counted as one.
    pub(crate) fn by(&self) -> &RateBy {
        &self.by
    }

    /// For an address.
    pub(crate) fn address(&self, addr: IpAddr) -> u128 {
        match client_of(addr) {
            IpAddr::V4(addr) => addr.to_bits().into(),
            IpAddr::V6(addr) => addr.to_bits() | 1,
        }
    }

    /// For anything else. Two that are not the same have another key: nobody knows by what they are hashed.
    pub(crate) fn key(&self, what: &(impl Hash + ?Sized)) -> u128 {
        u128::from(self.hash.0.hash_one(what)) << 64 | u128::from(self.hash.1.hash_one(what))
    }

    /// Counts a request at the time `now`, in ns of a clock that never goes back.
    pub(crate) fn admit(&self, key: u128, now: u64) -> Result<(), TooOften> {
        let at = self.hash.0.hash_one(key) as usize % SHARDS;
        let Some(shard) = self.shards.get(at) else { return Ok(()) };
        let mut buckets = shard.lock();
        let empty_at = buckets.get(&key).copied().unwrap_or(now).max(now);
        if empty_at - now > self.ahead {
            let wait = Duration::from_nanos(empty_at - now - self.ahead);
            return Err(TooOften(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)));
        }
        if buckets.len() >= KEYS / SHARDS && !buckets.contains_key(&key) {
            forget(&mut buckets, now);
        }
        buckets.insert(key, empty_at.saturating_add(self.interval));
        Ok(())
    }

    #[cfg(test)]
    fn remembered(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

/// Forgets what is empty; if that is little, also the half that is owed least. So it is done once for many new keys.
fn forget(buckets: &mut HashMap<u128, u64>, now: u64) {
    buckets.retain(|_, empty_at| *empty_at > now);
    if buckets.len() > KEYS / SHARDS / 4 * 3 {
        let mut all: Vec<u64> = buckets.values().copied().collect();
        let half = all.len() / 2;
        let (_, median, _) = all.select_nth_unstable(half);
        let median = *median;
        let mut left = KEYS / SHARDS / 2;
        buckets.retain(|_, empty_at| {
            let keep = *empty_at > median || (*empty_at == median && left > 0);
            left = left.saturating_sub(usize::from(keep));
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn limiter(requests: u32, burst: u32) -> Limiter {
        Limiter::new(&RateSpec { requests, per: Duration::from_secs(1), burst, by: RateBy::Address })
    }

    #[test]
    fn a_burst_is_let_through_and_then_the_steady_rate() {
        let limiter = limiter(5, 10);
        let many = |now: u64, n: usize| (0..n).filter(|_| limiter.admit(1, now).is_ok()).count();
        assert_eq!(many(100 * SECOND, 100), 11, "one, and a burst of ten");
        assert_eq!(limiter.admit(1, 100 * SECOND), Err(TooOften(1)));
        assert_eq!(many(101 * SECOND, 100), 5);
        assert_eq!(many(101 * SECOND, 100), 0);
        assert_eq!(many(1000 * SECOND, 100), 11, "as if it had never asked");
        assert_eq!(limiter.admit(2, 1000 * SECOND), Ok(()), "another is not concerned");
        // A clock that stands still, or goes back, lets nobody through twice.
        assert_eq!(many(999 * SECOND, 100), 0);
    }

    #[test]
    fn a_refusal_says_when_to_come_again() {
        let slow =
            Limiter::new(&RateSpec { requests: 6, per: Duration::from_secs(60), burst: 0, by: RateBy::All });
        assert_eq!(slow.admit(0, SECOND), Ok(()));
        assert_eq!(slow.admit(0, 2 * SECOND), Err(TooOften(9)));
        assert_eq!(slow.admit(0, 10 * SECOND), Err(TooOften(1)));
        assert_eq!(slow.admit(0, 11 * SECOND), Ok(()));
    }

    #[test]
    fn memory_is_bounded_and_whoever_floods_stays_known() {
        let limiter = limiter(1, 20);
        let flooder = limiter.address("192.0.2.1".parse().unwrap());
        while limiter.admit(flooder, SECOND).is_ok() {}
        for n in 0..100_000u32 {
            let addr = std::net::Ipv4Addr::from_bits(0x0a00_0000 + n);
            assert_eq!(limiter.admit(limiter.address(addr.into()), SECOND), Ok(()));
            assert!(limiter.remembered() <= KEYS);
        }
        assert!(limiter.remembered() > KEYS / 4);
        assert!(limiter.admit(flooder, SECOND).is_err());
        // All of them are forgotten once they are owed nothing, when there is no more room.
        for n in 0..100_000u128 {
            let _ = limiter.admit(n << 64 | 1, 1000 * SECOND);
        }
        assert!(limiter.remembered() <= KEYS);
    }

    #[test]
    fn neighbours_in_ipv6_are_one() {
        let limiter = limiter(1, 0);
        let key = |text: &str| limiter.address(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
        assert_ne!(key("2001:db8:0:1::1"), key("2001:db8::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_ne!(key("0.0.0.0"), key("::"));
        assert_ne!(limiter.key("a"), limiter.key("b"));
    }
}
