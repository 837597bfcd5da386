//! The command `hayate-lab`.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod command;
mod data;
mod engine;
mod guard;
mod instructions;
mod machine;
mod measure;
mod output;
mod proc;
mod result;
mod session;
mod template;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::{
    args::{Cli, Command},
    data::Lab,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    run(&cli).unwrap_or_else(|error| {
        output::status::say(&format!("hayate-lab: {error:#}"));
        ExitCode::from(2)
    })
}

fn run(cli: &Cli) -> Result<ExitCode> {
    let lab = || Lab::find(cli.lab.as_deref());
    match &cli.command {
        Command::Load(args) => command::load::run(args),
        Command::Engines(args) => command::engines::run(lab()?, args),
        Command::Run(args) => command::run::run(lab()?, args),
        Command::Saturate(args) => command::saturate::run(lab()?, args),
        Command::Ladder(args) => command::ladder::run(lab()?, args),
        Command::Reproduce(args) => command::reproduce::run(lab()?, args),
        Command::Report(args) => command::report::run(args),
        Command::Compare(args) => command::compare::run(args),
        Command::Generate { what } => command::generate::run(what),
        Command::Guard(args) => guard::run(args),
    }
}
