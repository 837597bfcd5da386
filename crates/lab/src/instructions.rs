//! Counts the instructions that processors execute for a family of processes. Unlike time, they cost the same on a busy machine.
//!
//! Promises: everything that the family executes counts, by processes and threads that come and go as well, from the moment
//! at which its first process is watched; what came before, and the rest of the machine, does not.

use std::{fs, io, process};

use anyhow::{Result, anyhow};
use nix::errno::Errno;
use perf_event::{Builder, Counter, events::Hardware};
use serde::{Deserialize, Serialize};

/// What was executed, in user mode and in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instructions {
    /// By the programs themselves.
    pub user: f64,
    /// By the kernel on their behalf.
    pub kernel: f64,
}

/// A family's counters.
#[derive(Debug)]
pub struct Counters {
    user: Counter,
    kernel: Counter,
}

impl Counters {
    /// Watches a process from now on, and all that it will start; not what it has started already. It must have one thread.
    ///
    /// # Errors
    /// The kernel refuses, or the processor cannot count; with the remedy.
    pub fn watch(pid: i32) -> Result<Self> {
        let counter = |user: bool| {
            Builder::new(Hardware::INSTRUCTIONS)
                .observe_pid(pid)
                .any_cpu()
                .inherit(true)
                .exclude_user(!user)
                .exclude_kernel(user)
                .enabled(true)
                .build()
                .map_err(explain)
        };
        Ok(Self { user: counter(true)?, kernel: counter(false)? })
    }

    /// Whether instructions can be counted here at all.
    ///
    /// # Errors
    /// They cannot; with the remedy.
    pub fn try_out() -> Result<()> {
        let pid = i32::try_from(process::id())?;
        let mut counters = Self::watch(pid)?;
        let counted = counters.read()?;
        // Some virtual machines accept counters and never move them.
        anyhow::ensure!(
            counted.user > 0.0,
            "instructions cannot be counted: this processor's counters stand still"
        );
        Ok(())
    }

    /// What was executed since the family is watched.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn read(&mut self) -> Result<Instructions> {
        Ok(Instructions { user: read(&mut self.user)?, kernel: read(&mut self.kernel)? })
    }
}

impl Instructions {
    /// What was executed since an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        Self { user: (self.user - earlier.user).max(0.0), kernel: (self.kernel - earlier.kernel).max(0.0) }
    }

    /// Both modes together.
    pub fn all(self) -> f64 {
        self.user + self.kernel
    }
}

fn read(counter: &mut Counter) -> Result<f64> {
    let read = counter.read_count_and_time()?;
    // Where others count as well, the processor has fewer counters than there is to count, and they take turns.
    let share =
        if read.time_running == 0 { 1.0 } else { read.time_enabled as f64 / read.time_running as f64 };
    Ok(read.count as f64 * share)
}

/// What to do about a refusal, see perf_event_open(2).
fn explain(error: io::Error) -> anyhow::Error {
    const SETTING: &str = "/proc/sys/kernel/perf_event_paranoid";
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EACCES | Errno::EPERM) => {
            let level = fs::read_to_string(SETTING).unwrap_or_default();
            anyhow!(
                "instructions cannot be counted: the kernel does not allow it ({error}; kernel.perf_event_paranoid is {}); \
                 be root, or let it be allowed by `sysctl kernel.perf_event_paranoid=1`",
                level.trim()
            )
        }
        Some(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) => anyhow!(
            "instructions cannot be counted: this processor shows no counters ({error}), as in many virtual machines"
        ),
        _ => anyhow!("instructions cannot be counted: perf_event_open: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn what_a_family_executes_is_counted_and_nothing_else() {
        if let Err(why) = Counters::try_out() {
            eprintln!("not tested here: {why:#}");
            return;
        }
        // A grandchild does the work and ends.
        let work = "read go; sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; echo done; read end";
        let mut parent = Command::new("sh")
            .args(["-c", work])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut counters = Counters::watch(parent.id().cast_signed()).expect("counters");
        let before = counters.read().expect("a reading");
        parent.stdin.as_mut().expect("a pipe").write_all(b"go\n").expect("a line is sent");
        let mut line = String::new();
        BufReader::new(parent.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let after = counters.read().expect("a reading");
        let used = after.since(before);
        // A shell cannot compare, add and jump with fewer than ten instructions; to start one the kernel needs thousands.
        assert!(used.user > 1e6 && used.kernel > 1e4, "{used:?}");
        // Work of somebody else; the shell waits meanwhile, after its way there.
        let sum = (0..3_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        std::hint::black_box(sum);
        let others = counters.read().expect("a reading").since(after);
        assert!(others.all() < 1e6, "{others:?}");
        drop(parent.stdin.take());
        parent.wait().expect("an end");
    }

    #[test]
    fn a_refusal_comes_with_the_remedy() {
        let said = |errno: Errno| explain(io::Error::from_raw_os_error(errno as i32)).to_string();
        assert!(said(Errno::EACCES).contains("sysctl kernel.perf_event_paranoid=1"));
        assert!(said(Errno::ENOENT).contains("virtual machines"));
    }
}
