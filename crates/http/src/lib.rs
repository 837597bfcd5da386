//! HTTP as Hayate serves it: bytes on one side, messages on the other.
//!
//! A [`Handler`] is given an [`Exchange`]: the request's head, in which each header is a slice of what came, its body as a
//! stream that is read only as fast as the handler asks, and the answer, which is any number of informational heads, a head
//! and a body. Which version of HTTP and which kind of socket carries it is this crate's affair alone.
//!
//! It promises: what is not plainly a request is refused, at the first byte that shows it; each byte of a head is looked at once, however
//! small the pieces are in which it comes; what a client can make this crate keep is bounded by [`Limits`], and what all keep
//! together is counted ([`Memory`]); an idle connection keeps no buffer. It knows nothing of sites, files, processes or PHP, and no thread: a connection is one future.

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

mod answer;
mod block;
mod buffer;
mod clock;
mod closing;
mod date;
mod exchange;
#[cfg(any(test, feature = "fuzzed"))]
#[allow(missing_docs, clippy::indexing_slicing)]
pub mod fuzzed;
pub mod h1;
pub mod h2;
mod h3;
mod head;
mod holding;
mod io;
mod messages;
mod pace;
mod pool;
mod protocol;
pub mod proxy_protocol;
mod refusal;
mod stream;
pub mod tls;

pub use answer::{Answer, Length, Malformed};
pub use block::part;
pub use clock::{Clock, Wait, seconds};
pub use exchange::{BodyError, Exchange};
pub use h1::encode::phrase;
pub use h3::{Caller, Endpoint, Secret};
pub use head::{Field, Head, Version};
pub use holding::{Hold, Holding, Memory, Part};
pub use io::Io;
pub use protocol::{Carrier, Protocol, serve};
pub use refusal::Refusal;
pub use tls::TlsStream;

use std::time::Duration;

/// What a client may do.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a request's head; above: 431.
    pub head_size: usize,
    /// Headers in a request; above: 431.
    pub header_count: usize,
    /// Bytes of the request target; above: 414.
    pub uri_length: usize,
    /// For a PROXY header, and for agreeing upon TLS.
    pub handshake_timeout: Duration,
    /// From the first byte of a head to its end.
    pub header_timeout: Duration,
    /// Between two requests on one connection.
    pub idle_timeout: Duration,
    /// Between two pieces of a request's body.
    pub body_timeout: Duration,
    /// Bytes a second that a client has to send of a body; it may be behind by as long as `body_timeout`, and what came quickly before is no
    /// credit. If others wait for what the body holds up ([`Exchange::hurry`]): over any three seconds if that is a worker; over any ten,
    /// and at least a 600th of what it has sent, if it is the space that it is stored in. 0: no such rule.
    pub body_rate: u64,
    /// While the client takes no byte of the answer.
    pub write_timeout: Duration,
    /// Bytes a second that a client has to take of an answer, once it takes less than there is; it may be behind by as long as
    /// `write_timeout`. 0: no such rule.
    pub write_rate: u64,
    /// HTTP/2 and 3: requests at one time on one connection.
    pub streams: u32,
    /// HTTP/2 and 3: bytes of request bodies that may be under way, on one stream. On the whole connection four times as many.
    pub window: u32,
    /// HTTP/2: bytes of answers that may wait on one connection for the socket to take them; each stream has its part, 16 KB at least.
    pub send_buffer: usize,
    /// HTTP/2: streams that a client has opened and reset again before they were looked at; one more ends the connection.
    pub resets: usize,
    /// HTTP/2: what small pieces of request bodies may cost a connection until they are read: each frame of data of less than 256 bytes as
    /// much as it is shorter. Above, the connection ends.
    pub frame_budget: usize,
    /// HTTP/2: streams of a connection that are reset since its client broke the protocol; one more ends the connection.
    pub errors: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_size: 32 << 10,
            header_count: 100,
            uri_length: 8 << 10,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(60),
            body_rate: 0,
            write_timeout: Duration::from_secs(60),
            write_rate: 0,
            streams: 128,
            window: 256 << 10,
            send_buffer: 4 << 20,
            resets: 20,
            frame_budget: 512 << 10,
            errors: 1024,
        }
    }
}

/// What answers requests.
pub trait Handler {
    /// Answers a request. An exchange that was not begun when this returns, or not finished, cuts its connection (or its stream).
    fn handle(&self, exchange: &mut Exchange<'_>) -> impl Future<Output = ()>;

    /// Answers what was no request: `head` is as much of it as was read. The connection ends after the answer.
    fn refused(&self, exchange: &mut Exchange<'_>, refusal: Refusal, head: &[u8])
    -> impl Future<Output = ()>;

    /// The beginning of a head takes so many bytes of memory now, 0: it is gone. Only heads that do not come at once are told of.
    fn holds(&self, _bytes: usize) {}

    /// Waits until there is memory for more of a head that does not come at once. What is not read meanwhile is with the kernel.
    fn has_room(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// A connection ended in the middle of a head, with no answer: `late` when its time was over, else because the client left.
    fn unfinished(&self, head: &[u8], late: bool);

    /// A connection was ended, for its client broke the rules of HTTP/2 or 3, or their bounds; `why`: not in the client's words.
    fn broke(&self, _why: &str) {}
}
