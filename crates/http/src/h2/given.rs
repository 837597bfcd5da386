//! What h2 has of answers: pieces that count until it drops them, and answers all of which it has, which count until they are written.
//!
//! Nobody else waits for the clients of those, so the connection does. It keeps no more answers that h2 has passed on than it has streams.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::{Context, Waker},
};

use bytes::{Buf, Bytes};

use crate::{Clock, Hold, Limits, stream::Kept};

/// Bytes that h2 takes for each piece of an answer besides that piece, about.
const FRAME: usize = 256;

/// More than h2 gathers for the socket at one time: what it had passed on before so many bytes went is written.
const PASSED_ON: u64 = 64 << 10;

/// A piece of an answer in h2's hands. It counts until h2 drops it: that the socket has taken all that it was offered does not tell what h2 has
/// left, for a client that makes its windows smaller leaves it with what was given before.
#[derive(Debug, Default)]
pub(super) struct Part {
    bytes: Bytes,
    of: Rc<Given>,
    #[allow(dead_code, reason = "held for their drop")]
    held: Option<(Rc<Hold>, Hold)>,
}

/// What h2 has of one answer.
#[derive(Debug, Default)]
pub(super) struct Given {
    parts: Cell<usize>,
    /// Bytes that h2 has passed on; a number to be compared with an earlier one.
    went: Cell<usize>,
    /// Who waits for it to have nothing.
    waker: RefCell<Option<Waker>>,
}

impl Given {
    /// Whether it has nothing; else the task is woken when that is so.
    pub(super) fn is_nothing(&self, cx: &Context<'_>) -> bool {
        let nothing = self.parts.get() == 0;
        *self.waker.borrow_mut() = (!nothing).then(|| cx.waker().clone());
        nothing
    }
}

impl Part {
    pub(super) fn new(bytes: Bytes, held: Rc<Hold>, of: &Rc<Given>) -> Part {
        of.parts.set(of.parts.get().saturating_add(1));
        let frame = held.another(FRAME);
        Part { bytes, of: Rc::clone(of), held: Some((held, frame)) }
    }
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, n: usize) {
        self.bytes.advance(n.min(self.bytes.len()));
        self.of.went.set(self.of.went.get().wrapping_add(n));
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.held.is_none() {
            return;
        }
        let left = self.of.parts.get().saturating_sub(1);
        self.of.parts.set(left);
        if left == 0
            && let Some(waker) = self.of.waker.take()
        {
            waker.wake();
        }
    }
}

/// An answer all of which is with h2. Nobody waits for its client any more, so the connection does.
pub(super) struct Tail {
    given: Rc<Given>,
    /// What of it had gone when it was last looked at.
    went: usize,
    /// How many bytes the socket had taken when h2 was first found to have none of it.
    passed_on: Option<u64>,
    /// Since a window of its own held it up.
    clock: Option<Rc<Clock>>,
    #[allow(dead_code, reason = "held for its drop")]
    kept: Kept,
}

impl Tail {
    /// `kept` goes with it.
    pub(super) fn new(given: Rc<Given>, kept: Kept) -> Tail {
        Tail { given, went: 0, passed_on: None, clock: None, kept }
    }

    /// Whether the client may not have it yet; to be asked when h2 has written all that it can. `connection`: the clock of that, `written`:
    /// bytes that its socket has taken.
    pub(super) fn waits(
        &mut self,
        cx: &Context<'_>,
        connection: &Clock,
        written: u64,
        limits: &Limits,
    ) -> bool {
        if self.is_passed_on() {
            // Others' answers may keep the socket busy for as long as their client likes.
            let before = *self.passed_on.get_or_insert(written);
            return connection.is_writing() && written.saturating_sub(before) < PASSED_ON;
        }
        let went = self.given.went.get();
        let since = went.wrapping_sub(std::mem::replace(&mut self.went, went));
        // As long as the socket takes nothing, the connection's clock runs. Else it is the stream's window that lets nothing go: the client
        // has made it smaller since.
        let held_up = !connection.is_writing();
        if held_up || self.clock.is_some() {
            let clock = self.clock.get_or_insert_with(|| connection.stream());
            clock.wrote(held_up, since, limits);
            clock.listen(cx);
        }
        true
    }

    fn is_passed_on(&self) -> bool {
        self.given.parts.get() == 0
    }

    pub(super) fn is_late(&self) -> bool {
        self.clock.as_ref().is_some_and(|clock| clock.is_late())
    }
}

/// Lets go of those that have waited longest to be written, where more wait than a connection has streams.
pub(super) fn bound(tails: &mut Vec<Tail>, limits: &Limits) {
    let mut over = tails.len().saturating_sub(usize::try_from(limits.streams).unwrap_or(usize::MAX));
    if over > 0 {
        tails.retain(|tail| {
            let goes = over > 0 && tail.is_passed_on();
            over -= usize::from(goes);
            !goes
        });
    }
}
