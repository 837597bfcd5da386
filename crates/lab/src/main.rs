//! The command `hayate-lab`.

#![allow(
    dead_code,
    reason = "ladders and presets are read and checked; the commands that use them come next"
)]

mod args;
mod command;
mod data;
mod engine;
mod guard;
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
        eprintln!("hayate-lab: {error:#}");
        ExitCode::from(2)
    })
}

fn run(cli: &Cli) -> Result<ExitCode> {
    let lab = || Lab::find(cli.lab.as_deref());
    match &cli.command {
        Command::Load(args) => command::load::run(args),
        Command::Engines(args) => command::engines::run(lab()?, args),
        Command::Run(args) => command::run::run(lab()?, args),
        Command::Report(args) => command::report::run(args),
        Command::Guard(args) => guard::run(args),
    }
}
