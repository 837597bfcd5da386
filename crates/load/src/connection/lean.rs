//! Our own HTTP/1.1 client: a socket, a prebuilt request, and [`Parser`].
//!
//! Costs two system calls per request, one write and one read. Answers are read into a buffer that all connections of a
//! thread share, so that thousands of connections fit into a processor's cache and into memory.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use http::Method;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    Answer, Connection, Outcome, Traffic, Transport,
    parser::{Parser, Progress},
    wire,
};
use crate::{failure::Failure, request::Request, user::Desk};

/// Bytes read at once, at most.
const BUFFER: usize = 64 * 1024;

thread_local! {
    /// Only ever borrowed within one call of a poll function.
    static SHARED: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// See the module.
pub(crate) struct Lean {
    transport: Transport,
    parser: Parser,
}

impl Lean {
    /// Reads what is there and lets `take` look at it; an empty piece means that the server closed the connection.
    fn poll_piece<T>(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut Parser, &[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        SHARED.with_borrow_mut(|shared| {
            let mut buffer = ReadBuf::new(shared);
            ready!(Pin::new(&mut self.transport).poll_read(context, &mut buffer))?;
            Poll::Ready(Ok(take(&mut self.parser, buffer.filled())))
        })
    }
}

/// What a piece of answer led to.
enum Step {
    More,
    Complete { excess: bool },
}

impl Connection for Lean {
    type Line = ();

    async fn open(desk: &Rc<Desk>, _: &Rc<()>) -> Result<Self, Failure> {
        Ok(Self { transport: Transport::open(desk).await?, parser: Parser::new() })
    }

    async fn exchange(
        &mut self,
        request: &Request,
        cookies: Option<&str>,
        answer: &mut Answer,
    ) -> Result<Outcome, Failure> {
        let request_bytes = wire(request, cookies);
        self.parser.start(request.method == Method::HEAD);
        let mut to_send: &[u8] = &request_bytes;
        let (mut is_flushed, before) = (true, self.traffic().received);
        let excess = poll_fn(|context| {
            // Both directions at once: a server may answer, and stop reading, before it has the whole request.
            while !to_send.is_empty() {
                match Pin::new(&mut self.transport).poll_write(context, to_send) {
                    Poll::Ready(Ok(written)) => {
                        to_send = &to_send[written..];
                        is_flushed = false;
                    }
                    // It may have answered all the same. If not, reading will find that the connection is gone.
                    Poll::Ready(Err(_)) => break,
                    Poll::Pending => break,
                }
            }
            // TLS may have encrypted more than the socket took.
            if !is_flushed {
                is_flushed = Pin::new(&mut self.transport).poll_flush(context).is_ready();
            }
            loop {
                let step = ready!(self.poll_piece(context, |parser, piece| {
                    if piece.is_empty() {
                        return parser.end().map(|()| Step::Complete { excess: false });
                    }
                    parser.feed(piece, answer).map(|progress| match progress {
                        Progress::More => Step::More,
                        Progress::Complete(used) => Step::Complete { excess: used < piece.len() },
                    })
                }));
                match step {
                    // TLS that ends without saying so was cut off.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        let begun = self.traffic().received > before;
                        return Poll::Ready(Err(if begun { Failure::Incomplete } else { Failure::Closed }));
                    }
                    Err(error) => return Poll::Ready(Err(Failure::of_exchange(&error))),
                    Ok(Err(failure)) => return Poll::Ready(Err(failure)),
                    Ok(Ok(Step::More)) => {}
                    Ok(Ok(Step::Complete { excess })) => return Poll::Ready(Ok(excess)),
                }
            }
        })
        .await?;
        if excess {
            return Err(Failure::Malformed);
        }
        answer.reusable = to_send.is_empty() && is_flushed && self.parser.keep_alive();
        Ok(Outcome::Answered)
    }

    fn traffic(&self) -> Traffic {
        self.transport.traffic()
    }

    async fn ended(&mut self) {
        // Whatever comes, an end, an error or bytes, makes it useless.
        let _ = poll_fn(|context| self.poll_piece(context, |_, _| ())).await;
    }
}
