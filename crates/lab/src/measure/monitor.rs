//! Watches processors and memory while a load runs.
//!
//! Promises: what it costs stays on the generator's processors and below a few percent of one of them; memory, which is slow to
//! read, is looked at less often the longer that takes.

use std::{
    collections::BTreeMap,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::account::Account;
use crate::{
    machine::{self, CpuTimes},
    proc::Snapshot,
    result::{Sample, Spread, Usage},
};

/// Memory is looked at for at most this share of the time.
const MEMORY_SHARE: f64 = 0.02;

/// A running monitor.
pub struct Monitor {
    stop: Sender<()>,
    thread: JoinHandle<Watched>,
}

/// What a monitor saw.
pub struct Watched {
    /// The engine.
    pub server: Usage,
    /// The services by name.
    pub services: BTreeMap<String, Usage>,
    /// How all processors were used.
    pub cores: Vec<machine::CoreUse>,
    /// The course of it; times count from 1970.
    pub samples: Vec<Sample>,
    /// How long it watched, seconds.
    pub duration: f64,
}

/// One family that is watched.
struct Family {
    guard: i32,
    first: Account,
    last: Account,
    cpu: Vec<f64>,
    memory: Vec<u64>,
}

impl Family {
    fn new(guard: i32) -> Self {
        let first = Account::full(guard);
        let memory = vec![first.memory()];
        Self { guard, last: first.clone(), first, cpu: Vec::new(), memory }
    }

    /// CPU in use since the last time, in processors.
    fn sample(&mut self, all: &Snapshot, seconds: f64) -> f64 {
        let now = Account::now(all, self.guard);
        let used = (now.cpu - self.last.cpu).max(0.0) / seconds;
        self.cpu.push(used);
        self.last = now;
        used
    }

    fn usage(mut self) -> Usage {
        let end = Account::full(self.guard);
        self.memory.push(end.memory());
        let used = end.since(&self.first);
        let cpu = Spread::of(self.cpu.iter().copied());
        self.memory.sort_unstable();
        Usage {
            cpu_user: used.user,
            cpu_system: used.system,
            cpu_median: cpu.map_or(0.0, |cpu| cpu.value),
            cpu_max: cpu.map_or(0.0, |cpu| cpu.max),
            memory_median: self.memory[self.memory.len() / 2],
            memory_max: self.memory.last().copied().unwrap_or(0),
            voluntary: used.voluntary,
            involuntary: used.involuntary,
            processes: end.processes.len(),
        }
    }
}

impl Monitor {
    /// Begins to watch: the engine's guard, the services' guards, the generator's guard. `expected`: seconds that the load will
    /// take, if that is known.
    pub fn start(server: i32, services: Vec<(String, i32)>, generator: i32, expected: Option<f64>) -> Self {
        let (stop, stopped) = channel();
        let interval =
            Duration::from_secs_f64(expected.map_or(1.0, |seconds| (seconds / 10.0).clamp(0.2, 1.0)));
        let (begun, begin) = channel();
        let thread = std::thread::spawn(move || {
            let mut server = Family::new(server);
            let mut services: Vec<(String, Family)> =
                services.into_iter().map(|(name, guard)| (name, Family::new(guard))).collect();
            let mut generator = Family::new(generator);
            let mut samples = Vec::new();
            let (start, cores) = (Instant::now(), CpuTimes::now());
            let (mut last, mut next) = (start, start);
            let mut next_memory = start;
            // Nobody waits any more if the lab is ending.
            let _ = begun.send(());
            loop {
                next += interval;
                match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
                let now = Instant::now();
                let seconds = now.duration_since(last).as_secs_f64();
                last = now;
                let all = Snapshot::now();
                let mut sample = Sample {
                    at: machine::now(),
                    server: server.sample(&all, seconds),
                    services: services.iter_mut().map(|(_, family)| family.sample(&all, seconds)).sum(),
                    generator: generator.sample(&all, seconds),
                    memory: None,
                };
                if now >= next_memory {
                    let begin = Instant::now();
                    let memory = server.last.memory();
                    sample.memory = Some(memory);
                    server.memory.push(memory);
                    for (_, family) in &mut services {
                        family.memory.push(family.last.memory());
                    }
                    next_memory = begin + begin.elapsed().div_f64(MEMORY_SHARE);
                }
                samples.push(sample);
                // A machine that is too busy to sample in time loses samples, and no figure is of too short a time.
                next = next.max(Instant::now());
            }
            let cores = CpuTimes::now().since(&cores);
            let duration = start.elapsed().as_secs_f64();
            Watched {
                server: server.usage(),
                services: services.into_iter().map(|(name, family)| (name, family.usage())).collect(),
                cores,
                samples,
                duration,
            }
        });
        // The account begins before the load does. If the thread died, `stop` says so.
        let _ = begin.recv();
        Self { stop, thread }
    }

    /// Ends it.
    ///
    /// # Errors
    /// The thread panicked.
    pub fn stop(self) -> anyhow::Result<Watched> {
        drop(self.stop);
        self.thread.join().map_err(|_| anyhow::anyhow!("the monitor panicked"))
    }
}
