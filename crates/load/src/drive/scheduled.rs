//! Open loop: every shot has its moment, whatever the server does.
//!
//! A dispatcher takes up each shot at its moment and gives it to the connection that became idle last; if none is idle, to
//! a new one; if there may be no more, the shot waits in the backlog for the first that comes free. Nothing is skipped, and
//! latency always counts from the moment the schedule gives.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    pin::pin,
    rc::Rc,
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use tokio::{sync::Notify, task::JoinSet};

use crate::{
    alarm::Alarm,
    connection::Connection,
    failure::Failure,
    run::Share,
    schedule::{Schedule, Shot},
    tally::Ending,
    user::{Desk, Job, User},
};

/// Shots that are due within this time are sent in one go: above 20,000 shots a second per thread a timer for each would
/// cost more than the shot. It delays a shot by less than any answer over a network takes; the delay counts as latency.
const BATCH: Duration = Duration::from_micros(50);

/// A shot whose moment has come.
#[derive(Clone, Copy, Debug)]
struct Due {
    number: u64,
    phase: usize,
    moment: Instant,
    taken_up: Instant,
}

/// An idle connection's letter box.
#[derive(Default)]
struct Slot {
    letter: Cell<Option<Due>>,
    owner: Cell<Option<Waker>>,
}

/// What dispatcher and connections share.
struct Pool {
    desk: Rc<Desk>,
    /// The one that became idle last is at the end, and gets the next shot: few connections stay warm.
    idle: RefCell<Vec<Rc<Slot>>>,
    backlog: RefCell<VecDeque<Due>>,
    /// Shots that were given to a connection and have not ended.
    active: Cell<usize>,
    /// Connections, idle or not.
    open: Cell<usize>,
    quiet: Notify,
}

impl Pool {
    /// The oldest shot of the backlog that is not too old.
    fn next_from_backlog(&self, now: Instant) -> Option<Due> {
        self.expire(now);
        let next = self.backlog.borrow_mut().pop_front();
        self.note_backlog();
        next
    }

    /// Ends the shots that have waited for longer than the time limit; they are never sent.
    fn expire(&self, now: Instant) {
        let timeout = self.desk.load.timeout;
        let mut backlog = self.backlog.borrow_mut();
        while let Some(due) = backlog.front().copied().filter(|due| now >= due.moment + timeout) {
            backlog.pop_front();
            let ending = Ending {
                latency: now.saturating_duration_since(due.moment),
                service: Duration::ZERO,
                status: None,
                failure: Some(Failure::Queued),
                sent: 0,
                received: 0,
            };
            self.desk.recorder.borrow_mut().end(due.phase, now, &ending);
        }
    }

    fn note_backlog(&self) {
        self.desk.recorder.borrow_mut().backlog = self.backlog.borrow().len() as u64;
    }

    fn is_quiet(&self) -> bool {
        self.active.get() == 0 && self.backlog.borrow().is_empty()
    }

    /// When the oldest shot of the backlog is given up.
    fn next_expiry(&self) -> Option<Instant> {
        self.backlog.borrow().front().map(|due| due.moment + self.desk.load.timeout)
    }
}

