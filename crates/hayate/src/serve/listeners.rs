//! Where the front's threads accept connections.

use std::{collections::HashMap, os::fd::OwnedFd, sync::Arc};

use hayate_front::{ListenAddr, Threads};
use tokio::sync::watch;

/// The listeners that accept connections, each with the switch that ends it.
pub(super) struct Listeners {
    threads: Arc<Threads>,
    open: HashMap<ListenAddr, watch::Sender<bool>>,
}

impl Listeners {
    /// None yet; these threads are to accept.
    pub(super) fn new(threads: Arc<Threads>) -> Listeners {
        Listeners { threads, open: HashMap::new() }
    }

    pub(super) fn add(&mut self, addr: ListenAddr, socket: OwnedFd) {
        let (stop, stopped) = watch::channel(false);
        self.threads.listen(&addr, socket, stopped);
        self.open.insert(addr, stop);
    }

    pub(super) fn addresses(&self) -> Vec<ListenAddr> {
        self.open.keys().cloned().collect()
    }

    /// Ends those that are not in `wanted`.
    pub(super) fn keep(&mut self, wanted: &[ListenAddr]) {
        self.open.retain(|addr, stop| {
            let stays = wanted.contains(addr);
            if !stays {
                stop.send_replace(true);
            }
            stays
        });
    }
}
