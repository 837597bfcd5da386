//! The master's children: the front, and the zygotes that it asked for.

use std::{
    collections::VecDeque,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use command_fds::{CommandFdExt, FdMapping};
use hayate_pool::{Files, Parent, Start, cgroup::not_started, parent_of, spawn};
use nix::{
    sys::{
        signal::{SigSet, Signal},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use rustix::{
    process::{WaitOptions, pidfd_send_signal},
    thread::CapabilitySet,
};

use super::{
    PROGRAM,
    handover::VARIABLE,
    load,
    pulse::{Bearing, Beat, Pulse},
    signals,
    sockets::Sockets,
    wire::{self, ToFront},
};
use crate::{
    plan::{App, Plan},
    privileges::{Identity, is_root},
};

/// The front's end of the wire, in the front.
pub const WIRE: i32 = 3;
/// Messages that may wait for a front that does not read. One that is this far behind is stopped or stuck.
const MOST_WAITING: usize = 10_000;

/// A child of this process. Unlike the standard library's it can be handed over to the program that takes this one's place.
pub struct Own {
    pid: i32,
    ended: Option<ExitStatus>,
}

impl Own {
    /// A child of this number, which nobody has waited for.
    pub fn of(pid: u32) -> Own {
        Own { pid: i32::try_from(pid).unwrap_or(0), ended: None }
    }

    pub fn pid(&self) -> u32 {
        u32::try_from(self.pid).unwrap_or(0)
    }

    /// Its end, without waiting.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            let pid = rustix::process::Pid::from_raw(self.pid);
            self.ended = match rustix::process::waitpid(pid, WaitOptions::NOHANG) {
                Ok(None) | Err(rustix::io::Errno::INTR) => None,
                Ok(Some((_, status))) => Some(ExitStatus::from_raw(status.as_raw())),
                // It is nobody's child.
                Err(_) => Some(ExitStatus::default()),
            };
        }
        self.ended
    }

    pub fn signal(&self, signal: Signal) {
        // As long as it is not waited for, the number is its own.
        if self.ended.is_none() && self.pid > 1 {
            let _ = nix::sys::signal::kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// Whether a signal has stopped it.
    fn is_stopped(&self) -> bool {
        let look = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        self.ended.is_none()
            && self.pid > 1
            && matches!(waitid(Id::Pid(Pid::from_raw(self.pid)), look), Ok(WaitStatus::Stopped(..)))
    }

    /// Kills it, and waits for its end for a moment at most: one that is stuck in the kernel must not hold up the master.
    pub fn end(&mut self) {
        self.signal(Signal::SIGKILL);
        for _ in 0..200 {
            if self.ended().is_some() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A front that runs.
pub struct Front {
    child: Own,
    /// The master's end.
    pub wire: OwnedFd,
    /// Which front this is.
    pub number: u64,
    pub outgoing: VecDeque<(ToFront, Vec<OwnedFd>)>,
    pub started: Instant,
    /// It has closed its end.
    pub closed: bool,
    /// It has served.
    pub serves: bool,
    /// It is to open the access log anew once it serves.
    reopens: bool,
    /// It knows that no other front is left.
    pub alone: bool,
    /// It knows that the sockets of HTTP/3 are its own.
    pub has_quic: bool,
    /// It has said that it reads those no more.
    pub left_quic: bool,
    pub pulse: Pulse,
    /// Why it cannot serve, when it has said so.
    pub failed: Option<String>,
}

impl Front {
    /// Starts one with everything that it needs, under its own user and without any privilege.
    pub fn start(
        number: u64,
        (plan_number, plan): (u64, &Plan),
        sockets: &Sockets,
        again: bool,
        successor: bool,
    ) -> Result<Front> {
        let (ours, theirs) = wire::pair()?;
        let (control, metrics) = sockets.besides()?;
        let message = ToFront::Begin {
            plan: plan_number,
            master: std::process::id(),
            master_user: rustix::process::geteuid().as_raw(),
            control: control.as_ref().map(|(path, _)| path.clone()),
            metrics: metrics.is_some(),
            again,
            successor,
            secret: sockets.secret(),
        };
        let mut files = vec![load::sealed(plan)?];
        files.extend(control.map(|(_, socket)| socket));
        files.extend(metrics);
        files.extend(sockets.of(&plan.listen)?);
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        wire::send(&ours, &message, &files)?;

        let mut command = Command::new(PROGRAM);
        // What it is told by the service manager goes through the master.
        command.arg0("hayate").arg("front").env_remove("NOTIFY_SOCKET").env_remove(VARIABLE);
        let mut assume = plan.front.as_ref().map(Identity::assumer);
        // SAFETY: system calls only, on data made before the fork.
        unsafe {
            command.pre_exec(move || {
                hear_signals()?;
                signals::ignore_unknown()?;
                // Neither Ctrl-C nor what stops a background process reaches it but through the master.
                rustix::process::setsid()?;
                if let Some(assume) = &mut assume {
                    assume()?;
                }
                // With it goes the ambient set, by which a service manager may hand privileges down to who is not root.
                let mut capabilities = rustix::thread::capabilities(None)?;
                capabilities.inheritable = CapabilitySet::empty();
                rustix::thread::set_capabilities(None, capabilities)?;
                rustix::thread::set_no_new_privs(true)?;
                // After the change of user, which clears it.
                rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
                Ok(())
            })
        };
        command
            .fd_mappings(vec![FdMapping { parent_fd: theirs, child_fd: WIRE }])
            .map_err(io::Error::other)?;
        let child = command.spawn().map_err(|error| io::Error::new(error.kind(), not_started(&error)))?;
        let child = Own::of(child.id());
        Ok(Front::of(number, child, ours))
    }

    /// One that runs.
    pub fn of(number: u64, child: Own, wire: OwnedFd) -> Front {
        Front {
            child,
            wire,
            number,
            outgoing: VecDeque::new(),
            started: Instant::now(),
            closed: false,
            serves: false,
            reopens: false,
            alone: false,
            has_quic: false,
            left_quic: false,
            pulse: Pulse::new(Instant::now()),
            failed: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Says something, in order, as soon as the front listens.
    pub fn say(&mut self, message: ToFront, files: Vec<OwnedFd>) {
        self.outgoing.push_back((message, files));
        self.flush();
        if self.outgoing.len() > MOST_WAITING {
            tracing::error!(pid = self.pid(), "the front does not listen to the master; it is killed");
            self.outgoing.clear();
            self.kill();
        }
    }

    /// Sends what waits, as far as the front takes it.
    pub fn flush(&mut self) {
        while let Some((message, files)) = self.outgoing.front() {
            let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
            match wire::send(&self.wire, message, &files) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A front that is gone hears nothing more; its end is seen elsewhere.
                Err(_) | Ok(()) => drop(self.outgoing.pop_front()),
            }
        }
    }

    /// Whether it is to give signs of life.
    pub fn is_watched(&self) -> bool {
        !self.closed
    }

    /// Asks it for a sign of life when it is time, and kills it when it gives none.
    pub fn feel_pulse(&mut self, now: Instant) {
        let stopped = self.child.is_stopped();
        let bearing = match (stopped, self.serves) {
            (true, _) => Bearing::Stopped,
            (false, true) => Bearing::Serving,
            (false, false) => Bearing::Booting,
        };
        match self.pulse.look(now, bearing, waited_for_a_processor(self.pid())) {
            Beat::Wait => {}
            Beat::Ask => self.say(ToFront::Ask, Vec::new()),
            // Somebody with the right to do so looks at it in a debugger.
            Beat::Silent if is_traced(self.pid()) => {}
            Beat::Silent => {
                let what = if stopped { "was stopped by a signal" } else { "gives no sign of life" };
                tracing::error!(pid = self.pid(), "the front {what}; it is killed");
                self.kill();
            }
        }
    }

    /// Its end, without waiting.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.ended()
    }

    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Notes that it serves.
    pub fn is_ready(&mut self) {
        self.serves = true;
        if std::mem::take(&mut self.reopens) {
            self.reopen_log();
        }
    }

    /// Has it open the access log anew; one that boots, and may not hear signals yet, does so once it serves.
    pub fn reopen_log(&mut self) {
        if self.serves {
            self.signal(Signal::SIGUSR1);
        } else {
            self.reopens = true;
        }
    }

    pub fn kill(&mut self) {
        self.child.signal(Signal::SIGKILL);
    }

    /// Ends it now.
    pub fn end(mut self) {
        self.child.end();
    }
}

/// Between fork and exec: the master's signals are blocked, which a child would inherit.
pub fn hear_signals() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

struct Zygote {
    /// Which front asked for it.
    front: u64,
    /// The front's number for it.
    number: u64,
    child: Own,
    /// When it is killed, since that front is gone.
    by: Option<Instant>,
}

/// All zygotes, those of fronts that are gone included.
#[derive(Default)]
pub struct Zygotes(Vec<Zygote>);

impl Zygotes {
    /// Starts one under the application's user. Returns its process.
    pub fn start(
        &mut self,
        front: u64,
        number: u64,
        app: &App,
        start: Start,
        files: Files,
    ) -> io::Result<i32> {
        if self.find(front, number).is_some() {
            return Err(io::Error::other("the front used the number of a zygote twice"));
        }
        let mut assume = app.identity.as_ref().filter(|_| is_root()).map(Identity::assumer);
        let child = spawn(&app.spec.in_way(start.way), start, files, move || {
            hear_signals()?;
            assume.as_mut().map_or(Ok(()), |assume| assume())
        })?;
        let pid = child.id();
        self.0.push(Zygote { front, number, child: Own::of(pid), by: None });
        Ok(i32::try_from(pid).unwrap_or(0))
    }

    fn find(&self, front: u64, number: u64) -> Option<&Zygote> {
        self.0.iter().find(|zygote| zygote.front == front && zygote.number == number)
    }

    /// Front, number and process of each.
    pub fn list(&self) -> Vec<(u64, u64, u32)> {
        self.0.iter().map(|zygote| (zygote.front, zygote.number, zygote.child.pid())).collect()
    }

    /// From [`Zygotes::list`].
    pub fn of(list: Vec<(u64, u64, u32)>) -> Zygotes {
        let zygote = |(front, number, pid)| Zygote { front, number, child: Own::of(pid), by: None };
        Zygotes(list.into_iter().map(zygote).collect())
    }

    /// Whether this process is one of them.
    pub fn contains(&self, pid: u32) -> bool {
        self.0.iter().any(|zygote| zygote.child.pid() == pid)
    }

    /// Those whose front is gone end by themselves when they have finished what they were doing. One that does not, such as one that is
    /// stopped, is killed after `limit`.
    pub fn end_orphans(&mut self, now: Instant, limit: Duration, is_alive: impl Fn(u64) -> bool) {
        for zygote in self.0.iter_mut().filter(|zygote| !is_alive(zygote.front)) {
            let by = *zygote.by.get_or_insert_with(|| now.checked_add(limit).unwrap_or(now));
            if by <= now {
                tracing::error!(pid = zygote.child.pid(), "a zygote outlives its front; it is killed");
                zygote.child.signal(Signal::SIGKILL);
                zygote.by = now.checked_add(limit);
            }
        }
    }

    /// When [`Zygotes::end_orphans`] has to be called next.
    pub fn due(&self) -> Option<Instant> {
        self.0.iter().filter_map(|zygote| zygote.by).min()
    }

    /// Kills one.
    pub fn kill(&mut self, front: u64, number: u64) {
        let mut all = self.0.iter_mut();
        if let Some(zygote) = all.find(|zygote| zygote.front == front && zygote.number == number) {
            zygote.child.signal(Signal::SIGKILL);
        }
    }

    /// Kills a process by its pidfd if it is a worker of this zygote.
    pub fn kill_worker(&self, front: u64, number: u64, worker: &OwnedFd) {
        let Some(zygote) = self.find(front, number) else { return };
        // The descriptor stands for one process for ever. If that dies between the look and the signal, the signal finds nobody.
        match parent_of(worker.as_fd()) {
            Parent::Is(parent) if u32::try_from(parent) == Ok(zygote.child.pid()) => {
                let _ = pidfd_send_signal(worker, rustix::process::Signal::KILL);
            }
            Parent::Is(_) => {
                tracing::error!("the front asks to kill a process that is no worker of this zygote");
            }
            Parent::Gone => {}
            Parent::Hidden => {
                tracing::error!("the kernel does not say whose worker is to be killed: /proc hides it");
            }
        }
    }

    /// Those that have ended since the last call: front, number, status.
    pub fn ended(&mut self) -> Vec<(u64, u64, ExitStatus)> {
        let mut ended = Vec::new();
        self.0.retain_mut(|zygote| {
            let status = zygote.child.ended();
            ended.extend(status.map(|status| (zygote.front, zygote.number, status)));
            status.is_none()
        });
        ended
    }

    /// Kills all, and with them their workers.
    pub fn end_all(&mut self) {
        for zygote in &mut self.0 {
            zygote.child.signal(Signal::SIGKILL);
        }
        // One that is stuck in the kernel must not hold up the end.
        for _ in 0..200 {
            self.ended();
            if self.0.is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Reaps what was left to this process by others' deaths: what scripts have started. Never one of its own children, whose end
/// somebody wants to know.
pub fn reap_strangers(known: impl Fn(u32) -> bool) {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    while let Some(pid) = waitid(Id::All, look | WaitPidFlag::WNOWAIT).ok().and_then(|dead| dead.pid()) {
        // One of its own: its turn comes, with a signal that is on its way.
        if u32::try_from(pid.as_raw()).is_ok_and(&known) || waitid(Id::Pid(pid), look).is_err() {
            return;
        }
    }
}

/// For how long the main thread of the process has been ready to run without a processor, in all; `None` where the kernel does not count
/// that (CONFIG_SCHED_INFO). The second number of /proc/PID/schedstat, in ns.
fn waited_for_a_processor(pid: u32) -> Option<Duration> {
    let counted = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    Some(Duration::from_nanos(counted.split_ascii_whitespace().nth(1)?.parse().ok()?))
}

/// Whether a debugger holds the process.
fn is_traced(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")).is_some_and(|tracer| tracer.trim() != "0")
}
