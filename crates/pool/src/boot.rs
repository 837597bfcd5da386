//! The boot as the supervisor sees it: it starts the zygote, hears how the boot went, and ends one that takes too long.

use std::{io, sync::Arc, sync::atomic::Ordering::*};

use rustix::io::Errno;
use tokio::time::Instant;

use crate::{
    channel::{Again, Command, Message},
    generation::{BootError, Health},
    host::Host,
    launch::Start,
    rewind::Unfit,
    status::Phase,
    supervisor::Supervisor,
    watchdog::Watchdog,
    worker::{Cause, State, Worker},
};

/// An error in words, with what to do where descriptors are at an end.
pub fn with_remedy(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => format!("{error}; raise the limit of open files (LimitNOFILE)"),
        _ => error.to_string(),
    }
}

impl Supervisor {
    pub(crate) fn start_host(&mut self) {
        let shared = Arc::clone(&self.shared);
        let start = {
            let boot = &shared.table().boot;
            Start { way: shared.spec.way, private: boot.private.is_some(), cold: boot.cold.is_some() }
        };
        let host = self.sound_ring().and_then(|ring| {
            Host::start(&*shared.launcher, &shared.spec, start, &self.hub, &ring, &shared.classes)
        });
        match host {
            Ok(host) => {
                self.watchdog = Watchdog::default();
                self.unreported.clear();
                self.said = None;
                self.came_up = false;
                self.tell_what_is_untold();
                self.host = Some(host);
            }
            Err(error) => {
                self.host_at = Instant::now() + self.host_backoff.failed();
                self.boot_failed(with_remedy(&error), Vec::new());
            }
        }
    }

    /// Ends boots that have taken longer than `boot_timeout`: the zygote's, or with a private boot the workers'. Returns when
    /// the next one will have.
    pub(crate) fn end_late_boots(&mut self, now: Instant) -> Option<Instant> {
        let limit = self.shared.spec.boot_timeout?;
        let reason = || {
            format!(
                "its boot, with its warm-up requests and hayate_on_worker_start(), did not end within {limit:?}; find out what it waits for (this server itself answers for it only \
                 when it has booted), or raise boot_timeout"
            )
        };
        let host = self.host.as_mut()?;
        if !host.ready {
            let due = host.started + limit;
            if due <= now && self.said.is_none() {
                self.said = Some(Message::BootFailed { worker: None, why: reason() });
                host.kill();
            }
            return (due > now).then_some(due);
        }
        let shared = Arc::clone(&self.shared);
        let (mut next, mut late) = (None::<Instant>, Vec::new());
        for (&index, worker) in &mut shared.table().workers {
            if worker.ready || worker.sentence.is_some() || worker.state == State::Dead {
                continue;
            }
            let due = worker.forked + limit;
            if due > now {
                next = Some(next.map_or(due, |before| before.min(due)));
            } else {
                late.push(index);
            }
        }
        for index in &late {
            self.sentence(*index, Cause::BootFailed);
        }
        if !late.is_empty() && self.hold_forks(now) {
            let log = self.host.as_ref().map(|host| host.tail.lines()).unwrap_or_default();
            self.boot_failed(reason(), log);
        }
        next
    }

    /// Whoever waits for the first boot has not been told how it went.
    pub(crate) fn is_booting(&self) -> bool {
        matches!(*self.health.borrow(), Health::Booting)
    }

    /// A worker that boots by itself asks for another boot, or needs one. The zygote, which knows nothing of it yet, ends.
    pub(crate) fn boot_again(&mut self, message: Message) {
        self.said = Some(message);
        if let Some(host) = &self.host
            && let Err(error) = host.send(Command::Quit)
        {
            tracing::error!(app = self.shared.spec.name, "the zygote does not listen: {error}");
        }
    }

