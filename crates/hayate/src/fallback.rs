//! What becomes of an application whose workers cannot be rewound: a slower way that is as safe, and never one that keeps state.
//!
//! From rewinding to a fork for each request, and from there to classic mode, if there is a front controller that can answer; or, where
//! it is about classes that were there before the requests, to a boot that leaves them to these. The new
//! generation boots beside the old, which serves until it is replaced. It stays so until the next reload or restart, and says so in the
//! log, in `hayate status` and in the metrics.

use std::{
    path::Path,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use futures_util::future::join_all;
use hayate_pool::{Generation, Mode, Rewind, Unfit, Way};
use hayate_ring::Hub;
use serde::Serialize;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::{
    plan::{App, FrontController},
    server::Order,
};

/// How long an application's disk may take to say what is there.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to boot an application anew: the shortest and the longest, doubled each time.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The way in which requests load their classes.
const CLASSES: &str = "classes";

/// An application that runs in another way than configured.
#[derive(Debug, Clone, Serialize)]
pub struct Fallback {
    /// `classes`, `fork` or `classic`.
    pub to: &'static str,
    /// Why, and how to avoid it.
    pub why: String,
    /// Seconds since the epoch.
    pub at: u64,
}

impl Fallback {
    /// Whether it outlives a reload.
    pub fn stays(&self) -> bool {
        self.to == CLASSES
    }

    /// For people.
    pub fn words(&self) -> String {
        let how = match self.to {
            CLASSES => "with all classes left to requests, which takes them a little longer",
            "fork" => "with a fork for each request, which is slower",
            _ => "in classic mode, which boots it for each request",
        };
        let end = if self.stays() { "restart" } else { "reload" };
        format!("{}. Until the next {end} it runs {how}", self.why)
    }
}

/// A generation that is to take another's place.
pub struct Replacement {
    /// The one that is not fit.
    pub old: Arc<Generation>,
    /// As which the new one runs.
    pub app: App,
    /// The new one, booted.
    pub new: Arc<Generation>,
    /// What is to be said of it; `None` when it runs as before.
    pub fallback: Option<Fallback>,
}

/// Sends an order as soon as workers of `generation` prove unfit to be rewound.
pub fn watch(generation: &Arc<Generation>, orders: &mpsc::UnboundedSender<Order>) {
    let (mut unfit, orders) = (generation.unfit(), orders.clone());
    let generation: Weak<Generation> = Arc::downgrade(generation);
    tokio::spawn(async move {
        // An error means that the generation is gone.
        let Ok(unfit) = unfit.wait_for(Option::is_some).await.map(|unfit| unfit.clone()) else { return };
        if let (Some(unfit), Some(generation)) = (unfit, generation.upgrade()) {
            let _ = orders.send(Order::FallBack(generation, unfit));
        }
    });
}

/// The next slower way to run an application. `None`: there is none that is safe.
fn slower(app: &App, classes: bool, no_fork: bool) -> Option<App> {
    if classes && app.spec.way == Way::Configured {
        return Some(App { spec: app.spec.in_way(Way::ClassesLater), ..app.clone() });
    }
    if app.spec.rewind == Rewind::On && !no_fork && matches!(app.spec.mode, Mode::Worker { .. }) {
        return Some(App { spec: app.spec.in_way(Way::Fork), ..app.clone() });
    }
    in_classic_mode(app)
}

/// The same, found by a thread of its own: it looks at the application's disk.
async fn found_slower(app: &App, classes: bool, no_fork: bool) -> Option<App> {
    let (name, app) = (app.spec.name.clone(), app.clone());
    by_a_thread(&name, PATIENCE, move || slower(&app, classes, no_fork)).await
}

/// What `looks` finds. A disk that hangs must not hold up the other applications: then it is nothing, as the log says.
async fn by_a_thread<T: Send + 'static>(
    app: &str,
    patience: Duration,
    looks: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    let (tell, found) = oneshot::channel();
    // Not one of the runtime's, which would be few.
    let thread = thread::Builder::new().name("fallback".into()).spawn(move || drop(tell.send(looks())));
    if let Err(error) = thread {
        tracing::error!(app, "no thread can be started that looks for a slower way: {error}");
        return None;
    }
    match timeout(patience, found).await {
        Ok(found) => found.ok().flatten(),
        Err(_) => {
            tracing::error!(
                app,
                "its document root has not answered within {patience:?}, so no slower way is looked for: repair that file system, then hayate \
                 reload"
            );
            None
        }
    }
}

