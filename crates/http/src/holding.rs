//! Memory that is held for clients while their requests are answered: whole heads, and answers that were made and not taken. What one connection
//! may make this crate hold is bounded by [`crate::Limits`]; this counts what all hold together, for all versions of HTTP, so that whoever runs
//! connections can give some of them up.
//!
//! A thread counts in its own [`Part`]; what all threads share is told in steps of [`STEP`], so that a request costs them nothing.
//!
//! While all hold more than they may, one rule holds for all versions: what is not read yet stays unread until somebody was let go of, for as
//! long as a decision takes ([`Patience`]); then, or where it is in memory already, who holds more than its share is refused
//! ([`Holding::is_too_much`]), and the others are answered.

use std::{
    cell::Cell,
    fmt,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

/// Bytes by which a thread's part may differ from what the others know of it.
const STEP: usize = 64 << 10;
/// Bytes that one answer may have ready when memory is short: a block, and a page.
const SHORT: usize = 16 << 10;
const SHORTEST: usize = 4 << 10;
/// Bytes that a connection may hold when all hold more than they may, at least.
const LEAST_SHARE: usize = 64 << 10;
/// How often is looked whether somebody was let go of, and how often at most: a decision takes 0.1 s where no thread is held up.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 5;

/// Bytes that a request of HTTP/2 or 3 takes beside its head and its answer while it is answered: its task, and what the protocol keeps of its
/// stream. So much was measured, and a connection may have hundreds; of HTTP/1 a connection has one.
pub(crate) const REQUEST: usize = 10 << 10;

/// What all threads hold together.
#[derive(Debug, Default)]
pub struct Memory {
    used: AtomicUsize,
    limit: AtomicUsize,
    /// Connections that hold something, nearly.
    holders: AtomicUsize,
}

impl Memory {
    /// Bytes that all may hold; 0: any.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Relaxed);
    }

    /// Bytes that are held, nearly.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Bytes that may be; 0: any.
    pub fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Bytes to let go of, so that three quarters of what may be held are; 0 while no more is held than may be.
    pub fn excess(&self) -> usize {
        let (used, limit) = (self.used(), self.limit());
        if limit > 0 && used > limit { used - limit / 4 * 3 } else { 0 }
    }

    /// Bytes that a connection may hold, others holding some: half of what all may, in equal parts.
    fn share(&self) -> usize {
        let half = self.limit() / 2;
        half.checked_div(self.holders.load(Relaxed)).unwrap_or(half).max(LEAST_SHARE)
    }

    /// Whether three quarters of what may be held are.
    pub fn is_short(&self) -> bool {
        let limit = self.limit();
        limit > 0 && self.used() >= limit / 4 * 3
    }

    /// How many bytes one answer may have ready, of `most` where there is plenty: less, the shorter memory is.
    pub fn ready(&self, most: usize) -> usize {
        let (used, limit) = (self.used.load(Relaxed), self.limit.load(Relaxed));
        if limit == 0 || used < limit / 2 {
            most
        } else if !self.is_short() {
            most.min(SHORT)
        } else {
            most.min(SHORTEST)
        }
    }
}

/// What the connections of one thread hold; given back when this goes.
pub struct Part {
    all: Arc<Memory>,
    bytes: Cell<usize>,
    told: Cell<usize>,
    /// Connections that hold something.
    holders: Cell<usize>,
    told_holders: Cell<usize>,
    short: Box<dyn Fn()>,
}

impl Part {
    /// `short` is called when this grows and all together [have little left][Memory::is_short]; it is to be quick.
    pub fn new(all: &Arc<Memory>, short: impl Fn() + 'static) -> Rc<Part> {
        Rc::new(Part {
            all: Arc::clone(all),
            bytes: Cell::new(0),
            told: Cell::new(0),
            holders: Cell::new(0),
            told_holders: Cell::new(0),
            short: Box::new(short),
        })
    }

    /// A connection begins to hold something, or holds nothing any more.
    fn holds(&self, something: bool) {
        let holders = self.holders.get();
        self.holders.set(if something { holders.saturating_add(1) } else { holders.saturating_sub(1) });
    }

    fn change(&self, from: usize, to: usize) {
        let bytes = self.bytes.get().saturating_sub(from).saturating_add(to);
        self.bytes.set(bytes);
        if bytes.abs_diff(self.told.get()) < STEP {
            return;
        }
        self.tell(bytes);
        if to > from && self.all.is_short() {
            (self.short)();
        }
    }

