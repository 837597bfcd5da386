//! A thread that serves: the connections it has accepted, and what it keeps so that it need not ask others.
//!
//! Everything of one connection stays on the thread that accepted it, without locks and without atomic counts; what all threads share is in
//! [`Front`]. One task looks at the deadlines of all connections once a second, while there are any. An idle thread has no wake-ups.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    io,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use hayate_http::{Clock, Holding, Part, Wait, seconds, tls::Handshakes};
use hayate_panics::{PAUSE, caught};
use rustix::io::Errno;
use tokio::{
    sync::{Notify, watch},
    task::{AbortHandle, spawn_local},
    time::MissedTickBehavior,
};

use crate::{
    Front, ListenAddr, Listener, Stage,
    by_address::TooMany,
    connection::{Accepted, Connection, Peer, Stream},
    crowd::{One, Rank},
    gather::HeadNumber,
    quic::CountedQuic,
    reminder::Reminder,
    round::{Candidate, Candidates, Place, Round, Want},
    runtime,
    snapshot::Snapshot,
    threads::{Admitted, Counted, Moved, Order},
};

/// The pause after an `accept()` that failed for want of something.
const BREATH: Duration = Duration::from_millis(200);

/// Seconds for which a connection waits for a request, for the rest of a head, or its client for TLS, before it may be let go for a newcomer.
const PATIENCE: u64 = 2;
/// Seconds that a connection has to end when it was asked to: a client of HTTP/2 or HTTP/3 may have sent a request before it heard of that.
const FAREWELL: u64 = 2;

/// A connection, and what ends it: to be called when nothing is borrowed, for the connection's drops come back here.
type Ending = (Rc<Connection>, AbortHandle);

/// See the module's head. All of it happens within the runtime of [`crate::runtime::build`].
pub struct Thread {
    pub(crate) front: Arc<Front>,
    pub(crate) open: RefCell<HashMap<u64, Ending>>,
    next: Cell<u64>,
    /// The first one has come.
    begun: Notify,
    /// There is too much memory in heads that are not whole; and: some were given up.
    pub(crate) pressed: Notify,
    relieved: Notify,
    /// Those of its connections that agree upon TLS.
    pub(crate) handshakes: Handshakes,
    /// What this thread's connections hold while requests are answered, and that all together have little left.
    part: Rc<Part>,
    short: Rc<Notify>,
    relieving: Reminder,
    /// When this was last spoken of.
    pressing: Reminder,
    /// The same of connections that could not be accepted, of those whose clients broke the protocol, and of clients' certificates that were refused.
    failed: Reminder,
    broken: Reminder,
    refused: Reminder,
    kept: RefCell<Kept>,
    request_prefix: u32,
    next_request: Cell<u32>,
    /// Its place among the others.
    pub(crate) number: usize,
    /// Counts the connections that it has placed.
    turn: Cell<usize>,
}

/// A snapshot as requests hold it: they count in the thread's own memory, not in a word that all threads write.
pub(crate) type Held = Rc<Arc<Snapshot>>;

/// What tells a request from others: 16 hexadecimal digits.
pub(crate) struct RequestId([u8; 16]);

