//! Which requests a rule is for.

use std::net::IpAddr;

use ipnet::IpNet;
use regex::bytes::{Captures, Regex};

use super::{
    pattern,
    reading::{Kind, Readings},
    spec::RuleSpec,
    target::Given,
};
use crate::dynamic::Client;

/// What is known of a request besides its path.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a [u8],
    /// `None`: a request of the server's own, which has no headers.
    pub(crate) client: Option<&'a Client<'a>>,
    pub(crate) addr: Option<IpAddr>,
}

impl<'a> Asked<'a> {
    pub(crate) fn of(client: &'a Client<'a>) -> Asked<'a> {
        Asked { method: client.head.method(), client: Some(client), addr: client.says_addr() }
    }
}

/// The readings of a path that somebody was led to which a `stop` has ended: rules that follow keep nobody out for them. A bit for each, in the order of
/// [`Readings::all`]; one beyond the last bit, which no path has, is never ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped(u128);

impl Stopped {
    fn of(n: usize) -> Stopped {
        Stopped(u32::try_from(n).ok().and_then(|n| 1_u128.checked_shl(n)).unwrap_or_default())
    }

    fn has(self, one: Stopped) -> bool {
        self.0 & one.0 != 0
    }

    fn add(&mut self, more: Stopped) {
        self.0 |= more.0;
    }

    /// A rule with `stop` fits. Whether nothing is left.
    pub(crate) fn by(&mut self, fit: &Fit<'_>) -> bool {
        self.add(fit.which);
        fit.every
    }
}

/// How a rule fits a request.
#[derive(Default)]
pub(crate) struct Fit<'a> {
    /// In some way in which the path can be read, and which no `stop` has ended.
    pub(crate) some: bool,
    /// In every way that no `stop` has ended, so that nothing gets past what follows.
    pub(crate) every: bool,
    which: Stopped,
    /// As it was asked for, until every way is ended: what was found, and what of the path follows the prefix.
    pub(crate) asked: Option<Found<'a>>,
}

/// What of a path fits.
pub(crate) struct Found<'a> {
    pub(crate) captures: Option<Captures<'a>>,
    /// The path that was read.
    pub(crate) path: &'a [u8],
}

impl<'a> Found<'a> {
    /// What a target is filled in from.
    pub(crate) fn given<'g>(
        &'g self,
        query: Option<&'g [u8]>,
        asked: (&'g [u8], Option<&'g [u8]>),
        host: &'g str,
        prefix: &'g [u8],
    ) -> Given<'g> {
        Given { captures: self.captures.as_ref(), path: self.path, query, asked, host, prefix }
    }
}

#[derive(Default)]
pub(crate) struct Condition {
    prefixes: Vec<Vec<u8>>,
    globs: Option<Regex>,
    regexes: Vec<Regex>,
    methods: Vec<Vec<u8>>,
    headers: Vec<(Vec<u8>, Regex)>,
    addresses: Vec<IpNet>,
}

