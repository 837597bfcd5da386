//! Hayate's front: listeners, sites, routing, static files, and the translation between HTTP's messages and the ring.
//!
//! It promises limits on everything a client can make large or slow, and bounded memory per connection whatever the size of bodies. It
//! knows nothing of how HTTP goes over a connection, which is `hayate-http`'s affair; nothing of PHP beyond the extension of scripts,
//! nothing of processes, and nothing of configuration files.
//!
//! What belongs to a connection is its [`Thread`]'s, what all share is in [`Front`]. A thread runs the runtime that [`runtime::build`]
//! makes; only file reads and logs use other threads.

// Nothing that a client, a script, a file or a clock says may end in a panic here. Exceptions say why they cannot.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo
    )
)]

mod access_log;
mod account;
mod answer_files;
mod by_address;
mod compress;
mod connection;
mod crowd;
mod date;
mod descriptors;
mod disk;
mod dynamic;
mod field;
mod file_body;
mod files;
mod forwarded;
#[cfg(test)]
mod fuzz;
#[cfg(any(test, feature = "fuzzed"))]
#[doc(hidden)]
#[allow(clippy::panic, clippy::unwrap_used)]
pub mod fuzzed;
mod gather;
mod host;
mod listen;
mod log_writer;
mod meet;
mod metrics;
mod near;
mod pages;
mod promise;
mod quic;
mod reader;
mod relay;
mod reminder;
mod reply;
mod request;
mod request_body;
mod round;
mod route;
pub mod rules;
pub mod runtime;
mod shown;
mod site;
mod snapshot;
mod target;
mod temp;
mod thread;
mod threads;
mod translate;

use std::{
    collections::HashMap,
    net::IpAddr,
    ops::RangeInclusive,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, Release},
        },
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use hayate_panics::{PAUSE, Panicked, caught};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, watch},
    time::MissedTickBehavior,
};

use crate::{
    by_address::{ByAddress, Held, TooMany},
    crowd::choose,
    reminder::Reminder,
    round::{Candidates, Place as At, Rounds, Want},
    snapshot::Snapshot,
    threads::Admitted,
};

pub use access_log::{AccessLog, Format};
pub use compress::{Coding, Compression};
pub use disk::{Disk, Place};
pub use listen::{ListenAddr, Listener};
pub use log_writer::LogWriter;
pub use meet::{Http3, Port, Tls};
pub use metrics::{Metrics, SiteMetrics};
pub use reader::Reader;
pub use route::Script;
pub use site::{Backend, Beside, Elsewhere, FileId, FileRules, HostPattern, Routes, Site};
pub use thread::Thread;
pub use threads::Threads;

/// What holds for all sites.
#[derive(Clone)]
pub struct Settings {
    /// See there.
    pub limits: Limits,
    /// Where answered requests are written down.
    pub access_log: AccessLog,
    /// Peers whose `Forwarded` and `X-Forwarded-*` headers are believed.
    pub trusted_proxies: Vec<ipnet::IpNet>,
    /// Whether peers on unix sockets are believed as well.
    pub trust_unix: bool,
    /// Shows reasons on error pages. Never in production.
    pub development: bool,
    /// Whether clients without TLS may begin with HTTP/2's preface.
    pub http2_prior_knowledge: bool,
    /// Whether clients of HTTP/1.1 get informational answers (103), as those of HTTP/2 do.
    pub early_hints_http1: bool,
    /// How connections begin, by the address that they come to; plainly where none is given.
    pub ports: HashMap<ListenAddr, Port>,
    /// TLS, if some of them speak it.
    pub tls: Option<Tls>,
}

