//! The end of a connection on a stream of bytes, whatever version of HTTP was spoken on it.
//!
//! What is with the kernel is not yet with the client. A socket that is closed while its client still sends (a window update, the rest of a
//! body) resets the connection, and what the client has not read of its answers is lost. So a connection says that it sends no more, and then
//! throws away what comes until its client closes as well:
//!
//! - as long as the client's machine has much to take, it has the time of any answer ([`Limits::write_timeout`], [`Limits::write_rate`]);
//! - then 5 seconds from one piece to the next, and 30 in all ([`Wait::Linger`]), as with nginx; but a client that has nothing to send for what it
//!   was answered is not waited for longer than its machine needs: many keep a connection that is over until they want to use it.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::AsyncWrite,
    time::{Instant, sleep},
};
use tokio_util::io::poll_read_buf;

use crate::{Clock, Io, Limits, Wait, pool};

/// How often it is looked at what the client's machine has taken, of which a socket says nothing by itself; and when first, for machines that
/// wait 40 ms before they confirm anything.
const LOOK: Duration = Duration::from_millis(500);
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// Bytes that the client's machine may not have taken without having the time of an answer: the last words of HTTP/2 and TLS, to which a client
/// that has vanished without a word does not answer.
const LITTLE: u64 = 1 << 10;

/// Says that nothing more is sent. To be dropped when the clock is late.
pub(crate) async fn shut_down(io: &mut Io, clock: &Clock, limits: &Limits) -> io::Result<()> {
    clock.wait(Wait::Nothing, limits);
    poll_fn(|cx| {
        let shut = Pin::new(&mut *io).poll_shutdown(cx);
        // TLS has a last word, for which there may be no room.
        clock.wrote(shut.is_pending(), 0, limits);
        shut
    })
    .await
}

/// How long a client is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until its machine has all, unless it sends something meanwhile.
    Taken,
    /// Until it closes as well: it sends, or may send for what it is still reading.
    Closed,
}

/// Waits until the client has all, and throws away what it still sends; see the module's head. To be dropped when the clock is late.
pub(crate) async fn linger(io: &mut Io, clock: &Clock, limits: &Limits, mut until: Until) {
    let mut left = io.in_flight();
    let mut look = pin!(sleep(FIRST_LOOK));
    poll_fn(|cx| {
        loop {
            let came = match poll_discard(io, cx) {
                Poll::Ready(Ok(1..)) => true,
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                Poll::Pending => false,
            };
            if came {
                until = Until::Closed;
            } else if until == Until::Taken && io.in_flight() == 0 {
                return Poll::Ready(());
            }
            if left > LITTLE {
                let before = std::mem::replace(&mut left, io.in_flight());
                let taken = usize::try_from(before.saturating_sub(left)).unwrap_or(usize::MAX);
                clock.wrote(left > LITTLE, taken, limits);
            }
            // To wait again for the same begins its pause anew, which only what came may.
            if left <= LITTLE && (came || clock.waits_for() != Wait::Linger) {
                clock.wait(Wait::Linger, limits);
            }
            if look.as_mut().poll(cx).is_ready() {
                look.as_mut().reset(Instant::now() + LOOK);
            } else if !came {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// Throws away a piece of what comes. The number of bytes; 0 at the end. Nothing is kept for what does not come.
fn poll_discard(io: &mut Io, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    ready!(io.poll_readable(cx))?;
    let mut block = pool::take();
    let read = poll_read_buf(Pin::new(io), cx, &mut block);
    pool::give(block);
    read
}
