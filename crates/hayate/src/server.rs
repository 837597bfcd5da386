//! The running server: which generation of which application serves, and what is said of it.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use hayate_certificates::Pair;
use hayate_front::{AccessLog, Backend, Beside, Disk, Front, Routes, Settings};
use hayate_http::Secret;
use hayate_pool::{Generation, RewindTotals, Status, Unfit, Way};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::{
    access_logs::AccessLogs,
    fallback::{self, Fallback, Replacement},
    machine,
    metrics::Metrics,
    plan::{App, Plan, Port},
    tls::Certificates,
};

/// What the control socket asks of the main loop.
pub enum Order {
    /// Reload, and say how it went.
    Reload(Option<oneshot::Sender<Result<(), String>>>),
    /// Workers of this generation cannot be rewound, again and again.
    FallBack(Arc<Generation>, Unfit),
    /// Have the installed program take over, and say how it went.
    Upgrade(oneshot::Sender<Result<(), String>>),
    /// Finish and end.
    Stop,
}

/// What the whole process shares.
pub struct Server {
    /// HTTP.
    pub front: Arc<Front>,
    metrics: Metrics,
    orders: mpsc::UnboundedSender<Order>,
    running: Mutex<Running>,
    started: Instant,
    master: u32,
    /// Another front may still finish requests.
    others: AtomicBool,
    /// What all fronts of this server derive keys of QUIC from.
    secret: Secret,
    /// What the front is to know of TLS.
    tls: Mutex<Option<hayate_front::Tls>>,
    certificates: tokio::sync::Mutex<Certificates>,
}

/// What a reload replaces.
struct Running {
    plan: Plan,
    access_logs: AccessLogs,
    /// Of the plan's applications that run PHP, in order.
    apps: Vec<Arc<Generation>>,
    /// Replaced, but still finishing requests, and until when.
    draining: Vec<(Arc<Generation>, Instant)>,
    /// What was counted in generations that are gone, by application.
    former: BTreeMap<String, Counted>,
    /// Applications that run in a slower way than configured, until the next reload.
    fallbacks: BTreeMap<String, Fallback>,
    last_reload: Option<LastReload>,
    stage: Stage,
}

impl Running {
    /// What answers from now on for what an application of an earlier plan has answered for, as the same user, or nobody does: what was sent to
    /// one customer is none of another's business, who may have got its name, its hosts or its code.
    fn successor_of(&self, before: &App) -> Option<&Arc<Generation>> {
        let apps: Vec<&App> = self.plan.with_scripts().collect();
        let is_there = |app: &App| app.hosts == before.hosts && app.path == before.path;
        let runs_the_same = |app: &App| {
            app.spec.document_root == before.spec.document_root && app.spec.env == before.spec.env
        };
        // Names are often those of directories, such as "current". What runs scripts beside an application is called after that.
        let is_called = |app: &App| match (&app.beside, &before.beside) {
            (None, None) => app.spec.name == before.spec.name,
            (of, before) => of == before,
        };
        let shares_a_host = |app: &App| {
            let all = app.hosts.is_empty() || before.hosts.is_empty();
            all || app.hosts.iter().any(|host| before.hosts.contains(host))
        };
        // The same code, if somebody runs it; a code base may serve several customers.
        let ways: [&dyn Fn(&App) -> bool; 4] =
            [&|app| is_there(app) && runs_the_same(app), &runs_the_same, &is_there, &|app| {
                is_called(app) && shares_a_host(app)
            }];
        let find = |is_beside: bool| {
            let may = |app: &App| app.identity == before.identity && app.beside.is_some() == is_beside;
            ways.iter().find_map(|is| apps.iter().find(|app| may(app) && is(app)))
        };
        // Where no scripts run beside an application any more, it answers for them.
        let beside = if before.beside.is_some() { find(true) } else { None };
        let successor = beside.or_else(|| find(false))?;
        let i = self.plan.with_php().position(|app| app.spec.name == successor.pool())?;
        self.apps.get(i)
    }

