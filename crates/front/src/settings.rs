//! What an operator sets for all sites, and how much of it this process can keep.
//!
//! It promises that what a front uses lies within the ranges in which nothing panics. It knows nothing of configuration files.

use std::{collections::HashMap, net::IpAddr, ops::RangeInclusive, time::Duration};

use crate::{AccessLog, ListenAddr, Port, Tls};

/// What holds for all sites.
#[derive(Clone)]
pub struct Settings {
    /// See there.
    pub limits: Limits,
    /// Where answered requests are written down.
    pub access_log: AccessLog,
    /// Peers that are believed what they say of their visitors.
    pub trusted_proxies: Vec<ipnet::IpNet>,
    /// Whether peers on unix sockets are believed as well.
    pub trust_unix: bool,
    /// In which of their headers.
    pub trusted_headers: TrustedHeaders,
    /// Shows reasons on error pages. Never in production.
    pub development: bool,
    /// Whether clients without TLS may begin with HTTP/2's preface.
    pub http2_prior_knowledge: bool,
    /// Whether clients of HTTP/1.1 get informational answers (103), as those of HTTP/2 do.
    pub early_hints_http1: bool,
    /// How connections begin, by the address that they come to; plainly where none is given.
    pub ports: HashMap<ListenAddr, Port>,
    /// TLS, if some of them speak it.
    pub tls: Option<Tls>,
}

/// Which headers of a trusted proxy are believed. One that a proxy does not know it passes on, and that is its visitor's own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct TrustedHeaders {
    /// `X-Forwarded-For`: who asks.
    pub x_forwarded_for: bool,
    /// `X-Forwarded-Proto`: whether by TLS.
    pub x_forwarded_proto: bool,
    /// `X-Forwarded-Host`: for which site.
    pub x_forwarded_host: bool,
    /// `X-Forwarded-Port`: at which port.
    pub x_forwarded_port: bool,
    /// `Forwarded` (RFC 7239): all of it but the port.
    pub forwarded: bool,
}

impl Default for TrustedHeaders {
    /// What the usual proxies write themselves. Many of them pass on the other two, and by the host a visitor would choose the site.
    fn default() -> TrustedHeaders {
        TrustedHeaders {
            x_forwarded_for: true,
            x_forwarded_proto: true,
            x_forwarded_port: true,
            ..TrustedHeaders::NONE
        }
    }
}

impl TrustedHeaders {
    /// Nothing is believed.
    pub const NONE: TrustedHeaders = TrustedHeaders {
        x_forwarded_for: false,
        x_forwarded_proto: false,
        x_forwarded_host: false,
        x_forwarded_port: false,
        forwarded: false,
    };

    /// Believes one more, by its name in any case; otherwise why there is no such header here.
    pub fn believe(&mut self, name: &str) -> Result<(), String> {
        let header = match &*name.to_ascii_lowercase() {
            "x-forwarded-for" => &mut self.x_forwarded_for,
            "x-forwarded-proto" => &mut self.x_forwarded_proto,
            "x-forwarded-host" => &mut self.x_forwarded_host,
            "x-forwarded-port" => &mut self.x_forwarded_port,
            "forwarded" => &mut self.forwarded,
            _ => {
                return Err(format!(
                    "expected some of x-forwarded-for, x-forwarded-proto, x-forwarded-host, x-forwarded-port and forwarded, found '{name}'"
                ));
            }
        };
        *header = true;
        Ok(())
    }

    /// Whether the visitors' scheme can be known by them.
    pub fn say_the_scheme(&self) -> bool {
        self.x_forwarded_proto || self.forwarded
    }
}

