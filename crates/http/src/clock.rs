//! What a connection waits for, and until when. Whoever runs connections looks at their clocks about once a second and ends those that are
//! late; so a connection needs no timer of its own. How fast a client has to send a body is [`crate::pace`].

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    task::{Context, Waker},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

use crate::{
    Limits,
    holding::Holding,
    pace::{Lag, Pace},
};

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Nothing of the client's: a request is being answered.
    Nothing,
    /// A PROXY header, or the client's part of agreeing upon TLS.
    Handshake,
    /// The next request.
    Idle,
    /// The rest of a head.
    Head,
    /// A request's body.
    Body,
    /// The client's own end of the connection, while what it still sends is thrown away.
    Linger,
}

/// How long a client that still sends is listened to after the last answer, so that it can read that answer; and between two pieces.
const LINGER: u64 = 30;
const LINGER_PAUSE: u64 = 5;

/// How long, once the server ends: nobody waits for a process to stop because one client trickles.
const LINGER_AT_THE_END: u64 = 5;

/// How long a connection that was idle may take to say that it ends.
const GOODBYE: u64 = 5;

/// One connection's clock. All times in [`seconds`].
#[derive(Debug)]
pub struct Clock {
    wait: Cell<Wait>,
    /// When that began.
    since: Cell<u64>,
    /// Memory that is held for the connection.
    holding: Rc<Holding>,
    deadline: Cell<u64>,
    /// The answer may be written long after it was handed over, so this runs beside the other.
    write_deadline: Cell<u64>,
    /// How far the client is behind with the answer.
    lag: Cell<Lag>,
    linger_end: Cell<u64>,
    /// Bytes of the present answer's body that are with the kernel, while it sends a file.
    sent: Cell<u64>,
    /// The body that is being received, and how fast.
    pace: RefCell<Pace>,
    late: Cell<bool>,
    /// When it was asked to end; 0: it was not.
    asked: Cell<u64>,
    /// When the server began to end; 0: it does not. A stream has its connection's.
    server_ends: Rc<Cell<u64>>,
    /// Its next answer is its last.
    lasts: Cell<bool>,
    /// It ends as it is asked to when it has been idle for too long, instead of being late.
    says_goodbye: Cell<bool>,
    /// Of HTTP/2: one for each stream, which is late by itself.
    streams: RefCell<Vec<Weak<Clock>>>,
    /// Who waits to be told that it is late, or is to end.
    waker: RefCell<Option<Waker>>,
    /// What else may be a reason to give the connection up.
    watched: RefCell<Option<Watched>>,
}

/// Says whether a connection is to be given up.
struct Watched(Box<dyn Fn() -> bool>);

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

/// Seconds since the machine started, from 1 on; a clock that nobody sets. The coarse one, which costs a fifth of the fine one.
pub fn seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::MonotonicCoarse).tv_sec).unwrap_or_default().saturating_add(1)
}

fn after(now: u64, limit: Duration) -> u64 {
    now.saturating_add(limit.as_secs()).saturating_add(u64::from(limit.subsec_nanos() > 0))
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            wait: Cell::new(Wait::Nothing),
            since: Cell::new(0),
            holding: Rc::default(),
            deadline: Cell::new(0),
            write_deadline: Cell::new(0),
            lag: Cell::default(),
            linger_end: Cell::new(0),
            sent: Cell::new(0),
            pace: RefCell::default(),
            late: Cell::new(false),
            asked: Cell::new(0),
            server_ends: Rc::default(),
            lasts: Cell::new(false),
            says_goodbye: Cell::new(false),
            streams: RefCell::default(),
            waker: RefCell::default(),
            watched: RefCell::default(),
        }
    }
}

impl Clock {
    /// Of a connection that holds this.
    pub fn of(holding: Rc<Holding>) -> Clock {
        Clock { holding, ..Clock::default() }
    }

    /// What is held for the connection.
    pub fn holding(&self) -> &Rc<Holding> {
        &self.holding
    }

