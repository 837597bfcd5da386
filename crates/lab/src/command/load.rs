//! `hayate-lab load`: flags and terminal output of the load generator.

use std::process::ExitCode;

/// What to send, how, and what to print.
#[derive(Debug, clap::Args)]
pub struct LoadArgs {
    /// Where to send requests to
    pub url: String,
}

/// Runs the load.
///
/// # Errors
/// Anything that kept it from being started.
pub fn run(_args: &LoadArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("the load generator is not here yet")
}
