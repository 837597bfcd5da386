//! A generator thread's notebook: tallies by phase, and a slice for the current second that is sent off when it is over.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    sync::mpsc::Sender,
    time::{Duration, Instant},
};

use crate::{
    failure::Failure,
    tally::{Ending, Failures, Tally, Times},
};

/// A shot later than this is late. Shots are sent within tenths of a millisecond where a processor is free.
pub(crate) const LATE: Duration = Duration::from_millis(1);

/// The last planned second may be this much longer, for the answers that come just after it.
const LAST_SECOND_GRACE: Duration = Duration::from_millis(50);

/// One second of one thread.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) times: Times,
    pub(crate) sent: u64,
    pub(crate) ok: u64,
    pub(crate) failures: Failures,
    pub(crate) received: u64,
    pub(crate) late_waiting: u64,
    pub(crate) late_generator: u64,
    /// Most at a time.
    pub(crate) connections: u64,
    /// At its end.
    pub(crate) backlog: u64,
    /// Share of it that the thread ran or waited for a processor.
    pub(crate) busy: f64,
    /// Its length; a second, but for the last one.
    pub(crate) length: Duration,
}

impl Slice {
    pub(crate) fn new() -> Self {
        Self {
            times: Times::new(),
            sent: 0,
            ok: 0,
            failures: Failures::default(),
            received: 0,
            late_waiting: 0,
            late_generator: 0,
            connections: 0,
            backlog: 0,
            busy: 0.0,
            length: Duration::ZERO,
        }
    }
}

/// What a thread tells the collector.
#[derive(Debug)]
pub(crate) enum Note {
    /// A second is over. Every thread sends each of its seconds, in order.
    Second(Box<Slice>),
    /// The thread is done; nothing follows.
    End(Box<Summary>),
}

/// A thread's part of the whole.
#[derive(Debug)]
pub(crate) struct Summary {
    /// By phase; one for the forms that have none.
    pub(crate) phases: Vec<Tally>,
    /// How late shots were taken up; open loop only.
    pub(crate) delay: Times,
    /// Ages of the requests that were abandoned.
    pub(crate) unfinished: Times,
    pub(crate) opened: u64,
    /// TLS handshakes, and those of them that resumed a session.
    pub(crate) handshakes: u64,
    pub(crate) resumed: u64,
    pub(crate) interrupted: bool,
    /// When its last request was done, or when it was ended.
    pub(crate) ended: Instant,
}

/// See the module.
pub(crate) struct Recorder {
    second_ends: Instant,
    /// When the load is planned to end, if it is known.
    planned_end: Option<Instant>,
    slice: Box<Slice>,
    phases: Vec<Tally>,
    delay: Times,
    unfinished: Times,
    to_collector: Sender<(usize, Note)>,
    thread: usize,
    busy: BusyMeter,
    connections: u64,
    opened: u64,
    handshakes: u64,
    resumed: u64,
    pub(crate) backlog: u64,
    pub(crate) in_flight: u64,
}

impl Recorder {
    /// To be made in the thread that it is about.
    pub(crate) fn new(
        thread: usize,
        start: Instant,
        planned_end: Option<Instant>,
        phases: usize,
        open_loop: bool,
        to_collector: Sender<(usize, Note)>,
    ) -> Self {
        Self {
            second_ends: start + Duration::from_secs(1),
            planned_end,
            slice: Box::new(Slice::new()),
            phases: (0..phases).map(|_| Tally::new(open_loop)).collect(),
            delay: Times::new(),
            unfinished: Times::new(),
            to_collector,
            thread,
            busy: BusyMeter::new(),
            connections: 0,
            opened: 0,
            handshakes: 0,
            resumed: 0,
            backlog: 0,
            in_flight: 0,
        }
    }

    /// Sends off the seconds that are over.
    pub(crate) fn turn(&mut self, now: Instant) {
        while now >= self.second_ends + self.grace() {
            self.send_slice(self.second_ends);
            self.second_ends += Duration::from_secs(1);
        }
    }

    /// Nobody wants a last second of a hundredth of a millisecond: the second before is a little longer instead.
    fn grace(&self) -> Duration {
        if self.planned_end == Some(self.second_ends) { LAST_SECOND_GRACE } else { Duration::ZERO }
    }

