//! Connections: accepting them, how many there may be, and their ends.
//!
//! One task looks at the deadlines of all connections once a second, while there are any. An idle front has no wake-ups.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http::Version;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, watch},
    task::AbortHandle,
    time::MissedTickBehavior,
};

use crate::{
    Front,
    guard::Guard,
    listen::Listener,
    panics::{Panicked, caught},
    request,
    state::{State, seconds},
};

/// Once there were so many connections and half of them have gone, their memory is given back.
const MANY: usize = 256;

/// All open connections.
#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, (Arc<State>, AbortHandle)>>,
    count: AtomicUsize,
    next: AtomicU64,
    /// The first one has come.
    begun: Notify,
    /// One has gone, or there may be more of them than before.
    room: Notify,
    /// In [`seconds`]: when it was last said that there is no room.
    complained: AtomicU64,
    /// The same of memory for heads.
    complained_of_heads: AtomicU64,
}

impl Connections {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, (Arc<State>, AbortHandle)>> {
        self.open.lock()
    }

    fn remove(&self, id: u64) {
        self.open().remove(&id);
        self.count.fetch_sub(1, Relaxed);
        self.room.notify_waiters();
    }

    /// The limit may have changed.
    pub(crate) fn look_for_room(&self) {
        self.room.notify_waiters();
    }

    fn end_those(&self, which: impl Fn(&State) -> bool) {
        // Aborting runs the connection's drops, which come back here: not under the lock.
        let ending: Vec<AbortHandle> =
            self.open().values().filter(|(state, _)| which(state)).map(|(_, task)| task.clone()).collect();
        for task in ending {
            task.abort();
        }
    }
}

/// Both ends of a connection, as text: $_SERVER wants them so.
pub(crate) struct Peer {
    pub(crate) addr: String,
    pub(crate) port: String,
    pub(crate) local_addr: String,
    pub(crate) local_port: String,
    pub(crate) ip: Option<std::net::IpAddr>,
}

/// A connection that counts; when this goes, it is over.
struct Open {
    front: Arc<Front>,
    id: u64,
    state: Arc<State>,
    peer: Arc<Peer>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.front.connections.remove(self.id);
        self.front.metrics.connected(-1);
        if let Some(unfinished) = self.state.unfinished() {
            self.front.log_unfinished(&self.peer, unfinished);
        }
    }
}

