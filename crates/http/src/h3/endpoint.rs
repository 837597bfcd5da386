//! QUIC on a UDP socket: who calls, and whether they are listened to.
//!
//! It promises: a caller costs memory only within its limits, whatever it sends; callers whose address nobody has seen yet have to show that
//! they are there (Retry) while many handshakes have not come to a good end; while quinn keeps much of connections that are over, nobody gets
//! another one; no request is taken from a first flight that could be played again (0-RTT). A server that starts anew with the same
//! [`Secret`] tells clients of the former one at once that their connections are gone.

use std::{
    cell::RefCell,
    io, mem,
    net::{SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use aws_lc_rs::{hkdf, hmac};
use quinn::{
    EndpointConfig, IdleTimeout, ServerConfig, TokioRuntime, TransportConfig, VarInt,
    crypto::rustls::{HandshakeData, QuicServerConfig},
};
use quinn_proto::HashedConnectionIdGenerator;
use rustls::pki_types::CertificateDer;

use super::{
    Connection, Open,
    pulse::Counting,
    seat::{Seat, Seats, Served, whose},
    wire::receive_window,
};
use crate::{
    Clock, Limits, Wait,
    tls::{Agreed, Config, Handshakes, alpn},
};

/// Handshakes that have not come to a good end, as far as quinn still keeps them; beyond, those whose address nobody has seen yet are sent away
/// once, to come again with a token.
const UNFINISHED: usize = 64;
/// Callers that wait to be looked at, and bytes of theirs that wait with them.
const WAITING: usize = 256;
const WAITING_BYTES: u64 = 4 << 20;
/// Bytes of answers that were sent and that a client has not confirmed, on one connection.
pub(super) const SEND_WINDOW: usize = 1 << 20;
/// Streams of a client's own besides requests: three of HTTP/3's, and such as nobody knows.
const OTHER_STREAMS: u32 = 8;
/// The least time between two words to clients whose connections are gone (stateless resets): none. Each is shorter than what it answers. By
/// quinn's own number, 20 ms for all clients together, whoever asks for them again and again would keep them from all others.
const BETWEEN_RESETS: Duration = Duration::ZERO;
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
    /// What holds for those who come now; shared with them, so that it is the newest one when they are accepted.
    server: Rc<RefCell<ServerConfig>>,
    seats: Arc<Seats>,
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}

/// Has each datagram come by itself (`UDP_GRO`, udp(7)). quinn counts the bytes that it keeps of a datagram, but keeps the memory in which it
/// came, and with it up to 63 others that came at one time: 64 KB for a byte.
fn one_by_one(socket: BorrowedFd<'_>) -> io::Result<()> {
    let off: libc::c_int = 0;
    let size = libc::socklen_t::try_from(mem::size_of_val(&off)).map_err(invalid)?;
    // SAFETY: the descriptor is open as long as it is borrowed, and the kernel reads `size` bytes of `off`, which lives until the call returns.
    let said = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, (&raw const off).cast(), size)
    };
    match said {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // A kernel that does not know it does not do it.
            error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
            error => Err(error),
        },
    }
}

