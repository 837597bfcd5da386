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

use std::{io::ErrorKind, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;

use crate::{
    args::{Cli, Command},
    data::Lab,
};

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => run(&cli),
        Err(wrong) => shown(&wrong),
    };
    outcome.unwrap_or_else(|error| {
        output::status::say(&format!("hayate-lab: {error:#}"));
        ExitCode::from(2)
    })
}

/// A command line that is wrong, or asks for help; clap's own way out says nothing of a disk that is full.
fn shown(wrong: &clap::Error) -> Result<ExitCode> {
    match wrong.print() {
        Err(error) if !wrong.use_stderr() && error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(u8::try_from(wrong.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)),
    }
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
