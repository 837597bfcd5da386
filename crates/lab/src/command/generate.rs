//! `hayate-lab generate`: man pages and completions, made from the command line's own description; for `make install`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

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
        shell: Shell,
    },
}

/// Makes it.
///
/// # Errors
/// The folder cannot be written to.
pub fn run(what: &Generate) -> Result<ExitCode> {
    let command = Cli::command();
    match what {
        Generate::Man { folder } => {
            clap_mangen::generate_to(command, folder).with_context(|| text(folder))?;
        }
        Generate::Completions { shell } => {
            // What is hidden is started by the lab itself.
            let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned();
            let mut command = clap::Command::new("hayate-lab")
                .version(env!("CARGO_PKG_VERSION"))
                .args(command.get_arguments().cloned())
                .subcommands(shown);
            // Its script for bash finds no commands below a name with a hyphen: it is called by another one, but where the shell is told.
            let name = if *shell == Shell::Bash { "hayate_lab" } else { "hayate-lab" };
            // Into memory: clap_complete panics on what it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, name, &mut script);
            print(&String::from_utf8(script)?.replace(" hayate_lab\n", " hayate-lab\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