/// Has those that requests have shown to want it begin with all classes left to them: else each reload would fail some of them anew.
pub fn leave_classes(apps: &mut [App], names: &[String]) {
    for app in apps {
        if names.contains(&app.spec.name) && app.spec.way == Way::Configured {
            app.spec = app.spec.in_way(Way::ClassesLater);
        }
    }
}

/// The same application in classic mode. `None`: it is, or there is no front controller of PHP but the worker script.
pub fn in_classic_mode(app: &App) -> Option<App> {
    let Mode::Worker { script } = &app.spec.mode else { return None };
    let controller = app.spec.document_root.join(app.front_controller.script.as_ref()?);
    let same = controller.canonicalize().ok().as_deref() == Some(script);
    if same || controller.extension() != Some(Path::new("php").as_os_str()) {
        return None;
    }
    Some(App { spec: app.spec.in_way(Way::Classic), recognised: None, warmup: Vec::new(), ..app.clone() })
}

/// The same application in classic mode without a front controller: what runs is the scripts that URLs name.
pub fn as_scripts(app: &App) -> App {
    let front_controller = FrontController::default();
    App {
        spec: app.spec.in_way(Way::Classic),
        recognised: None,
        warmup: Vec::new(),
        front_controller,
        ..app.clone()
    }
}

/// Boots what is to take the place of an application that is not fit: once more as it is, however often that has to be tried, or in the next
/// slower way that boots. `None`, and an error in the log, when there is none.
pub async fn boot(old: Arc<Generation>, app: App, unfit: Unfit, hub: Arc<Hub>) -> Option<Replacement> {
    if unfit.renew {
        return Some(renew(old, app, &hub).await);
    }
    let name = app.spec.name.clone();
    let no_fork = !unfit.fork || old.status().rewind.is_some_and(|rewind| rewind.tracking == Some("fork"));
    let mut next = found_slower(&app, unfit.classes, no_fork).await;
    while let Some(app) = next {
        let to = match app.spec.way {
            Way::Configured | Way::ClassesLater => CLASSES,
            Way::Fork => "fork",
            Way::Classic => "classic",
        };
        match boot_beside(&old, &app, &hub).await {
            Ok(new) => {
                let at = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
                let fallback = Some(Fallback { to, why: unfit.why, at });
                return Some(Replacement { old, app, new, fallback });
            }
            Err(why) => tracing::error!(app = name, "it does not boot as {to} either: {why}"),
        }
        next = found_slower(&app, false, true).await;
    }
    let goes_on =
        if old.not_ready().is_none() { "it goes on in this one" } else { "this one is tried again" };
    tracing::error!(app = name, "{}. There is no slower way that is as safe, so {goes_on}", unfit.why);
    old.not_replaced();
    None
}

