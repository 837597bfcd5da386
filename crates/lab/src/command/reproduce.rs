//! `hayate-lab reproduce`: a preset, which may be a published comparison; its figures beside ours.

use std::process::ExitCode;

use anyhow::Result;

use super::{
    experiment::{Experiment, ExperimentArgs, PartPlan},
    ladder,
    saturate::{SearchArgs, saturate},
};
use crate::{
    data::{Kind, Lab, Metric, Part, Preset},
    measure::{Planned, Planner},
    session::Session,
};

/// Which preset, and how.
#[derive(Debug, clap::Args)]
pub struct ReproduceArgs {
    /// The preset; without one all are listed
    pub preset: Option<String>,
    /// Only these engines (ladders are left out then)
    #[arg(long = "engine", short, value_name = "NAMES", value_delimiter = ',')]
    pub engines: Vec<String>,
    /// Only the parts whose title has this text
    #[arg(long, value_name = "TEXT")]
    pub part: Option<String>,
    #[command(flatten)]
    pub search: SearchArgs,
    #[command(flatten)]
    pub experiment: ExperimentArgs,
}

/// Measures, prints, writes.
///
/// # Errors
/// A name is unknown, a flag wrong, or the lab itself failed.
pub fn run(lab: Lab, args: &ReproduceArgs) -> Result<ExitCode> {
    let Some(name) = &args.preset else {
        for name in lab.preset_names()? {
            let preset = lab.preset(&name)?;
            println!("{name:20} {}", preset.title);
        }
        return Ok(ExitCode::SUCCESS);
    };
    let preset = lab.preset(name)?;
    for engine in &args.engines {
        lab.engine(engine)?;
    }
    let mut parts: Vec<&Part> = preset.parts.iter().collect();
    if let Some(text) = &args.part {
        parts.retain(|part| part.title.contains(text.as_str()));
        let titles: Vec<String> = preset.parts.iter().map(|part| format!("'{}'", part.title)).collect();
        anyhow::ensure!(
            !parts.is_empty(),
            "no part of '{name}' has '{text}' in its title; there are {}",
            titles.join(", ")
        );
    }
    let session = args.experiment.session(lab)?;
    // Everything is looked up before anything is measured.
    let mut planned = Vec::new();
    for part in parts {
        let subjects = subjects(&session, part, args)?;
        if !subjects.is_empty() {
            planned.push((part, subjects));
        }
    }
    anyhow::ensure!(!planned.is_empty(), "none of the engines named is part of '{name}'");
    let mut experiment = Experiment::new(session, &args.experiment.output, &preset.title, &preset.about)?;
    experiment.results.source.clone_from(&preset.source);
    for (part, subjects) in &planned {
        if experiment.session.interrupted() {
            break;
        }
        measure(&mut experiment, &preset, part, subjects, args)?;
    }
    experiment.finish()
}

fn subjects(session: &Session, part: &Part, args: &ReproduceArgs) -> Result<Vec<Planned>> {
    let planner = Planner::new(session);
    let quick = args.experiment.quick;
    if let Some(ladder) = &part.ladder {
        if !args.engines.is_empty() {
            return Ok(Vec::new());
        }
        let own = if quick { &part.quick_load } else { &part.load };
        return planner
            .ladder(ladder, &[], |base| Ok(own.clone().unwrap_or_else(|| args.experiment.shorten(base))));
    }
    let workload = session.lab.workload(&part.workload)?;
    let all = if quick && args.engines.is_empty() { &part.quick_engines } else { &part.engines };
    let engines: Vec<String> =
        all.iter().filter(|name| args.engines.is_empty() || args.engines.contains(name)).cloned().collect();
    if engines.is_empty() {
        return Ok(Vec::new());
    }
    let load = match part.kind {
        Kind::Saturate => args.search.search(quick).load(),
        _ => {
            let load =
                if quick { part.quick_load.as_ref().or(part.load.as_ref()) } else { part.load.as_ref() };
            load.cloned().unwrap_or_else(|| args.experiment.shorten(workload.load()))
        }
    };
    planner.engines(&engines, &workload, &load)
}

fn measure(
    experiment: &mut Experiment,
    preset: &Preset,
    part: &Part,
    subjects: &[Planned],
    args: &ReproduceArgs,
) -> Result<()> {
    let of_data = if args.experiment.quick { part.quick_rounds } else { part.rounds };
    let rounds = args.experiment.rounds.unwrap_or(of_data);
    let warm_up = args.experiment.warm_up();
    if let Some(ladder) = &part.ladder {
        let plan = PartPlan { title: part.title.clone(), ..ladder::plan(ladder, rounds, warm_up) };
        return experiment.part(plan, subjects, |trial, session, generator| trial.run(session, generator));
    }
    let plan = PartPlan {
        title: part.title.clone(),
        about: String::new(),
        kind: part.kind,
        metric: Metric::Rate,
        rounds: if part.kind == Kind::Saturate { 1 } else { rounds },
        warm_up,
        baseline: preset.baseline.clone(),
        references: part.references.clone(),
    };
    if part.kind == Kind::Saturate {
        return saturate(experiment, plan, subjects, &args.search.search(args.experiment.quick));
    }
    experiment.part(plan, subjects, |trial, session, generator| trial.run(session, generator))
}
