//! What a good answer is.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use regex::bytes::Regex;

use crate::failure::Failure;

/// What an answer has to be like to count as OK.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// Statuses that are right.
    pub status: Statuses,
    /// Has to be found in the body. Bodies are kept in memory for as long as they are read, up to 64 MiB, only if it is set.
    pub body: Option<Regex>,
}

impl Expect {
    /// A pattern that is found where the text is.
    pub fn text(text: &str) -> Regex {
        // An escaped text is a valid pattern; its size is bounded by that of a command line.
        Regex::new(&regex::escape(text)).unwrap_or_else(|error| unreachable!("{error}"))
    }

    /// What is wrong with an answer.
    pub(crate) fn verdict(&self, status: u16, body: &[u8]) -> Option<Failure> {
        if !self.status.contains(status) {
            return Some(Failure::Status);
        }
        let body_is_wrong = self.body.as_ref().is_some_and(|pattern| !pattern.is_match(body));
        body_is_wrong.then_some(Failure::Body)
    }
}

/// A set of status codes; 200 to 399 if nothing else is said (as vegeta and wrk have it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Vec<RangeInclusive<u16>>);

impl Default for Statuses {
    fn default() -> Self {
        Self(vec![200..=399])
    }
}

impl Statuses {
    /// Whether the status is one of them.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

/// Reads `200`, `2xx`, `200-204`, and lists of these with commas.
impl FromStr for Statuses {
    type Err = StatusesError;

    fn from_str(text: &str) -> Result<Self, StatusesError> {
        let code = |text: &str| text.parse().ok().filter(|code| (100..=999).contains(code));
        let range = |part: &str| {
            if let Some(class) = part.strip_suffix("xx").or(part.strip_suffix("XX")) {
                let class: u16 = class.parse().ok().filter(|class| (1..=9).contains(class))?;
                return Some(class * 100..=class * 100 + 99);
            }
            match part.split_once('-') {
                Some((low, high)) => Some(code(low)?..=code(high)?).filter(|range| !range.is_empty()),
                None => code(part).map(|code| code..=code),
            }
        };
        text.split(',')
            .map(|part| range(part.trim()).ok_or_else(|| StatusesError(part.trim().to_owned())))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// A text that is no set of statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusesError(String);

impl fmt::Display for StatusesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a status; write for example 200, 2xx, 200-204 or 200,404", self.0)
    }
}

impl std::error::Error for StatusesError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        let set: Statuses = "200, 3xx,404-410".parse().expect("valid");
        for (status, expected) in
            [(200, true), (201, false), (302, true), (404, true), (410, true), (411, false), (500, false)]
        {
            assert_eq!(set.contains(status), expected, "{status}");
        }
        assert!(Statuses::default().contains(399) && !Statuses::default().contains(400));
        for wrong in ["", "20", "2x", "0xx", "300-200", "1000", "abc", "200,,201"] {
            assert!(wrong.parse::<Statuses>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn bodies() {
        let expect = Expect { body: Some(Expect::text("a.b")), ..Expect::default() };
        assert_eq!(expect.verdict(200, b"xa.by"), None);
        assert_eq!(expect.verdict(200, b"xacby"), Some(Failure::Body));
        assert_eq!(expect.verdict(500, b"xa.by"), Some(Failure::Status));
    }
}