impl Endpoint {
    /// Listens on a bound UDP socket. `tls`: with TLS 1.3 and `h3` in its ALPN.
    pub fn new(socket: OwnedFd, tls: &Config, secret: &Secret) -> io::Result<Endpoint> {
        let socket = UdpSocket::from(socket);
        let local = socket.local_addr()?;
        let same = socket.try_clone()?;
        let reset = hmac::Key::new(hmac::HMAC_SHA256, secret.derive(b"stateless reset").as_ref());
        let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, b"retry token").extract(&secret.0);
        let token_key = Arc::new(token_key);
        // Who follows is to know the connections of this one as such.
        let ids = secret.derive(b"connection ids");
        let ids = ids.as_ref().iter().take(8).fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let mut config = EndpointConfig::new(Arc::new(reset));
        config
            .cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)))
            .min_reset_interval(BETWEEN_RESETS);
        let server = configuration(tls, &token_key)?;
        let endpoint = quinn::Endpoint::new(config, Some(server.clone()), socket, Arc::new(TokioRuntime))?;
        // quinn has switched it on.
        one_by_one(same.as_fd())?;
        Ok(Endpoint {
            endpoint,
            token_key,
            local,
            server: Rc::new(RefCell::new(server)),
            seats: Arc::default(),
        })
    }

    /// Changes what holds for connections from now on.
    pub fn configure(&self, tls: &Config) -> io::Result<()> {
        let server = configuration(tls, &self.token_key)?;
        self.endpoint.set_server_config(Some(server.clone()));
        self.server.replace(server);
        Ok(())
    }

    /// Waits for the next caller. `None`: there will be none.
    pub async fn next(&self) -> Option<Caller> {
        loop {
            let incoming = self.endpoint.accept().await?;
            let peer = incoming.remote_address();
            if self.seats.unfinished() >= UNFINISHED && !incoming.remote_address_validated() {
                // It fails only for one that has a token.
                let _ = incoming.retry();
                continue;
            }
            if self.seats.are_taken(peer.ip()) {
                incoming.refuse();
                continue;
            }
            return Some(Caller {
                peer,
                local: SocketAddr::new(incoming.local_ip().unwrap_or(self.local.ip()), self.local.port()),
                seat: Seat::take(&self.seats, peer.ip()),
                server: Rc::clone(&self.server),
                incoming,
            });
        }
    }

    /// Waits until it has no connection.
    pub async fn is_idle(&self) {
        self.endpoint.wait_idle().await;
    }
}

/// What holds for all connections; each has a [`transport`] of its own.
fn configuration(tls: &Config, token_key: &Arc<hkdf::Prk>) -> io::Result<ServerConfig> {
    let crypto = QuicServerConfig::try_from(Arc::clone(&tls.0)).map_err(invalid)?;
    let mut server = ServerConfig::new(Arc::new(crypto), Arc::clone(token_key) as _);
    server
        .max_incoming(WAITING)
        .incoming_buffer_size(WAITING_BYTES / WAITING as u64)
        .incoming_buffer_size_total(WAITING_BYTES);
    Ok(server)
}

/// What holds for one connection. quinn keeps it as long as anything of that, and so its seat.
fn transport(limits: &Limits, seat: &Arc<Seat>, receive: usize) -> io::Result<TransportConfig> {
    let mut transport = TransportConfig::default();
    let window = |bytes: u64| VarInt::from_u64(bytes).unwrap_or(VarInt::MAX);
    let idle = limits.idle_timeout.min(LONGEST_IDLE);
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(limits.streams))
        .max_concurrent_uni_streams(VarInt::from_u32(OTHER_STREAMS))
        .stream_receive_window(VarInt::from_u32(limits.window))
        .receive_window(window(receive as u64))
        .send_window(SEND_WINDOW as u64)
        .congestion_controller_factory(Arc::new(Counting::new(seat)))
        // A client that wants its connection kept while it waits says so (RFC 9114, 5.1).
        .keep_alive_interval(None)
        .max_idle_timeout(Some(IdleTimeout::try_from(idle).map_err(invalid)?))
        .datagram_receive_buffer_size(None);
    Ok(transport)
}

/// Somebody who wants a connection. Dropped, they are turned away.
#[derive(Debug)]
pub struct Caller {
    incoming: quinn::Incoming,
    peer: SocketAddr,
    local: SocketAddr,
    server: Rc<RefCell<ServerConfig>>,
    seat: Arc<Seat>,
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

    /// Agrees with them upon TLS and HTTP/3, when it is their turn. To be dropped when the clock is late. `None`: it came to nothing, and they
    /// know.
    pub async fn accept(self, limits: &Limits, clock: &Clock, handshakes: &Handshakes) -> Option<Connection> {
        clock.wait(Wait::Handshake, limits);
        let seat = Served(self.seat);
        let turn = handshakes.turn(Some(whose(self.peer.ip()))).await;
        let receive = receive_window(limits, clock.holding());
        let mut server = self.server.borrow().clone();
        server.transport_config(Arc::new(transport(limits, &seat.0, receive).ok()?));
        // A signature, where the client's first word is whole.
        let accepted = self.incoming.accept_with(Arc::new(server));
        tokio::task::yield_now().await;
        drop(turn);
        let connection = accepted.ok()?.await.ok()?;
        seat.0.finish();
        let open = Open { connection, seat };
        let connection = &open.connection;
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
        Some(Connection { open, agreed, peer: self.peer.ip(), receive })
    }
}
