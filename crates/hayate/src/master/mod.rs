//! The master: holds the sockets, starts the front and the zygotes under their users, and starts again what dies.
//!
//! It promises: it outlives every other process of the server, and all of them end with it; a front that dies costs the requests of that
//! moment and no connection is refused; it waits for nobody. It speaks no HTTP, runs no PHP, and parses no configuration (`load.rs` does
//! that in a process of its own). What it starts is fixed by the plan: the front can only name an application of one.
//!
//! ```text
//!  Loading ──► Booting ──► Serving ◄──► Restarting
//!     │           │           │             │
//!     └───────────┴───────────┴──► Ending ◄─┘
//! ```
//!
//! An upgrade (`handover.rs`) replaces the master by exec, in the same process; then a front of the new program boots beside the old one, which
//! ends when the new one serves, or goes on when it does not.
//!
//! `wire.rs` has the messages between master and front, `client.rs` the front's end of them, `sockets.rs` what is kept for the whole life,
//! `activation.rs` what a service manager hands in, `children.rs` the processes.

mod activation;
mod children;
mod client;
mod handover;
mod keys;
pub mod load;
mod pulse;
mod sockets;
pub mod wire;

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use hayate_certificates::Pair;
use hayate_front::ListenAddr;
use hayate_pool::Files;
use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;

pub use self::{
    children::WIRE,
    client::{Beginning, Loaded, Master as Client, begin},
    sockets::default_control,
};
use self::{
    children::{Front, Own, Zygotes},
    handover::State,
    keys::Keys,
    load::{Loading, Purpose},
    sockets::Sockets,
    wire::{Notice, ToFront, ToMaster},
};
use crate::{logging, plan::Plan};

/// This program, also when its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// Plans that are remembered: a generation that still drains may have to start its zygote again.
const PLANS: usize = 16;
/// How long after the drain's end a front may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(10);
/// The same after a second signal.
const GRACE_AT_ONCE: Duration = Duration::from_secs(5);
/// Pauses before a front is started again grow from the first to the second as long as fronts die young.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(30));
/// A front that lived this long did not die of its start.
const GROWN_UP: Duration = Duration::from_secs(60);

