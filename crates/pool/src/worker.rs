//! One worker as the pool knows it: its state, and why it ended.
//!
//! ```text
//!  Starting ──► Idle ◄──► Serving ──► Retiring ──► Dead
//!     │           │          │                      ▲
//!     └───────────┴──────────┴──── killed, crashed ─┘
//! ```
//!
//! [`State::after`] is the only place that says which state follows which. `Idle`, `Serving` and `Retiring` are what the worker says
//! of itself in the shared memory; `Retiring` is also what the pool has asked of it; `Dead` is what the kernel says.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use hayate_ring::{WorkerRecord, layout::*};
use rustix::process::Signal;
use serde::Serialize;
use tokio::time::Instant;

use crate::{cgroup, process::Process, rewind::Doubt};

/// Where a worker is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Being forked, or (with a private boot) booting.
    Starting,
    /// Waits for a request.
    Idle,
    /// Runs PHP for a request.
    Serving,
    /// Leaves once its request is over.
    Retiring,
    /// Its process is gone.
    Dead,
}

impl State {
    /// All states, in the order of life.
    pub const ALL: [State; 5] = [State::Starting, State::Idle, State::Serving, State::Retiring, State::Dead];

    /// The name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Idle => "idle",
            State::Serving => "serving",
            State::Retiring => "retiring",
            State::Dead => "dead",
        }
    }

    fn after(self, change: Change) -> State {
        match (self, change) {
            (State::Dead, _) | (_, Change::Gone) => State::Dead,
            (State::Retiring, _) | (_, Change::Asked) => State::Retiring,
            (now, Change::Says(said)) => match said {
                HY_WORKER_IDLE => State::Idle,
                HY_WORKER_SERVING | HY_WORKER_REWINDING => State::Serving,
                HY_WORKER_RETIRING => State::Retiring,
                // STARTING, before it has said anything else; or nonsense, from a process that PHP code may have harmed.
                _ => now,
            },
        }
    }
}

/// What can change a worker's state.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// `enum hy_worker_state`, read from its record.
    Says(u32),
    /// The pool asked it to leave.
    Asked,
    /// The kernel says it is dead.
    Gone,
}

/// Why a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Asked,
    MaxRequests,
    MaxMemory,
    ScriptEnded,
    Fatal,
    /// A connection that it kept over rewinds was closed by its server, or not put back in time.
    ConnectionLost,
    /// A connection that it kept had reached its greatest age.
    ConnectionLifetime,
    /// It could not be rewound.
    Doubt(&'static Doubt),
    RequestTimeout,
    /// It wrote nonsense into the shared memory.
    Protocol,
    /// The shared memory was overwritten, and nobody knows by whom.
    Memory,
    /// The supervision met a fault of its own, and has ended all there was.
    Fault,
    /// It did not move when it was woken.
    Still,
    /// It was asked to leave, and did not.
    Lingered,
    /// Nobody said how.
    Unknown,
    BootFailed,
    ZygoteDied,
    /// The kernel killed it for want of memory.
    OutOfMemory,
    Signal(i32),
    ExitCode(i32),
}

/// Causes as they are counted, but for those with a number in them and [`crate::DOUBTS`]: metrics show them before the first one happens.
pub fn causes() -> impl Iterator<Item = String> {
    use Cause::*;
    let plain = [
        Asked,
        MaxRequests,
        MaxMemory,
        ScriptEnded,
        Fatal,
        ConnectionLost,
        ConnectionLifetime,
        RequestTimeout,
        Protocol,
        Memory,
        Fault,
        Still,
        Lingered,
        Unknown,
        BootFailed,
        ZygoteDied,
        OutOfMemory,
    ];
    plain.into_iter().map(Cause::label)
}

impl Cause {
    /// As counted in [`crate::Status::restarts`] and in the metrics.
    pub(crate) fn label(self) -> String {
        match self {
            Cause::Asked => "asked".into(),
            Cause::MaxRequests => "max_requests".into(),
            Cause::MaxMemory => "max_memory".into(),
            Cause::ScriptEnded => "script_ended".into(),
            Cause::Fatal => "fatal".into(),
            Cause::ConnectionLost => "connection_lost".into(),
            Cause::ConnectionLifetime => "connection_lifetime".into(),
            Cause::Doubt(doubt) => doubt.label.into(),
            Cause::RequestTimeout => "request_timeout".into(),
            Cause::Protocol => "protocol".into(),
            Cause::Memory => "memory".into(),
            Cause::Fault => "fault".into(),
            Cause::Still => "still".into(),
            Cause::Lingered => "lingered".into(),
            Cause::Unknown => "unknown".into(),
            Cause::BootFailed => "boot_failed".into(),
            Cause::ZygoteDied => "zygote_died".into(),
            Cause::OutOfMemory => "out_of_memory".into(),
            Cause::Signal(n) => format!("signal_{n}"),
            Cause::ExitCode(n) => format!("exit_{n}"),
        }
    }

