//! Tables of the page.

use maud::{Markup, html};

use crate::{
    output::number::{count, interval, median, number, or_dash, percent, range},
    result::{self, Part, PhaseRow, Row, Spread, Subject},
};

/// A median with its range below.
fn ranged(spread: Option<Spread>) -> Markup {
    let range = range(spread);
    html! { (median(spread)) @if !range.is_empty() { small { (range) } } }
}

/// An estimate with its interval below.
fn bounded(ratio: Option<crate::result::Interval>) -> Markup {
    let text = interval(ratio);
    let (value, bounds) = text.split_once(" (").unwrap_or((&text, ""));
    html! { (value) @if !bounds.is_empty() { small { (bounds.trim_end_matches(')')) } } }
}

fn table(heads: &[String], rows: &[Vec<Markup>]) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr { @for head in heads { th { (head) } } } }
                tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }
}

fn heads(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn plain(text: impl Into<String>) -> Markup {
    let text = text.into();
    html! { (text) }
}

/// Name of the column with ratios.
fn against(part: &Part) -> String {
    part.baseline.as_ref().map_or_else(String::new, |baseline| format!("× {baseline}"))
}

/// Rates, errors.
pub fn speed(part: &Part, rows: &[Row<'_>]) -> Markup {
    let mut head = heads(&["", "requests/s", "OK %", "OK", "errors"]);
    head.insert(2, against(part));
    let cells = rows.iter().filter(|row| row.requests > 0).map(|row| {
        let errors: Vec<String> =
            row.errors.iter().map(|(kind, n)| format!("{kind} {}", count(*n))).collect();
        vec![
            plain(&row.subject.title),
            ranged(row.rate),
            bounded(row.rate_ratio),
            plain(percent(row.ok_percent)),
            plain(count(row.ok)),
            plain(errors.join(", ")),
        ]
    });
    html! {
        (table(&head, &cells.collect::<Vec<_>>()))
        @if part.rounds > 1 {
            p.soft { "Medians of the rounds with their range; ratios within rounds with their 95 % confidence interval." }
        }
    }
}

/// Quantiles.
pub fn latency(rows: &[Row<'_>]) -> Markup {
    let head = heads(&["ms", "p50", "p80", "p90", "p95", "p99", "p99.9", "max", "mean"]);
    let cells = rows.iter().filter_map(|row| {
        let l = row.latency.as_ref()?;
        let figures = [l.p50, l.p80, l.p90, l.p95, l.p99, l.p999, l.max, l.mean];
        Some(
            std::iter::once(plain(&row.subject.title))
                .chain(figures.map(|f| plain(or_dash(f))))
                .collect::<Vec<_>>(),
        )
    });
    html! {
        (table(&head, &cells.collect::<Vec<_>>()))
        p.soft { "All requests of all rounds together, failed ones included." }
    }
}

/// Each phase of a schedule.
pub fn phases(part: &Part) -> Markup {
    let head = heads(&["", "OK shots/s", "OK %", "p50", "p80", "p90", "p95", "p99", "max", "mean"]);
    let cells = |row: PhaseRow<'_>| {
        let l = row.latency.unwrap_or_default();
        let figures = [l.p50, l.p80, l.p90, l.p95, l.p99, l.max, l.mean];
        let first = [plain(&row.subject.title), ranged(row.rate), plain(percent(row.ok_percent))];
        first.into_iter().chain(figures.map(|f| plain(or_dash(f)))).collect::<Vec<_>>()
    };
    html! {
        @for rows in result::phases(part) {
            @if let Some(first) = rows.first() { h3 { (first.phase) } }
            (table(&head, &rows.into_iter().map(cells).collect::<Vec<_>>()))
        }
    }
}

/// CPU, memory, context switches; databases apart; processors.
pub fn resources(part: &Part, rows: &[Row<'_>]) -> Markup {
    let mut head = heads(&[
        "",
        "CPU µs/request",
        "user",
        "system",
        "CPU % median",
        "max",
        "MB median",
        "max",
        "switches/request",
        "involuntary",
        "processes",
        "start, ms",
    ]);
    head.insert(4, against(part));
    let cpu = |spread: Option<Spread>| {
        plain(spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.0}", spread.value * 100.0)))
    };
    let cells = rows.iter().filter(|row| row.requests > 0).map(|row| {
        vec![
            plain(&row.subject.title),
            ranged(row.cpu_us),
            plain(median(row.cpu_user_us)),
            plain(median(row.cpu_system_us)),
            bounded(row.cpu_ratio),
            cpu(row.cpu_median),
            cpu(row.cpu_max),
            plain(median(row.memory_median)),
            plain(median(row.memory_max)),
            plain(median(row.switches)),
            plain(median(row.involuntary)),
            plain(row.processes.to_string()),
            plain(median(row.start_up.map(|s| Spread { value: s.value * 1000.0, ..s }))),
        ]
    });
    html! {
        h3 { "Resources" }
        (table(&head, &cells.collect::<Vec<_>>()))
        p.soft { "All processes of the engine, databases not included. 100 % is one processor." }
        (instructions(part, rows))
        (services(rows))
        (processors(part))
    }
}

/// What was executed, if it was counted.
fn instructions(part: &Part, rows: &[Row<'_>]) -> Markup {
    let mut head = heads(&["", "1,000 instructions/request", "user", "kernel"]);
    head.push(against(part));
    let cells = rows.iter().filter(|row| row.instructions.is_some()).map(|row| {
        vec![
            plain(&row.subject.title),
            ranged(row.instructions),
            plain(median(row.instructions_user)),
            plain(median(row.instructions_kernel)),
            bounded(row.instructions_ratio),
        ]
    });
    let cells: Vec<_> = cells.collect();
    html! {
        @if !cells.is_empty() {
            h3 { "Instructions" }
            (table(&head, &cells))
            p.soft { "What processors executed for the engine, databases not included: a busy machine does not change it." }
        }
    }
}

fn services(rows: &[Row<'_>]) -> Markup {
    let cells: Vec<_> = rows
        .iter()
        .flat_map(|row| {
            row.services.iter().map(|(service, spread)| {
                let memory = row.subject.measurements.iter().filter_map(|m| m.services.get(service));
                let memory = Spread::of(memory.map(|usage| usage.memory_max as f64 / 1e6));
                vec![plain(&row.subject.title), plain(service), ranged(Some(*spread)), plain(median(memory))]
            })
        })
        .collect();
    html! {
        @if !cells.is_empty() {
            h3 { "Databases" }
            (table(&heads(&["", "service", "CPU µs/request", "MB max"]), &cells))
        }
    }
}

fn processors(part: &Part) -> Markup {
    let all = || part.subjects.iter().flat_map(|s| &s.measurements).flat_map(|m| &m.cores);
    let cpus: std::collections::BTreeSet<usize> = all().map(|core| core.cpu).collect();
    let mut head = vec![String::new()];
    head.extend(cpus.iter().map(|cpu| format!("processor {cpu}")));
    head.push("of others".to_owned());
    let cells = part.ranked().into_iter().filter(|subject| !subject.measurements.is_empty()).map(|subject| {
        let busy = |cpu: usize| {
            let cores =
                subject.measurements.iter().flat_map(|m| &m.cores).filter(move |core| core.cpu == cpu);
            Spread::of(cores.map(|core| core.busy * 100.0))
                .map_or_else(|| "-".to_owned(), |s| format!("{:.0} %", s.value))
        };
        let foreign = subject.measurements.iter().map(|m| m.foreign).fold(0.0, f64::max) * 100.0;
        let mut cells = vec![plain(&subject.title)];
        cells.extend(cpus.iter().map(|cpu| plain(busy(*cpu))));
        cells.push(plain(format!("{foreign:.0} %")));
        cells
    });
    html! {
        details {
            summary { "How busy each processor was" }
            (table(&head, &cells.collect::<Vec<_>>()))
            p.soft { "Medians of the rounds; \"of others\": the most of the servers' processors that no engine and no database used." }
        }
    }
}

/// A ladder's steps: what each of them changes.
pub fn steps(part: &Part) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr { th { "step" } th { (part.metric.label()) } th { "× below" } th { "published" } th { "ours / published" } th.left { "changes" } } }
                tbody {
                    @for (subject, step) in part.subjects.iter().zip(part.steps()) {
                        @let own = step.spread;
                        tr {
                            td { (subject.title) }
                            td { (ranged(own)) }
                            td { (bounded(step.ratio)) }
                            td { (or_dash(subject.reference)) }
                            td { (or_dash(own.zip(subject.reference).map(|(own, theirs)| own.value / theirs))) }
                            td.wrap { (changes(subject, subject.above.and_then(|above| part.subjects.get(above)))) }
                        }
                    }
                }
            }
        }
    }
}

