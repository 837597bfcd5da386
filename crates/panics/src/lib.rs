//! What a panic may end: the one connection, the one turn of a loop, the one piece of work in which it happens.
//!
//! A panic is a fault of this program, and none is known. One that happens all the same must not be worth more to an attacker than a
//! closed connection: it unwinds, is logged by the hook, and the others go on. So no lock is poisoned by it (parking_lot has no such
//! thing), and what has to be undone is undone by drops.
//!
//! Whatever lasts as long as the process does is run by one of these, and goes on after a panic: what it has in hand is kept outside of
//! it. A loop that is begun again at once must have a pause somewhere, or a panic that comes each time costs a processor.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo
    )
)]

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
    time::Duration,
};

#[cfg(panic = "abort")]
compile_error!(
    "Hayate counts on panics that unwind: one that aborts ends all connections of all applications"
);

/// How long a loop rests that is begun again after a panic, if nothing else in it does: one that comes each time is to cost no processor.
pub const PAUSE: Duration = Duration::from_millis(200);

/// A panic was caught; the log has its message and place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Panicked;

/// Runs a future, and gives up on it when it panics. Whatever it held is dropped by then, unless the caller has pinned it: a large one is
/// better pinned there, since here it would take its room twice.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    poll_fn(|cx| match caught_now(|| work.as_mut().poll(cx)) {
        Ok(poll) => poll.map(Ok),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

/// The same for what does not wait.
pub fn caught_now<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    // What the work leaves half-done is for the caller to expect.
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use super::*;

    #[test]
    fn a_panic_ends_the_work_and_drops_what_it_held() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let held = Rc::new(Cell::new(0));
        let work = async |panics: bool| {
            let held = Rc::clone(&held);
            tokio::task::yield_now().await;
            assert!(!panics, "this panic is part of the test");
            held.set(held.get() + 1);
            held.get()
        };
        assert_eq!(runtime.block_on(caught(work(true))), Err(Panicked));
        assert_eq!(Rc::strong_count(&held), 1);
        assert_eq!(runtime.block_on(caught(work(false))), Ok(1));
        assert_eq!(caught_now(|| held.get()), Ok(1));
    }
}
