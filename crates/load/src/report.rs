//! What a load found out, as data: the JSON of `hayate-lab load --json`.
//!
//! Times are milliseconds where the name ends in `_ms`, else seconds. Absent quantiles (nothing was measured) are null.
//! Promises: counts add up. `requests = ok + Σ errors`; for a plan with a known number of requests,
//! `requests + unfinished + unsent` is that number.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Everything about one load.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Report {
    /// Version of this format: 1.
    pub format: u32,
    /// `hayate-load` and its version.
    pub generator: String,
    /// URL of the first request.
    pub target: String,
    /// How it was spoken to.
    #[serde(default)]
    pub protocol: ProtocolReport,
    /// What was to be done.
    pub plan: PlanReport,
    /// When it began, seconds since 1970.
    pub started: f64,
    /// How long it took, seconds: until the last answer, or until it was ended.
    pub duration: f64,
    /// It was interrupted: these are partial results.
    pub interrupted: bool,
    /// Figures of the whole load.
    pub total: Figures,
    /// Figures of each phase of a schedule, by intended start; empty in the other forms.
    pub phases: Vec<PhaseFigures>,
    /// One entry per second of the load, without gaps.
    pub seconds: Vec<Second>,
    /// How the generator itself fared.
    pub health: Health,
    /// What a reader has to know before believing the figures; empty when all is well.
    pub warnings: Vec<String>,
}

/// What was spoken.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct ProtocolReport {
    /// `HTTP/1.1` or `HTTP/2`.
    pub http: String,
    /// Requests at a time on one connection, at most.
    pub streams: usize,
    /// TLS version and cipher suite of the first handshake; null without TLS, or if no handshake was completed.
    pub tls: Option<String>,
}

impl Default for ProtocolReport {
    fn default() -> Self {
        Self { http: "HTTP/1.1".to_owned(), streams: 1, tls: None }
    }
}

/// The form of the load.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum PlanReport {
    /// Open loop.
    Scheduled {
        /// As it was written.
        schedule: String,
        /// Shots known beforehand.
        shots: u64,
        /// Seconds.
        duration: f64,
        /// Most connections that were allowed.
        connections: usize,
    },
    /// Closed loop.
    Closed {
        /// Connections.
        connections: usize,
        /// Seconds, if it was to end by time.
        duration: Option<f64>,
        /// Requests, if it was to end by number.
        requests: Option<u64>,
    },
    /// Virtual users.
    Threads {
        /// Virtual users.
        threads: usize,
        /// Seconds over which their starts were spread.
        ramp_up: f64,
        /// Requests of each.
        loops: u64,
    },
}

/// Counts and latencies of a load or of a phase of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Figures {
    /// Requests that came to an end, good or bad.
    pub requests: u64,
    /// Those with the expected answer.
    pub ok: u64,
    /// `100 · ok / requests`; null when there were none.
    pub ok_percent: Option<f64>,
    /// Requests per second over the duration.
    pub rate: f64,
    /// OK requests per second over the duration.
    pub ok_rate: f64,
    /// The others by kind, see [`crate::Failure::name`]; kinds that did not occur are absent.
    pub errors: BTreeMap<String, u64>,
    /// Complete answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes of answers as they came over the wire, heads included.
    pub bytes_received: u64,
    /// Bytes of requests as they went over the wire.
    pub bytes_sent: u64,
    /// Every request that came to an end, failed ones included (a time-out with the time it lasted), counted from
    /// the intended start (schedule) or from the actual one (other forms).
    pub latency_ms: Latency,
    /// The same of the OK requests only.
    pub latency_ok_ms: Latency,
    /// From the actual start, that is without the wait for a free connection or for the generator; schedules only.
    pub service_ms: Option<Latency>,
    /// Shots sent more than a millisecond after their intended start, since all connections were busy.
    pub late_waiting: u64,
    /// Shots sent more than a millisecond after their intended start although a connection was free: the generator's fault.
    pub late_generator: u64,
    /// `latency_ms` as an HdrHistogram of nanoseconds with 3 significant digits, V2 compressed, base64: reports can be
    /// merged by adding these.
    pub histogram: String,
}

