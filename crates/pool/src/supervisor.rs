//! The task that runs a generation: it hears the zygote, keeps the number of workers right, enforces the limits, and ends it all.
//!
//! [`Supervisor::attend`] does whatever is due and says when it wants to be called again; between two calls the task sleeps. Its
//! timer runs while requests are active, while something is to be restarted, and (slowly) while there are more
//! workers than MIN. Otherwise nothing wakes it but the zygote, an order, or [`crate::Generation::nudge`].

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use hayate_panics::caught;
use hayate_ring::{Fault, Hub, Limits, Ring, Slow};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    backoff::Backoff,
    cgroup,
    channel::{Command, Message},
    deaths::DYING,
    generation::{Health, Shared},
    host::{Host, HostEvent},
    process::{Found, Process},
    releases,
    reminder::Reminder,
    renewal::LONG,
    rewind::{Fitness, Unfit},
    slow::Told,
    status::Phase,
    watchdog::Watchdog,
    worker::{Cause, Worker},
};

/// How often the limits are looked at while requests are active; also how long requests wait before a worker is added for
/// them, and half of how long a draining generation must have been quiet.
pub(crate) const TICK: Duration = Duration::from_millis(50);
/// The same where requests have workers and nothing more is to come, as of a slow client after a reload. The ring wants to be looked at once a second.
const CALM: Duration = Duration::from_millis(500);
/// From when on: most requests are over by then, and what waits for their end is not to be held up.
const HASTE: Duration = Duration::from_secs(5);

/// How long a worker that was asked to leave and holds no request may take: it closes its persistent connections.
const LEAVING: Duration = Duration::from_secs(30);
/// How long PHP has to end a request that has run for too long.
const UNWINDING: Duration = Duration::from_secs(1);

/// What a [`crate::Generation`] tells its supervisor.
pub(crate) enum Order {
    /// Finish what was submitted, until then at most; end every process; say so.
    Drain { until: Instant, done: oneshot::Sender<()> },
    /// Keep no more workers than requests need: few more will come.
    Dwindle,
    /// Nothing takes this generation's place: boot again, if that waits for it.
    NotReplaced,
}

/// The end of a generation, from the first order on.
struct Ending {
    until: Instant,
    done: Vec<oneshot::Sender<()>>,
    /// Since when no request is active.
    quiet_since: Option<Instant>,
    /// The workers were asked to leave.
    asked: bool,
    /// Nothing was to finish.
    at_once: bool,
}

pub(crate) struct Supervisor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) hub: Arc<Hub>,
    orders: mpsc::UnboundedReceiver<Order>,
    pub(crate) health: watch::Sender<Health>,
    pub(crate) unfit: watch::Sender<Option<Unfit>>,
    pub(crate) fitness: Fitness,
    /// Of what has been said about workers that could not be rewound.
    pub(crate) reminder: Reminder,
    pub(crate) host: Option<Host>,
    /// When the host is to be started, while it does not run.
    pub(crate) host_at: Instant,
    pub(crate) host_backoff: Backoff,
    /// No fork before this.
    pub(crate) fork_at: Instant,
    pub(crate) fork_backoff: Backoff,
    /// How many workers are wanted.
    pub(crate) target: u32,
    /// Since when requests wait while no worker sleeps.
    pub(crate) pressed_since: Option<Instant>,
    /// What the zygote said of its boot, until it ends.
    pub(crate) said: Option<Message>,
    /// When a boot was declined that is to be done once more as it was, until a worker is ready.
    pub(crate) declined: Option<Instant>,
    /// Workers whose boot failed and whose end is not reported yet.
    pub(crate) unbooted: BTreeSet<u32>,
    pub(crate) watchdog: Watchdog,
    /// A worker of the present zygote has been ready.
    pub(crate) came_up: bool,
    /// Process ids of workers whose end was seen before the zygote has told it.
    pub(crate) unreported: HashSet<i32>,
    /// Of boots after the shared memory had been overwritten, or the supervision had met a fault of its own.
    pub(crate) memory_backoff: Backoff,
    pub(crate) ring_since: Instant,
    /// The present ring must not be served by another zygote.
    pub(crate) ring_is_over: bool,
    /// Requests that wait for a worker are failed: none will come soon. See [`Supervisor::cannot_serve`].
    pub(crate) turns_away: bool,
    /// When workers were last looked at that do not begin.
    pub(crate) looked_at: Instant,
    /// What the last sweep found wrong with the memory.
    broken: Option<&'static str>,
    /// Slow requests that the log was told of.
    told: Told,
    /// Of these, those whose zygote has not said yet that it has looked: by ticket, the worker and how long it had run.
    untold: BTreeMap<u64, (u32, Duration)>,
    /// Since when there are no more workers than requests need.
    pub(crate) dwindles: Option<Instant>,
    ending: Option<Ending>,
}

