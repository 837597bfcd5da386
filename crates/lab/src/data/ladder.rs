//! A ladder: a base, and single changes to it.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    Lab,
    file::{Settings, Source},
    load::{Load, LoadText},
};

/// A ladder. See lab/README.md.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// The file's name without its ending.
    pub name: String,
    /// As reports show it.
    pub title: String,
    /// What it is about.
    pub about: String,
    /// What the steps compare.
    pub metric: Metric,
    /// The steps with all that they stand on; the base is the first.
    pub steps: Vec<Step>,
}

/// One measurement of a ladder, complete: nothing has to be looked up in other steps.
#[derive(Clone, Debug)]
pub struct Step {
    /// As reports show it.
    pub title: String,
    /// Position of the step it stands on; none for the base.
    pub above: Option<usize>,
    /// The engine.
    pub engine: String,
    /// The workload.
    pub workload: String,
    /// What is changed.
    pub change: Change,
    /// How much is asked for.
    pub load: Option<Load>,
    /// What others measured, in the metric's unit.
    pub reference: Option<f64>,
}

/// Changes to an engine and a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// PHP settings.
    pub ini: Settings,
    /// PHP extensions on top of those that are loaded anyway.
    pub extensions: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// The workload's entry.
    pub entry: Settings,
    /// The engine's variables.
    pub variables: Settings,
    /// Path and query instead of the workload's.
    pub path: Option<String>,
}

impl Change {
    /// This change on top of another.
    fn over(&self, base: &Self) -> Self {
        let mut all = base.clone();
        all.ini.extend(self.ini.clone());
        all.extensions.extend(self.extensions.iter().cloned());
        all.env.extend(self.env.clone());
        all.entry.extend(self.entry.clone());
        all.variables.extend(self.variables.clone());
        all.path = self.path.clone().or(all.path);
        all
    }
}

/// A figure that steps are compared by, or that others published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// OK requests per second.
    #[default]
    Rate,
    /// CPU time of the server per request, µs.
    CpuUs,
    /// Instructions that the server executes per request, thousands; known with `--instructions` only.
    Instructions,
    /// Share of the requests with the expected answer, percent.
    OkPercent,
    /// Median latency, ms.
    P50,
    /// Latency that 80 % do not exceed, ms.
    P80,
    /// 90 %.
    P90,
    /// 95 %.
    P95,
    /// 99 %.
    P99,
    /// Longest latency, ms.
    Max,
    /// Mean latency, ms.
    Mean,
    /// Memory of the server (PSS), highest, MB.
    MemoryMax,
}

impl Metric {
    /// Its name with its unit.
    pub fn label(self) -> &'static str {
        match self {
            Self::Rate => "requests/s",
            Self::CpuUs => "CPU µs/request",
            Self::Instructions => "1,000 instructions/request",
            Self::OkPercent => "OK %",
            Self::P50 => "p50 ms",
            Self::P80 => "p80 ms",
            Self::P90 => "p90 ms",
            Self::P95 => "p95 ms",
            Self::P99 => "p99 ms",
            Self::Max => "max ms",
            Self::Mean => "mean ms",
            Self::MemoryMax => "memory MB",
        }
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Rate | Self::OkPercent)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LadderFile {
    title: String,
    #[serde(default)]
    about: String,
    workload: toml::Spanned<String>,
    engine: toml::Spanned<String>,
    load: Option<toml::Spanned<LoadText>>,
    #[serde(default)]
    metric: Metric,
    #[serde(default)]
    base: Base,
    step: Vec<StepFile>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Base {
    title: Option<String>,
    ini: Settings,
    extensions: Vec<String>,
    env: BTreeMap<String, String>,
    entry: Settings,
    variables: Settings,
    path: Option<String>,
    reference: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFile {
    title: toml::Spanned<String>,
    above: Option<toml::Spanned<String>>,
    engine: Option<toml::Spanned<String>>,
    workload: Option<toml::Spanned<String>>,
    load: Option<toml::Spanned<LoadText>>,
    reference: Option<f64>,
    #[serde(default)]
    ini: Settings,
    #[serde(default)]
    extensions: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    entry: Settings,
    #[serde(default)]
    variables: Settings,
    path: Option<String>,
}

impl Ladder {
    pub(super) fn read(lab: &Lab, path: &Path, name: &str) -> Result<Self> {
        let source = Source::read(path)?;
        let file: LadderFile = source.parse()?;
        let engine = |name: &toml::Spanned<String>| match lab.engine(name.get_ref()) {
            Ok(engine) => Ok(engine.name),
            Err(error) => Err(source.wrong(Some(name.span()), error)),
        };
        let workload = |name: &toml::Spanned<String>| match lab.workload(name.get_ref()) {
            Ok(workload) => Ok(workload.name),
            Err(error) => Err(source.wrong(Some(name.span()), error)),
        };
        let load = |text: &Option<toml::Spanned<LoadText>>, base: Option<&Load>| match (text, base) {
            (None, base) => Ok(base.cloned()),
            (Some(text), base) => match base {
                Some(base) => text.get_ref().over(base),
                None => text.get_ref().load(),
            }
            .map(Some)
            .map_err(|error| source.wrong(Some(text.span()), error)),
        };
        let base = file.base;
        let mut steps = vec![Step {
            title: base.title.unwrap_or_else(|| "base".to_owned()),
            above: None,
            engine: engine(&file.engine)?,
            workload: workload(&file.workload)?,
            change: Change {
                ini: base.ini,
                extensions: base.extensions,
                env: base.env,
                entry: base.entry,
                variables: base.variables,
                path: base.path,
            },
            load: load(&file.load, None)?,
            reference: base.reference,
        }];
        for step in file.step {
            let position = match step.above.as_ref().map(|name| (name.get_ref().as_str(), name.span())) {
                None | Some(("base", _)) => 0,
                Some(("previous", _)) => steps.len() - 1,
                Some((title, span)) => {
                    steps.iter().position(|known| known.title == title).ok_or_else(|| {
                        let known: Vec<String> = steps.iter().map(|step| step.title.clone()).collect();
                        source.wrong(
                            Some(span),
                            format!("no step '{title}' above{}", super::suggestions(title, &known)),
                        )
                    })?
                }
            };
            let below = &steps[position];
            let title = step.title.get_ref();
            if steps.iter().any(|known| known.title == *title) {
                return Err(source.wrong(Some(step.title.span()), format!("a second step '{title}'")));
            }
            let change = Change {
                ini: step.ini,
                extensions: step.extensions,
                env: step.env,
                entry: step.entry,
                variables: step.variables,
                path: step.path,
            };
            if change == Change::default()
                && step.engine.is_none()
                && step.workload.is_none()
                && step.load.is_none()
            {
                return Err(source.wrong(Some(step.title.span()), format!("step '{title}' changes nothing")));
            }
            steps.push(Step {
                title: title.clone(),
                above: Some(position),
                engine: step.engine.as_ref().map_or_else(|| Ok(below.engine.clone()), engine)?,
                workload: step.workload.as_ref().map_or_else(|| Ok(below.workload.clone()), workload)?,
                change: change.over(&below.change),
                load: load(&step.load, below.load.as_ref())?,
                reference: step.reference,
            });
        }
        Ok(Self { name: name.to_owned(), title: file.title, about: file.about, metric: file.metric, steps })
    }
}
