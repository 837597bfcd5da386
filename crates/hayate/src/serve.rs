//! The front of `hayate serve`: start-up, reload, and the end. The master (`master/`) has started it, with its sockets and its plan.
//!
//! A reload starts new generations beside the old, and sends requests to them only when all have booted. Nothing here knows HTTP or
//! processes; it decides when.

use std::{
    collections::HashMap,
    io,
    os::fd::{BorrowedFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use hayate_front::{AccessLog, Front, ListenAddr, Listener, runtime};
use hayate_pool::{Generation, Mode};
use hayate_ring::Hub;
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{DumpableBehavior, Resource, Rlimit, getppid, getrlimit, set_dumpable_behavior, setrlimit},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    task::{JoinHandle, JoinSet},
};

use crate::{
    config::LogFormat,
    control::{self, ControlSocket},
    fallback::{self, Replacement},
    framework::Recognised,
    logging,
    master::{self, Beginning, Client as Master, Loaded, wire::Notice},
    plan::{App, FrontController, Plan},
    secrets,
    server::{Order, Server, open_log},
};

/// How long those who have just connected to a front that is replaced may take to say what they want.
const FIRST_WORDS: Duration = Duration::from_secs(1);

type Reply = oneshot::Sender<Result<(), String>>;

/// `hayate front`: runs until the end.
pub fn run() -> ExitCode {
    let (wire, beginning) = match begin() {
        Ok(begun) => begun,
        Err(error) => {
            eprintln!("hayate: {error:#}; `hayate front` is started by `hayate serve`, not by hand");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = logging::init(beginning.plan.log_level, beginning.plan.log_format) {
        eprintln!("hayate: cannot start the log's thread: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = Hub::new().context("eventfd").and_then(|hub| {
        let runtime = runtime::build(&hub).context("cannot start the event loop")?;
        let outcome = runtime.block_on(serve(wire, beginning, &hub));
        if let Err(error) = &outcome {
            logging::print(&format!("hayate: {error:#}\n"));
        }
        runtime.block_on(logging::finish());
        // A read from a slow disk must not delay the end.
        runtime.shutdown_background();
        Ok(outcome)
    });
    match outcome {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hayate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Takes the wire over, and becomes a process that its user's others can neither trace nor look into.
fn begin() -> Result<(OwnedFd, Beginning)> {
    // SAFETY: only asked about; an error says that it is not open.
    fcntl_setfd(unsafe { BorrowedFd::borrow_raw(master::WIRE) }, FdFlags::CLOEXEC)
        .context("there is no master")?;
    // SAFETY: it is open; the master has started this process with it, and nobody else here knows of it.
    let wire = unsafe { OwnedFd::from_raw_fd(master::WIRE) };
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Its program is known to the kernel by another name.
    rustix::thread::set_name(c"hayate")?;
    let beginning = master::begin(&wire)?;
    // It may have died before the kernel was told to end this process with it.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() as u32 != beginning.master) {
        anyhow::bail!("the master is gone");
    }
    Ok((wire, beginning))
}

/// SIGTERM and SIGINT: somebody wants the end.
struct EndSignals(Signal, Signal);

impl EndSignals {
    fn new() -> io::Result<EndSignals> {
        Ok(EndSignals(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

async fn serve(wire: OwnedFd, mut beginning: Beginning, hub: &Arc<Hub>) -> Result<()> {
    let _watch = runtime::watch(hub).context("cannot watch the workers' eventfd")?;
    let mut signals = EndSignals::new().context("signals")?;
    let mut hang_up = signal(SignalKind::hangup()).context("signals")?;
    let mut user1 = signal(SignalKind::user_defined1()).context("signals")?;
    raise_open_files();
    let master = Master::new(wire).context("cannot hear the master")?;
    let mut first = master.first(&mut beginning);
    let plan = first.plan.clone();
    let bound = first.listeners(&[]).context("the listening sockets")?;

    let access_log = open_log(&plan, &AccessLog::off())?;
    let (orders, mut receiver) = mpsc::unbounded_channel();
    let server = Server::new(&plan, access_log.clone(), orders, beginning.master)?;
    let control_path = beginning.control.as_ref().map(|(path, _)| path.clone());
    let mut commands = Commands::default();
    let mut open = Some((beginning.control.take(), beginning.metrics.take()));
    // Until a successor serves, the front that does answers.
    if let Some((control, metrics)) = open.take_if(|_| !beginning.successor) {
        commands.open(&server, control, metrics, beginning.master_user)?;
    }

    let apps = start(&first, hub)?;
    server.install(&plan, access_log, apps.clone());
    tokio::select! {
        booted = fallback::all_booted(&plan.apps, &apps, hub) => match booted {
            Ok(replacements) => replace(&server, replacements, Duration::ZERO),
            // One that has served before is wanted, whatever it takes; unless another one still serves.
            Err(why) if beginning.successor || (!plan.development && !beginning.again) => {
                master.failed(&why);
                end(&server, Listeners::default(), Duration::ZERO, &mut signals).await;
                anyhow::bail!("{why}");
            }
            Err(_) => {}
        },
        () = signals.recv() => {
            end(&server, Listeners::default(), Duration::ZERO, &mut signals).await;
            return Ok(());
        }
    }
    tokio::spawn(Arc::clone(&server.front).watch());
    let mut listeners = Listeners::default();
    bound.into_iter().for_each(|(addr, listener)| listeners.add(&server.front, addr, listener));
    server.serving();
    if let Some((control, metrics)) = open.take() {
        commands.open(&server, control, metrics, beginning.master_user)?;
    }
    first.adopted();
    drop(apps);
    let (running, apps) = server.running_now();
    announce(&running, &apps, control_path.as_deref());
    secrets::warn_of(&running.apps);
    drop(apps);
    master.notify(Notice::Ready);

    let mut drain_timeout = plan.drain_timeout;
    let mut reload: Option<Reload> = None;
    let mut falling: JoinSet<Option<Replacement>> = JoinSet::new();
    let mut replaced = false;
    loop {
        let order = tokio::select! {
            () = signals.recv() => Order::Stop,
            () = master.replaced() => {
                tracing::info!("another front serves now; this one finishes what it has begun");
                replaced = true;
                break;
            }
            _ = hang_up.recv() => Order::Reload(None),
            _ = user1.recv() => {
                tokio::spawn(reopen_log(Arc::clone(&server.front)));
                continue;
            }
            Some(order) = receiver.recv() => order,
            Some(Ok(Some(replacement))) = falling.join_next() => {
                replace(&server, vec![replacement], drain_timeout);
                continue;
            }
            outcome = finished(&mut reload) => {
                let outcome = outcome.map(|fresh| {
                    drain_timeout = fresh.loaded.plan.drain_timeout;
                    for key in fresh.loaded.plan.fixed_keys_changed(&plan) {
                        tracing::warn!("{key} has changed; that takes effect with a restart only");
                    }
                    switch(&server, &mut listeners, fresh);
                });
                match &outcome {
                    Ok(()) => tracing::info!("reloaded"),
                    Err(why) => tracing::error!("the reload was refused, the old generation goes on serving: {why}"),
                }
                if outcome.is_err() {
                    server.watch_again();
                }
                server.reloaded(&outcome);
                master.notify(Notice::Ready);
                for reply in reload.take().into_iter().flat_map(|reload| reload.replies) {
                    // Whoever asked may have stopped waiting.
                    let _ = reply.send(outcome.clone());
                }
                continue;
            }
        };
        match order {
            Order::Stop => break,
            // What a reload boots has its chance first.
            Order::FallBack(..) if reload.is_some() => {}
            Order::FallBack(generation, unfit) => {
                if let Some(app) = server.app_of(&generation) {
                    let next = if unfit.renew { "" } else { "; trying a slower way that is as safe" };
                    tracing::warn!(app = app.spec.name, "{}{next}", unfit.why);
                    falling.spawn(fallback::boot(generation, app, unfit, Arc::clone(hub)));
                }
            }
            Order::Upgrade(reply) => {
                let master = Arc::clone(&master);
                // Whoever asked may have stopped waiting.
                tokio::spawn(async move { reply.send(master.upgrade().await) });
            }
            Order::Reload(reply) => {
                tracing::info!("reloading");
                master.notify(Notice::Reloading);
                falling.abort_all();
                // One under way may have read what has changed since, or hang in its boot: this one takes its place.
                let mut replies = match reload.take() {
                    Some(before) => before.abort().await,
                    None => Vec::new(),
                };
                replies.extend(reply);
                let known = listeners.addresses();
                let log = server.front.access_log();
                let task = tokio::spawn(prepare(Arc::clone(&master), known, log, Arc::clone(hub)));
                reload = Some(Reload { task, replies });
            }
        }
    }
    if let Some(reload) = reload {
        reload.abort().await;
    }
    falling.shutdown().await;
    if replaced {
        commands.close();
        listeners.keep(&[]);
        // A connection that was accepted a moment ago still gets its first answer here.
        tokio::select! {
            () = tokio::time::sleep(FIRST_WORDS) => {}
            () = signals.recv() => {}
        }
    } else {
        master.notify(Notice::Stopping);
    }
    end(&server, listeners, drain_timeout, &mut signals).await;
    Ok(())
}

/// The listeners for commands and metrics. Connections that they have accepted live on without them.
#[derive(Default)]
struct Commands(Vec<JoinHandle<()>>);

impl Commands {
    fn open(
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

    fn close(self) {
        self.0.into_iter().for_each(|task| task.abort());
    }
}

/// Raises the soft limit of open files to the hard one, since each connection is one.
fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Without it there are fewer connections.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

fn start(loaded: &Loaded, hub: &Arc<Hub>) -> Result<Vec<Arc<Generation>>> {
    let generation = |(i, app): (usize, &App)| {
        Generation::start(app.spec.clone(), loaded.launcher(i), hub)
            .with_context(|| format!("cannot make the shared memory of application '{}'", app.spec.name))
    };
    loaded.plan.apps.iter().enumerate().map(generation).collect()
}

/// A reload under way, and who waits for it.
struct Reload {
    task: JoinHandle<Result<Fresh, String>>,
    replies: Vec<Reply>,
}

impl Reload {
    /// Gives it up, and ends what it has started. Returns who waits for its outcome.
    async fn abort(self) -> Vec<Reply> {
        self.task.abort();
        let _ = self.task.await;
        self.replies
    }
}

async fn finished(reload: &mut Option<Reload>) -> Result<Fresh, String> {
    match reload {
        None => std::future::pending().await,
        Some(reload) => (&mut reload.task).await.unwrap_or_else(|error| Err(error.to_string())),
    }
}

/// What a reload has made ready.
struct Fresh {
    loaded: Loaded,
    access_log: AccessLog,
    listeners: Vec<(ListenAddr, Listener)>,
    apps: Vec<Arc<Generation>>,
    /// What takes the place of some of them at once.
    slower: Vec<Replacement>,
}

/// Has the configuration read again and boots what it asks for, beside what serves.
async fn prepare(
    master: Arc<Master>,
    known: Vec<ListenAddr>,
    log: AccessLog,
    hub: Arc<Hub>,
) -> Result<Fresh, String> {
    let mut loaded = master.load().await?;
    let access_log = open_log(&loaded.plan, &log).map_err(|error| error.to_string())?;
    let listeners = loaded.listeners(&known).map_err(|error| error.to_string())?;
    let apps = start(&loaded, &hub).map_err(|error| format!("{error:#}"))?;
    match fallback::all_booted(&loaded.plan.apps, &apps, &hub).await {
        Ok(slower) => Ok(Fresh { loaded, access_log, listeners, apps, slower }),
        Err(why) => {
            for app in apps {
                app.kill().await;
            }
            Err(why)
        }
    }
}

/// Sends requests to what a reload has booted, and lets what served before finish.
fn switch(server: &Arc<Server>, listeners: &mut Listeners, fresh: Fresh) {
    let Fresh { loaded, access_log, listeners: bound, apps, slower } = fresh;
    let plan = loaded.plan.clone();
    secrets::warn_of(&plan.apps);
    let old = server.install(&plan, access_log, apps);
    replace(server, slower, Duration::ZERO);
    tokio::spawn(reopen_log(Arc::clone(&server.front)));
    listeners.keep(&plan.listen);
    bound.into_iter().for_each(|(addr, listener)| listeners.add(&server.front, addr, listener));
    loaded.adopted();
    for generation in old {
        retire(server, generation, plan.drain_timeout);
    }
}

/// Sends requests to what runs in another way than configured.
fn replace(server: &Arc<Server>, replacements: Vec<Replacement>, drain_timeout: Duration) {
    for replacement in replacements {
        retire(server, server.replace(replacement), drain_timeout);
    }
}

/// Lets a generation that was replaced finish. Nothing presses: what request_timeout allows is not cut off.
fn retire(server: &Arc<Server>, generation: Arc<Generation>, drain_timeout: Duration) {
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let limit = drain_timeout.max(generation.spec().request_timeout.unwrap_or_default());
        generation.drain(limit).await;
        server.retired(&generation);
    });
}

/// Without waiting for it: what the log is written to may be stalled.
async fn reopen_log(front: Arc<Front>) {
    match front.reopen_logs().await {
        Ok(()) => tracing::debug!("access log reopened"),
        Err(error) => tracing::error!("the access log goes on as it was: {error}"),
    }
}

/// Finishes what is being served, for `limit` at most or until a signal, and ends every process.
async fn end(server: &Arc<Server>, mut listeners: Listeners, limit: Duration, signals: &mut EndSignals) {
    let generations = server.stopping();
    listeners.keep(&[]);
    let until = Instant::now() + limit;
    let drained = async {
        if !limit.is_zero() {
            tracing::info!(
                connections = server.front.connections(),
                "finishing what is being served; a second signal ends at once"
            );
            if !server.front.drain(limit).await {
                tracing::warn!("requests were cut off after {limit:?}");
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        each(&generations, move |generation| async move { generation.drain(left).await }).await;
    };
    tokio::select! {
        () = drained => {}
        () = signals.recv() => {
            tracing::warn!("a second signal: ending at once");
            each(&generations, |generation| async move { generation.kill().await }).await;
        }
    }
    server.front.close().await;
    tracing::info!("stopped");
}

/// Does something to all generations at once, and waits.
async fn each<F: Future<Output = ()> + Send + 'static>(
    generations: &[Arc<Generation>],
    what: impl Fn(Arc<Generation>) -> F,
) {
    let tasks: JoinSet<()> = generations.iter().map(|generation| what(Arc::clone(generation))).collect();
    tasks.join_all().await;
}

/// The listeners that accept connections, each with the switch that ends it.
#[derive(Default)]
struct Listeners(HashMap<ListenAddr, watch::Sender<bool>>);

impl Listeners {
    fn add(&mut self, front: &Arc<Front>, addr: ListenAddr, listener: Listener) {
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(Arc::clone(front).serve(listener, stopped));
        self.0.insert(addr, stop);
    }

    fn addresses(&self) -> Vec<ListenAddr> {
        self.0.keys().cloned().collect()
    }

    /// Ends those that are not in `wanted`.
    fn keep(&mut self, wanted: &[ListenAddr]) {
        self.0.retain(|addr, stop| {
            let stays = wanted.contains(addr);
            if !stays {
                stop.send_replace(true);
            }
            stays
        });
    }
}

/// Says to people what runs and how to end it; a log for programs gets one record instead.
fn announce(plan: &Plan, apps: &[Arc<Generation>], control: Option<&Path>) {
    if plan.log_format == LogFormat::Json {
        let listen: Vec<String> = plan.listen.iter().map(ToString::to_string).collect();
        tracing::info!(version = env!("CARGO_PKG_VERSION"), listen = listen.join(" "), "serving");
        for app in &plan.apps {
            let FrontController { script, why } = &app.front_controller;
            tracing::info!(
                app = app.spec.name,
                "what is no file: {} ({why})",
                script.as_deref().unwrap_or("404")
            );
        }
        return;
    }
    let mut text = format!("\nHayate {} serves", env!("CARGO_PKG_VERSION"));
    for addr in &plan.listen {
        text += &format!(" {addr}");
    }
    text += "\n";
    for (app, generation) in plan.apps.iter().zip(apps) {
        let (spec, status) = (&app.spec, generation.status());
        let mode = match &spec.mode {
            Mode::Classic => "classic mode".to_owned(),
            Mode::Worker { script } => {
                let what =
                    app.recognised.as_ref().map_or_else(|| script.display().to_string(), Recognised::name);
                format!("worker mode, {what}, rewind {}", spec.rewind.name())
            }
        };
        let php = status.php.as_deref().unwrap_or("(not started)");
        let (min, max) = spec.workers.clone().into_inner();
        text += &format!(
            "  {}: {}, {mode}, PHP {php}, {min}-{max} workers\n",
            spec.name,
            spec.document_root.display()
        );
        if let Some(recognised) = &app.recognised {
            let evidence = &recognised.evidence;
            text += &format!("    recognised: {evidence}; --mode classic serves it as php-fpm would\n");
        }
        if let Some(remark) = &app.remark {
            text += &format!("    {remark}\n");
        }
        if let Some(why) = status.boot_remark {
            text += &format!("    look at this: {why}\n");
        }
        if let Some(why) = status.cold_boot {
            text += &format!("    without warm-up requests: {why}\n");
        }
        let FrontController { script, why } = &app.front_controller;
        text += &format!("    what is no file: {} ({why})\n", script.as_deref().unwrap_or("404"));
        if let Some(why) = status.unavailable {
            text += &format!("    cannot serve yet: {why}\n");
        }
    }
    text += "Stop with Ctrl-C";
    if let Some(path) = control {
        text += &format!(" or `hayate stop`; control socket {}", path.display());
    }
    logging::print(&format!("{text}\n\n"));
}
