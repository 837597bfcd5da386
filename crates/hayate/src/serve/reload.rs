//! Generations that take the place of others: those of a reload, which boot beside the old ones, and those that run in a slower way.

use std::{os::fd::OwnedFd, sync::Arc};

use anyhow::{Context, Result};
use hayate_front::{AccessLog, Front, ListenAddr};
use hayate_pool::Generation;
use hayate_ring::Hub;
use tokio::{sync::oneshot, task::JoinHandle};

use super::{announce::warn_of_projects, listeners::Listeners};
use crate::{
    fallback::{self, Booted, Replacement},
    master::{Client as Master, Loaded},
    plan::App,
    secrets,
    server::{Retired, Server, open_log},
};

pub(super) type Reply = oneshot::Sender<Result<(), String>>;

/// Starts the applications that run PHP.
pub(super) fn start(loaded: &Loaded, hub: &Arc<Hub>) -> Result<Vec<Arc<Generation>>> {
    let generation = |(i, app): (usize, &App)| {
        Generation::start(app.spec.clone(), loaded.launcher(i), hub)
            .with_context(|| format!("cannot make the shared memory of application '{}'", app.spec.name))
    };
    loaded.plan.apps.iter().enumerate().filter(|(_, app)| app.runs_php()).map(generation).collect()
}

/// A reload under way, and who waits for it.
pub(super) struct Reload {
    pub(super) task: JoinHandle<Result<Fresh, String>>,
    pub(super) replies: Vec<Reply>,
}

impl Reload {
    /// Gives it up, and ends what it has started. Returns who waits for its outcome.
    pub(super) async fn abort(self) -> Vec<Reply> {
        self.task.abort();
        let _ = self.task.await;
        self.replies
    }
}

pub(super) async fn finished(reload: &mut Option<Reload>) -> Result<Fresh, String> {
    match reload {
        None => std::future::pending().await,
        Some(reload) => (&mut reload.task).await.unwrap_or_else(|error| Err(error.to_string())),
    }
}

/// What a reload has made ready.
pub(super) struct Fresh {
    pub(super) loaded: Loaded,
    access_log: AccessLog,
    sockets: Vec<(ListenAddr, OwnedFd)>,
    apps: Vec<Arc<Generation>>,
    /// What takes the place of some of them at once.
    slower: Vec<Replacement>,
}

/// Has the configuration read again and boots what it asks for, beside what serves.
pub(super) async fn prepare(
    master: Arc<Master>,
    known: Vec<ListenAddr>,
    log: AccessLog,
    hub: Arc<Hub>,
    classes_later: Vec<String>,
) -> Result<Fresh, String> {
    let mut loaded = master.load().await?;
    fallback::leave_classes(&mut loaded.plan.apps, &classes_later);
    let access_log = open_log(&loaded.plan, &log).await.map_err(|error| error.to_string())?;
    let sockets = loaded.sockets(&known);
    let apps = start(&loaded, &hub).map_err(|error| format!("{error:#}"))?;
    let Booted { slower, failed } = fallback::all_booted(loaded.plan.with_php(), &apps, &hub).await;
    let Some(why) = failed.into_iter().next() else {
        return Ok(Fresh { loaded, access_log, sockets, apps, slower });
    };
    let slower = slower.into_iter().map(|replacement| replacement.new);
    for app in apps.into_iter().chain(slower) {
        app.kill().await;
    }
    Err(why)
}

/// Sends requests to what a reload has booted, and lets what served before finish.
pub(super) fn switch(server: &Arc<Server>, listeners: &mut Listeners, fresh: Fresh) {
    let Fresh { loaded, access_log, sockets, apps, slower } = fresh;
    let plan = loaded.plan.clone();
    secrets::warn_of(plan.configured());
    warn_of_projects(&plan);
    plan.warn();
    // First, so that nobody is accepted there by settings that do not know of it.
    listeners.keep(&plan.listen);
    let old = server.install(&plan, access_log, apps, slower);
    tokio::spawn(reopen_log(Arc::clone(&server.front)));
    sockets.into_iter().for_each(|(addr, socket)| listeners.add(addr, socket));
    loaded.adopted();
    old.into_iter().for_each(|old| retire(server, old));
}

/// Sends requests to what runs in another way than configured.
pub(super) fn replace(server: &Arc<Server>, replacement: Replacement) {
    retire(server, server.replace(replacement));
}

/// Lets a generation that was replaced finish. Nothing presses: what may run is not cut off.
fn retire(server: &Arc<Server>, Retired { generation, limit }: Retired) {
    let server = Arc::clone(server);
    tokio::spawn(async move {
        generation.drain(limit).await;
        server.retired(&generation);
    });
}

/// Without waiting for it: what the log is written to may be stalled.
pub(super) async fn reopen_log(front: Arc<Front>) {
    match front.reopen_logs().await {
        Ok(()) => tracing::debug!("access log reopened"),
        Err(error) => tracing::error!("the access log goes on as it was: {error}"),
    }
}
