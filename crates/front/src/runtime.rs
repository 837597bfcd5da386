//! The event loop of one of the front's threads: tokio's local runtime with the hub's two hooks. A `LocalSet` within a runtime would be a second
//! scheduler inside of the first, and cost each turn of each task a second queue.

use std::{
    cell::{Cell, RefCell},
    io,
    sync::{Arc, Weak},
};

use hayate_ring::Hub;
use tokio::{
    io::unix::AsyncFd,
    runtime::{Builder, LocalOptions, LocalRuntime},
};

/// How many times tasks are polled before a thread that did not sleep meanwhile looks at the hub. tokio asks the kernel for news as often.
const POLLS: u32 = 61;

thread_local! {
    static TURN: Turn = const {
        Turn { hub: RefCell::new((Weak::new(), 0)), polls: Cell::new(0), encoded: Cell::new(0) }
    };
}

/// What this thread has done since it slept.
struct Turn {
    /// Where it sleeps, and as which thread.
    hub: RefCell<(Weak<Hub>, u32)>,
    polls: Cell<u32>,
    /// Bytes that were encoded since the present task was polled.
    encoded: Cell<usize>,
}

/// A runtime for the present thread, which sleeps and wakes as that thread of the hub. Keep the second as long as the first: it lets the hub wake it.
pub fn build(hub: &Arc<Hub>, thread: u32) -> io::Result<(LocalRuntime, AsyncFd<std::os::fd::OwnedFd>)> {
    let (park, unpark) = (Arc::clone(hub), Arc::clone(hub));
    TURN.with(|turn| *turn.hub.borrow_mut() = (Arc::downgrade(hub), thread));
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_keep_alive(std::time::Duration::from_secs(5))
        .on_thread_park(move || park.before_park(thread))
        .on_thread_unpark(move || {
            unpark.after_unpark(thread);
            TURN.with(|turn| turn.polls.set(0));
        })
        .build_local(LocalOptions::default())?;
    hub.attach(thread, runtime.handle());
    let watch = hub.watch_own(thread)?;
    Ok((runtime, watch))
}

/// A task of a connection is polled. tokio calls the hooks only when the thread sleeps; one that always has work would wake no worker and hear of no
/// answer, but for the sweep's doing.
pub(crate) fn polled() {
    TURN.with(|turn| {
        turn.encoded.set(0);
        let polls = turn.polls.get().saturating_add(1);
        turn.polls.set(polls);
        if polls >= POLLS {
            turn.polls.set(0);
            let (hub, thread) = &*turn.hub.borrow();
            if let Some(hub) = hub.upgrade() {
                hub.look(*thread);
            }
        }
    });
}

/// The present task has computed for as long as many polls take: the next one looks at the hub.
pub(crate) fn took_long() {
    TURN.with(|turn| turn.polls.set(POLLS));
}

/// The present task has encoded so many bytes more.
pub(crate) fn encodes(bytes: usize) {
    TURN.with(|turn| turn.encoded.set(turn.encoded.get().saturating_add(bytes)));
}

/// Bytes that the present task has encoded since it was polled: of HTTP/2 and 3 for many answers.
pub(crate) fn encoded() -> usize {
    TURN.with(|turn| turn.encoded.get())
}
