//! What a generation says of itself, for `hayate status` and the metrics.

use std::{collections::BTreeMap, fs};

use serde::Serialize;

use crate::{rewind::RewindStatus, worker::State};

/// Where a generation is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No boot has succeeded yet.
    Booting,
    /// Workers serve or can be started.
    Serving,
    /// The last boot failed; it is tried again.
    Failing,
    /// Finishes what it has.
    Draining,
    /// Its processes are gone.
    Stopped,
}

impl Phase {
    /// The name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Booting => "booting",
            Phase::Serving => "serving",
            Phase::Failing => "failing",
            Phase::Draining => "draining",
            Phase::Stopped => "stopped",
        }
    }
}

/// A generation at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// The application's name.
    pub name: String,
    /// Where the generation is in its life.
    pub state: Phase,
    /// `classic` or `worker`.
    pub mode: &'static str,
    /// `shared` or `private`: whether workers share the pages of one boot. Of no meaning in classic mode.
    pub boot: &'static str,
    /// Why it is private.
    pub private_boot: Option<String>,
    /// Why no warm-up requests were made, although some are configured.
    pub cold_boot: Option<String>,
    /// What is wrong with the boot, although it serves: it seems to keep a request.
    pub boot_remark: Option<String>,
    /// Rewinding; `None` where it is off, as in classic mode.
    pub rewind: Option<RewindStatus>,
    /// PHP's version, once the host has told it.
    pub php: Option<String>,
    /// Process id of the zygote.
    pub zygote: Option<i32>,
    /// MIN.
    pub workers_min: u32,
    /// MAX.
    pub workers_max: u32,
    /// The living workers, by index.
    pub workers: Vec<WorkerStatus>,
    /// How many workers have ended, by cause.
    pub restarts: BTreeMap<String, u64>,
    /// How many zygotes died without being asked.
    pub zygote_deaths: u64,
    /// How many requests ran longer than [`crate::Spec::slow_request`], or nine tenths of what they may.
    pub slow_requests: u64,
    /// Why the last boot that failed did.
    pub boot_error: Option<String>,
    /// Why no request can be served now.
    pub unavailable: Option<String>,
    /// Requests that wait for a worker.
    pub queue: usize,
    /// Requests that wait or are being served.
    pub active: usize,
    /// Private bytes of zygote and workers together.
    pub memory: u64,
    /// Lines of the application's log that were dropped since the server began: it logged too much.
    pub log_dropped: u64,
}

/// A worker at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerStatus {
    /// Its index in the ring.
    pub index: u32,
    /// Its process id.
    pub pid: i32,
    /// Where it is in its life.
    pub state: State,
    /// A signal or a debugger has stopped it, as far as /proc shows it.
    pub stopped: bool,
    /// Requests served since its fork.
    pub requests: u64,
    /// Private bytes.
    pub memory: u64,
    /// Seconds since its fork.
    pub age: u64,
}

/// Bytes a process holds for itself: resident less shared (proc(5), statm). 0 when it is gone.
pub(crate) fn private_memory(pid: i32) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/statm")) else { return 0 };
    let mut fields = text.split_ascii_whitespace().skip(1).map_while(|field| field.parse::<u64>().ok());
    let (Some(resident), Some(shared)) = (fields.next(), fields.next()) else { return 0 };
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}
