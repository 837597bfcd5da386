//! The command `hayate`: reads what the user asks for and lets the other parts do it.

// As in the parts: nothing that comes from outside may end in a panic. The modules of commands that serve nobody are excepted.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo,
        clippy::print_stdout,
        clippy::print_stderr
    )
)]

/// As `println!`, for what is the command's answer: where it cannot be written the command fails, and says so.
macro_rules! say {
    ($($words:tt)*) => { $crate::say(format_args!("{}\n", format_args!($($words)*))) };
}

mod access_logs;
mod args;
mod check;
#[allow(clippy::indexing_slicing, reason = "a JSON value without a key is null")]
mod client;
mod composer;
mod config;
mod control;
#[allow(clippy::indexing_slicing, clippy::expect_used, reason = "a command for a person")]
mod explain;
mod extensions;
mod fallback;
mod framework;
#[allow(clippy::indexing_slicing, clippy::expect_used, reason = "a command for a person")]
mod generate;
mod htaccess;
mod log_floods;
mod logging;
mod machine;
mod master;
mod metrics;
mod of_application;
mod peer;
mod php;
mod php_probe;
mod php_required;
mod plan;
mod privileges;
mod reach;
mod read_only;
mod secrets;
mod serve;
mod server;
mod terminal;
mod tls;
mod upload_sizes;

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Result;

use args::Command;
use plan::Strictness;

fn main() -> ExitCode {
    children_are_waited_for();
    let outcome = match args::parse().command {
        // The process that reads the configuration gets the arguments as they are.
        Command::Serve(_) => return master::run(std::env::args_os().skip(2).collect()),
        Command::LoadPlan(args) => return master::load::run(&args, Strictness::All),
        Command::LoadFirstPlan(args) => return master::load::run(&args, Strictness::EachByItself),
        Command::Front => return serve::run(),
        Command::Check(args) => return check::run(&args),
        Command::Explain(args) => return explain::run(&args),
        Command::Status { control, json } => talk(client::status(&control, json)),
        Command::Reload { control } => talk(client::reload(&control)),
        Command::Upgrade { control } => talk(client::upgrade(&control)),
        Command::Stop { control } => talk(client::stop(&control)),
        Command::Version => {
            say!("hayate {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
        Command::Generate { what } => generate::print(&what).map(|()| ExitCode::SUCCESS).map_err(Into::into),
    };
    match outcome {
        Ok(status) => status,
        Err(error) => {
            complain(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Whoever starts this may ignore SIGCHLD, which is inherited: then the kernel waits for children by itself, and tells nobody.
fn children_are_waited_for() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: no handler is installed, and none is replaced.
    let _ = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) };
}

/// For commands that print and have nothing else to do: who reads it may have seen enough (`hayate check | head`). Then the process ends as
/// others do, by SIGPIPE, which Rust ignores otherwise.
pub(crate) fn end_with_the_reader() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: no handler is installed, and none is replaced.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}

/// Writes to standard output, or ends: the disk may be full. Words of others do nothing to a terminal.
pub(crate) fn say(words: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let words = words.to_string();
    if let Err(error) = out.write_all(terminal::plain(&words).as_bytes()).and_then(|()| out.flush()) {
        unwritten(&error);
    }
}

/// The end of a command whose answer cannot be written to standard output. Who has read enough of it hears nothing.
pub(crate) fn unwritten(error: &io::Error) -> ! {
    if error.kind() != io::ErrorKind::BrokenPipe {
        tell(&format!("cannot write to standard output: {error}"));
    }
    // What the standard library still keeps is not worth another try.
    std::process::exit(1)
}

/// An error as a line of ours: what words of others in it have of further lines is indented.
pub(crate) fn complaint(why: impl fmt::Display) -> String {
    format!("hayate: {}\n", terminal::within_line(&terminal::plain(&why.to_string())))
}

/// Tells an error.
pub(crate) fn complain(why: fmt::Arguments<'_>) {
    drop(io::stderr().lock().write_all(complaint(why).as_bytes()));
}

/// A line on standard error, as it stands. Where that cannot be written either, there is nobody to be told.
pub(crate) fn tell(why: &str) {
    drop(io::stderr().lock().write_all(format!("hayate: {why}\n").as_bytes()));
}

fn talk(conversation: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(conversation)
}
