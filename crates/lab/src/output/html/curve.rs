//! Saturation: throughput and latency against the rate that was asked for.

use maud::{Markup, html};

use super::chart::{
    Scale, WIDTH, heading, horizontal, marks, path, percent as place, plot, vertical, with_unit,
};
use crate::{
    output::number::{number, or_dash, percent},
    result::{Part, Subject, intended_rate},
};

/// Height of a panel, with a little room above the highest line.
const PANEL: f64 = 134.0;
const TOP: f64 = 4.0;
/// Below the last panel.
const AXIS: f64 = 18.0;

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
                thead { tr { th { "" } th { "knee, requests/s" } th { "limit" } th { "not served any more" } } }
                tbody {
                    @for subject in part.ranked() {
                        @if let Some(saturation) = &subject.saturation {
                            tr {
                                td { (subject.title) }
                                td { (or_dash(saturation.knee)) }
                                td { (number(saturation.limit)) }
                                td { (or_dash(saturation.failed_at)) }
                            }
                        }
                    }
                }
            }
        }
        @for subject in part.ranked() {
            @if let Some(saturation) = &subject.saturation { p { (subject.title) ": " (saturation.conclusion) "." } }
        }
        p.soft {
            "Limit: the highest rate of right answers that was seen. Knee: the rate at which throughput divided by mean latency \
             is highest; beyond it one pays with waiting."
        }
        div.charts { @for subject in part.ranked().into_iter().filter(|s| !s.measurements.is_empty()) { (chart(subject)) } }
        @for subject in part.ranked().into_iter().filter(|s| !s.measurements.is_empty()) { (table(subject)) }
    }
}

fn chart(subject: &Subject) -> Markup {
    let steps = steps(subject);
    let most = steps.iter().map(|step| step.intended).fold(0.0, f64::max);
    let x = Scale::linear(most, 0.0, WIDTH);
    let rate = Scale::linear(most, PANEL, TOP);
    let all = || steps.iter().flat_map(|step| [step.p50, step.p95]).flatten().filter(|v| *v > 0.0);
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let latency = Scale::logarithmic(if low.is_finite() { low } else { 1.0 }, high.max(1.0), PANEL, TOP);
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
    let asked = [Some((x.at(0.0), rate.at(0.0))), Some((x.at(most), rate.at(most)))];
    let at_knee = html! {
        @if let Some(knee) = knee {
            @let at = place(x.at(knee));
            line.knee x1=(at) x2=(at) y1="0" y2=(PANEL) { title { "knee: " (number(knee)) "/s" } }
        }
    };
    let answered = html! {
        (vertical(&rate))
        (path("line plan", &asked, PANEL))
        (at_knee)
        @if let Some(limit) = limit {
            line.limit x1="0" x2="100%" y1=(rate.at(limit)) y2=(rate.at(limit)) { title { "limit: " (number(limit)) "/s" } }
        }
        (path("line one", &ok, PANEL))
        (marks("one", &ok, |i| says("right answers", Some(steps[i].ok), "/s", i)))
    };
    let waited = html! {
        (vertical(&latency))
        (at_knee)
        (path("line two", &p95, PANEL))
        (marks("two", &p95, |i| says("p95", steps[i].p95, "ms", i)))
        (path("line one", &p50, PANEL))
        (marks("one", &p50, |i| says("p50", steps[i].p50, "ms", i)))
        (horizontal(&x, PANEL, "/s"))
    };
    let title = &subject.title;
    html! {
        figure.course {
            figcaption { (title) " " span.hint { "across: requests/s asked for" } }
            (heading("right answers/s", &[("one", "answered"), ("plan", "asked for"), ("limit", "limit"), ("knee", "knee")]))
            (plot(&format!("{title}: right answers by the rate asked for"), PANEL, &answered))
            (heading("latency, ms", &[("two", "p95"), ("one", "p50")]))
            (plot(&format!("{title}: latency by the rate asked for"), PANEL + AXIS, &waited))
        }
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