    fn tell(&self, bytes: usize) {
        let differs = |all: &AtomicUsize, told: usize, now: usize| match now >= told {
            true => all.fetch_add(now - told, Relaxed),
            false => all.fetch_sub(told - now, Relaxed),
        };
        differs(&self.all.used, self.told.replace(bytes), bytes);
        let holders = self.holders.get();
        differs(&self.all.holders, self.told_holders.replace(holders), holders);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.holders.set(0);
        self.tell(0);
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// What one connection holds.
#[derive(Debug, Default)]
pub struct Holding {
    part: Option<Rc<Part>>,
    bytes: Cell<usize>,
    /// It was given up: it counts no more.
    over: Cell<bool>,
}

impl Holding {
    /// Of a connection of this thread.
    pub fn of(part: &Rc<Part>) -> Rc<Holding> {
        Rc::new(Holding { part: Some(Rc::clone(part)), bytes: Cell::default(), over: Cell::default() })
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Bytes that all may hold together. `None`: any.
    pub(crate) fn limit(&self) -> Option<usize> {
        self.part.as_ref().map(|part| part.all.limit()).filter(|limit| *limit > 0)
    }

    /// See [`Memory::ready`].
    pub fn ready(&self, most: usize) -> usize {
        self.part.as_ref().map_or(most, |part| part.all.ready(most))
    }

    /// Whether all together hold more than they may. Whoever runs connections is told so again: what waits or is refused for it makes nothing
    /// grow.
    fn is_over(&self) -> Option<&Memory> {
        let part = self.part.as_ref().filter(|part| part.all.excess() > 0)?;
        (part.short)();
        Some(&part.all)
    }

    /// Whether all together hold more than they may, and this connection more than its share of that.
    pub(crate) fn is_too_much(&self) -> bool {
        self.is_over().is_some_and(|all| self.bytes() > all.share())
    }

    /// The connection is given up: what it holds is about to go, and counts no more.
    pub fn give_up(&self) {
        self.change(self.bytes.get(), 0);
        self.over.set(true);
    }

    fn change(&self, from: usize, to: usize) {
        if from == to || self.over.get() {
            return;
        }
        let before = self.bytes.get();
        let now = before.saturating_sub(from).saturating_add(to);
        self.bytes.set(now);
        if let Some(part) = &self.part {
            if (before == 0) != (now == 0) {
                part.holds(now > 0);
            }
            part.change(from, to);
        }
    }
}

/// A wait for somebody to be let go of, before something is read. It has an end.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    look: Option<Pin<Box<Sleep>>>,
    looks: u32,
}

impl Patience {
    /// Waits while all hold more than they may. For a connection that holds nothing.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>, holding: &Holding) -> Poll<()> {
        self.poll(cx, || holding.is_over().is_some()).map(drop)
    }

    /// Waits while all hold more than they may, and this connection more than its share. `true`: still so, and what there is to read is to be
    /// refused.
    pub(crate) fn poll_share(&mut self, cx: &mut Context<'_>, holding: &Holding) -> Poll<bool> {
        self.poll(cx, || holding.is_too_much())
    }

    fn poll(&mut self, cx: &mut Context<'_>, is_too_much: impl Fn() -> bool) -> Poll<bool> {
        let refused = loop {
            if !is_too_much() {
                break false;
            }
            if self.looks >= LOOKS {
                break true;
            }
            ready!(self.look.get_or_insert_with(|| Box::pin(sleep(LOOK))).as_mut().poll(cx));
            self.look = None;
            self.looks += 1;
        };
        *self = Patience::default();
        Poll::Ready(refused)
    }
}

/// One of the things that a connection holds; given back when this goes.
#[derive(Debug)]
pub struct Hold {
    of: Rc<Holding>,
    bytes: usize,
}

impl Hold {
    /// Of nothing yet.
    pub fn new(of: &Rc<Holding>) -> Hold {
        Hold { of: Rc::clone(of), bytes: 0 }
    }

    /// Of so many bytes.
    pub(crate) fn with(of: &Rc<Holding>, bytes: usize) -> Hold {
        let mut hold = Hold::new(of);
        hold.set(bytes);
        hold
    }

    /// One more of the same connection, of so many bytes.
    pub(crate) fn another(&self, bytes: usize) -> Hold {
        Hold::with(&self.of, bytes)
    }

