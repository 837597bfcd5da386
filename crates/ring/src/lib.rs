//! The front's side of the shared memory between Hayate's front and its PHP workers.
//!
//! `host/layout.h` describes the memory and the rules that keep it sound while workers are killed at any moment; the worker's
//! side is `host/ring.c`. One [`Ring`] belongs to one generation of one application; all rings of a front share a [`Hub`],
//! which tells the event loop when workers have news.
//!
//! It promises: every admitted request gets exactly one outcome (a complete answer, or one [`Failure`]), whatever workers
//! do; a slot is reused only when no worker can touch it any more; waiting costs no thread. It knows nothing of HTTP
//! connections, of processes or of PHP, and must never trust a position or a length that a worker wrote.
//!
//! The life of a request: [`Ring::admit`] → [`Slot::put`]… → [`Slot::submit`] → [`Exchange::poll_send`] for the body,
//! [`Exchange::poll_head`], [`Exchange::poll_body`] until `None`, then drop. Dropping an [`Exchange`] early aborts the request.

// Nothing that a process wrote may end the server: what can fail is an error, or says here why it cannot.
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

mod end;
mod exchange;
#[cfg(any(test, feature = "fuzzed"))]
#[allow(missing_docs)]
pub mod fuzzed;
mod head;
mod hub;
mod memory;
mod queue;
mod ring;
mod sweep;
mod wake;
mod workers;

/// What host/layout.h declares, as bindgen reads it.
#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    clippy::undocumented_unsafe_blocks,
    clippy::indexing_slicing, // in bindgen's assertions, at compile time
    clippy::all
)]
pub mod layout {
    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}

pub use exchange::{Exchange, Failure, RequestClosed};
pub use head::{HeadTooLarge, Places, Records, ResponseHead};
pub use hub::Hub;
pub use ring::{Config, OpenBody, Refused, Ring, Slot};
pub use sweep::{Fault, Limits, Overdue, Slow, Swept};
pub use workers::{Settled, WorkerRecord};
