//! What all charts have in common: scales, ticks, axes, as SVG whose colours come from the page's style.
//!
//! Promises: no script and no font of its own; every mark that stands for a figure has it as a title, which browsers show. A
//! drawing is as wide as its column: across, all is placed by percentages, so that text and lines keep their size; only curves
//! are stretched.

use maud::{Markup, html};

use crate::output::number::number;

/// Horizontal scales lead to percentages of a drawing's width.
pub const WIDTH: f64 = 100.0;

/// Units of a curve for one percent: fine enough for any screen.
const FINE: f64 = 10.0;

/// Maps values to positions.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
    /// Between ticks of a linear scale.
    step: f64,
}

impl Scale {
    /// From 0 to at least `most`, a round number; values map to `from..to`.
    pub fn linear(most: f64, from: f64, to: f64) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most);
        Self { low: 0.0, high: (most / step).ceil() * step, from, to, logarithmic: false, step }
    }

    /// From 0 to exactly `most`.
    pub fn exact(most: f64, from: f64, to: f64) -> Self {
        let high = if most > 0.0 { most } else { 1.0 };
        Self { low: 0.0, high, from, to, logarithmic: false, step: step(high) }
    }

    /// Whole decades from `least` to `most`, both above 0.
    pub fn logarithmic(least: f64, most: f64, from: f64, to: f64) -> Self {
        let low = least.max(1e-9).log10().floor();
        let high = most.max(1e-9).log10().ceil().max(low + 1.0);
        Self { low: 10_f64.powf(low), high: 10_f64.powf(high), from, to, logarithmic: true, step: 0.0 }
    }

    /// Where a value lies; what is outside lies on the edge.
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        round(self.from + share.clamp(0.0, 1.0) * (self.to - self.from))
    }

    /// Values that deserve a line.
    pub fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let (low, high) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
            let every = ((high - low) / 5).max(1);
            return (low..=high)
                .step_by(every.unsigned_abs() as usize)
                .map(|power| 10_f64.powi(power))
                .collect();
        }
        let count = (self.high / self.step + 1e-9).floor() as usize;
        (0..=count).map(|i| i as f64 * self.step).collect()
    }
}

/// A round distance between ticks: 1, 2 or 5 times a power of ten, 3 to 6 of them.
fn step(most: f64) -> f64 {
    let rough = most / 4.0;
    let power = 10_f64.powf(rough.log10().floor());
    let factor = match rough / power {
        f if f < 1.5 => 1.0,
        f if f < 3.5 => 2.0,
        f if f < 7.5 => 5.0,
        _ => 10.0,
    };
    factor * power
}

/// A tenth of a unit is finer than any screen.
pub fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// A tick's label: short.
pub fn tick(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", trimmed(v / 1e6)),
        v if v >= 1e4 => format!("{}k", trimmed(v / 1e3)),
        v if v == 0.0 || v >= 0.01 => trimmed(v),
        v => format!("{v:.0e}"),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A place across a drawing.
pub fn percent(value: f64) -> String {
    format!("{value}%")
}

/// Lines and labels of a vertical axis; the labels stand left of the drawing.
pub fn vertical(scale: &Scale) -> Markup {
    html! {
        @for value in scale.ticks() {
            @let y = scale.at(value);
            line.grid x1="0" x2="100%" y1=(y) y2=(y) {}
            text class="tick end" x="-6" y=(y + 3.5) { (tick(value)) }
        }
    }
}

/// Labels of a horizontal axis below `bottom`.
pub fn horizontal(scale: &Scale, bottom: f64, unit: &str) -> Markup {
    let ticks = scale.ticks();
    let last = ticks.len().saturating_sub(1);
    // More than six labels may touch each other; the last one is always there, since it carries the unit.
    let every = ticks.len().div_ceil(6);
    html! {
        @for (i, value) in ticks.iter().enumerate() {
            @if (last - i).is_multiple_of(every) {
                text class=(if i == last { "tick end" } else { "tick middle" }) x=(percent(scale.at(*value))) y=(bottom + 14.0) {
                    (tick(*value)) @if i == last { " " (unit) }
                }
            }
        }
    }
}

/// A line through points, each a percentage and a height; it breaks where there is none. `height` is the drawing's.
pub fn path(class: &str, points: &[Option<(f64, f64)>], height: f64) -> Markup {
    let mut data = String::new();
    let mut pen_down = false;
    for point in points {
        match point {
            Some((x, y)) => {
                data.push_str(&format!("{}{} {y}", if pen_down { "L" } else { "M" }, round(x * FINE)));
                pen_down = true;
            }
            None => pen_down = false,
        }
    }
    html! {
        svg.stretched width="100%" height=(height) viewBox={ "0 0 " (WIDTH * FINE) " " (height) } preserveAspectRatio="none" {
            path class=(class) d=(data) {}
        }
    }
}

/// Points that can be pointed at, each with what it says.
pub fn marks(class: &str, points: &[Option<(f64, f64)>], says: impl Fn(usize) -> String) -> Markup {
    html! {
        @for (i, point) in points.iter().enumerate() {
            @if let Some((x, y)) = point {
                circle class={ "mark " (class) } cx=(percent(*x)) cy=(y) r="2" { title { (says(i)) } }
            }
        }
    }
}

/// What a panel shows, and what its lines are.
pub fn heading(name: &str, keys: &[(&str, &str)]) -> Markup {
    html! {
        p.panel {
            (name)
            span.keys { @for (class, name) in keys { span { i class={ "key line " (class) } {} (name) } } }
        }
    }
}

/// A drawing: its title for those who cannot see it, and what is in it; the left margin is for the vertical axis.
pub fn plot(title: &str, height: f64, drawing: &Markup) -> Markup {
    html! { svg.plot role="img" aria-label=(title) height=(height) { (drawing) } }
}

/// `12.3 ms`.
pub fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", number(value)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for most in [0.013, 0.7, 1.0, 3.0, 47.0, 99.0, 118_788.0, 1e7] {
            let scale = Scale::linear(most, 0.0, 100.0);
            let ticks = scale.ticks();
            assert!((3..=8).contains(&ticks.len()), "{most}: {ticks:?}");
            assert!(*ticks.last().expect("ticks") >= most * 0.999, "{most}: {ticks:?}");
            assert_eq!((scale.at(0.0), scale.at(ticks[ticks.len() - 1])), (0.0, 100.0));
        }
        let scale = Scale::logarithmic(0.2, 3000.0, 100.0, 0.0);
        assert_eq!(scale.ticks(), [0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!((scale.at(0.1), scale.at(1e4), scale.at(1e9)), (100.0, 0.0, 0.0));
        let labels: Vec<_> = [0.0, 0.25, 7.0, 1500.0, 20_000.0, 2.5e6].map(tick).into();
        assert_eq!(labels, ["0", "0.25", "7", "1500", "20k", "2.5M"]);
    }
}
