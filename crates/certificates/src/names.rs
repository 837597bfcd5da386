//! Host names, and which name of a certificate covers which (RFC 9525, 6.3): letters of either case, a `*` for the whole first label.

/// Whether a certificate's name covers a host, which is in lower case.
pub fn matches(name: &str, host: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(parent) => host
            .split_once('.')
            .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(parent)),
        None => name.eq_ignore_ascii_case(host),
    }
}

/// Whether a certificate authority could be asked for it: a name of several labels, or one; no address, no wildcard.
pub fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let digits = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    host.len() <= 253 && host.split('.').all(label) && !host.rsplit('.').next().is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_covers_what() {
        for (name, host, covered) in [
            ("example.org", "example.org", true),
            ("Example.ORG", "example.org", true),
            ("*.example.org", "www.example.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "a.b.example.org", false),
            ("*.example.org", ".example.org", false),
            ("example.org", "www.example.org", false),
            ("*", "org", false),
        ] {
            assert_eq!(matches(name, host), covered, "{name} {host}");
        }
    }

    #[test]
    fn what_is_a_name() {
        for (host, is) in [
            ("example.org", true),
            ("localhost", true),
            ("xn--bcher-kva.example", true),
            ("*.example.org", false),
            ("192.0.2.1", false),
            ("[::1]", false),
            ("", false),
            ("a..b", false),
            ("-a.org", false),
            ("../../etc/passwd", false),
            ("a/b.org", false),
        ] {
            assert_eq!(is_name(host), is, "{host}");
        }
    }
}
