//! Our own HTTP/1.1 client: a socket, a prebuilt request, and [`Parser`].
//!
//! Costs two system calls per request, one write and one read. Answers are read into a buffer that all connections of a
//! thread share, so that thousands of connections fit into a processor's cache and into memory.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Method;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{
    Answer, Connection, Traffic, connect,
    parser::{Parser, Progress},
    wire,
};
use crate::{failure::Failure, request::Request};

/// Bytes read at once, at most.
const BUFFER: usize = 64 * 1024;

thread_local! {
    /// Only ever borrowed within one call of a poll function.
    static SHARED: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// See the module.
pub(crate) struct Lean {
    stream: TcpStream,
    parser: Parser,
    traffic: Traffic,
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
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            self.traffic.received += buffer.filled().len() as u64;
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
    async fn open(address: SocketAddr) -> Result<Self, Failure> {
        Ok(Self { stream: connect(address).await?, parser: Parser::new(), traffic: Traffic::default() })
    }

    async fn exchange(
        &mut self,
        request: &Request,
        cookies: Option<&str>,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        let request_bytes = wire(request, cookies);
        self.parser.start(request.method == Method::HEAD);
        let mut to_send: &[u8] = &request_bytes;
        let excess = poll_fn(|context| {
            // Both directions at once: a server may answer, and stop reading, before it has the whole request.
            while !to_send.is_empty() {
                match Pin::new(&mut self.stream).poll_write(context, to_send) {
                    Poll::Ready(Ok(written)) => {
                        self.traffic.sent += written as u64;
                        to_send = &to_send[written..];
                    }
                    // It may have answered all the same. If not, reading will find that the connection is gone.
                    Poll::Ready(Err(_)) => break,
                    Poll::Pending => break,
                }
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
        answer.reusable = to_send.is_empty() && self.parser.keep_alive();
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    async fn ended(&mut self) {
        // Whatever comes, an end, an error or bytes, makes it useless.
        let _ = poll_fn(|context| self.poll_piece(context, |_, _| ())).await;
    }
}
