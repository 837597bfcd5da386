//! CSV: a line for each measurement, so that a spreadsheet can do with it what the lab does not; and for each phase of a
//! schedule a line with all its rounds together, since quantiles of rounds cannot be added.

use anyhow::Result;

use crate::{
    data::Metric,
    result::{Measurement, Part, PhaseRow, Results, Subject, phases, value},
};

/// The columns that are no metric.
const HEAD: [&str; 10] =
    ["part", "subject", "engine", "version", "workload", "load", "round", "phase", "requests", "ok"];
/// In the column of rounds: all of them together.
const ALL: &str = "all";
/// Quantiles and the rest, by name.
const METRICS: [(&str, Metric); 11] = [
    ("ok_percent", Metric::OkPercent),
    ("ok_per_second", Metric::Rate),
    ("mean_ms", Metric::Mean),
    ("p50_ms", Metric::P50),
    ("p80_ms", Metric::P80),
    ("p90_ms", Metric::P90),
    ("p95_ms", Metric::P95),
    ("p99_ms", Metric::P99),
    ("max_ms", Metric::Max),
    ("cpu_us_per_request", Metric::CpuUs),
    ("memory_max_mb", Metric::MemoryMax),
];
/// What the processes used.
const USAGE: [&str; 13] = [
    "p999_ms",
    "cpu_user_s",
    "cpu_system_s",
    "instructions_user",
    "instructions_kernel",
    "cpu_median",
    "cpu_max",
    "memory_median_mb",
    "voluntary_switches",
    "involuntary_switches",
    "processes",
    "services_cpu_s",
    "start_up_s",
];
/// How clean the measurement was.
const CONDITIONS: [&str; 3] = ["foreign", "generator_cpu_s", "failure"];

/// Of every line.
const COLUMNS: usize = HEAD.len() + METRICS.len() + USAGE.len() + CONDITIONS.len();

/// The whole file.
///
/// # Errors
/// Never for data that the lab made.
pub fn render(results: &Results) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let metrics = METRICS.iter().map(|(name, _)| *name);
    writer.write_record(HEAD.into_iter().chain(metrics).chain(USAGE).chain(CONDITIONS))?;
    for part in &results.parts {
        for subject in &part.subjects {
            for measurement in &subject.measurements {
                writer.write_record(line(part, subject, measurement))?;
            }
            if subject.measurements.is_empty() {
                writer.write_record(failed(part, subject))?;
            }
        }
        for row in phases(part).iter().flatten() {
            writer.write_record(of_phase(part, row))?;
        }
    }
    Ok(writer.into_inner().map_err(|error| error.into_error())?)
}

fn names(part: &Part, subject: &Subject) -> Vec<String> {
    let load = subject.load.to_string();
    [&part.title, &subject.name, &subject.engine, &subject.version, &subject.workload, &load]
        .into_iter()
        .cloned()
        .collect()
}

fn failure(subject: &Subject) -> String {
    let text = |f: &crate::engine::Failure| format!("{}: {}", f.stage.verb(), f.message);
    subject.failure.as_ref().map(text).unwrap_or_default()
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.4}"))
}

fn line(part: &Part, subject: &Subject, measurement: &Measurement) -> Vec<String> {
    let (total, server) = (&measurement.load.total, &measurement.server);
    let mut line = names(part, subject);
    line.extend([
        measurement.round.to_string(),
        String::new(),
        total.requests.to_string(),
        total.ok.to_string(),
    ]);
    line.extend(METRICS.iter().map(|(_, metric)| figure(value(*metric, measurement, None))));
    let services = measurement.services.values().map(|usage| usage.cpu_user + usage.cpu_system).sum::<f64>();
    line.extend([
        figure(total.latency_ms.p999),
        figure(Some(server.cpu_user)),
        figure(Some(server.cpu_system)),
        figure(measurement.instructions.map(|counted| counted.user)),
        figure(measurement.instructions.map(|counted| counted.kernel)),
        figure(Some(server.cpu_median)),
        figure(Some(server.cpu_max)),
        figure(Some(server.memory_median as f64 / 1e6)),
        server.voluntary.to_string(),
        server.involuntary.to_string(),
        server.processes.to_string(),
        figure(Some(services)),
        figure(Some(measurement.start_up)),
    ]);
    let health = &measurement.load.health;
    line.extend([
        figure(Some(measurement.foreign)),
        figure(Some(health.cpu_user + health.cpu_system)),
        failure(subject),
    ]);
    line
}

/// What is known of a phase; processes are watched over the whole load only.
fn of_phase(part: &Part, row: &PhaseRow<'_>) -> Vec<String> {
    let mut line = names(part, row.subject);
    line.extend([ALL.to_owned(), row.phase.to_owned(), row.requests.to_string(), row.ok.to_string()]);
    let l = row.latency.clone().unwrap_or_default();
    let known = |metric: Metric| match metric {
        Metric::OkPercent => row.ok_percent,
        Metric::Rate => row.rate.map(|rate| rate.value),
        Metric::Mean => l.mean,
        Metric::P50 => l.p50,
        Metric::P80 => l.p80,
        Metric::P90 => l.p90,
        Metric::P95 => l.p95,
        Metric::P99 => l.p99,
        Metric::Max => l.max,
        _ => None,
    };
    line.extend(METRICS.iter().map(|(_, metric)| figure(known(*metric))));
    line.push(figure(l.p999));
    line.resize(COLUMNS, String::new());
    line
}

/// A subject without any measurement still has a line, which says why.
fn failed(part: &Part, subject: &Subject) -> Vec<String> {
    let mut line = names(part, subject);
    line.resize(COLUMNS - 1, String::new());
    line.push(failure(subject));
    line
}
