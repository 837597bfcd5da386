//! A preset: an experiment with a name, and the figures that others published.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    Lab, Ladder, Metric,
    file::Source,
    load::{Load, LoadText},
};

/// A preset. See lab/README.md.
#[derive(Clone, Debug)]
pub struct Preset {
    /// As reports show it.
    pub title: String,
    /// What it is about.
    pub about: String,
    /// Who published the reference figures; empty if nobody did.
    pub source: String,
    /// The engine that ratios are taken against.
    pub baseline: Option<String>,
    /// Its experiments, in order.
    pub parts: Vec<Part>,
}

/// One experiment of a preset.
#[derive(Clone, Debug)]
pub struct Part {
    /// As reports show it.
    pub title: String,
    /// What is done.
    pub kind: Kind,
    /// Engines; none for a ladder.
    pub engines: Vec<String>,
    /// The workload; empty for a ladder.
    pub workload: String,
    /// The ladder.
    pub ladder: Option<Ladder>,
    /// How much is asked for.
    pub load: Option<Load>,
    /// Rounds.
    pub rounds: u32,
    /// The same for `--quick`.
    pub quick_load: Option<Load>,
    /// Rounds for `--quick`.
    pub quick_rounds: u32,
    /// Engines for `--quick`.
    pub quick_engines: Vec<String>,
    /// What others measured.
    pub references: Vec<Reference>,
}

/// What is done in a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Engines under one load.
    #[default]
    Run,
    /// Engines to their limits.
    Saturate,
    /// A ladder.
    Ladder,
}

/// A figure that somebody published.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The engine here that corresponds to theirs; none if there is no such engine here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// What was measured.
    pub metric: Metric,
    /// In the metric's unit.
    pub value: f64,
    /// The phase of the schedule that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What they called it, if it is not the same thing; never missing if there is no engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theirs: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PresetFile {
    title: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    source: String,
    baseline: Option<toml::Spanned<String>>,
    part: Vec<toml::Spanned<PartFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartFile {
    title: String,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    engines: Vec<toml::Spanned<String>>,
    workload: Option<toml::Spanned<String>>,
    ladder: Option<toml::Spanned<String>>,
    load: Option<toml::Spanned<LoadText>>,
    rounds: Option<u32>,
    #[serde(default)]
    quick: Quick,
    #[serde(default)]
    reference: Vec<toml::Spanned<Reference>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    load: Option<toml::Spanned<LoadText>>,
    rounds: Option<u32>,
    engines: Option<Vec<toml::Spanned<String>>>,
}

impl Preset {
    pub(super) fn read(lab: &Lab, path: &Path) -> Result<Self> {
        let source = Source::read(path)?;
        let file: PresetFile = source.parse()?;
        if let Some(baseline) = &file.baseline {
            lab.engine(baseline.get_ref()).map_err(|error| source.wrong(Some(baseline.span()), error))?;
        }
        let parts =
            file.part.into_iter().map(|part| Part::read(lab, &source, part)).collect::<Result<_>>()?;
        Ok(Self {
            title: file.title,
            about: file.about,
            source: file.source,
            baseline: file.baseline.map(toml::Spanned::into_inner),
            parts,
        })
    }
}

impl Part {
    fn read(lab: &Lab, source: &Source, part: toml::Spanned<PartFile>) -> Result<Self> {
        let span = part.span();
        let part = part.into_inner();
        let wrong =
            |message: &str| source.wrong(Some(span.clone()), format!("part '{}': {message}", part.title));
        let quick_engines = part.quick.engines.clone().unwrap_or_else(|| part.engines.clone());
        for engine in part.engines.iter().chain(&quick_engines) {
            lab.engine(engine.get_ref()).map_err(|error| source.wrong(Some(engine.span()), error))?;
        }
        let ladder = match (&part.ladder, part.kind) {
            (Some(name), Kind::Ladder) => {
                Some(lab.ladder(name.get_ref()).map_err(|error| source.wrong(Some(name.span()), error))?)
            }
            (None, Kind::Ladder) => return Err(wrong("a ladder is missing")),
            (Some(_), _) => return Err(wrong("a ladder needs kind = \"ladder\"")),
            (None, _) => None,
        };
        let workload = match (&part.workload, part.kind) {
            (Some(name), _) => {
                Some(lab.workload(name.get_ref()).map_err(|error| source.wrong(Some(name.span()), error))?)
            }
            (None, Kind::Ladder) => None,
            (None, _) => return Err(wrong("a workload is missing")),
        };
        if part.engines.is_empty() && part.kind != Kind::Ladder {
            return Err(wrong("engines are missing"));
        }
        let own = workload.as_ref().map(|workload| workload.load().clone());
        let over = |text: &Option<toml::Spanned<LoadText>>, base: Option<&Load>| match (text, base) {
            (None, base) => Ok(base.cloned()),
            (Some(text), base) => base
                .map_or_else(|| text.get_ref().load(), |base| text.get_ref().over(base))
                .map(Some)
                .map_err(|error| source.wrong(Some(text.span()), error)),
        };
        // A file that names a load means all of it; what `quick` leaves out is as in the whole.
        let load = over(&part.load, own.as_ref())?;
        let quick_load = over(&part.quick.load, load.as_ref())?;
        let mut references = Vec::new();
        for reference in part.reference {
            let span = reference.span();
            let reference = reference.into_inner();
            match (&reference.engine, &reference.theirs) {
                (Some(name), _) => drop(lab.engine(name).map_err(|error| source.wrong(Some(span), error))?),
                (None, Some(_)) => {}
                (None, None) => {
                    return Err(source.wrong(
                        Some(span),
                        "a reference needs `engine`, or `theirs`: the name of what is not here",
                    ));
                }
            }
            references.push(reference);
        }
        let rounds = part.rounds.unwrap_or(1);
        if rounds == 0 || part.quick.rounds == Some(0) {
            return Err(source.wrong(Some(span), "rounds have to be at least 1"));
        }
        Ok(Self {
            title: part.title,
            kind: part.kind,
            engines: part.engines.into_iter().map(toml::Spanned::into_inner).collect(),
            workload: workload.map(|workload| workload.name).unwrap_or_default(),
            ladder,
            load,
            rounds,
            quick_load,
            quick_rounds: part.quick.rounds.unwrap_or(1),
            quick_engines: quick_engines.into_iter().map(toml::Spanned::into_inner).collect(),
            references,
        })
    }
}
