//! What a connection waits for and until when, and what its two halves tell each other: the guard, which sees bytes, and the service,
//! which sees requests.
//!
//! Timeouts are coarse on purpose: each connection keeps its deadlines in seconds, and one task looks at all of them once a second. A
//! request costs no timer.

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Waker},
    time::{Duration, Instant},
};

use hayate_ring::Ring;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use crate::{Limits, framing::Refusal};

/// Seconds since the machine started, from 1. By the coarse clock, which costs a fifth of the fine one.
pub(crate) fn seconds() -> u64 {
    clock_gettime(ClockId::MonotonicCoarse).tv_sec as u64 + 1
}

/// A deadline in [`seconds`], rounded up: never earlier than asked.
fn after(limit: Duration) -> u64 {
    seconds().saturating_add(limit.as_secs_f64().ceil().max(1.0) as u64)
}

/// How long a client whose request was refused may go on sending, as nginx's lingering_time and lingering_timeout: in all, and
/// between two pieces.
const LINGER: Duration = Duration::from_secs(30);
const LINGER_PAUSE: Duration = Duration::from_secs(5);

/// How fast a client sends a body. Only time counts in which it was waited for.
struct Pace {
    /// Bytes.
    received: u64,
    waited: Duration,
    /// It is waited for now.
    since: Option<Instant>,
    /// What the first two were when it was last looked at, [`WANTED`] ago or less.
    lately: (u64, Duration),
    slow_lately: bool,
    ring: Option<Arc<Ring>>,
}

/// Over how long a body is watched that a worker waits for while other requests wait for a worker.
const WANTED: Duration = Duration::from_secs(3);

