//! What a family of processes has used so far: all descendants of a guard, those that have died included.

use std::collections::HashMap;

use crate::proc::{self, Snapshot};

/// The state of a family's account at a moment.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// CPU seconds of all, exact to the nanosecond for the living, to a tick (10 ms) for each of the dead.
    pub cpu: f64,
    /// Of that, in user mode; exact to a tick for each process.
    user: f64,
    /// The same in the kernel.
    system: f64,
    /// Voluntary and involuntary context switches of the living.
    switches: HashMap<i32, (u64, u64)>,
    /// Their ids.
    pub processes: Vec<i32>,
}

/// What was used between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// CPU seconds in user mode.
    pub user: f64,
    /// CPU seconds in the kernel.
    pub system: f64,
    /// Context switches since a thread waited.
    pub voluntary: u64,
    /// Context switches since a thread's time was up.
    pub involuntary: u64,
}

impl Account {
    /// As of now, without context switches, which take longer to read.
    pub fn now(all: &Snapshot, guard: i32) -> Self {
        let mut account = Self::default();
        // The guard waits for orphans: their time is in its account.
        if let Some(guard) = proc::process(guard) {
            account.cpu += guard.children_user + guard.children_system;
            account.user += guard.children_user;
            account.system += guard.children_system;
        }
        for process in all.below(guard) {
            let dead = process.children_user + process.children_system;
            account.cpu += proc::cpu_clock(process.pid).unwrap_or(process.user + process.system) + dead;
            account.user += process.user + process.children_user;
            account.system += process.system + process.children_system;
            account.processes.push(process.pid);
        }
        account
    }

    /// As of now, with context switches.
    pub fn full(guard: i32) -> Self {
        let mut account = Self::now(&Snapshot::now(), guard);
        let switches = |pid: &i32| Some((*pid, proc::context_switches(*pid)?));
        account.switches = account.processes.iter().filter_map(switches).collect();
        account
    }

    /// What was used since an earlier moment.
    pub fn since(&self, earlier: &Self) -> Used {
        let cpu = (self.cpu - earlier.cpu).max(0.0);
        let (user, system) = ((self.user - earlier.user).max(0.0), (self.system - earlier.system).max(0.0));
        // The ticks say how it is divided, the clock how much it is.
        let share = if user + system > 0.0 { user / (user + system) } else { 0.5 };
        let (mut voluntary, mut involuntary) = (0, 0);
        for (pid, now) in &self.switches {
            let then = earlier.switches.get(pid).copied().unwrap_or_default();
            voluntary += now.0.saturating_sub(then.0);
            involuntary += now.1.saturating_sub(then.1);
        }
        Used { user: cpu * share, system: cpu * (1.0 - share), voluntary, involuntary }
    }

    /// Memory of the living (PSS), bytes.
    pub fn memory(&self) -> u64 {
        self.processes.iter().filter_map(|pid| proc::pss(*pid)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn the_dead_keep_their_time() {
        // A child that does some work and ends; its parent lives on.
        let work = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; echo done; read end";
        let mut parent = Command::new("sh")
            .args(["-c", work])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let me = std::process::id().cast_signed();
        let before = Account::full(me);
        let mut line = String::new();
        BufReader::new(parent.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let after = Account::full(me);
        assert!(after.processes.contains(&parent.id().cast_signed()));
        let used = after.since(&before);
        // A processor adds some hundred thousand numbers a second in a shell, or some million; none does it in no time.
        assert!(used.user + used.system > 0.02, "{used:?}");
        drop(parent.stdin.take());
        parent.wait().expect("an end");
    }
}
