//! Who listens for commands and scrapes.

use std::{os::fd::OwnedFd, path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use tokio::task::JoinHandle;

use crate::{
    control::{self, ControlSocket},
    server::Server,
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