    /// Bytes of the present answer's body that went while the kernel sent a file of it by itself; 0 where it did not. For the account of an
    /// answer that is cut in the middle of that.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    pub(crate) fn has_sent(&self, bytes: u64) {
        self.sent.set(bytes);
    }

    /// For how many seconds it has waited for the same thing.
    pub fn waits_since(&self, now: u64) -> u64 {
        now.saturating_sub(self.since.get())
    }

    /// What is waited for now.
    pub fn waits_for(&self) -> Wait {
        self.wait.get()
    }

    /// Asks the connection to end after its present answer; at once, if it waits for the next request.
    pub fn ask_to_end(&self) {
        if !self.ends() {
            self.asked.set(seconds());
        }
        self.wake();
    }

    /// The same since the server ends, which no client that has its answer is to hold up.
    pub fn ask_to_end_with_the_server(&self) {
        if self.server_ends.get() == 0 {
            self.server_ends.set(seconds());
        }
        self.ask_to_end();
    }

    /// Whether it was asked to.
    pub fn ends(&self) -> bool {
        self.asked.get() != 0
    }

    /// For how many seconds it has been asked to, if it was.
    pub fn ends_since(&self, now: u64) -> Option<u64> {
        self.ends().then(|| now.saturating_sub(self.asked.get()))
    }

    /// Asks the connection to end with its next answer, or its present one. One that waits for a request goes on waiting, since whoever has just
    /// sent one on it would lose that; with HTTP/2 and 3, which say which requests they still took, it ends as with [`Clock::ask_to_end`].
    pub fn ask_to_end_with_an_answer(&self) {
        self.lasts.set(true);
        self.wake();
    }

    /// Whether no request is to follow the present one.
    pub fn is_last(&self) -> bool {
        self.ends() || self.lasts.get()
    }

    /// One that can say which requests it still took is asked to end when no request has come for too long: its client may just have sent one,
    /// or may still read an answer that is with the kernel.
    pub(crate) fn says_goodbye(&self) {
        self.says_goodbye.set(true);
    }

    /// Whether a deadline has passed, or a body comes too slowly; from then on [`Clock::is_late`], and the connection is to be dropped.
    /// `now` in [`seconds`].
    pub fn becomes_late(&self, now: u64) -> bool {
        // The second in which a deadline falls has to be over.
        let passed = |deadline: &Cell<u64>| (1..now).contains(&deadline.get());
        self.streams.borrow_mut().retain(|stream| {
            let stream = stream.upgrade();
            stream.iter().filter(|stream| stream.becomes_late(now)).for_each(|stream| stream.wake());
            stream.is_some()
        });
        if self.says_goodbye.get() && !self.ends() && self.waits_for() == Wait::Idle && passed(&self.deadline)
        {
            self.deadline.set(now.saturating_add(GOODBYE));
            self.ask_to_end();
        }
        let late = self.late.get()
            || passed(&self.deadline)
            || passed(&self.write_deadline)
            || self.lingers_at_the_end(now)
            || self.lag.get().is_too_long()
            || self.pace.borrow_mut().is_too_slow()
            || self.watched.borrow().as_ref().is_some_and(|watched| (watched.0)());
        self.late.set(late);
        late
    }

    /// Whether the end waits for a client that has its answer, and has for long enough.
    fn lingers_at_the_end(&self, now: u64) -> bool {
        let (ends, since) = (self.server_ends.get(), self.since.get());
        ends != 0
            && self.waits_for() == Wait::Linger
            && now.saturating_sub(ends.max(since)) > LINGER_AT_THE_END
    }

    /// Has this asked whenever [`Clock::becomes_late`] is; it is to be quick. `true`: the connection is given up.
    pub(crate) fn watch(&self, gives_up: impl Fn() -> bool + 'static) {
        self.watched.replace(Some(Watched(Box::new(gives_up))));
    }

    /// Says that the connection is given up although no time has passed; it is to be dropped.
    pub fn give_up(&self) {
        self.late.set(true);
    }

    /// Whether the client took too long.
    pub fn is_late(&self) -> bool {
        self.late.get()
    }

    /// A clock for a stream of this connection.
    pub(crate) fn stream(&self) -> Rc<Clock> {
        let stream = Rc::new(Clock {
            server_ends: Rc::clone(&self.server_ends),
            ..Clock::of(Rc::clone(&self.holding))
        });
        let mut streams = self.streams.borrow_mut();
        // One that is over keeps its memory while it is named here, and a second may see many.
        if streams.len() == streams.capacity() {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(Rc::downgrade(&stream));
        stream
    }

    /// Has the task woken when it becomes late, or is asked to end.
    pub(crate) fn listen(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    /// Has the tasks of all streams look again.
    pub(crate) fn wake_streams(&self) {
        self.streams.borrow().iter().filter_map(Weak::upgrade).for_each(|stream| stream.wake());
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Starts a wait, unless it is running already: the time is that of the whole wait.
    pub(crate) fn wait(&self, what: Wait, limits: &Limits) {
        let begins = self.wait.replace(what) != what;
        if !begins && what != Wait::Linger {
            return;
        }
        let now = seconds();
        if begins {
            self.since.set(now);
        }
        self.deadline.set(match what {
            Wait::Nothing => 0,
            Wait::Handshake => after(now, limits.handshake_timeout),
            Wait::Idle => after(now, limits.idle_timeout),
            Wait::Head => after(now, limits.header_timeout),
            Wait::Body => after(now, limits.body_timeout),
            Wait::Linger => {
                if self.linger_end.get() == 0 {
                    self.linger_end.set(now + LINGER);
                }
                (now + LINGER_PAUSE).min(self.linger_end.get())
            }
        });
    }

    /// The heads of all requests are waited for. Each of them has its own time, so the connection has none.
    pub(crate) fn waits_for_heads(&self) {
        if self.wait.replace(Wait::Head) != Wait::Head {
            self.since.set(seconds());
        }
        self.deadline.set(0);
    }

    /// A request begins, which may have a body.
    pub(crate) fn begin(&self) {
        self.sent.set(0);
        self.linger_end.set(0);
        self.pace.borrow_mut().end();
    }

    /// How the body's pace is judged; see [`crate::Exchange::hurry`].
    pub(crate) fn hurry(&self, stored: bool, wanted: Rc<dyn Fn() -> bool>) {
        self.pace.borrow_mut().hurry(stored, wanted);
    }

    /// The client is waited for, in the middle of a body.
    pub(crate) fn waits_for_body(&self, limits: &Limits) {
        self.wait(Wait::Body, limits);
        self.pace.borrow_mut().waits(limits);
    }

    /// So many bytes of a body came.
    pub(crate) fn body_came(&self, bytes: usize, limits: &Limits) {
        self.wait(Wait::Nothing, limits);
        self.pace.borrow_mut().came(bytes);
    }

    /// Whether the client is to take more of what was written.
    pub(crate) fn is_writing(&self) -> bool {
        self.write_deadline.get() != 0
    }

    /// The client has taken so many bytes of the answer, and takes no more for now if it is waited for.
    pub(crate) fn wrote(&self, pending: bool, bytes: usize, limits: &Limits) {
        let waited = self.is_writing();
        if !pending {
            self.write_deadline.set(0);
        } else if bytes > 0 || !waited {
            self.write_deadline.set(after(seconds(), limits.write_timeout));
        }
        // What goes out at once costs nothing here.
        if limits.write_rate > 0 && (pending || waited) {
            self.lag.set(self.lag.get().wrote(pending, bytes, limits));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_deadline_passes_before_its_time() {
        let limits = Limits { idle_timeout: Duration::from_secs(1), ..Limits::default() };
        let (clock, now) = (Clock::default(), seconds());
        assert!(!clock.becomes_late(u64::MAX), "nothing is waited for");
        clock.wait(Wait::Idle, &limits);
        // In the next second, which may begin at once.
        assert!(!clock.becomes_late(now + 1));
        assert!(clock.becomes_late(now + 3) && clock.is_late());
    }

    #[test]
    fn who_says_goodbye_is_asked_to_end_before_it_is_late() {
        let (clock, now) = (Clock::default(), seconds());
        clock.says_goodbye();
        clock.wait(Wait::Idle, &Limits { idle_timeout: Duration::from_secs(1), ..Limits::default() });
        assert!(!clock.becomes_late(now + 1) && !clock.ends());
        assert!(!clock.becomes_late(now + 3) && clock.ends());
        assert!(clock.becomes_late(now + 4 + GOODBYE));
    }

    #[test]
    fn streams_that_are_over_are_not_kept_until_the_second_is() {
        let clock = Clock::default();
        let stays = clock.stream();
        (0..100_000).for_each(|_| drop(clock.stream()));
        let streams = clock.streams.borrow();
        assert!(streams.capacity() <= 8 && Rc::ptr_eq(&streams[0].upgrade().unwrap(), &stays));
    }

    #[test]
    fn an_answer_that_is_not_taken_has_a_clock_of_its_own() {
        let limits = Limits::default();
        let clock = Clock::default();
        clock.wrote(true, 0, &limits);
        clock.wait(Wait::Nothing, &limits);
        assert!(!clock.becomes_late(seconds() + 50));
        clock.wrote(false, 1, &limits);
        assert!(!clock.becomes_late(u64::MAX));
    }
}
