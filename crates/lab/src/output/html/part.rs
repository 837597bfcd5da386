//! One experiment of the page.

use maud::{Markup, html};

use super::{
    bars::{self, Bar},
    curve,
    series::{self, Most},
    tables,
};
use crate::{
    data::{Kind, Metric},
    output::{number::number, text::part_title},
    result::{Part, Row, Spread, Subject, rows, value},
};

/// Everything about a part.
pub fn render(number: usize, part: &Part) -> Markup {
    let rows = rows(part);
    html! {
        section id={ "part-" (number) } {
            h2 { (part_title(part)) }
            @if !part.about.is_empty() { p { (part.about) } }
            @for subject in &part.subjects { (failure(subject)) }
            @match part.kind {
                Kind::Run => (run(part, &rows)),
                Kind::Ladder => (ladder(part, &rows)),
                Kind::Saturate => (curve::render(part)),
            }
            (tables::references(part))
            @if part.kind != Kind::Saturate {
                (tables::resources(part, &rows))
                (courses(part))
            }
        }
    }
}

fn failure(subject: &Subject) -> Markup {
    html! {
        @if let Some(failure) = &subject.failure {
            div.failure {
                p { strong { (subject.title) } " " (failure.stage.verb()) ": " (failure.message) }
                @if !failure.log.is_empty() { pre { (failure.log) } }
            }
        }
    }
}

fn run(part: &Part, rows: &[Row<'_>]) -> Markup {
    let chart = |title: &str,
                 unit: &str,
                 more_is_better: bool,
                 of: &dyn Fn(&Row<'_>) -> Option<Spread>,
                 metric: Metric| {
        let mut bars: Vec<Bar> = rows
            .iter()
            .filter_map(|row| {
                Some(Bar {
                    label: row.subject.title.clone(),
                    spread: of(row)?,
                    reference: reference(part, row.subject, metric),
                    baseline: part.baseline.as_ref() == Some(&row.subject.name),
                    note: String::new(),
                })
            })
            .collect();
        bars::sort(&mut bars, more_is_better);
        bars::render(title, unit, &bars)
    };
    let of = |metric: Metric| {
        move |row: &Row<'_>| {
            Spread::of(row.subject.measurements.iter().filter_map(|m| value(metric, m, None)))
        }
    };
    // On a schedule all that keep up have the same rate; what differs is how long their visitors wait.
    let open = rows.iter().any(|row| row.subject.load.is_open());
    html! {
        div.charts {
            @if open {
                (chart("95 % of the answers came within, less is better", "ms", false, &of(Metric::P95), Metric::P95))
                (chart("Right answers, more is better", "%", true, &of(Metric::OkPercent), Metric::OkPercent))
            } @else {
                (chart("Requests per second, more is better", "/s", true, &|row| row.rate, Metric::Rate))
                (chart("99 % of the answers came within, less is better", "ms", false, &of(Metric::P99), Metric::P99))
            }
            (chart("CPU time per request, less is better", "µs", false, &|row| row.cpu_us, Metric::CpuUs))
            (chart("Memory at most (PSS), less is better", "MB", false, &|row| row.memory_max, Metric::MemoryMax))
        }
        h3 { "Speed" }
        (tables::speed(part, rows))
        h3 { "Latency" }
        (tables::latency(rows))
        (tables::phases(part))
    }
}

/// A published figure of the whole load.
fn reference(part: &Part, subject: &Subject, metric: Metric) -> Option<f64> {
    let of_it =
        |r: &&crate::data::Reference| r.engine == subject.engine && r.metric == metric && r.phase.is_none();
    part.references.iter().find(of_it).map(|reference| reference.value)
}

/// The steps in their order, each with what it changed against the one it stands on.
fn ladder(part: &Part, rows: &[Row<'_>]) -> Markup {
    let metric = part.metric;
    let bars: Vec<Bar> = part
        .subjects
        .iter()
        .zip(part.steps())
        .filter_map(|(subject, step)| {
            Some(Bar {
                label: subject.title.clone(),
                spread: step.spread?,
                reference: subject.reference,
                baseline: subject.above.is_none(),
                note: step.ratio.map_or_else(String::new, |ratio| format!("×{}", number(ratio.value))),
            })
        })
        .collect();
    let better = if metric.more_is_better() { "more is better" } else { "less is better" };
    html! {
        div.wide { (bars::render(&format!("{}, {better}", metric.label()), "", &bars)) }
        p.soft { "Behind each figure: how many times the figure of the step that it stands on." }
        (tables::steps(part))
        h3 { "Speed" }
        (tables::speed(part, rows))
        h3 { "Latency" }
        (tables::latency(rows))
    }
}

/// The last round of each subject over its time.
fn courses(part: &Part) -> Markup {
    let measured: Vec<_> = part.subjects.iter().filter_map(|s| Some((s, s.measurements.last()?))).collect();
    let most = Most::of(measured.iter().map(|(_, measurement)| *measurement));
    html! {
        @if !measured.is_empty() {
            h3 { "Course of the " (if part.rounds > 1 { "last round" } else { "load" }) }
            p.soft { "The same scales for all. Latency on a logarithmic one." }
            div.charts {
                @for (subject, measurement) in &measured { (series::render(&subject.title, measurement, &most)) }
            }
        }
    }
}
