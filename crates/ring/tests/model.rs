//! The protocol of queue, claim, sleep and wake-up, explored by loom: every interleaving (up to a number of preemptions) of the front's threads and its
//! workers, every value that a weak memory may let each of them see, and a worker's death at each of its steps.
//!
//! This is a model, not the code: the words of `host/layout.h` and the operations on them, in the order of `src/queue.rs`, `src/wake.rs`,
//! `src/workers.rs` and `host/ring.c`, under the same names; a change there belongs here. (`workers.rs` beside this runs the code itself.)
//! loom takes SeqCst accesses for AcqRel, so where the code relies on the total order of SeqCst operations the model has a fence. What it
//! promises: each request has exactly one outcome, and nobody sleeps for ever. What it is worth is shown by leaving out one thing at a time,
//! and seeing it fail.

use std::process::Command;

use loom::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering::*, fence},
    },
    thread,
};

const MOST: usize = 2;

const QUEUED: usize = 1;
const CLAIMED: usize = 2;
const DONE: usize = 3;

fn claim(state: usize, worker: usize, ticket: usize) -> usize {
    state | worker << 4 | ticket << 8
}

/// What is explored: who does what, and what is left out to see the model fail.
#[derive(Clone, Copy)]
struct Case {
    workers: usize,
    requests: usize,
    /// Threads of the front, 1 or 2. Of two each has one request of its own, and the first one sees to deaths.
    fronts: usize,
    /// Workers are woken after each submission instead of once for all.
    one_by_one: bool,
    /// The first request takes until the second is served: nobody may wait for a worker that is busy while another sleeps.
    slow: bool,
    /// The tail comes round to the first request while that still waits behind one that gave up: it gets a new ticket.
    round: bool,
    /// This worker dies at this step, the numbers of HY_STEP in host/ring.c.
    dies_at: Option<(usize, u32)>,
    without: Option<Part>,
}

const ONE: Case = Case {
    workers: 1,
    requests: 1,
    fronts: 1,
    one_by_one: false,
    slow: false,
    round: false,
    dies_at: None,
    without: None,
};
const TWO: Case = Case { workers: 2, requests: 2, ..ONE };
const TWO_FRONTS: Case = Case { requests: 2, fronts: 2, ..ONE };
const TWO_ONE_BY_ONE: Case = Case { one_by_one: true, slow: true, ..TWO };

/// The parts that the protocol consists of.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    /// The front's fence between publishing and looking for sleepers.
    FrontFence,
    /// A worker's fence between announcing its sleep and looking again.
    WorkerFence,
    /// A worker's second look at the queue.
    WorkerLook,
    /// Passing a wake-up on that was meant for a request which this worker did not take.
    PassOn,
    /// The front's fence between announcing its sleep and looking again.
    FrontSleepFence,
    /// The front's second look at the doorbells.
    FrontLook,
    /// Taking a request by compare-and-swap rather than by looking and writing.
    ClaimSwap,
    /// Moving the queue's head past a request whatever became of it, rather than only past one's own.
    HelpHead,
    /// Giving a waiting request a new ticket by compare-and-swap rather than by writing.
    TicketSwap,
    /// Waking another worker when one has died while requests wait.
    WakeAfterDeath,
    /// A thread's waking workers for what it has submitted, before it sleeps, rather than leaving that to the one that sleeps next.
    OwnFlush,
    /// Ringing for the thread that the slot belongs to, rather than for the first.
    OwnBell,
    /// One thread at a time giving tickets.
    Lock,
}

/// A futex word that a worker sleeps on.
struct Futex {
    word: AtomicUsize,
    kernel: (Mutex<()>, Condvar),
}

impl Futex {
    fn new() -> Futex {
        Futex { word: AtomicUsize::new(0), kernel: (Mutex::new(()), Condvar::new()) }
    }

    fn wake(&self) {
        self.word.store(1, SeqCst);
        let _kernel = self.kernel.0.lock().unwrap();
        self.kernel.1.notify_all();
    }

