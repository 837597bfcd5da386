//! The end: what is being served finishes, within a limit, and then every process ends.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use hayate_pool::Generation;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};

use super::listeners::Listeners;
use crate::server::Server;

/// SIGTERM, SIGINT and SIGQUIT: somebody wants the end.
pub(super) struct EndSignals(Signal, Signal, Signal);

impl EndSignals {
    pub(super) fn new() -> io::Result<EndSignals> {
        let [terminate, interrupt, quit] =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()].map(signal);
        Ok(EndSignals(terminate?, interrupt?, quit?))
    }

    pub(super) async fn recv(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
            _ = self.2.recv() => {}
        }
    }

    /// The outcome of some work; `None`: somebody wants the end before.
    pub(super) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.recv() => None,
            outcome = work => Some(outcome),
        }
    }
}

/// Finishes what is being served, and ends every process. `patience`: how long that may take, and with each signal how long from then on; when there
/// is none left, the rest is cut off.
pub(super) async fn end(
    server: &Arc<Server>,
    listeners: Option<Listeners>,
    patience: &[Duration],
    signals: &mut EndSignals,
) {
    let generations = server.stopping();
    if let Some(mut listeners) = listeners {
        listeners.keep(&[]);
    }
    let mut finished = false;
    for (i, limit) in patience.iter().enumerate() {
        let connections = server.front.connections();
        if i.saturating_add(1) < patience.len() {
            tracing::info!(connections, "finishing what is being served");
        } else if !limit.is_zero() {
            tracing::info!(connections, "finishing what is being served; a second signal ends at once");
        }
        tokio::select! {
            () = drained(server, &generations, *limit) => {
                finished = true;
                break;
            }
            () = signals.recv() => {}
        }
    }
    if !finished {
        if !patience.is_empty() {
            tracing::warn!("a second signal: ending at once");
        }
        each(&generations, |generation| async move { generation.kill().await }).await;
    }
    server.front.close().await;
    tracing::info!("stopped");
}

/// Returns when all is finished, or cut off since the limit was reached.
async fn drained(server: &Arc<Server>, generations: &[Arc<Generation>], limit: Duration) {
    let until = Instant::now() + limit;
    if !limit.is_zero() {
        let left = server.front.drain(limit).await;
        if left > 0 {
            tracing::warn!(
                "after {limit:?} (drain_timeout) {left} connections were not through with their answers: they are cut off"
            );
        }
    }
    let left = until.saturating_duration_since(Instant::now());
    each(generations, move |generation| async move { generation.drain(left).await }).await;
}

/// Does something to all generations at once, and waits.
async fn each<F: Future<Output = ()> + Send + 'static>(
    generations: &[Arc<Generation>],
    what: impl Fn(Arc<Generation>) -> F,
) {
    let tasks: JoinSet<()> = generations.iter().map(|generation| what(Arc::clone(generation))).collect();
    tasks.join_all().await;
}
