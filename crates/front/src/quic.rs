//! HTTP/3's callers: a UDP socket, and who of them gets a connection.
//!
//! All connections of a socket are of one thread, since datagrams of all of them come by the one socket. When there is no room, or the socket is
//! to be closed, callers are turned away: they come by TCP then, where they can wait. A front that ends refuses until it is gone, so that
//! nobody waits for an answer that does not come.

use std::{
    cell::{OnceCell, RefCell},
    net::SocketAddr,
    os::fd::OwnedFd,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use hayate_http::{Endpoint, tls::Config};
use hayate_panics::caught;
use tokio::sync::watch;

use crate::{
    ListenAddr,
    connection::{Accepted, Peer, Stream},
    meet::Port,
    reminder::Reminder,
    thread::Thread,
    threads::Counted,
};

/// Before it goes on after a fault of its own.
const PAUSE: Duration = Duration::from_millis(200);

/// A connection by QUIC, counted as such beside all others.
pub(crate) struct CountedQuic(Rc<Thread>);

impl CountedQuic {
    pub(crate) fn new(thread: &Rc<Thread>) -> CountedQuic {
        thread.front.metrics.connected_by_quic(1);
        CountedQuic(Rc::clone(thread))
    }
}

impl Drop for CountedQuic {
    fn drop(&mut self) {
        self.0.front.metrics.connected_by_quic(-1);
    }
}

impl Thread {
    /// What an endpoint goes by: to be changed with the snapshot.
    fn http3(&self) -> Option<Config> {
        let snapshot = self.snapshot();
        Some(snapshot.settings.tls.as_ref()?.http3.as_ref()?.config.clone())
    }

    /// Serves who calls at a socket that [`ListenAddr::bind`] made, until `shutdown` turns true.
    pub(crate) async fn serve_quic(
        self: Rc<Self>,
        addr: SocketAddr,
        socket: OwnedFd,
        mut shutdown: watch::Receiver<bool>,
    ) {
        let secret =
            self.snapshot().settings.tls.as_ref().and_then(|tls| Some(tls.http3.as_ref()?.secret.clone()));
        let (Some(tls), Some(secret)) = (self.http3(), secret) else { return };
        let (tls, failed) = (RefCell::new(tls), Reminder::default());
        loop {
            let made = socket.try_clone().and_then(|socket| Endpoint::new(socket, &tls.borrow(), &secret));
            let endpoint = match made {
                Ok(endpoint) => endpoint,
                // No descriptor is left, perhaps. Answers by TCP go on naming it.
                Err(error) => {
                    if failed.happened().is_some() {
                        tracing::error!(
                            "udp:{addr}: nobody speaks HTTP/3 there until it can be opened: {error}"
                        );
                    }
                    tokio::select! {
                        () = tokio::time::sleep(PAUSE) => {}
                        _ = shutdown.wait_for(|stop| *stop) => return,
                    }
                    self.http3().into_iter().for_each(|now| drop(tls.replace(now)));
                    continue;
                }
            };
            while caught(self.hear_callers(addr, &endpoint, &tls, &mut shutdown)).await.is_err() {
                self.front.metrics.panicked();
                tokio::time::sleep(PAUSE).await;
            }
            if *shutdown.borrow() {
                return self.end_callers(addr, &endpoint).await;
            }
            // quinn's own task has ended, which it does by a fault only.
            self.front.metrics.panicked();
            tracing::error!("udp:{addr}: a fault of the server's own ended all connections by HTTP/3");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn hear_callers(
        self: &Rc<Self>,
        addr: SocketAddr,
        endpoint: &Endpoint,
        tls: &RefCell<Config>,
        shutdown: &mut watch::Receiver<bool>,
    ) {
        loop {
            let caller = tokio::select! {
                caller = endpoint.next() => caller,
                _ = shutdown.wait_for(|stop| *stop) => return,
            };
            let Some(caller) = caller else { return };
            if let Some(now) = self.http3().filter(|now| *now != *tls.borrow()) {
                if let Err(error) = endpoint.configure(&now) {
                    tracing::error!("udp:{addr}: what has changed does not hold for HTTP/3: {error}");
                }
                tls.replace(now);
            }
            // It is refused by being dropped.
            let Some(admitted) = self.front.try_admit() else {
                self.front.let_go(crate::round::Want::Room);
                continue;
            };
            let (peer, local) = (caller.peer(), caller.local());
            let snapshot = self.snapshot();
            let ip = Some(peer.ip().to_canonical());
            // A handshake costs a signature, which is too much for a refusal. Whoever is there comes again, and is refused before it.
            if !caller.is_there() && self.front.has_all_places(&snapshot.settings, ip) {
                caller.ask_again();
                continue;
            }
            // Datagrams with forged addresses would take the places of those whose addresses they are. A caller who has yet to show that this one
            // is theirs is counted afterwards (see [`crate::meet`]); there are few of them at any time.
            let place = match caller.is_there() {
                true => self.front.place_for(&snapshot.settings, ip),
                false => Ok(None),
            };
            let Ok(place) = place else { continue };
            let peer = Peer {
                addr: peer.ip().to_canonical().to_string(),
                port: peer.port().to_string(),
                local_addr: local.ip().to_canonical().to_string(),
                local_port: local.port().to_string(),
                ip,
                https: true,
                lacks_tls: false,
                place,
                variables: Vec::new(),
                records: OnceCell::new(),
            };
            let at = Arc::new(ListenAddr::Quic(addr));
            let port = snapshot.settings.ports.get(&*at).copied();
            let listed = port.is_some();
            let port = Port { quic: true, ..port.unwrap_or_default() };
            let counted = Counted::new(admitted, self.number);
            let accepted = Accepted { peer, port, at: Some(at), listed };
            self.spawn(Stream::Quic(Box::new(caller)), accepted, counted);
        }
    }

    /// Lets those who have a connection finish, and turns all others away.
    async fn end_callers(&self, addr: SocketAddr, endpoint: &Endpoint) {
        let clocks: Vec<_> = {
            let open = self.open.borrow();
            let at = ListenAddr::Quic(addr);
            let those =
                open.values().filter(|(connection, _)| connection.accepted.at.as_deref() == Some(&at));
            those.map(|(connection, _)| Rc::clone(&connection.clock)).collect()
        };
        clocks.iter().for_each(|clock| clock.ask_to_end());
        loop {
            tokio::select! {
                caller = endpoint.next() => if caller.is_none() { return },
                // The last word of a connection is with the kernel then, and the socket is free.
                () = endpoint.is_idle(), if !self.front.leaves.load(std::sync::atomic::Ordering::Relaxed) => return,
            }
        }
    }
}
