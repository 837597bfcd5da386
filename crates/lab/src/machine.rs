//! The machine: its processors and who uses which, its noise, and what a reader of a report has to know of it.

use std::{
    collections::BTreeSet,
    fs,
    hint::black_box,
    process::Command,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::proc;

/// Whom the servers run as.
#[derive(Clone, Debug)]
pub struct User {
    /// Name.
    pub name: String,
    /// Name of its group.
    pub group: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl User {
    /// The unprivileged user that root's servers run as; `None` if we are not root and they run as we do.
    ///
    /// # Errors
    /// There is none of the names.
    pub fn unprivileged() -> Result<Option<Self>> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(None);
        }
        for name in ["www-data", "nobody"] {
            if let Some(user) = nix::unistd::User::from_name(name)? {
                let group = nix::unistd::Group::from_gid(user.gid)?
                    .map_or_else(|| name.to_owned(), |group| group.name);
                return Ok(Some(Self {
                    name: user.name,
                    group,
                    uid: user.uid.as_raw(),
                    gid: user.gid.as_raw(),
                }));
            }
        }
        bail!("there is neither a user www-data nor nobody to run servers as")
    }

    /// The names of the user and group that servers run as.
    pub fn names(user: Option<&Self>) -> (String, String) {
        let own = || {
            let name =
                nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.name);
            let group =
                nix::unistd::Group::from_gid(nix::unistd::getegid()).ok().flatten().map(|group| group.name);
            (name.unwrap_or_default(), group.unwrap_or_default())
        };
        user.map_or_else(own, |user| (user.name.clone(), user.group.clone()))
    }
}

/// Which processors do what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cores {
    /// The engines.
    pub server: Vec<usize>,
    /// The generator and the lab itself.
    pub load: Vec<usize>,
    /// Databases.
    pub services: Vec<usize>,
}

impl Cores {
    /// What the flags say, and for the rest: one half for the servers, the other for the generator, databases with the
    /// servers. The two threads of a core stay on one side.
    ///
    /// # Errors
    /// A processor that this process may not use, or a text that is no list.
    pub fn assign(server: Option<&str>, load: Option<&str>, services: Option<&str>) -> Result<Self> {
        let usable = usable_cpus()?;
        let named = |flag: &str, text: Option<&str>| match text {
            None => Ok(None),
            Some(text) => {
                let cpus = parse_cpus(text).with_context(|| format!("{flag} {text}"))?;
                match cpus.iter().find(|cpu| !usable.contains(cpu)) {
                    Some(cpu) => bail!(
                        "{flag} {text}: processor {cpu} cannot be used; there are {}",
                        show_cpus(&usable)
                    ),
                    None => Ok(Some(cpus)),
                }
            }
        };
        let (server, load) = (named("--server-cores", server)?, named("--load-cores", load)?);
        let services = named("--service-cores", services)?;
        let without = |taken: &[usize]| {
            let rest: Vec<usize> = usable.iter().copied().filter(|cpu| !taken.contains(cpu)).collect();
            if rest.is_empty() { usable.clone() } else { rest }
        };
        let (server, load) = match (server, load) {
            (Some(server), Some(load)) => (server, load),
            (Some(server), None) => {
                let load = without(&server);
                (server, load)
            }
            (None, Some(load)) => (without(&load), load),
            (None, None) => halves(&by_core(&usable)),
        };
        Ok(Self { services: services.unwrap_or_else(|| server.clone()), server, load })
    }

    /// Whether a processor belongs to servers and generator.
    pub fn overlap(&self) -> bool {
        self.server.iter().any(|cpu| self.load.contains(cpu))
    }
}

fn halves(cores: &[Vec<usize>]) -> (Vec<usize>, Vec<usize>) {
    if let [only] = cores {
        return match only[..] {
            [first, ref rest @ ..] if !rest.is_empty() => (vec![first], rest.to_vec()),
            _ => (only.clone(), only.clone()),
        };
    }
    let (server, load) = cores.split_at(cores.len() / 2);
    (server.concat(), load.concat())
}

/// Processors grouped by the physical core they belong to.
fn by_core(cpus: &[usize]) -> Vec<Vec<usize>> {
    let mut cores: Vec<Vec<usize>> = Vec::new();
    let mut seen = BTreeSet::new();
    for cpu in cpus {
        if !seen.contains(cpu) {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let siblings = fs::read_to_string(path).ok().and_then(|text| parse_cpus(text.trim()).ok());
            let mut core = siblings.unwrap_or_else(|| vec![*cpu]);
            core.retain(|sibling| cpus.contains(sibling));
            seen.extend(core.iter().copied());
            cores.push(core);
        }
    }
    cores
}

