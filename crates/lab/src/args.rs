//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueHint};

use crate::{
    command::{
        compare::CompareArgs, engines::EnginesArgs, generate::Generate, ladder::LadderArgs, load::LoadArgs,
        report::ReportArgs, reproduce::ReproduceArgs, run::RunArgs, saturate::SaturateArgs,
    },
    guard::GuardArgs,
};

/// hayate-lab shows which server and which setting is fastest for an application: it starts real servers one after another,
/// loads them the same way, measures, and reports.
#[derive(Debug, Parser)]
#[command(name = "hayate-lab", version, max_term_width = 110)]
#[command(
    after_help = "Start with:  hayate-lab engines      hayate-lab run status --engine php-fpm,hayate-worker --html run.html"
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
    /// The folder with engines, workloads, ladders and presets [default: lab/ above the working directory or this program, else share/hayate/lab beside its bin/]
    #[arg(long, global = true, value_name = "FOLDER", value_hint = ValueHint::DirPath, env = "HAYATE_LAB")]
    pub lab: Option<PathBuf>,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load a URL and say how it fared
    Load(Box<LoadArgs>),
    /// List the engines: ready, or what is missing and how to get it
    Engines(EnginesArgs),
    /// Measure engines on a workload under a load, in interleaved rounds
    Run(Box<RunArgs>),
    /// Raise the load until it is not served any more: the knee, the limit, and what was exhausted
    Saturate(Box<SaturateArgs>),
    /// Measure single changes to a base
    Ladder(Box<LadderArgs>),
    /// Repeat a published comparison, its figures beside ours; or another preset
    Reproduce(Box<ReproduceArgs>),
    /// Make a page, tables or CSV of the JSON that an experiment wrote
    Report(ReportArgs),
    /// Say what changed between two results beyond the noise
    Compare(CompareArgs),
    /// Make man pages and completions
    #[command(hide = true)]
    Generate {
        /// What to make
        #[command(subcommand)]
        what: Generate,
    },
    /// Look after processes of the lab
    #[command(hide = true)]
    Guard(GuardArgs),
}
