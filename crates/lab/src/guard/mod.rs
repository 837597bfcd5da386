//! A process between the lab and the servers that it starts, so that none of them outlives the lab.
//!
//! Each engine, each service and the lab's own scratch directory has a guard: `hayate-lab guard`, a child of the lab. It
//! makes the directory, starts the processes, and adopts their orphans (PR_SET_CHILD_SUBREAPER), so that all of them are its
//! descendants and the CPU time of those that die is kept in its account.
//!
//! Promises: when the lab ends, in whatever way, the pipe between the two breaks; then the guard kills every descendant,
//! removes the directory, and ends. Must never touch a process that is not its descendant.

mod client;
mod protocol;
mod server;

pub use client::Guard;
pub use protocol::{Signal, Spawn};
pub use server::{GuardArgs, run};