    /// It takes so many bytes now.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.of.change(before, bytes);
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connections_hold_is_counted_and_given_back() {
        let (all, calls) = (Arc::new(Memory::default()), Rc::new(Cell::new(0)));
        all.set_limit(4 * STEP);
        let count = Rc::clone(&calls);
        let part = Part::new(&all, move || count.set(count.get() + 1));
        let (one, two) = (Holding::of(&part), Holding::of(&part));
        let mut holds = [Hold::new(&one), Hold::new(&one), Hold::new(&two)];
        holds[0].set(STEP / 2);
        assert_eq!((part.bytes.get(), all.used.load(Relaxed)), (STEP / 2, 0), "others need not know yet");
        holds[1].set(STEP);
        assert_eq!((one.bytes(), all.used.load(Relaxed)), (STEP / 2 * 3, STEP / 2 * 3));
        assert_eq!((one.ready(1 << 20), calls.get()), (1 << 20, 0), "less than half");
        holds[2].set(STEP);
        assert_eq!(two.ready(1 << 20), SHORT);
        holds[2].set(3 * STEP);
        assert_eq!((two.ready(1 << 20), calls.get()), (SHORTEST, 1));
        assert_eq!(all.excess(), 3 * STEP / 2);
        let three = Holding::of(&part);
        assert!(one.is_too_much() && two.is_too_much() && !three.is_too_much());
        assert_eq!(calls.get(), 4);
        drop(three);
        two.give_up();
        assert!(!one.is_too_much() && !two.is_too_much(), "less than all may hold is left");
        holds[2].set(9 * STEP);
        assert_eq!((two.bytes(), all.used.load(Relaxed), calls.get()), (0, STEP / 2 * 3, 4));
        drop(holds);
        assert_eq!((one.bytes(), part.bytes.get()), (0, 0));
        drop((one, two, part));
        assert_eq!(all.used.load(Relaxed), 0);
    }

    #[test]
    fn who_holds_nothing_makes_nobodys_share_smaller() {
        let all = Arc::new(Memory::default());
        all.set_limit(64 * STEP);
        let part = Part::new(&all, || {});
        let idle: Vec<_> = (0..2048).map(|_| Holding::of(&part)).collect();
        let (one, two) = (Holding::of(&part), Holding::of(&part));
        let _most = Hold::with(&one, 64 * STEP);
        let mut page = Hold::with(&two, 10 * STEP);
        assert!(one.is_too_much() && !two.is_too_much(), "a sixth of the half that each may hold");
        page.set(17 * STEP);
        assert!(two.is_too_much());
        let all_of_them: Vec<_> = idle.iter().map(|idle| Hold::with(idle, 100)).collect();
        page.set(10 * STEP);
        assert!(two.is_too_much(), "there are many now");
        drop(all_of_them);
        page.set(12 * STEP);
        assert!(!two.is_too_much());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_read_waits_for_a_decision_and_no_longer() {
        use std::future::poll_fn;
        let all = Arc::new(Memory::default());
        all.set_limit(4 * STEP);
        let part = Part::new(&all, || {});
        let (one, idle) = (Holding::of(&part), Holding::of(&part));
        let mut patience = Patience::default();
        let began = tokio::time::Instant::now();
        assert!(!poll_fn(|cx| patience.poll_share(cx, &one)).await && began.elapsed().is_zero());
        let most = Hold::with(&one, 5 * STEP);
        assert!(poll_fn(|cx| patience.poll_share(cx, &one)).await, "nobody was let go of");
        assert!(!poll_fn(|cx| patience.poll_share(cx, &idle)).await, "it holds nothing");
        assert_eq!(began.elapsed(), LOOK * LOOKS);
        let began = tokio::time::Instant::now();
        poll_fn(|cx| patience.poll_room(cx, &idle)).await;
        assert!(began.elapsed() >= LOOK * LOOKS, "it is read afterwards all the same");
        drop(most);
        let began = tokio::time::Instant::now();
        poll_fn(|cx| patience.poll_room(cx, &idle)).await;
        assert!(began.elapsed().is_zero());
    }

    #[test]
    fn what_is_to_go_leaves_three_quarters() {
        let all = Arc::new(Memory::default());
        let part = Part::new(&all, || {});
        part.change(0, 16 * STEP);
        assert!(all.excess() == 0 && !all.is_short(), "there is no limit");
        all.set_limit(16 * STEP);
        assert!(all.excess() == 0 && all.is_short(), "all together may hold that");
        part.change(0, 4 * STEP);
        assert_eq!((all.used(), all.excess()), (20 * STEP, 8 * STEP));
    }
}
