//! What the machine, or the container, leaves to the server: processors and memory. Read once, for defaults; what the configuration says wins.

use std::{
    fs,
    path::{Component, Path, PathBuf},
    thread,
};

use crate::config::Workers;

/// What a worker of an application of some size has of its own. Of a limit of memory, each worker that there is by default has so much.
const FOR_A_WORKER: u64 = 64 << 20;

/// Processors that the server may use: by affinity, and by the quota of its cgroup.
pub fn processors() -> u32 {
    thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// The least limit of memory of this process' cgroup and those above it, in bytes, as far as they can be seen from here.
pub fn memory_limit() -> Option<u64> {
    limit(&fs::read_to_string("/proc/self/cgroup").ok()?, Path::new("/sys/fs/cgroup"))
}

/// The workers of an application that names no number.
pub fn workers() -> Workers {
    for_these(processors(), memory_limit())
}

fn for_these(processors: u32, memory: Option<u64>) -> Workers {
    let by_memory = memory.map_or(1024, |memory| u32::try_from(memory / FOR_A_WORKER).unwrap_or(1024));
    Workers { min: 1, max: processors.saturating_mul(2).clamp(4, 1024).min(by_memory).max(1) }
}

/// `own` is what /proc/self/cgroup holds, `mounted` where the kernel's cgroups are mounted: version 2, version 1, or both.
fn limit(own: &str, mounted: &Path) -> Option<u64> {
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (tops, file) = match controllers {
            "" => ([mounted.to_owned(), mounted.join("unified")], "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ([mounted.join("memory"), mounted.join(controllers)], "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // Seen from a namespace of its own, a process elsewhere is above the root; there is nothing to be found there.
        let below: PathBuf =
            Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect();
        for top in &tops {
            // In a container the path may be the host's, and the mount only the container's part: the top is looked at in any case.
            for ancestor in below.ancestors() {
                let text = fs::read_to_string(top.join(ancestor).join(file)).unwrap_or_default();
                limits.extend(text.trim().parse::<u64>().ok());
            }
        }
    }
    // Version 1 writes a number for no limit, the highest multiple of a page's size.
    limits.into_iter().min().filter(|limit| *limit < 1 << 60)
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
    fn the_least_limit_counts_from_the_own_group_upwards() {
        let v2 = cgroups(&[
            ("pod/memory.max", "536870912\n"),
            ("pod/c/memory.max", "1073741824\n"),
            ("pod/c/d/memory.max", "max\n"),
            ("other/memory.max", "1\n"),
        ]);
        assert_eq!(limit("0::/pod/c/d\n", v2.path()), Some(512 << 20));
        assert_eq!(limit("0::/pod\n", v2.path()), Some(512 << 20));
        assert_eq!(limit("0::/\n", v2.path()), None);
        assert_eq!(limit("0::/../../pod\n", v2.path()), Some(512 << 20));
        for broken in ["", "0", "0:", "::", "x:y:z", "0::", "0::pod\0"] {
            let _ = limit(broken, v2.path());
        }
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let v2 = cgroups(&[("memory.max", "268435456\n")]);
        assert_eq!(limit("0::/\n", v2.path()), Some(256 << 20));
        let v1 = cgroups(&[("memory/memory.limit_in_bytes", "268435456\n")]);
        assert_eq!(limit("4:memory:/docker/0123\n0::/\n", v1.path()), Some(256 << 20));
        let none = cgroups(&[("memory/memory.limit_in_bytes", "9223372036854771712\n")]);
        assert_eq!(limit("4:memory:/\n", none.path()), None);
    }

    #[test]
    fn workers_by_default() {
        let most = |processors, memory| for_these(processors, memory).max;
        assert_eq!((most(1, None), most(2, None), most(8, None), most(4096, None)), (4, 4, 16, 1024));
        assert_eq!((most(8, Some(512 << 20)), most(8, Some(128 << 20)), most(2, Some(1 << 40))), (8, 2, 4));
        assert_eq!(for_these(2, Some(1 << 20)), Workers { min: 1, max: 1 });
    }
}
