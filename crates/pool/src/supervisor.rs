//! The task that runs a generation: it hears the zygote, keeps the number of workers right, enforces the limits, and ends it all.
//!
//! [`Supervisor::attend`] does whatever is due and says when it wants to be called again; between two calls the task sleeps. Its
//! timer runs while requests are active, while something is to be restarted, and (slowly) while there are more
//! workers than MIN. Otherwise nothing wakes it but the zygote, an order, or [`crate::Generation::nudge`].

use std::{
    process::ExitStatus,
    sync::{Arc, atomic::Ordering::*},
    time::Duration,
};

use hayate_ring::{Hub, Limits};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    backoff::Backoff,
    channel::{Command, Message},
    generation::{BootError, Health, Shared, Table},
    host::{Host, HostEvent},
    spec::Boot,
    status::Phase,
    worker::{Cause, Change},
};

/// How often the limits are looked at while requests are active; also how long requests wait before a worker is added for
/// them, and half of how long a draining generation must have been quiet.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// What dies younger than this without having served died of something that will most likely happen again.
const INFANCY: Duration = Duration::from_secs(1);

/// What a [`crate::Generation`] tells its supervisor.
pub(crate) enum Order {
    /// Finish what was submitted, until then at most; end every process; say so.
    Drain { until: Instant, done: oneshot::Sender<()> },
}

/// The end of a generation, from the first order on.
struct Ending {
    until: Instant,
    done: Vec<oneshot::Sender<()>>,
    /// Since when no request is active.
    quiet_since: Option<Instant>,
    /// The workers were asked to leave.
    asked: bool,
}

pub(crate) struct Supervisor {
    pub(crate) shared: Arc<Shared>,
    hub: Arc<Hub>,
    orders: mpsc::UnboundedReceiver<Order>,
    health: watch::Sender<Health>,
    pub(crate) host: Option<Host>,
    /// When the host is to be started, while it does not run.
    host_at: Instant,
    host_backoff: Backoff,
    /// No fork before this.
    pub(crate) fork_at: Instant,
    pub(crate) fork_backoff: Backoff,
    /// How many workers are wanted.
    pub(crate) target: u32,
    /// Since when requests wait while no worker sleeps.
    pub(crate) pressed_since: Option<Instant>,
    /// What the zygote said of its boot, until it ends.
    said: Option<Message>,
    /// Workers whose boot failed and whose end is not reported yet.
    unbooted: Vec<u32>,
    ending: Option<Ending>,
}

