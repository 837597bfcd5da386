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
    /// What zygote and workers take of the machine together, bytes: pages that several share count in parts (PSS). 0 before [`Status::weigh`].
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
    /// Bytes that it, and each process that it has forked, shares with nobody. 0 before [`Status::weigh`].
    pub memory: u64,
    /// Seconds since its fork.
    pub age: u64,
}

impl Status {
    /// Finds out how much memory the processes take. The kernel walks all of their pages for it, a millisecond for 100 MB of each: nothing for a
    /// thread that serves or supervises.
    pub fn weigh(&mut self) {
        let mut all = self.zygote.map_or(0, |pid| Weight::of(pid).part);
        for worker in &mut self.workers {
            let weight = Weight::of(worker.pid);
            // With forks a request is a child's, and half of the worker's pages are.
            let children = children(worker.pid).into_iter().map(Weight::of);
            let weight = children.fold(weight, Weight::and);
            worker.memory = weight.own;
            all = all.saturating_add(weight.part);
        }
        self.memory = all;
    }
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Weight {
    /// Of pages that it shares with nobody.
    own: u64,
    /// The same, and of each other page its part (PSS).
    part: u64,
}

impl Weight {
    /// 0 when it is gone. Of a process of another user what is no page of a file counts for both, although it may be shared since a fork.
    fn of(pid: i32) -> Weight {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        Weight::of_rollup(&read("smaps_rollup")).unwrap_or_else(|| {
            let own = not_of_files(&read("statm")).unwrap_or(0);
            Weight { own, part: own }
        })
    }

    fn and(self, other: Weight) -> Weight {
        Weight { own: self.own.saturating_add(other.own), part: self.part.saturating_add(other.part) }
    }

    /// Of /proc/PID/smaps_rollup (proc(5)).
    fn of_rollup(text: &str) -> Option<Weight> {
        let field = |name: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
        };
        let own = field("Private_Clean:")?.saturating_add(field("Private_Dirty:")?);
        Some(Weight { own, part: field("Pss:")? })
    }
}

/// Processes that a process of one thread has forked, where the kernel lists them (CONFIG_PROC_CHILDREN).
fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace().map_while(|pid| pid.parse().ok()).collect()
}

/// Resident less shared pages, of /proc/PID/statm (proc(5)).
fn not_of_files(text: &str) -> Option<u64> {
    let mut fields = text.split_ascii_whitespace().skip(1).map_while(|field| field.parse::<u64>().ok());
    let pages = fields.next()?.saturating_sub(fields.next()?);
    pages.checked_mul(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_read_or_is_none() {
        let rollup = "5600-7ffc ---p 00000000 00:00 0    [rollup]\nRss:    2048 kB\nPss:     700 kB\nPss_Dirty:   9 kB\n\
            Private_Clean:   4 kB\nPrivate_Dirty:    60 kB\n";
        assert_eq!(Weight::of_rollup(rollup), Some(Weight { own: 64 << 10, part: 700 << 10 }));
        for broken in [
            "",
            "Pss: 7 kB\nPrivate_Clean: 1 kB\n",
            &rollup.replace("700", "x"),
            &rollup.replace("60", "99999999999999999"),
        ] {
            assert_eq!(Weight::of_rollup(broken), None, "{broken}");
        }
        assert_eq!(not_of_files("900 500 100 1 0 1 0"), Some(400 * rustix::param::page_size() as u64));
        assert_eq!(not_of_files("900 500"), None);
        let own = Weight::of(i32::try_from(std::process::id()).unwrap());
        assert!(own.own > 0 && own.part >= own.own, "{own:?}");
        assert_eq!(Weight::of(0), Weight::default());
    }
}
