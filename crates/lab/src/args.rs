//! The command line.

use clap::{Parser, Subcommand};

use crate::command::load::LoadArgs;

/// hayate-lab shows which server and which setting is fastest for an application.
#[derive(Debug, Parser)]
#[command(name = "hayate-lab", version, max_term_width = 110)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load a URL and say how it fared
    Load(Box<LoadArgs>),
}
