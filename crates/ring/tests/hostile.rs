//! A worker that has gone mad: while requests run through real workers, something writes random words and bytes at random places of the
//! shared memory. No thread of the front may panic or loop, and each exchange must get its end; other rings must not notice.
//!
//! `HAYATE_FUZZ_SECONDS` (5) and `HAYATE_FUZZ_SEED` say how long and which; the seed is printed when it fails.

mod support;

use std::{
    ffi::c_void,
    os::fd::OwnedFd,
    os::unix::process::ExitStatusExt,
    process::{Child, ExitStatus},
    ptr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use hayate_ring::{Hub, Limits, Ring, layout::*};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use support::{Fixture, METHOD, Outcome, ask, run_on};
use tokio::time::{sleep, timeout};

const WORKERS: u32 = 3;
const SLOTS: u32 = 8;
const THREADS: u32 = 3;

/// xorshift64*: a die that can be thrown again.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Words that programs stumble over.
    fn word(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << self.below(64),
            3 => self.below(4096),
            // A claim that looks like one.
            4 => {
                self.below(4)
                    | self.below(5) << HY_CLAIM_WORKER_SHIFT
                    | self.below(64) << HY_CLAIM_TICKET_SHIFT
            }
            5 => u64::from(u32::MAX),
            _ => self.next(),
        }
    }
}

/// The memory as a process maps it that PHP code has got hold of.
struct Mapping {
    base: *mut u8,
    size: usize,
}

impl Mapping {
    fn new(fd: &OwnedFd) -> Mapping {
        let size = rustix::fs::fstat(fd).unwrap().st_size as usize;
        // SAFETY: a new shared mapping, at an address that the kernel chooses.
        let base = unsafe {
            mmap(ptr::null_mut::<c_void>(), size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd, 0)
        };
        Mapping { base: base.unwrap().cast(), size }
    }

    /// Where a stray write hurts most: header, cells, workers and the words of slots; and now and then anywhere. `own`: only where workers
    /// do write, so that the memory is not given up for it at once, and what was overwritten is met later on.
    fn place(&self, dice: &mut Dice, own: bool) -> usize {
        // SAFETY: read as it is, and only to aim. It has been overwritten before, perhaps: no sum of it may be too large.
        let header = unsafe { ptr::read_volatile(self.base.cast::<hy_header>()) };
        let slots = (header.slots_offset as usize).min(self.size);
        let stride = (header.slot_stride as usize).clamp(1, self.size);
        let slot = slots + dice.below(u64::from(SLOTS)) as usize * stride;
        if own {
            let workers = (header.workers_offset as usize).min(self.size);
            let at = match dice.below(8) {
                0 => std::mem::offset_of!(hy_header, sleepers) + dice.below(17) as usize * 8,
                1 => std::mem::offset_of!(hy_header, bells) + dice.below(2 * 256 / 8) as usize * 8,
                2 => workers + dice.below(u64::from(WORKERS) * 16) as usize * 8,
                3..=6 => slot + std::mem::offset_of!(hy_slot, claimed_at) + dice.below(7) as usize * 8,
                _ => slot + size_of::<hy_slot>() + dice.below(6000) as usize,
            };
            return at % (self.size - 8);
        }
        let at = match dice.below(8) {
            0 => dice.below(128) as usize,
            1 | 2 => dice.below(slots as u64 + 1) as usize,
            3..=5 => slot + dice.below(48) as usize * 8,
            6 => slot + dice.below(stride as u64) as usize,
            _ => dice.below(self.size as u64) as usize,
        };
        at % (self.size - 8)
    }

