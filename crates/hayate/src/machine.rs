//! What the machine, or the container, leaves to the server: processors, memory and processes. Read once, for defaults; what the configuration says
//! wins, with a warning where that cannot be.

use std::thread;

use hayate_front::Disk;
use hayate_pool::{Rewind, cgroup};

use crate::{config::Workers, plan::App};

/// What a worker of an application of some size has of its own. Of a limit of memory, each worker that there is by default has so much.
const FOR_A_WORKER: u64 = 64 << 20;
/// Of a limit of processes, so many for each worker that there is by default: a reload has them twice, and one that cannot track what is written is two.
const PROCESSES_OF_A_WORKER: u64 = 4;
/// The master and the front, each with its log's thread.
const MASTER_AND_FRONT: u64 = 4;
/// Threads and processes that come and go: for /proc and scrapes, for passwords and certificates, what reads the configuration, `hayate status`.
const PASSING: u64 = 8;

/// Processors that the server may use: by affinity, and by the quota of its cgroup and those above it.
pub fn processors() -> u32 {
    let count = |many: u64| u32::try_from(many).unwrap_or(u32::MAX);
    let here = thread::available_parallelism().map_or(1, |n| count(n.get() as u64));
    cgroup::processors().map_or(here, |quota| here.min(count(quota)))
}

/// The least limit of memory of this process' cgroup and those above it, in bytes, as far as they can be seen from here.
pub fn memory_limit() -> Option<u64> {
    cgroup::memory()
}

/// The same of processes; threads count.
pub fn process_limit() -> Option<u64> {
    cgroup::processes()
}

/// The front's threads for connections, where the configuration names no number: one for each processor.
pub fn front_threads() -> u32 {
    front_threads_of(processors(), process_limit())
}

/// The front's threads for files.
pub fn threads_for_files() -> usize {
    files_of(process_limit())
}

/// The workers of an application that names no number.
pub fn workers() -> Workers {
    for_these(processors(), memory_limit(), process_limit())
}

/// What to do about a configuration whose processes do not fit into what the cgroup allows.
pub fn too_many_processes(apps: &[App], front_threads: u32) -> Option<String> {
    too_many(apps, front_threads, process_limit()?)
}

fn front_threads_of(processors: u32, processes: Option<u64>) -> u32 {
    let most = processes.map_or(u32::MAX, |limit| u32::try_from(limit / 8).unwrap_or(u32::MAX)).max(1);
    processors.min(most).clamp(1, hayate_ring::Hub::MOST)
}

fn files_of(processes: Option<u64>) -> usize {
    let most = processes.map_or(usize::MAX, |limit| usize::try_from(limit / 4).unwrap_or(usize::MAX));
    most.clamp(Disk::LEAST_THREADS, Disk::THREADS)
}

/// Processes and threads of the server itself.
fn own(front_threads: u32, processes: u64) -> u64 {
    MASTER_AND_FRONT + PASSING + u64::from(front_threads) + files_of(Some(processes)) as u64
}

fn for_these(processors: u32, memory: Option<u64>, processes: Option<u64>) -> Workers {
    let by_memory = memory.map_or(1024, |memory| memory / FOR_A_WORKER);
    let by_processes = processes.map_or(1024, |limit| {
        limit.saturating_sub(own(front_threads_of(processors, processes), limit)) / PROCESSES_OF_A_WORKER
    });
    let most = u32::try_from(by_memory.min(by_processes)).unwrap_or(1024);
    Workers { min: 1, max: processors.saturating_mul(2).clamp(4, 1024).min(most).max(1) }
}

fn too_many(apps: &[App], front_threads: u32, limit: u64) -> Option<String> {
    let own = own(front_threads, limit);
    // Each application has a process that its workers are forked from.
    let with = |workers: fn(&App) -> u32| -> u64 {
        let php = apps.iter().filter(|app| app.runs_php());
        let each = php.map(|app| {
            let processes = if app.spec.rewind == Rewind::Fork { 2 } else { 1 };
            1 + u64::from(workers(app)) * processes
        });
        each.sum()
    };
    let (least, most) = (with(|app| *app.spec.workers.start()), with(|app| *app.spec.workers.end()));
    let (what, wanted) = if own + most > limit {
        ("PHP with all `workers`", most)
    } else if own + most + least > limit {
        ("PHP during a reload, with the workers of before and the new ones,", most + least)
    } else {
        return None;
    };
    let lower = if apps.iter().any(|app| *app.spec.workers.end() > 1) {
        "Lower `workers`, or raise"
    } else {
        "Raise"
    };
    Some(format!(
        "the cgroup allows {limit} processes and threads (pids.max); {what} has {wanted}, and the server itself up to {own}. Where there are none left \
         requests wait for the workers that there are, and a reload fails. {lower} the limit (TasksMax= of systemd, --pids-limit of docker run, \
         podPidsLimit of the kubelet)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_by_default() {
        let most = |processors, memory| for_these(processors, memory, None).max;
        assert_eq!((most(1, None), most(2, None), most(8, None), most(4096, None)), (4, 4, 16, 1024));
        assert_eq!((most(8, Some(512 << 20)), most(8, Some(128 << 20)), most(2, Some(1 << 40))), (8, 2, 4));
        assert_eq!(for_these(2, Some(1 << 20), None), Workers { min: 1, max: 1 });
    }

    #[test]
    fn threads_and_workers_by_default_leave_room_for_a_reload() {
        for processors in [1, 2, 8, 64, 512] {
            for limit in [32, 64, 100, 256, 1000, 4915, 1 << 40] {
                let (front, workers) =
                    (front_threads_of(processors, Some(limit)), for_these(processors, None, Some(limit)).max);
                let reload = 2 * (1 + 2 * u64::from(workers));
                assert!(own(front, limit) + reload <= limit + 2, "{processors} {limit} {front} {workers}");
            }
        }
        assert_eq!(for_these(64, None, Some(100)).max, 15);
        assert_eq!((front_threads_of(64, Some(100)), front_threads_of(64, None)), (12, 64));
        assert_eq!(
            (files_of(Some(1)), files_of(Some(40)), files_of(Some(100)), files_of(None)),
            (2, 10, 16, 16)
        );
    }
}