/// What a client may do. Times are measured about once a second, so each may last up to a second longer.
/// Plans of programs before this one, which an upgrade hands over, lack what is new.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Bytes of a request's head; above: 431.
    pub head_size: usize,
    /// Headers in a request; above: 431.
    pub header_count: usize,
    /// Bytes of the request target; above: 414.
    pub uri_length: usize,
    /// Bytes of a request's body; above: 413. 0: no limit.
    pub body_size: u64,
    /// For a PROXY header, and for agreeing upon TLS.
    pub handshake_timeout: Duration,
    /// From the first byte of a head to its end.
    pub header_timeout: Duration,
    /// Between two requests on one connection.
    pub idle_timeout: Duration,
    /// Between two pieces of a request's body.
    pub body_timeout: Duration,
    /// Bytes a second that a client has to send of a body; it may be behind by as long as `body_timeout`. If a worker waits for it and other
    /// requests for a worker: over any three seconds. If it is in a temporary file, little is left of `temp_size`, and its client holds no
    /// less of that than others do: over any ten seconds, and at least a 600th of what it has sent. 0: no such rule.
    pub body_rate: u64,
    /// While the client takes no byte of the answer.
    pub write_timeout: Duration,
    /// Bytes a second that a client has to take of an answer, beside what `write_timeout` forgives. 0: no such rule.
    #[serde(default)]
    pub write_rate: u64,
    /// HTTP/2: requests at one time on one connection.
    pub http2_streams: u32,
    /// HTTP/2: bytes of a request's body that may be under way on one stream; on a connection four times as many.
    pub http2_window: u32,
    /// HTTP/2: bytes of answers that may wait on one connection for the socket to take them; each stream has its part, 16 KB at least.
    pub http2_send_buffer: usize,
    /// HTTP/2: streams that a client has opened and reset before they were looked at; with one more the connection ends.
    pub http2_resets: usize,
    /// HTTP/2: what small pieces of request bodies may cost a connection until they are read, see [`hayate_http::Limits::frame_budget`].
    /// `None`: twice `http2_window`. Decided where it is used: an upgrade hands over windows that a configuration without this key has chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2_frame_budget: Option<usize>,
    /// HTTP/2: streams of a connection that are reset since its client broke the protocol; one more ends the connection.
    pub http2_errors: usize,
    /// Bytes of memory for all heads that are not complete, and for bodies that have just begun. Above, the heads that took longest are
    /// given up, and bodies go to temporary files at once.
    pub gather_memory: usize,
    /// Bytes of memory for all requests that are being answered: heads, and what of answers clients have not taken. Above, connections that
    /// hold much are cut off, of the client that holds most first. 0: no limit.
    #[serde(default)]
    pub answer_memory: usize,
    /// Bytes of all temporary files together, in which bodies of slow clients wait; above, uploads get 503, and a slow reader whose worker
    /// others wait for is cut off. 0: no limit.
    pub temp_size: u64,
    /// The same for the files of one client: an IPv4 address, or 64 bits of an IPv6 address. 0: no limit.
    pub temp_size_per_client: u64,
    /// Connections at one time, on all listeners together; further ones wait in the listeners' backlogs. Of the open files that the
    /// process may have, connections get three quarters at most: half of the rest is for what they ask for, the other half for commands.
    pub connections: usize,
    /// Connections at one time of one client: an IPv4 address, or 64 bits of an IPv6 address; further ones are closed at once. Those of
    /// trusted proxies and of unix sockets do not count. 0: no limit.
    #[serde(default)]
    pub connections_by_address: usize,
    /// Requests at one time of one such client, which a trusted proxy names; above: 503. 0: no limit.
    #[serde(default)]
    pub requests_by_address: usize,
}

impl Limits {
    /// Sizes of heads for which a connection's buffers stay small.
    pub const HEAD_SIZE: RangeInclusive<usize> = 1 << 10..=1 << 20;
    /// Numbers of headers that cost little to look through.
    pub const HEADER_COUNT: RangeInclusive<usize> = 1..=10_000;
    /// Lengths of targets.
    pub const URI_LENGTH: RangeInclusive<usize> = 64..=65_534;

    /// The same within the ranges above, in which nothing panics.
    fn bounded(mut self) -> Limits {
        self.head_size = self.head_size.min(*Limits::HEAD_SIZE.end());
        self.header_count = self.header_count.min(*Limits::HEADER_COUNT.end());
        self.uri_length = self.uri_length.min(*Limits::URI_LENGTH.end());
        self.connections = self.connections.min(connections_by_open_files());
        self
    }
}

impl Settings {
    /// Whether a peer speaks for others; `None` is one on a unix socket.
    pub(crate) fn trusts(&self, peer: Option<IpAddr>) -> bool {
        match peer {
            Some(ip) => self.trusted_proxies.iter().any(|net| net.contains(&ip)),
            None => self.trust_unix,
        }
    }

    /// The same with limits within their ranges.
    pub(crate) fn bounded(mut self) -> Settings {
        self.limits = self.limits.bounded();
        self
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_size: 32 << 10,
            header_count: 100,
            uri_length: 8 << 10,
            body_size: 128 << 20,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(60),
            body_rate: 500,
            write_timeout: Duration::from_secs(60),
            write_rate: 500,
            http2_streams: 128,
            http2_window: 256 << 10,
            http2_send_buffer: 4 << 20,
            http2_resets: 20,
            http2_frame_budget: None,
            http2_errors: 1024,
            gather_memory: 32 << 20,
            answer_memory: 256 << 20,
            temp_size: 4 << 30,
            temp_size_per_client: 1 << 30,
            connections: 16384,
            connections_by_address: 0,
            requests_by_address: 0,
        }
    }
}

/// How many connections leave descriptors for the files that some of them ask for, and for everything else.
fn connections_by_open_files() -> usize {
    (free_files() / 4 * 3).max(8)
}

/// How many descriptors there are for connections, and for what they ask for.
pub(crate) fn free_files() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    files.saturating_sub(OTHER_FILES)
}

/// Descriptors that the front has besides those of its connections, or needs for a moment: listeners, workers, logs, commands.
const OTHER_FILES: usize = 96;
