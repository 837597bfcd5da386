//! Processes that the pool did not start itself: known by a pidfd, which refers to the very process whatever becomes of its number.

use std::{
    fs,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::launch::Hold;

/// What /proc/PID/stat says (proc(5)); `None` when there is no such process.
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) parent: i32,
}

impl Stat {
    /// The kernel makes this text without waiting for the process.
    pub(crate) fn of(pid: i32) -> Option<Stat> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before may hold anything, also ')'.
        let (_, rest) = text.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace();
        Some(Stat { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
    }

    /// Stopped by a signal or by a debugger: it answers nobody.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// What became of a process id that a zygote has told.
pub(crate) enum Found {
    /// A child of that zygote's.
    Child(Process),
    /// There is no such process any more; the zygote has reaped it.
    Gone,
    /// Another's, which the zygote has no business to name.
    Stranger,
}

/// A process that is a zygote's child.
pub(crate) struct Process {
    fd: OwnedFd,
    /// Whoever may signal it: it may be another user's.
    hold: Arc<dyn Hold>,
}

impl Process {
    /// Finds the process with this id. The id may be reused at any moment before the pidfd is open; so whose child it is is asked after.
    pub(crate) fn find(pid: i32, parent: i32, hold: Arc<dyn Hold>) -> Found {
        let Some(id) = Pid::from_raw(pid).filter(|_| pid > 1) else { return Found::Stranger };
        let Ok(fd) = pidfd_open(id, PidfdFlags::empty()) else { return Found::Gone };
        match Stat::of(pid) {
            Some(stat) if stat.parent == parent => Found::Child(Process { fd, hold }),
            Some(_) => Found::Stranger,
            None => Found::Gone,
        }
    }

    /// Ends it. It may have no right to, or be too late: [`Process::is_dead`] tells.
    pub(crate) fn kill(&self) {
        self.hold.kill_worker(self.fd.as_fd());
    }

    /// Whether it has ended, reaped or not.
    pub(crate) fn is_dead(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0)
    }

    pub(crate) fn try_clone(&self) -> Option<OwnedFd> {
        self.fd.as_fd().try_clone_to_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Own;

    #[test]
    fn only_a_child_is_found_and_its_end_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, me) = (child.id() as i32, std::process::id() as i32);
        let own = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        let hold = || Arc::new(Own(own.try_clone().unwrap())) as Arc<dyn Hold>;
        assert!(matches!(Process::find(pid, 1, hold()), Found::Stranger));
        assert!(matches!(Process::find(me, me, hold()), Found::Stranger), "its parent is another");
        assert!(
            matches!(Process::find(0, me, hold()), Found::Stranger)
                && matches!(Process::find(1, me, hold()), Found::Stranger)
        );
        let Found::Child(process) = Process::find(pid, me, hold()) else { panic!("it is ours") };
        assert!(!process.is_dead());
        assert!(!Stat::of(pid).unwrap().is_stopped());
        process.kill();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !process.is_dead() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        assert_eq!(Stat::of(pid).unwrap().state, 'Z', "dead before it is reaped");
        child.wait().unwrap();
        assert!(process.is_dead());
        assert!(matches!(Process::find(pid, me, hold()), Found::Gone));
    }
}