/// What a client may do. Times are measured about once a second, so each may last up to a second longer.
/// Plans of programs before this one, which an upgrade hands over, lack what is new.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Bytes of a request's head; above: 431.
    pub head_size: usize,
    /// Headers in a request; above: 431.
    pub header_count: usize,
    /// Bytes of the request target; above: 414.
    pub uri_length: usize,
    /// Bytes of a request's body; above: 413. 0: no limit.
    pub body_size: u64,
    /// For a PROXY header, and for agreeing upon TLS.
    pub handshake_timeout: Duration,
    /// From the first byte of a head to its end.
    pub header_timeout: Duration,
    /// Between two requests on one connection.
    pub idle_timeout: Duration,
    /// Between two pieces of a request's body.
    pub body_timeout: Duration,
    /// Bytes a second that a client has to send of a body; it may be behind by as long as `body_timeout`. If a worker waits for it and other
    /// requests for a worker: over any three seconds. If it is in a temporary file, little is left of `temp_size`, and its client holds no
    /// less of that than others do: over any ten seconds, and at least a 600th of what it has sent. 0: no such rule.
    pub body_rate: u64,
    /// While the client takes no byte of the answer.
    pub write_timeout: Duration,
    /// Bytes a second that a client has to take of an answer, beside what `write_timeout` forgives. 0: no such rule.
    #[serde(default)]
    pub write_rate: u64,
    /// HTTP/2: requests at one time on one connection.
    pub http2_streams: u32,
    /// HTTP/2: bytes of a request's body that may be under way on one stream; on a connection four times as many.
    pub http2_window: u32,
    /// HTTP/2: bytes of answers that may wait on one connection for the socket to take them; each stream has its part, 16 KB at least.
    pub http2_send_buffer: usize,
    /// HTTP/2: streams that a client has opened and reset before they were looked at; with one more the connection ends.
    pub http2_resets: usize,
    /// HTTP/2: what small pieces of request bodies may cost a connection until they are read, see [`hayate_http::Limits::frame_budget`].
    /// `None`: twice `http2_window`. Decided where it is used: an upgrade hands over windows that a configuration without this key has chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2_frame_budget: Option<usize>,
    /// HTTP/2: streams of a connection that are reset since its client broke the protocol; one more ends the connection.
    pub http2_errors: usize,
    /// Bytes of memory for all heads that are not complete, and for bodies that have just begun. Above, the heads that took longest are
    /// given up, and bodies go to temporary files at once.
    pub gather_memory: usize,
    /// Bytes of memory for all requests that are being answered: heads, and what of answers clients have not taken. Above, connections that
    /// hold much are cut off, of the client that holds most first. 0: no limit.
    #[serde(default)]
    pub answer_memory: usize,
    /// Bytes of all temporary files together, in which bodies of slow clients wait; above, uploads get 503, and a slow reader whose worker
    /// others wait for is cut off. 0: no limit.
    pub temp_size: u64,
    /// The same for the files of one client: an IPv4 address, or 64 bits of an IPv6 address. 0: no limit.
    pub temp_size_per_client: u64,
    /// Connections at one time, on all listeners together; further ones wait in the listeners' backlogs. Of the open files that the
    /// process may have, connections get three quarters at most: half of the rest is for what they ask for, the other half for commands.
    pub connections: usize,
    /// Connections at one time of one client: an IPv4 address, or 64 bits of an IPv6 address; further ones are closed at once. Those of
    /// trusted proxies and of unix sockets do not count. 0: no limit.
    #[serde(default)]
    pub connections_by_address: usize,
    /// Requests at one time of one such client, which a trusted proxy names; above: 503. 0: no limit.
    #[serde(default)]
    pub requests_by_address: usize,
}

impl Limits {
    /// Sizes of heads for which a connection's buffers stay small.
    pub const HEAD_SIZE: RangeInclusive<usize> = 1 << 10..=1 << 20;
    /// Numbers of headers that cost little to look through.
    pub const HEADER_COUNT: RangeInclusive<usize> = 1..=10_000;
    /// Lengths of targets.
    pub const URI_LENGTH: RangeInclusive<usize> = 64..=65_534;

    /// The same within the ranges above, in which nothing panics.
    fn bounded(mut self) -> Limits {
        self.head_size = self.head_size.min(*Limits::HEAD_SIZE.end());
        self.header_count = self.header_count.min(*Limits::HEADER_COUNT.end());
        self.uri_length = self.uri_length.min(*Limits::URI_LENGTH.end());
        self.connections = self.connections.min(connections_by_open_files());
        self
    }
}

impl Settings {
    /// Whether a peer speaks for others; `None` is one on a unix socket.
    pub(crate) fn trusts(&self, peer: Option<IpAddr>) -> bool {
        match peer {
            Some(ip) => self.trusted_proxies.iter().any(|net| net.contains(&ip)),
            None => self.trust_unix,
        }
    }

    fn bounded(mut self) -> Settings {
        self.limits = self.limits.bounded();
        self
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_size: 32 << 10,
            header_count: 100,
            uri_length: 8 << 10,
            body_size: 128 << 20,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(60),
            body_rate: 500,
            write_timeout: Duration::from_secs(60),
            write_rate: 500,
            http2_streams: 128,
            http2_window: 256 << 10,
            http2_send_buffer: 4 << 20,
            http2_resets: 20,
            http2_frame_budget: None,
            http2_errors: 1024,
            gather_memory: 32 << 20,
            answer_memory: 256 << 20,
            temp_size: 4 << 30,
            temp_size_per_client: 1 << 30,
            connections: 16384,
            connections_by_address: 0,
            requests_by_address: 0,
        }
    }
}

