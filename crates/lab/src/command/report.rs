//! `hayate-lab report`: a page, a table or CSV from what a run wrote.

use std::{
    io::{ErrorKind, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, Result, bail};

use super::experiment::{OutputArgs, write_outputs};
use crate::{output::text, result::Results};

/// Which results, and what is to be made of them.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// What `run`, `saturate`, `ladder` or `reproduce` wrote with --json
    pub results: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Prints the tables, or writes the files that were asked for.
///
/// # Errors
/// A file cannot be read or written.
pub fn run(args: &ReportArgs) -> Result<ExitCode> {
    let results = Results::read(&args.results)?;
    let output = &args.output;
    if output.json.is_some() {
        bail!(
            "--json would copy {}: a report is made of it with --html, --csv or --markdown",
            args.results.display()
        );
    }
    if output.html.is_none() && output.csv.is_none() && output.markdown.is_none() {
        print(&text::render(&results))?;
    }
    write_outputs(&results, output)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints; whoever closes the pipe has seen enough.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