impl Supervisor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        hub: Arc<Hub>,
        orders: mpsc::UnboundedReceiver<Order>,
        health: watch::Sender<Health>,
    ) -> Supervisor {
        let now = Instant::now();
        let target = *shared.spec.workers.start();
        Supervisor {
            shared,
            hub,
            orders,
            health,
            host: None,
            host_at: now,
            host_backoff: Backoff::default(),
            fork_at: now,
            fork_backoff: Backoff::default(),
            target,
            pressed_since: None,
            said: None,
            unbooted: Vec::new(),
            ending: None,
        }
    }

    pub(crate) async fn run(mut self) {
        let mut owned = true;
        loop {
            let wake = self.attend();
            if self.is_over() {
                break;
            }
            let due = wake.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                order = self.orders.recv(), if owned => match order {
                    Some(Order::Drain { until, done }) => self.end(until, Some(done)),
                    None => {
                        owned = false;
                        self.end(Instant::now(), None);
                    }
                },
                event = next_event(&mut self.host) => match event {
                    HostEvent::Message(message) => self.hear(message),
                    HostEvent::Died(status) => self.zygote_died(status).await,
                },
                () = self.shared.nudged.notified() => {}
                () = sleep_until(due), if wake.is_some() => {}
            }
        }
        self.finish().await;
    }

    /// Does what is due. Returns when to be called again if nothing happens before; `None`: not at all.
    fn attend(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let shared = Arc::clone(&self.shared);
        for (&index, worker) in &mut shared.table().workers {
            worker.observe(&shared.ring.worker_record(index), now);
        }
        let mut wake: Option<Instant> = None;
        let mut call = |at: Instant| wake = Some(wake.map_or(at, |before| before.min(at)));

        // Announce the sleep, then look: a request that comes after the look nudges us.
        shared.asleep.store(true, SeqCst);
        let busy = shared.ring.active() > 0 || shared.ring.waiting() > 0;
        if busy {
            shared.asleep.store(false, SeqCst);
            call(now + TICK);
            self.sweep();
        }
        if let Some(ending) = &mut self.ending {
            call(ending.until.min(now + TICK));
            match (busy, ending.quiet_since) {
                (true, _) => ending.quiet_since = None,
                (false, None) => ending.quiet_since = Some(now),
                // Quiet for a while: a request that had just chosen this generation would have been submitted by now.
                (false, Some(since)) if now - since >= 2 * TICK && !ending.asked => {
                    ending.asked = true;
                    self.dismiss_all();
                }
                _ => {}
            }
        }
        if self.ending.as_ref().is_some_and(|ending| ending.asked) {
            return wake;
        }
        match &self.host {
            None if self.host_at <= now => self.start_host(),
            None => call(self.host_at),
            Some(host) if host.ready => {
                self.grow(now);
                if let Some(at) = self.shrink(now) {
                    call(at);
                }
                if self.fork_at <= now {
                    self.fork_missing(now);
                } else {
                    call(self.fork_at);
                }
            }
            Some(_) => {}
        }
        if self.host.is_none() {
            // It could not even be started.
            wake = Some(wake.map_or(self.host_at, |before| before.min(self.host_at)));
        }
        wake
    }

    fn start_host(&mut self) {
        let shared = Arc::clone(&self.shared);
        let boot = shared.table().boot;
        match Host::start(&shared.spec, boot, &shared.ring, &self.hub) {
            Ok(host) => {
                tracing::debug!(app = shared.spec.name, pid = host.pid, "zygote started");
                shared.table().zygote = Some(host.pid);
                self.said = None;
                self.host = Some(host);
            }
            Err(error) => {
                self.host_at = Instant::now() + self.host_backoff.failed();
                self.boot_failed(error.to_string(), Vec::new());
            }
        }
    }

    /// Ends requests that took too long, and the workers that hold them.
    fn sweep(&mut self) {
        let Shared { spec, ring, .. } = &*self.shared;
        let limits = Limits { queue_timeout: spec.queue_timeout, request_timeout: spec.request_timeout };
        for overdue in ring.sweep(&limits) {
            let mut table = self.shared.table();
            let Some(worker) = table.workers.get_mut(&overdue.worker) else { continue };
            if worker.sentence.is_some() {
                continue; // it is dying
            }
            let (cause, why) = if overdue.timed_out {
                (Cause::RequestTimeout, "ran longer than request_timeout")
            } else {
                (Cause::Protocol, "wrote nonsense into the shared memory")
            };
            tracing::warn!(
                app = spec.name,
                worker = overdue.worker,
                pid = worker.pid,
                "the worker {why}; it is killed"
            );
            worker.sentence = Some(cause);
            if let Some(host) = &self.host {
                let signal = Signal::KILL.as_raw();
                if let Err(error) = host.send(Command::Kill { worker: overdue.worker, signal }) {
                    // Then the next sweep tries again.
                    worker.sentence = None;
                    tracing::error!(app = spec.name, "the zygote does not listen: {error}");
                }
            }
        }
    }

    fn hear(&mut self, message: Message) {
        let app = &self.shared.spec.name;
        match message {
            Message::Ready { php } => {
                tracing::info!(app, php, "booted");
                self.shared.table().php = Some(php);
                if let Some(host) = &mut self.host {
                    host.ready = true;
                }
            }
            Message::BootFailed { worker: None, .. } | Message::PrivateBoot { .. } => {
                self.said = Some(message)
            }
            Message::BootFailed { worker: Some(worker), why } => {
                self.unbooted.push(worker);
                let log = self.host.as_ref().map(|host| host.tail.lines()).unwrap_or_default();
                self.boot_failed(why, log);
            }
            Message::Forked { worker, pid } => {
                {
                    let mut table = self.shared.table();
                    let private = table.boot == Boot::Private;
                    let Some(worker) = table.workers.get_mut(&worker) else { return };
                    worker.pid = pid;
                    // It fails when the worker is dead already; then nobody needs it.
                    worker.process =
                        Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
                    // With a private boot its own message says so, and that may have come before this one.
                    worker.ready |= !private || !self.is_worker_mode();
                }
                self.look_whether_ready();
            }
            Message::WorkerReady { worker } => {
                if let Some(worker) = self.shared.table().workers.get_mut(&worker) {
                    worker.ready = true;
                }
                self.look_whether_ready();
            }
            Message::ForkFailed { worker, why } => {
                self.shared.table().workers.remove(&worker);
                if self.hold_forks(Instant::now()) {
                    let remedy = "raise the limit of processes or of memory, or lower `workers`";
                    self.boot_failed(format!("cannot fork a worker: {why}; {remedy}"), Vec::new());
                }
            }
            Message::Exited { worker, pid, status } => self.worker_exited(worker, pid, status),
        }
    }

    fn is_worker_mode(&self) -> bool {
        matches!(self.shared.spec.mode, crate::Mode::Worker { .. })
    }

    /// Tells the world when enough workers are ready.
    fn look_whether_ready(&mut self) {
        let mut table = self.shared.table();
        let ready = table.workers.values().filter(|worker| worker.ready).count();
        if ready > 0 {
            table.unavailable = None;
            self.shared.failing.store(false, Relaxed);
        }
        if ready >= *self.shared.spec.workers.start() as usize {
            if matches!(table.phase, Phase::Booting | Phase::Failing) {
                table.phase = Phase::Serving;
            }
            drop(table);
            self.health.send_if_modified(|health| {
                let changes = !matches!(health, Health::Ready);
                *health = Health::Ready;
                changes
            });
        }
    }

    fn boot_failed(&mut self, reason: String, log: Vec<String>) {
        let error = BootError { app: self.shared.spec.name.clone(), reason, log };
        tracing::error!(app = error.app, "{error}");
        let others_serve = {
            let mut table = self.shared.table();
            table.boot_error = Some(error.reason.clone());
            let others_serve = table.workers.values().any(|worker| worker.ready);
            if !others_serve {
                table.unavailable = Some(error.reason.clone());
                self.shared.failing.store(true, Relaxed);
            }
            if table.phase == Phase::Booting || (!others_serve && table.phase == Phase::Serving) {
                table.phase = Phase::Failing;
            }
            others_serve
        };
        // Whoever waits for the first boot wants all MIN workers; later the others will do.
        let booting = matches!(*self.health.borrow(), Health::Booting);
        if booting || !others_serve {
            self.health.send_replace(Health::Failing(error));
        }
    }

    /// Holds forks back for a while. Several failures at once are one: `false` when they are held back already.
    pub(crate) fn hold_forks(&mut self, now: Instant) -> bool {
        let first = self.fork_at <= now;
        if first {
            self.fork_at = now + self.fork_backoff.failed();
        }
        first
    }

    fn worker_exited(&mut self, index: u32, pid: i32, status: i32) {
        let Shared { spec, ring, .. } = &*self.shared;
        let now = Instant::now();
        let mut table = self.shared.table();
        if table.workers.get(&index).is_none_or(|worker| worker.pid != pid) {
            tracing::error!(app = spec.name, worker = index, pid, "the zygote reports the end of a stranger");
            return;
        }
        let mut worker = table.workers.remove(&index).expect("looked up above");
        worker.change(Change::Gone);
        let lost = ring.worker_died(index);
        let record = ring.worker_record(index);
        let unbooted = self.unbooted.iter().position(|&w| w == index);
        let cause = worker.cause(status, &record, unbooted.map(|at| self.unbooted.swap_remove(at)).is_some());
        count(&mut table, cause);
        drop(table);
        let (label, served) = (cause.label(), record.requests);
        if cause.is_planned() {
            tracing::debug!(app = spec.name, worker = index, pid, served, "the worker ended: {label}");
        } else {
            tracing::warn!(app = spec.name, worker = index, pid, served, lost, "the worker ended: {label}");
        }
        let useful = record.requests > 0 || lost > 0 || now - worker.forked >= INFANCY;
        if cause.is_planned() || worker.sentence.is_some() || (worker.ready && useful) {
            self.fork_backoff.succeeded();
        } else {
            let delay = self.fork_backoff.failed();
            self.fork_at = now + delay;
            tracing::warn!(
                app = spec.name,
                "it had not served a request; the next one is forked in {delay:?}"
            );
        }
    }

    async fn zygote_died(&mut self, status: ExitStatus) {
        let Some(mut host) = self.host.take() else { return };
        let app = self.shared.spec.name.clone();
        self.shared.table().zygote = None;
        self.settle().await;
        let now = Instant::now();
        match self.said.take() {
            Some(Message::PrivateBoot { why }) => {
                tracing::warn!(app, "each worker boots by itself: {why}");
                self.shared.table().boot = Boot::Private;
                self.host_at = now;
            }
            said if !host.ready => {
                self.host_at = now + self.host_backoff.failed();
                let reason = match said {
                    Some(Message::BootFailed { why, .. }) => why,
                    _ => format!("the host ended before it was ready ({status})"),
                };
                let log = host.last_lines().await;
                self.boot_failed(reason, log);
            }
            _ => {
                self.shared.table().zygote_deaths += 1;
                let delay = if now - host.started >= INFANCY {
                    self.host_backoff.succeeded();
                    Duration::ZERO
                } else {
                    self.host_backoff.failed()
                };
                self.host_at = now + delay;
                tracing::error!(
                    app,
                    pid = host.pid,
                    "the zygote died ({status}), and its workers with it; it is started again"
                );
            }
        }
    }

    /// After the zygote's death: waits until each of its workers is dead (the kernel kills them with it), and settles
    /// what they held.
    async fn settle(&mut self) {
        let workers = std::mem::take(&mut self.shared.table().workers);
        if workers.values().any(|worker| worker.pid == 0) {
            // Perhaps forked, but the zygote died before it could say so: then its end is a matter of being scheduled.
            sleep(2 * TICK).await;
        }
        for (index, mut worker) in workers {
            if let Some(process) = worker.process.take() {
                // It may have no right to, or be too late; the kernel does it as well.
                let _ = pidfd_send_signal(&process, Signal::KILL);
                wait_dead(process, &self.shared.spec.name, worker.pid).await;
            }
            worker.change(Change::Gone);
            self.shared.ring.worker_died(index);
            count(&mut self.shared.table(), worker.sentence.unwrap_or(Cause::ZygoteDied));
        }
        self.unbooted.clear();
    }

    fn end(&mut self, until: Instant, done: Option<oneshot::Sender<()>>) {
        let ending = self.ending.get_or_insert_with(|| Ending {
            until,
            done: Vec::new(),
            quiet_since: None,
            asked: false,
        });
        ending.until = ending.until.min(until);
        ending.done.extend(done);
        self.shared.table().phase = Phase::Draining;
    }

    fn dismiss_all(&mut self) {
        self.target = 0;
        for (&index, worker) in &mut self.shared.table().workers {
            worker.change(Change::Asked);
            self.shared.ring.quit_worker(index);
        }
    }

    fn is_over(&self) -> bool {
        let Some(ending) = &self.ending else { return false };
        let boots = self.host.as_ref().is_none_or(|host| !host.ready);
        let none = self.shared.table().workers.is_empty();
        ending.until <= Instant::now() || (none && (ending.asked || (boots && ending.quiet_since.is_some())))
    }

    async fn finish(mut self) {
        if let Some(mut host) = self.host.take() {
            let polite = host.ready && host.send(Command::Quit).is_ok();
            if !polite || timeout(Duration::from_secs(2), host.died()).await.is_err() {
                host.kill();
                host.died().await;
            }
            self.shared.table().zygote = None;
            self.settle().await;
            host.last_lines().await;
        }
        self.shared.table().phase = Phase::Stopped;
        tracing::debug!(app = self.shared.spec.name, "stopped");
        for done in self.ending.take().into_iter().flat_map(|ending| ending.done) {
            // Whoever asked may have stopped waiting.
            let _ = done.send(());
        }
    }
}

async fn next_event(host: &mut Option<Host>) -> HostEvent {
    match host {
        Some(host) => host.event().await,
        None => std::future::pending().await,
    }
}

fn count(table: &mut Table, cause: Cause) {
    *table.restarts.entry(cause.label()).or_default() += 1;
}

/// Waits for a process that was sent SIGKILL. One that is stuck in the kernel keeps its index: reusing that would let two
/// processes write to the same slots.
async fn wait_dead(process: std::os::fd::OwnedFd, app: &str, pid: i32) {
    // SAFETY: the registration owns the descriptor, and nobody else closes or replaces it.
    let Ok(process) = (unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) }) else {
        return;
    };
    while timeout(Duration::from_secs(5), process.readable()).await.is_err() {
        tracing::error!(app, pid, "a killed worker does not die; waiting for it");
    }
}
