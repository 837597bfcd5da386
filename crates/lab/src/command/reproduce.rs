//! `hayate-lab reproduce`: a preset, which may be a published comparison; its figures beside ours.

use std::process::ExitCode;

use anyhow::Result;

use super::{
    experiment::{Experiment, ExperimentArgs, PartPlan},
    ladder,
    report::print,
    saturate::{SearchArgs, saturate},
};
use crate::{
    data::{Kind, Lab, Load, Metric, Part, Preset, Workload},
    measure::{Planned, Planner, Search, about, expected},
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
        return list(&lab, args);
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
            planned.push((part, plan(&preset, part, args), subjects));
        }
    }
    anyhow::ensure!(!planned.is_empty(), "none of the engines named is part of '{name}'");
    let mut experiment = Experiment::new(session, &args.experiment.output, &preset.title, &preset.about)?;
    experiment.results.source.clone_from(&preset.source);
    experiment.announce(planned.iter().map(|(_, plan, subjects)| (plan, subjects.as_slice())));
    for (part, plan, subjects) in planned {
        if experiment.session.interrupted() {
            break;
        }
        if part.kind == Kind::Saturate {
            saturate(&mut experiment, plan, &subjects, &search(part, args)?)?;
        } else {
            experiment.part(plan, &subjects, |trial, session, generator| trial.run(session, generator))?;
        }
    }
    experiment.finish()
}

/// All presets, with the time that each may take if all its engines are there.
fn list(lab: &Lab, args: &ReproduceArgs) -> Result<ExitCode> {
    for name in lab.preset_names()? {
        let preset = lab.preset(&name)?;
        let mut seconds = 0.0;
        for part in &preset.parts {
            let plan = plan(&preset, part, args);
            let loads = match &part.ladder {
                Some(ladder) => {
                    let mut loads = Vec::new();
                    for step in &ladder.steps {
                        let base = match &step.load {
                            Some(load) => load.clone(),
                            None => lab.workload(&step.workload)?.load().clone(),
                        };
                        loads.push(step_load(part, &base, args));
                    }
                    loads
                }
                None => vec![load(part, &lab.workload(&part.workload)?, args)?; engines(part, args).len()],
            };
            let one = |load| expected(plan.kind, load, plan.warm_up);
            seconds += f64::from(plan.rounds) * loads.iter().map(one).sum::<f64>();
        }
        print(&format!("{name:20} {:13} {}\n", about(seconds), preset.title))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The engines of a part that are wanted.
fn engines(part: &Part, args: &ReproduceArgs) -> Vec<String> {
    let quick = args.experiment.quick && args.engines.is_empty();
    let all = if quick { &part.quick_engines } else { &part.engines };
    all.iter().filter(|name| args.engines.is_empty() || args.engines.contains(name)).cloned().collect()
}

/// How much a part asks of each engine.
fn load(part: &Part, workload: &Workload, args: &ReproduceArgs) -> Result<Load> {
    let quick = args.experiment.quick;
    if part.kind == Kind::Saturate {
        return Ok(search(part, args)?.load());
    }
    let own = if quick { part.quick_load.as_ref().or(part.load.as_ref()) } else { part.load.as_ref() };
    Ok(own.cloned().unwrap_or_else(|| args.experiment.shorten(workload.load())))
}

/// How the limits of a part are searched.
fn search(part: &Part, args: &ReproduceArgs) -> Result<Search> {
    let protocol = part.load.as_ref().map(|load| load.protocol.clone()).unwrap_or_default();
    args.search.search(args.experiment.quick, &protocol)
}

/// How much a ladder as part of a preset asks in a step.
fn step_load(part: &Part, base: &Load, args: &ReproduceArgs) -> Load {
    let own = if args.experiment.quick { &part.quick_load } else { &part.load };
    own.clone().unwrap_or_else(|| args.experiment.shorten(base))
}

fn subjects(session: &Session, part: &Part, args: &ReproduceArgs) -> Result<Vec<Planned>> {
    let planner = Planner::new(session);
    if let Some(ladder) = &part.ladder {
        if !args.engines.is_empty() {
            return Ok(Vec::new());
        }
        return planner.ladder(ladder, &[], |base| Ok(step_load(part, base, args)));
    }
    let engines = engines(part, args);
    if engines.is_empty() {
        return Ok(Vec::new());
    }
    let workload = session.lab.workload(&part.workload)?;
    planner.engines(&engines, &workload, &load(part, &workload, args)?)
}

fn plan(preset: &Preset, part: &Part, args: &ReproduceArgs) -> PartPlan {
    let of_data = if args.experiment.quick { part.quick_rounds } else { part.rounds };
    let rounds = args.experiment.rounds.unwrap_or(of_data);
    let warm_up = args.experiment.warm_up();
    if let Some(ladder) = &part.ladder {
        return PartPlan { title: part.title.clone(), ..ladder::plan(ladder, rounds, warm_up) };
    }
    PartPlan {
        title: part.title.clone(),
        about: String::new(),
        kind: part.kind,
        metric: Metric::Rate,
        rounds: if part.kind == Kind::Saturate { 1 } else { rounds },
        warm_up,
        baseline: preset.baseline.clone(),
        references: part.references.clone(),
    }
}
