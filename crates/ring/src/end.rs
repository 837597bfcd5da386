//! The end of a ring: what it still has goes to another ring, or gets its failure. Nobody waits in it for ever.

use std::sync::{
    Arc,
    atomic::Ordering::{Acquire, Release},
};

use crate::{
    exchange::Failure,
    ring::{Life, Ring},
};

impl Ring {
    /// Admits no more requests: they go to `successor`, also those that wait in [`Ring::admit`] now. `None`: they are refused.
    /// What was submitted stays, until it is served or until [`Ring::end`].
    ///
    /// The successor must be younger than this ring, and not have been handed over to it.
    pub fn hand_over(&self, successor: Option<&Arc<Ring>>) {
        {
            let mut next = self.successor.lock();
            if let Some(successor) = successor
                && !std::ptr::eq(Arc::as_ptr(successor), self)
            {
                *next = Some(Arc::clone(successor));
            }
        }
        self.closed.store(true, Release);
        self.close_slots();
    }

    /// The ring that takes its requests since it was handed over.
    pub fn successor(&self) -> Option<Arc<Ring>> {
        if !self.closed.load(Acquire) {
            return None;
        }
        self.successor.lock().clone()
    }

    /// Fails what waits for a worker, with [`Failure::Unavailable`]: there is none, and none will come soon. What a worker has taken
    /// stays, and so do later requests, until this is called again.
    pub fn turn_away(&self) {
        let mut inner = self.lock();
        for index in inner.slots() {
            if inner.entry(index).life == Life::Live
                && !inner.entry(index).dead
                && self.cancel(&mut inner, index)
            {
                self.fail(&mut inner, index, Failure::Unavailable);
            }
        }
        self.unlock(inner);
    }

    /// Whether all that waits can be submitted to another ring: nothing of their bodies has been put in, or all is kept. What a worker has taken
    /// counts as well.
    pub fn can_be_moved(&self) -> bool {
        let mut inner = self.lock();
        let mut whole = true;
        for index in inner.slots() {
            let entry = inner.entry(index);
            let moves = entry.life != Life::Live || entry.repeatable;
            whole &= moves || self.memory.slot(index).request_tail().load(Acquire) == 0;
        }
        self.unlock(inner);
        whole
    }

    /// Ends everything that is in it, once no worker serves it any more: each exchange gets its failure, unless its answer is whole.
    /// [`Failure::NotTaken`] is that of requests that no worker had taken, also of those that are submitted after this.
    pub fn end(&self) {
        self.hand_over(None);
        let mut inner = self.lock();
        inner.ended = true;
        for index in inner.slots() {
            let entry = inner.entry(index);
            if !matches!(entry.life, Life::Live | Life::Orphan) || entry.dead {
                continue;
            }
            if self.cancel(&mut inner, index) {
                inner.entry(index).failure.get_or_insert(Failure::NotTaken);
            }
            self.lose(&mut inner, index);
        }
        self.unlock(inner);
    }
}
