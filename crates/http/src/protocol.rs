//! Which version of HTTP a connection speaks, and its whole life.

use std::{future::poll_fn, rc::Rc};

#[cfg(debug_assertions)]
use crate::io::with_deadlines;
use crate::{Clock, Handler, Io, Limits, Wait, h1, h2, h3};

/// What a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 and 1.1.
    Http1,
    /// HTTP/2, as agreed by ALPN.
    Http2,
    /// HTTP/2 if the client begins with its preface ("prior knowledge"), else HTTP/1.
    Either,
}

/// What carries a connection.
#[derive(Debug)]
pub enum Carrier {
    /// A stream of bytes, on which this is spoken.
    Stream(Io, Protocol),
    /// QUIC, on which HTTP/3 is.
    Quic(Box<h3::Connection>),
}

/// Serves a connection until its end. To be dropped when its clock is late.
pub async fn serve<H: Handler>(carrier: Carrier, handler: Rc<H>, limits: Rc<Limits>, clock: Rc<Clock>) {
    let (mut io, protocol) = match carrier {
        Carrier::Stream(io, protocol) => (io, protocol),
        // As below.
        Carrier::Quic(connection) => return Box::pin(connection.serve(handler, limits, clock)).await,
    };
    io.count(clock.holding());
    let http2 = match protocol {
        Protocol::Http1 => false,
        Protocol::Http2 => true,
        Protocol::Either => {
            clock.wait(Wait::Idle, &limits);
            let preface = poll_fn(|cx| {
                if clock.ends() {
                    return std::task::Poll::Ready(Ok(false));
                }
                clock.listen(cx);
                io.poll_begins_with(h2::PREFACE, cx)
            });
            let Ok(preface) = preface.await else { return };
            preface
        }
    };
    #[cfg(debug_assertions)]
    let watched = Rc::clone(&clock);
    if http2 {
        // Much larger than what HTTP/1 needs, and other connections are not to pay for it.
        let served = Box::pin(h2::serve(io, handler, limits, clock));
        #[cfg(debug_assertions)]
        let served = with_deadlines(served, &watched);
        served.await;
    } else {
        let served = h1::serve(io, &*handler, limits, clock);
        #[cfg(debug_assertions)]
        let served = with_deadlines(served, &watched);
        served.await;
    }
}