    /// Has a generation finish what it serves. Returns how long it may.
    fn drain(&mut self, generation: &Arc<Generation>, patience: Duration) -> Retired {
        let limit = patience.max(self.plan.drain_timeout);
        self.draining.push((Arc::clone(generation), Instant::now() + limit));
        Retired { generation: Arc::clone(generation), limit }
    }

    /// Puts a generation in the place of another. Returns which of both is to be drained: the new one when the old one is not here any more.
    fn substitute(&mut self, replacement: Replacement) -> Retired {
        let Replacement { old, app, new, fallback } = replacement;
        let Some(i) = self.apps.iter().position(|other| Arc::ptr_eq(other, &old)) else {
            // Nobody has sent it anything.
            return Retired { generation: new, limit: Duration::ZERO };
        };
        let patience = app.patience();
        match fallback {
            Some(fallback) => {
                tracing::error!(app = app.spec.name, "{}", fallback.words());
                self.fallbacks.insert(app.spec.name.clone(), fallback);
            }
            None => tracing::info!(app = app.spec.name, "booted anew"),
        }
        let planned = self.plan.apps.iter_mut().filter(|app| app.runs_php()).nth(i);
        if let (Some(planned), Some(runs)) = (planned, self.apps.get_mut(i)) {
            (*planned, *runs) = (app, Arc::clone(&new));
        }
        old.succeeded_by(&new);
        self.drain(&old, patience)
    }
}

/// A generation that was replaced.
pub struct Retired {
    /// To be drained, and handed to [`Server::retired`] then.
    pub generation: Arc<Generation>,
    /// How long it may finish.
    pub limit: Duration,
}

/// What was counted in an application's generations.
#[derive(Clone, Default)]
struct Counted {
    restarts: BTreeMap<String, u64>,
    slow_requests: u64,
    /// `None`: none of them rewound.
    rewinds: Option<RewindTotals>,
}

impl Counted {
    /// Adds what one generation has counted.
    fn add(&mut self, status: &Status) {
        for (cause, n) in &status.restarts {
            *self.restarts.entry(cause.clone()).or_default() += n;
        }
        self.slow_requests += status.slow_requests;
        if let Some(rewind) = &status.rewind {
            self.rewinds.get_or_insert_default().add_totals(&rewind.totals);
        }
    }
}

/// Where the process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Stage {
    /// The first boot is under way.
    Starting,
    Serving,
    Draining,
}

#[derive(Debug, Clone, Serialize)]
struct LastReload {
    /// Seconds since the epoch.
    at: u64,
    /// Why it was refused.
    error: Option<String>,
    /// Keys that have changed and take effect with a restart only.
    needs_restart: Vec<&'static str>,
}

/// What `hayate status --json` shows.
#[derive(Serialize)]
pub struct ServerStatus {
    version: &'static str,
    /// The master's process, to which signals go.
    pid: u32,
    front: u32,
    state: Stage,
    uptime: u64,
    listen: Vec<String>,
    connections: usize,
    /// Of these, those of each thread.
    threads: Vec<usize>,
    last_reload: Option<LastReload>,
    apps: Vec<AppStatus>,
    /// Sites of static files, for which no PHP runs.
    static_sites: Vec<StaticSite>,
    /// Applications whose scripts run in the workers of another one.
    in_pools: Vec<InPool>,
    /// Applications that could not even be tried.
    failed: Vec<FailedApp>,
    /// Generations that were replaced and still finish requests; all those of other fronts count as one.
    draining: usize,
}

/// A site of static files.
#[derive(Serialize)]
pub struct StaticSite {
    name: String,
    document_root: String,
}

/// An application whose scripts run in the workers of another one.
#[derive(Serialize)]
pub struct InPool {
    name: String,
    document_root: String,
    /// The name of that one.
    pool: String,
}

/// An application of which nothing runs.
#[derive(Serialize)]
pub struct FailedApp {
    name: String,
    why: String,
}

