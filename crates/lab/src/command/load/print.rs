//! A load's report as text for people.

use std::fmt::Write as _;

use hayate_load::{Failure, Figures, Latency, PlanReport, Report};

/// The whole report.
pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_report(&mut out, report);
    out
}

fn write_report(out: &mut String, report: &Report) -> std::fmt::Result {
    let Report { total, health, .. } = report;
    writeln!(out, "{}, {}{}", headline(&report.plan), report.target, protocol(report))?;
    if report.interrupted {
        writeln!(out, "INTERRUPTED after {:.1} s: these are partial results", report.duration)?;
    }
    writeln!(out)?;
    writeln!(out, "requests    {} in {:.2} s", count(total.requests), report.duration)?;
    writeln!(out, "rate        {} requests/s", decimal(total.rate))?;
    match total.ok_percent {
        Some(percent) => writeln!(out, "OK          {} %, {}", ok_percent(percent, total), count(total.ok))?,
        None => writeln!(out, "OK          -")?,
    }
    write_errors(out, total)?;
    let seconds = report.duration.max(f64::MIN_POSITIVE);
    writeln!(
        out,
        "received    {}, {}/s",
        bytes(total.bytes_received as f64),
        bytes(total.bytes_received as f64 / seconds)
    )?;
    writeln!(
        out,
        "sent        {}, {}/s",
        bytes(total.bytes_sent as f64),
        bytes(total.bytes_sent as f64 / seconds)
    )?;
    writeln!(
        out,
        "connections {} opened, at most {} at a time",
        count(health.connections_opened),
        count(health.connections_max)
    )?;
    if health.handshakes > 0 {
        writeln!(
            out,
            "TLS         {} handshakes, {}/s, {} of them resumed a session; {}",
            count(health.handshakes),
            decimal(health.handshakes as f64 / seconds),
            count(health.handshakes_resumed),
            report.protocol.tls.as_deref().unwrap_or("-")
        )?;
    }
    if health.unfinished > 0 {
        writeln!(out, "unfinished  {}, without an answer when the load ended", count(health.unfinished))?;
    }
    if health.unsent > 0 {
        writeln!(out, "unsent      {}", count(health.unsent))?;
    }
    write_latencies(out, report)?;
    write_phases(out, report)?;
    writeln!(
        out,
        "\ngenerator   {} {}, busy {:.0} % of the time (most in a second {:.0} %), CPU {:.2} s user {:.2} s system",
        health.threads,
        if health.threads == 1 { "thread" } else { "threads" },
        100.0 * health.busy_mean,
        100.0 * health.busy_max,
        health.cpu_user,
        health.cpu_system
    )?;
    for warning in &report.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}

/// What differs from plain HTTP/1.1; the URL says the rest.
fn protocol(report: &Report) -> String {
    match (report.protocol.http.as_str(), report.protocol.streams) {
        ("HTTP/1.1", _) => String::new(),
        (http, 1) => format!(", {http}, 1 stream on each connection"),
        (http, streams) => format!(", {http}, {} streams on each connection", count(streams as u64)),
    }
}

fn headline(plan: &PlanReport) -> String {
    match plan {
        PlanReport::Scheduled { schedule, shots, duration, connections } => format!(
            "open loop: {schedule}, {} shots in {} s, at most {} connections",
            count(*shots),
            trimmed(*duration),
            count(*connections as u64)
        ),
        PlanReport::Closed { connections, duration, requests } => {
            let until = match (duration, requests) {
                (Some(duration), _) => format!("{} s", trimmed(*duration)),
                (None, requests) => format!("{} requests", count(requests.unwrap_or(0))),
            };
            format!("closed loop: {} connections, {until}", count(*connections as u64))
        }
        PlanReport::Threads { threads, ramp_up, loops } => format!(
            "virtual users: {} threads, ramp-up {} s, {} loops",
            count(*threads as u64),
            trimmed(*ramp_up),
            count(*loops)
        ),
    }
}

