//! A connection to the server: sends one request at a time and reads its answer.
//!
//! Two engines stand behind one face. [`lean`] is a small HTTP/1.1 client on httparse, made for this: it costs a fifth
//! less CPU time per request than hyper, and that fifth is what a load generator needs to saturate what wrk saturates
//! (docs/load.md has the figures). [`hyp`] is hyper's client, for comparison and as a second opinion: both have to come to
//! the same verdict about the same answer (tests/engines.rs).

mod answer;
mod hyp;
mod lean;
mod parser;

use std::{net::SocketAddr, ops::Sub};

use bytes::Bytes;
use tokio::net::TcpStream;

pub(crate) use answer::Answer;
pub(crate) use hyp::Hyper;
pub(crate) use lean::Lean;
#[cfg(fuzzing)]
pub(crate) use parser::{Parser, Progress};

use crate::{failure::Failure, request::Request};

/// Which HTTP client speaks.
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

/// What the loops need of an HTTP client.
///
/// All futures may be dropped at any await; the connection must then be dropped as well.
pub(crate) trait Connection: Sized + 'static {
    /// Opens a connection.
    async fn open(address: SocketAddr) -> Result<Self, Failure>;

    /// Sends a request and reads its answer into `answer`, which is empty. `cookies` is the value of a Cookie header. When it
    /// fails, the connection must not be used again.
    async fn exchange(
        &mut self,
        request: &Request,
        cookies: Option<&str>,
        answer: &mut Answer,
    ) -> Result<(), Failure>;

    /// What has gone over it so far.
    fn traffic(&self) -> Traffic;

    /// Returns when an idle connection is of no more use: the server closed it, or sent something without having been asked.
    async fn ended(&mut self);
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(address).await.map_err(|error| Failure::of_connect(&error))?;
    // A request is written at once; waiting for the acknowledgement of the last would only delay it.
    stream.set_nodelay(true).map_err(|_| Failure::Local)?;
    Ok(stream)
}

/// The bytes of a request, with the user's cookies.
fn wire(request: &Request, cookies: Option<&str>) -> Bytes {
    match cookies {
        Some(cookies) => request.wire_with_cookies(cookies),
        None => request.wire().clone(),
    }
}
