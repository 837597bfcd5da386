//! Who listens for commands and scrapes.

use std::{os::fd::OwnedFd, path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use tokio::{sync::mpsc, task::JoinHandle};

use super::reload::Reply;
use crate::{
    control::{self, ControlSocket},
    master::Client as Master,
    server::{Order, Server},
};

/// The listeners for commands and metrics. Connections that they have accepted live on without them.
#[derive(Default)]
pub(super) struct Commands(Vec<JoinHandle<()>>);

impl Commands {
    pub(super) fn open(
        &mut self,
        server: &Arc<Server>,
        control: Option<(PathBuf, OwnedFd)>,
        metrics: Option<OwnedFd>,
        owner: u32,
    ) -> Result<()> {
        if let Some((_, socket)) = control {
            let control = ControlSocket::adopt(socket, owner).context("the control socket")?;
            self.0.push(tokio::spawn(control.serve(Arc::clone(server))));
        }
        if let Some(socket) = metrics {
            let listener =
                tokio::net::TcpListener::from_std(socket.into()).context("the socket for metrics")?;
            self.0.push(tokio::spawn(control::serve_metrics(listener, Arc::clone(server))));
        }
        Ok(())
    }

    pub(super) fn close(self) {
        self.0.into_iter().for_each(|task| task.abort());
    }
}

/// Does what can be done while nothing is served yet. Returns what is for later.
pub(super) fn while_starting(order: Order, master: &Master) -> Option<Order> {
    let refuse = |reply: Reply| {
        // They may have stopped waiting.
        let _ = reply.send(Err("the server is starting; ask again once it serves, or stop it".to_owned()));
    };
    match order {
        Order::Stop => master.stop(),
        Order::Reload(reply) => reply.into_iter().for_each(refuse),
        Order::Upgrade(reply) => refuse(reply),
        Order::FallBack(..) => return Some(order),
    }
    None
}

/// Answers what the front is still asked that another one has taken the place of, by connections that were there before: the server can be stopped
/// by any of them, all else is the other's.
pub(super) async fn refer_orders(mut orders: mpsc::UnboundedReceiver<Order>, master: Arc<Master>) {
    while let Some(order) = orders.recv().await {
        match order {
            Order::Stop => master.stop(),
            Order::Reload(reply) => reply.into_iter().for_each(refer),
            Order::Upgrade(reply) => refer(reply),
            // What takes the place of all is there already; what waits here is told so.
            Order::FallBack(generation, _) => generation.not_replaced(),
        }
    }
}

/// Tells whoever asked to ask again.
pub(super) fn refer(reply: Reply) {
    // They may have stopped waiting.
    let _ = reply.send(Err("an upgrade was done meanwhile; ask again".to_owned()));
}
