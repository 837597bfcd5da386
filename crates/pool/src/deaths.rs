//! The deaths of workers and zygotes: what they held is settled, why they died is counted, and whether to wait before the next.

use std::{
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use hayate_ring::{Ring, Settled};
use rustix::process::Signal;
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Instant, sleep, timeout_at},
};

use crate::{
    cgroup,
    channel::{Again, Message},
    generation::{BootError, Health, Shared, Table},
    renewal::LONG,
    rewind::Unfit,
    status::Phase,
    supervisor::{Supervisor, TICK},
    worker::{Cause, Change, Worker},
};

/// What dies younger than this without having served died of something that will most likely happen again.
const INFANCY: Duration = Duration::from_secs(1);
/// OPcache's exit status where it cannot begin (`zend_accel_error_noreturn`: -2).
const NO_OPCACHE: i32 = 254;
/// How long the boot of what is to take a generation's place is waited for where it may take any time.
const REPLACING: Duration = Duration::from_secs(600);
/// How long killed processes may take to die, before their memory is given up.
pub(crate) const DYING: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Holds forks back for a while. Several failures at once are one: `false` when they are held back already.
    pub(crate) fn hold_forks(&mut self, now: Instant) -> bool {
        let first = self.fork_at <= now;
        if first {
            self.fork_at = now + self.fork_backoff.failed();
        }
        first
    }

    /// The zygote says that a worker has ended.
    pub(crate) fn worker_exited(&mut self, index: u32, pid: i32, status: i32) {
        if self.unreported.remove(&pid) {
            return; // seen by pidfd before
        }
        let app = &self.shared.spec.name;
        let table = self.shared.table();
        match table.workers.get(&index) {
            Some(worker) if worker.pid == pid => {
                if worker.process.as_ref().is_some_and(|process| !process.is_dead()) {
                    drop(table);
                    self.distrust("says that a worker has ended which lives");
                    return;
                }
            }
            _ => {
                tracing::error!(app, worker = index, pid, "the zygote reports the end of a stranger");
                return;
            }
        }
        drop(table);
        self.worker_gone(index, Some(status));
    }

    /// Ends a zygote that says what is not so.
    pub(crate) fn distrust(&mut self, what: &str) {
        if let Some(host) = &mut self.host {
            tracing::error!(app = self.shared.spec.name, pid = host.pid, "the zygote {what}; it is killed");
            host.distrusted = true;
            host.kill();
        }
    }

    /// A worker is dead. `status`: as the zygote tells it, if it does.
    pub(crate) fn worker_gone(&mut self, index: u32, status: Option<i32>) {
        let shared = Arc::clone(&self.shared);
        let Shared { spec, .. } = &*shared;
        let ring = self.shared.ring();
        let now = Instant::now();
        let mut table = self.shared.table();
        let Some(mut worker) = table.workers.remove(&index) else { return };
        let pid = worker.pid;
        worker.change(Change::Gone);
        let Settled { held, lost } = ring.worker_died(index);
        let record = ring.worker_record(index);
        let unbooted = self.unbooted.remove(&index);
        let cause = worker.cause(status, &record, unbooted);
        count(&mut table, cause);
        table.ended.add(&record);
        table.served = table.served.saturating_add(record.requests);
        let served_by_all =
            table.workers.values().fold(table.served, |sum, worker| sum.saturating_add(worker.requests));
        drop(table);
        let (label, served) = (cause.label(), record.requests);
        if let Cause::Doubt(doubt) = cause
            && self.fitness.is_news(doubt, worker.forked, now)
        {
            // A renewal is announced by whoever does it.
            if let Some(silent) = self.reminder.happened(doubt.label, now).filter(|_| !doubt.renews()) {
                let since = if silent > 0 {
                    format!(", {silent} times more since this was last said")
                } else {
                    String::new()
                };
                tracing::warn!(
                    app = spec.name,
                    worker = index,
                    pid,
                    "{}; the worker was replaced instead of rewound ({label}{since}). To avoid it: {}",
                    doubt.what,
                    doubt.remedy
                );
            }
            if doubt.weighs(now - worker.ready_at)
                && !self.fitness.is_outage(doubt, spec.connections, now)
                && let Some(unfit) = self.fitness.retired(doubt, served_by_all)
                && self.is_worker_mode()
            {
                self.unfit.send_if_modified(|known| known.is_none().then(|| *known = Some(unfit)).is_some());
            }
        }
        // One that grows has served more than that; so it goes with all of them.
        if let (Cause::MaxMemory, 0..=1, Some(limit)) = (cause, served, spec.max_memory)
            && self.reminder.happened("max_memory", now).is_some()
        {
            tracing::warn!(
                app = spec.name,
                worker = index,
                pid,
                "the worker held more than max_memory ({limit} bytes) after its first request, and was replaced: where its boot alone takes so much, \
                 each request costs a worker. Raise max_memory (--max-memory)"
            );
        }
        if cause.is_planned() {
            tracing::debug!(app = spec.name, worker = index, pid, served, "the worker ended: {label}");
        } else {
            tracing::warn!(
                app = spec.name,
                worker = index,
                pid,
                served,
                lost,
                "the worker ended: {label}{}",
                cause.remedy()
            );
        }
        if self.boots_cold_after(&worker, cause, index) {
            return;
        }
        // Whoever has sent the request may have left: by that alone nobody makes of the end of a page one that the application is to blame for.
        let useful = record.requests > 0 || held > 0 || now - worker.forked >= INFANCY;
        if cause.is_planned() || worker.sentence.is_some() || (worker.ready && useful) {
            self.fork_backoff.succeeded();
        } else {
            let delay = self.fork_backoff.failed();
            self.fork_at = now + delay;
            tracing::warn!(
                app = spec.name,
                "it had not served a request; the next one is forked in {delay:?}"
            );
            // A worker that has said why its own boot failed has been heard. One that ends in a boot of its own is a boot that failed, as a zygote
            // that does; any other may have been somebody's doing, until it happens again and again.
            let (booting, private) = (self.is_booting(), self.shared.table().boot.private.is_some());
            let serves = self.shared.table().workers.values().any(|worker| worker.serves());
            let failed = delay >= LONG || (private && !worker.ready);
            // One that has said how all are to boot instead ends as well.
            if cause != Cause::BootFailed && failed && self.said.is_none() && (booting || !serves) {
                let log = self.host.as_ref().map(|host| host.tail.lines()).unwrap_or_default();
                let remedy = cause.remedy();
                self.boot_failed(
                    format!("its workers end before they have served a request ({label}){remedy}"),
                    log,
                );
            }
        }
    }

    /// A worker that boots by itself has crashed in its boot or in a warm-up request, and no other serves: all are to boot without such requests, as
    /// after a zygote that does.
    fn boots_cold_after(&mut self, worker: &Worker, cause: Cause, index: u32) -> bool {
        let Cause::Signal(signal) = cause else { return false };
        let private = self.shared.table().boot.private.is_some();
        if worker.ready
            || !private
            || self.said.is_some()
            || self.is_ending()
            || !crashed(ExitStatus::from_raw(signal))
            || !self.makes_warmup_requests()
            || self.serves_beside(index)
        {
            return false;
        }
        let why = format!("a worker ended in its boot or in a warm-up request (signal {signal})");
        self.boot_again(Message::BootAgain { worker: Some(index), how: Again::Cold, why });
        true
    }

    fn makes_warmup_requests(&self) -> bool {
        !self.shared.spec.warmup.is_empty() && self.shared.table().boot.cold.is_none()
    }

    pub(crate) async fn zygote_died(&mut self, status: ExitStatus, why: Option<String>) {
        let Some(mut host) = self.host.take() else { return };
        let app = self.shared.spec.name.clone();
        self.shared.table().zygote = None;
        let ring = self.shared.ring();
        if !self.settle(&ring).await {
            // Two processes must not write to the same slots.
            self.renew_ring();
            ring.end();
        }
        let now = Instant::now();
        let said = match self.said.take() {
            Some(Message::BootAgain { worker, how: Again::OnceMore, why }) if self.declined.is_some() => {
                Some(Message::BootAgain { worker, how: Again::Classic, why })
            }
            // Under php-fpm a request that ends its process costs one page, and not the site.
            None if !host.ready && why.is_none() && crashed(status) && self.makes_warmup_requests() => {
                Some(Message::BootAgain {
                    worker: None,
                    how: Again::Cold,
                    why: format!("the process ended in the boot or in a warm-up request ({status})"),
                })
            }
            said => said,
        };
        match said {
            Some(Message::BootAgain { how: Again::OnceMore, why, .. }) => {
                tracing::warn!(app, "booting once more, since it may be otherwise then: {why}");
                self.declined = Some(now);
                self.host_at = now;
            }
            Some(Message::BootAgain { how: how @ (Again::Fork | Again::Classic), why, .. }) => {
                // Whoever started the generation replaces it, or says that nothing can ([`Generation::not_replaced`]).
                let unfit = Unfit::at_boot(how == Again::Fork, why.clone());
                let first = self
                    .unfit
                    .send_if_modified(|known| known.is_none().then(|| *known = Some(unfit)).is_some());
                let pause = self.host_backoff.failed();
                self.host_at =
                    now + if first { self.shared.spec.boot_timeout.unwrap_or(REPLACING) } else { pause };
                if first {
                    // Requests wait for what takes its place, as for the first boot.
                    let mut table = self.shared.table();
                    table.phase = Phase::Booting;
                    table.boot_error = Some(why.clone());
                } else {
                    self.shared.table().phase = Phase::Failing;
                    self.cannot_serve(why.clone());
                }
                self.health.send_replace(Health::Failing(BootError { app, reason: why, log: Vec::new() }));
            }
            Some(Message::BootAgain { how, why, .. }) if self.shared.table().boot.was_done(how) => {
                // It was booted in this very way: what asks for it again would do so for ever.
                self.host_at = now + self.host_backoff.failed();
                let log = host.last_lines().await;
                self.boot_failed(
                    format!("the boot is to be done again in the way in which it was done: {why}"),
                    log,
                );
            }
            Some(Message::BootAgain { how, why, .. }) => {
                let boot = &mut self.shared.table().boot;
                match how {
                    Again::Private => {
                        tracing::warn!(app, "each worker boots by itself: {why}");
                        boot.private = Some(why);
                    }
                    Again::Cold => {
                        // Some reasons bring a remedy of their own.
                        let remedy = if why.contains("To avoid it") {
                            ""
                        } else {
                            ". To keep it, close connections where $_SERVER['HAYATE_WARMUP'] is set, or name paths that need none: warmup"
                        };
                        tracing::warn!(
                            app,
                            "booting again without warm-up requests: {why}. Classes of packages that they needed are loaded at the boot, but \
                             what else they prepared is prepared anew by each request{remedy}"
                        );
                        boot.cold = Some(why);
                    }
                    Again::Differs => {
                        tracing::error!(
                            app,
                            "booting again without warm-up requests, since visitors would get wrong pages with them: {why}. The \
                             application keeps something of its first request in the process; find out what, or say that no \
                             warm-up requests are wanted: warmup = []"
                        );
                        boot.cold = Some(why);
                    }
                    Again::Fork | Again::Classic | Again::OnceMore => {} // matched above
                }
                self.host_at = now;
            }
            said if !host.ready => {
                self.host_at = now + self.host_backoff.failed();
                let reason = match (said, why) {
                    (_, Some(why)) => why,
                    (Some(Message::BootFailed { why, .. }), _) => why,
                    _ if status.code() == Some(NO_OPCACHE) => format!(
                        "the host ended before it was ready ({status}): OPcache could not begin, which says why in the log. Where /tmp \
                         cannot be written, name a place for its lock: opcache.lockfile_path in [app.ini]"
                    ),
                    _ => format!("the host ended before it was ready ({status}){}", died_for_memory(status)),
                };
                let log = host.last_lines().await;
                self.boot_failed(reason, log);
            }
            _ => {
                self.shared.table().zygote_deaths += 1;
                let delay = if now - host.started >= INFANCY
                    && self.came_up
                    && !self.is_booting()
                    && !host.distrusted
                {
                    self.host_backoff.succeeded();
                    Duration::ZERO
                } else {
                    self.host_backoff.failed()
                };
                if delay >= LONG {
                    let log = host.last_lines().await;
                    self.boot_failed(format!("its zygote ends again and again ({status})"), log);
                }
                self.host_at = now + delay;
                tracing::error!(
                    app,
                    pid = host.pid,
                    "the zygote died ({status}), and its workers with it; it is started again{}",
                    died_for_memory(status)
                );
            }
        }
    }

    /// After the zygote's death: waits until each of its workers is dead (the kernel kills them with it), and settles what they
    /// held. `false` when one does not die in time: it may be stuck in the kernel, and may write to the ring when it comes back.
    pub(crate) async fn settle(&mut self, ring: &Ring) -> bool {
        let deadline = Instant::now() + DYING;
        let workers = std::mem::take(&mut self.shared.table().workers);
        if workers.values().any(|worker| worker.pid == 0) {
            // Perhaps forked, but the zygote died before it could say so: then its end is a matter of being scheduled.
            sleep(2 * TICK).await;
        }
        let mut all = true;
        workers.values().filter_map(|worker| worker.process.as_ref()).for_each(|process| process.kill());
        for (index, mut worker) in workers {
            // One that could not be looked after may live as well.
            let dead = match worker.process.take() {
                Some(process) => dies(process.into_fd(), deadline).await,
                None => !worker.unseen,
            };
            if !dead {
                tracing::error!(
                    app = self.shared.spec.name,
                    pid = worker.pid,
                    "a killed worker does not die"
                );
                all = false;
            }
            worker.change(Change::Gone);
            ring.worker_died(index);
            let record = ring.worker_record(index);
            let mut table = self.shared.table();
            count(&mut table, worker.sentence.unwrap_or(Cause::ZygoteDied));
            table.ended.add(&record);
            table.served = table.served.saturating_add(record.requests);
        }
        self.unbooted.clear();
        all
    }
}

/// Counts an end.
fn count(table: &mut Table, cause: Cause) {
    *table.restarts.entry(cause.label()).or_default() += 1;
}

/// Waits for the end of a process that was sent SIGKILL.
async fn dies(process: OwnedFd, deadline: Instant) -> bool {
    // SAFETY: the registration owns the descriptor, and nobody else closes or replaces it.
    let Ok(process) = (unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) }) else {
        return false;
    };
    timeout_at(deadline, process.readable()).await.is_ok()
}

/// What there is to say where the kernel has killed a process for want of memory; else nothing.
fn died_for_memory(status: ExitStatus) -> String {
    let starved = status.signal() == Some(Signal::KILL.as_raw()) && cgroup::killed_for_memory();
    if starved { cgroup::out_of_memory() } else { String::new() }
}

/// By a fault of its own, and not because somebody has ended it.
fn crashed(status: ExitStatus) -> bool {
    let faults = [Signal::SEGV, Signal::BUS, Signal::ABORT, Signal::ILL, Signal::FPE];
    faults.into_iter().any(|fault| status.signal() == Some(fault.as_raw()))
}
