//! Saturation: throughput and latency against the rate that was asked for.

use maud::{Markup, html};

use super::chart::{Scale, WIDTH, horizontal, marks, path, svg, vertical, with_unit};
use crate::{
    output::number::{number, or_dash, percent},
    result::{Part, Subject, intended_rate},
};

const LEFT: f64 = 46.0;
const RIGHT: f64 = WIDTH - 8.0;
const PANEL: f64 = 130.0;
const GAP: f64 = 22.0;

/// One step of the search.
struct Step {
    intended: f64,
    ok: f64,
    ok_percent: Option<f64>,
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
}

fn steps(subject: &Subject) -> Vec<Step> {
    let mut steps: Vec<Step> = subject
        .measurements
        .iter()
        .filter_map(|m| {
            let intended = intended_rate(m)?;
            let (total, latency) = (&m.load.total, &m.load.total.latency_ms);
            Some(Step {
                intended,
                ok: total.ok_rate,
                ok_percent: total.ok_percent,
                p50: latency.p50,
                p95: latency.p95,
                p99: latency.p99,
            })
        })
        .collect();
    steps.sort_by(|a, b| a.intended.total_cmp(&b.intended));
    steps
}

/// All engines of a part.
pub fn render(part: &Part) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr { th { "" } th { "knee, requests/s" } th { "limit" } th { "not served any more" } th.left { "" } } }
                tbody {
                    @for subject in &part.subjects {
                        @if let Some(saturation) = &subject.saturation {
                            tr {
                                td { (subject.title) }
                                td { (or_dash(saturation.knee)) }
                                td { (number(saturation.limit)) }
                                td { (or_dash(saturation.failed_at)) }
                                td.wrap { (saturation.conclusion) }
                            }
                        }
                    }
                }
            }
        }
        p.soft {
            "Limit: the highest rate of right answers that was seen. Knee: the rate at which throughput divided by mean latency \
             is highest; beyond it one pays with waiting."
        }
        div.charts { @for subject in part.subjects.iter().filter(|s| !s.measurements.is_empty()) { (chart(subject)) } }
        @for subject in part.subjects.iter().filter(|s| !s.measurements.is_empty()) { (table(subject)) }
    }
}

fn chart(subject: &Subject) -> Markup {
    let steps = steps(subject);
    let most = steps.iter().map(|step| step.intended).fold(0.0, f64::max);
    let x = Scale::linear(most, LEFT, RIGHT);
    let rate = Scale::linear(most, GAP + PANEL, GAP + 4.0);
    let all = || steps.iter().flat_map(|step| [step.p50, step.p95]).flatten().filter(|v| *v > 0.0);
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let top = 2.0 * GAP + PANEL;
    let latency =
        Scale::logarithmic(if low.is_finite() { low } else { 1.0 }, high.max(1.0), top + PANEL, top + 4.0);
    let bottom = top + PANEL;
    let points = |scale: &Scale, of: &dyn Fn(&Step) -> Option<f64>| {
        steps
            .iter()
            .map(|step| of(step).map(|value| (x.at(step.intended), scale.at(value))))
            .collect::<Vec<_>>()
    };
    let says = |name: &str, value: Option<f64>, unit: &str, i: usize| {
        format!("{name} at {}/s: {}", number(steps[i].intended), with_unit(value.unwrap_or(0.0), unit))
    };
    let (ok, p95, p50) =
        (points(&rate, &|s| Some(s.ok)), points(&latency, &|s| s.p95), points(&latency, &|s| s.p50));
    let knee = subject.saturation.as_ref().and_then(|saturation| saturation.knee);
    let limit = subject.saturation.as_ref().map(|saturation| saturation.limit);
    let drawing = html! {
        text class="panel" x=(LEFT) y=(GAP - 5.0) { "right answers/s; dashed: as many as were asked for" }
        (vertical(&rate, LEFT, RIGHT))
        path class="line plan" d={ "M" (x.at(0.0)) " " (rate.at(0.0)) "L" (x.at(most)) " " (rate.at(most)) } {}
        @if let Some(knee) = knee {
            line class="knee" x1=(x.at(knee)) x2=(x.at(knee)) y1=(GAP) y2=(bottom) { title { "knee: " (number(knee)) "/s" } }
        }
        @if let Some(limit) = limit {
            line class="limit" x1=(LEFT) x2=(RIGHT) y1=(rate.at(limit)) y2=(rate.at(limit)) { title { "limit: " (number(limit)) "/s" } }
        }
        (path("line one", &ok))
        (marks("one", &ok, |i| says("right answers", Some(steps[i].ok), "/s", i)))
        text class="panel" x=(LEFT) y=(top - 5.0) { "latency, ms: p95 (upper), p50 (lower)" }
        (vertical(&latency, LEFT, RIGHT))
        (path("line two", &p95))
        (marks("two", &p95, |i| says("p95", steps[i].p95, "ms", i)))
        (path("line one", &p50))
        (marks("one", &p50, |i| says("p50", steps[i].p50, "ms", i)))
        (horizontal(&x, None, bottom, "/s asked for"))
    };
    html! {
        figure.course { figcaption { (subject.title) } (svg(&format!("{}: saturation", subject.title), bottom + 20.0, &drawing)) }
    }
}

fn table(subject: &Subject) -> Markup {
    html! {
        details {
            summary { (subject.title) ": all steps" }
            div.scroll {
                table {
                    thead { tr { @for head in ["asked for", "answered rightly", "OK %", "p50 ms", "p95 ms", "p99 ms"] { th { (head) } } } }
                    tbody {
                        @for step in steps(subject) {
                            tr {
                                td { (number(step.intended)) } td { (number(step.ok)) } td { (percent(step.ok_percent)) }
                                td { (or_dash(step.p50)) } td { (or_dash(step.p95)) } td { (or_dash(step.p99)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
