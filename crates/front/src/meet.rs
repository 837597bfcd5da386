//! Where a socket becomes a connection: the PROXY header, TLS, and which version of HTTP follows; and what is answered because of TLS alone.
//!
//! All of it has the time of a handshake. Whoever fails here is told nothing beyond TLS' own alerts, and is not in the access log, as with
//! nginx: the log has it at `debug`, clients' certificates that are refused at `info`, and PROXY headers at `warn`.

use std::{cell::OnceCell, fmt, net::IpAddr, time::Duration};

use bytes::Bytes;
use hayate_certificates::{ClientCertificate, acme::Keeper};
use hayate_http::{
    Answer, Carrier, Io, Limits, Protocol, Secret, Version,
    proxy_protocol::{self, Header},
    tls::{self, Agreed, HandshakeError, alpn},
};

use crate::{
    Settings,
    connection::{Accepted, Connection, Peer, Stream},
    dynamic::{CLIENT_VERIFY, Client, VERIFIED},
    reply::{Body, Reply, set},
    rules::client_of,
    turned_away::Fault,
};

/// How connections of an address begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Port {
    /// With TLS.
    pub tls: bool,
    /// With a PROXY header, which is believed from trusted peers only; others are turned away.
    pub proxy_protocol: bool,
    /// By QUIC.
    pub quic: bool,
}

impl Port {
    /// What its connections agree upon TLS by.
    pub(crate) fn config(self, settings: &Settings) -> Option<&tls::Config> {
        let tls = settings.tls.as_ref().filter(|_| self.tls || self.quic)?;
        if self.quic { tls.http3.as_ref().map(|http3| &http3.config) } else { Some(&tls.config) }
    }
}

/// TLS, for all sites.
#[derive(Clone)]
pub struct Tls {
    /// What is agreed by, certificates included.
    pub config: tls::Config,
    /// Who knows the answers to challenges by HTTP.
    pub keeper: Keeper,
    /// Requests without TLS are sent to this port.
    pub redirect: Option<u16>,
    /// What answers call the port on which they are given, where visitors know it by another number.
    pub public_port: Option<u16>,
    /// How long browsers are to come by TLS only.
    pub hsts: Option<Duration>,
    /// HTTP/3, if it is spoken.
    pub http3: Option<Http3>,
}

/// HTTP/3, for all sites.
#[derive(Clone)]
pub struct Http3 {
    /// The same, for this protocol alone.
    pub config: tls::Config,
    /// The server's, whichever front serves.
    pub secret: Secret,
    /// Ports on which it is spoken beside TLS on TCP; answers by that say so.
    pub ports: Vec<u16>,
}

/// How long clients may remember that there is HTTP/3, in seconds.
const REMEMBERED: u32 = 86_400;

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("redirect", &self.redirect)
            .field("hsts", &self.hsts)
            .finish_non_exhaustive()
    }
}

/// What carries a connection, and who is there, if that is another one than was accepted.
pub(crate) struct Met {
    pub(crate) carrier: Carrier,
    pub(crate) peer: Option<Peer>,
}

