//! `hayate-lab ladder`: single changes to a base, each measured.

use std::process::ExitCode;

use anyhow::Result;

use super::{
    experiment::{Experiment, ExperimentArgs, PartPlan},
    report::print,
};
use crate::{
    data::{Kind, Lab, Ladder, LoadText, Metric},
    measure::Planner,
};

/// Which ladder, and how.
#[derive(Debug, clap::Args)]
pub struct LadderArgs {
    /// The ladder; without one all are listed
    pub ladder: Option<String>,
    /// Only these steps, and those they stand on
    #[arg(long, value_name = "TITLE")]
    pub step: Vec<String>,
    #[command(flatten, next_help_heading = "Load [default: what the ladder says]")]
    pub load: LoadText,
    #[command(flatten)]
    pub experiment: ExperimentArgs,
}

/// Measures, prints, writes.
///
/// # Errors
/// A name is unknown, a flag wrong, or the lab itself failed.
pub fn run(lab: Lab, args: &LadderArgs) -> Result<ExitCode> {
    let Some(name) = &args.ladder else {
        for name in lab.ladder_names()? {
            let ladder = lab.ladder(&name)?;
            print(&format!("{name:20} {}\n", ladder.title))?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let ladder = lab.ladder(name)?;
    anyhow::ensure!(
        ladder.metric != Metric::Instructions || args.experiment.instructions,
        "ladder '{name}' compares instructions: say --instructions"
    );
    let session = args.experiment.session(lab)?;
    let planned =
        Planner::new(&session).ladder(&ladder, &args.step, |base| args.experiment.load(&args.load, base))?;
    let mut experiment = Experiment::new(session, &args.experiment.output, &ladder.title, &ladder.about)?;
    let plan = plan(&ladder, args.experiment.rounds(None), args.experiment.warm_up());
    experiment.part(plan, &planned, |trial, session, generator| trial.run(session, generator))?;
    experiment.finish()
}

/// A ladder as part of an experiment.
pub fn plan(ladder: &Ladder, rounds: u32, warm_up: f64) -> PartPlan {
    PartPlan {
        title: ladder.title.clone(),
        about: ladder.about.clone(),
        kind: Kind::Ladder,
        metric: ladder.metric,
        rounds,
        warm_up,
        baseline: ladder.steps.first().map(|step| step.title.clone()),
        references: Vec::new(),
    }
}
