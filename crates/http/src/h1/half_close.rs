//! A client that has closed its sending side while its request is being served.
//!
//! Most such clients are gone. Some wait for the answer (`nc -N`, shutdown(2)), and TCP shows no difference: both send the same FIN. So the
//! request goes on. Whether anybody is still there shows when something is sent, for who is gone resets the connection. If the answer itself takes long, a `100 Continue`, which every client of
//! HTTP/1.1 has to take at any time (RFC 9110, 15.2), is sent before it, once. A peer on a unix socket is seen to be gone at once.

use std::{
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::time::{Instant, Sleep, sleep};

use crate::io::has_ended;

/// How long an answer may take before the client is asked for: most are there by then.
const PATIENCE: Duration = Duration::from_millis(500);
/// A connection across the world resets within this time.
const THEN: Duration = Duration::from_millis(300);

/// What HTTP/1.1 sends to see whether the client is there; HTTP/2 has its PING.
pub(crate) const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What to do now that the input has ended and an answer is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The client is gone.
    Gone,
    /// Send something that asks for no answer ([`PROBE`]) if that can be, and look again.
    Probe,
}

/// See the module's head. One for each connection, from the end of its input; or from when more has come than is taken in, so that its end
/// is not heard of by reading.
#[derive(Debug, Default)]
pub(crate) struct HalfClose {
    next: Option<Pin<Box<Sleep>>>,
    probed: bool,
}

impl HalfClose {
    /// Pending while there is nothing to do; ready with [`Look::Probe`] once, if the client sends no more. `ended`: that was read already.
    pub(crate) fn poll(&mut self, socket: &impl AsFd, ended: bool, cx: &mut Context<'_>) -> Poll<Look> {
        if is_gone(socket) {
            return Poll::Ready(Look::Gone);
        }
        let next = self.next.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        while next.as_mut().poll(cx).is_ready() {
            if is_gone(socket) {
                return Poll::Ready(Look::Gone);
            }
            next.as_mut().reset(Instant::now() + THEN);
            if (ended || has_ended(socket)) && !std::mem::replace(&mut self.probed, true) {
                return Poll::Ready(Look::Probe);
            }
        }
        Poll::Pending
    }
}

/// Whether both directions are closed: reset, or closed by a peer of the same machine on a unix socket.
fn is_gone(socket: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_err()
        || fds.iter().any(|fd| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR))
}
