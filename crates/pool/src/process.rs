//! Processes that the pool did not start itself: known by a pidfd, which refers to the very process whatever becomes of its number.

use std::{
    fs,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    ioctl::{Updater, ioctl},
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::launch::Hold;

/// Who has started a process; see [`parent_of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent {
    /// The process of this number.
    Is(i32),
    /// Nobody any more: it is dead.
    Gone,
    /// It lives, and the kernel does not say.
    Hidden,
}

/// The part of `struct pidfd_info` (linux/pidfd.h) that every kernel with PIDFD_GET_INFO knows.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    process: u32,
    group: u32,
    parent: u32,
    identities: [u32; 8],
    exit_code: i32,
}

const GET_INFO: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Info>(0xFF, 11);
/// What `mask` asks for: the numbers.
const INFO_NUMBERS: u64 = 1;

/// The parent of the process that a pidfd stands for. From Linux 6.13 on the kernel tells whoever holds the pidfd; before, it is in /proc,
/// where it may be hidden (hidepid).
pub fn parent_of(pidfd: BorrowedFd<'_>) -> Parent {
    let mut info = Info { mask: INFO_NUMBERS, ..Info::default() };
    // SAFETY: the number and the struct belong together, and the kernel writes no more than the size that the number bears.
    let asked = unsafe { ioctl(pidfd, Updater::<GET_INFO, Info>::new(&mut info)) };
    if asked.is_ok()
        && info.mask & INFO_NUMBERS != 0
        && let Ok(parent) = i32::try_from(info.parent)
    {
        return Parent::Is(parent);
    }
    match number_of(pidfd).and_then(Stat::of) {
        Some(stat) => Parent::Is(stat.parent),
        None if has_ended(pidfd) => Parent::Gone,
        None => Parent::Hidden,
    }
}

/// The number of the process that a pidfd stands for, as long as it is not reaped (proc(5), /proc/PID/fdinfo).
fn number_of(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
    (number > 0).then_some(number)
}

/// Whether the process has ended, reaped or not.
fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0)
}

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
    /// The kernel does not say whose it is.
    Hidden,
    /// It cannot be asked for now: open files or memory are used up.
    Later,
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
        let fd = match pidfd_open(id, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::SRCH) => return Found::Gone,
            Err(_) => return Found::Later,
        };
        match parent_of(fd.as_fd()) {
            Parent::Is(its) if its == parent => Found::Child(Process { fd, hold }),
            Parent::Is(_) => Found::Stranger,
            Parent::Gone => Found::Gone,
            Parent::Hidden => Found::Hidden,
        }
    }

    /// Ends it. It may have no right to, or be too late: [`Process::is_dead`] tells.
    pub(crate) fn kill(&self) {
        self.hold.kill_worker(self.fd.as_fd());
    }

    /// Whether it has ended, reaped or not.
    pub(crate) fn is_dead(&self) -> bool {
        has_ended(self.fd.as_fd())
    }

    /// What it is known by, without another open file, which may not be had.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Own;

    #[test]
    fn a_parent_is_told_by_the_kernel_or_by_proc() {
        let me = std::process::id() as i32;
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let pidfd = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        assert_eq!(parent_of(pidfd.as_fd()), Parent::Is(me));
        assert_eq!(number_of(pidfd.as_fd()).and_then(Stat::of).unwrap().parent, me);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(parent_of(pidfd.as_fd()), Parent::Gone);
    }

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