    fn wait(&self) {
        let mut kernel = self.kernel.0.lock().unwrap();
        while self.word.load(SeqCst) == 0 {
            kernel = self.kernel.1.wait(kernel).unwrap();
        }
    }
}

/// The front's event loop: each write is one return of its wait. Also what the kernel tells of deaths.
struct Event {
    news: Mutex<(bool, Option<usize>)>,
    changed: Condvar,
}

impl Event {
    fn write(&self, died: Option<usize>) {
        let mut news = self.news.lock().unwrap();
        *news = (true, died.or(news.1));
        self.changed.notify_all();
    }

    /// Returns who died.
    fn wait(&self) -> Option<usize> {
        let mut news = self.news.lock().unwrap();
        while !news.0 {
            news = self.changed.wait(news).unwrap();
        }
        news.0 = false;
        news.1.take()
    }
}

/// Where one thread of the front sleeps.
struct Bell {
    doorbells: AtomicUsize,
    sleeping: AtomicUsize,
    event: Event,
}

#[derive(Default)]
struct Inner {
    tail: usize,
    settled: [bool; MOST],
}

struct Memory {
    case: Case,
    head: AtomicUsize,
    tail: AtomicUsize,
    cells: [AtomicUsize; MOST],
    claims: [AtomicUsize; MOST],
    sleepers: AtomicUsize,
    wake: [Futex; MOST],
    quit: [AtomicUsize; MOST],
    bells: [Bell; MOST],
    /// The front's own record: the next ticket, and which requests have their outcome.
    inner: Mutex<Inner>,
    served: (Mutex<[bool; MOST]>, Condvar),
}

/// The worker is no more.
struct Died;

impl Memory {
    fn new(case: Case) -> Memory {
        Memory {
            case,
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            cells: [0, 1].map(|_| AtomicUsize::new(0)),
            claims: [0, 1].map(|_| AtomicUsize::new(0)),
            sleepers: AtomicUsize::new(0),
            wake: [0, 1].map(|_| Futex::new()),
            quit: [0, 1].map(|_| AtomicUsize::new(0)),
            bells: [0, 1].map(|_| Bell {
                doorbells: AtomicUsize::new(0),
                sleeping: AtomicUsize::new(0),
                event: Event { news: Mutex::new((false, None)), changed: Condvar::new() },
            }),
            inner: Mutex::new(Inner::default()),
            served: (Mutex::new([false; MOST]), Condvar::new()),
        }
    }

    fn with(&self, part: Part) -> bool {
        self.case.without != Some(part)
    }

    /// The thread that a request belongs to.
    fn owner(&self, index: usize) -> usize {
        if self.case.fronts == 2 { index } else { 0 }
    }

    fn step(&self, me: usize, step: u32) -> Result<(), Died> {
        if self.case.dies_at == Some((me, step)) { Err(Died) } else { Ok(()) }
    }

    // --- the worker's side: host/ring.c

    fn take(&self, me: usize) -> Result<Option<usize>, Died> {
        loop {
            let head = self.head.load(Acquire);
            let tail = self.tail.load(Acquire);
            if head == tail {
                return Ok(None);
            }
            if tail - head > MOST {
                thread::yield_now();
                continue; // the head was moved on between the two looks
            }
            let index = self.cells[head % MOST].load(Relaxed);
            let (queued, claimed) = (claim(QUEUED, 0, head), claim(CLAIMED, me, head));
            self.step(me, 1)?;
            let slot = &self.claims[index];
            let mine = if self.with(Part::ClaimSwap) {
                slot.compare_exchange(queued, claimed, AcqRel, Relaxed).is_ok()
            } else {
                let free = slot.load(Acquire) == queued;
                if free {
                    slot.store(claimed, Release);
                }
                free
            };
            self.step(me, 2)?;
            if mine || self.with(Part::HelpHead) {
                let _ = self.head.compare_exchange(head, head + 1, AcqRel, Relaxed);
            } else {
                return Ok(None);
            }
            self.step(me, 3)?;
            if mine {
                return Ok(Some(index));
            }
        }
    }

