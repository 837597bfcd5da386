//! What is written in a configuration, may be written, and does nothing there: `hayate check` and the log warn of it.

use hayate_front::rules::{RateBy, RuleSpec, doubts};

use super::{App, ListenAddr, Plan};

/// See [`Plan::vain_keys`].
pub(super) const RATES_OF_NOBODY: &str = "a rule's `rate` counts all visitors that come by a unix socket as one, since the proxy there is not believed: \
     trusted_proxies = [\"unix\"]";

/// By what a rule is the last. Not where all is closed for a while (503): the rules behind it are to hold again.
fn ends(rule: &RuleSpec) -> Option<&'static str> {
    let is_for_a_while = rule.deny == Some(503) || (rule.respond.is_some() && rule.status == Some(503));
    match () {
        () if is_for_a_while => None,
        () if rule.stop => Some("stop = true"),
        () if rule.redirect.is_some() => Some("redirect"),
        () if rule.respond.is_some() => Some("respond"),
        () if rule.deny.is_some() => Some("deny"),
        () => None,
    }
}

impl Plan {
    /// Addresses that nobody gets through to, or not as their port says.
    pub fn vain_addresses(&self) -> Vec<String> {
        let each = self.listen.iter().zip(&self.ports).filter_map(|(addr, port)| {
            let believed = match addr {
                ListenAddr::Unix(_) => self.trust_unix,
                _ => !self.trusted_proxies.is_empty(),
            };
            if port.proxy_protocol && !believed {
                return Some(format!(
                    "listen: {addr} wants a PROXY header, which is believed of nobody, so each connection is turned away: name the proxies in \
                     trusted_proxies"
                ));
            }
            let of_tls = matches!(addr, ListenAddr::Tcp(addr) if addr.port() == 443);
            (of_tls && self.tls.is_none()).then(|| {
                format!("listen: {addr} speaks HTTP without TLS: set certificates or acme in [tls]")
            })
        });
        let everybody = self.trusted_proxies.iter().find(|net| net.prefix_len() == 0).map(|net| {
            format!(
                "trusted_proxies: {net} is everybody, so each visitor chooses the address that rules, limits and the log take for his: name the \
                 proxies alone"
            )
        });
        let includes = self.unmatched.iter().map(|pattern| format!("include: no file fits \"{pattern}\""));
        each.chain(everybody).chain(includes).collect()
    }

    /// The keys of an application that do not do what they say here.
    pub fn vain_keys(&self, app: &App) -> Vec<String> {
        let mut vain = Vec::new();
        // Visitors that come by a unix socket, from a proxy that is not believed, are one: nobody says their addresses.
        let unix = self.listen.iter().any(|addr| matches!(addr, ListenAddr::Unix(_)));
        let by_address = app.rules.iter().filter_map(|rule| rule.rate.as_ref()).any(|rate| {
            // Who sends no such header counts by address.
            matches!(rate.by, RateBy::Address | RateBy::Header(_))
        });
        if unix && !self.trust_unix && by_address {
            vain.push(RATES_OF_NOBODY.to_owned());
        }
        if let (Some(slow), Some(timeout)) = (app.spec.slow_request, app.spec.request_timeout)
            && slow > timeout / 10 * 9
        {
            vain.push(format!(
                "slow_request = {slow:?} is more than nine tenths of request_timeout ({timeout:?}), at which the log says what a request does in \
                 any case: take less, or leave it out"
            ));
        }
        vain.extend(doubts(&app.rules, &app.path, &app.hosts));
        vain.extend_from_slice(&app.doubts);
        let mut ending = app.rules.iter().zip(1usize..).filter(|(rule, _)| rule.is_for_all());
        if let Some((number, what)) = ending.find_map(|(rule, number)| Some((number, ends(rule)?)))
            && number < app.rules.len()
        {
            vain.push(format!(
                "rule {number} is for all requests and has {what}, so those behind it are for none: put it last, or say when it holds"
            ));
        }
        vain
    }
}
