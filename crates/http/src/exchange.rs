//! One request and its answer, as a handler sees them, whatever version of HTTP carries them.

use std::{
    any::Any,
    io,
    os::fd::BorrowedFd,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;

use crate::{Answer, Clock, Head, Length, Refusal, h1, h2, h3};

/// What is wrong with a request's body.
#[derive(Debug)]
pub enum BodyError {
    /// The client left, or its connection failed.
    Left(io::Error),
    /// Its framing is malformed.
    Refused(Refusal),
}

/// What carries it.
#[derive(Debug)]
pub(crate) enum Turns<'a> {
    H1(&'a mut h1::Turn),
    H2(&'a mut h2::Turn),
    H3(&'a mut h3::Turn),
}

/// The same call for whichever it is.
macro_rules! each {
    ($exchange:expr, $turn:ident => $call:expr) => {
        match &mut $exchange.turn {
            Turns::H1($turn) => $call,
            Turns::H2($turn) => $call,
            Turns::H3($turn) => $call,
        }
    };
}

/// What two of three versions keep alike, and HTTP/1 in its own way.
macro_rules! either {
    ($exchange:expr, $h1:ident => $one:expr, $turn:ident => $other:expr) => {
        match &$exchange.turn {
            Turns::H1($h1) => $one,
            Turns::H2($turn) => $other,
            Turns::H3($turn) => $other,
        }
    };
}

/// One request and its answer. Methods that wait are for one task.
#[derive(Debug)]
pub struct Exchange<'a> {
    pub(crate) head: &'a Head,
    pub(crate) turn: Turns<'a>,
}

impl<'a> Exchange<'a> {
    /// The request's head. Of one that was refused it is empty.
    pub fn head(&self) -> &'a Head {
        self.head
    }

    /// What is waited for. It outlives the exchange: whoever drops that may ask whether the client was late.
    pub fn clock(&self) -> &Rc<Clock> {
        match &self.turn {
            Turns::H1(turn) => turn.clock(),
            Turns::H2(turn) => turn.clock(),
            Turns::H3(turn) => turn.clock(),
        }
    }

    /// The length of the request's body: `None` until its end is known.
    pub fn body_len(&mut self) -> Option<u64> {
        either!(self, h1 => h1.body_len(), turn => turn.body().len)
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
        either!(self, h1 => h1.body_is_over(), turn => turn.body().is_over())
    }

    /// Looks at what has come of a body that nobody is to read, and throws it away; waits for nothing. For who answers without it, before the
    /// answer begins. An error: the client left, or the request contradicts itself, such as in its length (RFC 9113, 8.1.1; RFC 9114, 4.1.2).
    /// HTTP/1 cannot contradict itself so.
    pub fn discard_body(&mut self, cx: &mut Context<'_>) -> Result<(), BodyError> {
        match &mut self.turn {
            Turns::H1(turn) => {
                turn.leave_body();
                Ok(())
            }
            Turns::H2(turn) => turn.discard_body(cx),
            Turns::H3(turn) => turn.discard_body(cx),
        }
    }

    /// Keeps something until the answer is with the client's machine, as far as that can be seen, or nobody waits for it any more; then it is
    /// dropped.
    pub fn keep(&mut self, kept: Box<dyn Any>) {
        each!(self, turn => turn.keep(kept));
    }

    /// Has the body's sender watched more closely as long as `wanted`: others wait for what it holds up. `stored`: that is the space in
    /// which the body is kept, not a worker that reads it. See [`crate::Limits::body_rate`].
    pub fn hurry(&mut self, stored: bool, wanted: Rc<dyn Fn() -> bool>) {
        self.clock().hurry(stored, wanted);
    }

    /// Sends an informational head (102, 103), if the client can take one and none but those came before. It goes with the next flush.
    pub fn inform(&mut self, answer: &Answer) {
        each!(self, turn => turn.inform(answer));
    }

    /// Begins the answer. It goes with the first flush, together with what of the body is there by then. Once only. `false`: the client takes
    /// none, for it has reset the stream, or takes no head of that size (SETTINGS_MAX_FIELD_SECTION_SIZE); then flushing fails.
    pub fn begin(&mut self, answer: &Answer, length: Length) -> bool {
        each!(self, turn => turn.begin(answer, length))
    }

    /// Whether the answer was begun.
    pub fn has_begun(&mut self) -> bool {
        either!(self, h1 => h1.has_begun(), turn => turn.progress().has_begun())
    }

    /// Adds to the answer's body. What goes beyond its length is dropped, and what a HEAD must not have. As long as any of it waits for the
    /// client, all of it counts ([`Clock::holding`]); what it is a part of does not, so of something larger [`crate::part`] is to be sent.
    pub fn send(&mut self, data: Bytes) {
        each!(self, turn => turn.send(data));
    }

    /// Waits until all that was sent is with the kernel. An error: the client is gone.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, turn => turn.poll_flush(cx))
    }

    /// Waits until the client may take some of the next `most` bytes of the answer's body; how many to make, which may be a few more than it takes.
    /// For whoever can wait with making them.
    pub fn poll_room(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        match &mut self.turn {
            Turns::H2(turn) => turn.poll_room(cx, most),
            // What was sent before was flushed, so there is room again.
            Turns::H1(_) | Turns::H3(_) => Poll::Ready(Ok(most)),
        }
    }

    /// Whether [`Exchange::poll_send_file`] can be used: HTTP/1 without TLS, and a body of a known length that is sent.
    pub fn takes_files(&self) -> bool {
        matches!(&self.turn, Turns::H1(turn) if turn.takes_files())
    }

    /// Adds the part of a file from `at` up to `end` to the answer's body and waits until all of it is with the kernel, which takes it from
    /// the file by itself; `at` says how far it is. It waits for the disk where the file is not in memory, so that is to be known. An error of
    /// kind `InvalidInput` or `Unsupported`: the file is none that the kernel sends, or [`Exchange::takes_files`] does not hold, and nothing of
    /// the part from `at` on was sent. Of kind `UnexpectedEof`: the file ends before `end`. Any other: the client is gone.
    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        at: &mut u64,
        end: u64,
    ) -> Poll<io::Result<()>> {
        match &mut self.turn {
            Turns::H1(turn) => turn.poll_send_file(cx, file, at, end),
            _ => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Says that the answer's body is whole. Without this, or with less than was promised, the connection is cut.
    pub fn finish(&mut self) {
        each!(self, turn => turn.finish());
    }

    /// Bytes of the answer's body so far, without what frames it.
    pub fn sent(&mut self) -> u64 {
        either!(self, h1 => h1.sent(), turn => turn.progress().sent())
    }

    /// Bytes that the client's machine has taken, as far as that can be seen; a number to be compared with an earlier one.
    pub fn taken(&mut self) -> u64 {
        each!(self, turn => turn.taken())
    }

    /// Waits for the client to leave. For a handler that waits for something else meanwhile; it may never be ready. A client that only
    /// sends no more has not left.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        each!(self, turn => turn.poll_gone(cx))
    }

    /// Asks for the connection to end after this answer.
    pub fn close(&mut self) {
        // Others share the connection of HTTP/2 and 3.
        if let Turns::H1(turn) = &mut self.turn {
            turn.close();
        }
    }
}