/// How many connections leave descriptors for the files that some of them ask for, and for everything else.
fn connections_by_open_files() -> usize {
    (free_files() / 4 * 3).max(8)
}

/// How many descriptors there are for connections, and for what they ask for.
fn free_files() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    files.saturating_sub(OTHER_FILES)
}

/// Descriptors that the front has besides those of its connections, or needs for a moment: listeners, workers, logs, commands.
const OTHER_FILES: usize = 96;

/// One part in so many of all connections is let go at one time when newcomers need room, and from that many left on.
const ROOM: usize = 16;
/// How long newcomers wait before room is made once more.
const BREATH: Duration = Duration::from_millis(100);
/// A client with so many connections has few: a browser opens six by HTTP/1.
const FEW: usize = 8;

/// How long the end waits for the access log's disk or pipe.
const LOG_PATIENCE: Duration = Duration::from_secs(5);
/// Once there were so many connections and half of them have gone, their memory is given back.
const MANY: usize = 256;

/// How often, in seconds, the heap is looked at for free memory while there are connections.
const LOOK_AT_HEAP: u32 = 10;

/// Where the front is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Also after each change of what is configured.
    Serving,
    /// Connections end with their next answer.
    Leaving,
    /// Connections end after their present request.
    Draining,
    /// All that are left are cut off.
    Closing,
}

/// The front: what all its threads share.
pub struct Front {
    snapshot: ArcSwap<Snapshot>,
    /// Counts snapshots: a thread that has seen this one need not look.
    version: AtomicU64,
    stage: watch::Sender<Stage>,
    /// Access logs that a reload has replaced and that requests still write to.
    former_logs: Mutex<Vec<AccessLog>>,
    metrics: Arc<Metrics>,
    disk: Disk,
    temp: Arc<temp::TempSpace>,
    /// Files that clients hold.
    descriptors: Arc<descriptors::Descriptors>,
    answer_files: Arc<answer_files::AnswerFiles>,
    keeper: rules::Keeper,
    gather: Arc<gather::Gather>,
    /// What connections hold while requests are answered.
    answers: Arc<hayate_http::Memory>,
    /// When it was last said that little is left of that.
    short: Reminder,
    /// Who is to be let go for want of memory, and of room.
    for_memory: Rounds,
    for_room: Rounds,
    /// Connections and requests of each address, where they have a limit.
    connections_of: Arc<ByAddress>,
    requests_of: Arc<ByAddress>,
    encoders: Arc<compress::Memory>,
    /// Open connections.
    connections: AtomicUsize,
    /// The first connection has come.
    begun: Notify,
    /// One has gone, or there may be more of them than before.
    room: Notify,
    /// This process is to end: no socket is closed before that.
    leaves: AtomicBool,
    /// When it was last said that there is no room.
    full: Reminder,
    /// Its threads, once [`Threads::start`] has started them.
    crew: OnceLock<Arc<threads::Crew>>,
}

impl Front {
    /// Runs what serves no visitor: a panic in it is counted as one of a visitor's request is.
    pub async fn caught<T>(&self, work: impl Future<Output = T>) -> Result<T, Panicked> {
        let done = caught(work).await;
        if done.is_err() {
            self.metrics.panicked();
        }
        done
    }

    /// Serves nothing until there is a [`Thread`] that does.
    pub fn new(settings: Settings, routes: Routes, metrics: Arc<Metrics>, disk: Disk) -> Arc<Front> {
        let gather = Arc::new(gather::Gather::default());
        gather.set_limit(settings.limits.gather_memory);
        let answers = Arc::clone(metrics.answers());
        answers.set_limit(settings.limits.answer_memory);
        Arc::new(Front {
            snapshot: ArcSwap::from_pointee(Snapshot { settings: settings.bounded(), routes }),
            version: AtomicU64::new(0),
            stage: watch::Sender::new(Stage::Serving),
            gather,
            answers,
            short: Reminder::default(),
            for_memory: Rounds::default(),
            for_room: Rounds::default(),
            connections_of: Arc::default(),
            requests_of: Arc::default(),
            encoders: Arc::default(),
            former_logs: Mutex::default(),
            metrics,
            temp: temp::TempSpace::new(&disk),
            descriptors: descriptors::Descriptors::new(free_files() / 4),
            answer_files: answer_files::AnswerFiles::new(free_files() / 4),
            keeper: rules::Keeper::default(),
            disk,
            connections: AtomicUsize::new(0),
            begun: Notify::new(),
            room: Notify::new(),
            leaves: AtomicBool::new(false),
            full: Reminder::default(),
            crew: OnceLock::new(),
        })
    }

