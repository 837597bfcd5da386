//! A connection: who is at its other end, what it speaks, and what becomes of its requests.

use std::{
    cell::{OnceCell, RefCell},
    net::IpAddr,
    pin::pin,
    rc::Rc,
    sync::Arc,
};

use hayate_http::{Caller, Clock, Exchange, Handler, Refusal, tls::Config};
use hayate_panics::caught;
use hayate_ring::Records;
use tokio::net::{TcpStream, UnixStream};

use crate::{
    ListenAddr, Settings,
    by_address::Held,
    descriptors::Own,
    field::Field,
    gather::{Head, HeadNumber},
    host::LastNamed,
    meet::{Met, Port, meet},
    rules::client_of,
    shown::Shown,
    thread::Thread,
};

/// What was accepted: a socket, or somebody who calls at one that all share.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Quic(Box<Caller>),
}

/// Both ends of a connection, as text: $_SERVER wants them so.
pub(crate) struct Peer {
    pub(crate) addr: String,
    pub(crate) port: String,
    pub(crate) local_addr: String,
    pub(crate) local_port: String,
    pub(crate) ip: Option<IpAddr>,
    /// Whether it is encrypted.
    pub(crate) https: bool,
    /// It should be, and is not.
    pub(crate) lacks_tls: bool,
    /// It counts as one of its address.
    #[allow(dead_code, reason = "held for its drop")]
    pub(crate) place: Option<Held>,
    /// What scripts see of it besides, by the names of `$_SERVER`.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Made for the first request that wants it; see [`Peer::records`].
    pub(crate) records: OnceCell<Records>,
}

impl Peer {
    /// What workers are told of both ends with each request that came by no proxy, ready to be copied.
    pub(crate) fn records(&self) -> &Records {
        self.records.get_or_init(|| {
            Records::new([
                (Field::RemoteAddr, self.addr.as_bytes()),
                (Field::RemotePort, self.port.as_bytes()),
                (Field::ServerAddr, self.local_addr.as_bytes()),
                (Field::ServerPort, self.local_port.as_bytes()),
                (Field::Scheme, if self.https { b"https" } else { b"http" }),
            ])
        })
    }
}

/// A connection as it was accepted.
pub(crate) struct Accepted {
    pub(crate) peer: Peer,
    pub(crate) port: Port,
    /// Where, as it is configured.
    pub(crate) at: Option<Arc<ListenAddr>>,
    /// There was such a listener in the settings.
    pub(crate) listed: bool,
}

/// One connection.
pub(crate) struct Connection {
    pub(crate) thread: Rc<Thread>,
    pub(crate) id: u64,
    pub(crate) accepted: Accepted,
    /// Who is there, once that is known.
    met: OnceCell<Peer>,
    /// What it agrees upon TLS by, if it does.
    agrees_by: OnceCell<Option<Config>>,
    pub(crate) clock: Rc<Clock>,
    /// Memory for the beginning of a head.
    head: RefCell<Head>,
    /// The files that its requests have open.
    pub(crate) files: Own,
    pub(crate) named: LastNamed,
}

impl Connection {
    pub(crate) fn new(thread: &Rc<Thread>, id: u64, accepted: Accepted, clock: &Rc<Clock>) -> Rc<Connection> {
        Rc::new(Connection {
            thread: Rc::clone(thread),
            id,
            accepted,
            met: OnceCell::new(),
            agrees_by: OnceCell::new(),
            clock: Rc::clone(clock),
            head: RefCell::new(thread.front.gather.head()),
            files: Own::default(),
            named: LastNamed::default(),
        })
    }

    /// The place of its unfinished head among all; `None` for none.
    pub(crate) fn unfinished_head(&self) -> Option<HeadNumber> {
        self.head.borrow().number()
    }

    /// It is given up in the middle of its head, whose memory counts no more from now on.
    pub(crate) fn give_up(&self) {
        self.clock.give_up();
        self.holds(0);
    }

    /// Whether it began by what does not hold any more: its listener is gone or wants something else, or TLS asks its clients for something else.
    pub(crate) fn is_outdated(&self, settings: &Settings) -> bool {
        let Accepted { at, listed, port, .. } = &self.accepted;
        let now = at.as_ref().and_then(|at| settings.ports.get(&**at).copied());
        now != listed.then_some(*port)
            || self.agrees_by.get().is_some_and(|config| config.as_ref() != port.config(settings))
    }

    /// Who is at the other end.
    pub(crate) fn peer(&self) -> &Peer {
        self.met.get().unwrap_or(&self.accepted.peer)
    }

    /// Whose it is, where something is shared out: an address, or the first 64 bits of one.
    pub(crate) fn client(&self) -> Option<IpAddr> {
        self.peer().ip.map(client_of)
    }

    /// Its whole life: makes of a socket what the engine runs on, and has it served. A panic ends it.
    pub(crate) async fn serve(self: Rc<Self>, stream: Stream) {
        let snapshot = self.thread.snapshot();
        let limits = self.thread.limits();
        let _ = self.agrees_by.set(self.accepted.port.config(&snapshot.settings).cloned());
        // Boxed: else an idle connection has room for the handshake, and for itself twice over, wherever a future is handed on.
        let met = Box::pin(meet(stream, &self, &snapshot.settings, &limits));
        let Ok(met) = caught(met).await else { return self.thread.front.metrics.panicked() };
        let Some(Met { carrier, peer }) = met else { return };
        if let Some(peer) = peer {
            let _ = self.met.set(peer);
        }
        drop(snapshot);
        let served = Box::pin(hayate_http::serve(carrier, Rc::clone(&self), limits, Rc::clone(&self.clock)));
        if caught(served).await.is_err() {
            self.thread.front.metrics.panicked();
            tracing::error!(client = self.peer().addr, "a fault of the server's own ended this connection");
        }
    }
}

impl Handler for Connection {
    async fn handle(&self, exchange: &mut Exchange<'_>) {
        let panicked = {
            let answer = pin!(self.answer(exchange));
            caught(answer).await.is_err()
        };
        if panicked {
            self.thread.front.metrics.panicked();
            let head = exchange.head();
            tracing::error!(
                client = self.peer().addr,
                "{} {}: a fault of the server's own ended this request; its connection is closed",
                Shown(head.method()),
                Shown(head.target().split(|b| *b == b'?').next().unwrap_or_default())
            );
            self.fault(exchange);
        }
    }

    async fn refused(&self, exchange: &mut Exchange<'_>, refusal: Refusal, head: &[u8]) {
        self.refuse(exchange, refusal, head).await;
    }

    fn holds(&self, bytes: usize) {
        if !self.head.borrow_mut().set(bytes) {
            self.thread.pressed.notify_one();
        }
    }

    async fn has_room(&self) {
        self.thread.has_room_for_heads().await;
    }

    fn unfinished(&self, head: &[u8], late: bool) {
        self.log_unfinished(head, late);
    }

    fn broke(&self, why: &str) {
        self.thread.broke(&self.peer().addr, why);
    }
}
