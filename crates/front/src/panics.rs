//! What a panic may end: the one connection, or the one turn of a loop, in which it happens.
//!
//! A panic is a fault of this program, and none is known. One that happens all the same must not be worth more to an attacker than a
//! closed connection: it unwinds, is counted (`hayate_panics`) and logged, and the others go on. So no lock is poisoned by it
//! (parking_lot has no such thing), and what has to be undone is undone by drops.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

#[cfg(panic = "abort")]
compile_error!(
    "the front counts on panics that unwind: one that aborts ends all connections of all applications"
);

/// A panic was caught; the log has its message and place.
pub(crate) struct Panicked;

/// Runs a future, and gives up on it when it panics. Whatever it held is dropped by then, unless the caller has pinned it: a large one is
/// better pinned there, since here it would take its room twice.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}