    /// Replaces settings and routes together; requests that are being served keep the old ones.
    pub fn swap(&self, settings: Settings, routes: Routes) {
        self.keeper.prepare(routes.sites.iter());
        let new = Arc::new(Snapshot { settings: settings.bounded(), routes });
        self.gather.set_limit(new.settings.limits.gather_memory);
        self.answers.set_limit(new.settings.limits.answer_memory);
        let old = self.snapshot.swap(Arc::clone(&new));
        self.version.fetch_add(1, Release);
        if !old.settings.access_log.is_same(&new.settings.access_log) {
            self.former_logs().push(old.settings.access_log.clone());
        }
        drop(old);
        // Threads that have nothing to do let go of the old one.
        self.stage.send_modify(|_| {});
        self.flush_logs();
        self.room.notify_waiters();
    }

    /// The threads for files; [`Site::place`] is from here.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// What rules remember across reloads; [`rules::Rules::new`] wants it.
    pub fn keeper(&self) -> &rules::Keeper {
        &self.keeper
    }

    /// What was counted so far.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// The same of each thread, where there are [`Threads`].
    pub fn connections_by_thread(&self) -> Vec<usize> {
        self.crew.get().map_or_else(Vec::new, |crew| crew.connections())
    }

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

    /// Says that this process is to end, before its listeners are closed.
    pub fn will_end(&self) {
        self.leaves.store(true, Relaxed);
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

    /// Lets the access log out, and gives memory back; once for all threads, as long as the front runs.
    pub async fn watch(self: Arc<Self>) {
        self.temp.check().await;
        while caught(self.look_after()).await.is_err() {
            self.metrics.panicked();
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn look_after(&self) {
        let (mut most, mut ticks) = (0, 0);
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.connections() == 0 && most < MANY && !self.gather.was_large() {
                self.flush_logs();
                // A few that held much are as good as many.
                self.temp.give_memory_back();
                self.begun.notified().await;
                clock.reset();
            }
            clock.tick().await;
            self.flush_logs();
            let count = self.connections();
            most = most.max(count);
            let fewer = most >= MANY && count <= most / 2;
            if fewer {
                most = count;
            }
            ticks = (ticks + 1) % LOOK_AT_HEAP;
            if self.gather.shrank() || fewer || ticks == 0 {
                self.temp.give_memory_back();
            }
        }
    }

    /// Asks all connections to end with their next answer, and waits for that at most so long. Those that idle are still open then, so a
    /// client that sends a request in this time gets its answer, and hears that another connection is wanted for the next one.
    pub async fn leave(&self, grace: Duration) {
        self.stage.send_replace(Stage::Leaving);
        let _ = tokio::time::timeout(grace, self.are_gone()).await;
    }

    /// Asks all connections to end after their present request, and waits for that at most until the deadline.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.stage.send_replace(Stage::Draining);
        tokio::time::timeout(deadline, self.are_gone()).await.is_ok()
    }

    /// Cuts off the connections that are left, and writes down what there is to write. The end: call nothing else afterwards.
    pub async fn close(&self) {
        self.stage.send_replace(Stage::Closing);
        self.are_gone().await;
        self.finish_logs().await;
    }

    async fn are_gone(&self) {
        loop {
            let gone = self.room.notified();
            if self.connections() == 0 {
                return;
            }
            gone.await;
        }
    }

    /// The access log in force.
    pub fn access_log(&self) -> AccessLog {
        self.snapshot.load().settings.access_log.clone()
    }

    /// Reopens the access log's file, after it was rotated or a reload asks for it; what was written before goes to the old one.
    pub async fn reopen_logs(&self) -> std::io::Result<()> {
        self.access_log().reopen().await
    }

    fn former_logs(&self) -> MutexGuard<'_, Vec<AccessLog>> {
        self.former_logs.lock()
    }

    /// Hands what was gathered to the access log's thread, and says how many lines were lost.
    fn flush_logs(&self) {
        let mut lost = self.snapshot.load().settings.access_log.flush();
        self.former_logs().retain(|log| {
            lost += log.flush();
            log.is_shared()
        });
        if lost > 0 {
            self.metrics.lost_lines(lost);
            tracing::error!(
                lines = lost,
                "lines of the access log were lost: it cannot be written, or not fast enough"
            );
        }
    }

    /// Waits until the access log is written, for a few seconds at most.
    async fn finish_logs(&self) {
        let mut logs = std::mem::take(&mut *self.former_logs());
        logs.push(self.access_log());
        for log in &logs {
            if !log.finish(LOG_PATIENCE).await {
                tracing::error!("the access log's last lines are lost: what it is written to takes nothing");
            }
            self.metrics.lost_lines(log.flush());
        }
    }
}
