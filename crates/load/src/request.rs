//! What is sent: requests that are built once, before the load begins.
//!
//! Promises: all requests of a load go to one host, and are valid HTTP. Must never build anything per shot, but for the
//! cookies of a virtual user.

use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri, header,
    uri::{Authority, Scheme},
};

/// What the requests have in common, as it comes from flags.
#[derive(Clone, Debug)]
pub struct Template {
    /// `None`: GET, or POST when there is a body.
    pub method: Option<Method>,
    /// Extra headers, in order. `Host` replaces the one made from the URL.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Body; GET and HEAD lines of a list of URLs are sent without.
    pub body: Bytes,
    /// Ask the server to keep the connection; else each request has a connection of its own (as ab without -k).
    pub keep_alive: bool,
}

impl Default for Template {
    fn default() -> Self {
        Self { method: None, headers: Vec::new(), body: Bytes::new(), keep_alive: true }
    }
}

/// Why requests could not be made from what was given.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No URL in the list.
    #[error("the list of URLs is empty")]
    Empty,
    /// A URL that cannot be used.
    #[error("{place}: {reason}")]
    Url {
        /// The URL, or the line of the list.
        place: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The host has no address.
    #[error("{host}: {source}")]
    Resolve {
        /// Host and port.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
}

/// One request, ready to be sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: Uri,
    /// All headers, `Host` and `Content-Length` included.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: Bytes,
    /// The whole URL, with the host that `Host` names, as HTTP/2 has it.
    pub(crate) absolute: Uri,
    /// The headers that HTTP/2 has as well.
    pub(crate) fields: HeaderMap,
    /// The whole request as it goes over the wire.
    wire: Bytes,
    /// Where in `wire` another header line can be put.
    head_end: usize,
}

impl Request {
    fn new(
        base: &Base,
        method: Method,
        target: Uri,
        headers: Vec<(HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Self {
        let mut wire = Vec::with_capacity(256 + body.len());
        wire.extend_from_slice(method.as_str().as_bytes());
        wire.push(b' ');
        wire.extend_from_slice(target.to_string().as_bytes());
        wire.extend_from_slice(b" HTTP/1.1\r\n");
        for (name, value) in &headers {
            wire.extend_from_slice(name.as_str().as_bytes());
            wire.extend_from_slice(b": ");
            wire.extend_from_slice(value.as_bytes());
            wire.extend_from_slice(b"\r\n");
        }
        let head_end = wire.len();
        wire.extend_from_slice(b"\r\n");
        wire.extend_from_slice(&body);
        let (absolute, fields) = (base.absolute(&target, &headers), fields(&headers));
        Self { method, target, headers, body, absolute, fields, wire: wire.into(), head_end }
    }

    /// The request as it goes over the wire.
    pub(crate) fn wire(&self) -> &Bytes {
        &self.wire
    }

    /// The same with a `Cookie` header.
    pub(crate) fn wire_with_cookies(&self, cookies: &str) -> Bytes {
        let mut wire = Vec::with_capacity(self.wire.len() + cookies.len() + 10);
        wire.extend_from_slice(&self.wire[..self.head_end]);
        wire.extend_from_slice(b"cookie: ");
        wire.extend_from_slice(cookies.as_bytes());
        wire.extend_from_slice(b"\r\n");
        wire.extend_from_slice(&self.wire[self.head_end..]);
        wire.into()
    }
}

/// The headers without those that are about an HTTP/1.1 connection (RFC 9113, 8.2.2), and without `Host`.
fn fields(headers: &[(HeaderName, HeaderValue)]) -> HeaderMap {
    let not_in_http2 = [
        header::CONNECTION,
        header::HOST,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ];
    headers.iter().filter(|(name, _)| !not_in_http2.contains(name)).cloned().collect()
}

/// What all URLs of a load begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Base {
    scheme: Scheme,
    /// Host and port as the URL has them.
    authority: Authority,
}

impl Base {
    /// The URL of a target. A `Host` header that is no authority leaves the host as it is: HTTP/2 has no place for it.
    fn absolute(&self, target: &Uri, headers: &[(HeaderName, HeaderValue)]) -> Uri {
        let named = headers.iter().find(|(name, _)| name == header::HOST);
        let host = named.and_then(|(_, host)| Authority::try_from(host.as_bytes()).ok());
        let mut parts = target.clone().into_parts();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(host.unwrap_or_else(|| self.authority.clone()));
        Uri::from_parts(parts).unwrap_or_else(|_| target.clone())
    }
}

/// In which order a list of requests is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As written, again and again.
    #[default]
    Sequential,
    /// At random, the same in each run.
    Random,
}

/// The requests of a load: at least one, all to one host.
#[derive(Clone, Debug)]
pub struct Requests {
    url: String,
    base: Base,
    keep_alive: bool,
    address: SocketAddr,
    list: Vec<Request>,
    order: Order,
}

