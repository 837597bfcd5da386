//! Who is at the other end of the control socket.
//!
//! Only root and the user who started the server may command it. Where PHP runs as that user, its processes are told apart by their
//! ancestors: everything that a script has started is below the master, which is the reaper of what workers leave behind
//! (PR_SET_CHILD_SUBREAPER). What has asked somebody else to connect for it (a cron job, another server) is not seen.

use std::os::fd::{AsFd, OwnedFd};

use hayate_pool::{Parent, parent_of};
use nix::{
    errno::Errno,
    sys::socket::{getsockopt, sockopt::PeerPidfd},
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::net::UnixStream;

use crate::server::Server;

/// More ancestors than any process has.
const MOST_ANCESTORS: usize = 1000;

/// Whether whoever has connected may command a server that `owner` has started.
pub fn may_command(stream: &UnixStream, owner: u32, server: &Server) -> bool {
    let Ok(peer) = stream.peer_cred() else { return false };
    if peer.uid() != 0 && peer.uid() != owner {
        return false;
    }
    if !server.runs_php_as(peer.uid(), owner) {
        return true;
    }
    // The number may be another's by now, if who has connected has ended since. Before Linux 6.5 there is nothing else to go by.
    let process = match getsockopt(stream, PeerPidfd) {
        Err(Errno::ENOPROTOOPT) => peer.pid().and_then(find),
        process => process.ok(),
    };
    process.is_some_and(|process| !is_below(process, server.master()))
}

/// The process of this number now.
fn find(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid).filter(|_| pid > 0)?, PidfdFlags::empty()).ok()
}

/// Also when it cannot be told: what is not dumpable may be hidden, and so may who has ended since.
fn is_below(mut process: OwnedFd, master: i32) -> bool {
    for _ in 0..MOST_ANCESTORS {
        let parent = match parent_of(process.as_fd()) {
            Parent::Is(parent) if parent == master => return true,
            Parent::Is(parent) if parent > 1 => parent,
            Parent::Is(_) => return false,
            Parent::Gone | Parent::Hidden => return true,
        };
        let found = find(parent);
        // The parent may have ended between the two, and its number be a stranger's: then the child has another one.
        match (parent_of(process.as_fd()), found) {
            (Parent::Is(still), Some(found)) if still == parent => process = found,
            (Parent::Is(still), None) if still == parent => return true,
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_below_its_parent_and_nobody_else() {
        let me = std::process::id() as i32;
        let this = || find(me).unwrap();
        let Parent::Is(parent) = parent_of(this().as_fd()) else { panic!("it has one") };
        assert!(is_below(this(), parent));
        assert!(!is_below(this(), i32::MAX));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = find(child.id() as i32).unwrap();
        assert!(is_below(process.try_clone().unwrap(), me) && is_below(process.try_clone().unwrap(), parent));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_below(process, i32::MAX), "nobody knows");
    }
}
