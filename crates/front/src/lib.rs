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
mod admission;
mod anew;
mod answer_files;
mod by_address;
mod compress;
mod connection;
mod crowd;
mod date;
mod descriptors;
mod disk;
mod dynamic;
mod error_pages;
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
mod media_type;
mod meet;
mod metrics;
mod near;
mod pages;
mod promise;
mod punycode;
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
mod settings;
mod shown;
mod site;
mod snapshot;
mod target;
mod temp;
mod thread;
mod threads;
mod translate;
mod turned_away;
mod way;

use std::{
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
    task::JoinSet,
    time::MissedTickBehavior,
};

use crate::{
    by_address::ByAddress, reminder::Reminder, round::Rounds, settings::free_files, snapshot::Snapshot,
};

pub use access_log::{AccessLog, Format, json_without_controls};
pub use compress::{Coding, Compression};
pub use disk::{Disk, Place};
pub use error_pages::{ErrorPages, LARGEST as LARGEST_ERROR_PAGE};
pub use listen::{ListenAddr, Listener};
pub use log_writer::LogWriter;
pub use meet::{Http3, Port, Tls};
pub use metrics::{Metrics, SiteMetrics};
pub use reader::Reader;
pub use route::Script;
pub use settings::{Limits, Settings, TrustedHeaders};
pub use site::{Backend, Beside, Elsewhere, FileId, FileRules, HostPattern, Routes, Site};
pub use thread::Thread;
pub use threads::Threads;

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
    turned_away: turned_away::TurnedAway,
    /// When it was last said that lines of the access log were lost.
    lost_lines: Reminder,
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
            turned_away: turned_away::TurnedAway::default(),
            lost_lines: Reminder::default(),
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
        let gone = old.access_logs().filter(|old| !new.access_logs().any(|new| new.is_same(old)));
        self.former_logs().extend(gone.cloned());
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

    /// Says that this process is to end, before its listeners are closed.
    pub fn will_end(&self) {
        self.leaves.store(true, Relaxed);
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

    /// Asks all connections to end after their present request, and waits for that at most until the deadline. The number of those that are
    /// open then.
    pub async fn drain(&self, deadline: Duration) -> usize {
        self.stage.send_replace(Stage::Draining);
        self.disk.dwindle();
        let _ = tokio::time::timeout(deadline, self.are_gone()).await;
        self.connections()
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

    /// The access logs in force.
    fn access_logs(&self) -> Vec<AccessLog> {
        self.snapshot.load().access_logs().cloned().collect()
    }

    /// Reopens the access logs' files, after they were rotated or a reload asks for it; what was written before goes to the old ones. Returns
    /// why some go on as they were.
    pub async fn reopen_logs(&self) -> Vec<std::io::Error> {
        let mut failed = Vec::new();
        // Each for itself: one may be stalled.
        let mut all: JoinSet<_> = JoinSet::new();
        for log in self.access_logs() {
            all.spawn(async move { log.reopen().await });
        }
        while let Some(reopened) = all.join_next().await {
            failed.extend(reopened.unwrap_or_else(|error| Err(std::io::Error::other(error))).err());
        }
        failed
    }

    fn former_logs(&self) -> MutexGuard<'_, Vec<AccessLog>> {
        self.former_logs.lock()
    }

    /// Hands what was gathered to the access log's thread, and says how many lines were lost.
    fn flush_logs(&self) {
        let mut lost: u64 = self.snapshot.load().access_logs().map(AccessLog::flush).sum();
        self.former_logs().retain(|log| {
            lost += log.flush();
            // The end waits for what a slow disk or pipe still has to take.
            log.is_shared() || !log.is_idle()
        });
        self.metrics.lost_lines(lost);
        if let Some(lines) = self.lost_lines.have_happened(lost) {
            tracing::error!(
                lines,
                "lines of the access log were lost: it cannot be written, or not fast enough"
            );
        }
    }

    /// Waits until the access log is written, for a few seconds at most.
    async fn finish_logs(&self) {
        let mut logs = std::mem::take(&mut *self.former_logs());
        logs.extend(self.access_logs());
        let mut all: JoinSet<_> = JoinSet::new();
        for log in logs {
            all.spawn(async move {
                if !log.finish(LOG_PATIENCE).await {
                    let path = log.path().unwrap_or(std::path::Path::new("-")).display();
                    tracing::error!(
                        "the last lines of the access log {path} are lost: what it is written to takes nothing"
                    );
                }
                log.flush()
            });
        }
        while let Some(finished) = all.join_next().await {
            self.metrics.lost_lines(finished.unwrap_or_default());
        }
    }
}
