//! The course of a measurement: rate, latency, CPU and memory over the same seconds, one panel below the other.

use maud::{Markup, html};

use super::chart::{Scale, WIDTH, heading, horizontal, marks, path, percent, plot, vertical, with_unit};
use crate::result::Measurement;

/// Height of a panel, with a little room above the highest line.
const PANEL: f64 = 96.0;
const TOP: f64 = 4.0;
/// Below the last panel.
const AXIS: f64 = 18.0;

/// The highest values of all measurements that are shown side by side, so that one can compare them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Most {
    seconds: f64,
    rate: f64,
    /// Lowest and highest latency.
    latency: Option<(f64, f64)>,
    cpu: f64,
    memory: f64,
}

impl Most {
    /// Of these.
    pub fn of<'a>(measurements: impl Iterator<Item = &'a Measurement>) -> Self {
        let mut most = Self::default();
        for measurement in measurements {
            let load = &measurement.load;
            most.seconds = most.seconds.max(load.duration);
            for second in full(measurement) {
                let rate = second.requests as f64 / second.length;
                most.rate = most.rate.max(rate).max(second.intended_rate.unwrap_or(0.0));
                for value in
                    [second.latency_ms.mean, second.latency_ms.p99].into_iter().flatten().filter(|v| *v > 0.0)
                {
                    let (low, high) = most.latency.unwrap_or((value, value));
                    most.latency = Some((low.min(value), high.max(value)));
                }
            }
            for sample in &measurement.samples {
                most.cpu = most.cpu.max(sample.server).max(sample.services).max(sample.generator);
                most.memory = most.memory.max(sample.memory.unwrap_or(0) as f64 / 1e6);
            }
        }
        most
    }
}

/// Seconds that are long enough to say something about a rate.
fn full(measurement: &Measurement) -> impl Iterator<Item = &hayate_load::Second> {
    measurement.load.seconds.iter().filter(|second| second.length >= 0.2)
}

/// One line of a panel.
struct Line {
    name: &'static str,
    class: &'static str,
    /// Seconds and value.
    points: Vec<(f64, Option<f64>)>,
    /// Drawn dashed and without marks: a plan, not a measurement.
    plan: bool,
}

/// The panels of one measurement.
pub fn render(title: &str, measurement: &Measurement, most: &Most) -> Markup {
    let x = Scale::exact(most.seconds, 0.0, WIDTH);
    let seconds: Vec<_> = full(measurement).collect();
    let per_second = |value: &dyn Fn(&hayate_load::Second) -> Option<f64>| {
        seconds
            .iter()
            .map(|second| (second.second as f64 + second.length / 2.0, value(second)))
            .collect::<Vec<_>>()
    };
    let sampled = |value: &dyn Fn(&crate::result::Sample) -> Option<f64>| {
        measurement.samples.iter().map(|sample| (sample.at, value(sample))).collect::<Vec<_>>()
    };
    let line = |name, class, points| Line { name, class, points, plan: false };
    let failed = seconds.iter().any(|second| second.ok < second.requests);
    let mut rate = vec![line("OK", "one", per_second(&|s| Some(s.ok as f64 / s.length)))];
    if failed {
        rate.push(line("failed", "bad", per_second(&|s| Some((s.requests - s.ok) as f64 / s.length))));
    }
    if seconds.iter().any(|second| second.intended_rate.is_some()) {
        rate.insert(
            0,
            Line { name: "planned", class: "plan", points: per_second(&|s| s.intended_rate), plan: true },
        );
    }
    let latency = vec![
        line("p99", "two", per_second(&|s| s.latency_ms.p99)),
        line("mean", "one", per_second(&|s| s.latency_ms.mean)),
    ];
    let mut cpu = vec![line("engine", "one", sampled(&|s| Some(s.server)))];
    if !measurement.services.is_empty() {
        cpu.push(line("database", "three", sampled(&|s| Some(s.services))));
    }
    cpu.push(line("generator", "plan", sampled(&|s| Some(s.generator))));
    // Not every sample looked at the memory: the line leads from one that did to the next.
    let mut memory = sampled(&|s| s.memory.map(|bytes| bytes as f64 / 1e6));
    memory.retain(|(_, value)| value.is_some());
    let memory = vec![line("engine", "one", memory)];
    let (low, high) = most.latency.unwrap_or((1.0, 10.0));
    let panels = [
        (
            "requests/s",
            "/s",
            rate,
            Box::new(|a, b| Scale::linear(most.rate, a, b)) as Box<dyn Fn(f64, f64) -> Scale>,
        ),
        ("latency, ms", "ms", latency, Box::new(|a, b| Scale::logarithmic(low, high, a, b))),
        ("CPU, processors", "processors", cpu, Box::new(|a, b| Scale::linear(most.cpu, a, b))),
        ("memory (PSS), MB", "MB", memory, Box::new(|a, b| Scale::linear(most.memory, a, b))),
    ];
    let last = panels.len() - 1;
    html! {
        figure.course {
            figcaption { (title) }
            @for (i, (name, unit, lines, scale)) in panels.iter().enumerate() {
                @let y = scale(PANEL, TOP);
                @let drawing = html! {
                    (phases(measurement, &x))
                    (panel(unit, lines, &x, &y))
                    @if i == last { (horizontal(&x, PANEL, "s")) }
                };
                @let keys: Vec<_> = lines.iter().map(|line| (line.class, line.name)).collect();
                (heading(name, if keys.len() > 1 { &keys } else { &[] }))
                (plot(&format!("{title}: {name} over time"), if i == last { PANEL + AXIS } else { PANEL }, &drawing))
            }
        }
    }
}

/// Where a schedule's phases begin.
fn phases(measurement: &Measurement, x: &Scale) -> Markup {
    let phases = &measurement.load.phases;
    html! {
        @if phases.len() > 1 {
            @for phase in phases {
                @let at = percent(x.at(phase.start));
                line.phase x1=(at) x2=(at) y1="0" y2=(PANEL) { title { (phase.phase) } }
            }
        }
    }
}

fn panel(unit: &str, lines: &[Line], x: &Scale, y: &Scale) -> Markup {
    let place = |(at, value): &(f64, Option<f64>)| value.map(|value| (x.at(*at), y.at(value)));
    let points = |line: &Line| line.points.iter().map(place).collect::<Vec<_>>();
    html! {
        (vertical(y))
        @for line in lines {
            @let points = points(line);
            (path(&format!("line {}", line.class), &points, PANEL))
            @if !line.plan {
                (marks(line.class, &points, |i| {
                    let (at, value) = line.points[i];
                    format!("{} after {at:.1} s: {}", line.name, with_unit(value.unwrap_or(0.0), unit))
                }))
            }
        }
    }
}
