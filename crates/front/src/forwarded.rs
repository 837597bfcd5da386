//! Who the client really is, when a trusted proxy says so: in `X-Forwarded-*`, or in `Forwarded` (RFC 7239) where there is no
//! `X-Forwarded-For`; as far as an operator has these believed ([`TrustedHeaders`]). Most proxies know only the former, and pass the latter on as
//! the client made it up.
//!
//! It promises what nginx' realip module promises with `real_ip_recursive`: the chain is read from the right, hop by hop, as long as the
//! hops are trusted proxies; the first that is none is the client. What cannot be read ends the walk there, and the last address before it
//! counts. Nothing that stands further to the left is looked at: the client may have made it up, in whatever bytes.

use std::net::{IpAddr, SocketAddr};

use hayate_http::Head;
use ipnet::IpNet;

use crate::{TrustedHeaders, host::Host};

/// What a proxy said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub(crate) client: Option<Client>,
    pub(crate) https: Option<bool>,
    /// Whole, as [`Host`] took it.
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
}

/// Where the request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) addr: IpAddr,
    /// Few proxies say it.
    pub(crate) port: Option<u16>,
}

/// The elements of all lines of a header, from the right. White space around them and empty ones are left out.
fn from_the_right<'a>(
    head: &'a Head,
    name: &'a str,
    quotes: bool,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let lines: Vec<&[u8]> = head.all(name.as_bytes()).collect();
    let elements = lines.into_iter().rev().flat_map(move |line| Elements { rest: Some(line), quotes });
    elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

struct Elements<'a> {
    rest: Option<&'a [u8]>,
    /// Commas in quoted strings do not separate.
    quotes: bool,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let line = self.rest?;
        let mut quoted = false;
        // Seen from the right a quoted string that the client did not close is beyond what is well-formed.
        let comma = line.iter().enumerate().rposition(|(i, b)| {
            if self.quotes && *b == b'"' && !is_escaped(line, i) {
                quoted = !quoted;
            }
            *b == b',' && !quoted
        });
        self.rest = comma.and_then(|comma| line.get(..comma));
        line.get(comma.map_or(0, |comma| comma + 1)..)
    }
}

fn is_escaped(line: &[u8], at: usize) -> bool {
    line.iter().take(at).rev().take_while(|b| **b == b'\\').count() % 2 == 1
}

/// "192.0.2.1", "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]:80", and "[2001:db8::1]".
fn address(text: &[u8]) -> Option<Client> {
    let text = std::str::from_utf8(text).ok()?;
    let alone = |text: &str| Some(Client { addr: text.parse::<IpAddr>().ok()?, port: None });
    let with_port = |text: &str| {
        let both: SocketAddr = text.parse().ok()?;
        // Behind a zone ("%2") it means something on one machine only.
        let zone = matches!(both, SocketAddr::V6(v6) if v6.scope_id() != 0);
        (!zone).then_some(Client { addr: both.ip(), port: (both.port() != 0).then_some(both.port()) })
    };
    let bracketed = |text: &str| {
        let inner = text.strip_prefix('[')?.strip_suffix(']')?;
        alone(inner).filter(|client| client.addr.is_ipv6())
    };
    let found = alone(text).or_else(|| with_port(text)).or_else(|| bracketed(text))?;
    Some(Client { addr: found.addr.to_canonical(), ..found })
}

/// Walks from the right, past trusted proxies. Also says which hop, from the right, is the client's: it may be one without an address.
fn walk(hops: impl Iterator<Item = Option<Client>>, trusted: &[IpNet]) -> (Option<Client>, usize) {
    let (mut client, mut at) = (None, 0);
    for (i, hop) in hops.enumerate() {
        at = i;
        let Some(hop) = hop else { break };
        client = Some(hop);
        if !trusted.iter().any(|net| net.contains(&hop.addr)) {
            break;
        }
    }
    (client, at)
}

