//! Names on demand: which may be had, how many of them are ordered, and whom to ask about each.
//!
//! A visitor can think of names without end below a wildcard. All names of a registered domain share what the authority allows it, configured
//! ones as well; so all wildcards of a domain have one allowance together, which the store keeps: neither a restart nor another server gives a
//! new one. Which domains are registered ones is not known here: the last two labels above a name are taken for one, so two customers below
//! `co.uk` share theirs. Nothing here waits but [`Ask::about`], which has an end.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use http::Uri;
use http_body_util::Empty;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::OnDemand;

/// Orders below the wildcards of one domain, each for a name that was never asked about: so many at once, and seconds for each in the long run. Of Let's
/// Encrypt's 50 new certificates a week for one registered domain (<https://letsencrypt.org/docs/rate-limits/>) 12 at least are left for others.
const UNASKED: (i64, i64) = (10, 6 * 3600);
/// The same for names that somebody vouched for. So of its 300 orders in three hours some are left.
const VOUCHED: (i64, i64) = (100, 60);
/// How long an answer about a name may take.
const ANSWER: Duration = Duration::from_secs(10);
/// Seconds for which nothing is ordered when the authority was not to be had: each name would be another attempt.
const AWAY: i64 = 60;

/// Domains of which is known what they have used: so many fit into the store's file, each with the longest name that there is.
const MOST_DOMAINS: usize = 800;

/// What was used of allowances, by domain: when all of it may be used at once again, in seconds since the epoch. Each order moves that on.
pub(super) type Used = BTreeMap<String, i64>;

/// What is allowed, and what of it was used.
#[derive(Debug, Default)]
pub(super) struct Demand {
    patterns: Vec<String>,
    /// Whom to ask first, if anybody.
    pub(super) ask: Option<Ask>,
    /// As the store had it last.
    pub(super) used: Used,
    /// Nothing is ordered before: seconds since the epoch.
    not_before: i64,
}

impl Demand {
    /// Takes other settings; what was used of an allowance stays used.
    pub(super) fn set(&mut self, wanted: &OnDemand) {
        self.patterns.clone_from(&wanted.patterns);
        self.ask.clone_from(&wanted.ask);
    }

    /// Whether anybody may ask for it.
    pub(super) fn allows(&self, name: &str) -> bool {
        self.patterns.iter().any(|allowed| crate::matches(allowed, name))
    }

    /// Whether a name is allowed by itself: then it is nobody's idea but the administrator's.
    pub(super) fn names(&self, name: &str) -> bool {
        self.patterns.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
    }

    fn allowance(&self) -> (i64, i64) {
        if self.ask.is_some() { VOUCHED } else { UNASKED }
    }

    /// When a certificate of this name, which is below a wildcard, may be ordered, the clock being at `now`: seconds since the epoch.
    pub(super) fn ready_at(&self, name: &str, now: i64) -> i64 {
        let (at_once, each) = self.allowance();
        // A clock that was set back since makes nobody wait longer.
        let farthest = now.saturating_add(at_once.saturating_mul(each));
        let full_at = self.used.get(domain(name)).copied().unwrap_or_default().min(farthest);
        let ready = full_at.saturating_sub(at_once.saturating_sub(1).saturating_mul(each));
        ready.max(self.not_before.min(now.saturating_add(AWAY)))
    }

    /// One is ordered.
    pub(super) fn take(&mut self, name: &str, now: i64) {
        let (at_once, each) = self.allowance();
        let farthest = now.saturating_add(at_once.saturating_mul(each));
        let full_at = self.used.entry(domain(name).to_owned()).or_default();
        *full_at = (*full_at).clamp(now, farthest).saturating_add(each);
        // What is as good as new need not be kept.
        self.used.retain(|_, full_at| *full_at > now);
        // Who has used least gets it anew.
        while self.used.len() > MOST_DOMAINS {
            let least =
                self.used.iter().min_by_key(|(_, full_at)| **full_at).map(|(domain, _)| domain.clone());
            least.and_then(|least| self.used.remove(&least));
        }
    }

    /// The authority was not to be had.
    pub(super) fn is_away(&mut self, now: i64) {
        self.not_before = now.saturating_add(AWAY);
    }
}

/// By what names share an allowance: the last two labels of what is above the name.
fn domain(name: &str) -> &str {
    let above = name.split_once('.').map_or("", |(_, above)| above);
    let second = above.rmatch_indices('.').nth(1).map(|(at, _)| at);
    second.and_then(|at| above.get(at.saturating_add(1)..)).unwrap_or(above)
}

/// What was answered about a name.
#[derive(Debug)]
pub(super) enum Word {
    /// By a status of 200 to 299.
    Yes,
    /// By one of 403, 404 or 410.
    No,
    /// Neither, in words. It may be about this name alone.
    Odd(String),
    /// Nothing: why.
    Silence(String),
}

/// Where it is known which names may have a certificate: an address without TLS, of a service that is near.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ask(Uri);

impl TryFrom<String> for Ask {
    type Error = String;

    fn try_from(text: String) -> Result<Ask, String> {
        text.parse()
    }
}

impl From<Ask> for String {
    fn from(ask: Ask) -> String {
        ask.to_string()
    }
}

impl FromStr for Ask {
    type Err = String;

    /// Such as `http://127.0.0.1:8000/may-have-a-certificate`. The error says what is wrong with it.
    fn from_str(text: &str) -> Result<Ask, String> {
        let uri = Uri::from_str(text).map_err(|error| {
            format!("'{text}' is no address to ask: {error}; write http://127.0.0.1:8000/path")
        })?;
        let plain = uri.authority().is_some_and(|at| !at.host().is_empty() && !at.as_str().contains('@'));
        if plain && uri.scheme_str() == Some("http") {
            return Ok(Ask(uri));
        }
        Err("it is no address to ask; write http://127.0.0.1:8000/path, without TLS and without a password"
            .into())
    }
}

