//! The host that a request names.
//!
//! It promises that there is one reading of it: what chooses the site is what scripts are told. What is not plainly a host is none, and the
//! request is refused: user information, a port that is no number, half a literal, an empty label. nginx is as strict in the request line, and
//! takes more in `Host`.

use std::{borrow::Cow, cell::RefCell, net::Ipv6Addr, rc::Rc};

/// A host, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host<'a> {
    /// In lower case, without port and without the root's dot at its end; an IPv6 address in brackets, as RFC 5952 writes it. Never empty.
    pub(crate) name: Cow<'a, str>,
    /// As it was said; none where it was left out or empty ("example.org:").
    pub(crate) port: Option<u16>,
}

impl<'a> Host<'a> {
    /// Reads "example.org", "example.org:8080", "192.0.2.1", "[::1]:80" (RFC 9110, 7.2; RFC 3986, 3.2.2); `None` for what is none of them.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Host<'a>> {
        let (name, port) = match text.strip_prefix(b"[") {
            Some(rest) => {
                let (address, port) = std::str::from_utf8(rest).ok()?.split_once(']')?;
                // Without a zone, which means something on one machine only; and there is no other literal.
                (Cow::Owned(format!("[{}]", address.parse::<Ipv6Addr>().ok()?)), port.as_bytes())
            }
            None => {
                let colon = text.iter().position(|b| *b == b':').unwrap_or(text.len());
                let (name, port) = text.split_at_checked(colon)?;
                let name = name.strip_suffix(b".").unwrap_or(name);
                if !is_name(name) {
                    return None;
                }
                let text = std::str::from_utf8(name).ok()?;
                match name.iter().fold(false, |any, b| any | b.is_ascii_uppercase()) {
                    true => (Cow::Owned(text.to_ascii_lowercase()), port),
                    false => (Cow::Borrowed(text), port),
                }
            }
        };
        let port = match port {
            [] | [b':'] => None,
            [b':', digits @ ..] => Some(digits.iter().try_fold(0u16, |port, b| {
                let digit = b.is_ascii_digit().then(|| u16::from(*b - b'0'))?;
                port.checked_mul(10)?.checked_add(digit)
            })?),
            _ => return None,
        };
        Some(Host { name, port })
    }
}

/// A host as it was named, and what it is.
#[derive(Debug)]
pub(crate) struct Named {
    text: Box<[u8]>,
    pub(crate) host: Option<Host<'static>>,
}

/// What the requests of a connection name. Nearly always it is one host, which then is read once.
#[derive(Debug, Default)]
pub(crate) struct LastNamed(RefCell<Option<Rc<Named>>>);

impl LastNamed {
    /// See [`Host::parse`].
    pub(crate) fn parse(&self, text: &[u8]) -> Rc<Named> {
        let mut last = self.0.borrow_mut();
        match &*last {
            Some(named) if *named.text == *text => Rc::clone(named),
            _ => {
                let host = Host::parse(text)
                    .map(|host| Host { name: Cow::Owned(host.name.into_owned()), port: host.port });
                let named = Rc::new(Named { text: text.into(), host });
                // An idle connection keeps no more than names of hosts have (RFC 1035, 2.3.4).
                *last = (text.len() <= LONGEST).then(|| Rc::clone(&named));
                named
            }
        }
    }
}

/// Bytes of a host's name, with a port.
const LONGEST: usize = 255 + 6;

/// A registered name or an address of IPv4. Percent signs are taken as they stand, by us and by scripts: nobody decodes them.
fn is_name(name: &[u8]) -> bool {
    let mut before = b'.'; // so that the first label is not empty
    let fine = |b: &u8| {
        let doubled = *b == b'.' && before == b'.';
        before = *b;
        NAME.get(usize::from(*b)) == Some(&true) && !doubled
    };
    !name.is_empty() && name.iter().all(fine) && before != b'.'
}

/// The bytes of such a name.
#[allow(clippy::indexing_slicing, reason = "computed when this is compiled")]
const NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = (b as u8).is_ascii_alphanumeric();
        b += 1;
    }
    let others = b"-._~%!$&'()*+,;=";
    let mut i = 0;
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_and_ports() {
        for (text, want) in [
            ("example.org", ("example.org", None)),
            ("example.org:8080", ("example.org", Some(8080))),
            ("EXAMPLE.org.", ("example.org", None)),
            ("example.org.:80", ("example.org", Some(80))),
            // As nginx has it: a port that is left out.
            ("admin.test:", ("admin.test", None)),
            ("192.0.2.1:080", ("192.0.2.1", Some(80))),
            ("[::1]:80", ("[::1]", Some(80))),
            ("[::1]:", ("[::1]", None)),
            ("[2001:DB8:0:0::1]", ("[2001:db8::1]", None)),
            ("under_score", ("under_score", None)),
            ("-a.b-", ("-a.b-", None)),
        ] {
            let host = Host::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((&*host.name, host.port), want, "{text}");
        }
    }

    #[test]
    fn a_connection_that_names_others_in_turn_gets_each() {
        let last = LastNamed::default();
        let long = "a.".repeat(200) + "b";
        for text in [
            "a.test:80",
            "A.test",
            "a.test:80",
            "a.test:81",
            "-",
            "a test",
            "a.test:80",
            &long,
            "[::1]",
            "a.test",
        ] {
            let want = Host::parse(text.as_bytes());
            assert_eq!(last.parse(text.as_bytes()).host, want, "{text}");
            assert_eq!(last.parse(text.as_bytes()).host, want, "{text} once more");
        }
    }

    #[test]
    fn what_is_not_plainly_a_host_is_none() {
        for text in [
            "",
            ".",
            ":",
            ":80",
            "x@admin.test",
            "user:pw@admin.test",
            "admin.test:80:81",
            "admin.test:80a",
            "admin.test:+80",
            "admin.test:-1",
            "admin.test:65536",
            "admin..test",
            ".admin.test",
            "a b",
            "a/b",
            "a\\b",
            "a?b",
            "a#b",
            "a\"b",
            "a<b>",
            "a|b",
            "[::1",
            "::1",
            "[::1]x",
            "[::1]]",
            "[::1%25eth0]",
            "[v1.x]",
            "[]",
            "[127.0.0.1]",
            "a[::1]",
            "\u{e4}.test",
        ] {
            assert_eq!(Host::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Host::parse(b"a\xff"), None);
        assert_eq!(Host::parse(b"a\0"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn what_passes_is_read_the_same_a_second_time(text in "[aZ09.:\\[\\]@%_ /\\\\é-]{0,10}") {
            if let Some(host) = Host::parse(text.as_bytes()) {
                prop_assert!(!host.name.contains(['@', '/', '\\', ' ']));
                let again = match host.port {
                    Some(port) => format!("{}:{port}", host.name),
                    None => host.name.to_string(),
                };
                prop_assert_eq!(Host::parse(again.as_bytes()), Some(host));
            }
        }

        #[test]
        fn no_bytes_are_too_odd(text: Vec<u8>) {
            Host::parse(&text);
        }
    }
}
