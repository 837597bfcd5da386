//! Tells a zygote that is stopped or stuck from one that is busy, and does without it.
//!
//! A booted zygote does little between two messages, so one that leaves a question unanswered has stopped. Kills do not go through it, its
//! workers serve as long as they live, and the deaths that it does not report are seen by pidfd. What is missing is replacement: whoever
//! started the generation is asked to start another beside it, which costs no request; and if nobody does, or no worker is left, the zygote is
//! ended and started again here.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    channel::Command,
    process::{Found, Process, Stat},
    rewind::Unfit,
    supervisor::{Supervisor, TICK},
    worker::{Cause, State},
};

/// How often it is asked while requests are active, or somebody wants to know.
const PAUSE: Duration = Duration::from_secs(1);
/// How long it may take to answer while it runs. It needs microseconds; but the machine may be busy.
const ANSWER: Duration = Duration::from_secs(20);
/// How long it may stand still when the kernel says that it is stopped: `kill -STOP` and `kill -CONT` by an admin pass.
const STOPPED: Duration = Duration::from_secs(2);
/// How long the workers of a silent zygote go on serving while its generation is not replaced.
const REPLACED: Duration = Duration::from_secs(60);
/// How long a dead worker's zygote may take to say so. Longer than any pause of a healthy one that the test machines showed.
const REPORT: Duration = Duration::from_millis(500);

/// What is known of the zygote's health; made anew with each zygote.
#[derive(Default)]
pub(crate) struct Watchdog {
    number: i32,
    /// A question that it has not answered yet.
    asked: Option<Instant>,
    /// When it was last known to live.
    heard: Option<Instant>,
    /// Since when it counts as lost.
    pub(crate) lost: Option<Instant>,
}

impl Watchdog {
    /// It said something, and nothing but an answer answers.
    pub(crate) fn heard(&mut self, pong: Option<i32>) {
        if pong == Some(self.number) {
            self.asked = None;
            self.heard = Some(Instant::now());
            self.lost = None;
        }
    }
}

impl Supervisor {
    /// Asks the zygote whether it lives, and judges its silence. Returns when to be called again.
    pub(crate) fn watch_zygote(&mut self, now: Instant) -> Option<Instant> {
        let host = self.host.as_ref().filter(|host| host.ready)?;
        let dog = &mut self.watchdog;
        let Some(asked) = dog.asked else {
            let due = dog.heard.map_or(now, |heard| heard + PAUSE);
            if due > now {
                // Not worth waking up for.
                return None;
            }
            dog.number = dog.number.wrapping_add(1);
            dog.asked = Some(now);
            // When its channel is full, it is silent all the more.
            let _ = host.send(Command::Ping { number: dog.number });
            return Some(now + TICK);
        };
        let silent = now.saturating_duration_since(asked);
        let stopped = silent >= STOPPED && Stat::of(host.pid).is_some_and(|stat| stat.is_stopped());
        let unanswered_fork = {
            let table = self.shared.table();
            let mut forks = table.workers.values().filter(|worker| worker.pid == 0);
            forks.any(|worker| now.saturating_duration_since(worker.forked) >= ANSWER)
        };
        if !stopped && silent < ANSWER && !unanswered_fork {
            return Some(now + TICK.max(silent / 4).min(PAUSE));
        }
        let first = dog.lost.is_none();
        let lost = *dog.lost.get_or_insert(now);
        let pid = host.pid;
        let serves = self.shared.table().workers.values().any(|worker| worker.serves());
        let how = if stopped { "is stopped" } else { "does not answer" };
        if first {
            let app = &self.shared.spec.name;
            tracing::error!(
                app,
                pid,
                "the zygote {how}: no worker can be started; what lives goes on serving until it is replaced"
            );
            let unfit = Unfit::silent(format!("the zygote {how}, so the application is booted anew"));
            self.unfit.send_if_modified(|known| known.is_none().then(|| *known = Some(unfit)).is_some());
            self.tell_what_is_untold();
        }
        // With an end in sight the workers that live are all that is needed.
        if !serves || (!self.is_ending() && now.saturating_duration_since(lost) >= REPLACED) {
            if let Some(host) = &mut self.host {
                tracing::error!(
                    app = self.shared.spec.name,
                    pid,
                    "the zygote {how}; it is killed and started again"
                );
                host.kill();
            }
            return None;
        }
        Some(now + PAUSE)
    }