impl std::fmt::Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Ask {
    /// Whether this name may have a certificate, within ten seconds. `name` is a host name.
    pub(super) async fn about(&self, name: &str) -> Word {
        let joint = if self.0.query().is_some() { '&' } else { '?' };
        let uri = match Uri::from_str(&format!("{}{joint}domain={name}", self.0)) {
            Ok(uri) => uri,
            Err(error) => return Word::Odd(error.to_string()),
        };
        let client: Client<_, Empty<&[u8]>> = Client::builder(TokioExecutor::new()).build_http();
        match timeout(ANSWER, client.get(uri)).await {
            Ok(Ok(answer)) => match answer.status().as_u16() {
                200..=299 => Word::Yes,
                403 | 404 | 410 => Word::No,
                status => {
                    let to = answer.headers().get("location").and_then(|to| to.to_str().ok());
                    let to = to.map(|to| format!(", to {to}")).unwrap_or_default();
                    Word::Odd(format!("its status is {status}{to}; expected 200 for yes, 404 for no"))
                }
            },
            Ok(Err(error)) => Word::Silence(reason(&error)),
            Err(_) => Word::Silence(format!("there was no answer within {} s", ANSWER.as_secs())),
        }
    }
}

/// An error with what caused it, which alone says what happened.
fn reason(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(patterns: &[&str], ask: Option<&str>) -> Demand {
        let mut demand = Demand::default();
        let patterns = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        demand.set(&OnDemand { patterns, ask: ask.map(|ask| ask.parse().unwrap()) });
        demand
    }

    /// How many names below `parent` are ordered in `hours`, one after the other as soon as it is allowed.
    fn ordered(demand: &mut Demand, parent: &str, hours: i64) -> usize {
        let (mut now, end) = (1_000_000, 1_000_000 + hours * 3600);
        let mut count = 0;
        while now <= end {
            let name = format!("n{count}.{parent}");
            match demand.ready_at(&name, now) {
                ready if ready <= now => {
                    demand.take(&name, now);
                    count += 1;
                }
                ready => now = ready,
            }
        }
        count
    }

    #[test]
    fn what_visitors_think_of_leaves_some_of_the_authoritys_limits_for_others() {
        assert!(ordered(&mut demand(&["*.x.example"], None), "x.example", 7 * 24) <= 38);
        assert!(ordered(&mut demand(&["*.x.example"], Some("http://127.0.0.1:1/")), "x.example", 3) <= 280);
    }

    #[test]
    fn all_wildcards_of_a_domain_share_an_allowance_and_another_domain_has_its_own() {
        let patterns = ["*.x.example", "*.shops.x.example", "*.a.b.x.example", "*.y.example", "*.example"];
        let mut demand = demand(&patterns, None);
        assert_eq!(ordered(&mut demand, "shops.x.example", 0), 10);
        for used in ["x.example", "shops.x.example", "a.b.x.example"] {
            assert!(demand.ready_at(&format!("other.{used}"), 1_000_000) > 1_000_000, "{used}");
        }
        assert_eq!(ordered(&mut demand, "y.example", 0), 10);
        assert_eq!(ordered(&mut demand, "example", 0), 10);
        // New settings give nothing anew.
        demand.set(&OnDemand { patterns: vec!["*.new.x.example".into()], ask: None });
        assert!(demand.ready_at("a.new.x.example", 1_000_000) > 1_000_000);
    }

    #[test]
    fn an_authority_that_is_away_is_tried_once_a_minute() {
        let mut demand = demand(&["*.x.example"], None);
        demand.is_away(1_000_000);
        assert_eq!(demand.ready_at("a.x.example", 1_000_000), 1_000_060);
        assert_eq!(demand.ready_at("a.x.example", 900_000), 900_060, "the clock was ahead");
        assert!(demand.ready_at("a.x.example", 1_000_060) <= 1_000_060);
        assert!(demand.used.is_empty());
    }

    #[test]
    fn a_clock_that_was_ahead_makes_nobody_wait_longer() {
        let mut demand = demand(&["*.x.example"], None);
        (0..10).for_each(|n| demand.take(&format!("n{n}.x.example"), 10_000_000_000));
        let now = 1_000_000;
        assert!(demand.ready_at("a.x.example", now) <= now + UNASKED.1);
    }

    #[test]
    fn what_is_kept_of_many_domains_can_be_read_again() {
        let mut demand = demand(&["*.x.example"], None);
        let long = "d".repeat(240);
        (0..5).for_each(|_| demand.take("n.most.example", 1_000_000));
        (0..2000).for_each(|n| demand.take(&format!("n.{n:04}{long}.example"), 1_000_000));
        assert!(demand.used.len() == MOST_DOMAINS && demand.used.contains_key("most.example"));
        assert!((serde_json::to_vec(&demand.used).unwrap().len() as u64) < super::super::store::LONGEST);
    }

    #[test]
    fn an_address_to_ask_is_one() {
        for wrong in [
            "",
            "ftp://a/",
            "https://a/",
            "/path",
            "http://",
            "http:///x",
            "http://a b/",
            "http://me:secret@a/",
        ] {
            let why = wrong.parse::<Ask>().unwrap_err();
            assert!(why.contains("http://127.0.0.1:8000/path"), "{wrong}: {why}");
        }
    }
}
