use hayate_http::Limits;
use proptest::prelude::*;

use super::*;

fn head(headers: &[(&str, &[u8])]) -> Head {
    let mut bytes = b"GET / HTTP/1.0\r\n".to_vec();
    for (name, value) in headers {
        bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    bytes.extend(b"\r\n");
    Head::parse(&bytes, &Limits::default()).unwrap()
}

const ALL: TrustedHeaders = TrustedHeaders {
    x_forwarded_for: true,
    x_forwarded_proto: true,
    x_forwarded_host: true,
    x_forwarded_port: true,
    forwarded: true,
};

fn of(headers: &[(&'static str, &[u8])]) -> Forwarded {
    read(&head(headers), &["10.0.0.0/8".parse().unwrap()], ALL)
}

fn said(headers: &[(&'static str, &str)]) -> Forwarded {
    let bytes: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    of(&bytes)
}

fn addr(headers: &[(&'static str, &str)]) -> Option<String> {
    said(headers).client.map(|client| client.addr.to_string())
}

fn is(addr: &str) -> Option<String> {
    Some(addr.to_owned())
}

#[test]
fn the_client_is_the_last_stranger() {
    assert_eq!(addr(&[("x-forwarded-for", "203.0.113.66, 198.51.100.7, 10.1.2.3")]), is("198.51.100.7"));
    assert_eq!(
        addr(&[("x-forwarded-for", "198.51.100.7"), ("x-forwarded-for", "10.9.9.9")]),
        is("198.51.100.7")
    );
    assert_eq!(addr(&[("x-forwarded-for", "10.0.0.2, 10.0.0.1")]), is("10.0.0.2"));
    assert_eq!(addr(&[("x-forwarded-for", "nonsense")]), None);
    assert_eq!(addr(&[("x-forwarded-for", ", ,")]), None);
    assert_eq!(addr(&[("x-forwarded-for", "198.51.100.7,, 10.1.2.3 ,")]), is("198.51.100.7"));
}

#[test]
fn a_byte_that_is_not_ascii_ends_the_walk_and_drops_nothing() {
    let addr = |value: &[u8]| of(&[("x-forwarded-for", value)]).client.map(|client| client.addr.to_string());
    assert_eq!(addr(b"\xff, 9.9.9.9"), is("9.9.9.9"));
    assert_eq!(addr(b"\xff\xfe, 10.0.0.1"), is("10.0.0.1"), "the last that could be read, as nginx has it");
    assert_eq!(addr(b"9.9.9.9, \xff"), None);
    let of = |value: &[u8]| of(&[("forwarded", value)]);
    assert_eq!(of(b"for=\xff;x=\"\xfe, for=9.9.9.9;proto=https").client.unwrap().addr.to_string(), "9.9.9.9");
    assert_eq!(of(b"\xff, for=9.9.9.9;proto=https").https, Some(true));
}

#[test]
fn both_ways_of_saying_it() {
    let got = said(&[
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "example.org"),
        ("x-forwarded-port", "8443"),
    ]);
    assert_eq!((got.https, got.host.as_deref(), got.port), (Some(true), Some("example.org"), Some(8443)));
    let got = said(&[("forwarded", r#"for="[2001:db8::1]:80";proto=https;host=example.org, for=10.0.0.1"#)]);
    assert_eq!(got.client, Some(Client { addr: "2001:db8::1".parse().unwrap(), port: Some(80) }));
    assert_eq!((got.https, got.host.as_deref()), (Some(true), Some("example.org")));
}

#[test]
fn lists_of_what_each_proxy_saw_are_read_at_the_client() {
    let two = |name, value| said(&[("x-forwarded-for", "198.51.100.7, 10.0.0.1"), (name, value)]);
    assert_eq!(two("x-forwarded-proto", "https, http").https, Some(true));
    assert_eq!(two("x-forwarded-proto", "http, https, http").https, Some(true), "the client's own");
    assert_eq!(two("x-forwarded-proto", "HTTPS").https, Some(true), "set once for all");
    assert_eq!(two("x-forwarded-proto", "ftp").https, None);
    assert_eq!(
        two("x-forwarded-host", "evil.test, shop.test, inner.test").host.as_deref(),
        Some("shop.test")
    );
    assert_eq!(two("x-forwarded-port", "1, 443, 80").port, Some(443));
    for bad in ["0", "65536", "+1", "x", ""] {
        assert_eq!(two("x-forwarded-port", bad).port, None, "{bad}");
    }
    let lines = said(&[
        ("x-forwarded-for", "198.51.100.7"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-proto", "http"),
    ]);
    assert_eq!(lines.https, Some(true));
    // The client's hop is the one without an address.
    let hidden =
        said(&[("x-forwarded-for", "1.2.3.4, unknown, 10.0.0.1"), ("x-forwarded-proto", "x, https, http")]);
    assert_eq!((hidden.client.unwrap().addr.to_string(), hidden.https), ("10.0.0.1".into(), Some(true)));
}

#[test]
fn what_the_client_made_up_is_not_believed() {
    // A proxy that knows X-Forwarded-For passes the client's Forwarded on.
    let got = said(&[("forwarded", "for=127.0.0.1;proto=https"), ("x-forwarded-for", "198.51.100.7")]);
    assert_eq!((got.client.unwrap().addr.to_string(), got.https), ("198.51.100.7".into(), None));
    let got =
        said(&[("forwarded", "for=127.0.0.1;host=evil.test;proto=https, for=198.51.100.7, for=10.0.0.1")]);
    let client = Some(Client { addr: "198.51.100.7".parse().unwrap(), port: None });
    assert_eq!(got, Forwarded { client, ..Forwarded::default() });
    // Proxies that do not say who the client is: the last of them that somebody names.
    assert_eq!(addr(&[("forwarded", "for=127.0.0.1, for=_hidden, for=10.0.0.1")]), is("10.0.0.1"));
    assert_eq!(addr(&[("x-forwarded-for", "127.0.0.1, unknown")]), None);
    // What it says of the client's scheme is still its own word.
    assert_eq!(said(&[("forwarded", "for=unknown;proto=https")]).https, Some(true));
    for host in ["a\"><b>", "user:pw@shop.test", "shop.test:x", "a/b"] {
        assert_eq!(said(&[("x-forwarded-host", host)]).host, None, "{host}");
    }
}

#[test]
fn only_what_an_operator_has_believed_is_read() {
    let head = head(&[
        ("x-forwarded-for", b"198.51.100.7"),
        ("x-forwarded-proto", b"https"),
        ("x-forwarded-host", b"a.test"),
        ("x-forwarded-port", b"8443"),
        ("forwarded", b"for=203.0.113.9;proto=http;host=b.test"),
    ]);
    let read = |names: &[&str]| {
        let mut believed = TrustedHeaders::NONE;
        names.iter().for_each(|name| believed.believe(name).unwrap());
        super::read(&head, &[], believed)
    };
    let client = |addr: &str| Some(Client { addr: addr.parse().unwrap(), port: None });
    let nothing = Forwarded::default;
    assert_eq!(read(&[]), nothing());
    assert_eq!(read(&["X-Forwarded-For"]), Forwarded { client: client("198.51.100.7"), ..nothing() });
    assert_eq!(read(&["x-forwarded-proto"]), Forwarded { https: Some(true), ..nothing() });
    assert_eq!(read(&["x-forwarded-host"]), Forwarded { host: is("a.test"), ..nothing() });
    assert_eq!(read(&["x-forwarded-port"]), Forwarded { port: Some(8443), ..nothing() });
    // One that is not believed does not stand in the way of one that is.
    let standard =
        Forwarded { client: client("203.0.113.9"), https: Some(false), host: is("b.test"), port: None };
    assert_eq!(read(&["forwarded"]), standard);
    assert_eq!(read(&["forwarded", "x-forwarded-proto"]), standard);
    assert_eq!(read(&["forwarded", "x-forwarded-for"]).client, client("198.51.100.7"));
    let usual = super::read(&head, &[], TrustedHeaders::default());
    assert_eq!(
        usual,
        Forwarded { client: client("198.51.100.7"), https: Some(true), host: None, port: Some(8443) }
    );
    // Without a chain the element of the nearest proxy counts.
    let listed =
        self::head(&[("x-forwarded-for", b"1.1.1.1, 10.0.0.1"), ("x-forwarded-host", b"evil.test, a.test")]);
    let host_alone = TrustedHeaders { x_forwarded_host: true, ..TrustedHeaders::NONE };
    assert_eq!(super::read(&listed, &["10.0.0.0/8".parse().unwrap()], host_alone).host, is("a.test"));
    let mut believed = TrustedHeaders::NONE;
    let why = believed.believe("x-real-ip").unwrap_err();
    assert!(why.ends_with("x-forwarded-port and forwarded, found 'x-real-ip'"), "{why}");
}

/// Quotes and backslashes that a client left open do not reach what a proxy appended.
#[test]
fn an_open_quote_of_the_client_swallows_nothing() {
    for made_up in
        ["for=1.1.1.1;x=\"", "for=\"1.1.1.1", "x=\"\\", "\"", "\\", "a=b;;=\\\"", "for=1.1.1.1;by=\"a, b"]
    {
        let line = format!("{made_up}, for=198.51.100.7;host=shop.test, for=\"10.0.0.1:80\";by=\"a, \\\"b\"");
        let got = said(&[("forwarded", &line)]);
        assert_eq!(got.client.unwrap().addr.to_string(), "198.51.100.7", "{line}");
        assert_eq!(got.host.as_deref(), Some("shop.test"), "{line}");
    }
}

#[test]
fn the_grammar_of_forwarded() {
    for (text, want) in [
        ("For=192.0.2.43", Some("192.0.2.43")),
        ("for=\"[2001:db8:cafe::17]:4711\"", Some("2001:db8:cafe::17")),
        ("for=[2001:db8::1]", Some("2001:db8::1")),
        ("by=203.0.113.43 ; FOR = \"192.0.2.60:47\" ;proto=http;", Some("192.0.2.60")),
        ("for=\"192.0.2.\\43\"", Some("192.0.2.43")),
        ("for=192.0.2.43;for=192.0.2.44", None),
        ("for=\"192.0.2.43", None),
        ("for=\"192.0.2.43\"x", None),
        ("for", None),
        ("=192.0.2.43", None),
        ("for=a b", None),
        ("for=_SEVKISEK", None),
    ] {
        assert_eq!(addr(&[("forwarded", text)]).as_deref(), want, "{text}");
    }
}

#[test]
fn every_way_to_write_an_address() {
    for (text, want, port) in [
        ("2001:db8::7", "2001:db8::7", None),
        ("[2001:db8::7]", "2001:db8::7", None),
        ("[2001:db8::7]:443", "2001:db8::7", Some(443)),
        ("::ffff:192.0.2.1", "192.0.2.1", None),
        ("192.0.2.1:8080", "192.0.2.1", Some(8080)),
        ("192.0.2.1:0", "192.0.2.1", None),
    ] {
        let client = Client { addr: want.parse().unwrap(), port };
        assert_eq!(address(text.as_bytes()), Some(client), "{text}");
    }
    for text in [
        "",
        "1.2.3",
        "[192.0.2.1]",
        "fe80::1%2",
        "[fe80::1%2]:80",
        "[::1",
        "::1]",
        "1.2.3.4:",
        "a.test",
        "01.2.3.4",
    ] {
        assert_eq!(address(text.as_bytes()), None, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever a client sends before, in whatever lines: what the proxies appended decides.
    #[test]
    fn no_client_can_change_what_proxies_say(
        lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4),
        joined in any::<bool>(),
        standard in any::<bool>(),
    ) {
        let (name, appended) = match standard {
            true => ("forwarded", "for=198.51.100.7;proto=https;host=shop.test, for=10.0.0.1"),
            false => ("x-forwarded-for", "198.51.100.7, 10.0.0.1"),
        };
        let mut values: Vec<Vec<u8>> = lines;
        match values.last_mut() {
            Some(last) if joined => {
                last.extend_from_slice(b", ");
                last.extend_from_slice(appended.as_bytes());
            }
            _ => values.push(appended.into()),
        }
        // What cannot be in a head does not get here.
        let plain = |b: &u8| (*b >= b' ' && *b != 0x7f) || *b == b'\t';
        if !values.iter().flatten().all(plain) {
            return Ok(());
        }
        let fields: Vec<(&str, &[u8])> = values.iter().map(|value| (name, &value[..])).collect();
        let got = read(&head(&fields), &["10.0.0.0/8".parse().unwrap()], ALL);
        prop_assert_eq!(got.client.map(|client| client.addr.to_string()), is("198.51.100.7"));
        if standard {
            prop_assert_eq!((got.https, got.host.as_deref()), (Some(true), Some("shop.test")));
        }
    }

    /// Words of the grammar in any order: no panic, and what is believed is well-formed.
    #[test]
    fn no_words_are_too_odd(words in prop::collection::vec(prop::sample::select(&[
        "for", "=", "\"", "\\", ";", ",", " ", "[", "]", ":", "::1", "10.0.0.1", "9.9.9.9", "proto", "https", "host", "a.test", "@",
    ][..]), 0..24)) {
        let text: String = words.concat();
        for name in ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port"] {
            let got = said(&[(name, &text)]);
            if let Some(host) = got.host {
                prop_assert!(Host::parse(host.as_bytes()).is_some());
            }
        }
    }
}
