//! What HTTP/2 and HTTP/3 have in common: heads of answers in their words, and heads of requests in HTTP/1's, since what is above knows one
//! form only. Pseudo headers and names are the crates' to check; what is here is what both leave to a server.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::{
    Answer, Head, Length, Limits, Refusal, Version, date,
    h1::parse::{is_host, is_method},
    head::{Span, Spans},
    refusal::refuse,
};

/// How an answer begins.
pub(crate) struct Opening {
    pub(crate) head: Response<()>,
    /// Bytes of a body that are promised, `None` when nothing is.
    pub(crate) left: Option<u64>,
    /// Nothing follows the head.
    pub(crate) ends: bool,
}

/// The head of an answer. `head_only`: to a HEAD.
pub(crate) fn opening(answer: &Answer, length: Length, head_only: bool) -> Opening {
    let status = match status(answer) {
        status if status.is_informational() => StatusCode::INTERNAL_SERVER_ERROR,
        status => status,
    };
    let mut fields = headers(answer);
    if !fields.contains_key(header::SERVER) {
        fields.insert(header::SERVER, HeaderValue::from_static("hayate"));
    }
    if !fields.contains_key(header::DATE) {
        let mut line = Vec::new();
        date::append(&mut line);
        let value = line.strip_prefix(b"Date: ").unwrap_or_default().trim_ascii();
        HeaderValue::from_bytes(value).into_iter().for_each(|value| drop(fields.insert(header::DATE, value)));
    }
    if let Length::Exact(n) = length
        && status != StatusCode::NO_CONTENT
    {
        fields.insert(header::CONTENT_LENGTH, n.into());
    }
    let left = match length {
        Length::None => Some(0),
        Length::Exact(n) => Some(n),
        Length::Unknown => None,
    };
    let ends = head_only || matches!(status.as_u16(), 204 | 304) || left == Some(0);
    let mut head = Response::new(());
    (*head.status_mut(), *head.headers_mut()) = (status, fields);
    Opening { head, left, ends }
}

/// An informational head: `None` where it is none that a handler may send.
pub(crate) fn informational(answer: &Answer) -> Option<Response<()>> {
    matches!(answer.status(), 102..200).then(|| {
        let mut head = Response::new(());
        (*head.status_mut(), *head.headers_mut()) = (status(answer), headers(answer));
        head
    })
}

/// 100.
pub(crate) fn go_on() -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::CONTINUE;
    head
}

/// Whether the client waits to be told to send its body.
pub(crate) fn expects_continue(head: &Head) -> bool {
    head.get(b"expect").is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

/// The length that a request says its body has. `Err`: it says what is no length, or two.
pub(crate) fn content_length(head: &Head) -> Result<Option<u64>, ()> {
    let mut said = head.all(b"content-length");
    let Some(first) = said.next() else { return Ok(None) };
    let digits = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
    if !digits || said.next().is_some() {
        return Err(());
    }
    std::str::from_utf8(first).ok().and_then(|text| text.parse().ok()).map(Some).ok_or(())
}

/// Whether a field is of the connection, where the connection is HTTP/1's: then the request is malformed (RFC 9113, 8.2.2; RFC 9114, 4.2).
pub(crate) fn is_of_a_connection(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"connection" | b"transfer-encoding" | b"upgrade" | b"keep-alive" | b"proxy-connection" => true,
        b"te" => !value.eq_ignore_ascii_case(b"trailers"),
        _ => false,
    }
}

fn status(answer: &Answer) -> StatusCode {
    StatusCode::from_u16(answer.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Without those that are HTTP/1's own (RFC 9113, 8.2.2).
fn headers(answer: &Answer) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in answer.fields() {
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) else {
            continue;
        };
        let hop = matches!(
            name,
            header::CONNECTION
                | header::TRANSFER_ENCODING
                | header::UPGRADE
                | header::TE
                | header::CONTENT_LENGTH
        );
        if hop || name == "keep-alive" || name == "proxy-connection" {
            continue;
        }
        // It takes some 24,000.
        let _ = map.try_append(name, value);
    }
    map
}