    /// Whether there are workers but this one that have requests, or may have at any time.
    pub(crate) fn serves_beside(&self, index: u32) -> bool {
        let alive =
            |worker: &Worker| worker.ready && worker.sentence.is_none() && worker.dead_since.is_none();
        !self.is_booting()
            && self.shared.table().workers.iter().any(|(&other, worker)| other != index && alive(worker))
    }

    /// A worker has booted by itself and cannot be served from as it has, while others serve. What made it so may be gone with the next boot (a log
    /// that it has rotated, a lock that a visitor held), so that is waited for. When it says the same another generation is asked for, beside
    /// this one, whose workers finish what they have begun.
    pub(crate) fn decline_beside(&mut self, index: u32, how: Again, why: String) {
        let Some(forked) = self.shared.table().workers.get(&index).map(|worker| worker.forked) else {
            return self.distrust("speaks of a worker that there is not");
        };
        self.unbooted.insert(index);
        self.shared.table().boot_error = Some(why.clone());
        tracing::warn!(
            app = self.shared.spec.name,
            worker = index,
            "a worker that was started beside others cannot be served from as it has booted, and boots once more: {why}"
        );
        if self.declined.is_none_or(|at| forked < at) {
            self.declined.get_or_insert_with(Instant::now);
            return;
        }
        let why = format!(
            "twice in a row a worker that was started beside others could not be served from as it had booted: {why}"
        );
        let unfit = match how {
            Again::Fork | Again::Classic | Again::OnceMore => Unfit::at_boot(how == Again::Fork, why),
            Again::Private | Again::Cold | Again::Differs => Unfit::declined(why),
        };
        self.unfit.send_if_modified(|known| known.is_none().then(|| *known = Some(unfit)).is_some());
    }

    /// Tells the world when enough workers are ready.
    pub(crate) fn look_whether_ready(&mut self) {
        let mut table = self.shared.table();
        // A worker may say so before the zygote has said who it is.
        let ready = table.workers.values().filter(|worker| worker.ready && worker.pid != 0).count();
        if ready > 0 {
            self.came_up = true;
            table.unavailable = None;
            self.shared.failing.store(false, Relaxed);
            self.turns_away = false;
            // Fewer than MIN serve as well.
            if table.phase == Phase::Failing {
                table.phase = Phase::Serving;
            }
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

    /// No worker serves, and none will within a moment: requests are refused, those that wait for a worker as well, until one is ready.
    pub(crate) fn cannot_serve(&mut self, why: String) {
        self.shared.table().unavailable = Some(why);
        self.shared.failing.store(true, Relaxed);
        self.turns_away = true;
        // What waits now is turned away as long as somebody looks.
        self.shared.ring().nudge();
    }

    /// Nothing takes the place of a generation that is not fit. One that serves goes on; one that has not booted says why, and tries again.
    pub(crate) fn not_replaced(&mut self) {
        self.host_at = Instant::now() + self.host_backoff.failed();
        if self.host.is_none() {
            let why = self.unfit.borrow().as_ref().map(|unfit| unfit.why.clone());
            self.shared.table().phase = Phase::Failing;
            self.cannot_serve(why.unwrap_or_else(|| "it has not booted".into()));
        }
    }

    pub(crate) fn boot_failed(&mut self, reason: String, log: Vec<String>) {
        let error = BootError { app: self.shared.spec.name.clone(), reason, log };
        tracing::error!(app = error.app, "{error}");
        let others_serve = {
            let mut table = self.shared.table();
            table.boot_error = Some(error.reason.clone());
            let others_serve = table.workers.values().any(|worker| worker.ready);
            if matches!(table.phase, Phase::Booting | Phase::Serving) {
                table.phase = if others_serve { Phase::Serving } else { Phase::Failing };
            }
            others_serve
        };
        if !others_serve {
            self.cannot_serve(error.reason.clone());
        }
        // Whoever waits for the first boot wants all MIN workers; later the others will do.
        if self.is_booting() || !others_serve {
            self.health.send_replace(Health::Failing(error));
        }
    }
}