impl Requests {
    /// One request, again and again.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn to(url: &str, template: &Template) -> Result<Self, RequestError> {
        let place = || url.to_owned();
        let (base, target) = split_url(url).map_err(|reason| RequestError::Url { place: place(), reason })?;
        let address = resolve(&base)?;
        let request = build(&base, template.method.clone(), target, template);
        Ok(Self {
            url: url.to_owned(),
            base,
            keep_alive: template.keep_alive,
            address,
            list: vec![request],
            order: Order::Sequential,
        })
    }

    /// A list of requests, one a line: `/path`, `http://host/path`, or either after a method, `DELETE /users/7`. Empty lines
    /// and those that begin with `#` do not count. `base_url` gives the host; a URL with another host is an error.
    ///
    /// # Errors
    /// See [`RequestError`]; errors in the list name `list_name` and the line.
    pub fn from_list(
        base_url: &str,
        list_name: &str,
        list: &str,
        order: Order,
        template: &Template,
    ) -> Result<Self, RequestError> {
        let place = || base_url.to_owned();
        let (base, _) = split_url(base_url).map_err(|reason| RequestError::Url { place: place(), reason })?;
        let mut requests = Vec::new();
        for (number, line) in list.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |reason: String| RequestError::Url {
                place: format!("{list_name}:{}: {line}", number + 1),
                reason,
            };
            let (method, url) = match line.split_once(char::is_whitespace) {
                Some((method, url)) => {
                    let method = Method::from_bytes(method.as_bytes())
                        .map_err(|_| wrong(format!("'{method}' is not a method; a line is [METHOD] URL")))?;
                    (Some(method), url.trim_start())
                }
                None => (template.method.clone(), line),
            };
            let target = if url.starts_with('/') {
                parse_target(url).map_err(wrong)?
            } else {
                let (its_base, target) = split_url(url).map_err(wrong)?;
                if its_base != base {
                    let Base { scheme, authority } = &base;
                    return Err(wrong(format!("all URLs have to be on {scheme}://{authority}")));
                }
                target
            };
            requests.push(build(&base, method, target, template));
        }
        if requests.is_empty() {
            return Err(RequestError::Empty);
        }
        let address = resolve(&base)?;
        Ok(Self {
            url: base_url.to_owned(),
            base,
            keep_alive: template.keep_alive,
            address,
            list: requests,
            order,
        })
    }

    /// The URL it was made from.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Host and port as the URL has them.
    pub fn authority(&self) -> &str {
        self.base.authority.as_str()
    }

    /// The host's name or address, if it is to be spoken to over TLS.
    pub(crate) fn tls_host(&self) -> Option<&str> {
        let host = self.base.authority.host().trim_start_matches('[').trim_end_matches(']');
        (self.base.scheme == Scheme::HTTPS).then_some(host)
    }

    /// Whether connections are kept for further requests.
    pub(crate) fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The different requests.
    pub fn list(&self) -> &[Request] {
        &self.list
    }

    /// The request that the shot with this number sends.
    pub(crate) fn of_shot(&self, number: u64) -> &Request {
        let number = match self.order {
            Order::Sequential => number,
            Order::Random => scatter(number),
        };
        &self.list[(number % self.list.len() as u64) as usize]
    }
}

/// A number that looks random, the same for the same input: the output function of SplitMix64 (Steele, Lea and Flood,
/// "Fast splittable pseudorandom number generators", 2014).
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn build(base: &Base, method: Option<Method>, target: Uri, template: &Template) -> Request {
    let method = method.unwrap_or(if template.body.is_empty() { Method::GET } else { Method::POST });
    let bodiless = method == Method::GET || method == Method::HEAD;
    let body = if bodiless && template.method.as_ref() != Some(&method) {
        Bytes::new()
    } else {
        template.body.clone()
    };
    let mut headers = template.headers.clone();
    if !headers.iter().any(|(name, _)| name == header::HOST) {
        // An authority that was parsed has no characters that a header may not have.
        if let Ok(host) = HeaderValue::from_str(base.authority.as_str()) {
            headers.insert(0, (header::HOST, host));
        }
    }
    if (!body.is_empty() || !(bodiless || method == Method::DELETE || method == Method::OPTIONS))
        && !headers.iter().any(|(name, _)| name == header::CONTENT_LENGTH)
    {
        headers.push((header::CONTENT_LENGTH, HeaderValue::from(body.len())));
    }
    if !template.keep_alive {
        headers.push((header::CONNECTION, HeaderValue::from_static("close")));
    }
    Request::new(base, method, target, headers, body)
}