impl RequestId {
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Sixteen digits, all at one time: formatting costs thirty times as much, and every request has an id.
fn hexadecimal(number: u64) -> [u8; 16] {
    let spread = |half: u64| {
        let by_two = (half | half << 16) & 0x0000_ffff_0000_ffff;
        let by_four = (by_two | by_two << 8) & 0x00ff_00ff_00ff_00ff;
        let digits = (by_four | by_four << 4) & 0x0f0f_0f0f_0f0f_0f0f;
        // One in each byte that is above nine: 6 more make it 16 or more there, and no byte overflows.
        let letters = ((digits + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
        digits + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'0' - 10)
    };
    let mut all = [0; 16];
    let (high, low) = all.split_at_mut(8);
    high.copy_from_slice(&spread(number >> 32).to_be_bytes());
    low.copy_from_slice(&spread(number & 0xffff_ffff).to_be_bytes());
    all
}

/// The thread's own hold of the snapshot.
struct Kept {
    version: u64,
    snapshot: Held,
    limits: Rc<hayate_http::Limits>,
}

impl Kept {
    fn of(front: &Front) -> Kept {
        // First the number: a snapshot that is newer than it is only read once more.
        let version = front.version.load(std::sync::atomic::Ordering::Acquire);
        let snapshot = Rc::new(front.snapshot.load_full());
        let limits = Rc::new(snapshot.settings.limits.of_http());
        Kept { version, snapshot, limits }
    }
}

/// A connection that counts; when this goes, it is over.
struct Open(
    Rc<Connection>,
    #[allow(dead_code, reason = "held for its drop, which comes after that of the first")] Counted,
);

impl Drop for Open {
    fn drop(&mut self) {
        let Open(connection, _) = self;
        let gone = connection.thread.open.borrow_mut().remove(&connection.id);
        drop(gone);
    }
}

impl Thread {
    /// One that serves for `front`, and nothing until [`Thread::serve`] is called.
    pub fn new(front: &Arc<Front>) -> Rc<Thread> {
        Thread::numbered(front, 0)
    }

    /// The one of several that has this number.
    pub(crate) fn numbered(front: &Arc<Front>, number: usize) -> Rc<Thread> {
        let mut seed = [0; 4];
        // The ids only need to differ between runs and threads; without randomness they would still differ within one.
        let _ = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        let short = Rc::new(Notify::new());
        let notify = Rc::clone(&short);
        Rc::new(Thread {
            part: Part::new(&front.answers, move || notify.notify_one()),
            short,
            relieving: Reminder::default(),
            front: Arc::clone(front),
            open: RefCell::default(),
            next: Cell::new(0),
            begun: Notify::new(),
            pressed: Notify::new(),
            relieved: Notify::new(),
            handshakes: Handshakes::default(),
            pressing: Reminder::default(),
            failed: Reminder::default(),
            broken: Reminder::default(),
            refused: Reminder::default(),
            kept: RefCell::new(Kept::of(front)),
            request_prefix: u32::from_ne_bytes(seed),
            next_request: Cell::new(0),
            number,
            turn: Cell::new(0),
        })
    }

    /// What is configured now.
    pub(crate) fn snapshot(&self) -> Held {
        let mut kept = self.kept.borrow_mut();
        if kept.version != self.front.version.load(Relaxed) {
            *kept = Kept::of(&self.front);
        }
        Rc::clone(&kept.snapshot)
    }

    pub(crate) fn limits(&self) -> Rc<hayate_http::Limits> {
        Rc::clone(&self.kept.borrow().limits)
    }

    pub(crate) fn request_id(&self) -> RequestId {
        let number = self.next_request.get();
        self.next_request.set(number.wrapping_add(1));
        let number = u64::from(self.request_prefix) << 32 | u64::from(number);
        RequestId(hexadecimal(number))
    }

    /// Accepts and serves connections until `shutdown` turns true.
    pub async fn serve(self: Rc<Self>, listener: Listener, mut shutdown: watch::Receiver<bool>) {
        while caught(self.accept_all(&listener, &mut shutdown)).await.is_err() {
            self.front.metrics.panicked();
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn accept_all(self: &Rc<Self>, listener: &Listener, shutdown: &mut watch::Receiver<bool>) {
        let addr = listener.addr().map(Arc::new);
        loop {
            let accepted = tokio::select! {
                accepted = self.accept_one(listener) => accepted,
                _ = shutdown.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Another listener may have been faster; then this one connection waits here instead of in the backlog.
                    let admitted = tokio::select! {
                        admitted = self.front.admit() => admitted,
                        _ = shutdown.wait_for(|stop| *stop) => {
                            // It is this front's, whatever becomes of the listener, and may not find it open to new requests much longer.
                            self.take_in(stream, peer, addr.clone(), self.front.admit_at_once());
                            return;
                        }
                    };
                    self.take_in(stream, peer, addr.clone(), admitted);
                }
                Err(error) => self.refrain(&error).await,
            }
        }
    }

    /// Serves a connection that was accepted at an address, unless its client has too many.
    fn take_in(
        self: &Rc<Self>,
        stream: Stream,
        mut peer: Peer,
        addr: Option<Arc<ListenAddr>>,
        admitted: Admitted,
    ) {
        let snapshot = self.snapshot();
        let port = addr.as_ref().and_then(|addr| snapshot.settings.ports.get(&**addr).copied());
        match self.front.place_for(&snapshot.settings, peer.ip) {
            Ok(place) => peer.place = place,
            // It is closed by being dropped.
            Err(TooMany) => return,
        }
        let accepted = Accepted { peer, port: port.unwrap_or_default(), at: addr, listed: port.is_some() };
        self.place(stream, accepted, admitted);
    }

    /// After an `accept()` that failed. Whoever has connected still waits in the socket's queue, so to ask again at once would be to ask for ever.
    async fn refrain(&self, error: &io::Error) {
        let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
            // The client was gone before it was accepted (accept(2): as with EAGAIN, the next one may be there). These say something of that
            // connection alone.
            Some(
                Errno::CONNABORTED
                | Errno::INTR
                | Errno::PERM
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::NONET
                | Errno::OPNOTSUPP
                | Errno::TIMEDOUT
                | Errno::CONNRESET
                | Errno::NOTCONN,
            ) => return tokio::task::yield_now().await,
            Some(Errno::MFILE | Errno::NFILE) => {
                "no descriptor is left; raise the limit of open files (LimitNOFILE)"
            }
            Some(Errno::NOMEM | Errno::NOBUFS) => "the kernel has no memory for it",
            _ => "see the reason",
        };
        if let Some(times) = self.failed.happened() {
            tracing::error!("connections cannot be accepted and wait: {error} ({times} times); {why}");
        }
        tokio::time::sleep(BREATH).await;
    }

    async fn accept_one(&self, listener: &Listener) -> io::Result<(Stream, Peer)> {
        self.front.has_room().await;
        accept(listener).await
    }

    /// Serves a connection here, or has a thread do it that has clearly fewer.
    fn place(self: &Rc<Self>, stream: Stream, accepted: Accepted, admitted: Admitted) {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let crew = self.front.crew.get();
        let number = crew.map_or(self.number, |crew| crew.choose(self.number, turn));
        let counted = Counted::new(admitted, number);
        match crew {
            // One that has ended refuses; then so does this. A socket that the kernel does not let go of is closed.
            Some(crew) if number != self.number => {
                if let Ok(moved) = Moved::of(stream, accepted, counted) {
                    crew.tell(number, Order::Serve(Box::new(moved)));
                }
            }
            _ => self.spawn(stream, accepted, counted),
        }
    }

    /// Serves a connection that another thread has accepted.
    pub(crate) fn take_over(self: &Rc<Self>, moved: Moved) {
        // Without memory or descriptors for it, it is closed.
        if let Ok((stream, accepted, counted)) = moved.arrive() {
            self.spawn(stream, accepted, counted);
        }
    }

    pub(crate) fn spawn(self: &Rc<Self>, stream: Stream, accepted: Accepted, counted: Counted) {
        let stage = *self.front.stage.borrow();
        if matches!(stage, Stage::Draining | Stage::Closing) {
            return;
        }
        let id = self.next.get();
        self.next.set(id.wrapping_add(1));
        let clock = Rc::new(Clock::of(Holding::of(&self.part)));
        if stage == Stage::Leaving {
            clock.ask_to_end_with_an_answer();
        }
        let by_quic = accepted.port.quic.then(|| CountedQuic::new(self));
        let connection = Connection::new(self, id, accepted, &clock);
        if connection.is_outdated(&self.snapshot().settings) {
            // A reload has come while it was handed over.
            return;
        }
        let open = Open(Rc::clone(&connection), counted);
        let served = Rc::clone(&connection).serve(stream);
        let task = spawn_local(async move {
            // Dropped after the connection, which may have a last word.
            let _open = (open, by_quic);
            let mut served = std::pin::pin!(served);
            std::future::poll_fn(|cx| {
                runtime::polled();
                served.as_mut().poll(cx)
            })
            .await;
        });
        let mut all = self.open.borrow_mut();
        if all.is_empty() {
            self.begun.notify_one();
        }
        all.insert(id, (connection, task.abort_handle()));
    }

    /// A client broke the protocol, so that its connection was ended: no request was refused, so no line of the access log says so.
    pub(crate) fn broke(&self, client: &str, why: &str) {
        self.front.metrics.broken();
        match self.broken.happened() {
            Some(times) => tracing::info!(
                client,
                "a connection was ended, for its client broke the protocol: {why} ({times} times since this was last said)"
            ),
            None => {
                tracing::debug!(client, "a connection was ended, for its client broke the protocol: {why}")
            }
        }
    }

    /// A client's certificate was refused, or one was missing: it has no connection, so nothing else says so.
    pub(crate) fn refused_certificate(&self, client: &str, why: &str) {
        match self.refused.happened() {
            Some(times) => tracing::info!(
                client,
                "no connection, for its certificate was refused (client_ca, verify): {why} ({times} times since this was last said)"
            ),
            None => {
                tracing::debug!(
                    client,
                    "no connection, for its certificate was refused (client_ca, verify): {why}"
                )
            }
        }
    }

    /// This thread's connections of which this holds.
    fn those(&self, which: impl Fn(&Connection) -> bool) -> Vec<Ending> {
        let open = self.open.borrow();
        let those = open.values().filter(|(connection, _)| which(connection));
        those.map(|(connection, task)| (Rc::clone(connection), task.clone())).collect()
    }

    fn end_those(&self, which: impl Fn(&Connection) -> bool) {
        self.those(which).iter().for_each(|(_, task)| task.abort());
    }

    /// Looks for connections past their deadline, and follows the front's stages; runs beside [`Thread::serve`] as long as the front does.
    pub async fn watch(self: Rc<Self>) {
        while caught(self.look_after()).await.is_err() {
            self.front.metrics.panicked();
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn look_after(&self) {
        let mut stage = self.front.stage.subscribe();
        // What happened before counts as well.
        stage.mark_changed();
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.open.borrow().is_empty() {
                tokio::select! {
                    () = self.begun.notified() => clock.reset(),
                    changed = stage.changed() => {
                        if changed.is_ok() {
                            let now = *stage.borrow_and_update();
                            self.enter(now);
                        }
                        continue;
                    }
                }
            }
            tokio::select! {
                _ = clock.tick() => {
                    let now = seconds();
                    self.end_those(|connection| connection.clock.becomes_late(now));
                    self.relieve();
                }
                () = self.pressed.notified() => self.press(),
                () = self.short.notified() => self.relieve(),
                _ = stage.changed() => {
                    let now = *stage.borrow_and_update();
                    self.enter(now);
                }
            }
        }
    }

    fn all(&self, tell: impl Fn(&Clock)) {
        self.those(|_| true).iter().for_each(|(connection, _)| tell(&connection.clock));
    }

    fn enter(&self, stage: Stage) {
        // Lets go of what was replaced, also when no request comes.
        let snapshot = self.snapshot();
        match stage {
            // Who was let in by what a reload has changed is not let in for ever.
            Stage::Serving => {
                let outdated = self.those(|connection| connection.is_outdated(&snapshot.settings));
                outdated.iter().for_each(|(connection, _)| connection.clock.ask_to_end());
            }
            Stage::Leaving => self.all(Clock::ask_to_end_with_an_answer),
            Stage::Draining => self.all(Clock::ask_to_end_with_the_server),
            Stage::Closing => self.end_those(|_| true),
        }
    }

    /// There is too much memory in heads: the oldest go, those of other threads as well.
    fn press(&self) {
        if let Some(last) = self.front.gather.choose_heads() {
            if let Some(crew) = self.front.crew.get() {
                crew.tell_others(self.number, || Order::GiveUpHeads(last));
            }
            self.give_up_heads(last);
        }
        self.relieved.notify_waiters();
    }

    /// Waits while there is too much memory in heads. Whoever waits has one that counts, so that it is chosen itself, or there is room.
    pub(crate) async fn has_room_for_heads(&self) {
        while !self.front.gather.has_room() {
            let relieved = self.relieved.notified();
            self.pressed.notify_one();
            relieved.await;
        }
    }

    /// Looks whether all threads together hold much for clients, or too much.
    fn relieve(&self) {
        let answers = &self.front.answers;
        if answers.is_short() && self.front.short.happened().is_some() {
            tracing::warn!(
                "three quarters of limits.answer_memory ({} MB) are held for requests that are being answered: less is kept ready for \
                 each; beyond it connections are cut off, of the clients for which most is held",
                answers.limit() >> 20
            );
        }
        if answers.excess() > 0 {
            self.front.let_go(Want::Memory);
        }
    }

    /// Says which of this thread's connections may be let go, for what there is too little of.
    pub(crate) fn say(&self, round: &Round) {
        let (now, mut leaving) = (seconds(), 0);
        let all = {
            let open = self.open.borrow();
            let candidates = open.iter().map(|(id, (connection, _))| {
                let at = Place { thread: self.number, id: *id };
                let of = connection.client();
                match round.want {
                    Want::Memory => {
                        let weight = connection.clock.holding().bytes();
                        Candidate { it: Some(at), of, weight, rank: (false, weight as u64) }
                    }
                    Want::Room => {
                        let rank = makes_room(&connection.clock, now);
                        let asked = connection.clock.ends_since(now);
                        leaving += usize::from(asked.is_some_and(|since| since <= FAREWELL));
                        One { it: rank.map(|_| at), of, weight: 1, rank: rank.unwrap_or_default() }
                    }
                }
            });
            candidates.filter(|one| one.weight > 0).collect()
        };
        if let Some(said) = round.say(Candidates { all, leaving }) {
            self.front.decide(round.want, said);
        }
    }

    /// Lets go of these connections, as far as it still holds why they were chosen.
    pub(crate) fn let_go(&self, want: Want, which: &[u64]) {
        let (now, mut count) = (seconds(), 0);
        let chosen: Vec<Ending> = {
            let open = self.open.borrow();
            which.iter().filter_map(|id| open.get(id).cloned()).collect()
        };
        for (connection, task) in &chosen {
            let clock = &connection.clock;
            match want {
                Want::Memory if clock.holding().bytes() > 0 => {
                    clock.give_up();
                    clock.holding().give_up();
                    task.abort();
                }
                // A request that has just come is answered.
                Want::Room if makes_room(clock, now).is_some() => {
                    if clock.waits_for() == Wait::Idle && !clock.ends() {
                        clock.ask_to_end();
                    } else {
                        connection.give_up();
                        task.abort();
                    }
                }
                _ => continue,
            }
            count += 1;
        }
        match want {
            Want::Room => self.front.metrics.let_go(count),
            Want::Memory => {
                self.front.metrics.cut_off_for_memory(count);
                if count > 0 && self.relieving.happened().is_some() {
                    tracing::warn!(
                        "limits.answer_memory is reached: {count} connections were cut off, of the clients for which most is held"
                    );
                }
            }
        }
    }

    /// Cuts off this thread's connections in the middle of a head that began no later than `last`, which makes room for others.
    pub(crate) fn give_up_heads(&self, last: HeadNumber) {
        let old = self.those(|connection| connection.unfinished_head().is_some_and(|number| number <= last));
        for (connection, task) in &old {
            connection.give_up();
            task.abort();
        }
        self.front.metrics.gave_up_heads(old.len() as u64);
        if !old.is_empty() && self.pressing.happened().is_some() {
            tracing::warn!(
                "limits.gather_memory is reached: {} connections with an unfinished head were cut off",
                old.len()
            );
        }
    }
}

/// Whether a connection may be let go for a newcomer, and how soon: those that have neither a request nor agreed upon TLS, those that have had
/// their last answer, and those that were asked to go before and are still there, go before those that wait for a request.
fn makes_room(clock: &Clock, now: u64) -> Option<Rank> {
    let waited = clock.waits_since(now);
    match (clock.waits_for(), clock.ends_since(now)) {
        (Wait::Idle, Some(since)) => (since > FAREWELL).then_some((true, since)),
        (Wait::Idle, None) => (waited >= PATIENCE).then_some((false, waited)),
        (Wait::Handshake | Wait::Head | Wait::Linger, _) => (waited >= PATIENCE).then_some((true, waited)),
        _ => None,
    }
}

async fn accept(listener: &Listener) -> io::Result<(Stream, Peer)> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, addr) = listener.accept().await?;
            // These say something of this connection alone.
            let gone = |_| io::Error::from(Errno::CONNABORTED);
            stream.set_nodelay(true).map_err(gone)?;
            let local = stream.local_addr().map_err(gone)?;
            let peer = Peer {
                addr: addr.ip().to_canonical().to_string(),
                port: addr.port().to_string(),
                local_addr: local.ip().to_canonical().to_string(),
                local_port: local.port().to_string(),
                ip: Some(addr.ip().to_canonical()),
                https: false,
                lacks_tls: false,
                place: None,
                variables: Vec::new(),
                records: OnceCell::new(),
            };
            Ok((Stream::Tcp(stream), peer))
        }
        Listener::Unix(listener) => {
            let (stream, _) = listener.accept().await?;
            // As nginx says it: applications expect something in place of an address.
            let peer = Peer {
                addr: "unix:".into(),
                port: String::new(),
                local_addr: "unix:".into(),
                local_port: "80".into(),
                ip: None,
                https: false,
                lacks_tls: false,
                place: None,
                variables: Vec::new(),
                records: OnceCell::new(),
            };
            Ok((Stream::Unix(stream), peer))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_hexadecimal_digits() {
        for number in [0, 1, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, u64::MAX, 0x9a9a_9a9a_a9a9_a9a9] {
            assert_eq!(hexadecimal(number), format!("{number:016x}").as_bytes());
        }
    }
}
