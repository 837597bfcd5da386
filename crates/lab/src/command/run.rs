//! `hayate-lab run`: engines on a workload under a load, in interleaved rounds.

use std::process::ExitCode;

use anyhow::Result;

use super::experiment::{Experiment, ExperimentArgs, PartPlan};
use crate::{
    data::{Kind, Lab, LoadText, Metric},
    measure::Planner,
};

const EXAMPLES: &str = "\
Examples:
  hayate-lab run status
  hayate-lab run status info users --engine php-fpm,hayate-rewind
  hayate-lab run status -e php-fpm,hayate-classic,hayate-worker --rounds 5 --html status.html
  hayate-lab run users --schedule 'line(1, 500, 30s) const(500, 30s)' --json users.json
  hayate-lab run ./my-application -e php-fpm,hayate-classic      a folder with a workload.toml of your own

Each round measures every engine once: it is started in an empty directory, its answer is checked, it is warmed up,
loaded, and stopped. Ratios are taken within rounds, with a 95 % confidence interval over them.

Exit status: 0 all were measured; 1 an engine failed; 2 nothing could be started; 130 interrupted, what there is was printed.";

/// Which engines on what, and how.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct RunArgs {
    /// The workloads, or folders that hold a workload.toml
    #[arg(required = true, value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// The engines [default: all that are ready and can serve the workload]
    #[arg(long = "engine", short, value_name = "NAMES", value_delimiter = ',')]
    pub engines: Vec<String>,
    /// The engine that ratios are taken against [default: php-fpm, else the first]
    #[arg(long, value_name = "ENGINE")]
    pub baseline: Option<String>,
    #[command(flatten, next_help_heading = "Load [default: what the workload says]")]
    pub load: LoadText,
    #[command(flatten)]
    pub experiment: ExperimentArgs,
}

/// Measures, prints, writes.
///
/// # Errors
/// A name is unknown, a flag wrong, or the lab itself failed.
pub fn run(lab: Lab, args: &RunArgs) -> Result<ExitCode> {
    let workloads = args.workloads.iter().map(|name| lab.workload(name)).collect::<Result<Vec<_>>>()?;
    if let Some(baseline) = &args.baseline {
        lab.engine(baseline)?;
        anyhow::ensure!(
            args.engines.is_empty() || args.engines.contains(baseline),
            "--baseline {baseline}: it is not among the engines"
        );
    }
    let session = args.experiment.session(lab)?;
    // Everything is looked up before anything is measured.
    let mut parts = Vec::new();
    for workload in &workloads {
        let load = args.experiment.load(&args.load, workload.load())?;
        let plan = PartPlan {
            title: workload.title.clone(),
            about: workload.about.clone(),
            kind: Kind::Run,
            metric: Metric::Rate,
            rounds: args.experiment.rounds(None),
            warm_up: args.experiment.warm_up(),
            baseline: args.baseline.clone(),
            references: Vec::new(),
        };
        parts.push((plan, Planner::new(&session).engines(&args.engines, workload, &load)?));
    }
    let titles: Vec<&str> = workloads.iter().map(|workload| workload.title.as_str()).collect();
    let mut experiment = Experiment::new(session, &args.experiment.output, &titles.join("; "), "")?;
    experiment.announce(parts.iter().map(|(plan, planned)| (plan, planned.as_slice())));
    for (plan, planned) in parts {
        if experiment.session.interrupted() {
            break;
        }
        experiment.part(plan, &planned, |trial, session, generator| trial.run(session, generator))?;
    }
    experiment.finish()
}