/// One application of it.
#[derive(Clone, Serialize)]
pub struct AppStatus {
    /// What its generation says.
    #[serde(flatten)]
    pub status: Status,
    document_root: String,
    /// It runs scripts beside the application of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<String>,
    /// Since it runs in a slower way than configured: why.
    pub fallback: Option<Fallback>,
    /// What rewinds it has had, also if it has none any more.
    #[serde(skip)]
    pub rewinds: Option<RewindTotals>,
}

fn settings(plan: &Plan, access_log: &AccessLog, tls: Option<hayate_front::Tls>) -> Settings {
    let ports = plan.ports_by_address().into_iter().map(|(addr, port)| {
        let Port { tls, proxy_protocol } = port;
        let quic = matches!(addr, hayate_front::ListenAddr::Quic(_));
        (addr, hayate_front::Port { tls, proxy_protocol, quic })
    });
    Settings {
        limits: plan.limits.clone(),
        access_log: access_log.clone(),
        trusted_proxies: plan.trusted_proxies.clone(),
        trust_unix: plan.trust_unix,
        trusted_headers: plan.trusted_headers,
        http2_prior_knowledge: plan.http2_prior_knowledge,
        early_hints_http1: plan.early_hints_http1,
        ports: ports.collect(),
        tls,
        development: plan.development,
    }
}

impl Server {
    /// Serves nothing yet. `master` is the master's process; `others`: another front may still finish requests.
    pub fn new(
        plan: &Plan,
        access_logs: AccessLogs,
        orders: mpsc::UnboundedSender<Order>,
        master: u32,
        secret: Secret,
        others: bool,
    ) -> io::Result<Arc<Server>> {
        let metrics = Metrics::new();
        let disk = Disk::start(machine::threads_for_files())?;
        let settings = settings(plan, access_logs.server(), None);
        let front = Front::new(settings, Routes::default(), Arc::clone(&metrics.front), disk);
        let running = Running {
            // Nobody listens before the first `install`.
            plan: Plan { listen: Vec::new(), ..plan.clone() },
            access_logs,
            apps: Vec::new(),
            draining: Vec::new(),
            former: BTreeMap::new(),
            fallbacks: BTreeMap::new(),
            last_reload: None,
            stage: Stage::Starting,
        };
        Ok(Arc::new(Server {
            front,
            metrics,
            orders,
            running: Mutex::new(running),
            started: Instant::now(),
            master,
            others: AtomicBool::new(others),
            secret,
            tls: Mutex::default(),
            certificates: tokio::sync::Mutex::default(),
        }))
    }

    /// No other front is left.
    pub fn is_alone(&self) {
        self.others.store(false, Relaxed);
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock()
    }

    /// Makes ready for a plan's TLS, before [`Server::install`]. Returns when the certificates that are there are in force; see
    /// [`Certificates::install`].
    pub async fn take_certificates(&self, plan: &Plan) -> Result<(), String> {
        let tls = self.certificates.lock().await.install(plan.tls.as_ref(), &self.secret).await?;
        *self.tls.lock() = tls;
        Ok(())
    }

    /// Takes what the files of certificates hold now.
    pub async fn certificates_changed(&self, pairs: Vec<Pair>) {
        self.certificates.lock().await.replace(pairs).await;
    }

