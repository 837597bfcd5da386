//! What quinn keeps of connections, of those that are over as well. It lets go of one a while after its end, and the client says how long that
//! while is, up to 50 s; of one that is closed by its first datagram, after the longest silence.
//!
//! It promises: each caller counts from when it is heard of until quinn has forgotten it, whatever becomes of it meanwhile. It must never keep
//! a connection alive.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// Connections that are over, and that quinn has not forgotten, at one time: then nobody gets another one, and comes by TCP. Each is 42 KB (measured).
const OVER: usize = 4096;
/// From so many on an address gets no other that has [`OVER_OF_ONE`] of them.
const MANY: usize = OVER / 8;
const OVER_OF_ONE: usize = 32;

/// Whose an address is, where something is shared out: IPv4 as it is, of IPv6 the first 64 bits.
pub(super) fn whose(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
        four => four,
    }
}

/// All of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Seats {
    unfinished: AtomicUsize,
    over: Mutex<Over>,
}

/// How many are over, in all and by address.
#[derive(Debug, Default)]
struct Over {
    all: usize,
    by: HashMap<IpAddr, usize>,
}

impl Seats {
    /// Handshakes that have not come to a good end: under way, or given up and not forgotten.
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished.load(Relaxed)
    }

    fn over(&self) -> MutexGuard<'_, Over> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether so much is kept of what is over that this address gets no other connection.
    pub(super) fn are_taken(&self, address: IpAddr) -> bool {
        let over = self.over();
        over.all >= OVER
            || (over.all >= MANY && over.by.get(&whose(address)).is_some_and(|n| *n >= OVER_OF_ONE))
    }
}

/// One of a connection, or of somebody who wants one. quinn holds it as long as it keeps anything of that.
#[derive(Debug)]
pub(super) struct Seat {
    all: Arc<Seats>,
    whose: IpAddr,
    finished: AtomicBool,
    over: AtomicBool,
    /// Bytes of the packets that the client has confirmed.
    confirmed: AtomicU64,
}

impl Seat {
    pub(super) fn take(all: &Arc<Seats>, address: IpAddr) -> Arc<Seat> {
        all.unfinished.fetch_add(1, Relaxed);
        Arc::new(Seat {
            all: Arc::clone(all),
            whose: whose(address),
            finished: AtomicBool::new(false),
            over: AtomicBool::new(false),
            confirmed: AtomicU64::new(0),
        })
    }

    /// The handshake has come to a good end.
    pub(super) fn finish(&self) {
        if !self.finished.swap(true, Relaxed) {
            self.all.unfinished.fetch_sub(1, Relaxed);
        }
    }

    fn leave(&self) {
        if !self.over.swap(true, Relaxed) {
            let mut over = self.all.over();
            over.all = over.all.saturating_add(1);
            let theirs = over.by.entry(self.whose).or_default();
            *theirs = theirs.saturating_add(1);
        }
    }

    pub(super) fn confirmed(&self) -> u64 {
        self.confirmed.load(Relaxed)
    }

    pub(super) fn confirm(&self, bytes: u64) {
        self.confirmed.fetch_add(bytes, Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.finish();
        if !*self.over.get_mut() {
            return;
        }
        let mut over = self.all.over();
        over.all = over.all.saturating_sub(1);
        if let Some(theirs) = over.by.get_mut(&self.whose) {
            *theirs = theirs.saturating_sub(1);
            if *theirs == 0 {
                over.by.remove(&self.whose);
            }
        }
    }
}

/// The server's own hold of one: when this goes, the connection is over.
#[derive(Debug)]
pub(super) struct Served(pub(super) Arc<Seat>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_over_counts_until_nobody_holds_it() {
        let (all, address) = (Arc::new(Seats::default()), IpAddr::from([192, 0, 2, 1]));
        let quinns = Seat::take(&all, address);
        let ours = Served(Arc::clone(&quinns));
        assert_eq!((all.unfinished(), all.over().all), (1, 0));
        drop(ours);
        assert_eq!((all.unfinished(), all.over().all), (1, 1), "quinn keeps it");
        drop(quinns);
        assert_eq!((all.unfinished(), all.over().all), (0, 0));
        assert!(all.over().by.is_empty());
        let finished = Seat::take(&all, address);
        finished.finish();
        assert_eq!(all.unfinished(), 0);
        drop(Served(finished));
        assert_eq!((all.unfinished(), all.over().all), (0, 0));
    }

    #[test]
    fn one_address_does_not_shut_out_the_others() {
        let all = Arc::new(Seats::default());
        let over = |address: IpAddr| {
            let seat = Seat::take(&all, address);
            drop(Served(Arc::clone(&seat)));
            seat
        };
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let mut kept: Vec<_> = (0..MANY - 1).map(|_| over(one)).collect();
        assert!(!all.are_taken(one), "they are few");
        kept.push(over(other));
        assert!(all.are_taken(one) && !all.are_taken(other));
        kept.extend((kept.len()..OVER).map(|_| over(one)));
        assert!(all.are_taken(other));
        kept.pop();
        assert!(!all.are_taken(other));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(whose(address("2001:db8::1")), whose(address("2001:db8::ffff:2")));
        assert_ne!(whose(address("2001:db8::1")), whose(address("2001:db8:0:1::1")));
        assert_eq!(whose(address("::ffff:192.0.2.1")), address("192.0.2.1"));
        assert_ne!(whose(address("192.0.2.1")), whose(address("192.0.2.2")));
    }
}
