//! TLS on a TCP socket: rustls' state machine, driven by the readiness of the socket.
//!
//! It promises: a handshake takes a bounded number of bytes, and waits for the network only, so that whoever drops it ends it; what was handed
//! over for writing and is not with the kernel yet is bounded, and gone when a flush says so; an idle connection keeps rustls' state and no
//! buffer of this crate; what it keeps meanwhile it counts by itself, whichever HTTP is above ([`TlsStream::count`]). Who is
//! refused can read why: it is listened to for a moment more. The end of an answer is said by close_notify only where
//! the connection ends in order: one that is cut off does not look whole to its client. Signatures take a millisecond and more: those who come at one time are answered a few in each turn of the
//! thread, client by client ([`Handshakes`]), so that others have theirs.
//!
//! It knows nothing of certificates: those are the configuration's.

mod stream;
mod turns;

use std::{fmt, future::poll_fn, io, net::IpAddr, sync::Arc, task::Poll};

use rustls::{
    CertificateError, OtherError, ProtocolVersion, ServerConfig, ServerConnection, pki_types::CertificateDer,
};
use tokio::net::TcpStream;

use crate::{Clock, Handler, Limits, Wait};

pub use stream::TlsStream;
pub use turns::Handshakes;

/// Names of protocols, for ALPN.
pub mod alpn {
    /// HTTP/2.
    pub const HTTP2: &[u8] = b"h2";
    /// HTTP/3, by QUIC alone.
    pub const HTTP3: &[u8] = b"h3";
    /// HTTP/1.1.
    pub const HTTP1: &[u8] = b"http/1.1";
    /// HTTP/1.0: on the wire its requests say so by themselves.
    pub const HTTP10: &[u8] = b"http/1.0";
    /// A validation of ACME's tls-alpn-01; nothing else is said on such a connection.
    pub const ACME: &[u8] = b"acme-tls/1";
}

/// Bytes of a client's part of a handshake, its certificates included. What browsers send is below 3 KB.
const LONGEST_HANDSHAKE: usize = 64 << 10;
/// Bytes handed over for writing that may wait for the kernel: four records.
const WRITE_BUFFER: usize = 64 << 10;

/// Why there is no TLS on a connection.
#[derive(Debug)]
pub enum HandshakeError {
    /// The client speaks HTTP, without TLS: here is its connection, nothing of it was read.
    PlainHttp(TcpStream),
    /// The client left, or its connection failed.
    Left(io::Error),
    /// What it sent is not TLS, or not what is wanted here; it was told so.
    Refused(rustls::Error),
    /// Its part of the handshake is longer than any should be.
    TooLong,
}

impl HandshakeError {
    /// What is wrong with the client's certificate, or that there is none, if that is why it was refused.
    pub fn of_certificate(&self) -> Option<String> {
        match self {
            // rustls shows its own name of what others have said.
            HandshakeError::Refused(rustls::Error::InvalidCertificate(CertificateError::Other(
                OtherError(why),
            ))) => Some(why.to_string()),
            HandshakeError::Refused(
                error @ (rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented),
            ) => Some(error.to_string()),
            _ => None,
        }
    }
}

/// What clients and the server agree by: versions, certificates, protocols. Two are equal if they are copies of one.
#[derive(Clone)]
pub struct Config(pub(crate) Arc<ServerConfig>);

impl From<Arc<ServerConfig>> for Config {
    fn from(config: Arc<ServerConfig>) -> Config {
        Config(config)
    }
}

impl PartialEq for Config {
    fn eq(&self, other: &Config) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").finish_non_exhaustive()
    }
}

