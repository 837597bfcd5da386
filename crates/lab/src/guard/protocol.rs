//! What the lab and a guard say to each other: one JSON value a line, over the guard's standard input and output.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

/// From the lab. The end of the input means: kill everything, remove the directory, end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Start a process; answered by `Started` or `NotStarted`.
    Spawn(Spawn),
    /// Send a signal to a process that was started, if it still lives.
    Signal {
        /// Its process id.
        pid: i32,
        /// Which.
        signal: Signal,
    },
    /// Kill all descendants; answered by `Killed`.
    KillAll,
}

/// A process to start. Its output and errors are appended to the log.
#[derive(Debug, Serialize, Deserialize)]
pub struct Spawn {
    /// The program, looked up in PATH of `env`, and its arguments.
    pub command: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Where standard error, and standard output unless `output` is set, are appended.
    pub log: PathBuf,
    /// Where standard output goes instead; replaced.
    pub output: Option<PathBuf>,
    /// Processors it may run on; none: wherever the guard may.
    pub cpus: Vec<usize>,
    /// Run as the guard itself, not as the unprivileged user.
    pub as_lab: bool,
}

/// The signals that the lab uses.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// SIGTERM.
    Term,
    /// SIGQUIT.
    Quit,
    /// SIGINT.
    Int,
    /// SIGKILL.
    Kill,
}

/// From a guard.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The guard is up and its directory exists.
    Ready,
    /// A process runs.
    Started {
        /// Its process id.
        pid: i32,
    },
    /// A process could not be started.
    NotStarted {
        /// Why.
        error: String,
    },
    /// A process that was started has ended.
    Exited {
        /// Its process id.
        pid: i32,
        /// Its exit status; `None` if a signal ended it.
        code: Option<i32>,
        /// In words.
        how: String,
    },
    /// No descendant is left.
    Killed {
        /// How many had to be killed.
        count: usize,
    },
}
