//! Results as tables for the terminal.

use std::fmt::Write;

use super::{
    number::{count, interval, median, number, or_dash, percent, range},
    table::Table,
    verdict::{by_name, verdict},
};
use crate::{
    data::Kind,
    machine::show_cpus,
    result::{Part, Results, Row, Spread, intended_rate, phases, rows},
};

/// Everything.
pub fn render(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out, results);
    out
}

fn write(out: &mut String, results: &Results) -> std::fmt::Result {
    let machine = &results.machine;
    writeln!(out, "{}", results.title)?;
    writeln!(
        out,
        "{}, {} processors, {}, {}; servers on {}, generator on {}",
        machine.cpu,
        machine.processors,
        machine.system,
        machine.kernel,
        show_cpus(&results.cores.server),
        show_cpus(&results.cores.load)
    )?;
    for part in &results.parts {
        let rows = rows(part);
        writeln!(out, "\n{}", part_title(part))?;
        writeln!(out, "{}\n", verdict(part, by_name))?;
        if part.kind == Kind::Saturate {
            write_limits(out, part)?;
            write_references(out, part)?;
            write_failures(out, part)?;
            continue;
        }
        write_steps(out, part)?;
        write_speed(out, part, &rows)?;
        write_latency(out, &rows)?;
        write_phases(out, part)?;
        write_resources(out, part, &rows)?;
        write_instructions(out, part, &rows)?;
        write_services(out, &rows)?;
        write_cores(out, part)?;
        write_references(out, part)?;
        write_failures(out, part)?;
    }
    writeln!(out, "\n{}", noise(results))?;
    let warnings = results.warnings();
    if !warnings.is_empty() {
        writeln!(out, "\nBefore you believe it:")?;
        for warning in warnings {
            writeln!(out, "- {warning}")?;
        }
    }
    Ok(())
}

/// `{"status":"OK"}: 100 connections for 6 s, 3 rounds`.
pub fn part_title(part: &Part) -> String {
    let load = part.subjects.first().map(|subject| subject.load.to_string()).unwrap_or_default();
    let rounds = if part.rounds == 1 { "one round".to_owned() } else { format!("{} rounds", part.rounds) };
    match part.kind {
        Kind::Saturate => {
            let protocol = part.subjects.first().map(|subject| subject.load.protocol.to_string());
            format!("{}: to the limit{}", part.title, protocol.unwrap_or_default())
        }
        _ => format!("{}: {load}, {rounds}", part.title),
    }
}

/// Column titles of a ratio.
fn against(part: &Part) -> String {
    let confidence = if part.rounds > 1 { " (95 %)" } else { "" };
    part.baseline.as_ref().map_or_else(String::new, |baseline| format!("× {baseline}{confidence}"))
}

