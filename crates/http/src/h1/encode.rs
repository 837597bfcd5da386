//! The head of an answer in HTTP/1's words.

use std::io::Write;

use crate::{Answer, Length, Version, date};

/// The standard phrases (RFC 9110, 15, and the registry of statuses). A code without one gets none, which is what HTTP asks for.
pub fn phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Payload Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Entity",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        _ => "",
    }
}

/// How a body goes over the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carry {
    /// It does not.
    None,
    /// So many bytes are still to come.
    Length(u64),
    /// In the chunked coding.
    Chunks,
    /// Until the connection ends.
    End,
}

/// What is said of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    /// Nothing: it goes on, as 1.1 has it.
    Unsaid,
    /// It goes on, which a client of 1.0 has to be told.
    KeepAlive,
    Close,
}

/// To clients of 1.0 in their version, which some of them insist on.
fn status_line(answer: &Answer, version: Version, to: &mut Vec<u8>) {
    match (answer.status(), answer.reason(), version) {
        (200, None, Version::Http11) => to.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        (status, reason, version) => {
            to.extend_from_slice(if version == Version::Http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
            // Writing to a Vec does not fail.
            let _ = write!(to, "{status} ");
            to.extend_from_slice(reason.unwrap_or(phrase(status).as_bytes()));
            to.extend_from_slice(b"\r\n");
        }
    }
}

/// Names as browsers' tools and nginx show them: each word begins with a capital.
fn field(name: &[u8], value: &[u8], to: &mut Vec<u8>) {
    let at = to.len();
    to.extend_from_slice(name);
    let mut begins = true;
    for b in to.iter_mut().skip(at) {
        if begins {
            b.make_ascii_uppercase();
        }
        begins = *b == b'-';
    }
    to.extend_from_slice(b": ");
    to.extend_from_slice(value);
    to.extend_from_slice(b"\r\n");
}

fn is_framing(name: &[u8]) -> bool {
    match name.len() {
        10 => name.eq_ignore_ascii_case(b"connection") || name.eq_ignore_ascii_case(b"keep-alive"),
        14 => name.eq_ignore_ascii_case(b"content-length"),
        17 => name.eq_ignore_ascii_case(b"transfer-encoding"),
        _ => false,
    }
}

/// An informational head.
pub(crate) fn informational(answer: &Answer, to: &mut Vec<u8>) {
    status_line(answer, Version::Http11, to);
    answer.fields().filter(|(name, _)| !is_framing(name)).for_each(|(name, value)| field(name, value, to));
    to.extend_from_slice(b"\r\n");
}

/// The head of the answer itself. `length` is what the head says, `carry` how the body goes.
pub(crate) fn head(
    answer: &Answer,
    version: Version,
    length: Length,
    carry: Carry,
    connection: Connection,
    to: &mut Vec<u8>,
) {
    status_line(answer, version, to);
    let (mut named, mut dated) = (false, false);
    for (name, value) in answer.fields().filter(|(name, _)| !is_framing(name)) {
        named |= name.eq_ignore_ascii_case(b"server");
        dated |= name.eq_ignore_ascii_case(b"date");
        field(name, value, to);
    }
    if !named {
        to.extend_from_slice(b"Server: hayate\r\n");
    }
    if !dated {
        date::append(to);
    }
    if let Length::Exact(n) = length {
        to.extend_from_slice(b"Content-Length: ");
        to.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
        to.extend_from_slice(b"\r\n");
    }
    if carry == Carry::Chunks {
        to.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    to.extend_from_slice(match connection {
        Connection::Unsaid => b"\r\n",
        Connection::KeepAlive => b"Connection: keep-alive\r\n\r\n",
        Connection::Close => b"Connection: close\r\n\r\n",
    });
}
