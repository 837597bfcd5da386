//! `hayate serve`: start-up, signals, reload, and the end.
//!
//! Start-up, in this order and for these reasons: read the configuration; open the sockets, which may need root; become the
//! configured user; start PHP; serve. A reload starts new generations beside the old, and sends requests to them only when
//! all have booted. Nothing here knows HTTP or processes; it decides when.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use hayate_front::{AccessLog, Front, ListenAddr, Listener, runtime};
use hayate_pool::{Generation, Mode, Spec};
use hayate_ring::Hub;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot, watch},
    task::{JoinHandle, JoinSet},
};

use crate::{
    args::ServeArgs,
    config::LogFormat,
    control::{self, ControlSocket},
    fallback::{self, Replacement},
    framework::Recognised,
    logging,
    plan::Plan,
    privileges,
    server::{Order, Server, open_log},
};

type Reply = oneshot::Sender<Result<(), String>>;

/// Runs until the end.
pub fn run(args: ServeArgs) -> ExitCode {
    let plan = match Plan::load(&args) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("hayate: {error}");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = logging::init(plan.log_level, plan.log_format) {
        eprintln!("hayate: cannot start the log's thread: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = Hub::new().context("eventfd").and_then(|hub| {
        let runtime = runtime::build(&hub).context("cannot start the event loop")?;
        let outcome = runtime.block_on(serve(args, plan, &hub));
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

async fn serve(args: ServeArgs, plan: Plan, hub: &Arc<Hub>) -> Result<()> {
    let _watch = runtime::watch(hub).context("cannot watch the workers' eventfd")?;
    let mut signals = EndSignals::new().context("signals")?;
    let mut hang_up = signal(SignalKind::hangup()).context("signals")?;
    let mut user1 = signal(SignalKind::user_defined1()).context("signals")?;
    let open_files = raise_open_files();
    let mut bound = Vec::new();
    for addr in &plan.listen {
        bound.push((addr.clone(), Listener::bind(addr)?));
    }
    let metrics = match &plan.metrics {
        Some(ListenAddr::Tcp(addr)) => Some(
            tokio::net::TcpListener::bind(addr)
                .await
                .with_context(|| format!("cannot listen on {addr} for metrics"))?,
        ),
        _ => None,
    };
    let control = bind_control(&plan).await?;
    let _pid_file = plan.pid_file.as_deref().map(PidFile::write).transpose()?;
    privileges::drop_to(plan.user.as_deref(), plan.group.as_deref())?;

    let access_log = open_log(&plan, &AccessLog::off())?;
    let (orders, mut receiver) = mpsc::unbounded_channel();
    let server = Server::new(&plan, access_log.clone(), orders)?;
    let control_path = control.as_ref().map(|control| control.path().to_owned());
    if let Some(control) = control {
        tokio::spawn(control.serve(Arc::clone(&server)));
    }
    if let Some(listener) = metrics {
        tokio::spawn(control::serve_metrics(listener, Arc::clone(&server)));
    }

    let apps = start(&plan, hub, open_files)?;
    server.install(&plan, access_log, apps.clone());
    tokio::select! {
        booted = fallback::all_booted(&plan.apps, &apps, hub) => match booted {
            Ok(replacements) => replace(&server, replacements, Duration::ZERO),
            Err(why) if !plan.development => {
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
    drop(apps);
    let (running, apps) = server.running_now();
    announce(&running, &apps, control_path.as_deref());
    drop(apps);
    tell_systemd(&[NotifyState::Ready]);

    let mut drain_timeout = plan.drain_timeout;
    let mut reload: Option<Reload> = None;
    let mut falling: JoinSet<Option<Replacement>> = JoinSet::new();
    loop {
        let order = tokio::select! {
            () = signals.recv() => Order::Stop,
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
                    drain_timeout = fresh.plan.drain_timeout;
                    for key in fresh.plan.fixed_keys_changed(&plan) {
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
                tell_systemd(&[NotifyState::Ready]);
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
            Order::Reload(reply) => {
                tracing::info!("reloading");
                tell_systemd(&reloading());
                falling.abort_all();
                // One under way may have read what has changed since, or hang in its boot: this one takes its place.
                let mut replies = match reload.take() {
                    Some(before) => before.abort().await,
                    None => Vec::new(),
                };
                replies.extend(reply);
                let known = listeners.addresses();
                let log = server.front.access_log();
                let task = tokio::spawn(prepare(args.clone(), known, log, Arc::clone(hub), open_files));
                reload = Some(Reload { task, replies });
            }
        }
    }
    if let Some(reload) = reload {
        reload.abort().await;
    }
    falling.shutdown().await;
    tell_systemd(&[NotifyState::Stopping]);
    end(&server, listeners, drain_timeout, &mut signals).await;
    Ok(())
}

/// Raises the soft limit of open files to the hard one, since each connection is one. Returns what it was, which PHP is to
/// have; `None` when it stays.
fn raise_open_files() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return None;
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok()?;
    current
}

/// The control socket, or none when nobody asked for it and it cannot be made.
async fn bind_control(plan: &Plan) -> Result<Option<ControlSocket>> {
    if let Some(path) = &plan.control {
        return Ok(Some(ControlSocket::bind(path).await?));
    }
    let Some(path) = control::default_socket() else { return Ok(None) };
    match ControlSocket::bind(&path).await {
        Ok(control) => Ok(Some(control)),
        Err(error) => {
            tracing::warn!("{error}; going on without one");
            Ok(None)
        }
    }
}

fn start(plan: &Plan, hub: &Arc<Hub>, open_files: Option<u64>) -> Result<Vec<Arc<Generation>>> {
    let generation = |spec: &Spec| {
        Generation::start(Spec { open_files, ..spec.clone() }, hub)
            .with_context(|| format!("cannot make the shared memory of application '{}'", spec.name))
    };
    plan.apps.iter().map(|app| generation(&app.spec)).collect()
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
    plan: Plan,
    access_log: AccessLog,
    listeners: Vec<(ListenAddr, Listener)>,
    apps: Vec<Arc<Generation>>,
    /// What takes the place of some of them at once.
    slower: Vec<Replacement>,
}

/// Reads the configuration again and boots what it asks for, beside what serves.
async fn prepare(
    args: ServeArgs,
    known: Vec<ListenAddr>,
    log: AccessLog,
    hub: Arc<Hub>,
    open_files: Option<u64>,
) -> Result<Fresh, String> {
    let plan = Plan::load(&args).map_err(|error| error.to_string())?;
    let access_log = open_log(&plan, &log).map_err(|error| error.to_string())?;
    let mut listeners = Vec::new();
    for addr in plan.listen.iter().filter(|addr| !known.contains(addr)) {
        listeners.push((addr.clone(), Listener::bind(addr).map_err(|error| error.to_string())?));
    }
    let apps = start(&plan, &hub, open_files).map_err(|error| format!("{error:#}"))?;
    match fallback::all_booted(&plan.apps, &apps, &hub).await {
        Ok(slower) => Ok(Fresh { plan, access_log, listeners, apps, slower }),
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
    let Fresh { plan, access_log, listeners: bound, apps, slower } = fresh;
    let old = server.install(&plan, access_log, apps);
    replace(server, slower, Duration::ZERO);
    tokio::spawn(reopen_log(Arc::clone(&server.front)));
    listeners.keep(&plan.listen);
    bound.into_iter().for_each(|(addr, listener)| listeners.add(&server.front, addr, listener));
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

/// The file with the process id; goes with the process.
struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    fn write(path: &Path) -> Result<PidFile> {
        let write = || {
            let mut file = File::create(path)?;
            writeln!(file, "{}", std::process::id())?;
            Ok::<_, io::Error>(file)
        };
        let file = write().with_context(|| format!("cannot write the pid file {}", path.display()))?;
        Ok(PidFile { path: path.to_owned(), file })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // After a change of user the directory may refuse; then an empty file says that nobody runs.
        if fs::remove_file(&self.path).is_err() {
            let _ = self.file.set_len(0);
        }
    }
}

fn tell_systemd(states: &[NotifyState]) {
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(states);
}

fn reloading() -> Vec<NotifyState<'static>> {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now());
    states
}

/// Says to people what runs and how to end it; a log for programs gets one record instead.
fn announce(plan: &Plan, apps: &[Arc<Generation>], control: Option<&Path>) {
    if plan.log_format == LogFormat::Json {
        let listen: Vec<String> = plan.listen.iter().map(ToString::to_string).collect();
        tracing::info!(version = env!("CARGO_PKG_VERSION"), listen = listen.join(" "), "serving");
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
        if let Some(why) = status.cold_boot {
            text += &format!("    without warm-up requests: {why}\n");
        }
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
