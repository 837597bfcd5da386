//! Processes as the kernel shows them in /proc.
//!
//! Promises: a process that goes while it is being looked at is left out, and is no error.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::{sched::CpuSet, time::ClockId, unistd::Pid};

/// What /proc/PID/stat says of a process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent's id.
    pub parent: i32,
    /// Its state, `Z` for a zombie.
    pub state: char,
    /// CPU time in user mode, seconds.
    pub user: f64,
    /// CPU time in the kernel, seconds.
    pub system: f64,
    /// The same of its children that have ended and were waited for.
    pub children_user: f64,
    /// Likewise.
    pub children_system: f64,
}

/// Ticks of a second in /proc; 100 on every Linux that PHP runs on.
fn ticks() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// A process; `None` when it is gone.
pub fn process(pid: i32) -> Option<Process> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(pid: i32, stat: &str) -> Option<Process> {
    // The name may hold spaces and brackets: what counts begins after the last one.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let time = |position: usize| fields.get(position)?.parse::<f64>().ok().map(|n| n / ticks());
    Some(Process {
        pid,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        user: time(11)?,
        system: time(12)?,
        children_user: time(13)?,
        children_system: time(14)?,
    })
}

/// All processes at a moment. Making it takes some milliseconds, so one serves all who want to know.
#[derive(Debug)]
pub struct Snapshot(HashMap<i32, Vec<Process>>);

impl Snapshot {
    /// As of now.
    pub fn now() -> Self {
        let mut by_parent: HashMap<i32, Vec<Process>> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
                && let Some(process) = process(pid)
            {
                by_parent.entry(process.parent).or_default().push(process);
            }
        }
        Self(by_parent)
    }

    /// The children of a process.
    pub fn children(&self, pid: i32) -> impl Iterator<Item = Process> {
        self.0.get(&pid).into_iter().flatten().copied()
    }

    /// All processes below this one, itself not included.
    pub fn below(&self, pid: i32) -> Vec<Process> {
        let mut found: Vec<Process> = self.children(pid).collect();
        let mut next = 0;
        while next < found.len() {
            let pid = found[next].pid;
            found.extend(self.children(pid));
            next += 1;
        }
        found
    }
}

/// All processes below this one, itself not included.
pub fn descendants(of: i32) -> Vec<Process> {
    Snapshot::now().below(of)
}

/// CPU time of a living process with all its threads, those that have ended included, in seconds, exact to the nanosecond.
pub fn cpu_clock(pid: i32) -> Option<f64> {
    let time = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).ok()?.now().ok()?;
    Some(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

/// Proportional set size in bytes: a page that several processes map is counted once among them all.
pub fn pss(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Voluntary and involuntary context switches of the living threads of a process.
pub fn context_switches(pid: i32) -> Option<(u64, u64)> {
    let (mut voluntary, mut involuntary) = (0, 0);
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        for line in status.lines() {
            let number =
                || line.split_ascii_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            if line.starts_with("voluntary_ctxt_switches") {
                voluntary += number();
            } else if line.starts_with("nonvoluntary_ctxt_switches") {
                involuntary += number();
            }
        }
    }
    Some((voluntary, involuntary))
}

/// A program by its path or its name, looked for in a PATH.
pub fn find_command(name: &str, path: &str) -> Option<PathBuf> {
    let runs = |file: &Path| {
        file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let file = PathBuf::from(name);
        return runs(&file).then_some(file);
    }
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(folder).join(name))
        .find(|file| runs(file))
}

/// A set of processors; `None` for an empty one, which means any.
///
/// # Errors
/// A number beyond what the kernel knows.
pub fn cpu_set(cpus: &[usize]) -> nix::Result<Option<CpuSet>> {
    if cpus.is_empty() {
        return Ok(None);
    }
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu)?;
    }
    Ok(Some(set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_are_read() {
        let line = "42 (a) b) (c) S 7 42 42 0 -1 4194304 100 0 0 0 150 50 300 100 20 0 1 0 1000 1 1";
        let process = parse(42, line).expect("a process");
        assert_eq!((process.state, process.parent), ('S', 7));
        assert_eq!((process.user, process.system), (150.0 / ticks(), 50.0 / ticks()));
        assert_eq!((process.children_user, process.children_system), (300.0 / ticks(), 100.0 / ticks()));
    }

    #[test]
    fn this_process_has_figures() {
        let me = std::process::id().cast_signed();
        assert!(cpu_clock(me).expect("a clock") > 0.0);
        assert!(pss(me).expect("memory") > 100_000);
        assert!(context_switches(me).is_some());
        assert_eq!(process(me).expect("stat").pid, me);
        // No process has this number: it is the highest plus one (PID_MAX_LIMIT).
        assert!(process(-1).is_none() && cpu_clock(4_194_304).is_none());
    }
}
