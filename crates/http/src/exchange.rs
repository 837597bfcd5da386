//! One request and its answer, as a handler sees them, whatever version of HTTP carries them.

use std::{
    io,
    task::{Context, Poll},
};

use bytes::Bytes;

use crate::{Answer, Head, Length, Refusal, h1, h2};

/// What is wrong with a request's body.
#[derive(Debug)]
pub enum BodyError {
    /// The client left, or its connection failed.
    Left(io::Error),
    /// Its framing is malformed.
    Refused(Refusal),
}

/// How a client that is waited for has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It sends no more, which a client may do that waits for its answer, and which one that left looks like, too.
    Half,
    /// Its connection is broken.
    Whole,
}

/// What carries it.
#[derive(Debug)]
pub(crate) enum Turns<'a> {
    H1(&'a mut h1::Turn),
    H2(&'a mut h2::Turn),
}

/// The same call for whichever it is.
macro_rules! each {
    ($exchange:expr, $turn:ident => $call:expr) => {
        match &mut $exchange.turn {
            Turns::H1($turn) => $call,
            Turns::H2($turn) => $call,
        }
    };
}

/// One request and its answer. Methods that wait are for one task.
#[derive(Debug)]
pub struct Exchange<'a> {
    pub(crate) head: &'a Head,
    pub(crate) turn: Turns<'a>,
}

impl Exchange<'_> {
    /// The request's head. Of one that was refused it is empty.
    pub fn head(&self) -> &Head {
        self.head
    }

    /// The length of the request's body: `None` until its end is known.
    pub fn body_len(&mut self) -> Option<u64> {
        each!(self, turn => turn.body_len())
    }

    /// What has come of the body; waits for the first byte of it. Empty: that was all. The client is told to send, if it waits to be.
    pub fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<&[u8], BodyError>> {
        each!(self, turn => turn.poll_body(cx))
    }

    /// Says that so many bytes of what [`Exchange::poll_body`] gave are used.
    pub fn consume(&mut self, n: usize) {
        each!(self, turn => turn.consume(n));
    }

    /// Whether all of the body was used.
    pub fn body_is_over(&mut self) -> bool {
        each!(self, turn => turn.body_is_over())
    }

    /// Sends an informational head (102, 103), if the client can take one and none but those came before. It goes with the next flush.
    pub fn inform(&mut self, answer: &Answer) {
        each!(self, turn => turn.inform(answer));
    }

    /// Begins the answer. It goes with the first flush, together with what of the body is there by then. Once only.
    pub fn begin(&mut self, answer: &Answer, length: Length) {
        each!(self, turn => turn.begin(answer, length));
    }

    /// Adds to the answer's body. What goes beyond its length is dropped, and what a HEAD must not have.
    pub fn send(&mut self, data: Bytes) {
        each!(self, turn => turn.send(data));
    }

    /// Waits until all that was sent is with the kernel. An error: the client is gone.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, turn => turn.poll_flush(cx))
    }

    /// Says that the answer's body is whole. Without this, or with less than was promised, the connection is cut.
    pub fn finish(&mut self) {
        each!(self, turn => turn.finish());
    }

    /// Bytes of the answer's body so far, without what frames it.
    pub fn sent(&mut self) -> u64 {
        each!(self, turn => turn.sent())
    }

    /// Waits for the client to leave. For a handler that waits for something else meanwhile; it may never be ready.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Gone> {
        each!(self, turn => turn.poll_gone(cx))
    }

    /// Asks for the connection to end after this answer.
    pub fn close(&mut self) {
        each!(self, turn => turn.close());
    }
}
