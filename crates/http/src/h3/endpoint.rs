//! QUIC on a UDP socket: who calls, and whether they are listened to.
//!
//! It promises: a caller costs memory only within its limits, whatever it sends; callers whose address nobody has seen yet have to show that
//! they are there (Retry) while many handshakes are under way; no request is taken from a first flight that could be played again (0-RTT).
//! A server that starts anew with the same [`Secret`] tells clients of the former one at once that their connections are gone.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use aws_lc_rs::{hkdf, hmac};
use quinn::{
    EndpointConfig, IdleTimeout, ServerConfig, TokioRuntime, TransportConfig, VarInt,
    crypto::rustls::{HandshakeData, QuicServerConfig},
};
use quinn_proto::HashedConnectionIdGenerator;
use rustls::pki_types::CertificateDer;

use super::{Connection, pulse::Counting};
use crate::{Clock, Limits, Wait, tls::Agreed, tls::alpn};

/// Handshakes under way at one time from addresses that nobody has seen yet; others are sent away once, to come again with a token.
const UNSEEN: usize = 64;
/// Callers that wait to be looked at, and bytes of theirs that wait with them.
const WAITING: usize = 256;
const WAITING_BYTES: u64 = 4 << 20;
/// Bytes of answers that were sent and that a client has not confirmed, on one connection.
const SEND_WINDOW: u64 = 1 << 20;
/// Streams of a client's own besides requests: three of HTTP/3's, and such as nobody knows.
const OTHER_STREAMS: u32 = 8;
/// quinn's longest silence, in milliseconds, is below 2^62.
const LONGEST_IDLE: Duration = Duration::from_secs(24 * 3600);

/// What stays the same when a server starts anew, so that clients of the one before learn that it is gone. Nobody else may know it.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Of random bytes.
    pub const fn new(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    fn derive(&self, purpose: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), purpose)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// A socket on which HTTP/3 is spoken. Needs a tokio runtime, whose thread has all its connections.
#[derive(Debug)]
pub struct Endpoint {
    endpoint: quinn::Endpoint,
    token_key: Arc<hkdf::Prk>,
    local: SocketAddr,
    handshakes: Arc<AtomicUsize>,
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}

impl Endpoint {
    /// Listens on a bound UDP socket. `tls`: with TLS 1.3 and `h3` in its ALPN.
    pub fn new(
        socket: OwnedFd,
        tls: Arc<rustls::ServerConfig>,
        secret: &Secret,
        limits: &Limits,
    ) -> io::Result<Endpoint> {
        let socket = UdpSocket::from(socket);
        let local = socket.local_addr()?;
        let reset = hmac::Key::new(hmac::HMAC_SHA256, secret.derive(b"stateless reset").as_ref());
        let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, b"retry token").extract(&secret.0);
        let token_key = Arc::new(token_key);
        // Who follows is to know the connections of this one as such.
        let ids = secret.derive(b"connection ids");
        let ids = ids.as_ref().iter().take(8).fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let mut config = EndpointConfig::new(Arc::new(reset));
        config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)));
        let server = configuration(tls, &token_key, limits)?;
        let endpoint = quinn::Endpoint::new(config, Some(server), socket, Arc::new(TokioRuntime))?;
        Ok(Endpoint { endpoint, token_key, local, handshakes: Arc::default() })
    }

    /// Changes what holds for connections from now on.
    pub fn configure(&self, tls: Arc<rustls::ServerConfig>, limits: &Limits) -> io::Result<()> {
        self.endpoint.set_server_config(Some(configuration(tls, &self.token_key, limits)?));
        Ok(())
    }

    /// Waits for the next caller. `None`: there will be none.
    pub async fn next(&self) -> Option<Caller> {
        loop {
            let incoming = self.endpoint.accept().await?;
            if self.handshakes.load(Relaxed) >= UNSEEN && !incoming.remote_address_validated() {
                // It fails only for one that has a token.
                let _ = incoming.retry();
                continue;
            }
            return Some(Caller {
                peer: incoming.remote_address(),
                local: SocketAddr::new(incoming.local_ip().unwrap_or(self.local.ip()), self.local.port()),
                handshake: Handshake::begin(&self.handshakes),
                incoming,
            });
        }
    }

    /// Waits until it has no connection.
    pub async fn is_idle(&self) {
        self.endpoint.wait_idle().await;
    }
}

