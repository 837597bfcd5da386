//! Who is at the other end of the control socket.
//!
//! Only root and the user who started the server may command it. Where PHP runs as that user, its processes are told apart by their
//! ancestors: everything that a script has started is below the master, which is the reaper of what workers leave behind
//! (PR_SET_CHILD_SUBREAPER). What has asked somebody else to connect for it (a cron job, another server) is not seen.

use hayate_pool::{Parent, parent_of_number};
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
    !server.runs_php_as(peer.uid(), owner) || peer.pid().is_some_and(|pid| !is_below(pid, server.master()))
}

/// Also when it cannot be told: what is not dumpable may be hidden, and so may who has ended since.
fn is_below(mut pid: i32, master: i32) -> bool {
    for _ in 0..MOST_ANCESTORS {
        if pid == master {
            return true;
        }
        match parent_of_number(pid) {
            Parent::Is(parent) if parent > 1 => pid = parent,
            Parent::Is(_) => return false,
            Parent::Gone | Parent::Hidden => return true,
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
        let Parent::Is(parent) = parent_of_number(me) else { panic!("it has one") };
        assert!(is_below(me, me) && is_below(me, parent));
        assert!(!is_below(me, i32::MAX));
        assert!(is_below(i32::MAX, me), "nobody knows");
    }
}
