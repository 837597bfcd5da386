//! `hayate-lab generate`: man pages and completions, made from the command line's own description; for `make install`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::report::print;
use crate::{args::Cli, session::text};

/// What is made.
#[derive(Debug, clap::Subcommand)]
pub enum Generate {
    /// The man pages: one for the command and one for each of its sub-commands
    Man {
        /// Where to write them; must exist
        folder: PathBuf,
    },
    /// Completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Makes it.
///
/// # Errors
/// The folder cannot be written to.
pub fn run(what: &Generate) -> Result<ExitCode> {
    let mut command = Cli::command();
    match what {
        Generate::Man { folder } => {
            clap_mangen::generate_to(command, folder).with_context(|| text(folder))?;
        }
        Generate::Completions { shell } => {
            // Into memory: what it cannot write it panics of.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "hayate-lab", &mut script);
            print(&String::from_utf8(script)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