    /// Sends new requests to `apps`, which belong to those of `plan`'s applications that run PHP, in order; where `slower` says so, at once to
    /// what takes their place: one that is not fit gets none. Returns the generations that were replaced; hand them to [`Server::retired`]
    /// once they are drained.
    pub fn install(
        &self,
        plan: &Plan,
        access_logs: AccessLogs,
        apps: Vec<Arc<Generation>>,
        slower: Vec<Replacement>,
    ) -> Vec<Retired> {
        let mut successors = Vec::new();
        let (plan, apps, old) = {
            let mut running = self.running();
            let planned = std::mem::replace(&mut running.plan, plan.clone());
            running.access_logs = access_logs.clone();
            let later = |name: &String| {
                plan.apps.iter().any(|app| app.spec.name == *name && app.spec.way == Way::ClassesLater)
            };
            running.fallbacks.retain(|name, fallback| fallback.stays() && later(name));
            let before = std::mem::replace(&mut running.apps, apps);
            let mut old: Vec<_> =
                slower.into_iter().map(|replacement| running.substitute(replacement)).collect();
            for (generation, app) in before.iter().zip(planned.with_php()) {
                successors
                    .extend(running.successor_of(app).map(|new| (Arc::clone(generation), Arc::clone(new))));
                old.push(running.drain(generation, app.patience()));
            }
            (running.plan.clone(), running.apps.clone(), old)
        };
        let tls = self.tls.lock().clone();
        self.front.swap(settings(&plan, access_logs.server(), tls), self.routes(&plan, &access_logs, &apps));
        // What is still on its way to an old one, for example in line, is for the new one. Only now: it asks the front for its script then.
        successors.iter().for_each(|(old, new)| old.succeeded_by(new));
        apps.iter().for_each(|generation| fallback::watch(generation, &self.orders));
        old
    }

    fn routes(&self, plan: &Plan, logs: &AccessLogs, apps: &[Arc<Generation>]) -> Routes {
        let generations: Vec<(&App, &Arc<Generation>)> = plan.with_php().zip(apps).collect();
        let ring = |(app, generation): &(&App, &Arc<Generation>)| {
            let [ask, ask_workers] = [Arc::clone(generation), Arc::clone(generation)];
            Backend::Ring {
                ring: generation.ring(),
                queue_limit: app.queue_limit,
                queue_timeout: app.spec.queue_timeout,
                retry: app.retry,
                streams_bodies: app.streams_bodies,
                unavailable: Arc::new(move || ask.unavailable()),
                lacking: Arc::new(move || ask_workers.lacking()),
            }
        };
        let sites = plan.configured().filter_map(|app| {
            let of = |is: &dyn Fn(&App) -> bool| generations.iter().find(|(app, _)| is(app)).map(ring);
            let backend = match app.has_scripts() {
                true => of(&|other| other.spec.name == app.pool())?,
                // What answers for one that failed is a rule.
                false => Backend::Static,
            };
            let place = self.front.disk().place(&app.spec.document_root);
            let metrics = self.metrics.front.site(&app.spec.name);
            let mut site = app.site(backend, place, metrics, self.front.keeper());
            site.access_log = logs.of(app);
            site.beside = app.scripts.as_ref().and_then(|scripts| {
                let scripts = scripts.paths.iter().map(|path| path.clone().into_bytes()).collect();
                let backend = of(&|other| other.beside.as_ref() == Some(&app.spec.name))?;
                Some(Beside { scripts, backend })
            });
            Some(Arc::new(site))
        });
        Routes { sites: sites.collect(), access_logs: logs.all() }
    }

    /// The access logs in force.
    pub fn access_logs(&self) -> AccessLogs {
        self.running().access_logs.clone()
    }

    /// The plan as it is served, and the generation of each of its applications that run PHP.
    pub fn running_now(&self) -> (Plan, Vec<Arc<Generation>>) {
        let running = self.running();
        (running.plan.clone(), running.apps.clone())
    }

    /// The application that a generation serves; `None` when it was replaced.
    pub fn app_of(&self, generation: &Arc<Generation>) -> Option<App> {
        let running = self.running();
        let i = running.apps.iter().position(|other| Arc::ptr_eq(other, generation))?;
        running.plan.with_php().nth(i).cloned()
    }

    /// Sends new requests of one application to another generation, until the next reload. Returns the generation to drain
    /// and hand to [`Server::retired`]: the old one, or the new one when the old was replaced meanwhile.
    pub fn replace(&self, replacement: Replacement) -> Retired {
        let new = Arc::clone(&replacement.new);
        let (plan, access_logs, apps, replaced) = {
            let mut running = self.running();
            let replaced = running.substitute(replacement);
            (running.plan.clone(), running.access_logs.clone(), running.apps.clone(), replaced)
        };
        if Arc::ptr_eq(&new, &replaced.generation) {
            return replaced;
        }
        let tls = self.tls.lock().clone();
        self.front.swap(settings(&plan, access_logs.server(), tls), self.routes(&plan, &access_logs, &apps));
        fallback::watch(&new, &self.orders);
        replaced
    }