    /// What to do about it, where that can be said, to be put behind the [`Cause::label`].
    pub(crate) fn remedy(self) -> String {
        if self == Cause::OutOfMemory { cgroup::out_of_memory() } else { String::new() }
    }

    /// Ends that belong to a healthy life, or that are told in another way; the rest is worth a warning each.
    pub(crate) fn is_planned(self) -> bool {
        matches!(
            self,
            Cause::Asked
                | Cause::MaxRequests
                | Cause::MaxMemory
                | Cause::ConnectionLost
                | Cause::ConnectionLifetime
                | Cause::Doubt(_)
        )
    }
}

/// One worker.
pub(crate) struct Worker {
    pub(crate) state: State,
    /// 0 until the zygote has told it.
    pub(crate) pid: i32,
    /// `None` until the zygote has told it, and when it was dead by then.
    pub(crate) process: Option<Process>,
    /// The zygote has told it, and it could not be looked up yet for want of open files: it may live, and nobody could end it.
    pub(crate) unseen: bool,
    /// When it was asked to leave.
    pub(crate) asked_at: Option<Instant>,
    /// Since when it is seen to be dead, while the zygote has not said so.
    pub(crate) dead_since: Option<Instant>,
    pub(crate) forked: Instant,
    /// For how long it has been seen to be ready and not to begin. A machine that slept counts for little.
    pub(crate) still: Duration,
    /// Whether it can take requests: forked from a booted zygote, or booted by itself.
    pub(crate) ready: bool,
    /// Since when, as far as is known; until then, since when there is something of it.
    pub(crate) ready_at: Instant,
    /// Why the pool ends it, if it does.
    pub(crate) sentence: Option<Cause>,
    /// When it is killed if it still runs the request of that ticket, which PHP may end before.
    pub(crate) unwinds: Option<(Instant, u64)>,
    /// Requests served when it was last looked at.
    pub(crate) requests: u64,
    /// Since when it has idled, as far as is known.
    pub(crate) idle_since: Instant,
}

impl Worker {
    pub(crate) fn new(now: Instant) -> Worker {
        Worker {
            state: State::Starting,
            pid: 0,
            process: None,
            unseen: false,
            dead_since: None,
            asked_at: None,
            forked: now,
            still: Duration::ZERO,
            ready: false,
            ready_at: now,
            sentence: None,
            unwinds: None,
            requests: 0,
            idle_since: now,
        }
    }

    /// Its process is found.
    pub(crate) fn take(&mut self, process: Process) {
        if self.sentence.is_some() {
            process.kill();
        }
        self.process = Some(process);
        self.unseen = false;
    }

    /// The one place where a worker's state changes.
    pub(crate) fn change(&mut self, change: Change) {
        self.state = self.state.after(change);
    }

    /// The pool asks it to leave.
    pub(crate) fn ask(&mut self, now: Instant) {
        self.change(Change::Asked);
        self.asked_at.get_or_insert(now);
    }

    /// Takes over what the worker says of itself.
    pub(crate) fn observe(&mut self, record: &WorkerRecord, now: Instant) {
        let before = self.state;
        self.change(Change::Says(record.state));
        if self.state != State::Idle || before != State::Idle || record.requests != self.requests {
            self.idle_since = now;
        }
        self.requests = record.requests;
    }

    /// Whether it counts towards the number of workers that is wanted.
    pub(crate) fn counts(&self) -> bool {
        matches!(self.state, State::Starting | State::Idle | State::Serving)
    }

    /// Whether it can take requests.
    pub(crate) fn serves(&self) -> bool {
        self.ready && self.sentence.is_none() && self.dead_since.is_none() && self.counts()
    }

