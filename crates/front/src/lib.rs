//! Hayate's front: listeners, HTTP/1 on hyper, routing, static files, and the translation between HTTP and the ring.
//!
//! It promises strict parsing (what is not plainly a request is refused before hyper sees it), limits on everything a client can
//! make large or slow, and bounded memory per connection whatever the size of bodies. It knows nothing of PHP beyond
//! the extension of scripts, nothing of processes, and nothing of configuration files.
//!
//! All of it runs on one thread, on the runtime that [`runtime::build`] makes; only file reads use other threads.
//!
//! *103 Early Hints*: hyper's server has no interface for informational responses other than 100, which it sends by itself
//! (version 1.12), so a script cannot send 103 through Hayate yet.

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
mod body;
mod connection;
mod date;
mod disk;
mod dynamic;
mod file_body;
mod files;
mod forwarded;
mod framing;
#[cfg(test)]
mod fuzz;
mod gather;
mod guard;
mod half_close;
mod head;
mod host;
mod listen;
mod log_writer;
mod metrics;
mod near;
mod pages;
mod panics;
mod promise;
mod relay;
mod request;
mod request_body;
mod route;
pub mod runtime;
mod site;
mod state;
mod target;
mod temp;
mod translate;

use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};

pub use access_log::{AccessLog, Format};
pub use disk::{Disk, Place};
pub use listen::{ListenAddr, Listener};
pub use log_writer::LogWriter;
pub use metrics::{Metrics, SiteMetrics};
pub use route::Script;
pub use site::{Backend, FileId, FileRules, HostPattern, Routes, Site};

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
}

/// What a client may do. Times are measured about once a second, so each may last up to a second longer.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Bytes of a request's head; above: 431.
    pub head_size: usize,
    /// Headers in a request; above: 431.
    pub header_count: usize,
    /// Bytes of the request target; above: 414.
    pub uri_length: usize,
    /// Bytes of a request's body; above: 413. 0: no limit.
    pub body_size: u64,
    /// From the first byte of a head to its end.
    pub header_timeout: Duration,
    /// Between two requests on one connection.
    pub idle_timeout: Duration,
    /// Between two pieces of a request's body.
    pub body_timeout: Duration,
    /// Bytes a second that a client has to send of a body on average, not counting the first `body_timeout`; and over any three
    /// seconds, if a worker waits for it and other requests for a worker. 0: no such rule.
    pub body_rate: u64,
    /// While the client takes no byte of the answer.
    pub write_timeout: Duration,
    /// Bytes of memory for all heads that are not complete, and for bodies that have just begun. Above, the heads that took longest are
    /// given up, and bodies go to temporary files at once.
    pub gather_memory: usize,
    /// Bytes of all temporary files together, in which bodies of slow clients wait; above, uploads get 503, and a slow reader whose worker
    /// others wait for is cut off. 0: no limit.
    pub temp_size: u64,
    /// The same for the files of one client: an IPv4 address, or 64 bits of an IPv6 address. 0: no limit.
    pub temp_size_per_client: u64,
    /// Connections at one time, on all listeners together; further ones wait in the listeners' backlogs. Of the open files that the
    /// process may have, connections get three quarters at most: the rest is for what they ask for, and for commands.
    pub connections: usize,
}

impl Limits {
    /// Sizes of heads for which a connection's buffers stay small.
    pub const HEAD_SIZE: RangeInclusive<usize> = 1 << 10..=1 << 20;
    /// Numbers of headers that hyper and its map of headers take without giving up.
    pub const HEADER_COUNT: RangeInclusive<usize> = 1..=10_000;
    /// Lengths of targets that hyper's `Uri` takes.
    pub const URI_LENGTH: RangeInclusive<usize> = 64..=target::LONGEST;

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
            header_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(60),
            body_rate: 500,
            write_timeout: Duration::from_secs(60),
            gather_memory: 32 << 20,
            temp_size: 4 << 30,
            temp_size_per_client: 1 << 30,
            connections: 16384,
        }
    }
}

/// How many connections leave descriptors for the files that some of them ask for, and for everything else.
fn connections_by_open_files() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    (files.saturating_sub(OTHER_FILES) / 4 * 3).max(8)
}

/// Descriptors that the front has besides those of its connections, or needs for a moment: listeners, workers, logs, commands.
const OTHER_FILES: usize = 96;

/// How long the end waits for the access log's disk or pipe.
const LOG_PATIENCE: Duration = Duration::from_secs(5);

/// The front: what all connections share.
pub struct Front {
    settings: ArcSwap<Settings>,
    routes: ArcSwap<Routes>,
    /// Access logs that a reload has replaced and that requests still write to.
    former_logs: Mutex<Vec<AccessLog>>,
    metrics: Arc<Metrics>,
    disk: Disk,
    temp: Arc<temp::TempSpace>,
    gather: Arc<gather::Gather>,
    connections: connection::Connections,
    /// `None` once the front drains.
    graceful: Mutex<Option<hyper_util::server::graceful::GracefulShutdown>>,
    request_prefix: u32,
    next_request: AtomicU64,
}

impl Front {
    /// Serves nothing until [`Front::serve`] is called.
    pub fn new(settings: Settings, routes: Routes, metrics: Arc<Metrics>, disk: Disk) -> Arc<Front> {
        let mut seed = [0; 4];
        // The ids only need to differ between runs; without randomness they would still differ within one.
        let _ = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        let gather = Arc::new(gather::Gather::default());
        gather.set_limit(settings.limits.gather_memory);
        Arc::new(Front {
            settings: ArcSwap::from_pointee(settings.bounded()),
            gather,
            routes: ArcSwap::from_pointee(routes),
            former_logs: Mutex::default(),
            metrics,
            temp: temp::TempSpace::new(&disk),
            disk,
            connections: connection::Connections::default(),
            graceful: Mutex::new(Some(hyper_util::server::graceful::GracefulShutdown::new())),
            request_prefix: u32::from_ne_bytes(seed),
            next_request: AtomicU64::new(0),
        })
    }

    /// Replaces settings and routes together; requests that are being served keep the old ones.
    pub fn swap(&self, settings: Settings, routes: Routes) {
        let old = self.settings.swap(Arc::new(settings.bounded()));
        self.gather.set_limit(self.settings.load().limits.gather_memory);
        self.routes.store(Arc::new(routes));
        if !old.access_log.is_same(&self.settings.load().access_log) {
            self.former_logs().push(old.access_log.clone());
        }
        drop(old);
        self.flush_logs();
        self.connections.look_for_room();
    }

    /// The routes in force.
    pub fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// The threads for files; [`Site::place`] is from here.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// What was counted so far.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.connections.count()
    }

    /// The access log in force.
    pub fn access_log(&self) -> AccessLog {
        self.settings.load().access_log.clone()
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
        let mut lost = self.settings.load().access_log.flush();
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

    fn request_id(&self) -> String {
        let number = u64::from(self.request_prefix) << 32
            | self.next_request.fetch_add(1, Ordering::Relaxed) & 0xffff_ffff;
        // By hand: formatting costs ten times as much, and every request has one.
        let digit = |i| char::from_digit((number >> (60 - 4 * i)) as u32 & 15, 16).unwrap_or('0');
        (0..16).map(digit).collect()
    }
}