/// Scheme, host and port, and path and query, of a URL. `http://` may be left out.
fn split_url(url: &str) -> Result<(Base, Uri), String> {
    let with_scheme = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri: Uri = with_scheme.parse().map_err(|error| format!("not a URL: {error}"))?;
    let scheme = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS => scheme.clone(),
        _ => return Err("not an http:// or https:// URL".to_owned()),
    };
    let authority =
        uri.authority().filter(|authority| !authority.host().is_empty()).ok_or("the host is missing")?;
    if authority.as_str().contains('@') {
        return Err("a user name is not supported: give an Authorization header".to_owned());
    }
    let target = parse_target(uri.path_and_query().map_or("/", |target| target.as_str()))?;
    Ok((Base { scheme, authority: authority.clone() }, target))
}

fn parse_target(target: &str) -> Result<Uri, String> {
    target.parse().map_err(|error| format!("not a path: {error}"))
}

/// The first address of a host that accepts a connection, else the first. Asked once: a resolver is not what is measured.
fn resolve(base: &Base) -> Result<SocketAddr, RequestError> {
    let parsed = &base.authority;
    let failed = |source| RequestError::Resolve { host: parsed.to_string(), source };
    let port = match parsed.port_u16() {
        Some(port) => port,
        None if parsed.as_str().len() == parsed.host().len() => {
            if base.scheme == Scheme::HTTPS {
                443
            } else {
                80
            }
        }
        None => {
            return Err(failed(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a port is a number up to 65535",
            )));
        }
    };
    let host = parsed.host().trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(failed)?.collect();
    match addresses[..] {
        [] => Err(failed(io::Error::new(io::ErrorKind::NotFound, "the host has no address"))),
        [only] => Ok(only),
        [first, ..] => Ok(addresses
            .iter()
            .copied()
            .find(|address| TcpStream::connect_timeout(address, Duration::from_secs(1)).is_ok())
            .unwrap_or(first)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(request: &Request) -> &str {
        std::str::from_utf8(request.wire()).expect("text")
    }

    #[test]
    fn a_plain_request_is_as_short_as_wrks() {
        let requests = Requests::to("http://127.0.0.1:81/a?b=c", &Template::default()).expect("valid");
        assert_eq!(wire(&requests.list()[0]), "GET /a?b=c HTTP/1.1\r\nhost: 127.0.0.1:81\r\n\r\n");
        assert_eq!(requests.address().port(), 81);
        assert_eq!(Requests::to("127.0.0.1", &Template::default()).expect("valid").address().port(), 80);
    }

    #[test]
    fn bodies_have_a_length_and_make_it_a_post() {
        let template =
            Template { body: Bytes::from_static(b"x=1"), keep_alive: false, ..Template::default() };
        let requests = Requests::to("http://127.0.0.1/", &template).expect("valid");
        assert_eq!(
            wire(&requests.list()[0]),
            "POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 3\r\nconnection: close\r\n\r\nx=1"
        );
        let with_cookies = requests.list()[0].wire_with_cookies("a=b; c=d");
        assert!(with_cookies.ends_with(b"connection: close\r\ncookie: a=b; c=d\r\n\r\nx=1"));
    }

    #[test]
    fn lists_name_the_line_that_is_wrong() {
        let read = |list: &str| {
            Requests::from_list(
                "http://127.0.0.1:81/",
                "urls.txt",
                list,
                Order::Sequential,
                &Template::default(),
            )
        };
        let requests = read("# users\n\n/a\nDELETE /b\nhttp://127.0.0.1:81/c\n").expect("valid");
        let methods: Vec<_> = requests.list().iter().map(|r| format!("{} {}", r.method, r.target)).collect();
        assert_eq!(methods, ["GET /a", "DELETE /b", "GET /c"]);
        assert_eq!(requests.of_shot(4).target, "/b");
        assert_eq!(read("#\n").expect_err("empty").to_string(), "the list of URLs is empty");
        let error = read("/a\nhttp://elsewhere/").expect_err("host").to_string();
        assert_eq!(error, "urls.txt:2: http://elsewhere/: all URLs have to be on http://127.0.0.1:81");
        let error = read("/a b").expect_err("method").to_string();
        assert!(error.starts_with("urls.txt:1: /a b: '/a' is not a method"), "{error}");
    }

    #[test]
    fn urls_that_cannot_be_used_say_why() {
        for (url, reason) in [
            ("ftp://127.0.0.1/", "not an http:// or https:// URL"),
            ("http://", "not a URL"),
            ("http://user@127.0.0.1/", "Authorization"),
            ("http://127.0.0.1:99999/", "a port is a number"),
        ] {
            let error = Requests::to(url, &Template::default()).expect_err(url).to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn random_order_repeats_itself_and_reaches_everything() {
        let list: String = (0..10).map(|i| format!("/{i}\n")).collect();
        let requests =
            Requests::from_list("http://127.0.0.1/", "list", &list, Order::Random, &Template::default())
                .expect("valid");
        let order = |from: u64| {
            (from..from + 200).map(|n| requests.of_shot(n).target.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(order(0), order(0));
        assert_eq!(order(0).iter().collect::<std::collections::HashSet<_>>().len(), 10);
        assert_ne!(order(0)[..10], order(10)[..10]);
    }
}