fn write_errors(out: &mut String, total: &Figures) -> std::fmt::Result {
    let mut label = "errors";
    // In the order of an exchange's life, not of the alphabet.
    for failure in Failure::ALL {
        if let Some(number) = total.errors.get(failure.name()) {
            writeln!(out, "{label:11} {} {}: {}", count(*number), failure.name(), failure.meaning())?;
            label = "";
        }
    }
    if total.statuses.len() > 1 || total.errors.contains_key(Failure::Status.name()) {
        let statuses: Vec<String> =
            total.statuses.iter().map(|(code, number)| format!("{} × {code}", count(*number))).collect();
        writeln!(out, "statuses    {}", statuses.join(", "))?;
    }
    Ok(())
}

fn write_latencies(out: &mut String, report: &Report) -> std::fmt::Result {
    let total = &report.total;
    let mut rows = vec![("all", &total.latency_ms)];
    if total.ok < total.requests {
        rows.push(("OK", &total.latency_ok_ms));
    }
    if let Some(service) = &total.service_ms {
        rows.push(("from sending", service));
    }
    let mut table =
        vec![row(["latency, ms", "50 %", "80 %", "90 %", "95 %", "99 %", "99.9 %", "max", "mean"]
            .map(String::from))];
    for (name, latency) in rows {
        let Latency { p50, p80, p90, p95, p99, p999, max, mean, .. } = *latency;
        let cells = [p50, p80, p90, p95, p99, p999, max, mean].map(milliseconds);
        table.push([vec![name.to_owned()], cells.to_vec()].concat());
    }
    writeln!(out)?;
    write_table(out, &table)
}

fn write_phases(out: &mut String, report: &Report) -> std::fmt::Result {
    if report.phases.len() < 2 {
        return Ok(());
    }
    let mut table =
        vec![
            row(["phase", "shots", "OK %", "50 %", "90 %", "95 %", "99 %", "max", "late"].map(String::from)),
        ];
    for phase in &report.phases {
        let (figures, latency) = (&phase.figures, &phase.figures.latency_ms);
        let mut cells = vec![
            phase.phase.clone(),
            count(phase.shots),
            figures.ok_percent.map_or("-".to_owned(), |percent| ok_percent(percent, figures)),
        ];
        cells.extend([latency.p50, latency.p90, latency.p95, latency.p99, latency.max].map(milliseconds));
        cells.push(count(figures.late_waiting + figures.late_generator));
        table.push(cells);
    }
    writeln!(out)?;
    write_table(out, &table)
}

fn row<const N: usize>(cells: [String; N]) -> Vec<String> {
    cells.to_vec()
}

/// The first column to the left, the others to the right.
fn write_table(out: &mut String, rows: &[Vec<String>]) -> std::fmt::Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            if column == 0 {
                write!(line, "{cell:width$}")?;
            } else {
                write!(line, "  {cell:>width$}")?;
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Digits in groups of three.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Three significant digits, or whole milliseconds; a dash for nothing.
pub(super) fn milliseconds(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 0.9995 => format!("{value:.3}"),
        Some(value) if value < 9.995 => format!("{value:.2}"),
        Some(value) if value < 99.95 => format!("{value:.1}"),
        Some(value) => count(value.round() as u64),
    }
}

fn decimal(value: f64) -> String {
    if value < 1000.0 { format!("{value:.1}") } else { count(value.round() as u64) }
}

/// Never 100 while something failed.
fn ok_percent(percent: f64, figures: &Figures) -> String {
    if figures.ok == figures.requests {
        return "100".to_owned();
    }
    let shown = format!("{:.3}", percent.min(99.999));
    shown.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn trimmed(seconds: f64) -> String {
    format!("{seconds}")
}

fn bytes(number: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut number = number;
    while number >= 1024.0 && unit < units.len() - 1 {
        number /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{number:.0} B") } else { format!("{number:.2} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(
            [0.0, 0.0521, 1.0, 12.34, 1234.5].map(|ms| milliseconds(Some(ms))),
            ["0.000", "0.052", "1.00", "12.3", "1,235"]
        );
        assert_eq!(bytes(1536.0), "1.50 KiB");
    }

    #[test]
    fn a_failure_in_a_million_shows() {
        let figures = Figures { requests: 1_000_000, ok: 999_999, ..Figures::default() };
        assert_eq!(ok_percent(99.9999, &figures), "99.999");
        assert_eq!(ok_percent(100.0, &Figures { requests: 5, ok: 5, ..Figures::default() }), "100");
        assert_eq!(ok_percent(80.5, &Figures { requests: 200, ok: 161, ..Figures::default() }), "80.5");
    }
}