/// `hayate serve`: runs until the end. `args` are those after `serve`.
pub fn run(args: Vec<OsString>) -> ExitCode {
    match Master::new(args).and_then(Master::run) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("hayate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A front that boots to take the place of the one that serves.
struct Next {
    front: Front,
    plan: u64,
    /// Who wants to know, of the one that serves.
    request: u64,
}

struct Master {
    /// How this program was called.
    name: OsString,
    /// Where it is installed.
    program: PathBuf,
    args: Vec<OsString>,
    signals: SignalFd,
    loading: Option<Loading>,
    plans: BTreeMap<u64, Plan>,
    last_plan: u64,
    /// The plan that is served.
    adopted: u64,
    sockets: Sockets,
    /// For the first plan.
    handed_in: HashMap<ListenAddr, OwnedFd>,
    front: Option<Front>,
    last_front: u64,
    next: Option<Next>,
    /// Fronts that were replaced and still finish requests, and when they are killed.
    retired: Vec<(Front, Instant)>,
    zygotes: Zygotes,
    /// The files of the served plan's certificates; once there are some.
    keys: Option<Keys>,
    /// A front has served.
    served: bool,
    /// When a front is to be started again.
    restart_at: Option<Instant>,
    pause: Duration,
    /// The end has begun; then the front is killed.
    end_by: Option<Instant>,
    /// The exit code, once it is known.
    over: Option<u8>,
}

impl Master {
    fn new(args: Vec<OsString>) -> Result<Master> {
        // Started by an ordinary user, it is PHP's as well.
        crate::privileges::keep_to_itself().context("prctl")?;
        let mut wanted = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGCHLD] {
            wanted.add(signal);
        }
        // Before any thread is started, so that all leave them to the descriptor. What is started has none blocked.
        wanted.thread_block().context("signals")?;
        let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .context("signals")?;
        // What scripts leave running stays below this process, so that it can be told whom it belongs to.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .context("cannot become a reaper")?;
        let name = std::env::args_os().next().unwrap_or_else(|| "hayate".into());
        let mut master = Master {
            program: installed(&name),
            name,
            args,
            signals,
            loading: None,
            plans: BTreeMap::new(),
            last_plan: 0,
            adopted: 0,
            sockets: Sockets::default(),
            handed_in: HashMap::new(),
            front: None,
            last_front: 0,
            next: None,
            retired: Vec::new(),
            zygotes: Zygotes::default(),
            keys: None,
            served: false,
            restart_at: None,
            pause: PAUSES.0,
            end_by: None,
            over: None,
        };
        match handover::take()? {
            Some(state) => {
                let purpose = master.resume(state)?;
                master.load(purpose);
            }
            None => {
                master.handed_in = activation::take()?;
                let loading = Loading::start(PROGRAM.as_ref(), &master.args, Purpose::Start);
                master.loading =
                    Some(loading.context("cannot start the process that reads the configuration")?);
            }
        }
        Ok(master)
    }

    /// Goes on where another program has left off, in this process.
    fn resume(&mut self, state: State) -> Result<Purpose> {
        logging::init(state.plan.log_level, state.plan.log_format)
            .context("cannot start the log's thread")?;
        let (number, pid, wire) = state.front;
        self.sockets = state.sockets.adopt(handover::own)?;
        self.plans.insert(state.adopted, state.plan);
        (self.adopted, self.last_plan) = (state.adopted, state.last_plan);
        let mut front = Front::of(number, Own::of(pid), handover::own(wire)?);
        front.serves = true;
        self.front = Some(front);
        for ((number, pid, wire), left) in state.retired {
            let front = Front::of(number, Own::of(pid), handover::own(wire)?);
            self.retired.push((front, Instant::now().checked_add(left).unwrap_or_else(Instant::now)));
        }
        self.last_front = number;
        self.zygotes = Zygotes::of(state.zygotes);
        self.served = true;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "the master is this program now");
        Ok(Purpose::Successor(state.request))
    }

    fn run(mut self) -> Result<ExitCode> {
        loop {
            // Fronts that were replaced have their own time to finish in.
            if let Some(code) = self.over.filter(|_| self.retired.is_empty()) {
                self.finish();
                return Ok(ExitCode::from(code));
            }
            self.wait();
            while let Ok(Some(signal)) = self.signals.read_signal() {
                self.signalled(signal.ssi_signo as i32);
            }
            self.attend()?;
        }
    }

    /// Sleeps until something happens or is due.
    fn wait(&self) {
        let retired = self.retired.iter().map(|(_, by)| *by);
        let read = self.loading.as_ref().map(Loading::due);
        let others = [self.restart_at, self.end_by, self.zygotes.due(), read].into_iter().flatten();
        let pulses = self.watched().map(|front| front.pulse.due());
        let due = others.chain(retired).chain(pulses).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        fds.extend(self.keys.iter().map(|keys| PollFd::new(&keys.event, PollFlags::IN)));
        for front in self.fronts().filter(|front| !front.closed) {
            let more = if front.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(&front.wire, PollFlags::IN | more));
        }
        // An interrupted poll is one that found nothing.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// All fronts.
    fn fronts(&self) -> impl Iterator<Item = &Front> {
        let next = self.next.iter().map(|next| &next.front);
        self.front.iter().chain(next).chain(self.retired.iter().map(|(front, _)| front))
    }

    /// Those of which signs of life are asked. One that ends has its own time to do so.
    fn watched(&self) -> impl Iterator<Item = &Front> {
        let goes_on = self.end_by.is_none();
        let all = self.front.iter().chain(self.next.iter().map(|next| &next.front));
        all.filter(move |front| goes_on && front.is_watched())
    }

    fn watched_mut(&mut self) -> impl Iterator<Item = &mut Front> {
        let goes_on = self.end_by.is_none();
        let all = self.front.iter_mut().chain(self.next.iter_mut().map(|next| &mut next.front));
        all.filter(move |front| goes_on && front.is_watched())
    }

    fn fronts_mut(&mut self) -> impl Iterator<Item = &mut Front> {
        let next = self.next.iter_mut().map(|next| &mut next.front);
        self.front.iter_mut().chain(next).chain(self.retired.iter_mut().map(|(front, _)| front))
    }

    fn front_of(&mut self, number: u64) -> Option<&mut Front> {
        self.fronts_mut().find(|front| front.number == number)
    }

    /// Whether this front serves.
    fn is_current(&self, number: u64) -> bool {
        self.front.as_ref().is_some_and(|front| front.number == number)
    }

    /// Does whatever is due, without waiting.
    fn attend(&mut self) -> Result<()> {
        self.look_at_loading()?;
        self.hear_fronts();
        self.look_at_keys();
        for (front, zygote, status) in self.zygotes.ended() {
            if let Some(front) = self.front_of(front) {
                front.say(ToFront::Ended { zygote, status: status.into_raw() }, Vec::new());
            }
        }
        let now = Instant::now();
        self.watched_mut().for_each(|front| front.feel_pulse(now));
        self.look_at_fronts(now);
        if self.retired.is_empty()
            && let Some(front) = self.front.as_mut().filter(|front| !front.alone)
        {
            front.alone = true;
            front.say(ToFront::Alone, Vec::new());
        }
        let numbers: Vec<u64> = self.fronts().map(|front| front.number).collect();
        let limit = self.time_to_finish();
        self.zygotes.end_orphans(now, limit, |front| numbers.contains(&front));
        let known = |pid| {
            self.loading.as_ref().is_some_and(|loading| loading.pid() == pid)
                || self.fronts().any(|front| front.pid() == pid)
                || self.zygotes.contains(pid)
        };
        children::reap_strangers(known);
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            self.start_front();
        }
        if self.end_by.is_some_and(|by| by <= now) {
            tracing::error!("the front does not end; it is killed");
            self.end_by = Some(now + GRACE_AT_ONCE);
            self.fronts_mut().for_each(Front::kill);
        }
        self.fronts_mut().for_each(Front::flush);
        Ok(())
    }

    /// Sees which fronts have ended.
    fn look_at_fronts(&mut self, now: Instant) {
        if let Some(status) = self.front.as_mut().and_then(Front::ended) {
            // What it said last is there.
            self.hear_fronts();
            self.front_ended(status);
        }
        if let Some(status) = self.next.as_mut().and_then(|next| next.front.ended()) {
            self.hear_fronts();
            // Its last word may have been that it serves.
            if let Some(next) = self.next.take() {
                let why = next
                    .front
                    .failed
                    .unwrap_or_else(|| format!("the new front ended ({status}); see the log"));
                self.plans.remove(&next.plan);
                self.close_unwanted();
                self.answer_upgrade(next.request, Some(why));
            }
        }
        self.retired.retain_mut(|(front, by)| {
            if *by <= now {
                tracing::error!(pid = front.pid(), "the front that was replaced does not end; it is killed");
                *by = now + GRACE_AT_ONCE;
                front.kill();
            }
            front.ended().is_none()
        });
    }

    fn signalled(&mut self, number: i32) {
        let Ok(signal) = Signal::try_from(number) else { return };
        if signal == Signal::SIGCHLD {
            return; // `attend` looks at all children
        }
        let ends = matches!(signal, Signal::SIGTERM | Signal::SIGINT);
        if ends {
            let grace = match (self.end_by, self.plans.get(&self.adopted)) {
                (None, Some(plan)) => plan.drain_timeout.saturating_add(GRACE),
                _ => GRACE_AT_ONCE,
            };
            self.end_by = Instant::now().checked_add(grace);
        }
        if ends {
            self.fronts().for_each(|front| front.signal(signal));
        } else if let Some(front) = &self.front {
            front.signal(signal);
        }
        if ends && self.front.is_none() {
            self.over.get_or_insert(0);
        }
    }

    /// The end of the server has begun.
    fn is_ending(&self) -> bool {
        self.end_by.is_some()
            || self.over.is_some()
            || self.front.as_ref().is_some_and(|front| front.stopping)
    }

    /// What a front has, that is to end, until it is killed.
    fn time_to_finish(&self) -> Duration {
        let drain = self.plans.get(&self.adopted).map_or(Duration::ZERO, |plan| plan.drain_timeout);
        drain.saturating_add(GRACE)
    }

    fn look_at_loading(&mut self) -> Result<()> {
        let Some(status) = self.loading.as_mut().and_then(Loading::ended) else {
            if let Some(late) = self.loading.take_if(|loading| loading.due() <= Instant::now()) {
                let purpose = late.purpose;
                let why = late.give_up_late();
                if purpose == Purpose::Start {
                    eprintln!("hayate: {why}");
                    // Not 2: the configuration may be right, and what hangs may come back.
                    self.over = Some(1);
                }
                self.refuse_for(purpose, why);
            }
            return Ok(());
        };
        let Some(loading) = self.loading.take() else { return Ok(()) };
        let purpose = loading.purpose;
        match (loading.outcome(status), purpose) {
            // Another program or front would not know of the end.
            (_, Purpose::Upgrade(request) | Purpose::Successor(request)) if self.is_ending() => {
                self.answer_upgrade(request, Some("the server is stopping".into()));
            }
            (Ok(plan), Purpose::Start) => self.begin(plan)?,
            (Err(why), Purpose::Start) => {
                eprintln!("hayate: {why}");
                self.over = Some(2);
            }
            (Ok(plan), Purpose::Reload(request)) => match self.take_in(plan) {
                Ok((number, files)) => {
                    if let Some(front) = &mut self.front {
                        front.say(ToFront::Plan { request, plan: number }, files);
                    }
                }
                Err(why) => self.refuse(request, why),
            },
            (Err(why), Purpose::Reload(request)) => self.refuse(request, why),
            (Ok(_), Purpose::Upgrade(request)) => self.become_installed(request),
            (Ok(plan), Purpose::Successor(request)) => self.start_successor(plan, request),
            (Err(why), Purpose::Upgrade(request) | Purpose::Successor(request)) => {
                self.answer_upgrade(request, Some(why));
            }
        }
        Ok(())
    }

    /// The installed program can read the configuration: it takes over, in this process.
    fn become_installed(&mut self, request: u64) {
        let (Some(front), Some(plan)) = (&self.front, self.plans.get(&self.adopted)) else { return };
        if self.fronts().any(|front| !front.outgoing.is_empty()) {
            // What waits for them would be lost.
            return self.answer_upgrade(request, Some("a front does not listen to the master".into()));
        }
        let now = Instant::now();
        let handed = |front: &Front| (front.number, front.pid(), front.wire.as_raw_fd());
        let retired = self.retired.iter();
        let state = State {
            sockets: self.sockets.numbers(),
            plan: plan.clone(),
            adopted: self.adopted,
            last_plan: self.last_plan,
            front: handed(front),
            retired: retired.map(|(front, by)| (handed(front), by.saturating_duration_since(now))).collect(),
            zygotes: self.zygotes.list(),
            request,
        };
        let error = handover::become_program(&self.program, &self.name, &self.args, &state);
        self.answer_upgrade(request, Some(format!("cannot run {}: {error}", self.program.display())));
    }

    fn start_successor(&mut self, plan: Plan, request: u64) {
        let started = self.take_in(plan).and_then(|(number, _)| {
            self.last_front += 1;
            let Some(plan) = self.plans.get(&number) else { return Err("it was forgotten".to_owned()) };
            Front::start(self.last_front, (number, plan), &self.sockets, true, true)
                .map(|front| (number, front))
                .map_err(|error| format!("cannot start the front: {error:#}"))
        });
        match started {
            Ok((plan, front)) => self.next = Some(Next { front, plan, request }),
            Err(why) => self.answer_upgrade(request, Some(why)),
        }
    }

    /// The new front serves: the old one finishes and ends.
    fn replace_front(&mut self) {
        let Some(next) = self.next.take() else { return };
        self.adopted = next.plan;
        self.watch_keys();
        // The one before may just have died.
        self.restart_at = None;
        self.answer_upgrade(next.request, None);
        if let Some(mut old) = self.front.replace(next.front) {
            old.say(ToFront::Replaced, Vec::new());
            let by = Instant::now().checked_add(self.time_to_finish());
            self.retired.push((old, by.unwrap_or_else(Instant::now)));
        }
        self.close_unwanted();
    }

    fn answer_upgrade(&mut self, request: u64, refused: Option<String>) {
        match &refused {
            None => tracing::info!("upgraded: a new front serves"),
            Some(why) => tracing::error!("the upgrade was refused, what served goes on serving: {why}"),
        }
        if let Some(front) = &mut self.front {
            front.say(ToFront::Upgraded { request, refused: refused.map(wire::reason) }, Vec::new());
        }
    }

    /// The first plan: everything that can be wrong from outside ends the server here.
    fn begin(&mut self, plan: Plan) -> Result<()> {
        logging::init(plan.log_level, plan.log_format).context("cannot start the log's thread")?;
        for identity in plan.front.iter().chain(plan.apps.iter().filter_map(|app| app.identity.as_ref())) {
            identity.check()?;
        }
        warn_of_users(&plan);
        for app in &plan.apps {
            if let Some(why) = &app.failed {
                let app = &app.spec.name;
                tracing::error!(
                    app,
                    "it is not served, all its requests get 503: {why}; then `hayate reload`"
                );
            }
        }
        self.sockets = Sockets::open(&plan, std::mem::take(&mut self.handed_in))?;
        self.last_plan += 1;
        self.adopted = self.last_plan;
        self.plans.insert(self.last_plan, plan);
        self.watch_keys();
        self.start_front();
        Ok(())
    }

    fn start_front(&mut self) {
        let Some(plan) = self.plans.get(&self.adopted) else { return };
        self.last_front += 1;
        match Front::start(self.last_front, (self.adopted, plan), &self.sockets, self.served, false) {
            Ok(front) => self.front = Some(front),
            Err(error) => {
                logging::print(&format!("hayate: cannot start the front: {error:#}\n"));
                self.again_or_over(1);
            }
        }
    }

    fn front_ended(&mut self, status: ExitStatus) {
        let Some(front) = self.front.take() else { return };
        // Nobody is left who wants what it had asked for.
        if let Some(loading) = self.loading.take() {
            loading.give_up();
        }
        let next = self.next.as_ref().map(|next| next.plan);
        self.plans.retain(|number, _| *number <= self.adopted || Some(*number) == next);
        self.close_unwanted();
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        if self.end_by.is_some() || front.stopping {
            self.over = Some(code.unwrap_or(1));
            return;
        }
        if self.served || code.is_none() {
            tracing::error!(
                pid = front.pid(),
                "the front ended ({status}), and with it the requests that it was handling"
            );
        }
        if front.started.elapsed() >= GROWN_UP {
            self.pause = PAUSES.0;
        }
        self.again_or_over(code.unwrap_or(1));
    }

    /// A front is started again, unless none has served: then that is the server's end.
    fn again_or_over(&mut self, code: u8) {
        if !self.served || self.end_by.is_some() {
            self.over = Some(code);
            return;
        }
        tracing::warn!("the front is started again in {:?}; connections wait", self.pause);
        self.restart_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSES.1);
    }

    fn hear_fronts(&mut self) {
        let numbers: Vec<u64> = self.fronts().map(|front| front.number).collect();
        for number in numbers {
            // What a front says faster than this can wait for the next turn.
            for _ in 0..1000 {
                let Some(front) = self.front_of(number).filter(|front| !front.closed) else { break };
                match wire::receive::<ToMaster>(&front.wire) {
                    Ok(Some((message, files))) => self.hear(number, message, files),
                    Ok(None) => front.closed = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => tracing::error!("the front says what makes no sense: {error}"),
                }
            }
        }
    }

    fn hear(&mut self, number: u64, message: ToMaster, files: Vec<OwnedFd>) {
        let is_next = self.next.as_ref().is_some_and(|next| next.front.number == number);
        match message {
            ToMaster::Load { request } if self.is_current(number) => self.load(Purpose::Reload(request)),
            ToMaster::Upgrade { request } if self.is_current(number) => match self.next {
                None => self.load(Purpose::Upgrade(request)),
                Some(_) => self.answer_upgrade(request, Some("another upgrade is under way".into())),
            },
            // A front that was replaced has nothing to decide any more.
            ToMaster::Load { .. } | ToMaster::Upgrade { .. } => {}
            ToMaster::Failed { why } => {
                if let Some(front) = self.front_of(number) {
                    front.failed = Some(why);
                }
            }
            ToMaster::Adopted { plan } if self.is_current(number) && self.plans.contains_key(&plan) => {
                self.adopted = plan;
                self.watch_keys();
                self.close_unwanted();
            }
            ToMaster::Abandoned { plan } if self.is_current(number) && plan != self.adopted => {
                self.plans.remove(&plan);
                self.close_unwanted();
            }
            ToMaster::Adopted { .. } | ToMaster::Abandoned { .. } => {}
            ToMaster::Launch { zygote, plan, app, start } => {
                let files = Files::from_list(files);
                let app = self.plans.get(&plan).and_then(|plan| plan.apps.get(app));
                let launched = match (app, files) {
                    (Some(app), Some(files)) => self
                        .zygotes
                        .start(number, zygote, app, start, files)
                        .map_err(|error| error.to_string()),
                    (None, _) => Err("the master has forgotten this configuration; reload".to_owned()),
                    (_, None) => Err("the front sent too few descriptors".to_owned()),
                };
                let answer = match launched {
                    Ok(pid) => ToFront::Started { zygote, pid },
                    Err(why) => ToFront::NotStarted { zygote, why: wire::reason(why) },
                };
                if let Some(front) = self.front_of(number) {
                    front.say(answer, Vec::new());
                }
            }
            ToMaster::Kill { zygote } => self.zygotes.kill(number, zygote),
            ToMaster::KillWorker { zygote } => {
                if let Some(worker) = files.first() {
                    self.zygotes.kill_worker(number, zygote, worker);
                }
            }
            ToMaster::Alive => {
                if let Some(front) = self.front_of(number) {
                    front.pulse.heard(Instant::now());
                }
            }
            ToMaster::Notify(Notice::Ready) if is_next => {
                self.replace_front();
                self.front.iter_mut().for_each(|front| front.serves = true);
            }
            ToMaster::Notify(notice) if self.is_current(number) => {
                self.served |= notice == Notice::Ready;
                if let Some(front) = &mut self.front {
                    front.serves |= notice == Notice::Ready;
                    front.stopping |= notice == Notice::Stopping;
                }
                tell_service_manager(notice);
            }
            ToMaster::Notify(_) => {}
        }
    }

    /// Has the files of the served plan's certificates looked after.
    fn watch_keys(&mut self) {
        let pairs =
            self.plans.get(&self.adopted).and_then(|plan| plan.tls.as_ref()).map(|tls| tls.pairs.clone());
        let pairs = pairs.unwrap_or_default();
        if self.keys.is_none() && !pairs.is_empty() {
            self.keys = Keys::start()
                .inspect_err(|error| {
                    tracing::error!("changes of certificates are not seen without a reload: {error}")
                })
                .ok();
        }
        if let Some(keys) = &self.keys {
            keys.watch(pairs);
        }
    }

    /// Hands the front what the files of certificates hold now; one that starts later gets it with the plan.
    fn look_at_keys(&mut self) {
        let Some(pairs) = self.keys.as_ref().and_then(Keys::news) else { return };
        let adopted = self.adopted;
        let Some(tls) = self.plans.get_mut(&adopted).and_then(|plan| plan.tls.as_mut()) else { return };
        let same = |(one, other): (&Pair, &Pair)| {
            one.certificate == other.certificate && one.private == other.private
        };
        if tls.pairs.len() != pairs.len() || !tls.pairs.iter().zip(&pairs).all(same) {
            // They are another plan's, which was served a moment ago.
            return;
        }
        tls.pairs = pairs;
        match load::sealed_pairs(&tls.pairs) {
            Ok(file) => {
                if let Some(front) = &mut self.front {
                    front.say(ToFront::Certificates { plan: adopted }, vec![file]);
                }
            }
            Err(error) => tracing::error!("changed certificates cannot be handed over: {error}; reload"),
        }
    }

    /// Has the configuration read, in place of what is being read.
    fn load(&mut self, purpose: Purpose) {
        if let Some(before) = self.loading.take() {
            let other = before.purpose;
            before.give_up();
            self.refuse_for(other, "another request took its place");
        }
        let program = match purpose {
            Purpose::Upgrade(_) => self.program.clone(),
            _ => PathBuf::from(PROGRAM),
        };
        match Loading::start(&program, &self.args, purpose) {
            Ok(loading) => self.loading = Some(loading),
            Err(error) => self.refuse_for(purpose, format!("cannot run {}: {error}", program.display())),
        }
    }

    fn refuse_for(&mut self, purpose: Purpose, why: impl Into<String>) {
        match purpose {
            Purpose::Start => {}
            Purpose::Reload(request) => self.refuse(request, why),
            Purpose::Upgrade(request) | Purpose::Successor(request) => {
                self.answer_upgrade(request, Some(why.into()));
            }
        }
    }

    /// Makes ready for a plan: its number, and the files for a front, the plan's own first.
    fn take_in(&mut self, plan: Plan) -> Result<(u64, Vec<OwnedFd>), String> {
        let identities = plan.front.iter().chain(plan.apps.iter().filter_map(|app| app.identity.as_ref()));
        for identity in identities {
            identity.check().map_err(|error| format!("{error:#}"))?;
        }
        self.sockets.bind(&plan.listen).map_err(|error| error.to_string())?;
        let gather = || Ok::<_, io::Error>((load::sealed(&plan)?, self.sockets.of(&plan.listen)?));
        let (file, sockets) = gather().map_err(|error| error.to_string())?;
        self.last_plan += 1;
        let number = self.last_plan;
        self.plans.insert(number, plan);
        while self.plans.len() > PLANS {
            let Some(oldest) = self.plans.keys().find(|number| **number != self.adopted).copied() else {
                break;
            };
            self.plans.remove(&oldest);
        }
        Ok((number, std::iter::once(file).chain(sockets).collect()))
    }

    fn refuse(&mut self, request: u64, why: impl Into<String>) {
        if let Some(front) = &mut self.front {
            front.say(ToFront::Refused { request, why: wire::reason(why) }, Vec::new());
        }
    }

    /// Closes the sockets that are neither served nor about to be.
    fn close_unwanted(&mut self) {
        let plans = self.plans.range(self.adopted..);
        let wanted: Vec<_> = plans.flat_map(|(_, plan)| plan.listen.iter().cloned()).collect();
        self.sockets.keep(&wanted);
    }

    /// Ends whatever is left, and takes along the files of sockets and the pid file.
    fn finish(mut self) {
        if let Some(loading) = self.loading.take() {
            loading.give_up();
        }
        let next = self.next.take().map(|next| next.front);
        let retired = std::mem::take(&mut self.retired).into_iter().map(|(front, _)| front);
        self.front.take().into_iter().chain(next).chain(retired).for_each(Front::end);
        self.zygotes.end_all();
        drop(self.sockets);
        logging::finish_blocking();
    }
}

