//! Who is let in: connections are counted, in all and of each address, and room is made for newcomers.
//!
//! It promises that no more are served than there may be, but for one that nobody else can serve; and that a newcomer waits no longer than
//! until somebody goes. Whom it lets go is [`crate::crowd`]'s affair, and what a thread does about it the thread's.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use crate::{
    Front, Settings,
    by_address::{Held, TooMany},
    crowd::choose,
    round::{self, Candidates, Place as At, Want},
    threads::{self, Admitted},
};

/// One part in so many of all connections is let go at one time when newcomers need room, and from that many left on.
const ROOM: usize = 16;
/// How long newcomers wait before room is made once more.
const BREATH: Duration = Duration::from_millis(100);
/// A client with so many connections has few: a browser opens six by HTTP/1.
const FEW: usize = 8;

impl Front {
    /// Counts one more connection, if there may be one: asking and counting are one step, since threads accept at the same time.
    pub(crate) fn try_admit(self: &Arc<Self>) -> Option<Admitted> {
        let limit = self.snapshot.load().settings.limits.connections;
        let one_more = |count: usize| count.checked_add(1).filter(|count| *count <= limit);
        let before = self.connections.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        if before >= limit - limit / ROOM {
            self.let_go(Want::Room);
        }
        Some(self.admitted(before))
    }

    /// Counts one that was accepted in any case: nobody else can serve it.
    pub(crate) fn admit_at_once(self: &Arc<Self>) -> Admitted {
        let before = self.connections.fetch_add(1, Relaxed);
        self.admitted(before)
    }

    fn admitted(self: &Arc<Self>, before: usize) -> Admitted {
        self.metrics.connected(1);
        if before == 0 {
            self.begun.notify_one();
        }
        Admitted(Arc::clone(self))
    }

    /// Has connections let go for what there is too little of, now and then: all threads are asked for theirs.
    pub(crate) fn let_go(&self, want: Want) {
        let Some(crew) = self.crew.get() else { return };
        let rounds = match want {
            Want::Memory => &self.for_memory,
            Want::Room => &self.for_room,
        };
        if let Some((round, former)) = rounds.begin(want, crew.size()) {
            if let Some(said) = former {
                self.decide(want, said);
            }
            crew.tell_all(|| threads::Order::Say(Arc::clone(&round)));
        }
    }

    /// Chooses among what the threads have said, and tells them.
    pub(crate) fn decide(&self, want: Want, said: Candidates) {
        let Some(crew) = self.crew.get() else { return };
        let Candidates { all, leaving } = said;
        let mut chosen = match want {
            Want::Memory => {
                let excess =
                    round::excess_of_those_who_spoke(&all, self.answers.used(), self.answers.excess());
                choose(all, excess, 0)
            }
            Want::Room => {
                let excess = (all.len() / ROOM).max(1).saturating_sub(leaving);
                choose(all, excess, FEW)
            }
        };
        chosen.sort_unstable();
        for of_thread in chosen.chunk_by(|one, other| one.thread == other.thread) {
            let Some(At { thread, .. }) = of_thread.first() else { continue };
            // One that has ended holds nothing.
            crew.tell(*thread, threads::Order::LetGo(want, of_thread.iter().map(|at| at.id).collect()));
        }
    }

    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Relaxed);
        self.metrics.connected(-1);
        self.room.notify_waiters();
    }

    /// A place for one more connection of this peer; `None` where such have no limit.
    pub(crate) fn place_for(
        &self,
        settings: &Settings,
        peer: Option<IpAddr>,
    ) -> Result<Option<Held>, TooMany> {
        let most = settings.limits.connections_by_address;
        let Some(ip) = self.limited(settings, peer) else { return Ok(None) };
        self.connections_of.take(ip, most).map(Some).inspect_err(|_| {
            self.metrics.closed_by_address();
            if let Some(times) = self.connections_of.reminder.happened() {
                tracing::warn!(
                    client = ip.to_string(),
                    "limits.connections_by_address ({most}) is reached: {times} connections were closed at once; a proxy that many \
                     visitors come by belongs into trusted_proxies"
                );
            }
        })
    }

    /// Whether an address has all its connections.
    pub(crate) fn has_all_places(&self, settings: &Settings, peer: Option<IpAddr>) -> bool {
        let most = settings.limits.connections_by_address;
        self.limited(settings, peer).is_some_and(|ip| self.connections_of.is_full(ip, most))
    }

    /// The address whose connections are counted.
    fn limited(&self, settings: &Settings, peer: Option<IpAddr>) -> Option<IpAddr> {
        peer.filter(|_| settings.limits.connections_by_address > 0 && !settings.trusts(peer))
    }

    /// [`Front::place_for`] for a request of this visitor.
    pub(crate) fn turn_for(
        &self,
        settings: &Settings,
        visitor: Option<IpAddr>,
    ) -> Result<Option<Held>, TooMany> {
        let most = settings.limits.requests_by_address;
        let Some(ip) = visitor.filter(|_| most > 0) else { return Ok(None) };
        self.requests_of.take(ip, most).map(Some).inspect_err(|_| {
            self.metrics.refused_by_address();
            if let Some(times) = self.requests_of.reminder.happened() {
                tracing::warn!(
                    client = ip.to_string(),
                    "limits.requests_by_address ({most}) is reached: {times} requests got 503; a proxy that many visitors come by \
                     belongs into trusted_proxies"
                );
            }
        })
    }

    /// Waits until there may be one more connection, for the moment.
    pub(crate) async fn has_room(&self) {
        self.with_room(|| self.is_below_limit().then_some(())).await;
    }

    /// Waits until there may be one more connection, and counts it.
    pub(crate) async fn admit(self: &Arc<Self>) -> Admitted {
        self.with_room(|| self.try_admit()).await
    }

    fn is_below_limit(&self) -> bool {
        self.connections() < self.snapshot.load().settings.limits.connections
    }

    async fn with_room<T>(&self, attempt: impl Fn() -> Option<T>) -> T {
        loop {
            let room = self.room.notified();
            if let Some(done) = attempt() {
                return done;
            }
            if self.full.happened().is_some() {
                let limit = self.snapshot.load().settings.limits.connections;
                tracing::warn!(
                    "limits.connections ({limit}) is reached, or three quarters of the open files (LimitNOFILE); idle connections are closed for further \
                     ones, which wait"
                );
            }
            self.let_go(Want::Room);
            // Those that have come just now may be let go a little later.
            let _ = tokio::time::timeout(BREATH, room).await;
        }
    }
}