impl Pace {
    /// Below [`Limits::body_rate`]: since its beginning, but for the time that a single pause may take; or lately, where others wait for
    /// the worker.
    fn is_too_slow(&mut self, limits: &Limits) -> bool {
        let rate = limits.body_rate;
        let waited = self.waited.saturating_add(self.since.map(|since| since.elapsed()).unwrap_or_default());
        if rate == 0 || self.since.is_none() || waited < WANTED {
            return false;
        }
        let (received, since) = self.lately;
        if waited.saturating_sub(since) >= WANTED {
            let enough = rate.saturating_mul(WANTED.as_secs());
            self.slow_lately = self.received.saturating_sub(received) < enough;
            self.lately = (self.received, waited);
        }
        waited.saturating_sub(Duration::from_secs(self.received / rate)) > limits.body_timeout
            || (self.slow_lately && self.ring.as_ref().is_some_and(|ring| ring.is_wanted()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Waiting {
    /// For our own answer: no deadline here, workers have theirs.
    Nothing,
    Idle,
    Head,
    Body,
    Linger,
}

/// A head that never became a request: nobody answers it, but it is written down.
pub(crate) struct Unfinished {
    pub(crate) status: u16,
    pub(crate) head: Vec<u8>,
}

/// See the module's head.
pub(crate) struct State {
    waiting: AtomicU8,
    /// For what it waits for; in [`seconds`], 0: none.
    deadline: AtomicU64,
    /// For the client to take bytes, beside all else: an answer's end may be written long after it was handed over. As above.
    write_deadline: AtomicU64,
    linger_end: AtomicU64,
    /// The guard holds the beginning of a head. While a request is being served no clock runs for the next one.
    head_begun: AtomicBool,
    /// Bytes of it that are held.
    held: AtomicUsize,
    /// When it began, in [`seconds`].
    head_since: AtomicU64,
    /// The body that is being received, and how fast.
    pace: Mutex<Option<Pace>>,
    /// With the bytes that were refused.
    refusal: OnceLock<(Refusal, Vec<u8>)>,
    unfinished: OnceLock<Unfinished>,
    /// A deadline has passed: the connection is being cut off.
    late: AtomicBool,
    /// What the client still sends is read and thrown away before closing, so that it can read the answer.
    linger: AtomicBool,
    /// Requests that the service has seen.
    served: AtomicU64,
    /// Requests whose answers were handed over to hyper whole.
    finished: AtomicU64,
    /// A request is with the service, which has not answered it, and its client takes interim answers.
    interim: AtomicBool,
    /// Who waits for an answer's end, if anybody does.
    end: Mutex<Option<Waker>>,
    /// Targets that were disguised for hyper, with the numbers of their requests.
    originals: Mutex<VecDeque<(u64, Vec<u8>)>>,
    limits: Limits,
}

impl State {
    pub(crate) fn new(limits: &Limits) -> Arc<State> {
        let state = State {
            waiting: AtomicU8::new(Waiting::Nothing as u8),
            deadline: AtomicU64::new(0),
            write_deadline: AtomicU64::new(0),
            linger_end: AtomicU64::new(0),
            head_begun: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            head_since: AtomicU64::new(0),
            pace: Mutex::default(),
            refusal: OnceLock::new(),
            unfinished: OnceLock::new(),
            late: AtomicBool::new(false),
            linger: AtomicBool::new(false),
            served: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            interim: AtomicBool::new(false),
            end: Mutex::default(),
            originals: Mutex::default(),
            limits: limits.clone(),
        };
        state.idle();
        Arc::new(state)
    }

    /// Starts a wait unless it is running already.
    fn wait(&self, what: Waiting, limit: Duration) {
        if self.waiting.load(Relaxed) != what as u8 {
            self.waiting.store(what as u8, Relaxed);
            self.deadline.store(after(limit), Relaxed);
        }
    }

    pub(crate) fn serving(&self) {
        self.waiting.store(Waiting::Nothing as u8, Relaxed);
        self.deadline.store(0, Relaxed);
    }

    /// A request's account is closed: its answer was handed over, or there will be none.
    pub(crate) fn finished(&self) {
        self.finished.fetch_add(1, Relaxed);
        self.idle();
        if let Some(waker) = self.end.lock().take() {
            waker.wake();
        }
    }

    /// Whether one of the connection's first `heads` requests has no answer yet; then the task is woken when one more has.
    pub(crate) fn owes_an_answer(&self, heads: u64, cx: &Context<'_>) -> bool {
        *self.end.lock() = Some(cx.waker().clone());
        self.finished.load(Relaxed) < heads
    }

    /// Between the beginning of a request and of its answer: whether an interim answer may be sent.
    pub(crate) fn allow_interim(&self, allow: bool) {
        self.interim.store(allow, Relaxed);
    }

    pub(crate) fn allows_interim(&self) -> bool {
        self.interim.load(Relaxed)
    }

    pub(crate) fn idle(&self) {
        if self.head_begun.load(Relaxed) {
            self.wait(Waiting::Head, self.limits.header_timeout);
        } else {
            self.wait(Waiting::Idle, self.limits.idle_timeout);
        }
    }

    pub(crate) fn head_begins(&self) {
        self.head_begun.store(true, Relaxed);
        self.head_since.store(seconds(), Relaxed);
        if self.waiting.load(Relaxed) == Waiting::Idle as u8 {
            self.idle();
        }
    }

    pub(crate) fn head_ends(&self) {
        self.head_begun.store(false, Relaxed);
        self.holds(0);
    }

    /// The beginning of a head takes so many bytes.
    pub(crate) fn holds(&self, bytes: usize) {
        self.held.store(bytes, Relaxed);
    }

    /// Since when, in [`seconds`], how many bytes of a head are held; `None` for none.
    pub(crate) fn unfinished_head(&self) -> Option<(u64, usize)> {
        let held = self.held.load(Relaxed);
        (held > 0).then(|| (self.head_since.load(Relaxed), held))
    }

    /// The connection is being cut off for what it holds.
    pub(crate) fn cut(&self) {
        self.late.store(true, Relaxed);
    }

    /// A body begins to be received. `ring`: a worker waits for it.
    pub(crate) fn body_begins(&self, ring: Option<Arc<Ring>>) {
        *self.pace.lock() = Some(Pace {
            received: 0,
            waited: Duration::ZERO,
            since: None,
            lately: (0, Duration::ZERO),
            slow_lately: false,
            ring,
        });
    }

    /// So many bytes of it came, without a wait or at the end of one.
    pub(crate) fn body_came(&self, bytes: usize) {
        if let Some(pace) = &mut *self.pace.lock() {
            pace.received = pace.received.saturating_add(bytes as u64);
            if let Some(since) = pace.since.take() {
                pace.waited = pace.waited.saturating_add(since.elapsed());
            }
        }
    }

    /// There is no body to wait for any more.
    pub(crate) fn body_ends(&self) {
        *self.pace.lock() = None;
    }

    pub(crate) fn body_waits(&self) {
        self.wait(Waiting::Body, self.limits.body_timeout);
        if let Some(pace) = &mut *self.pace.lock() {
            pace.since.get_or_insert_with(Instant::now);
        }
    }

    /// The client is listened to before closing, and has just sent something.
    pub(crate) fn lingers(&self) {
        if self.waiting.swap(Waiting::Linger as u8, Relaxed) != Waiting::Linger as u8 {
            self.linger_end.store(after(LINGER), Relaxed);
        }
        self.deadline.store(after(LINGER_PAUSE).min(self.linger_end.load(Relaxed)), Relaxed);
    }

    pub(crate) fn wrote(&self, pending: bool) {
        let waits = self.write_deadline.load(Relaxed) != 0;
        if pending != waits {
            self.write_deadline.store(if pending { after(self.limits.write_timeout) } else { 0 }, Relaxed);
        }
    }

    pub(crate) fn refuse(&self, refusal: Refusal, head: Vec<u8>) {
        let _ = self.refusal.set((refusal, head));
        self.linger_at_end();
    }

    pub(crate) fn refusal(&self) -> Option<&(Refusal, Vec<u8>)> {
        self.refusal.get()
    }

    /// Notes the head that the connection ends in the middle of.
    pub(crate) fn leave_unfinished(&self, status: u16, head: Vec<u8>) {
        let _ = self.unfinished.set(Unfinished { status, head });
    }

    pub(crate) fn unfinished(&self) -> Option<&Unfinished> {
        self.unfinished.get()
    }

    pub(crate) fn linger_at_end(&self) {
        self.linger.store(true, Relaxed);
    }

    pub(crate) fn lingers_at_end(&self) -> bool {
        self.linger.load(Relaxed)
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refusal.get().is_some()
    }

    /// The guard: these targets were disguised.
    pub(crate) fn keep_originals(&self, originals: Vec<(u64, Vec<u8>)>) {
        self.originals.lock().extend(originals);
    }

    /// The service: a request begins. Returns its target if what hyper shows of it is a disguise. hyper calls the service exactly once
    /// for each head that passed the guard, in order.
    pub(crate) fn next_original(&self) -> Option<Vec<u8>> {
        let number = self.served.fetch_add(1, Relaxed);
        let mut originals = self.originals.lock();
        match originals.front() {
            Some((of, _)) if *of == number => originals.pop_front().map(|(_, original)| original),
            _ => None,
        }
    }

    /// Whether a deadline has passed; from then on [`State::is_late`].
    pub(crate) fn becomes_late(&self, now: u64) -> bool {
        // The second in which a deadline falls has to be over.
        let passed = |deadline: &AtomicU64| (1..now).contains(&deadline.load(Relaxed));
        let late = passed(&self.deadline)
            || passed(&self.write_deadline)
            || self.pace.lock().as_mut().is_some_and(|pace| pace.is_too_slow(&self.limits));
        if late {
            self.late.store(true, Relaxed);
        }
        late
    }

    /// Whether the connection is being cut off because its client took too long.
    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_late_leaves_the_other_clocks_alone() {
        let state = State::new(&Limits::default());
        state.serving();
        assert!(!state.becomes_late(u64::MAX));
        // The answer is handed over, its end is written only later.
        state.wrote(true);
        state.idle();
        assert!(!state.is_late());
        assert!(state.becomes_late(seconds() + 61));
        state.wrote(false);
        assert!(!state.becomes_late(seconds() + 61));
        assert!(state.becomes_late(u64::MAX), "it is idle now, and not for ever");
    }

    #[test]
    fn no_deadline_passes_before_its_time() {
        let now = seconds();
        let state = State::new(&Limits { idle_timeout: Duration::from_secs(1), ..Limits::default() });
        // In the next second, which may begin at once.
        assert!(!state.becomes_late(now + 1));
        assert!(state.becomes_late(now + 3));
    }

    #[test]
    fn the_next_head_has_time_from_the_end_of_the_present_answer() {
        let state = State::new(&Limits::default());
        state.serving();
        state.head_begins();
        assert!(!state.becomes_late(u64::MAX));
        state.idle();
        assert!(state.becomes_late(seconds() + 16));
    }

    #[test]
    fn originals_go_to_the_requests_they_belong_to() {
        let state = State::new(&Limits::default());
        state.keep_originals(vec![(1, b"b".to_vec()), (2, b"c".to_vec())]);
        let got: Vec<_> = (0..4).map(|_| state.next_original()).collect();
        assert_eq!(got, [None, Some(b"b".to_vec()), Some(b"c".to_vec()), None]);
    }
}
