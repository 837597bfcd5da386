//! The command `hayate-lab`.

mod args;
mod command;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Command::Load(args) => command::load::run(args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("hayate-lab: {error:#}");
        ExitCode::from(2)
    })
}
