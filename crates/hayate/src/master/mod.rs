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
//! `activation.rs` what a service manager hands in, `children.rs` the processes; `fronts.rs` and `plans.rs` are the parts of this one that start
//! and hear fronts, and that take in what is to be served.

mod activation;
mod children;
mod client;
mod fronts;
mod handover;
mod keys;
pub mod load;
mod notify;
mod plans;
mod program;
mod pulse;
mod signals;
mod sockets;
#[cfg(test)]
mod tests;
pub mod wire;

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use hayate_certificates::Pair;
use hayate_front::ListenAddr;
use hayate_panics::{PAUSE, caught_now};
use nix::sys::{
    signal::Signal,
    signalfd::{SfdFlags, SignalFd},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

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
    wire::ToFront,
};
use crate::{
    logging,
    plan::{NO_PROC, PHP_AS_ROOT, Plan},
    privileges::Identity,
};

/// This program, also when its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// Plans that are remembered: a generation that still drains may have to start its zygote again.
const PLANS: usize = 16;
/// How long after the drain's end a front may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(10);
/// The same after a second signal.
const GRACE_AT_ONCE: Duration = Duration::from_secs(5);
/// How long one that was replaced keeps connections that idle before its time to finish begins; more than it takes itself.
const LEAVING: Duration = Duration::from_secs(15);
/// How long zygotes whose front is gone may go on at most: they end by themselves.
const ORPHANS: Duration = Duration::from_secs(3600);
/// Pauses before a front is started again grow from the first to the second as long as fronts die young.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(30));
/// Why nothing new is begun any more.
pub const STOPPING: &str = "the server is stopping";
/// The number of an upgrade that no front has asked for: theirs begin with one.
const BY_SIGNAL: u64 = 0;
/// A front that lived this long did not die of its start.
const GROWN_UP: Duration = Duration::from_secs(60);