fn write_speed(out: &mut String, part: &Part, rows: &[Row<'_>]) -> std::fmt::Result {
    let head = ["", "requests/s", "range", &against(part), "OK %", "OK", "errors"];
    let mut table = Table::new(&head).figures_from(1);
    for row in rows.iter().filter(|row| row.requests > 0) {
        let errors: Vec<String> =
            row.errors.iter().map(|(kind, n)| format!("{kind} {}", count(*n))).collect();
        table.row([
            row.subject.name.clone(),
            median(row.rate),
            range(row.rate),
            interval(row.rate_ratio),
            percent(row.ok_percent),
            count(row.ok),
            errors.join(", "),
        ]);
    }
    writeln!(out, "{table}")
}

fn write_latency(out: &mut String, rows: &[Row<'_>]) -> std::fmt::Result {
    let head = ["latency, ms", "p50", "p80", "p90", "p95", "p99", "p99.9", "max", "mean"];
    let mut table = Table::new(&head).figures_from(1);
    for row in rows {
        if let Some(l) = &row.latency {
            let figures = [l.p50, l.p80, l.p90, l.p95, l.p99, l.p999, l.max, l.mean];
            let cells = std::iter::once(row.subject.name.clone()).chain(figures.map(or_dash));
            table.cells(cells.collect());
        }
    }
    writeln!(out, "\n{table}")
}

/// Figures of each phase of a schedule.
fn write_phases(out: &mut String, part: &Part) -> std::fmt::Result {
    let phases = phases(part);
    if phases.is_empty() {
        return Ok(());
    }
    let head = ["phase", "", "OK shots/s", "OK %", "p50", "p95", "p99", "max"];
    let mut table = Table::new(&head).figures_from(2);
    for row in phases.into_iter().flatten() {
        let l = row.latency.unwrap_or_default();
        let first =
            [row.phase.to_owned(), row.subject.name.clone(), median(row.rate), percent(row.ok_percent)];
        table.cells(first.into_iter().chain([l.p50, l.p95, l.p99, l.max].map(or_dash)).collect());
    }
    writeln!(out, "\n{table}")
}

fn write_resources(out: &mut String, part: &Part, rows: &[Row<'_>]) -> std::fmt::Result {
    let head = [
        "CPU µs/request",
        "all",
        "user",
        "system",
        &against(part),
        "CPU % median",
        "max",
        "MB median",
        "max",
        "start ms",
        "switches/request",
        "involuntary",
        "processes",
    ];
    let mut table = Table::new(&head).figures_from(1);
    let percent = |spread: Option<Spread>| {
        spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.0}", spread.value * 100.0))
    };
    for row in rows.iter().filter(|row| row.requests > 0) {
        table.row([
            row.subject.name.clone(),
            median(row.cpu_us),
            median(row.cpu_user_us),
            median(row.cpu_system_us),
            interval(row.cpu_ratio),
            percent(row.cpu_median),
            percent(row.cpu_max),
            median(row.memory_median),
            median(row.memory_max),
            median(row.start_up.map(|s| Spread { value: s.value * 1000.0, ..s })),
            median(row.switches),
            median(row.involuntary),
            row.processes.to_string(),
        ]);
    }
    writeln!(out, "\n{table}")
}

/// What was executed, if it was counted.
fn write_instructions(out: &mut String, part: &Part, rows: &[Row<'_>]) -> std::fmt::Result {
    if rows.iter().all(|row| row.instructions.is_none()) {
        return Ok(());
    }
    let head = ["1,000 instructions/request", "all", "range", "user", "kernel", &against(part)];
    let mut table = Table::new(&head).figures_from(1);
    for row in rows.iter().filter(|row| row.instructions.is_some()) {
        table.row([
            row.subject.name.clone(),
            median(row.instructions),
            range(row.instructions),
            median(row.instructions_user),
            median(row.instructions_kernel),
            interval(row.instructions_ratio),
        ]);
    }
    writeln!(out, "\n{table}")
}

fn write_services(out: &mut String, rows: &[Row<'_>]) -> std::fmt::Result {
    let names: std::collections::BTreeSet<&String> =
        rows.iter().flat_map(|row| row.services.keys()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["database CPU µs/request", "", "median", "range"]).figures_from(2);
    for row in rows {
        for (service, spread) in &row.services {
            let spread = Some(*spread);
            table.row([row.subject.name.clone(), service.clone(), median(spread), range(spread)]);
        }
    }
    writeln!(out, "\n{table}")
}

/// A ladder's steps against those they stand on.
fn write_steps(out: &mut String, part: &Part) -> std::fmt::Result {
    if part.kind != Kind::Ladder {
        return Ok(());
    }
    let metric = part.metric.label();
    let mut table =
        Table::new(&["step", metric, "range", "× what it stands on", "published"]).figures_from(1);
    let steps = part.steps();
    for (subject, step) in part.subjects.iter().zip(&steps) {
        table.row([
            subject.name.clone(),
            median(step.spread),
            range(step.spread),
            interval(step.ratio),
            or_dash(subject.reference),
        ]);
    }
    writeln!(out, "{table}\n")
}

/// What others published beside ours.
fn write_references(out: &mut String, part: &Part) -> std::fmt::Result {
    if part.references.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["beside the published", "", "", "published", "ours", "ours / published"])
        .figures_from(3);
    for (reference, ours) in part.beside_published() {
        table.row([
            reference.theirs.clone().or_else(|| reference.engine.clone()).unwrap_or_default(),
            reference.metric.label().to_owned(),
            reference.phase.clone().unwrap_or_default(),
            number(reference.value),
            or_dash(ours),
            or_dash(ours.map(|ours| ours / reference.value)),
        ]);
    }
    writeln!(out, "\n{table}")
}

fn write_limits(out: &mut String, part: &Part) -> std::fmt::Result {
    let mut table =
        Table::new(&["", "knee req/s", "limit", "not served", "p95 ms at the knee"]).figures_from(1);
    for subject in part.ranked() {
        let Some(saturation) = &subject.saturation else { continue };
        let at_knee = subject.measurements.iter().find(|m| intended_rate(m) == saturation.knee);
        table.row([
            subject.name.clone(),
            or_dash(saturation.knee),
            number(saturation.limit),
            or_dash(saturation.failed_at),
            or_dash(at_knee.and_then(|m| m.load.total.latency_ms.p95)),
        ]);
    }
    writeln!(out, "{table}\n")?;
    for subject in part.ranked() {
        if let Some(saturation) = &subject.saturation {
            writeln!(out, "{}: {}", subject.name, saturation.conclusion)?;
        }
    }
    Ok(())
}

/// How busy each processor was, all rounds together: whether the load was spread, and whether the generator was at its limit.
fn write_cores(out: &mut String, part: &Part) -> std::fmt::Result {
    let cpus: std::collections::BTreeSet<usize> = part
        .subjects
        .iter()
        .flat_map(|s| &s.measurements)
        .flat_map(|m| &m.cores)
        .map(|core| core.cpu)
        .collect();
    let mut heads = vec!["processors busy, %".to_owned()];
    heads.extend(cpus.iter().map(ToString::to_string));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = Table::new(&heads).figures_from(1);
    for subject in part.ranked().into_iter().filter(|subject| !subject.measurements.is_empty()) {
        let busy = |cpu: &usize| {
            let cores = subject.measurements.iter().flat_map(|m| &m.cores).filter(|core| core.cpu == *cpu);
            Spread::of(cores.map(|core| core.busy * 100.0))
                .map_or_else(|| "-".to_owned(), |s| format!("{:.0}", s.value))
        };
        table.cells(std::iter::once(subject.name.clone()).chain(cpus.iter().map(busy)).collect());
    }
    writeln!(out, "\n{table}")
}

fn write_failures(out: &mut String, part: &Part) -> std::fmt::Result {
    for (failure, subjects) in part.failures() {
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
        writeln!(out, "\n{} {}: {}", names.join(", "), failure.stage.verb(), failure.message)?;
        for line in failure.log.lines() {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}

/// How quiet the machine was, in a sentence.
pub fn noise(results: &Results) -> String {
    let calibrations = &results.noise.calibrations;
    let side = |name: &str, of: fn(&crate::result::Calibrations) -> &crate::machine::Calibration| {
        let medians = Spread::of(calibrations.iter().map(|c| of(c).median_us))?;
        let spread = Spread::of(calibrations.iter().map(|c| of(c).spread_percent))?;
        let worst = calibrations.iter().map(|c| of(c).worst).fold(0.0, f64::max);
        Some(format!(
            "{name} processor: the same work took {} µs with a standard deviation of {:.1} % and at worst {worst:.1} times as \
             long; between rounds it changed by {:.1} %",
            number(medians.value),
            spread.value,
            (medians.max / medians.min - 1.0) * 100.0
        ))
    };
    let all = results.parts.iter().flat_map(|part| &part.subjects).flat_map(|subject| &subject.measurements);
    let foreign = all.map(|m| m.foreign).fold(0.0, f64::max);
    let parts = [side("servers'", |c| &c.server), side("generator's", |c| &c.load)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let own = format!("others used up to {:.1} % of the servers' processors during a load", foreign * 100.0);
    format!("Noise: {}; {own}.", parts.join("; "))
}
