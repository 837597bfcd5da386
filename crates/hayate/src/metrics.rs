//! /metrics: the front's counters, and what the pools say of themselves when they are asked.

use std::{fs, sync::Arc};

use hayate_pool::{State, Status};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct App {
    app: String,
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

/// Causes that are always shown, so that an alert can be written before the first one happens.
const CAUSES: [&str; 6] =
    ["max_requests", "max_memory", "request_timeout", "fatal", "boot_failed", "zygote_died"];

/// All metrics of the process.
pub struct Metrics {
    registry: Registry,
    /// The front's part.
    pub front: Arc<hayate_front::Metrics>,
    workers: Family<AppState, Gauge>,
    restarts: Family<AppCause, Counter>,
    queue: Family<App, Gauge>,
    ready: Family<App, Gauge>,
    memory: Family<App, Gauge>,
    front_memory: Gauge,
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
        let queue = Family::<App, Gauge>::default();
        registry.register("hayate_queue_depth", "Requests that wait for a worker", queue.clone());
        let ready = Family::<App, Gauge>::default();
        registry.register("hayate_ready", "1 when the application can serve", ready.clone());
        let memory = Family::<App, Gauge>::default();
        registry.register_with_unit(
            "hayate_memory",
            "Private memory of PHP processes",
            Unit::Bytes,
            memory.clone(),
        );
        let front_memory = Gauge::default();
        registry.register_with_unit(
            "hayate_front_memory",
            "Resident memory of the front",
            Unit::Bytes,
            front_memory.clone(),
        );
        Metrics { registry, front, workers, restarts, queue, ready, memory, front_memory }
    }

    /// The text format of Prometheus.
    pub fn render(&self, apps: &[Status]) -> String {
        self.workers.clear();
        self.restarts.clear();
        self.queue.clear();
        self.ready.clear();
        self.memory.clear();
        for status in apps {
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
            CAUSES.iter().for_each(|cause| count(cause, 0));
            for (cause, n) in &status.restarts {
                count(cause, *n);
            }
            self.queue.get_or_create(&app()).set(status.queue as i64);
            self.ready.get_or_create(&app()).set(i64::from(status.unavailable.is_none()));
            self.memory.get_or_create(&app()).set(status.memory as i64);
        }
        self.front_memory.set(resident_memory() as i64);
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes everything");
        text
    }
}

/// Resident bytes of this process (proc(5), statm).
fn resident_memory() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
