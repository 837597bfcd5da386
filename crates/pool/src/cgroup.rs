//! What the cgroup of this process and those above it allow, as far as they can be seen from here: version 2 of the kernel's interface, version 1,
//! or both. Read anew with each call.

use std::{
    fmt, fs, io,
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Where the kernel's cgroups are mounted.
const MOUNTED: &str = "/sys/fs/cgroup";

/// The least limit of memory, in bytes.
pub fn memory() -> Option<u64> {
    least_memory(&own()?, Path::new(MOUNTED))
}

/// How many processors' time the least quota gives, rounded down; one at least.
pub fn processors() -> Option<u64> {
    least_processors(&own()?, Path::new(MOUNTED))
}

/// The least limit of processes, of which each thread is one.
pub fn processes() -> Option<u64> {
    least_processes(&own()?, Path::new(MOUNTED))
}

/// Why a process or a thread could not be started. Where the reason is that there are too many it says what to do about it.
pub fn not_started(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock => not_forked(error),
        _ => error.to_string(),
    }
}

/// Why a process could not be forked, which nothing but a limit or want of memory can be.
pub(crate) fn not_forked(error: impl fmt::Display) -> String {
    explained(error, own().and_then(|own| tightest(&own, Path::new(MOUNTED))))
}

/// Whether the kernel has just killed a process of this cgroup for want of memory of which nobody has been told here: since it was last looked
/// ([`look_for_kills`]), or shortly before. Each is told once, so ask only of one that SIGKILL has ended. Whether it was that very process nobody can
/// tell: the kernel counts, and names none but in its log.
pub(crate) fn killed_for_memory() -> bool {
    KILLS.lock().unwrap_or_else(PoisonError::into_inner).tell(kills(), Instant::now())
}

/// Looks how many the kernel has killed, so that those of long ago are not taken for what dies later.
pub(crate) fn look_for_kills() {
    KILLS.lock().unwrap_or_else(PoisonError::into_inner).look(kills(), Instant::now());
}

/// What to say of a process that the kernel has killed for want of memory, and what to do about it.
pub(crate) fn out_of_memory() -> String {
    let limit = memory().map_or(String::new(), |limit| format!(" (the cgroup may have {} MB)", limit >> 20));
    format!(
        "; the kernel killed it for want of memory{limit}: lower `workers` or PHP's memory_limit, or raise the limit of memory"
    )
}

/// Who is killed dies soon, and is told of soon after.
const RECENT: Duration = Duration::from_secs(5);

static KILLS: Mutex<Kills> = Mutex::new(Kills { seen: None, untold: 0, since: None });

/// Processes that the kernel has killed for want of memory.
struct Kills {
    /// The kernel's count, when it was last looked at. `None`: it was not, and what was killed by then is nobody's here.
    seen: Option<u64>,
    /// Of those that nobody was told of.
    untold: u64,
    /// When the last of them was seen.
    since: Option<Instant>,
}

impl Kills {
    fn look(&mut self, counted: Option<u64>, now: Instant) {
        let Some(counted) = counted else { return };
        // A group that the process was moved to counts anew.
        let more = counted.saturating_sub(self.seen.replace(counted).unwrap_or(counted));
        if self.since.is_none_or(|since| now - since > RECENT) {
            self.untold = 0;
        }
        if more > 0 {
            self.untold = self.untold.saturating_add(more);
            self.since = Some(now);
        }
    }

    fn tell(&mut self, counted: Option<u64>, now: Instant) -> bool {
        self.look(counted, now);
        let any = self.untold > 0;
        self.untold = self.untold.saturating_sub(1);
        any
    }
}

/// How many the kernel counts: in this process' own group, or, where that counts none, of the whole machine.
fn kills() -> Option<u64> {
    let machine = || counted(Path::new("/proc/vmstat"));
    own().and_then(|own| kills_of(&own, Path::new(MOUNTED))).or_else(machine)
}

fn kills_of(own: &str, mounted: &Path) -> Option<u64> {
    groups(own, mounted, "memory").into_iter().find_map(|(group, version)| {
        let file = if version == 2 { "memory.events" } else { "memory.oom_control" };
        counted(&group.join(file))
    })
}