fn configuration(
    tls: Arc<rustls::ServerConfig>,
    token_key: &Arc<hkdf::Prk>,
    limits: &Limits,
) -> io::Result<ServerConfig> {
    let mut transport = TransportConfig::default();
    let window = |bytes: u64| VarInt::from_u64(bytes).unwrap_or(VarInt::MAX);
    let idle = limits.idle_timeout.min(LONGEST_IDLE);
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(limits.streams))
        .max_concurrent_uni_streams(VarInt::from_u32(OTHER_STREAMS))
        .stream_receive_window(VarInt::from_u32(limits.window))
        .receive_window(window(u64::from(limits.window).saturating_mul(4)))
        .send_window(SEND_WINDOW)
        .congestion_controller_factory(Arc::<Counting>::default())
        // A client that wants its connection kept while it waits says so (RFC 9114, 5.1).
        .keep_alive_interval(None)
        .max_idle_timeout(Some(IdleTimeout::try_from(idle).map_err(invalid)?))
        .datagram_receive_buffer_size(None);
    let crypto = QuicServerConfig::try_from(tls).map_err(invalid)?;
    let mut server = ServerConfig::new(Arc::new(crypto), Arc::clone(token_key) as _);
    server
        .transport_config(Arc::new(transport))
        .max_incoming(WAITING)
        .incoming_buffer_size(WAITING_BYTES / WAITING as u64)
        .incoming_buffer_size_total(WAITING_BYTES);
    Ok(server)
}

/// A handshake that counts as long as it is under way.
#[derive(Debug)]
struct Handshake(Arc<AtomicUsize>);

impl Handshake {
    fn begin(all: &Arc<AtomicUsize>) -> Handshake {
        all.fetch_add(1, Relaxed);
        Handshake(Arc::clone(all))
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Somebody who wants a connection. Dropped, they are turned away.
#[derive(Debug)]
pub struct Caller {
    incoming: quinn::Incoming,
    peer: SocketAddr,
    local: SocketAddr,
    handshake: Handshake,
}

impl Caller {
    /// Their address, as it stands in their datagrams: it is theirs for certain only if [`Caller::is_there`], and after [`Caller::accept`].
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether they have shown that they get what is sent to their address. No more than a few dozen at one time have not.
    pub fn is_there(&self) -> bool {
        self.incoming.remote_address_validated()
    }

    /// Asks those who are not to show that they are there (Retry), and keeps nothing of them; who is there comes as another caller.
    pub fn ask_again(self) {
        // It fails only for one that has a token.
        let _ = self.incoming.retry();
    }

    /// The address that they call.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Agrees with them upon TLS and HTTP/3. To be dropped when the clock is late. `None`: it came to nothing, and they know.
    pub async fn accept(self, limits: &Limits, clock: &Clock) -> Option<Connection> {
        clock.wait(Wait::Handshake, limits);
        let _under_way = self.handshake;
        let connection = self.incoming.accept().ok()?.await.ok()?;
        let data = connection.handshake_data()?.downcast::<HandshakeData>().ok()?;
        if data.protocol.as_deref() != Some(alpn::HTTP3) {
            return None;
        }
        let chain = connection
            .peer_identity()
            .and_then(|chain| chain.downcast::<Vec<CertificateDer<'static>>>().ok());
        let agreed = Agreed {
            protocol: "TLSv1.3",
            // quinn keeps these two to itself.
            cipher: None,
            resumed: None,
            server_name: data.server_name,
            alpn: data.protocol,
            client: chain.and_then(|chain| chain.into_iter().next()),
        };
        Some(Connection { connection, agreed })
    }
}
