//! What a reader has to know before believing results.

use std::collections::BTreeSet;

use super::{Part, Results, Spread, Subject};
use crate::{data::Kind, machine::show_cpus};

/// Others' work on the servers' processors that is worth a warning, as a share of the time.
const FOREIGN: f64 = 0.05;
/// Time that the hypervisor took, likewise.
const STOLEN: f64 = 0.02;
/// Spread of the calibration's medians, the highest over the lowest, that is worth a warning.
const UNSTEADY: f64 = 1.05;

/// See [`Results::warnings`].
pub fn warnings(results: &Results) -> Vec<String> {
    let mut warnings = Vec::new();
    let cores = &results.cores;
    if results.interrupted {
        warnings.push("Interrupted: these are partial results.".to_owned());
    }
    if results.parts.iter().any(|part| part.rounds == 1 && part.kind != Kind::Saturate) {
        warnings.push("One round only: whether a difference is more than noise cannot be told.".to_owned());
    }
    if cores.overlap() {
        warnings.push(format!(
            "Servers (processors {}) and generator (processors {}) share processors: requests per second and latency say as \
             much of the generator as of the servers. CPU time per request still compares.",
            show_cpus(&cores.server),
            show_cpus(&cores.load)
        ));
    }
    if cores.services.iter().any(|cpu| cores.server.contains(cpu))
        && results.parts.iter().any(|p| !p.services.is_empty())
    {
        warnings.push(format!(
            "Databases share the servers' processors ({}): requests per second hold for both together.",
            show_cpus(&cores.services)
        ));
    }
    if results.machine.virtual_machine {
        warnings.push(
            "A virtual machine: what its neighbours do shows here. Ratios of the same round hold better than figures by \
             themselves."
                .to_owned(),
        );
    }
    for usage in &results.noise.before {
        if usage.busy > 0.1 && (cores.server.contains(&usage.cpu) || cores.load.contains(&usage.cpu)) {
            let (cpu, busy) = (usage.cpu, usage.busy * 100.0);
            warnings.push(format!(
                "Before the start, processor {cpu} was already busy for {busy:.0} % of the time."
            ));
        }
    }
    let calibrations = &results.noise.calibrations;
    for (side, medians) in [
        ("servers'", Spread::of(calibrations.iter().map(|c| c.server.median_us))),
        ("generator's", Spread::of(calibrations.iter().map(|c| c.load.median_us))),
    ] {
        if let Some(medians) = medians.filter(|m| m.max / m.min > UNSTEADY) {
            let percent = (medians.max / medians.min - 1.0) * 100.0;
            warnings.push(format!(
                "The {side} processors changed their speed by {percent:.0} % between rounds: something else ran, or the \
                 frequency changed."
            ));
        }
    }
    let mut found = Vec::new();
    for part in &results.parts {
        for subject in &part.subjects {
            of_subject(part, subject, results.parts.len() > 1, &mut found);
        }
    }
    let subjects = results.parts.iter().map(|part| part.subjects.len()).sum();
    warnings.extend(together(found, subjects));
    warnings
}

/// A warning about a subject.
struct Doubt {
    /// Which part and subject.
    about: String,
    text: String,
    /// How bad it is: of those that differ in their figures only, the worst speaks for all.
    weight: f64,
}

fn of_subject(part: &Part, subject: &Subject, several: bool, doubts: &mut Vec<Doubt>) {
    let about = if several { format!("{}, {}", part.title, subject.name) } else { subject.name.clone() };
    let mut doubt = |text: String, weight| doubts.push(Doubt { about: about.clone(), text, weight });
    let all = &subject.measurements;
    let foreign = all.iter().map(|m| m.foreign).fold(0.0, f64::max);
    if foreign > FOREIGN {
        doubt(format!("others took up to {:.0} % of the servers' processors", foreign * 100.0), foreign);
    }
    let stolen = all.iter().flat_map(|m| &m.cores).map(|core| core.stolen).fold(0.0, f64::max);
    if stolen > STOLEN {
        doubt(format!("the hypervisor took up to {:.0} % of a processor's time", stolen * 100.0), stolen);
    }
    // The steps of a saturation are meant to overload; what gave way is the result.
    for warning in all
        .iter()
        .flat_map(|m| m.load.warnings.iter().chain(&m.warnings))
        .filter(|_| part.kind != Kind::Saturate)
    {
        doubt(warning.clone(), first_number(warning));
    }
}

/// Doubts that differ in their figures only become one line.
fn together(doubts: Vec<Doubt>, subjects: usize) -> Vec<String> {
    let mut groups: Vec<(String, Vec<Doubt>)> = Vec::new();
    for doubt in doubts {
        let kind = digits_away(&doubt.text);
        match groups.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, group)) => group.push(doubt),
            None => groups.push((kind, vec![doubt])),
        }
    }
    let line = |(_, group): (String, Vec<Doubt>)| {
        let about: BTreeSet<&String> = group.iter().map(|doubt| &doubt.about).collect();
        let names: Vec<&str> = about.iter().map(|name| name.as_str()).collect();
        let worst = group.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)).map_or("", |doubt| &doubt.text);
        match names.len() {
            n if n == subjects && n > 1 => format!("All: {worst}."),
            n if n > 4 => format!("{n} of {subjects}, such as {}: {worst}.", names[0]),
            _ => format!("{}: {worst}.", names.join("; ")),
        }
    };
    groups.into_iter().map(line).collect()
}

fn first_number(text: &str) -> f64 {
    let digits = text.split(|c: char| !c.is_ascii_digit() && c != '.').find(|part| !part.is_empty());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0.0)
}

fn digits_away(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit() && *c != '.' && *c != ',').collect()
}