/// `oom_kill` in a file of names and numbers.
fn counted(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

fn explained(error: impl fmt::Display, tightest: Option<(u64, u64)>) -> String {
    match tightest {
        Some((used, limit)) => format!(
            "{error}: the cgroup allows {limit} processes and threads (pids.max), of which {used} are there; raise that limit, or lower `workers`"
        ),
        None => format!("{error}; raise the limit of processes or of memory, or lower `workers`"),
    }
}

fn own() -> Option<String> {
    fs::read_to_string("/proc/self/cgroup").ok()
}

fn least_memory(own: &str, mounted: &Path) -> Option<u64> {
    // Above the one that is high processes are made to wait while their memory is taken back, which serves nobody.
    let limits = groups(own, mounted, "memory").into_iter().flat_map(|(group, version)| {
        let files: &[&str] =
            if version == 2 { &["memory.max", "memory.high"] } else { &["memory.limit_in_bytes"] };
        files.iter().filter_map(move |file| number(&group.join(file)))
    });
    // Version 1 writes a number for no limit, the highest multiple of a page's size.
    limits.min().filter(|limit| *limit < 1 << 60)
}

/// As the standard library does it, and also where the path is the host's and the mount only the container's part.
fn least_processors(own: &str, mounted: &Path) -> Option<u64> {
    let quotas = groups(own, mounted, "cpu").into_iter().filter_map(|(group, version)| {
        let (quota, period) = if version == 2 {
            let both = fs::read_to_string(group.join("cpu.max")).ok()?;
            let (quota, period) = both.trim().split_once(' ')?;
            (quota.parse::<u64>().ok()?, period.parse().ok()?)
        } else {
            (number(&group.join("cpu.cfs_quota_us"))?, number(&group.join("cpu.cfs_period_us"))?)
        };
        quota.checked_div(period)
    });
    quotas.min().map(|processors| processors.max(1))
}

fn least_processes(own: &str, mounted: &Path) -> Option<u64> {
    groups(own, mounted, "pids").into_iter().filter_map(|(group, _)| number(&group.join("pids.max"))).min()
}

/// Of the limits of processes the one that the fewest are left to, and how many there are, whoever has them. `None`: of each more than half is left.
/// Some may have ended since one could not be started.
fn tightest(own: &str, mounted: &Path) -> Option<(u64, u64)> {
    let used = groups(own, mounted, "pids").into_iter().filter_map(|(group, _)| {
        let (used, limit) = (number(&group.join("pids.current"))?, number(&group.join("pids.max"))?);
        (used >= limit / 2).then_some((used, limit))
    });
    used.min_by_key(|(used, limit)| limit.saturating_sub(*used))
}

/// `None` where there is no file, or `max` in it.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The groups that this controller limits the process by, each with the interface's version. `own` is what /proc/self/cgroup holds.
fn groups(own: &str, mounted: &Path, controller: &str) -> Vec<(PathBuf, u8)> {
    let mut groups = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (tops, version) = match controllers {
            "" => ([mounted.to_owned(), mounted.join("unified")], 2),
            _ if controllers.split(',').any(|one| one == controller) => {
                ([mounted.join(controller), mounted.join(controllers)], 1)
            }
            _ => continue,
        };
        // Seen from a namespace of its own, a process elsewhere is above the root; there is nothing to be found there.
        let below: PathBuf =
            Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect();
        for top in &tops {
            // In a container the path may be the host's, and the mount only the container's part: the top is looked at in any case.
            groups.extend(below.ancestors().map(|ancestor| (top.join(ancestor), version)));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroups(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            fs::write(dir.path().join(path), text).unwrap();
        }
        dir
    }

    #[test]
    fn each_kill_for_want_of_memory_is_told_once() {
        let v2 = cgroups(&[("pod/c/memory.events", "oom 9\noom_kill 3\noom_group_kill 1\n")]);
        assert_eq!(kills_of("0::/pod/c\n", v2.path()), Some(3));
        assert_eq!(kills_of("0::/\n", v2.path()), None);
        let v1 = cgroups(&[("memory/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")]);
        assert_eq!(kills_of("4:memory:/a\n0::/\n", v1.path()), Some(2));
        let mut kills = Kills { seen: None, untold: 0, since: None };
        let now = Instant::now();
        let mut told =
            |counts: &[u64], now| -> Vec<bool> { counts.iter().map(|n| kills.tell(Some(*n), now)).collect() };
        assert_eq!(told(&[3], now), [false], "of before");
        assert_eq!(told(&[3, 5, 5, 5, 1, 1, 2], now), [false, true, true, false, false, false, true]);
        kills.look(Some(4), now);
        kills.look(Some(4), now + RECENT);
        assert!(kills.tell(Some(4), now + RECENT), "seen a moment ago");
        assert!(!kills.tell(Some(4), now + 3 * RECENT), "one of them is long past");
        assert!(!kills.tell(None, now));
    }

    #[test]
    fn the_least_limit_counts_from_the_own_group_upwards() {
        let v2 = cgroups(&[
            ("pod/memory.max", "536870912\n"),
            ("pod/c/memory.max", "1073741824\n"),
            ("pod/c/d/memory.max", "max\n"),
            ("pod/c/d/memory.high", "max\n"),
            ("high/memory.max", "1073741824\n"),
            ("high/memory.high", "268435456\n"),
            ("pod/cpu.max", "250000 100000\n"),
            ("pod/c/cpu.max", "max 100000\n"),
            ("other/cpu.max", "5000 10000\n"),
            ("other/none/cpu.max", "5 0\n"),
            ("other/memory.max", "1\n"),
            ("pod/pids.max", "100\n"),
            ("pod/pids.current", "99\n"),
            ("pod/c/pids.max", "200\n"),
            ("pod/c/pids.current", "200\n"),
        ]);
        assert_eq!(least_memory("0::/pod/c/d\n", v2.path()), Some(512 << 20));
        assert_eq!(least_memory("0::/pod\n", v2.path()), Some(512 << 20));
        assert_eq!(least_memory("0::/high\n", v2.path()), Some(256 << 20));
        assert_eq!(least_processors("0::/pod/c\n", v2.path()), Some(2));
        assert_eq!(least_processors("0::/other/none\n", v2.path()), Some(1));
        assert_eq!(least_processors("0::/high\n", v2.path()), None);
        assert_eq!(least_memory("0::/\n", v2.path()), None);
        assert_eq!(least_memory("0::/../../pod\n", v2.path()), Some(512 << 20));
        assert_eq!(least_processes("0::/pod/c/d\n", v2.path()), Some(100));
        assert_eq!(least_processes("0::/other\n", v2.path()), None);
        assert_eq!(tightest("0::/pod/c/d\n", v2.path()), Some((200, 200)));
        assert_eq!(tightest("0::/pod\n", v2.path()), Some((99, 100)));
        assert_eq!(tightest("0::/other\n", v2.path()), None);
        for broken in ["", "0", "0:", "::", "x:y:z", "0::", "0::pod\0"] {
            let _ = (least_memory(broken, v2.path()), tightest(broken, v2.path()));
            let _ = least_processors(broken, v2.path());
        }
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let v2 = cgroups(&[
            ("memory.max", "268435456\n"),
            ("pids.max", "64\n"),
            ("pids.current", "64\n"),
            ("cpu.max", "100000 50000\n"),
        ]);
        for own in ["0::/\n", "0::/docker/0123\n"] {
            assert_eq!(least_processors(own, v2.path()), Some(2));
        }
        assert_eq!(least_memory("0::/\n", v2.path()), Some(256 << 20));
        assert_eq!(least_processes("0::/\n", v2.path()), Some(64));
        assert_eq!(tightest("0::/\n", v2.path()), Some((64, 64)));
        let v1 = cgroups(&[
            ("memory/memory.limit_in_bytes", "268435456\n"),
            ("pids/pids.max", "64\n"),
            ("cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        let own = "8:pids:/docker/0123\n4:memory:/docker/0123\n2:cpu,cpuacct:/docker/0123\n0::/\n";
        assert_eq!(least_processors(own, v1.path()), Some(1));
        assert_eq!(least_memory(own, v1.path()), Some(256 << 20));
        assert_eq!(least_processes(own, v1.path()), Some(64));
        let none = cgroups(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("pids/pids.max", "max\n"),
            ("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(least_processors(own, none.path()), None);
        assert_eq!((least_memory(own, none.path()), least_processes(own, none.path())), (None, None));
    }
}
