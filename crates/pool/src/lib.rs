//! The PHP processes of one application: which run, and why.
//!
//! A [`Generation`] is one zygote, its workers and their ring, from one configuration. It starts them, keeps between MIN and MAX
//! workers as requests demand, replaces what dies, enforces the time limits, and ends them all. A reload is a new
//! generation beside the old one.
//!
//! It promises: no process outlives its generation; a worker's index is used again only when its process is known to be
//! dead; nothing wakes up while no request is active and nothing is to be restarted. It knows nothing of requests beyond
//! how many wait, and must never touch the memory of the ring but through [`hayate_ring`].
//!
//! `worker.rs` has the states and causes, `supervisor.rs` the task that acts on them (`boot.rs`, `deaths.rs`: the two ends of a life;
//! `scaling.rs`: the number of workers), `rewind.rs` what rewinding workers say.

mod backoff;
mod boot;
mod channel;
mod deaths;
mod generation;
mod host;
mod log;
mod reminder;
mod rewind;
mod scaling;
mod spec;
mod status;
mod supervisor;
mod worker;

pub use generation::{BootError, Generation, Health};
pub use rewind::{DOUBTS, Doubt, Rewind, RewindStatus, RewindTotals, Unfit};
pub use spec::{Mode, Spec, Visit};
pub use status::{Phase, Status, WorkerStatus};
pub use worker::State;