    fn next(&self, me: usize) -> Result<Option<usize>, Died> {
        let bit = 1 << me;
        loop {
            if self.quit[me].load(Acquire) != 0 {
                return Ok(None);
            }
            if let Some(index) = self.take(me)? {
                return Ok(Some(index));
            }
            self.wake[me].word.store(0, SeqCst);
            self.step(me, 4)?;
            self.sleepers.fetch_or(bit, SeqCst);
            if self.with(Part::WorkerFence) {
                fence(SeqCst);
            }
            self.step(me, 5)?;
            let taken = if self.with(Part::WorkerLook) { self.take(me)? } else { None };
            if taken.is_none() && self.quit[me].load(Acquire) == 0 {
                self.wake[me].wait();
                self.step(me, 6)?;
            }
            let still_announced = self.sleepers.fetch_and(!bit, SeqCst) & bit != 0;
            self.step(me, 7)?;
            if taken.is_some() {
                let empty = self.head.load(Acquire) == self.tail.load(Acquire);
                if self.with(Part::PassOn) && !still_announced && !empty {
                    self.wake_sleepers(1);
                }
                return Ok(taken);
            }
        }
    }

    fn release(&self, me: usize, index: usize) -> Result<(), Died> {
        let seen = self.claims[index].load(Relaxed);
        self.claims[index].store(seen & !0xf | DONE, Release);
        self.step(me, 13)?;
        let bell = &self.bells[if self.with(Part::OwnBell) { self.owner(index) } else { 0 }];
        bell.doorbells.fetch_or(1 << index, SeqCst);
        fence(SeqCst); // in C the order of the SeqCst operations before and after
        self.step(me, 8)?;
        if bell.sleeping.load(SeqCst) != 0 && bell.sleeping.swap(0, SeqCst) != 0 {
            self.step(me, 9)?;
            bell.event.write(None);
        }
        Ok(())
    }

    fn serve(&self, index: usize) {
        let mut served = self.served.0.lock().unwrap();
        assert!(!served[index], "request {index} is served twice");
        served[index] = true;
        self.served.1.notify_all();
        while self.case.slow && !served[1] {
            served = self.served.1.wait(served).unwrap();
        }
    }

    fn work(&self, me: usize) -> Result<(), Died> {
        while let Some(index) = self.next(me)? {
            self.serve(index);
            self.release(me, index)?;
        }
        Ok(())
    }

    fn worker(&self, me: usize) {
        if self.work(me).is_err() {
            self.bells[0].event.write(Some(me));
        }
    }

    // --- the front's side: src/queue.rs, src/wake.rs, src/workers.rs

    fn publish(&self, index: usize) {
        if !self.with(Part::Lock) {
            let ticket = self.tail.load(Relaxed);
            return self.enqueue(index, ticket);
        }
        let mut inner = self.inner.lock().unwrap();
        // After a round: two tickets of the first, and one of the request that has its ticket from make_room.
        let ticket = if self.case.round && index == 1 { MOST + 1 } else { inner.tail };
        inner.tail += 1;
        self.enqueue(index, ticket);
    }

    fn enqueue(&self, index: usize, ticket: usize) {
        self.claims[index].store(claim(QUEUED, 0, ticket), Release);
        self.cells[ticket % MOST].store(index, Relaxed);
        self.tail.store(ticket + 1, Release);
    }

    /// There are as many cells as MOST; the second ticket was that of a request which is no longer queued.
    fn make_room(&self) {
        self.cells[1].store(1, Relaxed);
        self.tail.store(MOST, Release);
        let (from, to) = (claim(QUEUED, 0, 0), claim(QUEUED, 0, MOST));
        let moved = if self.with(Part::TicketSwap) {
            self.claims[0].compare_exchange(from, to, AcqRel, Relaxed).is_ok()
        } else {
            let waits = self.claims[0].load(Acquire) == from;
            if waits {
                self.claims[0].store(to, Release);
            }
            waits
        };
        if moved {
            self.cells[MOST % MOST].store(0, Relaxed);
        }
        // Of one that was taken meanwhile nothing is left to be found under that ticket; the model's next ticket is the same.
        self.tail.store(MOST + 1, Release);
        self.head.fetch_max(MOST, AcqRel);
    }

