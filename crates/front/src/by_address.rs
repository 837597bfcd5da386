//! How much clients have at one time, by their address: connections, or requests.
//!
//! An address is counted only while it has something, so memory is bounded by what there is of that in all. Of IPv6 the first 64 bits
//! are one client, as providers give them to one.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{reminder::Reminder, rules::client_of};

/// Tables, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// See the module's head.
#[derive(Default)]
pub(crate) struct ByAddress {
    shards: [Mutex<HashMap<IpAddr, usize>>; SHARDS],
    hash: RandomState,
    /// When it was last said that somebody has too many.
    pub(crate) reminder: Reminder,
}

/// One that counts; when this goes, it is over.
pub(crate) struct Held {
    of: Arc<ByAddress>,
    client: IpAddr,
}

/// The address has as many as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

impl ByAddress {
    fn shard(&self, client: IpAddr) -> Option<&Mutex<HashMap<IpAddr, usize>>> {
        self.shards.get(self.hash.hash_one(client) as usize % SHARDS)
    }

    /// One more for this address, of `most` at one time.
    pub(crate) fn take(self: &Arc<Self>, addr: IpAddr, most: usize) -> Result<Held, TooMany> {
        let client = client_of(addr);
        if let Some(shard) = self.shard(client) {
            let mut counts = shard.lock();
            let count = counts.get(&client).copied().unwrap_or_default();
            if count >= most {
                return Err(TooMany);
            }
            counts.insert(client, count.saturating_add(1));
        }
        Ok(Held { of: Arc::clone(self), client })
    }

    /// Whether one more would be too many. It takes nothing, so another may be faster.
    pub(crate) fn is_full(&self, addr: IpAddr, most: usize) -> bool {
        let client = client_of(addr);
        self.shard(client).is_some_and(|shard| shard.lock().get(&client).is_some_and(|count| *count >= most))
    }

    #[cfg(test)]
    fn known(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(shard) = self.of.shard(self.client) else { return };
        let mut counts = shard.lock();
        match counts.get_mut(&self.client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(counts.remove(&self.client)),
        }
        // After a crowd of addresses has gone its table is given back.
        if counts.is_empty() && counts.capacity() > 64 {
            *counts = HashMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_part_and_none_is_remembered() {
        let counts = Arc::new(ByAddress::default());
        let take = |text: &str| counts.take(text.parse().unwrap(), 2);
        let first = (take("192.0.2.1").unwrap(), take("192.0.2.1").unwrap());
        assert_eq!(take("192.0.2.1").err(), Some(TooMany));
        let full = |text: &str| counts.is_full(text.parse().unwrap(), 2);
        assert!(full("192.0.2.1") && full("::ffff:192.0.2.1") && !full("192.0.2.2"));
        let other = take("192.0.2.2").unwrap();
        drop(first.0);
        let again = take("192.0.2.1").unwrap();
        assert!(take("192.0.2.1").is_err());
        drop((first.1, again, other));
        assert_eq!(counts.known(), 0);
    }

    #[test]
    fn neighbours_in_ipv6_are_one_and_an_address_is_the_same_in_both_notations() {
        let counts = Arc::new(ByAddress::default());
        let take = |text: &str| counts.take(text.parse().unwrap(), 1);
        let _held = (take("2001:db8::1").unwrap(), take("192.0.2.1").unwrap());
        assert!(take("2001:db8::ffff:2").is_err());
        assert!(take("2001:db8:0:1::1").is_ok());
        assert!(take("::ffff:192.0.2.1").is_err());
    }
}
