//! How many workers there are: more when requests wait, fewer when workers idle, never below MIN or above MAX. Where another generation serves,
//! as many as requests need, and none where there is no request.
//!
//! `target` is how many are wanted. Deaths leave it as it is, so that whoever dies is replaced; only the reasons above change it.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    channel::Command,
    generation::Shared,
    supervisor::{Supervisor, TICK},
    worker::{State, Worker},
};

/// How long a worker idles that is not needed, where requests may still come: a client that asks again at once is not to wait for a fork each time.
const LINGER: Duration = Duration::from_secs(1);

/// Forks under way at one time.
const BURST: usize = 16;

impl Supervisor {
    /// Wants more workers while requests wait and none is free.
    pub(crate) fn grow(&mut self, now: Instant) {
        let (Shared { spec, .. }, ring) = (&*self.shared, self.shared.ring());
        let waiting = ring.queued() + ring.waiting();
        if waiting == 0 || ring.sleeping_workers() > 0 {
            self.pressed_since = None;
            return;
        }
        let since = *self.pressed_since.get_or_insert(now);
        let (alive, starting) = self.count();
        // Where there is no worker at all, none becomes free.
        if now - since < TICK && alive > 0 {
            return;
        }
        self.pressed_since = Some(now);
        let more = waiting.saturating_sub(starting as usize).try_into().unwrap_or(u32::MAX);
        let wanted = alive.saturating_add(more).min(*spec.workers.end());
        if wanted > self.target {
            tracing::debug!(app = spec.name, waiting, from = self.target, to = wanted, "more workers");
            self.target = wanted;
        }
    }

    /// Lets workers above MIN go that have idled long enough. Returns when to look again, while there are any.
    pub(crate) fn shrink(&mut self, now: Instant) -> Option<Instant> {
        let (Shared { spec, .. }, ring) = (&*self.shared, self.shared.ring());
        let min = *spec.workers.start();
        let mut table = self.shared.table();
        let mut alive = table.workers.values().filter(|worker| worker.counts()).count() as u32;
        // The highest first: the front wakes the lowest first, so these are the coldest.
        for (&index, worker) in table.workers.iter_mut().rev() {
            if alive <= min || self.target <= min {
                break;
            }
            if worker.state == State::Idle && now - worker.idle_since >= spec.idle_timeout {
                tracing::debug!(app = spec.name, worker = index, "idle for idle_timeout; the worker may go");
                worker.ask(now);
                ring.quit_worker(index);
                self.target -= 1;
                alive -= 1;
            }
        }
        let pause = (spec.idle_timeout / 4).clamp(TICK, Duration::from_secs(5));
        (alive > min).then(|| now + pause)
    }

    /// Lets workers go that no request needs, and replaces those that end only where requests wait. Returns when to look again, while there are any.
    pub(crate) fn dwindle(&mut self, now: Instant) -> Option<Instant> {
        let ring = self.shared.ring();
        let waiting = ring.queued() + ring.waiting();
        let needed = u32::try_from(ring.active() + ring.waiting()).unwrap_or(u32::MAX);
        // Where it ends all others have gone elsewhere.
        let patience = if self.is_ending() { Duration::ZERO } else { LINGER };
        let mut table = self.shared.table();
        let mut alive = table.workers.values().filter(|worker| worker.counts()).count() as u32;
        let mut next = None::<Instant>;
        for (&index, worker) in table.workers.iter_mut().rev() {
            if alive <= needed {
                break;
            }
            let due = match worker.state {
                State::Idle => worker.idle_since + patience,
                // It is about to idle, or about to go.
                _ => now + LINGER,
            };
            if due > now {
                next = Some(next.map_or(due, |before| before.min(due)));
                continue;
            }
            worker.ask(now);
            ring.quit_worker(index);
            alive -= 1;
        }
        drop(table);
        self.target = self.target.min(needed);
        if waiting == 0 {
            self.target = self.target.min(alive);
        }
        next
    }

    /// `(alive, of these not ready yet)`
    fn count(&self) -> (u32, u32) {
        let table = self.shared.table();
        let alive = table.workers.values().filter(|worker| worker.counts());
        let starting = alive.clone().filter(|worker| !worker.ready).count();
        (alive.count() as u32, starting as u32)
    }

    pub(crate) fn fork_missing(&mut self, now: Instant) {
        let Some(host) = &self.host else { return };
        let (Shared { spec, .. }, ring) = (&*self.shared, self.shared.ring());
        let (mut alive, starting) = self.count();
        let mut burst = starting as usize;
        let mut table = self.shared.table();
        while alive < self.target && burst < BURST {
            let free = (0..*spec.workers.end()).find(|index| !table.workers.contains_key(index));
            let Some(worker) = free else { return }; // some are still leaving
            ring.prepare_worker(worker);
            if let Err(error) = host.send(Command::Fork { worker }) {
                tracing::error!(app = spec.name, "the zygote does not listen: {error}");
                ring.worker_died(worker);
                drop(table);
                self.hold_forks(now);
                return;
            }
            table.workers.insert(worker, Worker::new(now));
            alive += 1;
            burst += 1;
        }
    }
}