/// `None`: there is nobody to serve.
pub(crate) async fn meet(
    stream: Stream,
    served: &Connection,
    settings: &Settings,
    limits: &Limits,
) -> Option<Met> {
    let Accepted { peer: accepted, port, .. } = &served.accepted;
    let (thread, clock) = (&served.thread, &served.clock);
    let front = &thread.front;
    let mut io = match stream {
        Stream::Tcp(stream) => Io::Tcp(stream),
        Stream::Unix(stream) => Io::Unix(stream),
        Stream::Quic(caller) => {
            let was_there = caller.is_there();
            let connection = caller.accept(limits, clock, &thread.handshakes).await?;
            let mut peer = accepted.again();
            if !was_there {
                peer.place = front.place_for(settings, accepted.ip).ok()?;
            }
            peer.https = true;
            peer.variables = variables(connection.agreed());
            return Some(Met { carrier: Carrier::Quic(Box::new(connection)), peer: Some(peer) });
        }
    };
    let mut peer = None;
    if port.proxy_protocol {
        if !settings.trusts(accepted.ip) {
            front.turns_away(&accepted.addr, accepted.ip, Fault::Untrusted);
            return None;
        }
        match proxy_protocol::read(&mut io, limits, clock).await {
            Ok(Header::Local) => {}
            Ok(Header::Client(ends)) => {
                let text = |ip: IpAddr| ip.to_canonical().to_string();
                let ip = Some(ends.source.ip().to_canonical());
                let Ok(place) = front.place_for(settings, ip) else { return None };
                peer = Some(Peer {
                    addr: text(ends.source.ip()),
                    port: ends.source.port().to_string(),
                    local_addr: text(ends.destination.ip()),
                    local_port: ends.destination.port().to_string(),
                    ip,
                    place,
                    ..Peer::plain()
                });
            }
            Err(proxy_protocol::Error::Malformed(why)) => {
                front.turns_away(&accepted.addr, accepted.ip, Fault::Malformed(why));
                return None;
            }
            // So do load balancers that only look whether somebody listens.
            Err(proxy_protocol::Error::Left(error)) => {
                tracing::debug!(client = accepted.addr, "left without a PROXY header: {error}");
                return None;
            }
        }
    }
    let plain = if settings.http2_prior_knowledge { Protocol::Either } else { Protocol::Http1 };
    let (tcp, tls) = match (io, port.tls.then_some(settings.tls.as_ref()).flatten()) {
        (Io::Tcp(tcp), Some(tls)) => (tcp, tls),
        // What should be encrypted is not served otherwise.
        (_, None) if port.tls => return None,
        (io, _) => return Some(Met { carrier: Carrier::Stream(io, plain), peer }),
    };
    let mut peer = peer.unwrap_or_else(|| accepted.again());
    let turns = (&thread.handshakes, peer.ip.map(client_of));
    match tls::accept(tcp, &tls.config, limits, clock, turns, served).await {
        Ok(stream) => {
            let agreed = stream.agreed();
            let protocol = match agreed.alpn.as_deref() {
                Some(alpn::HTTP2) => Protocol::Http2,
                // The authority has seen what it wanted to see.
                Some(alpn::ACME) => return None,
                _ => Protocol::Http1,
            };
            peer.https = true;
            peer.variables = variables(agreed);
            Some(Met { carrier: Carrier::Stream(Io::Tls(Box::new(stream)), protocol), peer: Some(peer) })
        }
        Err(HandshakeError::PlainHttp(tcp)) => {
            peer.lacks_tls = true;
            Some(Met { carrier: Carrier::Stream(Io::Tcp(tcp), Protocol::Http1), peer: Some(peer) })
        }
        Err(error) => {
            match error.of_certificate() {
                Some(why) => thread.refused_certificate(&peer.addr, &why),
                None => tracing::debug!(client = peer.addr, "no TLS: {error:?}"),
            }
            None
        }
    }
}

/// What scripts see, by nginx' names of variables in upper case.
fn variables(agreed: Agreed) -> Vec<(&'static str, String)> {
    let mut variables = vec![("SSL_PROTOCOL", agreed.protocol.to_owned())];
    variables.extend(agreed.cipher.map(|cipher| ("SSL_CIPHER", cipher)));
    variables.extend(agreed.server_name.map(|name| ("SSL_SERVER_NAME", name)));
    let resumed = agreed.resumed.map(|resumed| if resumed { "r" } else { "." });
    variables.extend(resumed.map(|resumed| ("SSL_SESSION_REUSED", resumed.to_owned())));
    let client = agreed.client.as_ref().and_then(ClientCertificate::new);
    variables.push((CLIENT_VERIFY, if client.is_some() { VERIFIED } else { "NONE" }.to_owned()));
    if let Some(client) = client {
        variables.extend([
            ("SSL_CLIENT_S_DN", client.subject),
            ("SSL_CLIENT_I_DN", client.issuer),
            ("SSL_CLIENT_SERIAL", client.serial),
            ("SSL_CLIENT_FINGERPRINT", client.fingerprint),
            ("SSL_CLIENT_V_START", client.valid_from),
            ("SSL_CLIENT_V_END", client.valid_to),
            ("SSL_CLIENT_CERT", client.pem),
        ]);
    }
    variables
}

