//! A process between the lab and the servers that it starts, so that none of them outlives the lab.
//!
//! Each engine, each service and the lab's own scratch directory has a guard: `hayate-lab guard`, a child of the lab. It
//! makes the directory, starts the processes, and adopts their orphans (PR_SET_CHILD_SUBREAPER), so that all of them are its
//! descendants and the CPU time of those that die is kept in its account.
//!
//! Promises: when the lab ends, in whatever way, the pipe between the two breaks; then the guard kills every descendant,
//! removes the directory, and ends. When the guard itself is killed, the lab does the same in its place (`orphans`). Only if both
//! are killed at once, grandchildren of a guard may live on. Must never touch a process that is not its descendant.

mod client;
pub mod orphans;
mod protocol;
mod server;

use std::{
    io::{self, ErrorKind},
    path::Path,
    time::Duration,
};

pub use client::Guard;
pub use protocol::{Signal, Spawn};
pub use server::{GuardArgs, run};

/// How long killed processes may take to be gone. The kernel may be busy freeing their memory.
const KILL_TIME: Duration = Duration::from_secs(20);

/// Removes a directory with all that is in it. One that a dying process still writes to is tried again.
fn remove(dir: &Path) -> io::Result<()> {
    let mut tries = 50;
    loop {
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(_) if tries > 0 => {
                tries -= 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}