    fn disturb(&self, dice: &mut Dice, own: bool) {
        let at = self.place(dice, own);
        let bytes = dice.word().to_ne_bytes();
        let len = if dice.below(4) == 0 { 1 + dice.below(8) as usize } else { 8 };
        for (i, byte) in bytes.iter().take(len).enumerate() {
            // SAFETY: inside the mapping, since at is 8 below its end at most.
            unsafe { AtomicU8::from_ptr(self.base.add(at + i)) }.store(*byte, Relaxed);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nothing borrows from it.
        unsafe { munmap(self.base.cast(), self.size) }.unwrap();
    }
}

/// host/ring.c is as much a target as the front: whatever its neighbours write, it leaves when it is told to, ends because the memory is not
/// what it was (71; 2 when it maps it), or is killed. A signal of its own, and the status of a sanitizer, are its faults.
fn allowed(status: ExitStatus) {
    let well = [Some(0), Some(2), Some(HY_EXIT_MEMORY as i32)].contains(&status.code());
    assert!(well || status.signal() == Some(9), "host/ring.c ended with {status}; what it said is above");
}

/// What a pool does for a ring, in short.
struct Pool {
    hub: Arc<Hub>,
    ring: Arc<Ring>,
    workers: Vec<Child>,
    killed: u64,
    condemned: u64,
}

impl Pool {
    fn spawn(&mut self) {
        self.workers = (0..WORKERS).map(|n| Fixture::spawn_in(&self.ring, &self.hub, n, None)).collect();
    }

    fn kill(&mut self, worker: u32) {
        let child = &mut self.workers[worker as usize];
        child.kill().unwrap();
        allowed(child.wait().unwrap());
    }

    /// Returns whether there is another ring now.
    fn attend(&mut self, limits: &Limits) -> bool {
        let swept = self.ring.sweep(limits);
        if swept.broken.is_some() {
            self.condemned += 1;
            let old = Arc::clone(&self.ring);
            self.ring = old.create_alike(&self.hub).unwrap();
            old.hand_over(Some(&self.ring));
            for worker in 0..WORKERS {
                self.kill(worker);
                old.worker_died(worker);
            }
            old.end();
            self.spawn();
            return true;
        }
        for overdue in swept.overdue {
            self.killed += 1;
            self.kill(overdue.worker);
        }
        for worker in 0..WORKERS {
            if let Some(status) = self.workers[worker as usize].try_wait().unwrap() {
                allowed(status);
                self.ring.worker_died(worker);
                self.workers[worker as usize] = Fixture::spawn_in(&self.ring, &self.hub, worker, None);
            }
        }
        false
    }
}

/// What one of the front's threads does: requests, until the end has come. They begin with the first ring, as the front's do; its successors
/// take them. Returns how many were answered, and how many not.
async fn load(ring: &Arc<Ring>, thread: u32, end: Instant, beats: &AtomicU64, seed: u64) -> (u64, u64) {
    let tasks: Vec<_> = (0..4u64)
        .map(|task| {
            let ring = Arc::clone(ring);
            tokio::spawn(async move {
                let (mut whole, mut lost, mut i) = (0u64, 0u64, task + 4 * u64::from(thread));
                while Instant::now() < end {
                    i += 1;
                    let path = match i % 7 {
                        0 => "large 30000".to_owned(),
                        1 => format!("late /{i}"),
                        _ => format!("/{i}"),
                    };
                    let body = (i % 3 == 0).then(|| Bytes::from(vec![b'q'; 6000]));
                    if i % 11 == 0 {
                        // A client that leaves.
                        let _ = timeout(Duration::from_millis(i % 5), ask(&ring, &path, body)).await;
                        continue;
                    }
                    let outcome = timeout(Duration::from_secs(60), ask(&ring, &path, body)).await;
                    match outcome.unwrap_or_else(|_| panic!("a request hangs: HAYATE_FUZZ_SEED={seed}")) {
                        Outcome::Whole(_) => whole += 1,
                        Outcome::Failed(_) | Outcome::Refused(_) => lost += 1,
                    }
                }
                (whole, lost)
            })
        })
        .collect();
    while !tasks.iter().all(|task| task.is_finished()) {
        beats.fetch_add(1, Relaxed);
        sleep(Duration::from_millis(10)).await;
    }
    let (mut whole, mut lost) = (0, 0);
    for task in tasks {
        let (w, l) = task.await.unwrap();
        whole += w;
        lost += l;
    }
    // The last beat is for good.
    beats.store(u64::MAX, Relaxed);
    (whole, lost)
}

#[test]
fn a9_5_nothing_that_a_worker_writes_ends_or_holds_the_front() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = variable("HAYATE_FUZZ_SECONDS").unwrap_or(5);
    let seed = variable("HAYATE_FUZZ_SEED").unwrap_or_else(|| u64::from(std::process::id())).max(1);
    eprintln!("HAYATE_FUZZ_SEED={seed}");

