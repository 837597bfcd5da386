//! `hayate-lab saturate`: how much each engine can bear, and what gives way first.

use std::{process::ExitCode, time::Duration};

use anyhow::{Result, anyhow};

use super::experiment::{Experiment, ExperimentArgs, PartPlan};
use crate::{
    data::{Kind, Lab, Metric, Protocol, parse_duration},
    measure::{Planned, Planner, Search},
};

const NOTES: &str = "\
Each engine is started once. A closed loop says where its limit may be; then open loops at ever higher rates, from a tenth of
that, show when it is reached: fewer right answers than --min-ok, or less than 97 % of the rate that was asked for. Two steps
beyond show whether throughput falls, two before make the limit exact.

knee       the rate at which throughput divided by latency is highest: beyond it one pays with waiting
limit      the highest rate of right answers that was seen
exhausted  what was used up there: the servers' processors, the database's, the workers, or the generator";

/// Which engines on what, and how.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES)]
pub struct SaturateArgs {
    /// The workload, or a folder that holds a workload.toml
    pub workload: String,
    /// The engines [default: all that are ready and can serve the workload]
    #[arg(long = "engine", short, value_name = "NAMES", value_delimiter = ',')]
    pub engines: Vec<String>,
    #[command(flatten)]
    pub search: SearchArgs,
    #[command(flatten)]
    pub experiment: ExperimentArgs,
}

/// How limits are searched.
#[derive(Clone, Debug, clap::Args)]
pub struct SearchArgs {
    /// How long each rate is tried
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration, help_heading = "Search")]
    pub step: Duration,
    /// Share of right answers that a rate needs to count as served, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 99.9, help_heading = "Search")]
    pub min_ok: f64,
    /// Connections, at most
    #[arg(long, short, value_name = "N", default_value_t = 1000, help_heading = "Search",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration, help_heading = "Search")]
    pub timeout: Duration,
    /// No rate above this one, requests per second
    #[arg(long, value_name = "RATE", help_heading = "Search")]
    pub max_rate: Option<f64>,
    #[command(flatten, next_help_heading = "Protocol")]
    pub protocol: Protocol,
}

impl SearchArgs {
    /// The search; with shorter steps if it is to be quick, and over what a preset says unless a flag says otherwise.
    ///
    /// # Errors
    /// What is to be spoken contradicts itself.
    pub fn search(&self, quick: bool, preset: &Protocol) -> Result<Search> {
        let step = self.step.as_secs_f64().max(0.2);
        let protocol = self.protocol.or(preset);
        protocol.check().map_err(|error| anyhow!(error))?;
        Ok(Search {
            step: if quick { step.min(1.0) } else { step },
            min_ok: self.min_ok,
            connections: self.connections,
            timeout: self.timeout.as_secs_f64(),
            max_rate: self.max_rate.filter(|rate| *rate > 0.0),
            protocol,
        })
    }
}

/// Measures, prints, writes.
///
/// # Errors
/// A name is unknown, a flag wrong, or the lab itself failed.
pub fn run(lab: Lab, args: &SaturateArgs) -> Result<ExitCode> {
    let workload = lab.workload(&args.workload)?;
    let session = args.experiment.session(lab)?;
    let search = args.search.search(args.experiment.quick, &Protocol::default())?;
    let load = search.load();
    let planned = Planner::new(&session).engines(&args.engines, &workload, &load)?;
    let mut experiment = Experiment::new(session, &args.experiment.output, &workload.title, &workload.about)?;
    let plan = PartPlan {
        title: workload.title.clone(),
        about: String::new(),
        kind: Kind::Saturate,
        metric: Metric::Rate,
        rounds: 1,
        warm_up: args.experiment.warm_up(),
        baseline: None,
        references: Vec::new(),
    };
    saturate(&mut experiment, plan, &planned, &search)?;
    experiment.finish()
}

/// Searches the limits of all engines of a part.
///
/// # Errors
/// The lab itself failed.
pub fn saturate(
    experiment: &mut Experiment,
    plan: PartPlan,
    planned: &[Planned],
    search: &Search,
) -> Result<()> {
    experiment.part(plan, planned, |trial, session, generator| search.run(trial, session, generator))?;
    let results = &mut experiment.results;
    if let Some(part) = results.parts.last_mut() {
        for subject in &mut part.subjects {
            subject.saturation = search.conclude(subject, &results.cores);
        }
    }
    Ok(())
}
