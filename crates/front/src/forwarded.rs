//! Who the client really is, when a trusted proxy says so: `X-Forwarded-*`, or `Forwarded` (RFC 7239) where there is no
//! `X-Forwarded-For`. Most proxies know only the former, and pass the latter on as the client made it up.

use std::net::IpAddr;

use http::HeaderMap;
use ipnet::IpNet;

use crate::framing::is_host;

/// What a proxy said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub(crate) addr: Option<IpAddr>,
    pub(crate) https: Option<bool>,
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
}

/// One proxy's words in `Forwarded`.
#[derive(Default)]
struct Hop<'a> {
    addr: Option<IpAddr>,
    https: Option<bool>,
    host: Option<&'a str>,
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> impl DoubleEndedIterator<Item = &'a str> {
    headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok()).collect::<Vec<_>>().into_iter()
}

/// "192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:80", "\"[2001:db8::1]\""
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let addr: Option<IpAddr> = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?.parse().ok(),
        None => text.parse().ok().or_else(|| text.split(':').next()?.parse().ok()),
    };
    addr.map(|addr| addr.to_canonical())
}

/// Where in the chain the client is: the last that is not itself a trusted proxy, since everything before it could have been made up by
/// the client. It may be one without an address ("unknown", "_hidden").
fn client(chain: &[Option<IpAddr>], trusted: &[IpNet]) -> usize {
    let proxy = |addr: &IpAddr| trusted.iter().any(|net| net.contains(addr));
    chain.iter().rposition(|addr| !addr.as_ref().is_some_and(proxy)).unwrap_or(0)
}

pub(crate) fn read(headers: &HeaderMap, trusted: &[IpNet]) -> Forwarded {
    if headers.contains_key("forwarded") && !headers.contains_key("x-forwarded-for") {
        return standard(headers, trusted);
    }
    let list = text(headers, "x-forwarded-for").flat_map(|v| v.split(','));
    let chain: Vec<Option<IpAddr>> = list.map(address).collect();
    let last = |name: &str| text(headers, name).next_back().and_then(|v| v.rsplit(',').next()).map(str::trim);
    Forwarded {
        addr: chain.get(client(&chain, trusted)).copied().flatten(),
        https: last("x-forwarded-proto").map(|v| v.eq_ignore_ascii_case("https")),
        host: last("x-forwarded-host").filter(|host| is_host(host.as_bytes())).map(str::to_owned),
        port: last("x-forwarded-port").and_then(|v| v.parse().ok()),
    }
}

fn standard(headers: &HeaderMap, trusted: &[IpNet]) -> Forwarded {
    let mut hops = Vec::new();
    for element in text(headers, "forwarded").flat_map(|v| v.split(',')) {
        let mut hop = Hop::default();
        for pair in element.split(';') {
            let Some((name, value)) = pair.trim().split_once('=') else { continue };
            let value = value.trim_matches('"');
            match name.to_ascii_lowercase().as_str() {
                "for" => hop.addr = address(value),
                "proto" => hop.https = Some(value.eq_ignore_ascii_case("https")),
                "host" => hop.host = Some(value).filter(|host| is_host(host.as_bytes())),
                _ => {}
            }
        }
        hops.push(hop);
    }
    let chain: Vec<Option<IpAddr>> = hops.iter().map(|hop| hop.addr).collect();
    // Trusted proxies wrote what is said of the client, and what comes after it.
    let hops = &hops[client(&chain, trusted).min(hops.len())..];
    Forwarded {
        addr: hops.first().and_then(|hop| hop.addr),
        https: hops.iter().find_map(|hop| hop.https),
        host: hops.iter().find_map(|hop| hop.host).map(str::to_owned),
        port: None,
    }
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

    #[test]
    fn what_the_client_made_up_is_not_believed() {
        // A proxy that knows X-Forwarded-For passes the client's Forwarded on.
        let got = said(&[("forwarded", "for=127.0.0.1;proto=https"), ("x-forwarded-for", "198.51.100.7")]);
        assert_eq!((got.addr, got.https), (Some("198.51.100.7".parse().unwrap()), None));
        let got = said(&[(
            "forwarded",
            "for=127.0.0.1;host=evil.test;proto=https, for=198.51.100.7, for=10.0.0.1",
        )]);
        assert_eq!(got, Forwarded { addr: Some("198.51.100.7".parse().unwrap()), ..Forwarded::default() });
        // A proxy that does not say who the client is.
        assert_eq!(said(&[("forwarded", "for=127.0.0.1, for=_hidden, for=10.0.0.1")]).addr, None);
        assert_eq!(said(&[("x-forwarded-for", "127.0.0.1, unknown")]).addr, None);
        assert_eq!(said(&[("x-forwarded-host", "a\"><b>")]).host, None);
    }

    #[test]
    fn every_way_to_write_an_address() {
        for (text, want) in [
            ("2001:db8::7", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("[2001:db8::7]:443", "2001:db8::7"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:8080", "192.0.2.1"),
        ] {
            assert_eq!(address(text), Some(want.parse().unwrap()), "{text}");
        }
    }
}
