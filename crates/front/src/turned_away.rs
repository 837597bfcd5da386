//! Connections that are turned away for want of a PROXY header that is believed: they are counted, and the log says so once a minute for
//! each reason and each kind of network, with the last one's address. A load balancer that nobody has named in `trusted_proxies` sees
//! nothing but ended connections, and those who look for open ports from everywhere are not to hide it.

use std::net::IpAddr;

use crate::{Front, reminder::Reminder};

/// When each was last spoken of.
#[derive(Default)]
pub(crate) struct TurnedAway {
    untrusted: [Reminder; KINDS],
    malformed: [Reminder; KINDS],
}

/// Of networks, see [`kind`].
const KINDS: usize = 4;

/// What is wrong with a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// Whatever it says is not believed.
    Untrusted,
    /// What came is no PROXY header.
    Malformed(&'static str),
}

impl Front {
    /// Counts and tells of one. `addr` and `peer`: who it is, and that without a port, if it has come by TCP.
    pub(crate) fn turns_away(&self, addr: &str, peer: Option<IpAddr>, fault: Fault) {
        self.metrics.turned_away();
        let reminders = match fault {
            Fault::Untrusted => &self.turned_away.untrusted,
            Fault::Malformed(_) => &self.turned_away.malformed,
        };
        let Some(times) = reminders.get(kind(peer)).and_then(Reminder::happened) else { return };
        let client = if peer.is_none() { "unix" } else { addr };
        match fault {
            Fault::Untrusted => tracing::warn!(
                client,
                "turned away: its PROXY header would not be believed; a proxy belongs into trusted_proxies ({times} times since this was last said)"
            ),
            Fault::Malformed(why) => tracing::warn!(
                client,
                "turned away: expected a PROXY header (proxy_protocol in listen), found none that is right: {why} ({times} times since this was \
                 last said)"
            ),
        }
    }
}

/// Unix sockets, this machine, a network of one's own, and everywhere else.
fn kind(peer: Option<IpAddr>) -> usize {
    match peer.map(|ip| ip.to_canonical()) {
        None => 0,
        Some(ip) if ip.is_loopback() => 1,
        Some(IpAddr::V4(ip)) if ip.is_private() || ip.is_link_local() => 2,
        Some(IpAddr::V6(ip)) if ip.is_unique_local() || ip.is_unicast_link_local() => 2,
        Some(_) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_come_from_everywhere_hide_no_proxy_of_ones_own() {
        let kind = |text: &str| super::kind(Some(text.parse().unwrap()));
        for (addr, want) in [
            ("127.0.0.1", 1),
            ("::1", 1),
            ("::ffff:127.0.0.1", 1),
            ("10.0.0.1", 2),
            ("192.168.1.1", 2),
            ("169.254.0.1", 2),
            ("fd00::1", 2),
            ("fe80::1", 2),
            ("192.0.2.1", 3),
            ("2001:db8::1", 3),
        ] {
            assert_eq!(kind(addr), want, "{addr}");
        }
        assert_eq!(super::kind(None), 0);
        let told = TurnedAway::default();
        let tell = |addr: &str| told.untrusted[kind(addr)].happened();
        assert_eq!((tell("192.0.2.1"), tell("192.0.2.2"), tell("10.0.0.1")), (Some(1), None, Some(1)));
    }
}
