//! A connection to the server, as one user has it: sends one request at a time and reads its answer.
//!
//! HTTP/2 is spoken by [`http2`], on the `h2` crate, HTTP/3 by [`http3`], on `h3` and `quinn`. For HTTP/1.1 two engines stand
//! behind one face. [`lean`] is a small HTTP/1.1 client on httparse, made for this: it costs a fifth less CPU time per request
//! than hyper, and that fifth is what a load generator needs to saturate what wrk saturates (docs/load.md has the figures).
//! [`hyp`] is hyper's client, for comparison and as a second opinion: both have to come to
//! the same verdict about the same answer (tests/engines.rs).

mod answer;
mod http2;
mod http3;
mod hyp;
mod lean;
mod line;
mod parser;
mod transport;

use std::{
    ops::{Add, Sub},
    rc::Rc,
};

use bytes::Bytes;

pub(crate) use answer::Answer;
pub(crate) use http2::Http2;
pub(crate) use http3::{Farewell, Http3};
pub(crate) use hyp::Hyper;
pub(crate) use lean::Lean;
#[cfg(any(test, feature = "fuzzed"))]
pub(crate) use parser::{Parser, Progress};

use transport::Transport;

use crate::{failure::Failure, request::Request, user::Desk};

/// Which HTTP/1.1 client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Our own, the cheapest.
    #[default]
    Lean,
    /// hyper's.
    Hyper,
}

/// Bytes of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl Sub for Traffic {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { sent: self.sent - earlier.sent, received: self.received - earlier.received }
    }
}

impl Add for Traffic {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { sent: self.sent + more.sent, received: self.received + more.received }
    }
}

/// What became of a request that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The answer is complete.
    Answered,
    /// The server, or what the connection had come to, says that nobody looked at it: it may be sent on another connection.
    Unprocessed,
}

/// What the loops need of an HTTP client.
///
/// All futures may be dropped at any await; the connection must then be dropped as well.
pub(crate) trait Connection: Sized + 'static {
    /// What those users have in common who share a connection.
    type Line: Default + 'static;

    /// Opens a connection, or joins that of the line.
    async fn open(desk: &Rc<Desk>, line: &Rc<Self::Line>) -> Result<Self, Failure>;

    /// Sends a request and reads its answer into `answer`, which is empty. `cookies` is the value of a Cookie header. When it
    /// fails, the connection must not be used again.
    async fn exchange(
        &mut self,
        request: &Request,
        cookies: Option<&str>,
        answer: &mut Answer,
    ) -> Result<Outcome, Failure>;

    /// What has gone over it so far.
    fn traffic(&self) -> Traffic;

    /// Returns when an idle connection is of no more use: the server closed it, or sent something without having been asked.
    async fn ended(&mut self);
}

/// The bytes of a request, with the user's cookies.
fn wire(request: &Request, cookies: Option<&str>) -> Bytes {
    match cookies {
        Some(cookies) => request.wire_with_cookies(cookies),
        None => request.wire().clone(),
    }
}