/// Where the program that was called by this name is installed: a symbolic link stays one, so that an upgrade follows it.
fn installed(name: &OsString) -> PathBuf {
    let path = Path::new(name);
    if path.components().count() > 1 {
        return std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    }
    let places = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&places).map(|place| place.join(path)).find(|path| path.is_file());
    found.or_else(|| std::env::current_exe().ok()).unwrap_or_else(|| path.to_owned())
}

/// Says what sharing a user means, where it is shared.
fn warn_of_users(plan: &Plan) {
    if plan.runs_php_as_root() {
        tracing::warn!(
            "PHP runs as root; set `user` (--user www-data) unless this is a container of its own"
        );
    } else if crate::privileges::is_root() {
        let sharing = plan.sharing_the_fronts_user();
        if !sharing.is_empty() {
            tracing::info!(
                "the front runs as the user of PHP (application {}), whose scripts can reach its files: a system user `hayate`, or \
                 front_user, gives it one of its own",
                sharing.join(", ")
            );
        }
    }
}

fn tell_service_manager(notice: Notice) {
    let mut states = match notice {
        Notice::Ready => vec![NotifyState::Ready],
        Notice::Reloading => vec![NotifyState::Reloading],
        Notice::Stopping => vec![NotifyState::Stopping],
    };
    if notice == Notice::Reloading {
        states.extend(NotifyState::monotonic_usec_now());
    }
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(&states);
}