/// Processors this process may use.
fn usable_cpus() -> Result<Vec<usize>> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).context("sched_getaffinity")?;
    Ok((0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
}

/// Reads a list as the kernel writes it: `0-3,8`.
fn parse_cpus(text: &str) -> Result<Vec<usize>> {
    let mut cpus = BTreeSet::new();
    for part in text.split(',') {
        let number =
            |text: &str| text.trim().parse::<usize>().with_context(|| format!("'{text}' is no processor"));
        let (low, high) = match part.split_once('-') {
            Some((low, high)) => (number(low)?, number(high)?),
            None => (number(part)?, number(part)?),
        };
        if low > high || high >= nix::sched::CpuSet::count() {
            bail!("'{part}' is no list of processors; write for example 0-3,8");
        }
        cpus.extend(low..=high);
    }
    Ok(cpus.into_iter().collect())
}

/// `0-3,8`.
pub fn show_cpus(cpus: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match parts.last_mut() {
            Some((_, high)) if *high + 1 == *cpu => *high = *cpu,
            _ => parts.push((*cpu, *cpu)),
        }
    }
    let show =
        |(low, high): (usize, usize)| if low == high { low.to_string() } else { format!("{low}-{high}") };
    parts.into_iter().map(show).collect::<Vec<_>>().join(",")
}

/// Pins this process; what it starts afterwards inherits that.
///
/// # Errors
/// The kernel refuses.
pub fn pin_self(cpus: &[usize]) -> Result<()> {
    if let Some(set) = proc::cpu_set(cpus)? {
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).context("sched_setaffinity")?;
    }
    Ok(())
}

/// Time of the processors since boot, seconds, from /proc/stat.
#[derive(Clone, Debug, Default)]
pub struct CpuTimes(Vec<(usize, CpuTime)>);

/// Time of one processor, seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    busy: f64,
    idle: f64,
    stolen: f64,
}

/// How a processor was used between two moments, each a share of the time, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreUse {
    /// Its number.
    pub cpu: usize,
    /// Running anything.
    pub busy: f64,
    /// Taken by the hypervisor for others.
    pub stolen: f64,
}

impl CpuTimes {
    /// As of now.
    pub fn now() -> Self {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut times = Vec::new();
        for line in text.lines() {
            let mut fields = line.split_ascii_whitespace();
            let Some(cpu) = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok()) else {
                continue;
            };
            let numbers: Vec<f64> =
                fields.filter_map(|field| field.parse::<f64>().ok()).map(|n| n / ticks).collect();
            // user nice system idle iowait irq softirq steal (proc_stat(5)); guest time is part of user.
            if let [user, nice, system, idle, iowait, irq, softirq, stolen, ..] = numbers[..] {
                times.push((
                    cpu,
                    CpuTime { busy: user + nice + system + irq + softirq, idle: idle + iowait, stolen },
                ));
            }
        }
        Self(times)
    }

    /// How the processors were used since an earlier moment.
    pub fn since(&self, earlier: &Self) -> Vec<CoreUse> {
        let mut uses = Vec::new();
        for (cpu, now) in &self.0 {
            if let Some((_, then)) = earlier.0.iter().find(|(other, _)| other == cpu) {
                let (busy, stolen) = (now.busy - then.busy, now.stolen - then.stolen);
                let whole = busy + stolen + (now.idle - then.idle);
                if whole > 0.0 {
                    uses.push(CoreUse { cpu: *cpu, busy: busy / whole, stolen: stolen / whole });
                }
            }
        }
        uses
    }
}

/// How steadily a processor runs: the same small piece of work again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Median time of the piece, µs. It says how fast the machine is at this moment.
    pub median_us: f64,
    /// Standard deviation as a share of the mean, percent.
    pub spread_percent: f64,
    /// The slowest as a multiple of the median.
    pub worst: f64,
}

/// Fewest pieces of work of a calibration.
const PIECES: usize = 15;
/// Steps of one piece; about half a millisecond on a processor of 2020.
const STEPS: u64 = 250_000;
/// How long a calibration takes, if it is not kept from its processor.
const CALIBRATION: Duration = Duration::from_millis(250);