    let fixture = Fixture::of_threads(THREADS, SLOTS, WORKERS);
    let other =
        Fixture { ring: fixture.ring.create_alike(&fixture.hub).unwrap(), hub: Arc::clone(&fixture.hub) };
    let mut steady = other.spawn(0, None);
    let memory = Arc::new(Mutex::new(fixture.ring.memory_fd().try_clone_to_owned().unwrap()));
    let (over, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // Of each thread, and of the supervisor.
    let beats: Arc<[AtomicU64]> = (0..=THREADS).map(|_| AtomicU64::new(0)).collect();
    let end = Instant::now() + Duration::from_secs(seconds);

    let hostile = std::thread::spawn({
        let (memory, over, writes) = (Arc::clone(&memory), Arc::clone(&over), Arc::clone(&writes));
        move || {
            let mut dice = Dice(seed);
            let began = Instant::now();
            while !over.load(Relaxed) {
                let mapping = Mapping::new(&memory.lock().unwrap());
                // A while of peace in between, for bursts to meet requests that are well under way.
                std::thread::sleep(Duration::from_micros(dice.below(30_000)));
                for _ in 0..dice.below(6) {
                    mapping.disturb(&mut dice, began.elapsed().as_secs() % 4 < 2);
                    writes.fetch_add(1, Relaxed);
                    std::thread::sleep(Duration::from_micros(dice.below(300)));
                }
            }
        }
    });
    // Each of the threads must come round: whatever it does for a hostile worker, it does for a moment.
    std::thread::spawn({
        let (over, beats) = (Arc::clone(&over), Arc::clone(&beats));
        move || {
            let mut last: Vec<_> = beats.iter().map(|_| (0, Instant::now())).collect();
            while !over.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                for (thread, (beat, (last, since))) in beats.iter().zip(&mut last).enumerate() {
                    let beat = beat.load(Relaxed);
                    if beat != *last || beat == u64::MAX {
                        (*last, *since) = (beat, Instant::now());
                    } else if since.elapsed() > Duration::from_secs(30) {
                        eprintln!("thread {thread} of the front loops: HAYATE_FUZZ_SEED={seed}");
                        std::process::abort();
                    }
                }
            }
        }
    });
    let threads: Vec<_> = (1..THREADS)
        .map(|thread| {
            let (hub, ring, beats) =
                (Arc::clone(&fixture.hub), Arc::clone(&fixture.ring), Arc::clone(&beats));
            std::thread::spawn(move || {
                run_on(&hub, thread, load(&ring, thread, end, &beats[thread as usize], seed))
            })
        })
        .collect();