/// Lets a client and the server agree. `handler` hears what is held of a client's words that are not whole; `of`: whose turn it takes. To be dropped when the
/// clock is late.
pub async fn accept<H: Handler>(
    tcp: TcpStream,
    config: &Config,
    limits: &Limits,
    clock: &Clock,
    (handshakes, of): (&Handshakes, Option<IpAddr>),
    handler: &H,
) -> Result<TlsStream, HandshakeError> {
    clock.wait(Wait::Handshake, limits);
    let mut first = [0];
    match tcp.peek(&mut first).await {
        Ok(0) => return Err(HandshakeError::Left(io::ErrorKind::UnexpectedEof.into())),
        Ok(_) if first[0].is_ascii_uppercase() => return Err(HandshakeError::PlainHttp(tcp)),
        Ok(_) => {}
        Err(error) => return Err(HandshakeError::Left(error)),
    }
    let mut session = ServerConnection::new(Arc::clone(&config.0)).map_err(HandshakeError::Refused)?;
    session.set_buffer_limit(Some(WRITE_BUFFER));
    let mut stream = TlsStream::new(tcp, session);
    let mut read = 0usize;
    loop {
        poll_fn(|cx| stream.poll_drain(cx)).await.map_err(HandshakeError::Left)?;
        if !stream.session.is_handshaking() {
            break;
        }
        stream.readable().await.map_err(HandshakeError::Left)?;
        let turn = handshakes.turn(of).await;
        // Nobody waits for his client while it is his turn.
        let Poll::Ready(filled) = poll_fn(|cx| Poll::Ready(stream.poll_fill(cx))).await else { continue };
        match filled {
            Ok(0) => return Err(HandshakeError::Left(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => read = read.saturating_add(n),
            // rustls' own limit, of one message.
            Err(stream::Fault::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(HandshakeError::TooLong);
            }
            Err(stream::Fault::Io(error)) => return Err(HandshakeError::Left(error)),
            Err(stream::Fault::Tls(error)) => {
                drop(turn);
                handler.holds(0);
                stream.refuse().await;
                return Err(HandshakeError::Refused(error));
            }
        }
        // What is over that is of the first requests already.
        if read > LONGEST_HANDSHAKE && stream.session.is_handshaking() {
            return Err(HandshakeError::TooLong);
        }
        if stream.session.wants_write() {
            // That was computed. It goes out, and then all others have their turn before somebody takes this one.
            if let Poll::Ready(Err(error)) = poll_fn(|cx| Poll::Ready(stream.poll_drain(cx))).await {
                return Err(HandshakeError::Left(error));
            }
            tokio::task::yield_now().await;
        }
        drop(turn);
        let begun = stream.begun();
        handler.holds(begun);
        if begun > 0 {
            handler.has_room().await;
        }
    }
    handler.holds(0);
    Ok(stream)
}

/// What was agreed upon.
#[derive(Debug, Clone)]
pub struct Agreed {
    /// As OpenSSL calls it: `TLSv1.3`.
    pub protocol: &'static str,
    /// As OpenSSL calls it: `TLS_AES_256_GCM_SHA384`, `ECDHE-ECDSA-AES128-GCM-SHA256`. `None`: nobody says.
    pub cipher: Option<String>,
    /// The name that the client asked for.
    pub server_name: Option<String>,
    /// Whether a former session goes on. `None`: nobody says.
    pub resumed: Option<bool>,
    /// The protocol above, if the client named some.
    pub alpn: Option<Vec<u8>>,
    /// The client's certificate, which was verified.
    pub client: Option<CertificateDer<'static>>,
}

impl TlsStream {
    /// What was agreed upon. Copies: to be asked once for each connection.
    pub fn agreed(&self) -> Agreed {
        let session = &self.session;
        let suite = session.negotiated_cipher_suite();
        let name = suite.and_then(|suite| suite.suite().as_str()).unwrap_or_default();
        Agreed {
            protocol: match session.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "TLSv1.3",
            },
            cipher: Some(cipher(name)),
            server_name: session.server_name().map(str::to_owned),
            resumed: Some(session.handshake_kind() == Some(rustls::HandshakeKind::Resumed)),
            alpn: session.alpn_protocol().map(<[u8]>::to_vec),
            client: session
                .peer_certificates()
                .and_then(|chain| chain.first())
                .map(|certificate| certificate.clone().into_owned()),
        }
    }
}

/// rustls' name of a suite as OpenSSL has it.
fn cipher(name: &str) -> String {
    if let Some(suite) = name.strip_prefix("TLS13_") {
        return format!("TLS_{suite}");
    }
    let name = name.strip_prefix("TLS_").unwrap_or(name).replace("_WITH_", "_");
    let name = name.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_SHA256", "-SHA256");
    let name = name.replace("CHACHA20_POLY1305-SHA256", "CHACHA20-POLY1305");
    name.replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphers_have_the_names_that_openssl_gives_them() {
        for (ours, openssl) in [
            ("TLS13_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
            ("TLS13_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
            ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
            ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
            ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ] {
            assert_eq!(cipher(ours), openssl);
        }
    }
}