impl Front {
    /// Accepts and serves connections until `shutdown` turns true. Runs on [`crate::runtime`]'s thread.
    pub async fn serve(self: Arc<Self>, listener: Listener, mut shutdown: watch::Receiver<bool>) {
        while caught(self.accept_all(&listener, &mut shutdown)).await.is_err() {
            self.metrics.panicked();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn accept_all(self: &Arc<Self>, listener: &Listener, shutdown: &mut watch::Receiver<bool>) {
        loop {
            let accepted = tokio::select! {
                accepted = self.accept_one(listener) => accepted,
                _ = shutdown.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok((Stream::Tcp(stream), peer)) => self.spawn(stream, peer),
                Ok((Stream::Unix(stream), peer)) => self.spawn(stream, peer),
                Err(error) if error.raw_os_error() == Some(24) || error.raw_os_error() == Some(23) => {
                    tracing::error!(
                        "no descriptor left for a new connection; raise the limit of open files (LimitNOFILE)"
                    );
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                // The client was gone before we accepted it.
                Err(_) => {}
            }
        }
    }

    async fn accept_one(&self, listener: &Listener) -> io::Result<(Stream, Peer)> {
        self.has_room().await;
        let accepted = accept(listener).await;
        // Another listener may have been faster; then this one connection waits here instead of in the backlog.
        self.has_room().await;
        accepted
    }

    /// Waits until there may be one more connection.
    async fn has_room(&self) {
        loop {
            let room = self.connections.room.notified();
            let limit = self.settings.load().limits.connections;
            if self.connections.count() < limit {
                return;
            }
            let now = seconds();
            let before = self.connections.complained.load(Relaxed);
            if before == 0 || before + 60 <= now {
                self.connections.complained.store(now, Relaxed);
                tracing::warn!(
                    "limits.connections ({limit}) is reached, or three quarters of the open files (LimitNOFILE); further connections wait"
                );
            }
            room.await;
        }
    }

    /// Looks for connections past their deadline, and lets the access log out; runs beside [`Front::serve`] as long as the front does.
    pub async fn watch(self: Arc<Self>) {
        self.temp.check().await;
        while caught(self.look_after()).await.is_err() {
            self.metrics.panicked();
        }
    }

    async fn look_after(&self) {
        let mut most = 0;
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.connections.count() == 0 && most < MANY && !self.gather.was_large() {
                self.flush_logs();
                self.connections.begun.notified().await;
                clock.reset();
            }
            tokio::select! {
                _ = clock.tick() => {}
                () = self.gather.pressed.notified() => {
                    self.give_up_heads();
                    continue;
                }
            }
            let now = seconds();
            self.connections.end_those(|state| state.becomes_late(now));
            self.flush_logs();
            let count = self.connections.count();
            most = most.max(count);
            let fewer = most >= MANY && count <= most / 2;
            if fewer {
                most = count;
            }
            if self.gather.shrank() || fewer {
                self.temp.give_memory_back();
            }
        }
    }

    /// Cuts off connections in the middle of a head, those that took longest first, until there is room for others.
    fn give_up_heads(&self) {
        let Some(mut excess) = self.gather.excess() else { return };
        let mut heads: Vec<_> = {
            let open = self.connections.open();
            let held = open.iter().filter_map(|(id, (state, task))| {
                let (since, bytes) = state.unfinished_head()?;
                Some((since, *id, bytes, Arc::clone(state), task.clone()))
            });
            held.collect()
        };
        heads.sort_unstable_by_key(|(since, id, ..)| (*since, *id));
        let mut given_up = 0u64;
        for (_, _, bytes, state, task) in heads {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(bytes);
            state.holds(0);
            state.cut();
            task.abort();
            given_up = given_up.saturating_add(1);
        }
        self.metrics.gave_up_heads(given_up);
        let now = seconds();
        if self.connections.complained_of_heads.load(Relaxed).saturating_add(60) <= now {
            self.connections.complained_of_heads.store(now, Relaxed);
            tracing::warn!(
                "limits.gather_memory is reached: {given_up} connections with an unfinished head were cut off"
            );
        }
    }

    /// Asks all connections to end after their present request, and waits for that at most until the deadline.
    pub async fn drain(&self, deadline: Duration) -> bool {
        let Some(graceful) = self.graceful.lock().take() else {
            return true;
        };
        tokio::time::timeout(deadline, graceful.shutdown()).await.is_ok()
    }

    /// Cuts off the connections that are left, and writes down what there is to write. The end: call nothing else afterwards.
    pub async fn close(&self) {
        self.graceful.lock().take();
        self.connections.end_those(|_| true);
        while self.connections.count() > 0 {
            tokio::task::yield_now().await;
        }
        self.finish_logs().await;
    }

    fn spawn<S>(self: &Arc<Self>, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static,
    {
        let settings = self.settings.load();
        let limits = &settings.limits;
        let (state, peer) = (State::new(limits), Arc::new(peer));
        let guard = Guard::new(stream, limits, Arc::clone(&state), self.gather.share());
        let mut http = hyper::server::conn::http1::Builder::new();
        http.title_case_headers(true)
            .header_read_timeout(None)
            .auto_date_header(false)
            .max_buf_size((limits.head_size + 16384).max(65536));
        if limits.header_count > 100 {
            http.max_headers(limits.header_count + 1);
        }
        let service = {
            let (front, peer, state) = (Arc::clone(self), Arc::clone(&peer), Arc::clone(&state));
            service_fn(move |request| {
                let (front, peer, state) = (Arc::clone(&front), Arc::clone(&peer), Arc::clone(&state));
                async move {
                    let (method, uri) = (request.method().clone(), request.uri().clone());
                    state.allow_interim(request.version() == Version::HTTP_11);
                    let answer = caught(front.answer(&peer, Arc::clone(&state), request)).await;
                    state.allow_interim(false);
                    Ok::<_, Infallible>(answer.unwrap_or_else(|Panicked| {
                        front.metrics.panicked();
                        tracing::error!(
                            client = peer.addr,
                            "{method} {}: a fault of the server's own ended this request; its connection is closed",
                            uri.path()
                        );
                        request::fault()
                    }))
                }
            })
        };
        let connection = http.serve_connection(TokioIo::new(guard), service);
        let Some(connection) = self.graceful.lock().as_ref().map(|g| g.watch(connection)) else {
            return;
        };
        let id = self.connections.next.fetch_add(1, Relaxed);
        let open = Open { front: Arc::clone(self), id, state: Arc::clone(&state), peer };
        self.metrics.connected(1);
        let mut all = self.connections.open();
        let task = tokio::spawn(async move {
            // Dropped after the connection, whose guard may have a last word on the state.
            let open = open;
            // A connection that ends with an error is the client's affair.
            if caught(connection).await.is_err() {
                open.front.metrics.panicked();
                tracing::error!(client = open.peer.addr, "a fault of the server's own ended this connection");
            }
        });
        all.insert(id, (state, task.abort_handle()));
        if self.connections.count.fetch_add(1, Relaxed) == 0 {
            self.connections.begun.notify_one();
        }
    }
}

enum Stream {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

async fn accept(listener: &Listener) -> io::Result<(Stream, Peer)> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, addr) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let local = stream.local_addr()?;
            let peer = Peer {
                addr: addr.ip().to_canonical().to_string(),
                port: addr.port().to_string(),
                local_addr: local.ip().to_canonical().to_string(),
                local_port: local.port().to_string(),
                ip: Some(addr.ip().to_canonical()),
            };
            Ok((Stream::Tcp(stream), peer))
        }
        Listener::Unix(listener) => {
            let (stream, _) = listener.accept().await?;
            // As nginx says it: applications expect something in place of an address.
            let peer = Peer {
                addr: "unix:".into(),
                port: String::new(),
                local_addr: "unix:".into(),
                local_port: "80".into(),
                ip: None,
            };
            Ok((Stream::Unix(stream), peer))
        }
    }
}
