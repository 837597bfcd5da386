//! Where it ran and with which configuration, in full.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::{
    machine::show_cpus,
    result::{Results, Subject},
};

/// The end of the page.
pub fn render(results: &Results) -> Markup {
    let machine = &results.machine;
    let mut facts = vec![
        ("machine", machine.host.clone()),
        ("processor", format!("{} × {}", machine.processors, machine.cpu)),
        ("memory", format!("{:.1} GB", machine.memory as f64 / 1e9)),
        ("system", format!("{}, {}", machine.system, machine.kernel)),
        ("load average at the start", format!("{:.2}", machine.load_average)),
        ("servers on processors", show_cpus(&results.cores.server)),
        ("generator on processors", show_cpus(&results.cores.load)),
        ("databases on processors", show_cpus(&results.cores.services)),
        ("PHP", results.php.clone()),
        ("PHP processes", results.workers.to_string()),
    ];
    if !machine.governor.is_empty() {
        facts.push(("frequency governor", machine.governor.clone()));
    }
    if !machine.commit.is_empty() {
        facts.push(("commit of the lab", machine.commit.clone()));
    }
    facts.extend(machine.settings.iter().map(|(name, value)| (name.as_str(), value.clone())));
    html! {
        section {
            h2 { "Environment" }
            dl { @for (name, value) in &facts { dt { (name) } dd { (value) } } }
            h3 { "Engines" }
            dl {
                @for (title, subject) in engines(results) {
                    dt { (title) }
                    dd { (subject.version) @if !subject.about.is_empty() { ". " span.soft { (subject.about) } } }
                }
                @for (service, version) in results.parts.iter().flat_map(|part| &part.services).collect::<BTreeMap<_, _>>() {
                    dt { (service) } dd { (version) }
                }
            }
            h3 { "Configurations" }
            @for part in &results.parts {
                @for subject in part.subjects.iter().filter(|subject| !subject.configuration.is_empty()) {
                    details {
                        summary {
                            (subject.title)
                            @if results.parts.len() > 1 { span.soft { " in " (part.title) } }
                            span.soft { ", " (subject.workers) " workers" }
                        }
                        @for (file, text) in &subject.configuration { p { code { (file) } } pre { (text) } }
                    }
                }
            }
        }
    }
}

/// Each engine once.
fn engines(results: &Results) -> BTreeMap<&str, &Subject> {
    let all =
        results.parts.iter().flat_map(|part| &part.subjects).filter(|subject| !subject.version.is_empty());
    all.map(|subject| (subject.engine.as_str(), subject)).collect()
}