    /// Says again which applications are not fit to be rewound, after a reload that came to nothing: what was done about it was given up for the
    /// reload. Of the others nothing has been said, so they are still watched.
    pub fn watch_again(&self) {
        let running = self.running();
        let unfit = running.apps.iter().filter(|generation| generation.unfit().borrow().is_some());
        unfit.for_each(|generation| fallback::watch(generation, &self.orders));
    }

    /// Tells those that are not fit to be rewound that nothing takes their place any more: what waits in them is told so.
    pub fn stay_unfit(&self) {
        let running = self.running();
        let all = running.apps.iter().chain(running.draining.iter().map(|(generation, _)| generation));
        all.filter(|generation| generation.unfit().borrow().is_some())
            .for_each(|generation| generation.not_replaced());
    }

    /// How long requests may finish when another front has taken this one's place, those of generations that were replaced before included.
    pub fn time_to_finish(&self) -> Duration {
        let (running, now) = (self.running(), Instant::now());
        let draining = running.draining.iter().map(|(_, until)| until.saturating_duration_since(now));
        draining.fold(running.plan.time_to_finish(), Duration::max)
    }

    /// The applications whose requests are to load their classes by themselves.
    pub fn classes_later(&self) -> Vec<String> {
        let running = self.running();
        running
            .fallbacks
            .iter()
            .filter(|(_, fallback)| fallback.stays())
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Forgets a generation that is drained, but for its counters.
    pub fn retired(&self, generation: &Arc<Generation>) {
        let mut running = self.running();
        running.draining.retain(|(other, _)| !Arc::ptr_eq(other, generation));
        // While nobody asks: it is counted once, here or among those that drain.
        let status = generation.status();
        running.former.entry(status.name.clone()).or_default().add(&status);
    }

    /// Notes how a reload went: with which keys that a restart alone changes, or why it did not.
    pub fn reloaded(&self, outcome: &Result<Vec<&'static str>, String>) {
        let at = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let needs_restart = outcome.clone().unwrap_or_default();
        let error = outcome.as_ref().err().cloned();
        self.running().last_reload = Some(LastReload { at, error, needs_restart });
    }

    /// What of the last reload's configuration takes effect with a restart only.
    pub fn needs_restart(&self) -> Vec<&'static str> {
        self.running().last_reload.as_ref().map_or_else(Vec::new, |reload| reload.needs_restart.clone())
    }

    /// Notes that the first boot is over.
    pub fn serving(&self) {
        self.running().stage = Stage::Serving;
    }

    /// Notes that the end has begun. Returns all generations.
    pub fn stopping(&self) -> Vec<Arc<Generation>> {
        let mut running = self.running();
        running.stage = Stage::Draining;
        let draining = running.draining.iter().map(|(generation, _)| generation);
        running.apps.iter().chain(draining).cloned().collect()
    }

    /// Whether PHP of an application runs as this user; `owner` is who started the server.
    pub fn runs_php_as(&self, user: u32, owner: u32) -> bool {
        let runs = |app: &App| app.identity.as_ref().map_or(owner, |identity| identity.uid()) == user;
        self.running().plan.with_php().any(runs)
    }

    /// The master's process, below which all PHP runs.
    pub fn master(&self) -> i32 {
        i32::try_from(self.master).unwrap_or(0)
    }

    /// Hands an order to the main loop.
    pub fn order(&self, order: Order) {
        // An error means that the main loop is over, which is what the asker will see.
        let _ = self.orders.send(order);
    }