    /// Why it ended, from what the kernel, the worker and the pool know. `status` is `None` when the zygote did not tell.
    pub(crate) fn cause(&self, status: Option<i32>, record: &WorkerRecord, boot_failed: bool) -> Cause {
        if let Some(sentence) = self.sentence {
            return sentence;
        }
        let Some(status) = status.map(ExitStatus::from_raw) else {
            return if record.retired == HY_RETIRED_ASKED { Cause::Asked } else { Cause::Unknown };
        };
        if let Some(signal) = status.signal() {
            let starved = signal == Signal::KILL.as_raw() && cgroup::killed_for_memory();
            return if starved { Cause::OutOfMemory } else { Cause::Signal(signal) };
        }
        if boot_failed {
            return Cause::BootFailed;
        }
        match (status.code().unwrap_or(0), record.retired) {
            (0, HY_RETIRED_ASKED) => Cause::Asked,
            (0, HY_RETIRED_MAX_REQUESTS) => Cause::MaxRequests,
            (0, HY_RETIRED_MAX_MEMORY) => Cause::MaxMemory,
            (0, HY_RETIRED_SCRIPT_ENDED) => Cause::ScriptEnded,
            (0, HY_RETIRED_FATAL) => Cause::Fatal,
            (0, HY_RETIRED_CONNECTION_LOST) => Cause::ConnectionLost,
            (0, HY_RETIRED_CONNECTION_LIFETIME) => Cause::ConnectionLifetime,
            (0, retired) => Doubt::of(retired).map_or(Cause::ExitCode(0), Cause::Doubt),
            (code, _) if code == HY_EXIT_MEMORY as i32 => Cause::Protocol,
            (code, _) => Cause::ExitCode(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(state: u32, retired: u32, requests: u64) -> WorkerRecord {
        WorkerRecord { state, retired, requests, ..WorkerRecord::default() }
    }

    #[test]
    fn states_follow_the_drawing() {
        use State::*;
        let says = |from: State, word| from.after(Change::Says(word));
        assert_eq!(says(Starting, HY_WORKER_STARTING), Starting);
        assert_eq!(says(Starting, HY_WORKER_IDLE), Idle);
        assert_eq!(says(Idle, HY_WORKER_SERVING), Serving);
        assert_eq!(says(Serving, HY_WORKER_IDLE), Idle);
        assert_eq!(says(Serving, HY_WORKER_RETIRING), Retiring);
        assert_eq!(says(Serving, 12345), Serving, "nonsense changes nothing");
        for state in State::ALL {
            assert_eq!(state.after(Change::Gone), Dead);
            if state != Dead {
                assert_eq!(state.after(Change::Asked), Retiring);
            }
        }
        // Nobody comes back.
        for word in 0..6 {
            assert_eq!(says(Retiring, word), Retiring);
            assert_eq!(says(Dead, word), Dead);
        }
        assert_eq!(Dead.after(Change::Asked), Dead);
    }

    #[test]
    fn idle_time_counts_from_the_last_sign_of_work() {
        let start = Instant::now();
        let later = |s| start + Duration::from_secs(s);
        let mut worker = Worker::new(start);
        worker.observe(&record(HY_WORKER_IDLE, 0, 0), later(1));
        assert_eq!(worker.idle_since, later(1));
        worker.observe(&record(HY_WORKER_IDLE, 0, 0), later(5));
        assert_eq!(worker.idle_since, later(1));
        // It served between two looks and is idle at both.
        worker.observe(&record(HY_WORKER_IDLE, 0, 3), later(9));
        assert_eq!(worker.idle_since, later(9));
    }

    #[test]
    fn causes() {
        let mut worker = Worker::new(Instant::now());
        let cause =
            |worker: &Worker, status, retired| worker.cause(Some(status), &record(0, retired, 1), false);
        assert_eq!(worker.cause(None, &record(0, 0, 1), false), Cause::Unknown);
        assert_eq!(cause(&worker, 71 << 8, HY_RETIRED_NOT), Cause::Protocol);
        assert_eq!(cause(&worker, 0, HY_RETIRED_MAX_MEMORY), Cause::MaxMemory);
        assert_eq!(cause(&worker, 0, HY_RETIRED_NOT), Cause::ExitCode(0));
        let aged = cause(&worker, 0, HY_RETIRED_CONNECTION_LIFETIME);
        assert_eq!((aged.label().as_str(), aged.is_planned()), ("connection_lifetime", true));
        assert_eq!(cause(&worker, 0, HY_RETIRED_REWIND_CHILD).label(), "rewind_child");
        assert_eq!(cause(&worker, 70 << 8, HY_RETIRED_NOT).label(), "exit_70");
        let replaced = cause(&worker, 0, HY_RETIRED_FILE_REPLACED);
        assert_eq!(replaced.label(), "file_replaced");
        assert!(replaced.is_planned());
        assert_eq!(cause(&worker, 70 << 8, HY_RETIRED_FILE_REPLACED).label(), "exit_70");
        assert_eq!(cause(&worker, 11, HY_RETIRED_ASKED).label(), "signal_11");
        assert_eq!(worker.cause(Some(70 << 8), &record(0, 0, 0), true), Cause::BootFailed);
        worker.sentence = Some(Cause::RequestTimeout);
        assert_eq!(cause(&worker, 9, HY_RETIRED_NOT), Cause::RequestTimeout);
    }
}
