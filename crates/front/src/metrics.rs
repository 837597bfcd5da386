//! What the front counts, in Prometheus' terms. Handles are resolved once per site, so that a request costs a few atomic additions.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

use hayate_http::Memory;
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::{Registry, Unit},
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct App {
    app: String,
}
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AppStatus {
    app: String,
    status: u16,
}

/// Seconds; from half a millisecond, below which nobody cares, to the half minute at which proxies give up.
fn latency() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ])
}

/// What is held for clients while requests are answered, as it is when somebody asks.
#[derive(Debug)]
struct Answers(Arc<Memory>);

impl Collector for Answers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauges = [
            (
                "hayate_answer_memory",
                "Held for requests that are being answered: heads, and what of answers clients have not taken",
                self.0.used(),
            ),
            (
                "hayate_answer_memory_limit",
                "What may be held for requests that are being answered (limits.answer_memory); 0: anything",
                self.0.limit(),
            ),
        ];
        for (name, help, bytes) in gauges {
            let gauge = ConstGauge::new(i64::try_from(bytes).unwrap_or(i64::MAX));
            let encoder = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), gauge.metric_type())?;
            gauge.encode(encoder)?;
        }
        Ok(())
    }
}

/// The front's counters, for all sites.
pub struct Metrics {
    answers: Arc<Memory>,
    requests: Family<AppStatus, Counter>,
    duration: Family<App, Histogram, fn() -> Histogram>,
    queue_wait: Family<App, Histogram, fn() -> Histogram>,
    in_flight: Family<App, Gauge>,
    sent: Family<App, Counter>,
    refused: Counter,
    broken: Counter,
    lost_lines: Counter,
    panics: Counter,
    heads_given_up: Counter,
    cut_off_for_memory: Counter,
    let_go: Counter,
    closed_by_address: Counter,
    refused_by_address: Counter,
    turned_away: Counter,
    connections: Gauge,
    quic: Gauge,
    sites: Mutex<HashMap<String, Arc<SiteMetrics>>>,
}

