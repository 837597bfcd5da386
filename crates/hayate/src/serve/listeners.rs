//! Where the front's threads accept connections.
//!
//! Those of HTTP/3 wait until no other front is left: datagrams of the connections that the one before still has come by the same socket,
//! and whoever reads there takes them from it.

use std::{collections::HashMap, os::fd::OwnedFd, sync::Arc};

use hayate_front::{ListenAddr, Threads};
use tokio::sync::watch;

/// The listeners that accept connections, each with the switch that ends it.
pub(super) struct Listeners {
    threads: Arc<Threads>,
    open: HashMap<ListenAddr, watch::Sender<bool>>,
    /// Sockets that wait for the front before to end.
    waiting: HashMap<ListenAddr, OwnedFd>,
    /// None is left.
    alone: bool,
}

impl Listeners {
    /// None yet; these threads are to accept.
    pub(super) fn new(threads: Arc<Threads>) -> Listeners {
        Listeners { threads, open: HashMap::new(), waiting: HashMap::new(), alone: false }
    }

    pub(super) fn add(&mut self, addr: ListenAddr, socket: OwnedFd) {
        if matches!(addr, ListenAddr::Quic(_)) && !self.alone {
            self.waiting.insert(addr, socket);
            return;
        }
        let (stop, stopped) = watch::channel(false);
        self.threads.listen(&addr, socket, stopped);
        self.open.insert(addr, stop);
    }

    /// No other front is left.
    pub(super) fn open_quic(&mut self) {
        self.alone = true;
        for (addr, socket) in std::mem::take(&mut self.waiting) {
            self.add(addr, socket);
        }
    }

    pub(super) fn addresses(&self) -> Vec<ListenAddr> {
        self.open.keys().chain(self.waiting.keys()).cloned().collect()
    }

    /// Ends all, and returns when nobody accepts connections by TCP or at a path any more. HTTP/3 goes on for who is there.
    pub(super) async fn close(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.waiting.clear();
        for stop in open.values() {
            stop.send_replace(true);
        }
        for (_, stop) in open.iter().filter(|(addr, _)| !matches!(addr, ListenAddr::Quic(_))) {
            // Whoever accepts holds the other end.
            stop.closed().await;
        }
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