/// Boots the application as it is, beside the generation that is to be replaced, until that has worked: a boot may fail for what passes.
async fn renew(old: Arc<Generation>, app: App, hub: &Arc<Hub>) -> Replacement {
    let mut pause = PAUSES.0;
    loop {
        match boot_beside(&old, &app, hub).await {
            Ok(new) => return Replacement { old, app, new, fallback: None },
            Err(why) => {
                tracing::error!(
                    app = app.spec.name,
                    "it does not boot anew, so the old generation goes on serving; the next attempt is in {pause:?}: {why}"
                );
                old.not_renewed(&why);
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

async fn boot_beside(old: &Generation, app: &App, hub: &Arc<Hub>) -> Result<Arc<Generation>, String> {
    let new = Generation::start(app.spec.clone(), Arc::clone(old.launcher()), hub)
        .map_err(|error| format!("it cannot be started: {error}"))?;
    if let Err(error) = new.booted().await {
        new.kill().await;
        return Err(error.to_string());
    }
    Ok(new)
}

/// How boots went.
pub struct Booted {
    /// What is to take the place of those that do not boot as configured.
    pub slower: Vec<Replacement>,
    /// Why others do not boot at all. They go on trying.
    pub failed: Vec<String>,
}

/// Waits until all can serve, or have tried; `apps`, which run PHP, and `generations` belong together, in order. What cannot be rewound, as its boot has shown, is
/// booted in a slower way, all side by side.
pub async fn all_booted<'a>(
    apps: impl Iterator<Item = &'a App>,
    generations: &[Arc<Generation>],
    hub: &Arc<Hub>,
) -> Booted {
    let boots = apps
        .zip(generations)
        .map(|(app, generation)| booted(app.clone(), Arc::clone(generation), Arc::clone(hub)));
    let mut all = Booted { slower: Vec::new(), failed: Vec::new() };
    for outcome in join_all(boots).await {
        match outcome {
            Ok(slower) => all.slower.extend(slower),
            Err(why) => all.failed.push(why),
        }
    }
    all
}

/// Waits until one can serve, or has tried.
pub async fn booted(
    app: App,
    generation: Arc<Generation>,
    hub: Arc<Hub>,
) -> Result<Option<Replacement>, String> {
    let Err(error) = generation.booted().await else { return Ok(None) };
    // What is to boot as it is does so by itself: it goes on trying.
    let unfit = generation.unfit().borrow().clone().filter(|unfit| !unfit.renew);
    let slower = match unfit {
        Some(unfit) => boot(generation, app, unfit, hub).await,
        None => None,
    };
    slower.map(Some).ok_or_else(|| error.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use hayate_pool::{Connections, Spec};

    use super::*;

    pub(crate) fn app(root: &Path, script: &str, front_controller: Option<&str>) -> App {
        App {
            hosts: Vec::new(),
            path: "/".into(),
            index: Vec::new(),
            front_controller: FrontController {
                script: front_controller.map(str::to_owned),
                ..FrontController::default()
            },
            sendfile_roots: None,
            charset: None,
            deny: Vec::new(),
            htaccess_seen: Vec::new(),
            compression: None,
            hidden_files: Vec::new(),
            access_log: None,
            doubts: Vec::new(),
            rules: Vec::new(),
            error_pages: Default::default(),
            private: Vec::new(),
            private_paths: Vec::new(),
            is_static: false,
            failed: None,
            queue_limit: 1,
            retry: false,
            streams_bodies: false,
            recognised: None,
            remark: None,
            warning: None,
            scripts: None,
            beside: None,
            pool: None,
            timeouts_of_others: Vec::new(),
            warmup: vec!["/".into()],
            identity: None,
            spec: Spec {
                name: "a".into(),
                document_root: root.to_owned(),
                cwd: root.to_owned(),
                mode: Mode::Worker { script: root.join(script) },
                host: "/bin/true".into(),
                workers: 1..=1,
                ini: Vec::new(),
                fixed_ini: Vec::new(),
                env: vec![("HAYATE_PROJECT".into(), "/".into()), ("A".into(), "b".into())],
                php_ini: None,
                ini_env: Vec::new(),
                max_requests: None,
                max_memory: None,
                request_timeout: None,
                slow_request: None,
                queue_timeout: Duration::ZERO,
                idle_timeout: Duration::ZERO,
                boot_timeout: None,
                rewind: Rewind::On,
                warmup: Vec::new(),
                compared: Vec::new(),
                rewind_verify: None,
                connections: Connections::Request,
                connection_lifetime: None,
                explain: None,
                development: false,
                no_new_privileges: true,
                way: Way::Configured,
            },
        }
    }

    #[tokio::test]
    async fn a_disk_that_hangs_holds_up_nobody() {
        let (hangs, never) = std::sync::mpsc::channel::<()>();
        let found = by_a_thread("a", Duration::from_millis(50), move || {
            let _ = never.recv();
            Some(())
        });
        // On this one thread others go on, and it has an end.
        let others = async { tokio::time::sleep(Duration::from_millis(5)).await };
        let (found, ()) = tokio::join!(found, others);
        assert_eq!(found, None);
        drop(hangs);
        assert_eq!(by_a_thread("a", PATIENCE, || Some(1)).await, Some(1));
        assert_eq!(by_a_thread("a", PATIENCE, || None::<()>).await, None);
    }

    #[test]
    fn slower_and_slower_but_never_keeping_state() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::write(root.join("index.php"), "").unwrap();
        fs::write(root.join("worker.php"), "").unwrap();
        let rewinding = app(&root, "worker.php", Some("index.php"));
        let later = slower(&rewinding, true, false).unwrap();
        assert_eq!((later.spec.way, later.spec.rewind), (Way::ClassesLater, Rewind::On));
        let fork = slower(&later, false, false).unwrap();
        assert_eq!((fork.spec.rewind, &fork.spec.mode), (Rewind::Fork, &rewinding.spec.mode));
        let classic = slower(&fork, true, false).unwrap();
        assert_eq!((&classic.spec.mode, classic.spec.rewind), (&Mode::Classic, Rewind::Off));
        assert_eq!(classic.spec.env, [("A".to_owned(), "b".to_owned())]);
        assert!(slower(&classic, true, false).is_none());
        assert_eq!(slower(&rewinding, false, true).unwrap().spec.mode, Mode::Classic, "it forks already");
        // The worker script answers what is no file: there is nothing that classic mode could run.
        assert!(slower(&app(&root, "worker.php", Some("worker.php")), false, true).is_none());
        assert!(slower(&app(&root, "worker.php", None), false, true).is_none());
    }
}