/// What a step changes against the one it stands on; all that it sets for the base.
fn changes(subject: &Subject, below: Option<&Subject>) -> String {
    let mut parts = Vec::new();
    if below.is_none_or(|below| below.engine != subject.engine) {
        parts.push(subject.engine.clone());
    }
    if below.is_none_or(|below| below.workload != subject.workload) {
        parts.push(format!("workload {}", subject.workload));
    }
    let all = |subject: &Subject| {
        let change = &subject.change;
        let settings = [&change.ini, &change.entry, &change.variables].into_iter().flatten();
        let mut texts: Vec<String> = settings.map(|(key, value)| format!("{key} = {value}")).collect();
        texts.extend(change.extensions.iter().map(|extension| format!("extension {extension}")));
        texts.extend(change.env.iter().map(|(key, value)| format!("{key}={value}")));
        texts.extend(change.path.clone());
        texts
    };
    let known = below.map(all).unwrap_or_default();
    parts.extend(all(subject).into_iter().filter(|text| !known.contains(text)));
    if below.is_some_and(|below| below.load != subject.load) {
        parts.push(subject.load.to_string());
    }
    parts.join(", ")
}

/// What others published, beside ours.
pub fn references(part: &Part) -> Markup {
    let phases = part.references.iter().any(|reference| reference.phase.is_some());
    let mut head = heads(&["", "", "published", "ours", "ours / published"]);
    if phases {
        head.insert(2, "phase".to_owned());
    }
    let cells: Vec<_> = part
        .beside_published()
        .into_iter()
        .map(|(reference, ours)| {
            let engine = reference.engine.as_ref();
            let subject = part.subjects.iter().find(|subject| Some(&subject.engine) == engine);
            let name = subject.map(|subject| &subject.title).or(engine);
            let theirs = reference.theirs.as_ref();
            let mut cells = vec![
                match name {
                    Some(name) => html! {
                        (name)
                        @if let Some(theirs) = theirs { small { "theirs: " (theirs) } }
                        @if subject.is_none() { small { "not run" } }
                    },
                    None => html! { @if let Some(theirs) = theirs { (theirs) small { "not here" } } },
                },
                plain(reference.metric.label()),
                plain(number(reference.value)),
                plain(or_dash(ours)),
                plain(or_dash(ours.map(|ours| ours / reference.value))),
            ];
            if phases {
                cells.insert(2, plain(reference.phase.clone().unwrap_or_default()));
            }
            cells
        })
        .collect();
    html! {
        @if !cells.is_empty() {
            h3 { "Beside the published figures" }
            (table(&head, &cells))
            p.soft { "Another machine, other versions: the order and the ratios compare, the figures by themselves do not." }
        }
    }
}