/// What a request says, in the words of HTTP/2 and 3.
pub(crate) struct Said<'a, F> {
    pub(crate) method: &'a [u8],
    /// `:path`, with the query.
    pub(crate) path: Option<&'a [u8]>,
    pub(crate) authority: Option<&'a [u8]>,
    /// Gives names in lower case, and values; it is asked more than once.
    pub(crate) fields: F,
}

/// The request's head in HTTP/1's words, and what is wrong with it.
pub(crate) fn head<'a, F, I>(said: &Said<'a, F>, version: Version, limits: &Limits) -> (Head, Option<Refusal>)
where
    F: Fn() -> I,
    I: Iterator<Item = (&'a [u8], &'a [u8])>,
{
    let mut bytes = Vec::with_capacity(256);
    let mut spans = Spans::default();
    let put = |bytes: &mut Vec<u8>, text: &[u8], after: &[u8]| {
        let from = bytes.len();
        bytes.extend_from_slice(text);
        let span = Span::new(from..bytes.len());
        bytes.extend_from_slice(after);
        span
    };
    let all = |wanted: &'static [u8]| {
        (said.fields)().filter(move |(name, _)| *name == wanted).map(|(_, value)| value.trim_ascii())
    };
    let target = said.path.or(said.authority).unwrap_or_default();
    spans.method = put(&mut bytes, said.method, b" ");
    spans.target = put(&mut bytes, target, b" ");
    bytes.extend_from_slice(version.name().as_bytes());
    bytes.extend_from_slice(b"\r\n");
    let host = said.authority.or(all(b"host").next()).unwrap_or_default();
    let contradicts = all(b"host").any(|other| other != host);
    let name = put(&mut bytes, b"host", b": ");
    let value = put(&mut bytes, host, b"\r\n");
    spans.fields.push((name, value));
    // Clients may send a cookie in crumbs (RFC 9113, 8.2.3).
    let crumbs: Vec<_> = all(b"cookie").collect();
    if !crumbs.is_empty() {
        let name = put(&mut bytes, b"cookie", b": ");
        let value = put(&mut bytes, &crumbs.join(&b"; "[..]), b"\r\n");
        spans.fields.push((name, value));
    }
    // All crumbs are one header, as if they had come by HTTP/1.
    let (mut count, mut of_a_connection) = (usize::from(!crumbs.is_empty()), false);
    for (name, value) in (said.fields)() {
        if name == b"cookie" {
            continue;
        }
        count += 1;
        of_a_connection |= is_of_a_connection(name, value);
        if name == b"host" {
            continue;
        }
        let name = put(&mut bytes, name, b": ");
        let value = put(&mut bytes, value.trim_ascii(), b"\r\n");
        spans.fields.push((name, value));
    }
    bytes.extend_from_slice(b"\r\n");
    let head = Head { bytes, spans, version };
    let refusal = if target.len() > limits.uri_length {
        Some(refuse(414, "the request target is too long"))
    } else if count > limits.header_count {
        Some(refuse(431, "too many headers"))
    } else if of_a_connection {
        Some(refuse(400, "a header of HTTP/1's connections"))
    } else if content_length(&head).is_err() {
        Some(refuse(400, "Content-Length is malformed"))
    } else if contradicts {
        Some(refuse(400, "Host contradicts :authority"))
    } else if host.is_empty() || !is_host(host) {
        Some(refuse(400, "the authority is missing or malformed"))
    } else if !is_method(said.method) {
        Some(refuse(400, "the method is malformed"))
    } else if target.iter().any(|b| *b <= b' ' || *b == 0x7f) {
        Some(refuse(400, "control characters in the request target"))
    } else if target.contains(&b'#') {
        // A client keeps it for itself (RFC 9110, 7.1), and no :path has one.
        Some(refuse(400, "a fragment in the request target"))
    } else {
        None
    };
    (head, refusal)
}
