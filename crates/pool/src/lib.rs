//! The PHP processes of one application: which run, and why.
//!
//! A [`Generation`] is one zygote, its workers and their ring, from one configuration. It starts them, keeps between MIN and MAX
//! workers as requests demand, replaces what dies, enforces the time limits, and ends them all. A reload is a new
//! generation beside the old one.
//!
//! It promises: no process outlives its generation; each request in its ring gets an outcome, whatever becomes of the processes; a worker's index is used again only when its process is known to be
//! dead; nothing wakes up while no request is active and nothing is to be restarted. It knows nothing of requests beyond
//! how many wait, and must never touch the memory of the ring but through [`hayate_ring`].
//!
//! `worker.rs` has the states and causes, `supervisor.rs` the task that acts on them (`boot.rs`, `deaths.rs`: the two ends of a life;
//! `scaling.rs`: the number of workers; `watchdog.rs`: whether the zygote lives; `renewal.rs`: a ring that cannot be trusted any more),
//! `rewind.rs` what rewinding workers say.

// Nothing that a process wrote may end the server: what can fail is an error, or says here why it cannot.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo
    )
)]

mod backoff;
mod boot;
pub mod cgroup;
mod channel;
mod deaths;
mod generation;
mod host;
mod ini;
mod launch;
mod log;
mod log_limit;
mod process;
pub mod releases;
mod reminder;
mod renewal;
mod rewind;
mod scaling;
mod slow;
mod spec;
mod status;
mod supervisor;
mod watchdog;
mod worker;

pub use boot::with_remedy;
pub use generation::{BootError, Generation, Health};
pub use ini::is_name as is_setting;
pub use launch::{Directly, Files, Hold, Launched, Launcher, ProcessEvent, Start, Way, spawn};
pub use log::{is_acted_upon, shown};
pub use log_limit::set_log_backlog;
pub use process::{Parent, parent_of};
pub use rewind::{Connections, DOUBTS, Doubt, Rewind, RewindStatus, RewindTotals, Unfit};
pub use spec::{BOOT_SCRIPT_VARIABLES, Mode, Spec, Visit};
pub use status::{Phase, Status, WorkerStatus};
pub use worker::{State, causes};
