//! Who the client really is, when a trusted proxy says so: `Forwarded` (RFC 7239) or `X-Forwarded-*`.

use std::net::IpAddr;

use http::HeaderMap;
use ipnet::IpNet;

/// What a proxy said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub(crate) addr: Option<IpAddr>,
    pub(crate) https: Option<bool>,
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> impl DoubleEndedIterator<Item = &'a str> {
    headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok()).collect::<Vec<_>>().into_iter()
}

/// "192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:80", "\"[2001:db8::1]\""
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    if let Some(rest) = text.strip_prefix('[') {
        return rest.split(']').next()?.parse().ok();
    }
    text.parse().ok().or_else(|| text.split(':').next()?.parse().ok())
}

/// The last address that is not itself a trusted proxy: everything before it could have been made up by the client.
fn client(chain: &[IpAddr], trusted: &[IpNet]) -> Option<IpAddr> {
    let stranger = |addr: &&IpAddr| !trusted.iter().any(|net| net.contains(*addr));
    chain.iter().rev().find(stranger).or(chain.first()).copied()
}

pub(crate) fn read(headers: &HeaderMap, trusted: &[IpNet]) -> Forwarded {
    let mut said = Forwarded::default();
    let mut chain = Vec::new();
    if headers.contains_key("forwarded") {
        for element in text(headers, "forwarded").flat_map(|v| v.split(',')) {
            for pair in element.split(';') {
                let Some((name, value)) = pair.trim().split_once('=') else { continue };
                let value = value.trim_matches('"');
                match name.to_ascii_lowercase().as_str() {
                    "for" => chain.extend(address(value)),
                    "proto" => said.https = Some(value.eq_ignore_ascii_case("https")),
                    "host" => said.host = Some(value.to_owned()),
                    _ => {}
                }
            }
        }
    } else {
        chain.extend(text(headers, "x-forwarded-for").flat_map(|v| v.split(',')).filter_map(address));
        let last =
            |name: &str| text(headers, name).next_back().and_then(|v| v.rsplit(',').next()).map(str::trim);
        said.https = last("x-forwarded-proto").map(|v| v.eq_ignore_ascii_case("https"));
        said.host = last("x-forwarded-host").map(str::to_owned);
        said.port = last("x-forwarded-port").and_then(|v| v.parse().ok());
    }
    said.addr = client(&chain, trusted);
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(headers: &[(&'static str, &str)]) -> Forwarded {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        read(&map, &["10.0.0.0/8".parse().unwrap()])
    }

    #[test]
    fn the_client_is_the_last_stranger() {
        let got = said(&[("x-forwarded-for", "203.0.113.66, 198.51.100.7, 10.1.2.3")]);
        assert_eq!(got.addr, Some("198.51.100.7".parse().unwrap()));
        let got = said(&[("x-forwarded-for", "198.51.100.7"), ("x-forwarded-for", "10.9.9.9")]);
        assert_eq!(got.addr, Some("198.51.100.7".parse().unwrap()));
        assert_eq!(said(&[("x-forwarded-for", "10.0.0.1")]).addr, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(said(&[("x-forwarded-for", "nonsense")]).addr, None);
    }

    #[test]
    fn both_ways_of_saying_it() {
        let got = said(&[
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "example.org"),
            ("x-forwarded-port", "8443"),
        ]);
        assert_eq!((got.https, got.host.as_deref(), got.port), (Some(true), Some("example.org"), Some(8443)));
        let got =
            said(&[("forwarded", r#"for="[2001:db8::1]:80";proto=https;host=example.org, for=10.0.0.1"#)]);
        assert_eq!(got.addr, Some("2001:db8::1".parse().unwrap()));
        assert_eq!((got.https, got.host.as_deref()), (Some(true), Some("example.org")));
    }
}
