//! The public face of a generation; the work is done by its supervisor's task.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::*},
    },
    time::Duration,
};

use hayate_ring::{Config, Hub, Ring};
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use crate::{
    cgroup,
    launch::Launcher,
    log_limit,
    process::Stat,
    rewind::{Rewind, RewindStatus, RewindTotals, Unfit, tracking_name},
    spec::{Boot, Spec},
    status::{Phase, Status, WorkerStatus},
    supervisor::{Order, Supervisor},
    worker::Worker,
};

/// Why an application did not boot.
#[derive(Debug, Clone, thiserror::Error)]
pub struct BootError {
    /// The application's name.
    pub app: String,
    /// What the host says.
    pub reason: String,
    /// The last lines that host and PHP wrote, oldest first.
    pub log: Vec<String>,
}

impl std::fmt::Display for BootError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Indented, so that no line of what PHP code has chosen stands where ours do.
        write!(f, "application '{}' did not boot: {}", self.app, self.reason.replace('\n', "\n    "))?;
        for line in self.log.iter().filter(|line| !self.reason.contains(line.as_str())) {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

/// Whether a generation can serve.
#[derive(Debug, Clone)]
pub enum Health {
    /// The first boot is under way.
    Booting,
    /// MIN workers have been ready, and no boot has failed since.
    Ready,
    /// The last boot failed.
    Failing(BootError),
}

/// What the supervisor writes and everybody may read.
pub(crate) struct Table {
    pub(crate) phase: Phase,
    pub(crate) boot: Boot,
    pub(crate) php: Option<String>,
    pub(crate) zygote: Option<i32>,
    pub(crate) workers: BTreeMap<u32, Worker>,
    pub(crate) restarts: BTreeMap<String, u64>,
    pub(crate) zygote_deaths: u64,
    pub(crate) slow_requests: u64,
    /// What workers that have ended had rewound.
    pub(crate) ended: RewindTotals,
    /// Requests that workers that have ended had served.
    pub(crate) served: u64,
    pub(crate) boot_error: Option<String>,
    pub(crate) unavailable: Option<String>,
}

impl Table {
    /// [`Generation::lacking`].
    fn lacking(&self) -> Option<&'static str> {
        match self.phase {
            Phase::Booting => return Some("the application still boots"),
            Phase::Draining | Phase::Stopped => return Some("it is being stopped, or replaced"),
            Phase::Serving | Phase::Failing => {}
        }
        let serves = self.workers.values().any(Worker::serves);
        (!serves).then_some("none of its workers runs; they are being started")
    }
}

pub(crate) struct Shared {
    pub(crate) spec: Spec,
    pub(crate) launcher: Arc<dyn Launcher>,
    /// The present one; requests that have another in hand are passed on by it.
    ring: Mutex<Arc<Ring>>,
    /// What hosts of this generation leave to those after them: the names of classes that warm-up requests used.
    pub(crate) classes: OwnedFd,
    table: Mutex<Table>,
    /// `Table::unavailable` is set; spares the requests a lock.
    pub(crate) failing: AtomicBool,
}

impl Shared {
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        // Should something panic while it is held after all: each update of it is whole by itself.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.ring.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_ring(&self, ring: &Arc<Ring>) {
        *self.ring.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(ring);
    }
}

/// One application's zygote, workers and ring, from one configuration. Dropping it without [`Generation::drain`] kills them.
pub struct Generation {
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Order>,
    health: watch::Receiver<Health>,
    unfit: watch::Receiver<Option<Unfit>>,
}