    /// Looks up the workers that could not be when the zygote told of them. Returns when to look again, while there are any. One that cannot be
    /// for long cannot be ended either: its zygote is, which takes it along.
    pub(crate) fn look_up_unseen(&mut self, now: Instant) -> Option<Instant> {
        let host = self.host.as_ref()?;
        let (mut any, mut late) = (false, false);
        for worker in self.shared.table().workers.values_mut().filter(|worker| worker.unseen) {
            match Process::find(worker.pid, host.pid, host.hold()) {
                Found::Child(process) => worker.take(process),
                // It has ended, and its number may be another's; the zygote says so, or has.
                Found::Gone | Found::Stranger => worker.unseen = false,
                Found::Later | Found::Hidden => {
                    any = true;
                    late |= now.saturating_duration_since(worker.forked) >= ANSWER;
                }
            }
        }
        if late {
            self.distrust("started a process that the server cannot look after for want of open files");
        }
        any.then(|| now + TICK)
    }

    /// Sees the deaths of workers that the zygote does not report. Returns when to look again, while there is one to wait for.
    pub(crate) fn see_deaths(&mut self, now: Instant) -> Option<Instant> {
        let (mut unreported, mut next) = (Vec::new(), None);
        for (&index, worker) in &mut self.shared.table().workers {
            let dead = worker.process.as_ref().is_some_and(|process| process.is_dead());
            if dead {
                let since = *worker.dead_since.get_or_insert(now);
                if now.saturating_duration_since(since) >= REPORT {
                    unreported.push((index, worker.pid));
                    continue;
                }
            }
            if dead || worker.sentence.is_some() {
                next = Some(now + TICK);
            }
        }
        for (index, pid) in unreported {
            self.unreported.insert(pid);
            self.worker_gone(index, None);
        }
        next
    }

    /// Ends workers that could serve and have never said that they idle or serve: somebody has stopped them, or they hang. No request shows it
    /// as long as others suffice. Returns when to look again, while there are any.
    pub(crate) fn end_those_that_do_not_begin(&mut self, now: Instant) -> Option<Instant> {
        let passed = now.saturating_duration_since(self.looked_at).min(PAUSE);
        let (mut ended, mut any) = (Vec::new(), false);
        for (&index, worker) in &mut self.shared.table().workers {
            if worker.state != State::Starting || !worker.serves() {
                continue;
            }
            any = true;
            worker.still = worker.still.saturating_add(passed);
            if worker.still >= ANSWER {
                ended.push((index, worker.pid));
            }
        }
        for (index, pid) in ended {
            if self.sentence(index, Cause::Still) {
                let app = &self.shared.spec.name;
                tracing::warn!(
                    app,
                    worker = index,
                    pid,
                    "the worker was forked and has not begun since (is it stopped?); it is killed"
                );
            }
        }
        self.looked_at = now;
        any.then(|| now + PAUSE)
    }

    /// Kills a worker, and notes why. `false` when it was sentenced before.
    pub(crate) fn sentence(&self, index: u32, cause: Cause) -> bool {
        let mut table = self.shared.table();
        let Some(worker) = table.workers.get_mut(&index) else { return false };
        let first = worker.sentence.is_none();
        worker.sentence.get_or_insert(cause);
        // One that the zygote has not told of yet is killed when it does.
        if let Some(process) = &worker.process {
            process.kill();
        }
        first
    }
}
