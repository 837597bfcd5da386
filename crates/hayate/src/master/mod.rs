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
//! `wire.rs` has the messages between master and front, `client.rs` the front's end of them, `sockets.rs` what is kept for the whole life,
//! `children.rs` the processes.

mod children;
mod client;
pub mod load;
mod sockets;
pub mod wire;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::{ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
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
    children::{Front, Zygotes},
    load::Loading,
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

struct Master {
    args: Vec<OsString>,
    signals: SignalFd,
    loading: Option<Loading>,
    plans: BTreeMap<u64, Plan>,
    last_plan: u64,
    /// The plan that is served.
    adopted: u64,
    sockets: Sockets,
    front: Option<Front>,
    zygotes: Zygotes,
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
        let loading =
            Loading::start(&args, None).context("cannot start the process that reads the configuration")?;
        Ok(Master {
            args,
            signals,
            loading: Some(loading),
            plans: BTreeMap::new(),
            last_plan: 0,
            adopted: 0,
            sockets: Sockets::default(),
            front: None,
            zygotes: Zygotes::default(),
            served: false,
            restart_at: None,
            pause: PAUSES.0,
            end_by: None,
            over: None,
        })
    }

    fn run(mut self) -> Result<ExitCode> {
        loop {
            if let Some(code) = self.over {
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
        let due = [self.restart_at, self.end_by].into_iter().flatten().min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if let Some(front) = self.front.as_ref().filter(|front| !front.closed) {
            let more = if front.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(&front.wire, PollFlags::IN | more));
        }
        // An interrupted poll is one that found nothing.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    /// Does whatever is due, without waiting.
    fn attend(&mut self) -> Result<()> {
        self.look_at_loading()?;
        self.hear_front();
        for (front, zygote, status) in self.zygotes.ended() {
            if let Some(current) = self.front.as_mut().filter(|current| current.number == front) {
                current.say(ToFront::Ended { zygote, status: status.into_raw() }, Vec::new());
            }
        }
        if let Some(status) = self.front.as_mut().and_then(Front::ended) {
            self.hear_front();
            self.front_ended(status);
        }
        let known = |pid| {
            self.loading.as_ref().is_some_and(|loading| loading.pid() == pid)
                || self.front.as_ref().is_some_and(|front| front.pid() == pid)
                || self.zygotes.contains(pid)
        };
        children::reap_strangers(known);
        let now = Instant::now();
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            self.start_front();
        }
        if self.end_by.is_some_and(|by| by <= now) {
            tracing::error!("the front does not end; it is killed");
            self.end_by = Some(now + GRACE_AT_ONCE);
            if let Some(front) = &mut self.front {
                front.kill();
            }
        }
        if let Some(front) = &mut self.front {
            front.flush();
        }
        Ok(())
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
        match &mut self.front {
            Some(front) => front.signal(signal),
            None if ends => self.over = Some(0),
            None => {}
        }
    }

    fn look_at_loading(&mut self) -> Result<()> {
        let Some(status) = self.loading.as_mut().and_then(Loading::ended) else { return Ok(()) };
        let Some(loading) = self.loading.take() else { return Ok(()) };
        let request = loading.request;
        match (loading.outcome(status), request) {
            (Ok(plan), None) => self.begin(plan)?,
            (Err(why), None) => {
                eprintln!("hayate: {why}");
                self.over = Some(2);
            }
            (Ok(plan), Some(request)) => self.loaded(request, plan),
            (Err(why), Some(request)) => self.refuse(request, why),
        }
        Ok(())
    }

    /// The first plan: everything that can be wrong from outside ends the server here.
    fn begin(&mut self, plan: Plan) -> Result<()> {
        logging::init(plan.log_level, plan.log_format).context("cannot start the log's thread")?;
        for identity in plan.front.iter().chain(plan.apps.iter().filter_map(|app| app.identity.as_ref())) {
            identity.check()?;
        }
        warn_of_users(&plan);
        self.sockets = Sockets::open(&plan)?;
        self.last_plan += 1;
        self.adopted = self.last_plan;
        self.plans.insert(self.last_plan, plan);
        self.start_front();
        Ok(())
    }

    fn start_front(&mut self) {
        let Some(plan) = self.plans.get(&self.adopted) else { return };
        match Front::start(plan, self.adopted, &self.sockets, self.served) {
            Ok(front) => self.front = Some(front),
            Err(error) => {
                logging::print(&format!("hayate: cannot start the front: {error:#}\n"));
                self.again_or_over(1);
            }
        }
    }

    fn front_ended(&mut self, status: ExitStatus) {
        let Some(front) = self.front.take() else { return };
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

    fn hear_front(&mut self) {
        // What the front says faster than this can wait for the next turn.
        for _ in 0..1000 {
            let Some(front) = self.front.as_mut().filter(|front| !front.closed) else { return };
            match wire::receive::<ToMaster>(&front.wire) {
                Ok(Some((message, files))) => self.hear(message, files),
                Ok(None) => front.closed = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => tracing::error!("the front says what makes no sense: {error}"),
            }
        }
    }

    fn hear(&mut self, message: ToMaster, files: Vec<OwnedFd>) {
        match message {
            ToMaster::Load { request } => {
                if let Some(before) = self.loading.take() {
                    let request = before.request;
                    before.give_up();
                    request
                        .into_iter()
                        .for_each(|request| self.refuse(request, "another reload took its place"));
                }
                match Loading::start(&self.args, Some(request)) {
                    Ok(loading) => self.loading = Some(loading),
                    Err(error) => self.refuse(request, format!("cannot read the configuration: {error}")),
                }
            }
            ToMaster::Adopted { plan } if self.plans.contains_key(&plan) => {
                self.adopted = plan;
                self.close_unwanted();
            }
            ToMaster::Abandoned { plan } if plan != self.adopted => {
                self.plans.remove(&plan);
                self.close_unwanted();
            }
            ToMaster::Adopted { .. } | ToMaster::Abandoned { .. } => {}
            ToMaster::Launch { zygote, plan, app, start } => {
                let Some(front) = &mut self.front else { return };
                let files = <[OwnedFd; 5]>::try_from(files).map(Files::from_array);
                let app = self.plans.get(&plan).and_then(|plan| plan.apps.get(app));
                let launched = match (app, files) {
                    (Some(app), Ok(files)) => self
                        .zygotes
                        .start(front.number, zygote, app, start, files)
                        .map_err(|error| error.to_string()),
                    (None, _) => Err("the master has forgotten this configuration; reload".to_owned()),
                    (_, Err(_)) => Err("the front sent too few descriptors".to_owned()),
                };
                let answer = match launched {
                    Ok(pid) => ToFront::Started { zygote, pid },
                    Err(why) => ToFront::NotStarted { zygote, why: wire::reason(why) },
                };
                front.say(answer, Vec::new());
            }
            ToMaster::Kill { zygote } => {
                if let Some(front) = &self.front {
                    self.zygotes.kill(front.number, zygote);
                }
            }
            ToMaster::KillWorker { zygote } => {
                if let (Some(front), Some(worker)) = (&self.front, files.first()) {
                    self.zygotes.kill_worker(front.number, zygote, worker);
                }
            }
            ToMaster::Notify(notice) => {
                if let Some(front) = &mut self.front {
                    self.served |= notice == Notice::Ready;
                    front.stopping |= notice == Notice::Stopping;
                    tell_service_manager(notice);
                }
            }
        }
    }

    fn loaded(&mut self, request: u64, plan: Plan) {
        let ready = plan
            .front
            .iter()
            .chain(plan.apps.iter().filter_map(|app| app.identity.as_ref()))
            .try_for_each(|identity| identity.check())
            .map_err(|error| format!("{error:#}"))
            .and_then(|()| self.sockets.bind(&plan.listen).map_err(|error| error.to_string()))
            .and_then(|()| {
                let gather = || Ok::<_, io::Error>((load::sealed(&plan)?, self.sockets.of(&plan.listen)?));
                gather().map_err(|error| error.to_string())
            });
        let (file, sockets) = match ready {
            Ok(ready) => ready,
            Err(why) => return self.refuse(request, why),
        };
        self.last_plan += 1;
        let number = self.last_plan;
        self.plans.insert(number, plan);
        while self.plans.len() > PLANS {
            let Some(oldest) = self.plans.keys().find(|number| **number != self.adopted).copied() else {
                break;
            };
            self.plans.remove(&oldest);
        }
        if let Some(front) = &mut self.front {
            let files = std::iter::once(file).chain(sockets).collect();
            front.say(ToFront::Plan { request, plan: number }, files);
        }
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
        if let Some(front) = self.front.take() {
            front.end();
        }
        self.zygotes.end_all();
        drop(self.sockets);
        logging::finish_blocking();
    }
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
