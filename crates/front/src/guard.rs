//! A connection's socket behind the framing: sees every byte before hyper does.
//!
//! A head is held back until it is complete; a refused one is replaced by a harmless request, which the service answers with the recorded
//! status. An accepted byte is never changed, except in a target that hyper would not take (see [`crate::target`]).

use std::{
    io,
    mem::MaybeUninit,
    os::fd::AsFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    Limits,
    framing::{Framing, Refusal, Verdict},
    gather::{Held, Share},
    half_close::{HalfClose, Look, PROBE},
    state::State,
};

/// What hyper gets to see instead of a refused request. By its method the service knows it from requests that came before.
pub(crate) const REFUSED: &str = "REFUSED";
const SUBSTITUTE: &[u8] = b"REFUSED / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// A connection's socket behind the framing.
pub(crate) struct Guard<S> {
    inner: S,
    framing: Framing,
    state: Arc<State>,
    /// The beginning of a head that is not complete.
    held: Held,
    /// Bytes that passed but did not fit hyper's buffer.
    ready: Vec<u8>,
    ready_at: usize,
    /// Why reading fails once `ready` is delivered.
    broken: Option<&'static str>,
    /// The client sends no more.
    ended: bool,
    half_close: HalfClose,
    /// All that hyper has to write has been written.
    clean: bool,
}

/// As much of a refused head is written down.
const SHOWN: usize = 8 << 10;

impl<S> Guard<S> {
    pub(crate) fn new(inner: S, limits: &Limits, state: Arc<State>, share: Share) -> Guard<S> {
        Guard {
            inner,
            framing: Framing::new(limits),
            state,
            held: Held::new(share),
            ready: Vec::new(),
            ready_at: 0,
            broken: None,
            ended: false,
            half_close: HalfClose::default(),
            clean: true,
        }
    }

    fn deliver(&mut self, to: &mut ReadBuf<'_>) {
        let rest = self.ready.get(self.ready_at..).unwrap_or_default();
        let now = rest.get(..to.remaining()).unwrap_or(rest);
        to.put_slice(now);
        self.ready_at = self.ready_at.saturating_add(now.len());
        if self.ready_at >= self.ready.len() {
            self.ready = Vec::new();
            self.ready_at = 0;
        }
    }

    fn keep_originals(&mut self) {
        let originals = self.framing.take_originals();
        if !originals.is_empty() {
            self.state.keep_originals(originals);
        }
    }

    /// Appends what hyper gets instead of what was refused. In a body that is an error of the socket, for no byte is certain to be
    /// one in every state of its decoder.
    fn refused(&mut self, refusal: Refusal, head: &[u8]) {
        self.state.head_ends();
        self.state.refuse(refusal, head.get(..SHOWN).unwrap_or(head).to_vec());
        if refusal.in_body {
            self.broken = Some(refusal.reason);
        } else {
            self.ready.extend_from_slice(SUBSTITUTE);
        }
    }
}

impl<S: AsyncWrite + AsFd + Unpin> Guard<S> {
    /// The input is over. hyper learns of it when no answer is due, or nobody is there to read one.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.framing.in_body() || !self.state.owes_an_answer(self.framing.heads(), cx) {
            return Poll::Ready(Ok(()));
        }
        loop {
            match ready!(self.half_close.poll(&self.inner, cx)) {
                Look::Gone => return Poll::Ready(Ok(())),
                Look::Probe if self.clean && self.state.allows_interim() => {
                    let sent = Pin::new(&mut self.inner).poll_write(cx, PROBE);
                    // A part of it would spoil the answer; that few bytes always fit an empty buffer.
                    if !matches!(sent, Poll::Ready(Ok(n)) if n == PROBE.len()) {
                        return Poll::Ready(Ok(()));
                    }
                }
                Look::Probe => {}
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + AsFd + Unpin> AsyncRead for Guard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.ready_at < this.ready.len() {
                this.deliver(to);
                return Poll::Ready(Ok(()));
            }
            if this.ended {
                return this.poll_end(cx);
            }
            if let Some(reason) = this.broken.take() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
            }
            if this.state.is_refused() {
                // Not an end of file, which hyper takes for a client that left: it closes by itself after its answer.
                return Poll::Pending;
            }
            if this.held.is_empty() {
                // The usual case: straight into hyper's buffer, looked at in place.
                let before = to.filled().len();
                ready!(Pin::new(&mut this.inner).poll_read(cx, to))?;
                if to.filled().len() == before {
                    this.ended = true;
                    continue;
                }
                let come = to.filled_mut().get_mut(before..).unwrap_or_default();
                let verdict = this.framing.feed(come);
                let (at, rest) = match verdict {
                    Verdict::Pass => (come.len(), None),
                    Verdict::Hold(at) | Verdict::Refuse(at, _) => (at, come.get(at..)),
                };
                let rest = rest.unwrap_or_default();
                match verdict {
                    Verdict::Pass => {}
                    Verdict::Hold(_) => {
                        this.state.head_begins();
                        this.state.holds(this.held.push(rest));
                    }
                    Verdict::Refuse(_, refusal) => this.refused(refusal, rest),
                }
                this.keep_originals();
                // Not beyond what was filled.
                to.set_filled(before.saturating_add(at));
                if to.filled().len() > before {
                    return Poll::Ready(Ok(()));
                }
            } else {
                let mut block = [0; 4096];
                let mut more = ReadBuf::new(&mut block);
                ready!(Pin::new(&mut this.inner).poll_read(cx, &mut more))?;
                if more.filled().is_empty() {
                    // The client left in the middle of a head.
                    this.ended = true;
                    this.state.leave_unfinished(400, this.held.take());
                    continue;
                }
                this.state.holds(this.held.push(more.filled()));
                let verdict = this.framing.feed(this.held.bytes());
                this.keep_originals();
                match verdict {
                    Verdict::Pass => {
                        this.ready = this.held.take();
                        this.state.head_ends();
                    }
                    Verdict::Hold(at) => this.ready = this.held.take_before(at),
                    Verdict::Refuse(at, refusal) => {
                        this.ready = this.held.take_before(at);
                        let refused = this.held.take();
                        this.refused(refusal, &refused);
                    }
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + AsFd + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.clean = false;
        let result = Pin::new(&mut this.inner).poll_write(cx, from);
        this.state.wrote(result.is_pending());
        result
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.clean = false;
        let result = Pin::new(&mut this.inner).poll_write_vectored(cx, from);
        this.state.wrote(result.is_pending());
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.inner).poll_flush(cx))?;
        // hyper flushes when it has written what it had.
        this.clean = true;
        Poll::Ready(Ok(()))
    }

    /// A client whose request was answered before it was whole may still be sending. Closing then would reset the connection, and it would
    /// never read the answer; so only the writing side is closed, and what comes is thrown away for a while (see [`State::lingers`]).
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
        if !this.state.lingers_at_end() && !this.framing.in_body() {
            return Poll::Ready(Ok(()));
        }
        let mut block = [MaybeUninit::uninit(); 16384];
        loop {
            this.state.lingers();
            let mut more = ReadBuf::uninit(&mut block);
            match ready!(Pin::new(&mut this.inner).poll_read(cx, &mut more)) {
                Ok(()) if !more.filled().is_empty() => {}
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl<S> Drop for Guard<S> {
    fn drop(&mut self) {
        if !self.held.is_empty() && self.state.is_late() {
            self.state.leave_unfinished(408, self.held.take());
        }
    }
}