    fixture.run(async {
        let own = tokio::spawn({
            let (ring, beats) = (Arc::clone(&fixture.ring), Arc::clone(&beats));
            async move { load(&ring, 0, end, &beats[0], seed).await }
        });
        let elsewhere = tokio::spawn({
            let ring = Arc::clone(&other.ring);
            async move {
                let mut asked = 0u64;
                while Instant::now() < end {
                    let outcome = timeout(Duration::from_secs(30), ask(&ring, "/steady", None)).await.unwrap();
                    assert_eq!(outcome, Outcome::Whole(b"/steady".to_vec()), "another ring is disturbed");
                    asked += 1;
                    sleep(Duration::from_millis(1)).await;
                }
                asked
            }
        });
        let mut pool = Pool {
            hub: Arc::clone(&fixture.hub),
            ring: Arc::clone(&fixture.ring),
            workers: Vec::new(),
            killed: 0,
            condemned: 0,
        };
        pool.spawn();
        let limits =
            Limits { queue_timeout: Duration::from_secs(5), request_timeout: Some(Duration::from_secs(2)), slow_request: None };
        while !own.is_finished()
            || !threads.iter().all(|thread| thread.is_finished())
            || !elsewhere.is_finished()
        {
            if Instant::now() >= end {
                over.store(true, Relaxed);
            }
            if pool.attend(&limits) {
                *memory.lock().unwrap() = pool.ring.memory_fd().try_clone_to_owned().unwrap();
            }
            beats[THREADS as usize].fetch_add(1, Relaxed);
            sleep(Duration::from_millis(10)).await;
        }
        let (mut whole, mut lost) = own.await.unwrap();
        for thread in threads {
            let (w, l) = thread.join().unwrap();
            assert!(w > 0, "a thread has served nothing");
            whole += w;
            lost += l;
        }
        let steady = elsewhere.await.unwrap();
        // With the writer gone all that is left comes to its end, too.
        over.store(true, Relaxed);
        let deadline = Instant::now() + Duration::from_secs(60);
        while pool.ring.active() > 0 {
            assert!(Instant::now() < deadline, "a slot leaks: HAYATE_FUZZ_SEED={seed}");
            pool.attend(&limits);
            beats[THREADS as usize].fetch_add(1, Relaxed);
            sleep(Duration::from_millis(10)).await;
        }
        eprintln!(
            "{} writes, {whole} answers, {lost} lost, {steady} elsewhere; {} workers killed, {} rings condemned",
            writes.load(Relaxed),
            pool.killed,
            pool.condemned
        );
        assert!(whole > 0 && steady > 0 && pool.condemned > 0, "nothing was proved");
        for worker in 0..WORKERS {
            pool.kill(worker);
        }
    });
    hostile.join().unwrap();
    steady.kill().unwrap();
    steady.wait().unwrap();
}

/// A claim that is one worker's when the sweep looks, and nobody's when it looks again.
#[test]
fn a_claim_that_changes_under_the_sweep_is_judged_as_it_was_seen() {
    let fixture = Fixture::new(SLOTS, WORKERS);
    let over = Arc::new(AtomicBool::new(false));
    let mut worker = fixture.spawn(0, None);
    fixture.run(async {
        // More than a ring holds, and nobody reads it: the worker keeps its slot.
        let mut slot = fixture.ring.admit(usize::MAX).await.unwrap();
        slot.put(METHOD, b"large 1000000").unwrap();
        let mut exchange = slot.submit(false);
        std::future::poll_fn(|cx| exchange.poll_head(cx)).await.unwrap();
        let mapping = Mapping::new(&fixture.ring.memory_fd().try_clone_to_owned().unwrap());
        // SAFETY: nothing has been overwritten yet.
        let header = unsafe { ptr::read_volatile(mapping.base.cast::<hy_header>()) };
        let claims = (0..SLOTS as usize).map(|slot| {
            let at = header.slots_offset as usize
                + slot * header.slot_stride as usize
                + std::mem::offset_of!(hy_slot, claim);
            // SAFETY: a word of a slot, inside the mapping and aligned, which lives as long as the threads that use it: they are joined below.
            unsafe { AtomicU64::from_ptr(mapping.base.add(at).cast()) }
        });
        let held = claims
            .into_iter()
            .find(|claim| claim.load(Relaxed) & HY_CLAIM_STATE_MASK as u64 == u64::from(HY_CLAIMED));
        let held = held.expect("the worker holds it");
        let true_one = held.load(Relaxed);
        let nobodys = true_one | 0xffe << HY_CLAIM_WORKER_SHIFT;
        std::thread::scope(|scope| {
            let flips = Arc::clone(&over);
            scope.spawn(move || {
                while !flips.load(Relaxed) {
                    held.store(nobodys, Relaxed);
                    held.store(true_one, Relaxed);
                }
            });
            let limits =
                Limits { queue_timeout: Duration::from_secs(60), request_timeout: None, slow_request: None };
            let swept = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                (0..20_000).for_each(|_| drop(fixture.ring.sweep(&limits)));
            }));
            over.store(true, Relaxed);
            assert!(swept.is_ok(), "the sweep has believed what a worker wrote");
        });
        worker.kill().unwrap();
        allowed(worker.wait().unwrap());
    });
}