impl Metrics {
    /// Makes the counters and registers them.
    pub fn new(registry: &mut Registry) -> Arc<Metrics> {
        let metrics = Metrics {
            answers: Arc::default(),
            requests: Family::default(),
            duration: Family::new_with_constructor(latency),
            queue_wait: Family::new_with_constructor(latency),
            in_flight: Family::default(),
            sent: Family::default(),
            refused: Counter::default(),
            broken: Counter::default(),
            lost_lines: Counter::default(),
            panics: Counter::default(),
            heads_given_up: Counter::default(),
            cut_off_for_memory: Counter::default(),
            let_go: Counter::default(),
            closed_by_address: Counter::default(),
            refused_by_address: Counter::default(),
            turned_away: Counter::default(),
            connections: Gauge::default(),
            quic: Gauge::default(),
            sites: Mutex::default(),
        };
        registry.register("hayate_requests", "Requests answered, by status", metrics.requests.clone());
        registry.register_with_unit(
            "hayate_request_duration",
            "From the head of the request to the end of the answer",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register_with_unit(
            "hayate_queue_wait",
            "From a request's submission to the worker that took it",
            Unit::Seconds,
            metrics.queue_wait.clone(),
        );
        registry.register("hayate_requests_in_flight", "Requests being served", metrics.in_flight.clone());
        registry.register_with_unit(
            "hayate_response_body",
            "Bytes of response bodies",
            Unit::Bytes,
            metrics.sent.clone(),
        );
        registry.register("hayate_requests_refused", "Malformed requests refused", metrics.refused.clone());
        registry.register(
            "hayate_connections_broken",
            "Connections ended, for their clients broke the protocol of HTTP/2 or 3, or its bounds",
            metrics.broken.clone(),
        );
        registry.register(
            "hayate_access_log_lost",
            "Lines of the access log that could not be written",
            metrics.lost_lines.clone(),
        );
        registry.register(
            "hayate_heads_given_up",
            "Connections cut off in the middle of a head for want of memory (limits.gather_memory)",
            metrics.heads_given_up.clone(),
        );
        registry.register(
            "hayate_connections_cut_off_for_memory",
            "Connections cut off, for much was held for them while requests were answered (limits.answer_memory)",
            metrics.cut_off_for_memory.clone(),
        );
        registry.register(
            "hayate_connections_let_go",
            "Connections without a whole request closed to make room for newcomers (limits.connections)",
            metrics.let_go.clone(),
        );
        registry.register(
            "hayate_connections_closed_by_address",
            "Connections closed at once, for their address had too many (limits.connections_by_address)",
            metrics.closed_by_address.clone(),
        );
        registry.register(
            "hayate_connections_turned_away",
            "Connections ended at once for want of a PROXY header that is believed (listen.proxy_protocol, trusted_proxies)",
            metrics.turned_away.clone(),
        );
        registry.register(
            "hayate_requests_refused_by_address",
            "Requests that got 503, for their address had too many (limits.requests_by_address)",
            metrics.refused_by_address.clone(),
        );
        registry.register(
            "hayate_panics",
            "Faults of the front itself, each of which ended one connection",
            metrics.panics.clone(),
        );
        registry.register_collector(Box::new(Answers(Arc::clone(&metrics.answers))));
        registry.register("hayate_connections", "Open connections", metrics.connections.clone());
        registry.register("hayate_http3_connections", "Those of them by HTTP/3", metrics.quic.clone());
        Arc::new(metrics)
    }

    /// What is held for clients while requests are answered.
    pub(crate) fn answers(&self) -> &Arc<Memory> {
        &self.answers
    }

    /// The counters of one site; the same for the same name.
    pub fn site(&self, name: &str) -> Arc<SiteMetrics> {
        let mut sites = self.sites.lock();
        let made = sites.entry(name.to_owned()).or_insert_with(|| {
            let app = App { app: name.to_owned() };
            Arc::new(SiteMetrics {
                name: name.to_owned(),
                requests: self.requests.clone(),
                by_status: (0..600).map(|_| OnceLock::new()).collect(),
                duration: self.duration.get_or_create_owned(&app),
                queue_wait: self.queue_wait.get_or_create_owned(&app),
                in_flight: self.in_flight.get_or_create_owned(&app),
                sent: self.sent.get_or_create_owned(&app),
            })
        });
        Arc::clone(made)
    }

    /// Takes out those of sites that are configured no more, once their last request is over: names may come from releases, and each reload
    /// would leave some.
    pub fn forget_gone(&self) {
        self.sites.lock().retain(|name, site| {
            let there = Arc::strong_count(site) > 1;
            if !there {
                let app = App { app: name.clone() };
                for (status, _) in (0..).zip(&site.by_status).filter(|(_, counter)| counter.get().is_some()) {
                    self.requests.remove(&AppStatus { app: name.clone(), status });
                }
                self.duration.remove(&app);
                self.queue_wait.remove(&app);
                self.in_flight.remove(&app);
                self.sent.remove(&app);
            }
            there
        });
    }

    pub(crate) fn refused(&self) {
        self.refused.inc();
    }

    pub(crate) fn broken(&self) {
        self.broken.inc();
    }

    pub(crate) fn lost_lines(&self, lines: u64) {
        self.lost_lines.inc_by(lines);
    }

    /// So many idle connections were closed for newcomers.
    pub(crate) fn let_go(&self, count: u64) {
        self.let_go.inc_by(count);
    }

    /// So many connections were cut off for want of memory.
    pub(crate) fn cut_off_for_memory(&self, count: u64) {
        self.cut_off_for_memory.inc_by(count);
    }

    pub(crate) fn gave_up_heads(&self, n: u64) {
        self.heads_given_up.inc_by(n);
    }

    pub(crate) fn closed_by_address(&self) {
        self.closed_by_address.inc();
    }

    pub(crate) fn refused_by_address(&self) {
        self.refused_by_address.inc();
    }

    pub(crate) fn turned_away(&self) {
        self.turned_away.inc();
    }

    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    pub(crate) fn connected(&self, by: i64) {
        self.connections.inc_by(by);
    }

    pub(crate) fn connected_by_quic(&self, by: i64) {
        self.quic.inc_by(by);
    }
}

/// One site's counters.
pub struct SiteMetrics {
    name: String,
    requests: Family<AppStatus, Counter>,
    by_status: Vec<OnceLock<Counter>>,
    duration: Histogram,
    pub(crate) queue_wait: Histogram,
    pub(crate) in_flight: Gauge,
    sent: Counter,
}

impl Default for SiteMetrics {
    fn default() -> SiteMetrics {
        SiteMetrics {
            name: String::new(),
            requests: Family::default(),
            by_status: (0..600).map(|_| OnceLock::new()).collect(),
            duration: latency(),
            queue_wait: latency(),
            in_flight: Gauge::default(),
            sent: Counter::default(),
        }
    }
}

impl SiteMetrics {
    pub(crate) fn answered(&self, status: u16, seconds: f64, bytes: u64) {
        let resolve = || self.requests.get_or_create_owned(&AppStatus { app: self.name.clone(), status });
        match self.by_status.get(usize::from(status)) {
            Some(counter) => counter.get_or_init(resolve).inc(),
            None => resolve().inc(),
        };
        self.duration.observe(seconds);
        self.sent.inc_by(bytes);
    }
}