/// A distribution of times, milliseconds, each exact to 3 significant digits (HDR histogram).
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Latency {
    /// Requests counted here.
    pub count: u64,
    /// Shortest.
    pub min: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Standard deviation.
    pub stdev: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 80 % took no longer.
    pub p80: Option<f64>,
    /// 90 % took no longer.
    pub p90: Option<f64>,
    /// 95 % took no longer.
    pub p95: Option<f64>,
    /// 99 % took no longer.
    pub p99: Option<f64>,
    /// 99.9 % took no longer.
    pub p999: Option<f64>,
    /// Longest.
    pub max: Option<f64>,
}

/// Figures of one phase of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct PhaseFigures {
    /// As it would be written: `const(500,10s)`.
    pub phase: String,
    /// Its intended start, seconds since the load began.
    pub start: f64,
    /// Seconds.
    pub duration: f64,
    /// Shots known beforehand.
    pub shots: u64,
    /// Figures of its shots.
    pub figures: Figures,
}

/// One second of a load. Answers belong to the second in which they came (as in Yandex Tank), shots to that in which they
/// were due.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Second {
    /// Its number, from 0.
    pub second: u64,
    /// Its length in seconds: 1, but for the last one: less, or up to 0.05 more.
    pub length: f64,
    /// Planned rate in the middle of the second, or of the part of it before the schedule ends, requests per second; schedules
    /// only.
    pub intended_rate: Option<f64>,
    /// Requests sent in it.
    pub sent: u64,
    /// Requests that came to an end in it, good or bad.
    pub requests: u64,
    /// Those with the expected answer.
    pub ok: u64,
    /// The others by kind.
    pub errors: BTreeMap<String, u64>,
    /// Bytes received.
    pub bytes_received: u64,
    /// Most open connections in it: the sum of what each thread had at most.
    pub connections: u64,
    /// Shots that were due and not yet sent at its end; schedules only.
    pub backlog: u64,
    /// Of the requests that came to an end in it.
    pub latency_ms: Latency,
    /// Shots sent late in it, all connections busy.
    pub late_waiting: u64,
    /// Shots sent late in it through the generator's fault.
    pub late_generator: u64,
    /// Share of the second, 0 to 1, that the busiest generator thread was running or waiting for a processor.
    pub generator_busy: f64,
}

/// Whether the generator could do what was asked of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Health {
    /// Event loops, one thread each.
    pub threads: usize,
    /// CPU time of the generator's process, user mode, seconds.
    pub cpu_user: f64,
    /// CPU time of the generator's process, kernel mode, seconds.
    pub cpu_system: f64,
    /// Mean of `generator_busy` over the load.
    pub busy_mean: f64,
    /// Highest `generator_busy` of a full second.
    pub busy_max: f64,
    /// Seconds in which a generator thread was busy for more than 90 % of the time.
    pub saturated_seconds: u64,
    /// How long after its moment a shot for which a connection was free was sent; schedules only.
    pub delay_ms: Option<Latency>,
    /// Requests that were still without an answer when the load ended; they are in no other figure.
    pub unfinished: u64,
    /// How long ago the oldest of them had been sent.
    pub unfinished_oldest_ms: Option<f64>,
    /// Requests that were never sent since the load was interrupted; they are in no other figure.
    pub unsent: u64,
    /// Connections opened.
    pub connections_opened: u64,
    /// Most connections open at a time.
    pub connections_max: u64,
    /// TLS handshakes that were completed.
    #[serde(default)]
    pub handshakes: u64,
    /// Those of them that resumed a session: they cost both sides much less than full ones.
    #[serde(default)]
    pub handshakes_resumed: u64,
}
