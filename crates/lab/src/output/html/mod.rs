//! One HTML page with everything: no network, no script, light and dark, fit for paper.

mod bars;
mod chart;
mod curve;
mod environment;
mod part;
mod series;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    date::date,
    number::duration,
    text::noise,
    verdict::{by_title, verdict},
};
use crate::{machine::show_cpus, result::Results};

const STYLE: &str = include_str!("style.css");

/// The page.
pub fn render(results: &Results) -> String {
    let warnings = results.warnings();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(results.lab);
                title { (results.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (results.title) }
                (verdicts(results))
                (paragraphs(&results.about))
                p.soft { (origin(results)) }
                @if !results.source.is_empty() { p.soft { "Published figures: " (results.source) } }
                @if !warnings.is_empty() {
                    div.warnings {
                        strong { "Before you believe it" }
                        ul { @for warning in &warnings { li { (warning) } } }
                    }
                }
                @let several = results.parts.len() > 1;
                @for (i, part) in results.parts.iter().enumerate() { (part::render(i, part, several)) }
                (environment::render(results))
                footer {
                    (noise(results))
                    p { "Made by " (results.lab) " with " code { (results.command.join(" ")) } }
                }
            }
        }
    }
    .into_string()
}

/// What came out, before anything else; of several parts each, with a link to it.
fn verdicts(results: &Results) -> Markup {
    html! {
        @match results.parts.as_slice() {
            [] => {}
            [part] => p.verdict { (verdict(part, by_title)) },
            parts => ul.verdicts {
                @for (i, part) in parts.iter().enumerate() {
                    li { a href={ "#part-" (i) } { (part.title) } " " span { (verdict(part, by_title)) } }
                }
            },
        }
    }
}

/// Where and when.
fn origin(results: &Results) -> String {
    let machine = &results.machine;
    let virtual_machine = if machine.virtual_machine { "A virtual machine: " } else { "" };
    format!(
        "{}, for {}. {virtual_machine}{}, {} processors, {:.0} GB, {}, {}. Servers on processors {}, generator on {}.",
        date(results.started),
        duration(results.duration),
        machine.cpu,
        machine.processors,
        machine.memory as f64 / 1e9,
        machine.system,
        machine.kernel,
        show_cpus(&results.cores.server),
        show_cpus(&results.cores.load)
    )
}

fn paragraphs(text: &str) -> Markup {
    html! { @for paragraph in text.split("\n\n").filter(|text| !text.trim().is_empty()) { p { (paragraph) } } }
}
