//! The second line: what a guard leaves behind that was itself killed.
//!
//! A guard's own children die with it (PR_SET_PDEATHSIG), but not theirs. The lab is a subreaper, too, so those become its
//! children, and it knows which children it has started itself: all others are such orphans. Promises: [`kill`] ends when none
//! is left. Must never touch a process that the lab started itself, nor what a living guard keeps.

use std::{
    collections::HashSet,
    io,
    process::{Child, Command, ExitStatus},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill as send},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};

use super::KILL_TIME;
use crate::proc::Snapshot;

/// Children that the lab has started itself; `None` until it adopts orphans.
static OWN: Mutex<Option<HashSet<i32>>> = Mutex::new(None);

/// From now on orphans of this process's descendants become its children.
///
/// # Errors
/// The kernel refuses.
pub fn adopt() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    own().get_or_insert_default();
    Ok(())
}

/// Starts a child of the lab's own. To be waited for with [`wait`].
///
/// # Errors
/// It cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    // Nobody looks for orphans between the start and the note.
    let mut own = own();
    let child = command.spawn()?;
    if let Some(own) = &mut *own {
        own.insert(child.id().cast_signed());
    }
    Ok(child)
}

/// Waits for a child of the lab's own.
///
/// # Errors
/// The kernel refuses.
pub fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let status = child.wait();
    if let Some(own) = &mut *own() {
        own.remove(&child.id().cast_signed());
    }
    status
}

/// Kills all orphans and what they have started, until none is left.
pub fn kill() {
    let own = own();
    let Some(own) = &*own else { return };
    let me = std::process::id().cast_signed();
    let end = Instant::now() + KILL_TIME;
    loop {
        let all = Snapshot::now();
        let orphans: Vec<i32> =
            all.children(me).map(|process| process.pid).filter(|pid| !own.contains(pid)).collect();
        if orphans.is_empty() || Instant::now() > end {
            return;
        }
        for orphan in orphans {
            for pid in all.below(orphan).iter().map(|process| process.pid).chain([orphan]) {
                let _ = send(Pid::from_raw(pid), Signal::SIGKILL);
            }
            // One that is not dead yet is met again.
            let _ = waitpid(Pid::from_raw(orphan), Some(WaitPidFlag::WNOHANG));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn own() -> MutexGuard<'static, Option<HashSet<i32>>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}
