//! Where the front's threads accept connections.
//!
//! Those of HTTP/3 wait until no other front reads there: datagrams of the connections that the one before still has come by the same socket,
//! and whoever reads takes them from it.

use std::{collections::HashMap, os::fd::OwnedFd, sync::Arc};

use hayate_front::{ListenAddr, Threads};
use tokio::sync::watch;

/// The listeners that accept connections.
pub(super) struct Listeners {
    threads: Arc<Threads>,
    open: Open,
    /// Sockets that wait for the front before to leave them.
    waiting: HashMap<ListenAddr, OwnedFd>,
    /// It has.
    has_quic: bool,
}

/// Each has a switch that ends it.
type Open = HashMap<ListenAddr, watch::Sender<bool>>;

/// Ends these at once. What it returns waits until nobody accepts there any more.
fn end(open: Open) -> impl Future<Output = ()> + Send + 'static {
    for stop in open.values() {
        stop.send_replace(true);
    }
    async move {
        for stop in open.values() {
            // Whoever accepts holds the other end.
            stop.closed().await;
        }
    }
}

impl Listeners {
    /// None yet; these threads are to accept.
    pub(super) fn new(threads: Arc<Threads>) -> Listeners {
        Listeners { threads, open: HashMap::new(), waiting: HashMap::new(), has_quic: false }
    }

    pub(super) fn add(&mut self, addr: ListenAddr, socket: OwnedFd) {
        if matches!(addr, ListenAddr::Quic(_)) && !self.has_quic {
            self.waiting.insert(addr, socket);
            return;
        }
        let (stop, stopped) = watch::channel(false);
        self.threads.listen(&addr, socket, stopped);
        self.open.insert(addr, stop);
    }

    /// No other front reads the sockets of HTTP/3.
    pub(super) fn open_quic(&mut self) {
        self.has_quic = true;
        for (addr, socket) in std::mem::take(&mut self.waiting) {
            self.add(addr, socket);
        }
    }

    pub(super) fn addresses(&self) -> Vec<ListenAddr> {
        self.open.keys().chain(self.waiting.keys()).cloned().collect()
    }

    /// Ends those of HTTP/3: who has a connection there goes on. What it returns waits until none is left, and nobody reads there.
    pub(super) fn close_quic(&mut self) -> impl Future<Output = ()> + Send + 'static {
        self.waiting.clear();
        let (quic, others) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|(addr, _)| matches!(addr, ListenAddr::Quic(_)));
        self.open = others;
        end(quic)
    }

    /// Ends all, and returns when nobody accepts connections any more.
    pub(super) async fn close(&mut self) {
        end(std::mem::take(&mut self.open)).await;
    }

    /// Ends those that are not in `wanted`.
    pub(super) fn keep(&mut self, wanted: &[ListenAddr]) {
        self.waiting.retain(|addr, _| wanted.contains(addr));
        self.open.retain(|addr, stop| {
            let stays = wanted.contains(addr);
            if !stays {
                stop.send_replace(true);
            }
            stays
        });
    }
}
