//! Bars with ranges: one figure of several subjects, a row for each, in the order in which they are given.
//!
//! Promises: text is as large on a telephone as on a desk. Rows are HTML, only what is drawn is SVG, placed by percentages.

use maud::{Markup, html};

use super::chart::{Scale, percent, with_unit};
use crate::{output::number::number, result::Spread};

/// Of a bar's width, what is left free for the figure behind it: percent.
const FOR_FIGURE: f64 = 28.0;
/// With a note behind the figure.
const FOR_NOTE: f64 = 40.0;

/// One bar.
pub struct Bar {
    /// Whose.
    pub label: String,
    /// The figure and its range.
    pub spread: Spread,
    /// What others measured.
    pub reference: Option<f64>,
    /// What ratios are taken against, or what is no more than a yardstick.
    pub kind: Colour,
    /// Behind the value.
    pub note: String,
}

/// How a bar is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// One of those compared.
    Usual,
    /// What ratios are taken against.
    Baseline,
    /// It runs no application.
    Yardstick,
}

impl Colour {
    fn class(self) -> &'static str {
        match self {
            Self::Usual => "bar",
            Self::Baseline => "bar baseline",
            Self::Yardstick => "bar yardstick",
        }
    }
}

/// The chart, with its caption and its legend.
pub fn render(title: &str, better: &str, unit: &str, bars: &[Bar]) -> Markup {
    let most =
        bars.iter().flat_map(|bar| [Some(bar.spread.max), bar.reference]).flatten().fold(0.0, f64::max);
    let room = if bars.iter().any(|bar| !bar.note.is_empty()) { FOR_NOTE } else { FOR_FIGURE };
    let scale = Scale::exact(most, 0.0, 100.0 - room);
    let whiskers = bars.iter().any(|bar| bar.spread.min < bar.spread.max);
    let has = |colour: Colour| bars.len() > 1 && bars.iter().any(|bar| bar.kind == colour);
    let references = bars.iter().any(|bar| bar.reference.is_some());
    html! {
        figure {
            figcaption { (title) " " span.hint { (better) } }
            p.keys {
                @if has(Colour::Baseline) { span { i.key.baseline {} "baseline" } }
                @if has(Colour::Yardstick) { span { i.key.yardstick {} "runs no application" } }
                @if whiskers { span { i.key.whisker {} "range of the rounds" } }
                @if references { span { i.key.reference {} "published" } }
            }
            div.bars { @for bar in bars { (row(bar, unit, &scale, room)) } }
        }
    }
}

fn row(bar: &Bar, unit: &str, scale: &Scale, room: f64) -> Markup {
    let spread = bar.spread;
    let (end, low, high) = (scale.at(spread.value), scale.at(spread.min), scale.at(spread.max));
    let ranged = spread.min < spread.max;
    let all = format!("{}: {}", bar.label, with_unit(spread.value, unit));
    // A figure stands behind what it is of. The bar's own, where a published one is too near for that, behind all that is drawn.
    let mark = bar.reference.map(|reference| (reference, scale.at(reference)));
    let far = mark.filter(|(_, x)| *x >= high + room);
    let behind = mark.filter(|_| far.is_none()).map_or(high, |(_, x)| high.max(x));
    html! {
        span.label { (bar.label) }
        svg.track role="img" aria-label=(all) {
            title {
                (all)
                @if ranged { ", rounds from " (number(spread.min)) " to " (number(spread.max)) }
                @if let Some(reference) = bar.reference { "; published: " (number(reference)) }
            }
            rect class=(bar.kind.class()) x="0" y="3" width=(percent(end.max(0.3))) height="16" rx="2" {}
            @if ranged {
                line.whisker x1=(percent(low)) x2=(percent(high)) y1="11" y2="11" {}
                @for x in [low, high] { line.whisker x1=(percent(x)) x2=(percent(x)) y1="7" y2="15" {} }
            }
            @if let Some((_, x)) = mark {
                line.reference x1=(percent(x)) x2=(percent(x)) y1="0" y2="22" {}
            }
            text.value x=(percent(behind)) dx="6" y="15" {
                (with_unit(spread.value, unit))
                @if !bar.note.is_empty() { tspan.note { "  " (bar.note) } }
            }
            @if let Some((reference, x)) = far {
                text.published x=(percent(x)) dx="6" y="15" { (with_unit(reference, unit)) }
            }
        }
    }
}