/// `hayate serve`: runs until the end. `args` are those after `serve`.
pub fn run(args: Vec<OsString>) -> ExitCode {
    match Master::new(args).and_then(Master::run) {
        Ok(code) => code,
        Err(error) => {
            // By the log's thread, if there is one: in one piece, and after what it was given before.
            logging::print(&crate::complaint(format_args!("{error:#}")));
            logging::finish_blocking();
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
    /// Whom all fronts become, from the first to the last: what one may write belongs to the next as well.
    front_user: Option<Identity>,
    /// The files of the served plan's certificates; once there are some.
    keys: Option<Keys>,
    /// A front has served.
    served: bool,
    /// When a front is to be started again.
    restart_at: Option<Instant>,
    pause: Duration,
    /// A SIGHUP waits for a front that serves, and for the end of an upgrade.
    reload_waits: bool,
    /// The end has begun; then the fronts are killed.
    end_by: Option<Instant>,
    /// A signal has asked for the end; the next one is the second.
    asked_by_signal: bool,
    /// The exit code, once it is known.
    over: Option<u8>,
}

impl Master {
    fn new(args: Vec<OsString>) -> Result<Master> {
        // Started by an ordinary user, it is PHP's as well.
        crate::privileges::keep_to_itself().context("prctl")?;
        let wanted = signals::heard();
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
            front_user: None,
            keys: None,
            served: false,
            restart_at: None,
            pause: PAUSES.0,
            reload_waits: false,
            end_by: None,
            asked_by_signal: false,
            over: None,
        };
        match handover::take()? {
            Some(state) => {
                let purpose = master.resume(state)?;
                master.load(purpose);
            }
            None => {
                master.handed_in = activation::take()?;
                // This program is known by its name there.
                anyhow::ensure!(Path::new("/proc/self/fd").is_dir(), NO_PROC);
                let loading = Loading::start(PROGRAM.as_ref(), &master.args, Purpose::Start, None, None);
                master.loading =
                    Some(loading.context("cannot start the process that reads the configuration")?);
            }
        }
        Ok(master)
    }

    /// Goes on where another program has left off, in this process.
    fn resume(&mut self, state: State) -> Result<Purpose> {
        if let Err(error) = logging::init(state.plan.log_level, state.plan.log_format) {
            // There is no way back from here, and what serves needs no log.
            tracing::error!(
                "the log's thread cannot be started, which is tried again with each line: {error}"
            );
        }
        let (number, pid, wire) = state.front;
        self.sockets = state.sockets.adopt(handover::own)?;
        // As the one before has kept it.
        self.front_user.clone_from(&state.plan.front);
        self.plans = state.others;
        self.plans.insert(state.adopted, state.plan);
        (self.adopted, self.last_plan) = (state.adopted, state.last_plan);
        self.reload_waits = state.reload_waits;
        let mut front = Front::of(number, Own::of(pid), handover::own(wire)?);
        front.serves = true;
        self.front = Some(front);
        for ((number, pid, wire), left) in state.retired {
            let mut front = Front::of(number, Own::of(pid), handover::own(wire)?);
            front.serves = true;
            self.retired.push((front, Instant::now().checked_add(left).unwrap_or_else(Instant::now)));
        }
        // Those of fronts that have died have left zygotes.
        let retired = self.retired.iter().map(|(front, _)| front.number);
        let orphans = state.zygotes.iter().map(|(front, ..)| *front);
        self.last_front = retired.chain(orphans).fold(number, u64::max);
        self.zygotes = Zygotes::of(state.zygotes);
        self.served = true;
        // The thread that did so has ended with the program before.
        self.watch_keys();
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
            // What a front says, and what becomes of processes, must not end all of them.
            match caught_now(|| self.turn()) {
                Ok(outcome) => outcome?,
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Waits, and does whatever is due then.
    fn turn(&mut self) -> Result<()> {
        self.wait();
        while let Ok(Some(signal)) = self.signals.read_signal() {
            self.signalled(signal.ssi_signo as i32);
        }
        self.attend()
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

    /// Those of which signs of life are asked: all, until the server's end, which has a time of its own.
    fn watched(&self) -> impl Iterator<Item = &Front> {
        let goes_on = self.end_by.is_none();
        self.fronts().filter(move |front| goes_on && front.is_watched())
    }

    fn watched_mut(&mut self) -> impl Iterator<Item = &mut Front> {
        let goes_on = self.end_by.is_none();
        self.fronts_mut().filter(move |front| goes_on && front.is_watched())
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
        if self.retired.iter().all(|(front, _)| front.left_quic)
            && let Some(front) = self.front.as_mut().filter(|front| !front.has_quic)
        {
            front.has_quic = true;
            front.say(ToFront::Quic, Vec::new());
        }
        let numbers: Vec<u64> = self.fronts().map(|front| front.number).collect();
        // Their front is gone, and with it who waits for their answers.
        let drain = self.plans.get(&self.adopted).map_or(Duration::ZERO, |plan| plan.drain_timeout);
        let limit = drain.min(ORPHANS).saturating_add(GRACE);
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
        self.pass_on_reload();
        self.fronts_mut().for_each(Front::flush);
        Ok(())
    }

    fn signalled(&mut self, number: i32) {
        match Signal::try_from(number) {
            Ok(Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT) => self.asked_to_end(),
            Ok(Signal::SIGHUP) => {
                if self.upgrade_is_under_way() {
                    tracing::info!("an upgrade is under way; the reload comes after it");
                }
                self.reload_waits = true;
            }
            // Each has the file open, those that finish included.
            Ok(Signal::SIGUSR1) => self.fronts_mut().for_each(Front::reopen_log),
            Ok(Signal::SIGUSR2) => self.asked_to_upgrade(),
            Ok(Signal::SIGCHLD) => {} // `attend` looks at all children
            other => {
                let name = other.map_or_else(|_| format!("signal {number}"), |signal| signal.to_string());
                tracing::warn!(
                    "{name} means nothing to this server; `hayate reload`, `hayate upgrade` and `hayate stop` do"
                );
            }
        }
    }

    /// A signal asks for what `hayate upgrade` asks for; the log says what comes of it.
    fn asked_to_upgrade(&mut self) {
        let refused = if self.is_ending() {
            Some(STOPPING)
        } else if self.upgrade_is_under_way() {
            Some("another upgrade is under way")
        } else if self.front.as_ref().is_none_or(|front| !front.serves) {
            Some("no front serves that another could take over from")
        } else {
            None
        };
        match refused {
            Some(why) => tracing::warn!("SIGUSR2 is an upgrade, as `hayate upgrade`; it is refused: {why}"),
            None => {
                tracing::info!("SIGUSR2: the installed program is to take over, as by `hayate upgrade`");
                self.load(Purpose::Upgrade(BY_SIGNAL));
            }
        }
    }

    /// A signal asks for the end: the first has what is being served finished, the second has it cut off.
    fn asked_to_end(&mut self) {
        let second = std::mem::replace(&mut self.asked_by_signal, true);
        if !self.is_ending() {
            self.begin_end(None);
        } else if second {
            self.end_by = Instant::now().checked_add(GRACE_AT_ONCE);
            self.fronts().for_each(|front| front.signal(Signal::SIGTERM));
        } else {
            tracing::info!("the server is stopping already; a second signal ends it at once");
        }
    }

    /// The end begins: nobody is accepted any more, and all fronts finish what they serve, those that were replaced included. `knows`: this one has
    /// begun to.
    fn begin_end(&mut self, knows: Option<u64>) {
        if self.is_ending() {
            return;
        }
        let drain = self.plans.get(&self.adopted).map_or(Duration::ZERO, |plan| plan.drain_timeout);
        let now = Instant::now();
        self.end_by = now.checked_add(drain.saturating_add(GRACE)).or(Some(now + ORPHANS));
        self.restart_at = None;
        if let Some(loading) = self.loading.take() {
            let purpose = loading.purpose;
            loading.give_up();
            self.refuse_for(purpose, STOPPING);
        }
        self.sockets.keep(&[], false);
        let others = self.fronts().filter(|front| Some(front.number) != knows);
        others.for_each(|front| front.signal(Signal::SIGTERM));
        if self.front.is_none() {
            self.over.get_or_insert(0);
        }
    }

    /// The end of the server has begun.
    fn is_ending(&self) -> bool {
        self.end_by.is_some() || self.over.is_some()
    }

    /// Another program, or a front of it, is about to take over.
    fn upgrade_is_under_way(&self) -> bool {
        let reads =
            |loading: &Loading| matches!(loading.purpose, Purpose::Upgrade(_) | Purpose::Successor(_));
        self.next.is_some() || self.loading.as_ref().is_some_and(reads)
    }

    /// Has the front that serves reload, if a signal has asked for it. Never during an upgrade, whose front has read the configuration before.
    fn pass_on_reload(&mut self) {
        if self.reload_waits
            && !self.upgrade_is_under_way()
            && let Some(front) = self.front.as_ref().filter(|front| front.serves)
        {
            front.signal(Signal::SIGHUP);
            self.reload_waits = false;
        }
    }

    /// What a front has, that is to end, until it is killed.
    fn time_to_finish(&self) -> Duration {
        // It may still finish what runs by an earlier one.
        let longest = self.plans.values().map(Plan::time_to_finish).max();
        longest.unwrap_or_default().saturating_add(GRACE)
    }

    /// Says by whom PHP runs from now on, and what that means.
    fn warn_of_new_users(&self) {
        if let Some(plan) = self.plans.get(&self.adopted) {
            warn_of_users(plan);
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

/// What it means by which users things run, where that is worth a word.
fn warn_of_users(plan: &Plan) {
    if plan.runs_php_as_root() {
        tracing::warn!("{PHP_AS_ROOT}");
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