pub(super) async fn drive<C: Connection>(
    desk: &Rc<Desk>,
    schedule: &Schedule,
    share: &Share,
) -> io::Result<()> {
    let mut alarm = Alarm::new()?;
    let streams = desk.load.streams;
    let limit = share.of(desk.load.max_connections).max(1) * streams;
    let mut lines: Vec<Rc<C::Line>> = Vec::new();
    let pool = Rc::new(Pool {
        desk: Rc::clone(desk),
        idle: RefCell::default(),
        backlog: RefCell::default(),
        active: Cell::new(0),
        open: Cell::new(0),
        quiet: Notify::new(),
    });
    let mut connections = JoinSet::new();
    let mut shots = schedule.walk(share.thread as u64, share.threads as u64).peekable();
    loop {
        let now = Instant::now();
        desk.recorder.borrow_mut().turn(now);
        while let Some(shot) = shots.next_if(|shot| share.start + shot.due <= now) {
            let due = take_up(desk, share, shot, now);
            if let Some(slot) = pool.idle.borrow_mut().pop() {
                pool.active.update(|active| active + 1);
                slot.letter.set(Some(due));
                if let Some(waker) = slot.owner.take() {
                    waker.wake();
                }
            } else if pool.open.get() < limit {
                pool.active.update(|active| active + 1);
                pool.open.update(|open| open + 1);
                let line = line_with_room(&mut lines, streams);
                connections.spawn_local(shoot(Rc::clone(&pool), User::<C>::new(Rc::clone(desk), line), due));
            } else {
                pool.backlog.borrow_mut().push_back(due);
            }
        }
        pool.expire(now);
        pool.note_backlog();
        while connections.try_join_next().is_some() {}

        let next_shot = shots.peek().map(|shot| (share.start + shot.due).max(now + BATCH));
        match next_shot.into_iter().chain(pool.next_expiry()).min() {
            Some(moment) if next_shot.is_some() => alarm.at(moment).await?,
            // Only answers are missing.
            Some(moment) => tokio::select! {
                done = alarm.at(moment) => done?,
                () = pool.quiet.notified() => {}
            },
            None if pool.is_quiet() => return Ok(()),
            None => pool.quiet.notified().await,
        }
    }
}

/// The line of the first connection with room for another user: a further one is opened when all streams are taken.
fn line_with_room<L: Default>(lines: &mut Vec<Rc<L>>, streams: usize) -> Rc<L> {
    if streams == 1 {
        return Rc::default();
    }
    // Users hold their line for as long as they live.
    if let Some(line) = lines.iter().find(|line| Rc::strong_count(line) <= streams) {
        return Rc::clone(line);
    }
    let line = Rc::default();
    lines.push(Rc::clone(&line));
    line
}

fn take_up(desk: &Desk, share: &Share, shot: Shot, now: Instant) -> Due {
    let moment = share.start + shot.due;
    desk.recorder.borrow_mut().taken_up(shot.phase, now.saturating_duration_since(moment));
    Due { number: shot.number, phase: shot.phase, moment, taken_up: now }
}

/// A connection's life: a shot, the backlog's shots, then idle until the next, or until the server closes it.
async fn shoot<C: Connection>(pool: Rc<Pool>, mut user: User<C>, first: Due) {
    let slot = Rc::new(Slot::default());
    let mut due = first;
    let mut now = due.taken_up;
    loop {
        let waited = now.saturating_duration_since(due.taken_up);
        let job = Job { number: due.number, phase: due.phase, origin: due.moment, waited };
        (now, _) = user.send(job, now).await;
        due = match pool.next_from_backlog(now) {
            Some(next) => next,
            None => {
                pool.active.update(|active| active - 1);
                if pool.is_quiet() {
                    pool.quiet.notify_one();
                }
                let letter = match user.is_connected() {
                    true => next_letter(&pool, &mut user, &slot).await,
                    false => None,
                };
                let Some(next) = letter else {
                    pool.open.update(|open| open - 1);
                    return;
                };
                // The way from the dispatcher to here is the generator's, and short; the clock runs from the moment anyway.
                now = next.taken_up;
                next
            }
        };
    }
}

/// Waits for a shot; `None` if the connection ended first.
async fn next_letter<C: Connection>(pool: &Pool, user: &mut User<C>, slot: &Rc<Slot>) -> Option<Due> {
    pool.idle.borrow_mut().push(Rc::clone(slot));
    let mut lost = pin!(user.lost_connection());
    poll_fn(|context| {
        let is_lost = lost.as_mut().poll(context).is_ready();
        // A shot that was handed over has to be fired, on a new connection if need be.
        if let Some(due) = slot.letter.take() {
            return Poll::Ready(Some(due));
        }
        if is_lost {
            pool.idle.borrow_mut().retain(|other| !Rc::ptr_eq(other, slot));
            return Poll::Ready(None);
        }
        slot.owner.set(Some(context.waker().clone()));
        Poll::Pending
    })
    .await
}