    fn statuses(&self) -> Vec<AppStatus> {
        let running = self.running();
        // Counters never fall: what drains has counted as well.
        let mut before = running.former.clone();
        for (generation, _) in &running.draining {
            let status = generation.status();
            before.entry(status.name.clone()).or_default().add(&status);
        }
        let status = |(generation, app): (&Arc<Generation>, &App)| {
            let mut status = generation.status();
            let mut counted = before.get(&status.name).cloned().unwrap_or_default();
            counted.add(&status);
            let Counted { restarts, slow_requests, rewinds } = counted;
            (status.restarts, status.slow_requests) = (restarts, slow_requests);
            if let (Some(rewind), Some(totals)) = (&mut status.rewind, rewinds) {
                rewind.totals = totals;
            }
            AppStatus {
                document_root: generation.spec().document_root.display().to_string(),
                beside: app.beside.clone(),
                fallback: running.fallbacks.get(&status.name).cloned(),
                rewinds,
                status,
            }
        };
        running.apps.iter().zip(running.plan.with_php()).map(status).collect()
    }

    /// Everything, for `hayate status`.
    pub async fn status(&self) -> ServerStatus {
        let apps = weighed(self.statuses()).await;
        let running = self.running();
        let site = |app: &App| StaticSite {
            name: app.spec.name.clone(),
            document_root: app.spec.document_root.display().to_string(),
        };
        let static_sites = running.plan.apps.iter().filter(|app| app.is_static && app.failed.is_none());
        let in_pool = |app: &App| {
            let (name, document_root) = (app.spec.name.clone(), app.spec.document_root.display().to_string());
            Some(InPool { name, document_root, pool: app.pool.clone()? })
        };
        let in_pools = running.plan.apps.iter().filter(|app| app.failed.is_none()).filter_map(in_pool);
        let failed = |app: &App| Some(FailedApp { name: app.spec.name.clone(), why: app.failed.clone()? });
        ServerStatus {
            version: env!("CARGO_PKG_VERSION"),
            pid: self.master,
            front: std::process::id(),
            state: running.stage,
            uptime: self.started.elapsed().as_secs(),
            listen: running.plan.listen_words(),
            connections: self.front.connections(),
            threads: self.front.connections_by_thread(),
            last_reload: running.last_reload.clone(),
            apps,
            static_sites: static_sites.map(site).collect(),
            in_pools: in_pools.collect(),
            failed: running.plan.apps.iter().filter_map(failed).collect(),
            draining: running.draining.len() + usize::from(self.others.load(Relaxed)),
        }
    }

    /// Prometheus' text format.
    pub async fn render_metrics(&self) -> String {
        let statuses = weighed(self.statuses()).await;
        self.metrics.render(&statuses, &self.front.connections_by_thread())
    }

    /// Why not every application can serve; empty when all can.
    pub fn not_ready(&self) -> Vec<String> {
        let running = self.running();
        match running.stage {
            Stage::Starting => return vec!["starting".into()],
            Stage::Draining => return vec!["stopping".into()],
            Stage::Serving => {}
        }
        let reason = |app: &Arc<Generation>| Some(format!("{}: {}", app.spec().name, app.not_ready()?));
        let failed = |app: &App| Some(format!("{}: {}", app.spec.name, app.failed.as_ref()?));
        let failed = running.plan.apps.iter().filter_map(failed);
        failed.chain(running.apps.iter().filter_map(reason)).collect()
    }
}

/// One at a time: the kernel may hold up whoever looks at a process.
static WEIGHS: Semaphore = Semaphore::const_new(1);
/// So long at most, for the one before as well; then nothing is said of memory.
const WEIGHING: Duration = Duration::from_secs(3);

/// With the memory of all processes, which another thread finds out.
async fn weighed(apps: Vec<AppStatus>) -> Vec<AppStatus> {
    let mut weighed = apps.clone();
    let weigh = async {
        let permit = WEIGHS.acquire().await;
        let weigh = move || {
            weighed.iter_mut().for_each(|app| app.status.weigh());
            drop(permit);
            weighed
        };
        // An error is a panic there, which its hook has told.
        tokio::task::spawn_blocking(weigh).await
    };
    match tokio::time::timeout(WEIGHING, weigh).await {
        Ok(Ok(weighed)) => weighed,
        _ => apps,
    }
}
