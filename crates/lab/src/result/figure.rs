//! Single figures of a measurement.

use hayate_load::{Failure, Figures, Latency, Report};
use hdrhistogram::{Histogram, serialization::Deserializer};

use super::Measurement;
use crate::data::Metric;

/// Bytes of a megabyte, as tables show memory.
const MEGABYTE: f64 = 1e6;

/// A figure of a measurement; `None` if there was nothing to measure. Of one phase, if that is named.
pub fn value(metric: Metric, measurement: &Measurement, phase: Option<&str>) -> Option<f64> {
    let report = &measurement.load;
    let figures = of_phase(measurement, phase)?;
    let latency = &figures.latency_ms;
    match metric {
        Metric::Rate => Some(figures.ok_rate),
        Metric::OkPercent => figures.ok_percent,
        Metric::P50 => latency.p50,
        Metric::P80 => latency.p80,
        Metric::P90 => latency.p90,
        Metric::P95 => latency.p95,
        Metric::P99 => latency.p99,
        Metric::Max => latency.max,
        Metric::Mean => latency.mean,
        // What follows is known for the whole load only.
        _ if phase.is_some() => None,
        Metric::CpuUs => per_request(report, measurement.server.cpu_user + measurement.server.cpu_system),
        Metric::Instructions => measurement.instructions.and_then(|counted| thousands(report, counted.all())),
        Metric::MemoryMax => Some(measurement.server.memory_max as f64 / MEGABYTE),
    }
}

/// The figures of a whole load, or of one of its phases.
pub fn of_phase<'a>(measurement: &'a Measurement, phase: Option<&str>) -> Option<&'a Figures> {
    let report = &measurement.load;
    match phase {
        None => Some(&report.total),
        Some(name) => {
            report.phases.iter().find(|phase| same_phase(&phase.phase, name)).map(|phase| &phase.figures)
        }
    }
}

/// The rate that was asked for in the first second of a schedule, requests per second.
pub fn intended_rate(measurement: &Measurement) -> Option<f64> {
    measurement.load.seconds.iter().find_map(|second| second.intended_rate)
}

/// So many instructions, as thousands for each request that was answered or was being worked on.
pub fn thousands(report: &Report, instructions: f64) -> Option<f64> {
    per_request(report, instructions / 1e9)
}

/// CPU time of so many seconds in all, as µs for each request that was answered or was being worked on.
pub fn per_request(report: &Report, seconds: f64) -> Option<f64> {
    let requests = sent(&report.total) + report.health.unfinished;
    (requests > 0).then(|| seconds * 1e6 / requests as f64)
}

/// Requests that came to an end and had been sent: some wait for a connection until their time is over.
fn sent(figures: &Figures) -> u64 {
    figures.requests.saturating_sub(figures.errors.get(Failure::Queued.name()).copied().unwrap_or(0))
}

/// Phases are the same whatever the spaces in them, and however long they last: a quick run has shorter ones.
fn same_phase(a: &str, b: &str) -> bool {
    let rates = |text: &str| {
        let solid: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        solid.rsplit_once(',').map(|(rates, _)| rates.to_owned()).unwrap_or(solid)
    };
    rates(a) == rates(b)
}

/// Latencies of several loads, or of the same phase of several, as if they were one; `None` without any.
pub fn quantiles<'a>(figures: impl Iterator<Item = &'a Figures>) -> Option<Latency> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    // It grows; one that was read does not, and refuses what is longer than its own longest.
    let mut all = Histogram::<u64>::new(3).ok()?;
    for figures in figures {
        let bytes = STANDARD.decode(&figures.histogram).ok()?;
        let one: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
        all.add(one).ok()?;
    }
    if all.is_empty() {
        return None;
    }
    let quantile = |q: f64| Some(all.value_at_quantile(q) as f64 / 1e6);
    Some(Latency {
        count: all.len(),
        min: Some(all.min() as f64 / 1e6),
        mean: Some(all.mean() / 1e6),
        stdev: Some(all.stdev() / 1e6),
        p50: quantile(0.5),
        p80: quantile(0.8),
        p90: quantile(0.9),
        p95: quantile(0.95),
        p99: quantile(0.99),
        p999: quantile(0.999),
        max: Some(all.max() as f64 / 1e6),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_added_whichever_has_the_longest() {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
        let round = |longest: u64| {
            let mut times = Histogram::<u64>::new(3).unwrap();
            (0..100).for_each(|n| times.record(1_000 + longest * n / 99).unwrap());
            let mut bytes = Vec::new();
            V2DeflateSerializer::new().serialize(&times, &mut bytes).unwrap();
            Figures { histogram: STANDARD.encode(bytes), ..Figures::default() }
        };
        for longest in [[2_000_000, 900_000_000], [900_000_000, 2_000_000]] {
            let all = quantiles(longest.map(round).iter()).unwrap();
            assert_eq!(all.count, 200);
            assert!((all.max.unwrap() - 900.0).abs() < 1.0, "{all:?}");
        }
    }

    #[test]
    fn what_was_never_sent_cost_nothing() {
        let mut figures = Figures { requests: 1000, ..Figures::default() };
        assert_eq!(sent(&figures), 1000);
        figures.errors.insert(Failure::Queued.name().to_owned(), 600);
        assert_eq!(sent(&figures), 400);
    }

    #[test]
    fn phases_are_known_by_their_rates() {
        assert!(same_phase("const(100,60s)", "const(100, 500ms)"));
        assert!(!same_phase("const(100,60s)", "line(100,60s)"));
        assert!(!same_phase("line(1,100,60s)", "line(1,1000,60s)"));
    }
}
