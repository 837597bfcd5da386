//! Names on demand: which may be had, how many of them are ordered, and whom to ask about each.
//!
//! A visitor can think of names without end below a wildcard. All names below one wildcard share what the authority allows their registered
//! domain, and configured names share it as well; so each wildcard has an allowance of its own. Nothing here waits but [`Ask::about`], which
//! has an end.

use std::{str::FromStr, time::Duration};

use http::Uri;
use http_body_util::Empty;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::OnDemand;

/// Orders below one wildcard, each for a name that was never asked about: so many at once, and seconds for each in the long run. Of Let's
/// Encrypt's 50 new certificates a week for one registered domain (<https://letsencrypt.org/docs/rate-limits/>) 12 at least are left for others.
const UNASKED: (i64, i64) = (10, 6 * 3600);
/// The same for names that somebody vouched for. So of its 300 orders in three hours some are left.
const VOUCHED: (i64, i64) = (100, 60);
/// How long an answer about a name may take.
const ANSWER: Duration = Duration::from_secs(10);

/// What is allowed, and what of it was used.
#[derive(Debug, Default)]
pub(super) struct Demand {
    patterns: Vec<Pattern>,
    /// Whom to ask first, if anybody.
    pub(super) ask: Option<Ask>,
}

#[derive(Debug)]
struct Pattern {
    pattern: String,
    /// When all of its allowance may be used at once; each order moves it on. Seconds since the epoch.
    full_at: i64,
}

impl Demand {
    /// Takes other settings; what was used of an allowance stays used.
    pub(super) fn set(&mut self, wanted: &OnDemand) {
        let before = std::mem::take(&mut self.patterns);
        let used = |pattern: &str| before.iter().find(|old| old.pattern == pattern).map(|old| old.full_at);
        let pattern = |pattern: &String| Pattern {
            pattern: pattern.clone(),
            full_at: used(pattern).unwrap_or_default(),
        };
        self.patterns = wanted.patterns.iter().map(pattern).collect();
        self.ask = wanted.ask.clone();
    }

    /// Whether anybody may ask for it.
    pub(super) fn allows(&self, name: &str) -> bool {
        self.patterns.iter().any(|allowed| crate::matches(&allowed.pattern, name))
    }

    /// Whether a name is allowed by itself: then it is nobody's idea but the administrator's.
    pub(super) fn names(&self, name: &str) -> bool {
        self.patterns.iter().any(|allowed| allowed.pattern.eq_ignore_ascii_case(name))
    }

    /// The wildcards that a name is below.
    fn wildcards(&self, name: &str) -> impl Iterator<Item = &Pattern> {
        let exact = self.names(name);
        self.patterns.iter().filter(move |allowed| !exact && crate::matches(&allowed.pattern, name))
    }

    fn allowance(&self) -> (i64, i64) {
        if self.ask.is_some() { VOUCHED } else { UNASKED }
    }

    /// When a certificate of this name may be ordered, the clock being at `now`: seconds since the epoch.
    pub(super) fn ready_at(&self, name: &str, now: i64) -> i64 {
        let (at_once, each) = self.allowance();
        // A clock that was set back since makes nobody wait longer.
        let farthest = now.saturating_add(at_once.saturating_mul(each));
        let ready = |used: &Pattern| {
            used.full_at.min(farthest).saturating_sub(at_once.saturating_sub(1).saturating_mul(each))
        };
        self.wildcards(name).map(ready).max().unwrap_or(now)
    }

    /// One is ordered.
    pub(super) fn take(&mut self, name: &str, now: i64) {
        let (at_once, each) = self.allowance();
        let used: Vec<String> = self.wildcards(name).map(|used| used.pattern.clone()).collect();
        for pattern in self.patterns.iter_mut().filter(|pattern| used.contains(&pattern.pattern)) {
            let farthest = now.saturating_add(at_once.saturating_mul(each));
            pattern.full_at = pattern.full_at.clamp(now, farthest).saturating_add(each);
        }
    }
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
    /// Whether this name may have a certificate: a status of 200 to 299 says yes, 403, 404 and 410 say no. `name` is a host name. An error says
    /// why there was no such answer; it comes within ten seconds.
    pub(super) async fn about(&self, name: &str) -> Result<bool, String> {
        let joint = if self.0.query().is_some() { '&' } else { '?' };
        let uri =
            Uri::from_str(&format!("{}{joint}domain={name}", self.0)).map_err(|error| error.to_string())?;
        let client: Client<_, Empty<&[u8]>> = Client::builder(TokioExecutor::new()).build_http();
        match timeout(ANSWER, client.get(uri)).await {
            Ok(Ok(answer)) => match answer.status().as_u16() {
                200..=299 => Ok(true),
                403 | 404 | 410 => Ok(false),
                status => {
                    let to = answer.headers().get("location").and_then(|to| to.to_str().ok());
                    let to = to.map(|to| format!(", to {to}")).unwrap_or_default();
                    Err(format!("its status is {status}{to}; expected 200 for yes, 404 for no"))
                }
            },
            Ok(Err(error)) => Err(reason(&error)),
            Err(_) => Err(format!("there was no answer within {} s", ANSWER.as_secs())),
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
    fn each_wildcard_has_an_allowance_of_its_own_and_a_name_that_is_named_needs_none() {
        let mut demand = demand(&["*.x.example", "*.y.example", "shop.x.example"], None);
        assert_eq!(ordered(&mut demand, "x.example", 0), 10);
        assert_eq!(ordered(&mut demand, "y.example", 0), 10);
        assert!(demand.ready_at("other.x.example", 1_000_000) > 1_000_000);
        assert_eq!(demand.ready_at("shop.x.example", 1_000_000), 1_000_000);
        // New settings give nothing anew.
        let same = OnDemand { patterns: vec!["*.x.example".into()], ask: None };
        demand.set(&same);
        assert!(demand.ready_at("other.x.example", 1_000_000) > 1_000_000);
    }

    #[test]
    fn a_clock_that_was_ahead_makes_nobody_wait_longer() {
        let mut demand = demand(&["*.x.example"], None);
        (0..10).for_each(|n| demand.take(&format!("n{n}.x.example"), 10_000_000_000));
        let now = 1_000_000;
        assert!(demand.ready_at("a.x.example", now) <= now + UNASKED.1);
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