impl Generation {
    /// Makes the ring and starts the supervisor as a task of the current tokio runtime, which must be one that runs on the
    /// process' main thread. A boot that fails is no error here; see [`Generation::booted`].
    ///
    /// `spec.workers` that are empty or outside 1 to 1024 are an error.
    pub fn start(spec: Spec, launcher: Arc<dyn Launcher>, hub: &Arc<Hub>) -> io::Result<Arc<Generation>> {
        if spec.workers.is_empty() || *spec.workers.start() == 0 {
            let what = format!("workers: {:?}", spec.workers);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let ring = Ring::create(&Config::for_workers(*spec.workers.end()), hub)?;
        cgroup::look_for_kills();
        let shared = Arc::new(Shared {
            spec,
            launcher,
            ring: Mutex::new(ring),
            classes: memfd_create("hayate-classes", MemfdFlags::CLOEXEC)?,
            table: Mutex::new(Table {
                phase: Phase::Booting,
                boot: Boot::default(),
                php: None,
                zygote: None,
                workers: BTreeMap::new(),
                restarts: BTreeMap::new(),
                zygote_deaths: 0,
                slow_requests: 0,
                ended: RewindTotals::default(),
                served: 0,
                boot_error: None,
                unavailable: None,
            }),
            failing: AtomicBool::new(false),
        });
        let (orders, receiver) = mpsc::unbounded_channel();
        let (sender, health) = watch::channel(Health::Booting);
        let (declare, unfit) = watch::channel(None);
        let supervisor = Supervisor::new(Arc::clone(&shared), Arc::clone(hub), receiver, sender, declare);
        tokio::spawn(supervisor.supervise());
        Ok(Arc::new(Generation { shared, orders, health, unfit }))
    }

    /// Waits until MIN workers are ready, or the first boot has failed (it goes on being retried).
    pub async fn booted(&self) -> Result<(), BootError> {
        let mut health = self.health.clone();
        match health.wait_for(|health| !matches!(health, Health::Booting)).await {
            Ok(health) => match &*health {
                Health::Failing(error) => Err(error.clone()),
                _ => Ok(()),
            },
            Err(_) => Err(BootError {
                app: self.shared.spec.name.clone(),
                reason: "it was stopped before it had booted".into(),
                log: Vec::new(),
            }),
        }
    }

    /// Follows whether it can serve.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Follows whether its workers can be rewound; what is said once is not taken back.
    pub fn unfit(&self) -> watch::Receiver<Option<Unfit>> {
        self.unfit.clone()
    }

    /// Another one that was to take this one's place, booted anew from the same, does not boot.
    pub fn not_renewed(&self, why: &str) {
        self.shared.table().boot_error =
            Some(format!("it was to be booted anew, which is tried again and again: {why}"));
    }

    /// Nothing can take the place of this one, which is not fit: it tries its own boot again, if it has none.
    pub fn not_replaced(&self) {
        // An error means that the supervisor has ended.
        let _ = self.orders.send(Order::NotReplaced);
    }

    /// What the generation was made from.
    pub fn spec(&self) -> &Spec {
        &self.shared.spec
    }

    /// Who starts its zygotes.
    pub fn launcher(&self) -> &Arc<dyn Launcher> {
        &self.shared.launcher
    }

    /// Where requests go. It may be kept: a ring whose place another one has taken passes requests on.
    pub fn ring(&self) -> Arc<Ring> {
        self.shared.ring()
    }

    /// Passes requests on that still come here, for example with a body that was being gathered, to the generation that has taken
    /// this one's place. What was submitted is served here, as long as [`Generation::drain`] allows; what no worker has taken by then
    /// goes there as well.
    pub fn succeeded_by(&self, other: &Generation) {
        self.shared.ring().hand_over(Some(&other.shared.ring()));
    }

    /// Why no request can be served now, if so. Cheap while there is no reason.
    pub fn unavailable(&self) -> Option<String> {
        if !self.shared.failing.load(Relaxed) {
            return None;
        }
        self.shared.table().unavailable.clone()
    }

    /// Why no worker takes requests yet, if that is so. It asks neither the kernel nor the workers.
    pub fn lacking(&self) -> Option<&'static str> {
        self.shared.table().lacking()
    }