impl Calibration {
    /// Measures on one processor, for a quarter of a second.
    ///
    /// # Errors
    /// The thread cannot be made or pinned.
    pub fn measure(cpu: usize) -> Result<Self> {
        let thread = std::thread::Builder::new().spawn(move || -> Result<Vec<f64>> {
            pin_self(&[cpu])?;
            let mut times = Vec::new();
            let begin = Instant::now();
            while times.len() < PIECES || begin.elapsed() < CALIBRATION {
                let begin = Instant::now();
                let mut x = black_box(1_u64);
                for _ in 0..STEPS {
                    // xorshift64 (Marsaglia 2003): each step needs the last, so that no compiler shortens it.
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                }
                black_box(x);
                times.push(begin.elapsed().as_secs_f64() * 1e6);
            }
            Ok(times)
        })?;
        let mut times = thread.join().map_err(|_| anyhow::anyhow!("the calibration thread panicked"))??;
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (times.len() - 1) as f64;
        let median = times[times.len() / 2];
        Ok(Self {
            median_us: median,
            spread_percent: variance.sqrt() / mean * 100.0,
            worst: times[times.len() - 1] / median,
        })
    }
}

/// What a reader has to know of the machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// `Linux 6.1.0-13-amd64`.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// Model of the processor.
    pub cpu: String,
    /// Number of processors online.
    pub processors: usize,
    /// What governs their frequency; empty where the machine does not say.
    pub governor: String,
    /// Hypervisor, if the processor says that there is one.
    pub virtual_machine: bool,
    /// Bytes of memory.
    pub memory: u64,
    /// Load average of the last minute when the run began.
    pub load_average: f64,
    /// Settings of the kernel that matter to servers, by name.
    pub settings: std::collections::BTreeMap<String, String>,
    /// Commit of the repository that the lab's data lies in; empty if it is none.
    pub commit: String,
}

impl Machine {
    /// This machine, now.
    pub fn look(repository: &std::path::Path) -> Self {
        let read =
            |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let of = |key: &str| {
            let line = info.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let release = read("/etc/os-release");
        let system = release
            .lines()
            .find_map(|line| line.strip_prefix("PRETTY_NAME="))
            .unwrap_or("Linux")
            .trim_matches('"');
        let memory = read("/proc/meminfo");
        let memory = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
        let settings = [
            "net/core/somaxconn",
            "net/ipv4/ip_local_port_range",
            "net/ipv4/tcp_tw_reuse",
            "vm/overcommit_memory",
        ]
        .iter()
        .map(|name| (name.replace('/', "."), read(&format!("/proc/sys/{name}"))))
        .chain([("transparent_hugepage".to_owned(), read("/sys/kernel/mm/transparent_hugepage/enabled"))])
        .filter(|(_, value)| !value.is_empty())
        .collect();
        let commit = Command::new("git")
            .arg("-C")
            .arg(repository)
            .args(["describe", "--always", "--dirty", "--abbrev=10"])
            .output()
            .ok()
            .filter(|output| output.status.success())
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        Self {
            host: read("/proc/sys/kernel/hostname"),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease")),
            system: system.to_owned(),
            cpu: of("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            processors: info.lines().filter(|line| line.starts_with("processor")).count(),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            virtual_machine: of("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            memory: memory.unwrap_or(0) * 1024,
            load_average: read("/proc/loadavg").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0),
            settings,
            commit: commit.unwrap_or_default(),
        }
    }
}

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(parse_cpus("0-3,8").expect("a list"), [0, 1, 2, 3, 8]);
        assert_eq!(show_cpus(&[0, 1, 2, 3, 8]), "0-3,8");
        for wrong in ["", "a", "3-1", "1-", "99999999"] {
            assert!(parse_cpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn threads_of_a_core_stay_together() {
        assert_eq!(
            halves(&[vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]),
            (vec![0, 4, 1, 5], vec![2, 6, 3, 7])
        );
        assert_eq!(halves(&[vec![0], vec![1]]), (vec![0], vec![1]));
        assert_eq!(halves(&[vec![0, 1]]), (vec![0], vec![1]));
        assert_eq!(halves(&[vec![0]]), (vec![0], vec![0]));
    }

    #[test]
    fn a_processor_can_be_calibrated() {
        let cpu = usable_cpus().expect("processors")[0];
        let calibration = Calibration::measure(cpu).expect("measured");
        assert!(calibration.median_us > 10.0 && calibration.worst >= 1.0, "{calibration:?}");
    }
}