    fn wake_sleepers(&self, mut wanted: usize) {
        if self.with(Part::FrontFence) {
            fence(SeqCst);
        }
        let mut seen = self.sleepers.load(Relaxed);
        while wanted > 0 && seen != 0 {
            let bit = seen & seen.wrapping_neg();
            if self.sleepers.fetch_and(!bit, SeqCst) & bit != 0 {
                self.wake[bit.trailing_zeros() as usize].wake();
                wanted -= 1;
            }
            seen = self.sleepers.load(Relaxed);
        }
    }

    fn drain(&self, front: usize) {
        let bits = self.bells[front].doorbells.swap(0, SeqCst);
        let mut inner = self.inner.lock().unwrap();
        for (index, settled) in inner.settled.iter_mut().enumerate() {
            let rung = bits & 1 << index != 0 && self.owner(index) == front;
            if rung && self.claims[index].load(Acquire) & 0xf == DONE {
                // A worker that died after it rang has settled it.
                assert!(!*settled || self.case.dies_at.is_some(), "request {index} has two outcomes");
                *settled = true;
            }
        }
    }

    fn announce_sleep(&self, front: usize) {
        let bell = &self.bells[front];
        loop {
            bell.sleeping.store(1, SeqCst);
            if self.with(Part::FrontSleepFence) {
                fence(SeqCst);
            }
            if !self.with(Part::FrontLook) || bell.doorbells.load(Relaxed) == 0 {
                return;
            }
            self.drain(front);
        }
    }

    /// Every slot of the dead worker has an outcome now: the answer that it completed, or a failure. Whose thread is told.
    fn worker_died(&self, worker: usize) {
        self.sleepers.fetch_and(!(1 << worker), SeqCst);
        let mut tell = false;
        for (index, settled) in self.inner.lock().unwrap().settled.iter_mut().enumerate() {
            let seen = self.claims[index].load(Acquire);
            let (state, of) = (seen & 0xf, seen >> 4 & 0xf);
            if (state == CLAIMED || state == DONE) && of == worker && !*settled {
                *settled = true;
                tell |= self.owner(index) != 0;
            }
        }
        if tell {
            self.bells[1].event.write(None);
        }
        let waiting = self.tail.load(Relaxed) > self.head.load(Relaxed);
        if self.with(Part::WakeAfterDeath) && waiting {
            self.wake_sleepers(1);
        }
    }

    fn is_over(&self, front: usize) -> bool {
        let inner = self.inner.lock().unwrap();
        // The first one stays until all is over: it sees to deaths.
        (0..self.case.requests)
            .all(|index| inner.settled[index] || (front != 0 && self.owner(index) != front))
    }

    fn front(&self, me: usize) {
        let own: Vec<usize> = (0..self.case.requests).filter(|index| self.owner(*index) == me).collect();
        for &index in &own {
            self.publish(index);
            if self.case.round && index == 0 {
                self.make_room();
            }
            if self.case.one_by_one {
                self.wake_sleepers(1);
            }
        }
        if !self.case.one_by_one && (self.with(Part::OwnFlush) || me == 0) {
            // Whoever was taken meanwhile needs nobody.
            let waits = |index: &&usize| self.claims[**index].load(Acquire) & 0xf == QUEUED;
            self.wake_sleepers(own.iter().filter(waits).count());
        }
        let bell = &self.bells[me];
        loop {
            self.announce_sleep(me);
            if self.is_over(me) {
                break;
            }
            let died = bell.event.wait();
            if bell.sleeping.load(Relaxed) != 0 {
                bell.sleeping.store(0, SeqCst);
            }
            self.drain(me);
            if let Some(worker) = died {
                self.worker_died(worker);
            }
        }
        if me != 0 {
            return self.bells[0].event.write(None);
        }
        for worker in 0..self.case.workers {
            self.quit[worker].store(1, SeqCst);
            fence(SeqCst); // as in `release`
            self.wake[worker].wake();
        }
    }
}