    /// Why it is not as it should be: no request can be served now, or only those that its last workers can take. For readiness; a request
    /// may still be worth a wait, which [`Generation::unavailable`] says.
    pub fn not_ready(&self) -> Option<String> {
        // The supervisor asks the zygote, if it has not lately.
        self.shared.ring().nudge();
        if let Some(why) = self.unavailable() {
            return Some(why);
        }
        let table = self.shared.table();
        if let Some(lacking) = table.lacking() {
            return Some(lacking.into());
        }
        let mut serving = table.workers.values().filter(|worker| worker.serves());
        // Where /proc is hidden they count as running; requests that wait for them show it then.
        let stopped = |worker: &Worker| Stat::of(worker.pid).is_some_and(|stat| stat.is_stopped());
        serving.all(stopped).then(|| "all of its workers are stopped".into())
    }

    /// Keeps no more workers from now on than requests need, until [`Generation::drain`]: what serves is another front's. Requests that still come
    /// are served, each by a worker that is forked for it if none idles.
    pub fn dwindle(&self) {
        // An error means that the supervisor has ended.
        let _ = self.orders.send(Order::Dwindle);
    }

    /// Lets the requests that were submitted finish, for `deadline` at most, then ends every process. To be called when no
    /// request comes any more.
    pub async fn drain(&self, deadline: Duration) {
        let (done, ended) = oneshot::channel();
        // An error means that the supervisor has ended already.
        let _ = self.orders.send(Order::Drain { until: Instant::now() + deadline, done });
        let _ = ended.await;
    }

    /// Ends every process now; requests in flight get [`hayate_ring::Failure::WorkerDied`].
    pub async fn kill(&self) {
        self.drain(Duration::ZERO).await;
    }

    /// The present state, but for what [`Status::weigh`] finds out.
    pub fn status(&self) -> Status {
        cgroup::look_for_kills();
        let (Shared { spec, .. }, ring) = (&*self.shared, self.shared.ring());
        ring.nudge();
        let now = Instant::now();
        let mut table = self.shared.table();
        let mut workers = Vec::with_capacity(table.workers.len());
        let mut rewind =
            RewindStatus { rewind: spec.rewind, tracking: None, hot_pages: 0, warm: 0, totals: table.ended };
        for (&index, worker) in &mut table.workers {
            let record = ring.worker_record(index);
            worker.observe(&record, now);
            rewind.tracking = tracking_name(record.tracking).or(rewind.tracking);
            rewind.hot_pages = rewind.hot_pages.max(record.hot_pages);
            rewind.warm = rewind.warm.saturating_add(u64::from(record.warm));
            rewind.totals.add(&record);
            if worker.pid == 0 {
                continue; // being forked
            }
            workers.push(WorkerStatus {
                index,
                pid: worker.pid,
                state: worker.state,
                stopped: Stat::of(worker.pid).is_some_and(|stat| stat.is_stopped()),
                requests: record.requests,
                memory: 0,
                age: now.duration_since(worker.forked).as_secs(),
            });
        }
        Status {
            name: spec.name.clone(),
            state: table.phase,
            mode: spec.mode.name(),
            boot: if table.boot.private.is_some() { "private" } else { "shared" },
            private_boot: table.boot.private.clone(),
            cold_boot: table.boot.cold.clone(),
            boot_remark: table.boot.remark.clone(),
            rewind: (spec.rewind != Rewind::Off).then_some(rewind),
            php: table.php.clone(),
            zygote: table.zygote,
            workers_min: *spec.workers.start(),
            workers_max: *spec.workers.end(),
            workers,
            restarts: table.restarts.clone(),
            zygote_deaths: table.zygote_deaths,
            slow_requests: table.slow_requests,
            boot_error: table.boot_error.clone(),
            unavailable: table.unavailable.clone(),
            queue: ring.queued() + ring.waiting(),
            active: ring.active() + ring.waiting(),
            memory: 0,
            log_dropped: log_limit::dropped(&spec.name),
        }
    }
}
