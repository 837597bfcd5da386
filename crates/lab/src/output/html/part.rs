//! One experiment of the page.

use maud::{Markup, html};

use super::{
    bars::{self, Bar, Colour},
    curve,
    series::{self, Most},
    tables,
};
use crate::{
    data::{Kind, Metric},
    engine::Failure,
    output::{
        number::number,
        text::part_title,
        verdict::{by_title, verdict},
    },
    result::{Part, Row, Spread, Subject, rows},
};

/// Everything about a part; with its verdict, unless that stands right above.
pub fn render(number: usize, part: &Part, with_verdict: bool) -> Markup {
    let rows = rows(part);
    html! {
        section id={ "part-" (number) } {
            h2 { (part_title(part)) }
            @if with_verdict { p.verdict { (verdict(part, by_title)) } }
            @if !part.about.is_empty() { p { (part.about) } }
            @for (reason, subjects) in part.failures() { (failure(reason, &subjects)) }
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

fn failure(reason: &Failure, subjects: &[&Subject]) -> Markup {
    let titles: Vec<&str> = subjects.iter().map(|subject| subject.title.as_str()).collect();
    html! {
        div.failure {
            p { strong { (titles.join(", ")) } " " (reason.stage.verb()) ": " (reason.message) }
            @if !reason.log.is_empty() { pre { (reason.log) } }
        }
    }
}

fn run(part: &Part, rows: &[Row<'_>]) -> Markup {
    let chart = |title: &str, unit: &str, metric: Metric, of: &dyn Fn(&Row<'_>) -> Option<Spread>| {
        let bar = |row: &Row<'_>| {
            Some(Bar {
                label: row.subject.title.clone(),
                spread: of(row)?,
                reference: reference(part, row.subject, metric),
                kind: colour(part, row.subject),
                note: String::new(),
            })
        };
        let bars: Vec<Bar> = rows.iter().filter_map(bar).collect();
        bars::render(title, better(metric), unit, &bars)
    };
    let of = |metric: Metric| move |row: &Row<'_>| row.subject.figure(metric, None);
    html! {
        div.charts {
            @if part.decisive() == Metric::P95 {
                (chart("95 % of the answers came within", "ms", Metric::P95, &of(Metric::P95)))
                (chart("Right answers", "%", Metric::OkPercent, &of(Metric::OkPercent)))
            } @else {
                (chart("Requests per second", "", Metric::Rate, &|row| row.rate))
                (chart("99 % of the answers came within", "ms", Metric::P99, &of(Metric::P99)))
            }
            (chart("Processor time per request", "µs", Metric::CpuUs, &|row| row.cpu_us))
            (chart("Memory at most (PSS)", "MB", Metric::MemoryMax, &|row| row.memory_max))
        }
        h3 { "Speed" }
        (tables::speed(part, rows))
        h3 { "Latency" }
        (tables::latency(rows))
        (tables::phases(part))
    }
}

fn better(metric: Metric) -> &'static str {
    if metric.more_is_better() { "more is better" } else { "less is better" }
}

fn colour(part: &Part, subject: &Subject) -> Colour {
    if subject.yardstick {
        Colour::Yardstick
    } else if part.baseline.as_ref() == Some(&subject.name) {
        Colour::Baseline
    } else {
        Colour::Usual
    }
}

/// A published figure of the whole load.
fn reference(part: &Part, subject: &Subject, metric: Metric) -> Option<f64> {
    let of_it = |r: &&crate::data::Reference| {
        r.engine.as_ref() == Some(&subject.engine) && r.metric == metric && r.phase.is_none()
    };
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
                kind: if subject.above.is_none() { Colour::Baseline } else { Colour::Usual },
                note: step.ratio.map_or_else(String::new, |ratio| format!("×{}", number(ratio.value))),
            })
        })
        .collect();
    html! {
        div.wide { (bars::render(metric.label(), better(metric), "", &bars)) }
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
    let measured: Vec<_> =
        part.ranked().into_iter().filter_map(|s| Some((s, s.measurements.last()?))).collect();
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