/// The key that is wrong, and why.
pub(crate) type Wrong = (&'static str, String);

impl Condition {
    /// One that always holds.
    pub(crate) fn any() -> Condition {
        Condition::default()
    }

    pub(crate) fn new(spec: &RuleSpec) -> Result<Condition, Wrong> {
        let prefix = |text: &String| {
            let odd = |part: &str| matches!(part, "" | "." | "..") || part.contains(['%', '?', '#']);
            let inner = text.strip_prefix('/').ok_or(());
            let parts = inner.map(|inner| inner.strip_suffix('/').unwrap_or(inner));
            match parts {
                Ok("") => Ok(Vec::new()),
                Ok(parts) if !parts.split('/').any(odd) => Ok([b"/", parts.as_bytes()].concat()),
                _ => Err((
                    "path",
                    format!(
                        "'{text}' is no path prefix: it begins with a slash and is written as it is (no %20, no ..); write /admin, and \
                         glob for patterns"
                    ),
                )),
            }
        };
        if let Some(text) = spec.path.iter().find(|text| text.contains('*')) {
            return Err((
                "path",
                format!("'{text}' has a star in it, and path is a prefix; write glob = \"{text}\""),
            ));
        }
        let globs = spec
            .glob
            .iter()
            .map(|text| pattern::glob(text).map_err(|why| ("glob", format!("'{text}': {why}"))));
        let globs =
            globs.map(|glob| glob.map(|glob| format!("(?:{glob})"))).collect::<Result<Vec<_>, _>>()?;
        let globs = (!globs.is_empty()).then(|| pattern::regex(&globs.join("|"))).transpose();
        let regexes = spec
            .regex
            .iter()
            .map(|text| pattern::regex(text).map_err(|why| ("regex", format!("'{text}': {why}"))));
        let method = |text: &String| match !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-')
        {
            true => Ok(text.clone().into_bytes()),
            false => Err(("method", format!("'{text}' is no method; write such as GET, in capitals"))),
        };
        let header = |(name, value): &(String, String)| {
            let name = header_name(name).map_err(|why| ("header", why))?;
            if name.contains('_') {
                let why = format!(
                    "headers with an underscore in their name are dropped; write {}",
                    name.replace('_', "-")
                );
                return Err(("header", format!("{name}: {why}")));
            }
            let regex = if name == "host" { pattern::regex_of_hosts } else { pattern::regex };
            let value = regex(value).map_err(|why| ("header", format!("{name}: '{value}': {why}")))?;
            Ok((name.into_bytes(), value))
        };
        Ok(Condition {
            prefixes: spec.path.iter().map(prefix).collect::<Result<_, _>>()?,
            globs: globs.map_err(|why| ("glob", why))?,
            regexes: regexes.collect::<Result<_, _>>()?,
            methods: spec.method.iter().map(method).collect::<Result<_, _>>()?,
            headers: spec.header.iter().map(header).collect::<Result<_, Wrong>>()?,
            addresses: spec.address.clone(),
        })
    }

    /// Whether there is a group of that number or name in each of the rule's expressions.
    pub(crate) fn has_group(&self, group: Result<usize, &str>) -> bool {
        let has = |regex: &Regex| match group {
            Ok(n) => n < regex.captures_len(),
            Err(name) => regex.capture_names().any(|known| known == Some(name)),
        };
        !self.regexes.is_empty() && self.regexes.iter().all(has)
    }

    /// The one prefix.
    pub(crate) fn prefix(&self) -> Option<&[u8]> {
        match &self.prefixes[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Whether it is for a path, whoever asks for it.
    pub(crate) fn is_for_path(&self, path: &[u8]) -> bool {
        self.find(path).is_some()
    }

    /// Whether it is for a request that is led to this path.
    pub(crate) fn is_for(&self, asked: &Asked<'_>, path: &[u8]) -> bool {
        self.fits_besides(asked) && self.find(path).is_some()
    }

    /// Whether everything fits but the path, which is not looked at.
    fn fits_besides(&self, asked: &Asked<'_>) -> bool {
        let is_method =
            |method: &Vec<u8>| *method == asked.method || (method == b"GET" && asked.method == b"HEAD");
        (self.methods.is_empty() || self.methods.iter().any(is_method))
            && (self.addresses.is_empty() || contains(&self.addresses, asked.addr))
            && self.headers.iter().all(|(name, value)| {
                asked.client.is_some_and(|client| client.header(name).any(|found| value.is_match(found)))
            })
    }

    pub(crate) fn fit<'a>(&self, asked: &Asked<'_>, readings: &'a Readings<'_>, stopped: Stopped) -> Fit<'a> {
        let mut fit = Fit { every: true, ..Fit::default() };
        if !self.fits_besides(asked) {
            return Fit::default();
        }
        for (n, reading) in readings.all().enumerate() {
            let this = Stopped::of(n);
            match self.find(reading.path) {
                Some(captures) => {
                    fit.some |= !stopped.has(this);
                    fit.which.add(this);
                    if reading.kind == Kind::Asked && fit.asked.is_none() {
                        fit.asked = Some(Found { captures, path: reading.path });
                    }
                }
                None => fit.every &= stopped.has(this),
            }
        }
        fit.every &= fit.some;
        fit
    }

    /// The pages that the rule is for, by one name in whatever way their path is written.
    pub(crate) fn pages<'a>(&self, readings: &'a Readings<'_>) -> impl Iterator<Item = &'a [u8]> {
        readings.pages().filter(|page| self.find(page).is_some())
    }

    /// What the path's conditions find in it; `None` if one of them does not hold.
    fn find<'a>(&self, path: &'a [u8]) -> Option<Option<Captures<'a>>> {
        if !self.prefixes.is_empty() && !self.prefixes.iter().any(|prefix| is_below(path, prefix)) {
            return None;
        }
        if self.globs.as_ref().is_some_and(|globs| !globs.is_match(path)) {
            return None;
        }
        if self.regexes.is_empty() {
            return Some(None);
        }
        Some(Some(self.regexes.iter().find_map(|regex| regex.captures(path))?))
    }
}

/// Whether a path is a prefix, or below it.
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// Whether an address is in one of the networks. One that nobody knows is in none.
pub(crate) fn contains(networks: &[IpNet], addr: Option<IpAddr>) -> bool {
    addr.is_some_and(|addr| networks.iter().any(|network| network.contains(&addr)))
}

/// A header's name, in lower case.
pub(crate) fn header_name(name: &str) -> Result<String, String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    match !name.is_empty() && name.bytes().all(token) {
        true => Ok(name.to_ascii_lowercase()),
        false => Err(format!("'{}' is no name of a header; write such as User-Agent", name.escape_debug())),
    }
}