    fn send_slice(&mut self, end: Instant) {
        let mut slice = std::mem::replace(&mut self.slice, Box::new(Slice::new()));
        self.slice.connections = self.connections;
        slice.backlog = self.backlog;
        slice.busy = self.busy.share();
        slice.length = end.saturating_duration_since(self.second_ends - Duration::from_secs(1));
        // The collector outlives all threads but for an error that ends the program.
        let _ = self.to_collector.send((self.thread, Note::Second(slice)));
    }

    /// A connection was opened.
    pub(crate) fn opened(&mut self) {
        self.opened += 1;
        self.connections += 1;
        self.slice.connections = self.slice.connections.max(self.connections);
    }

    /// TLS was agreed on.
    pub(crate) fn shook_hands(&mut self, resumed: bool) {
        self.handshakes += 1;
        self.resumed += u64::from(resumed);
    }

    /// A connection was closed, by either side.
    pub(crate) fn closed(&mut self) {
        self.connections -= 1;
    }

    /// A scheduled shot was taken up, `delay` after its moment.
    pub(crate) fn taken_up(&mut self, phase: usize, delay: Duration) {
        self.delay.record(delay);
        if delay > LATE {
            self.phases[phase].late_generator += 1;
            self.slice.late_generator += 1;
        }
    }

    /// A request is being sent; `waited`: for a free connection.
    pub(crate) fn begin(&mut self, phase: usize, now: Instant, waited: Duration) {
        self.turn(now);
        self.in_flight += 1;
        self.slice.sent += 1;
        if waited > LATE {
            self.phases[phase].late_waiting += 1;
            self.slice.late_waiting += 1;
        }
    }

    /// A request came to an end.
    pub(crate) fn end(&mut self, phase: usize, now: Instant, ending: &Ending) {
        self.turn(now);
        if ending.failure != Some(Failure::Queued) {
            self.in_flight -= 1;
        }
        self.phases[phase].record(ending);
        self.slice.times.record(ending.latency);
        self.slice.received += ending.received;
        match ending.failure {
            None => self.slice.ok += 1,
            Some(failure) => self.slice.failures.count(failure),
        }
    }

    /// The load ended before the answer to a request that was sent this long ago.
    pub(crate) fn abandon(&mut self, age: Duration) {
        self.in_flight -= 1;
        self.unfinished.record(age);
    }

    /// Sends the rest and ends.
    pub(crate) fn finish(&mut self, interrupted: bool) {
        let now = Instant::now();
        self.turn(now);
        self.send_slice(now);
        let _ = self.to_collector.send((
            self.thread,
            Note::End(Box::new(Summary {
                phases: std::mem::take(&mut self.phases),
                delay: std::mem::replace(&mut self.delay, Times::new()),
                unfinished: std::mem::replace(&mut self.unfinished, Times::new()),
                opened: self.opened,
                handshakes: self.handshakes,
                resumed: self.resumed,
                interrupted,
                ended: now,
            })),
        ));
    }
}

/// How much of the time a thread was running, or would have been if it had had a processor.
struct BusyMeter {
    since: Instant,
    busy: Duration,
    /// Kept open: reading it costs less than opening it.
    schedstat: Option<File>,
}

impl BusyMeter {
    fn new() -> Self {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        Self { since: Instant::now(), busy: thread_busy(schedstat.as_ref()), schedstat }
    }

    /// The share since the last call, 0 to 1.
    fn share(&mut self) -> f64 {
        let (now, busy) = (Instant::now(), thread_busy(self.schedstat.as_ref()));
        let wall = now.saturating_duration_since(self.since).as_secs_f64();
        let share = busy.saturating_sub(self.busy).as_secs_f64() / wall;
        (self.since, self.busy) = (now, busy);
        // Two clocks, read one after the other.
        if wall > 0.0 { share.min(1.0) } else { 0.0 }
    }
}

/// CPU time of this thread, and the time it was ready to run and waited for a processor (proc(5), schedstat); without the
/// wait where the kernel does not tell.
fn thread_busy(schedstat: Option<&File>) -> Duration {
    let mut text = [0; 128];
    let length = schedstat.and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
    let mut fields =
        text[..length].split(u8::is_ascii_whitespace).map(|field| str::from_utf8(field).ok()?.parse().ok());
    if let (Some(Some(run)), Some(Some(wait))) = (fields.next(), fields.next()) {
        return Duration::from_nanos(run) + Duration::from_nanos(wait);
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