/// Reads what the peer, a trusted proxy, says in the headers that are believed.
pub(crate) fn read(head: &Head, trusted: &[IpNet], believed: TrustedHeaders) -> Forwarded {
    let chain = believed.x_forwarded_for && head.get(b"x-forwarded-for").is_some();
    if believed.forwarded && !chain && head.get(b"forwarded").is_some() {
        return standard(head, trusted);
    }
    let (client, at) = match chain {
        true => walk(from_the_right(head, "x-forwarded-for", false).map(address), trusted),
        false => (None, 0),
    };
    // A proxy that appends to the chain appends here as well, or else replaces what there was.
    let of_client = |name: &'static str, is_believed: bool| {
        is_believed.then(|| from_the_right(head, name, false).take(at + 1).last()).flatten()
    };
    Forwarded {
        client,
        https: of_client("x-forwarded-proto", believed.x_forwarded_proto).and_then(scheme),
        host: of_client("x-forwarded-host", believed.x_forwarded_host).and_then(host),
        port: of_client("x-forwarded-port", believed.x_forwarded_port).and_then(port),
    }
}

fn scheme(text: &[u8]) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case(b"https") => Some(true),
        _ if text.eq_ignore_ascii_case(b"http") => Some(false),
        _ => None,
    }
}

fn host(text: &[u8]) -> Option<String> {
    Host::parse(text)?;
    Some(std::str::from_utf8(text).ok()?.to_owned())
}

fn port(text: &[u8]) -> Option<u16> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let port = std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()?;
    (port != 0).then_some(port)
}

/// One proxy's words in `Forwarded`.
#[derive(Default)]
struct Hop {
    client: Option<Client>,
    https: Option<bool>,
    host: Option<String>,
}

/// RFC 7239, 4: pairs of a name and a token or a quoted string. `None`: not well-formed.
fn hop(element: &[u8]) -> Option<Hop> {
    let mut hop = Hop::default();
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut rest = element;
    loop {
        let equals = memchr::memchr(b'=', rest)?;
        let (name, value) = (rest.get(..equals)?.trim_ascii().to_ascii_lowercase(), rest.get(equals + 1..)?);
        let value = value.trim_ascii_start();
        if name.is_empty() || !name.iter().all(u8::is_ascii_alphanumeric) || seen.contains(&name) {
            return None;
        }
        let (value, after) = match value.split_first() {
            Some((b'"', quoted)) => unquoted(quoted)?,
            _ => {
                let end = memchr::memchr(b';', value).unwrap_or(value.len());
                // Not quoted, though it ought to be, an address of IPv6 is often seen, and means only one thing.
                let token = value.get(..end)?.trim_ascii();
                if token.iter().any(|b| matches!(b, b'"' | b'\\' | b' ')) {
                    return None;
                }
                (token.to_vec(), value.get(end..)?)
            }
        };
        match &name[..] {
            b"for" => hop.client = address(&value),
            b"proto" => hop.https = scheme(&value),
            b"host" => hop.host = host(&value),
            _ => {}
        }
        seen.push(name);
        match after.trim_ascii().split_first() {
            None => return Some(hop),
            Some((b';', more)) if more.trim_ascii().is_empty() => return Some(hop),
            Some((b';', more)) => rest = more,
            Some(_) => return None,
        }
    }
}

/// The content of a quoted string whose first quote is gone, and what comes after it.
fn unquoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut out = Vec::new();
    let mut bytes = text.iter().enumerate();
    while let Some((i, b)) = bytes.next() {
        match b {
            b'"' => return Some((out, text.get(i + 1..)?)),
            b'\\' => out.push(*bytes.next()?.1),
            b => out.push(*b),
        }
    }
    None
}

fn standard(head: &Head, trusted: &[IpNet]) -> Forwarded {
    let mut hops: Vec<Hop> = Vec::new();
    // What is malformed is no hop. "unknown" and "_hidden" are hops without an address, and the walk ends with them.
    let elements = from_the_right(head, "forwarded", true).map_while(hop).map(|hop| {
        let client = hop.client;
        hops.push(hop);
        client
    });
    let (client, _) = walk(elements, trusted);
    // What the client's hop says, else the nearest proxy after it.
    Forwarded {
        client,
        https: hops.iter().rev().find_map(|hop| hop.https),
        host: hops.iter_mut().rev().find_map(|hop| hop.host.take()),
        port: None,
    }
}

#[cfg(test)]
#[path = "forwarded/tests.rs"]
mod tests;