impl Peer {
    fn plain() -> Peer {
        Peer {
            addr: String::new(),
            port: String::new(),
            local_addr: String::new(),
            local_port: String::new(),
            ip: None,
            https: false,
            lacks_tls: false,
            place: None,
            variables: Vec::new(),
            records: OnceCell::new(),
        }
    }

    fn again(&self) -> Peer {
        Peer {
            addr: self.addr.clone(),
            port: self.port.clone(),
            local_addr: self.local_addr.clone(),
            local_port: self.local_port.clone(),
            ip: self.ip,
            ..Peer::plain()
        }
    }
}

/// Where an authority looks (RFC 8555, 8.3).
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// What a request without TLS is answered because there is TLS: a challenge, or the way to it. `served`: an application answers to its host and
/// path; what nobody answers to is not found without TLS either.
pub(crate) async fn aside(settings: &Settings, client: &Client<'_>, served: bool) -> Option<Box<Reply>> {
    let tls = settings.tls.as_ref().filter(|_| !client.https)?;
    if let Some(token) = client.path.strip_prefix(CHALLENGES)
        && let Ok(token) = std::str::from_utf8(token)
        && let Some(said) = tls.keeper.challenge(token).await
    {
        let mut answer = Answer::new(200);
        set(&mut answer, "content-type", "application/octet-stream");
        return Some(Reply::new(answer, Body::Full(Bytes::from(said))));
    }
    // A unix socket's peer is a proxy, which may speak TLS itself.
    let port = tls.redirect.filter(|_| served && client.peer.ip.is_some())?;
    let mut answer = Answer::new(if matches!(client.head.method(), b"GET" | b"HEAD") { 301 } else { 308 });
    let unnamed = client.in_place_of_host.is_none() && client.head.get(b"host").is_none_or(<[u8]>::is_empty);
    let mut location = match &client.peer.local_addr {
        addr if unnamed && addr.contains(':') => format!("https://[{addr}]"),
        addr if unnamed => format!("https://{addr}"),
        _ => format!("https://{}", client.host),
    }
    .into_bytes();
    if port != 443 {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    location.extend_from_slice(if client.target.path.is_empty() { b"/" } else { client.target.path });
    if let Some(query) = client.target.query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    answer.add(b"location", &location).ok()?;
    Some(Reply::new(answer, Body::Left(0)))
}

/// Adds to an answer by TLS what holds for all of them.
pub(crate) fn season(settings: &Settings, client: &Client<'_>, reply: &mut Reply) {
    if let Some(hsts) = settings.tls.as_ref().and_then(|tls| tls.hsts)
        && client.https
        && reply.answer.get(b"strict-transport-security").is_none()
    {
        set(&mut reply.answer, "strict-transport-security", &format!("max-age={}", hsts.as_secs()));
    }
    if let Some(tls) = &settings.tls
        && let Some(http3) = &tls.http3
        && client.peer.https
        && client.head.version() < Version::Http3
        && let Ok(port) = client.peer.local_port.parse()
        && http3.ports.contains(&port)
        && reply.answer.get(b"alt-svc").is_none()
    {
        let port = tls.public_port.unwrap_or(port);
        set(&mut reply.answer, "alt-svc", &format!("h3=\":{port}\"; ma={REMEMBERED}"));
    }
}
