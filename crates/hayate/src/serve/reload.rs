//! Generations that take the place of others: those of a reload, which boot beside the old ones, and those that run in a slower way.

use std::{
    os::fd::OwnedFd,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use hayate_front::{Front, ListenAddr};
use hayate_pool::{Generation, Health, with_remedy};
use hayate_ring::Hub;
use tokio::{sync::oneshot, task::JoinHandle};

use super::{announce::warn_of_projects, listeners::Listeners};
use crate::{
    access_logs::AccessLogs,
    fallback::{self, Booted, Replacement},
    master::{Client as Master, Loaded, wire::Notice},
    plan::App,
    secrets,
    server::{Retired, Server},
};

pub(super) type Reply = oneshot::Sender<Result<(), String>>;

/// Starts the applications that run PHP.
pub(super) fn start(loaded: &Loaded, hub: &Arc<Hub>) -> Result<Vec<Arc<Generation>>> {
    let generation = |(i, app): (usize, &App)| {
        Generation::start(app.spec.clone(), loaded.launcher(i), hub).map_err(|error| {
            let why = with_remedy(&error);
            anyhow!("cannot make the shared memory of application '{}': {why}", app.spec.name)
        })
    };
    loaded.plan.apps.iter().enumerate().filter(|(_, app)| app.runs_php()).map(generation).collect()
}

/// How long a reload that has taken another one's place is left alone by those that follow: its boot may hang as well, without a limit.
const STAYS: Duration = Duration::from_secs(600);

/// A reload under way, and who waits for it.
pub(super) struct Reload {
    task: JoinHandle<Result<Fresh, String>>,
    pub(super) replies: Vec<Reply>,
    /// It is there in place of one that was given up for it: until then it is not given up itself, or nothing would ever come of reloads that
    /// are asked for more often than applications boot.
    stays: Option<Instant>,
    /// Asked for meanwhile, and by whom: one more comes after it, for all of them.
    pub(super) next: Option<Vec<Reply>>,
}

impl Reload {
    /// One more is asked for. The one under way may have read what has changed since, or hang in its boot: the new one takes its place, which
    /// is then free. Returns who waits, for [`Reload::begin`]; `None`: it comes afterwards.
    pub(super) async fn give_way(
        under_way: &mut Option<Reload>,
        reply: Option<Reply>,
    ) -> Option<(Vec<Reply>, bool)> {
        match under_way.take() {
            None => Some((reply.into_iter().collect(), false)),
            Some(mut stays) if stays.stays.is_some_and(|until| Instant::now() < until) => {
                stays.next.get_or_insert_default().extend(reply);
                *under_way = Some(stays);
                None
            }
            Some(before) => {
                let mut replies = before.abort().await;
                replies.extend(reply);
                Some((replies, true))
            }
        }
    }

    /// Begins one.
    pub(super) fn begin(
        server: &Server,
        listeners: &Listeners,
        master: &Arc<Master>,
        hub: &Arc<Hub>,
        (replies, stays): (Vec<Reply>, bool),
    ) -> Reload {
        tracing::info!("reloading");
        master.notify(Notice::Reloading);
        let (known, logs, later) = (listeners.addresses(), server.access_logs(), server.classes_later());
        let task = tokio::spawn(prepare(Arc::clone(master), known, logs, Arc::clone(hub), later));
        Reload { task, replies, stays: stays.then(|| Instant::now() + STAYS), next: None }
    }

    /// When those that follow wait for it no more, if there are any.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next.as_ref().and(self.stays)
    }

    /// Gives it up, and ends what it has started. Returns who waits for its outcome.
    pub(super) async fn abort(mut self) -> Vec<Reply> {
        self.task.abort();
        let _ = self.task.await;
        self.replies.extend(self.next.into_iter().flatten());
        self.replies
    }
}

/// Returns at that time, if there is one.
pub(super) async fn overdue(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
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
    access_logs: AccessLogs,
    sockets: Vec<(ListenAddr, OwnedFd)>,
    apps: Vec<Arc<Generation>>,
    /// What takes the place of some of them at once.
    slower: Vec<Replacement>,
}

/// Has the configuration read again and boots what it asks for, beside what serves.
async fn prepare(
    master: Arc<Master>,
    known: Vec<ListenAddr>,
    logs: AccessLogs,
    hub: Arc<Hub>,
    classes_later: Vec<String>,
) -> Result<Fresh, String> {
    let mut loaded = master.load().await?;
    fallback::leave_classes(&mut loaded.plan.apps, &classes_later);
    let access_logs = AccessLogs::open(&loaded.plan, &logs).await.map_err(|error| error.to_string())?;
    let sockets = loaded.sockets(&known);
    let apps = start(&loaded, &hub).map_err(|error| format!("{error:#}"))?;
    let booted = fallback::all_booted(loaded.plan.with_php(), &apps, &hub);
    let Booted { slower, failed } = telling_who_boots(booted, &apps, "the reload waits for").await;
    let Some(why) = failed.into_iter().next() else {
        return Ok(Fresh { loaded, access_logs, sockets, apps, slower });
    };
    let slower = slower.into_iter().map(|replacement| replacement.new);
    for app in apps.into_iter().chain(slower) {
        app.kill().await;
    }
    Err(why)
}

/// Seconds after which it is said who still boots.
const LONG: Duration = Duration::from_secs(10);

/// Waits for boots, and says now and then which of these are still under way.
async fn telling_who_boots<T>(boots: impl Future<Output = T>, apps: &[Arc<Generation>], who: &str) -> T {
    let mut boots = pin!(boots);
    let mut pause = LONG;
    loop {
        match tokio::time::timeout(pause, &mut boots).await {
            Ok(done) => return done,
            Err(_) => tracing::info!("{who} {}", still_booting(apps)),
        }
        pause = pause.saturating_mul(2);
    }
}

/// Those of these applications that still boot, in words.
pub(super) fn still_booting(apps: &[Arc<Generation>]) -> String {
    let booting = apps.iter().filter(|app| matches!(*app.health().borrow(), Health::Booting));
    let names: Vec<String> = booting.map(|app| format!("'{}'", app.spec().name)).collect();
    // What takes the place of one that could not be rewound is none of them.
    if names.is_empty() { "an application that boots in a slower way".into() } else { names.join(", ") }
}

/// Sends requests to what a reload has booted, and lets what served before finish.
pub(super) fn switch(server: &Arc<Server>, listeners: &mut Listeners, fresh: Fresh) {
    let Fresh { loaded, access_logs, sockets, apps, slower } = fresh;
    let plan = loaded.plan.clone();
    secrets::warn_of(plan.configured());
    warn_of_projects(&plan);
    plan.warn();
    // First, so that nobody is accepted there by settings that do not know of it.
    listeners.keep(&plan.listen);
    let old = server.install(&plan, access_logs, apps, slower);
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
    for error in front.reopen_logs().await {
        tracing::error!("the access log goes on as it was: {error}");
    }
    tracing::debug!("access logs reopened");
}