fn explore(case: Case) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound.get_or_insert(2); // or LOOM_MAX_PREEMPTIONS
    model.check(move || {
        let memory = Arc::new(Memory::new(case));
        let workers: Vec<_> = (0..case.workers)
            .map(|number| {
                let memory = Arc::clone(&memory);
                thread::spawn(move || memory.worker(number))
            })
            .collect();
        let other = (case.fronts == 2).then(|| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.front(1))
        });
        memory.front(0);
        for thread in workers.into_iter().chain(other) {
            thread.join().unwrap();
        }
    });
}

#[test]
fn every_request_has_one_outcome_and_nobody_sleeps_for_ever() {
    explore(ONE);
    explore(TWO_ONE_BY_ONE);
}

#[test]
fn two_threads_of_the_front_share_one_queue_and_sleep_each_for_itself() {
    explore(TWO_FRONTS);
}

#[test]
#[ignore = "takes minutes; cargo test -p hayate-ring --test model -- --include-ignored"]
fn the_same_with_two_workers_and_deaths() {
    explore(Case { workers: 2, ..TWO_FRONTS });
    for step in (1..=9).chain([13]) {
        explore(Case { workers: 2, dies_at: Some((0, step)), ..TWO_FRONTS });
    }
}

#[test]
#[ignore = "takes a minute; cargo test -p hayate-ring --test model -- --include-ignored"]
fn the_same_when_workers_are_woken_once_for_all() {
    explore(TWO);
    explore(Case { slow: true, ..TWO });
    for step in (1..=9).chain([13]) {
        explore(Case { dies_at: Some((0, step)), ..TWO });
    }
}

#[test]
fn a_death_at_any_step_hangs_nobody() {
    for step in (1..=9).chain([13]) {
        explore(Case { dies_at: Some((0, step)), requests: 1, ..TWO });
    }
}

#[test]
fn the_tail_may_come_round_to_a_request_that_waits() {
    explore(Case { round: true, ..ONE });
    explore(Case { requests: 2, round: true, ..ONE });
}

/// What is left out, and where that shows.
const BROKEN: [(Part, Case); 13] = [
    (Part::OwnFlush, TWO_FRONTS),
    (Part::OwnBell, TWO_FRONTS),
    (Part::Lock, TWO_FRONTS),
    (Part::TicketSwap, Case { round: true, ..ONE }),
    (Part::FrontFence, ONE),
    (Part::WorkerFence, ONE),
    (Part::WorkerLook, ONE),
    (Part::PassOn, TWO_ONE_BY_ONE),
    (Part::FrontSleepFence, ONE),
    (Part::FrontLook, ONE),
    (Part::ClaimSwap, Case { requests: 1, ..TWO }),
    (Part::HelpHead, Case { dies_at: Some((0, 2)), ..TWO }),
    (Part::WakeAfterDeath, Case { dies_at: Some((0, 6)), requests: 1, ..TWO }),
];

/// The model can fail: each part is there for a reason, and loom finds it. In processes of their own, since loom aborts when threads that
/// hang are unwound.
#[test]
fn no_part_can_be_left_out() {
    for (part, _) in BROKEN {
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "without_one_part", "--ignored", "--nocapture"])
            .env("WITHOUT", format!("{part:?}"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        let found = said.contains("deadlock") || said.contains("is served twice");
        assert!(!run.status.success() && found, "without {part:?} loom finds nothing wrong: {said}");
    }
}

#[test]
#[ignore = "what no_part_can_be_left_out runs"]
fn without_one_part() {
    let Ok(name) = std::env::var("WITHOUT") else { return };
    let (part, case) =
        *BROKEN.iter().find(|(part, _)| format!("{part:?}") == name).expect("the name of a Part");
    explore(Case { without: Some(part), ..case });
}
