//! /metrics: the front's counters, and what the pools say of themselves when they are asked.

use std::{
    fs,
    sync::{Arc, atomic::AtomicU64},
};

use hayate_pool::{DOUBTS, Phase, RewindStatus, RewindTotals, State, causes};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

use crate::server::AppStatus;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct App {
    app: String,
}
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Thread {
    thread: u32,
}
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AppState {
    app: String,
    state: &'static str,
}
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AppCause {
    app: String,
    cause: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AppPhase {
    app: String,
    phase: &'static str,
}
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AppTracking {
    app: String,
    tracking: &'static str,
}
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AppTo {
    app: String,
    to: &'static str,
}

/// All metrics of the process.
pub struct Metrics {
    registry: Registry,
    /// The front's part.
    pub front: Arc<hayate_front::Metrics>,
    workers: Family<AppState, Gauge>,
    tracking: Family<AppTracking, Gauge>,
    restarts: Family<AppCause, Counter>,
    slow: Family<App, Counter>,
    queue: Family<App, Gauge>,
    ready: Family<App, Gauge>,
    memory: Family<App, Gauge>,
    rewinds: Family<App, Counter>,
    rewind_seconds: Family<AppPhase, Counter<f64, AtomicU64>>,
    cold_pages: Family<App, Counter>,
    hot_pages: Family<App, Gauge>,
    warm: Family<App, Gauge>,
    resets: Family<App, Counter>,
    reset_seconds: Family<App, Counter<f64, AtomicU64>>,
    fallback: Family<AppTo, Gauge>,
    thread_connections: Family<Thread, Gauge>,
    front_memory: Gauge,
    log_lost: Counter,
    log_left_out: Counter,
    log_dropped: Family<App, Counter>,
}

impl Metrics {
    /// Makes and registers them.
    pub fn new() -> Metrics {
        let mut registry = Registry::default();
        let front = hayate_front::Metrics::new(&mut registry);
        let workers = Family::<AppState, Gauge>::default();
        registry.register("hayate_workers", "Workers, by state", workers.clone());
        let restarts = Family::<AppCause, Counter>::default();
        registry.register("hayate_worker_restarts", "Workers that ended, by cause", restarts.clone());
        let slow = Family::<App, Counter>::default();
        registry.register(
            "hayate_slow_requests",
            "Requests that ran longer than slow_request, or nine tenths of request_timeout",
            slow.clone(),
        );
        let queue = Family::<App, Gauge>::default();
        registry.register("hayate_queue_depth", "Requests that wait for a worker", queue.clone());
        let ready = Family::<App, Gauge>::default();
        registry.register("hayate_ready", "1 when the application can serve", ready.clone());
        let tracking = Family::<AppTracking, Gauge>::default();
        registry.register(
            "hayate_rewind_tracking",
            "1 for how written pages are found: uffd, soft-dirty or fork",
            tracking.clone(),
        );
        let memory = Family::<App, Gauge>::default();
        registry.register_with_unit(
            "hayate_memory",
            "Memory of PHP processes: what several share counts in parts (PSS)",
            Unit::Bytes,
            memory.clone(),
        );
        let rewinds = Family::<App, Counter>::default();
        registry.register("hayate_rewinds", "Workers put back to their snapshot", rewinds.clone());
        let rewind_seconds = Family::<AppPhase, Counter<f64, AtomicU64>>::default();
        registry.register_with_unit(
            "hayate_rewind",
            "Time that rewinding took: cleaning up after the request, scanning for what it wrote, copying that back",
            Unit::Seconds,
            rewind_seconds.clone(),
        );
        let cold_pages = Family::<App, Counter>::default();
        registry.register(
            "hayate_rewind_cold_pages",
            "Pages put back that are not in the hot set",
            cold_pages.clone(),
        );
        let hot_pages = Family::<App, Gauge>::default();
        registry.register(
            "hayate_rewind_hot_pages",
            "Pages that each rewind puts back without looking",
            hot_pages.clone(),
        );
        let warm = Family::<App, Gauge>::default();
        registry.register(
            "hayate_warm_connections",
            "Connections to databases that workers keep over rewinds",
            warm.clone(),
        );
        let resets = Family::<App, Counter>::default();
        registry.register(
            "hayate_connection_resets",
            "Requests after which the server of such a connection was told to forget",
            resets.clone(),
        );
        let reset_seconds = Family::<App, Counter<f64, AtomicU64>>::default();
        registry.register_with_unit(
            "hayate_connection_reset",
            "Time that this took workers, the wait for the server included",
            Unit::Seconds,
            reset_seconds.clone(),
        );
        let fallback = Family::<AppTo, Gauge>::default();
        registry.register(
            "hayate_rewind_fallback",
            "1 when the application runs in this slower way, since its workers could not be rewound",
            fallback.clone(),
        );
        let thread_connections = Family::<Thread, Gauge>::default();
        registry.register(
            "hayate_thread_connections",
            "Open connections of each thread of the front",
            thread_connections.clone(),
        );
        let front_memory = Gauge::default();
        registry.register_with_unit(
            "hayate_front_memory",
            "Resident memory of the front",
            Unit::Bytes,
            front_memory.clone(),
        );
        let log_lost = Counter::default();
        registry.register(
            "hayate_log_lost",
            "Lines of Hayate's own log that standard error did not take",
            log_lost.clone(),
        );
        let log_left_out = Counter::default();
        registry.register(
            "hayate_log_left_out",
            "Lines of Hayate's own log that were left out, since many of the same kind were written",
            log_left_out.clone(),
        );
        let log_dropped = Family::<App, Counter>::default();
        registry.register(
            "hayate_log_dropped",
            "Lines of an application's log that were dropped, since it logs too much",
            log_dropped.clone(),
        );
        Metrics {
            registry,
            front,
            workers,
            restarts,
            slow,
            queue,
            ready,
            tracking,
            memory,
            rewinds,
            rewind_seconds,
            cold_pages,
            hot_pages,
            warm,
            resets,
            reset_seconds,
            fallback,
            thread_connections,
            front_memory,
            log_lost,
            log_left_out,
            log_dropped,
        }
    }

    /// The text format of Prometheus. `connections` are those of each thread.
    pub fn render(&self, apps: &[AppStatus], connections: &[usize]) -> String {
        for (thread, connections) in (0..).zip(connections) {
            self.thread_connections.get_or_create(&Thread { thread }).set(*connections as i64);
        }
        self.front.forget_gone();
        self.workers.clear();
        self.restarts.clear();
        self.slow.clear();
        self.queue.clear();
        self.ready.clear();
        self.tracking.clear();
        self.memory.clear();
        self.rewinds.clear();
        self.rewind_seconds.clear();
        self.cold_pages.clear();
        self.hot_pages.clear();
        self.warm.clear();
        self.resets.clear();
        self.reset_seconds.clear();
        self.fallback.clear();
        self.log_dropped.clear();
        for AppStatus { status, fallback, rewinds, .. } in apps {
            let app = || App { app: status.name.clone() };
            for state in State::ALL.into_iter().filter(|state| *state != State::Dead) {
                let n = status.workers.iter().filter(|worker| worker.state == state).count();
                self.workers
                    .get_or_create(&AppState { app: status.name.clone(), state: state.name() })
                    .set(n as i64);
            }
            let count = |cause: &str, n: u64| {
                let labels = AppCause { app: status.name.clone(), cause: cause.to_owned() };
                self.restarts.get_or_create(&labels).inc_by(n);
            };
            // An alert can be written before the first one happens.
            causes().for_each(|cause| count(&cause, 0));
            if let Some(rewind) = &status.rewind {
                DOUBTS.iter().for_each(|doubt| count(doubt.label, 0));
                self.render_rewind(&status.name, rewind);
            }
            // One that runs in classic mode by now has had rewinds before.
            if let Some(totals) = rewinds {
                self.render_totals(&status.name, totals);
            }
            if status.rewind.is_some() || fallback.is_some() {
                for to in ["classes", "fork", "classic"] {
                    let is_so = fallback.as_ref().is_some_and(|fallback| fallback.to == to);
                    let labels = AppTo { app: status.name.clone(), to };
                    self.fallback.get_or_create(&labels).set(i64::from(is_so));
                }
            }
            for (cause, n) in &status.restarts {
                count(cause, *n);
            }
            self.slow.get_or_create(&app()).inc_by(status.slow_requests);
            self.queue.get_or_create(&app()).set(status.queue as i64);
            let serves = status.unavailable.is_none() && status.state != Phase::Booting;
            self.ready.get_or_create(&app()).set(i64::from(serves));
            self.memory.get_or_create(&app()).set(status.memory as i64);
            self.log_dropped.get_or_create(&app()).inc_by(status.log_dropped);
        }
        let left_out = crate::logging::floods().left_out();
        self.log_left_out.inner().store(left_out, std::sync::atomic::Ordering::Relaxed);
        self.log_lost.inner().store(crate::logging::lost(), std::sync::atomic::Ordering::Relaxed);
        self.front_memory.set(resident_memory() as i64);
        let mut text = String::new();
        // A String takes everything.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Metrics {
    fn render_rewind(&self, app: &str, rewind: &RewindStatus) {
        if let Some(tracking) = rewind.tracking {
            self.tracking.get_or_create(&AppTracking { app: app.to_owned(), tracking }).set(1);
        }
        let labels = App { app: app.to_owned() };
        self.hot_pages.get_or_create(&labels).set(i64::from(rewind.hot_pages));
        self.warm.get_or_create(&labels).set(i64::try_from(rewind.warm).unwrap_or(i64::MAX));
    }

    fn render_totals(&self, app: &str, totals: &RewindTotals) {
        let RewindTotals { rewinds, clean_ns, scan_ns, copy_ns, cold_pages, resets, reset_ns } = *totals;
        let labels = App { app: app.to_owned() };
        self.rewinds.get_or_create(&labels).inc_by(rewinds);
        self.cold_pages.get_or_create(&labels).inc_by(cold_pages);
        self.resets.get_or_create(&labels).inc_by(resets);
        self.reset_seconds.get_or_create(&labels).inc_by(reset_ns as f64 / 1e9);
        for (phase, ns) in [("clean", clean_ns), ("scan", scan_ns), ("copy", copy_ns)] {
            let labels = AppPhase { app: app.to_owned(), phase };
            self.rewind_seconds.get_or_create(&labels).inc_by(ns as f64 / 1e9);
        }
    }
}

/// Resident bytes of this process (proc(5), statm).
fn resident_memory() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