impl Supervisor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        hub: Arc<Hub>,
        orders: mpsc::UnboundedReceiver<Order>,
        health: watch::Sender<Health>,
        unfit: watch::Sender<Option<Unfit>>,
    ) -> Supervisor {
        let now = Instant::now();
        let target = *shared.spec.workers.start();
        Supervisor {
            shared,
            hub,
            orders,
            health,
            unfit,
            fitness: Fitness::default(),
            reminder: Reminder::default(),
            host: None,
            host_at: now,
            host_backoff: Backoff::default(),
            fork_at: now,
            fork_backoff: Backoff::default(),
            target,
            pressed_since: None,
            said: None,
            declined: None,
            unbooted: BTreeSet::new(),
            watchdog: Watchdog::default(),
            came_up: false,
            unreported: HashSet::new(),
            untold: BTreeMap::new(),
            memory_backoff: Backoff::default(),
            ring_since: now,
            ring_is_over: false,
            turns_away: false,
            looked_at: now,
            broken: None,
            told: Told::new(Instant::now()),
            dwindles: None,
            ending: None,
        }
    }

    /// The task. A panic costs the application a boot: another one is made, as if the memory could not be trusted any more.
    pub(crate) async fn supervise(mut self) {
        while caught(self.run()).await.is_err() {
            // Each attempt has less left to do.
            while caught(self.recover()).await.is_err() {
                sleep(LONG).await;
            }
        }
    }

    async fn run(&mut self) {
        let mut owned = true;
        loop {
            // Whatever happens without a pause, others have their turn.
            tokio::task::consume_budget().await;
            let wake = self.attend();
            if let Some(why) = self.broken.take() {
                self.condemn(why).await;
                continue;
            }
            if self.is_over() {
                break;
            }
            let ring = self.shared.ring();
            let due = wake.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                order = self.orders.recv(), if owned => match order {
                    Some(Order::Drain { until, done }) => self.end(until, Some(done)),
                    Some(Order::Dwindle) => _ = self.dwindles.get_or_insert_with(Instant::now),
                    Some(Order::NotReplaced) => self.not_replaced(),
                    None => {
                        owned = false;
                        self.end(Instant::now(), None);
                    }
                },
                event = next_event(&mut self.host) => match event {
                    HostEvent::Message(message) => self.hear(message),
                    HostEvent::Babbles => self.distrust("says more than there is to say"),
                    HostEvent::Started => self.zygote_started(),
                    HostEvent::Died(status, why) => self.zygote_died(status, why).await,
                },
                () = ring.nudged() => {}
                () = sleep_until(due), if wake.is_some() => {}
            }
        }
        self.finish().await;
    }

    /// Does what is due. Returns when to be called again if nothing happens before; `None`: not at all.
    fn attend(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let shared = Arc::clone(&self.shared);
        let ring = shared.ring();
        for (&index, worker) in &mut shared.table().workers {
            worker.observe(&ring.worker_record(index), now);
        }
        let mut wake: Option<Instant> = None;
        let mut call = |at: Instant| wake = Some(wake.map_or(at, |before| before.min(at)));

        // Announce the sleep, then look: a request that comes after the look nudges us.
        ring.rest();
        let busy = ring.active() > 0 || ring.waiting() > 0;
        if busy && self.is_calm(&ring, now) {
            // What is submitted nudges.
            call(now + CALM);
        } else if busy {
            ring.attend();
            call(now + TICK);
        }
        if busy {
            self.sweep(&ring);
            if self.broken.is_some() {
                return None;
            }
            if self.turns_away {
                ring.turn_away();
            }
        }
        if let Some(at) = self.look_up_unseen(now) {
            call(at);
        }
        if let Some(at) = self.see_deaths(now) {
            call(at);
        }
        if let Some(at) = self.end_those_that_do_not_begin(now) {
            call(at);
        }
        if let Some(at) = self.end_unwinding(&ring, now) {
            call(at);
        }
        if let Some(at) = self.end_lingering(&ring, now) {
            call(at);
        }
        if let Some(at) = self.watch_zygote(now) {
            call(at);
        }
        if let Some(ending) = &mut self.ending {
            call(if busy { ending.until } else { ending.until.min(now + TICK) });
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
                let look = if self.dwindles.is_some() { self.dwindle(now) } else { self.shrink(now) };
                if let Some(at) = look {
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
        if let Some(at) = self.end_late_boots(now) {
            wake = Some(wake.map_or(at, |before| before.min(at)));
        }
        if self.host.is_none() {
            // It could not even be started.
            wake = Some(wake.map_or(self.host_at, |before| before.min(self.host_at)));
        }
        wake
    }

    /// Whether nothing is lost by looking less often: this has gone on for a while, each request has a worker, and nobody is asked what a slow one
    /// does.
    fn is_calm(&self, ring: &Ring, now: Instant) -> bool {
        self.dwindles.is_some_and(|since| now - since >= HASTE)
            && ring.queued() == 0
            && ring.waiting() == 0
            && self.untold.is_empty()
    }

    /// Ends requests that took too long, and the workers that hold them.
    fn sweep(&mut self, ring: &Ring) {
        let shared = Arc::clone(&self.shared);
        let spec = &shared.spec;
        let limits = Limits {
            queue_timeout: spec.queue_timeout,
            request_timeout: spec.request_timeout,
            // Without one: those that come near their timeout.
            slow_request: spec.slow_request.or(Some(Duration::MAX)),
        };
        let swept = ring.sweep(&limits);
        self.broken = swept.broken;
        self.shared.table().slow_requests += swept.newly_slow;
        for Slow { worker, ran, ticket } in swept.slow {
            let Some(left_out) = self.told.admits(Instant::now()) else {
                ring.told_of(worker, ticket as u32);
                continue;
            };
            if left_out > 0 {
                tracing::warn!(
                    app = spec.name,
                    "{left_out} more slow requests are not told of one by one, since there are so many"
                );
            }
            let trace = Command::Trace { worker, ran, ticket };
            let silent = self.watchdog.lost.is_some();
            if silent || self.host.as_ref().is_some_and(|host| host.send(trace).is_err()) {
                self.tell_without_calls(ticket, worker, ran);
            } else {
                self.untold.insert(ticket, (worker, ran));
            }
        }
        for overdue in swept.overdue {
            let (cause, why) = match overdue.fault {
                Fault::RequestTimeout => (Cause::RequestTimeout, "ran longer than request_timeout"),
                Fault::Protocol => (Cause::Protocol, "wrote nonsense into the shared memory"),
                Fault::Still => {
                    (Cause::Still, "does not move although there is work for it (is it stopped?)")
                }
            };
            let first = match cause {
                Cause::RequestTimeout => self.unwind(ring, overdue.worker, overdue.ticket),
                _ => self.sentence(overdue.worker, cause),
            };
            if first {
                let worker = overdue.worker;
                let pid = self.shared.table().workers.get(&worker).map(|worker| worker.pid);
                tracing::warn!(app = self.shared.spec.name, worker, pid, "the worker {why}; it is ended");
            }
        }
    }

    /// Has PHP end a request, and then the worker, which is killed if that takes long: what it holds for others, as a lock in APCu's
    /// memory, it can give back. `false`: either is ended already.
    fn unwind(&self, ring: &Ring, index: u32, ticket: u64) -> bool {
        if !ring.runs(index, ticket) {
            return false;
        }
        let pid = {
            let mut table = self.shared.table();
            let Some(worker) = table.workers.get_mut(&index) else { return false };
            if worker.sentence.is_some() {
                return false;
            }
            worker.sentence = Some(Cause::RequestTimeout);
            worker.unwinds = Some((Instant::now() + UNWINDING, ticket));
            worker.pid
        };
        ring.quit_worker(index);
        let unwind = Command::Unwind { worker: index, pid, ticket };
        if self.host.as_ref().is_none_or(|host| host.send(unwind).is_err()) {
            self.sentence(index, Cause::RequestTimeout);
        }
        true
    }

    /// Kills those that had time enough to end their request. Returns when the next one will have had.
    fn end_unwinding(&self, ring: &Ring, now: Instant) -> Option<Instant> {
        let mut next = None::<Instant>;
        for (&index, worker) in &mut self.shared.table().workers {
            match worker.unwinds {
                Some((at, ticket)) if at <= now => {
                    worker.unwinds = None;
                    if ring.runs(index, ticket) {
                        worker.process.iter().for_each(Process::kill);
                    } else {
                        // It had taken another request before it was asked to leave, which has its own time.
                        (worker.sentence, worker.asked_at) = (None, Some(now));
                    }
                }
                Some((at, _)) => next = Some(next.map_or(at, |before| before.min(at))),
                None => {}
            }
        }
        next
    }

    /// The zygote was asked what slow requests do, and will not say it.
    pub(crate) fn tell_what_is_untold(&mut self) {
        for (ticket, (worker, ran)) in std::mem::take(&mut self.untold) {
            self.tell_without_calls(ticket, worker, ran);
        }
    }

    fn tell_without_calls(&self, ticket: u64, worker: u32, ran: Duration) {
        tracing::warn!(
            app = self.shared.spec.name,
            worker,
            "slow request: it had run for {:.1} s; what it was doing is not known, since the zygote does not answer",
            ran.as_secs_f64()
        );
        self.shared.ring().told_of(worker, ticket as u32);
    }

    /// Ends workers that were asked to leave and hold no request, and do not leave. Returns when to look again, while there are any.
    fn end_lingering(&self, ring: &Ring, now: Instant) -> Option<Instant> {
        let asked = |worker: &Worker| worker.sentence.is_none() && worker.asked_at.is_some();
        let (mut late, mut next) = (Vec::new(), None::<Instant>);
        for (&index, worker) in self.shared.table().workers.iter_mut().filter(|(_, worker)| asked(worker)) {
            if ring.holds(index) {
                // Its own time begins when it is done.
                worker.asked_at = Some(now);
            }
            let due = worker.asked_at.unwrap_or(now) + LEAVING;
            if due <= now {
                late.push((index, worker.pid));
            } else {
                next = Some(next.map_or(due, |before| before.min(due)));
            }
        }
        for (index, pid) in late {
            let app = &self.shared.spec.name;
            tracing::warn!(
                app,
                worker = index,
                pid,
                "the worker was asked to leave and does not; it is killed"
            );
            self.sentence(index, Cause::Lingered);
        }
        next
    }

    fn hear(&mut self, message: Message) {
        let app = &self.shared.spec.name;
        match message {
            Message::Ready { php } => {
                tracing::info!(app, php, "booted");
                for warning in releases::warnings(&php, SystemTime::now()) {
                    tracing::warn!(app, "{warning}");
                }
                self.shared.table().php = Some(php);
                if let Some(host) = &mut self.host {
                    host.ready = true;
                }
            }
            Message::BootFailed { worker: None, .. } | Message::BootAgain { worker: None, .. } => {
                self.said = Some(message)
            }
            Message::BootAgain { worker: Some(worker), how, why } if self.serves_beside(worker) => {
                self.decline_beside(worker, how, why);
            }
            Message::BootAgain { worker: Some(_), .. } => self.boot_again(message),
            Message::BootFailed { worker: Some(worker), why } => {
                if !self.shared.table().workers.contains_key(&worker) {
                    return self.distrust("speaks of a worker that there is not");
                }
                self.unbooted.insert(worker);
                let log = self.host.as_ref().map(|host| host.tail.lines()).unwrap_or_default();
                self.boot_failed(why, log);
            }
            Message::Forked { worker, pid } => {
                if !self.forked(worker, pid) {
                    return self.distrust("names a process that is no worker of its own");
                }
                self.look_whether_ready();
            }
            Message::Pong { number } => self.watchdog.heard(Some(number)),
            Message::Traced { worker, ticket } => {
                self.untold.retain(|asked, (of, _)| *of != worker || *asked as u32 != ticket);
                self.shared.ring().told_of(worker, ticket);
            }
            Message::Remark { why } => {
                tracing::error!(app, "{why}");
                self.shared.table().boot.remark = Some(why);
            }
            Message::WorkerReady { worker } => {
                self.declined = None;
                if let Some(worker) = self.shared.table().workers.get_mut(&worker) {
                    worker.ready = true;
                    worker.ready_at = Instant::now();
                }
                self.look_whether_ready();
            }
            Message::ForkFailed { worker, why } => {
                let known = self.shared.table().workers.get(&worker).map(|worker| worker.pid);
                if known != Some(0) {
                    return self.distrust("speaks of a fork that nobody asked for");
                }
                self.shared.table().workers.remove(&worker);
                self.shared.ring().worker_died(worker);
                if self.hold_forks(Instant::now()) {
                    self.no_worker_forked(format!("cannot fork a worker: {}", cgroup::not_forked(why)));
                }
            }
            Message::Exited { worker, pid, status } => self.worker_exited(worker, pid, status),
        }
    }

    /// Those that serve go on, and it is tried again.
    fn no_worker_forked(&mut self, why: String) {
        let serving = self.shared.table().workers.values().filter(|worker| worker.ready).count();
        if self.is_booting() || serving == 0 {
            return self.boot_failed(why, Vec::new());
        }
        tracing::error!(app = self.shared.spec.name, "{why}; {serving} workers serve");
        self.shared.table().boot_error = Some(why);
    }

    /// Takes a new worker in. `false` when that cannot be: what the zygote names, the pool would kill.
    fn forked(&mut self, index: u32, pid: i32) -> bool {
        let Some(host) = &self.host else { return true };
        let mut table = self.shared.table();
        let Some(worker) = table.workers.get_mut(&index).filter(|worker| worker.pid == 0) else {
            return false;
        };
        match Process::find(pid, host.pid, host.hold()) {
            Found::Child(process) => worker.take(process),
            // Its end is the zygote's next message.
            Found::Gone => {}
            Found::Later => worker.unseen = true,
            Found::Stranger => return false,
            Found::Hidden => {
                drop(table);
                self.boot_failed(
                    "the kernel does not say whose process a worker is: /proc hides the processes of others (hidepid), and before \
                     Linux 6.13 there is no other way to ask. Mount /proc with hidepid=0, or with gid= a group of the front's user"
                        .into(),
                    Vec::new(),
                );
                self.distrust("started a process that the server cannot look after");
                return true;
            }
        }
        worker.pid = pid;
        // In worker mode its own message says so, and that may have come before this one.
        worker.ready |= !self.is_worker_mode();
        true
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    fn zygote_started(&self) {
        let pid = self.host.as_ref().map(|host| host.pid);
        tracing::debug!(app = self.shared.spec.name, pid, "zygote started");
        self.shared.table().zygote = pid;
    }

    pub(crate) fn is_worker_mode(&self) -> bool {
        matches!(self.shared.spec.mode, crate::Mode::Worker { .. })
    }

    fn end(&mut self, until: Instant, done: Option<oneshot::Sender<()>>) {
        let ending = self.ending.get_or_insert_with(|| Ending {
            until,
            done: Vec::new(),
            quiet_since: None,
            asked: false,
            at_once: false,
        });
        ending.at_once |= until <= Instant::now();
        ending.until = ending.until.min(until);
        ending.done.extend(done);
        self.dwindles.get_or_insert_with(Instant::now);
        // Unless another generation takes them, requests are refused from now on.
        self.shared.ring().hand_over(None);
        self.shared.table().phase = Phase::Draining;
    }

    fn dismiss_all(&mut self) {
        self.target = 0;
        let (ring, now) = (self.shared.ring(), Instant::now());
        for (&index, worker) in &mut self.shared.table().workers {
            worker.ask(now);
            ring.quit_worker(index);
        }
    }

    fn is_over(&self) -> bool {
        let Some(ending) = &self.ending else { return false };
        let boots = self.host.as_ref().is_none_or(|host| !host.ready);
        let none = self.shared.table().workers.is_empty();
        // What waits for a boot here can be served by a successor at once.
        let moves = || {
            let ring = self.shared.ring();
            ring.successor().is_some() && ring.can_be_moved()
        };
        let left_over = || ending.quiet_since.is_some() || moves();
        ending.until <= Instant::now() || (none && (ending.asked || (boots && left_over())))
    }

    async fn finish(&mut self) {
        let cut = self.shared.ring().active();
        let late = |ending: &Ending| !ending.at_once && ending.until <= Instant::now();
        if cut > 0 && self.ending.as_ref().is_some_and(late) {
            tracing::warn!(
                app = self.shared.spec.name,
                "{cut} requests that had not ended when the time to finish was over are cut off (drain_timeout)"
            );
        }
        if let Some(mut host) = self.host.take() {
            let polite = host.ready && host.send(Command::Quit).is_ok();
            if !polite || timeout(Duration::from_secs(2), host.died()).await.is_err() {
                host.kill();
                // One that is stuck in the kernel dies when it comes back.
                let _ = timeout(DYING, host.died()).await;
            }
            self.shared.table().zygote = None;
            let ring = self.shared.ring();
            self.settle(&ring).await;
            host.last_lines().await;
        }
        self.shared.ring().end();
        self.shared.table().phase = Phase::Stopped;
        tracing::debug!(app = self.shared.spec.name, "stopped");
        for done in self.ending.take().into_iter().flat_map(|ending| ending.done) {
            // Whoever asked may have stopped waiting.
            let _ = done.send(());
        }
    }
}

impl Drop for Supervisor {
    /// However it ends, nobody waits in its ring for ever.
    fn drop(&mut self) {
        self.shared.ring().end();
    }
}

async fn next_event(host: &mut Option<Host>) -> HostEvent {
    match host {
        Some(host) => host.event().await,
        None => std::future::pending().await,
    }
}
