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

/// `2026-11-21 08:15 UTC`, from seconds since 1970 (the algorithm: Howard Hinnant, "chrono-compatible low-level date
/// algorithms", civil_from_days).
fn date(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as i64;
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (seconds % 86_400 / 3600, seconds % 3600 / 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0.0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_827_696.0), "2000-02-29 12:34 UTC");
        assert_eq!(date(1_798_761_599.0), "2026-12-31 23:59 UTC");
    }
}
