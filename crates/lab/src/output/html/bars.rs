//! Bars with ranges: one figure of several subjects, the best on top.

use maud::{Markup, html};

use super::chart::{Scale, WIDTH, horizontal, svg, with_unit};
use crate::{output::number::number, result::Spread};

/// Height of a row.
const ROW: f64 = 24.0;
/// Below the last row.
const AXIS: f64 = 22.0;
/// Room for the value behind a bar.
const VALUE: f64 = 64.0;

/// About the width of a character.
const CHARACTER: f64 = 6.2;
/// Characters of a label, at most.
const LABEL: usize = 36;

/// One bar.
pub struct Bar {
    /// Whose.
    pub label: String,
    /// The figure: median and range.
    pub spread: Spread,
    /// What others measured.
    pub reference: Option<f64>,
    /// What ratios are taken against.
    pub baseline: bool,
    /// Behind the value.
    pub note: String,
}

/// Sorts, the best first.
pub fn sort(bars: &mut [Bar], more_is_better: bool) {
    bars.sort_by(|a, b| {
        let order = a.spread.median.total_cmp(&b.spread.median);
        if more_is_better { order.reverse() } else { order }
    });
}

/// A label that has room; the bar's title has all of it.
fn shortened(label: &str) -> String {
    if label.chars().count() <= LABEL {
        return label.to_owned();
    }
    label.chars().take(LABEL - 1).chain(['…']).collect()
}

/// The chart, with its caption.
pub fn render(title: &str, unit: &str, bars: &[Bar]) -> Markup {
    let longest = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0).min(LABEL);
    let left = longest as f64 * CHARACTER + 12.0;
    let note = bars.iter().map(|bar| bar.note.chars().count()).max().unwrap_or(0) as f64 * 6.0;
    let most =
        bars.iter().flat_map(|bar| [Some(bar.spread.max), bar.reference]).flatten().fold(0.0, f64::max);
    let scale = Scale::linear(most, left, WIDTH - VALUE - note);
    let bottom = bars.len() as f64 * ROW + 4.0;
    let whiskers = bars.iter().any(|bar| bar.spread.min < bar.spread.max);
    let baseline = bars.len() > 1 && bars.iter().any(|bar| bar.baseline);
    let references = bars.iter().any(|bar| bar.reference.is_some());
    let drawing = html! {
        (horizontal(&scale, Some(0.0), bottom, unit))
        @for (i, bar) in bars.iter().enumerate() {
            @let y = i as f64 * ROW + 5.0;
            @let middle = y + 8.0;
            @let end = scale.at(bar.spread.median);
            g {
                title {
                    (bar.label) ": " (with_unit(bar.spread.median, unit))
                    @if bar.spread.min < bar.spread.max {
                        ", rounds from " (number(bar.spread.min)) " to " (number(bar.spread.max))
                    }
                    @if let Some(reference) = bar.reference { "; published: " (number(reference)) }
                }
                text class="label end" x=(left - 8.0) y=(middle + 4.0) { (shortened(&bar.label)) }
                rect class=(if bar.baseline { "bar baseline" } else { "bar" }) x=(left) y=(y)
                    width=((end - left).max(1.0)) height="16" rx="2" {}
                @if bar.spread.min < bar.spread.max {
                    @let (low, high) = (scale.at(bar.spread.min), scale.at(bar.spread.max));
                    path class="whisker" d={ "M" (low) " " (middle) "H" (high)
                        "M" (low) " " (middle - 4.0) "V" (middle + 4.0) "M" (high) " " (middle - 4.0) "V" (middle + 4.0) } {}
                }
                @if let Some(reference) = bar.reference {
                    @let x = scale.at(reference);
                    path class="reference" d={ "M" (x) " " (y - 2.0) "V" (y + 18.0) } {}
                }
                @let behind = scale.at(bar.spread.max);
                text class="value" x=(behind + 6.0) y=(middle + 4.0) {
                    (number(bar.spread.median))
                    @if !bar.note.is_empty() { tspan class="note" { "  " (bar.note) } }
                }
            }
        }
    };
    html! {
        figure {
            figcaption {
                (title)
                @if whiskers { span class="hint" { "line: range of the rounds" } }
                @if baseline { span class="hint" { "grey: baseline" } }
                @if references { span class="hint" { span class="key reference" {} "published" } }
            }
            (svg(title, bottom + AXIS, &drawing))
        }
    }
}
