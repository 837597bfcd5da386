//! The sockets that HTTP runs on, as one type: what is above is compiled once.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::sendfile,
    io::ioctl_fionread,
    net::{RecvFlags, recv},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};

#[cfg(debug_assertions)]
use crate::Clock;
use crate::{Hold, Holding, tls::TlsStream};

/// A connected socket.
#[derive(Debug)]
pub enum Io {
    /// TCP.
    Tcp(TcpStream),
    /// A unix stream socket.
    Unix(UnixStream),
    /// TLS on TCP.
    Tls(Box<TlsStream>),
}

/// The same call for whichever it is.
macro_rules! each {
    ($io:expr, $stream:ident => $call:expr) => {
        match $io {
            Io::Tcp($stream) => $call,
            Io::Unix($stream) => $call,
            Io::Tls($stream) => $call,
        }
    };
}

#[cfg(debug_assertions)]
thread_local! {
    /// What was written last on this thread waits for its client.
    static WAITS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Something was to be written: notes whether its client is waited for.
fn noted<T>(written: Poll<T>) -> Poll<T> {
    #[cfg(debug_assertions)]
    WAITS.set(written.is_pending());
    written
}

/// What serves a connection. That a client is waited for which takes nothing, and no clock runs, is a fault of ours that shows itself to nobody:
/// such a client holds its connection for ever. So builds with assertions look after each turn.
#[cfg(debug_assertions)]
pub(crate) async fn with_deadlines(serve: impl Future<Output = ()>, clock: &Clock) {
    let mut serve = std::pin::pin!(serve);
    std::future::poll_fn(|cx| {
        WAITS.set(false);
        let served = serve.as_mut().poll(cx);
        let forever = served.is_pending() && WAITS.get() && !clock.is_writing();
        debug_assert!(!forever, "a client that takes nothing is waited for without a deadline");
        served
    })
    .await;
}

/// The socket itself: only to be asked about.
impl AsFd for Io {
    fn as_fd(&self) -> BorrowedFd<'_> {
        each!(self, stream => stream.as_fd())
    }
}

impl Io {
    /// What has come, without taking it. Only for sockets without TLS.
    pub(crate) fn poll_peek(&mut self, to: &mut [u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Io::Tcp(stream) => stream.poll_peek(cx, &mut ReadBuf::new(to)),
            Io::Unix(stream) => loop {
                ready!(stream.poll_read_ready(cx))?;
                let peek = || Ok(recv(stream.as_fd(), &mut *to, RecvFlags::PEEK)?.0);
                match stream.try_io(Interest::READABLE, peek) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    peeked => return Poll::Ready(peeked),
                }
            },
            Io::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Whether the client begins with `want`; what it has sent is left there. Only for sockets without TLS, which says it by ALPN.
    pub(crate) fn poll_begins_with(&mut self, want: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut seen = [0; 24];
        loop {
            ready!(self.poll_readable(cx))?;
            let peek = |fd: BorrowedFd<'_>, seen: &mut [u8]| {
                let n = recv(fd, &mut *seen, RecvFlags::PEEK)?.0;
                let seen = seen.get(..n).unwrap_or_default();
                // A part of it waits for the rest: as if nothing were there yet. But not of a client that sends no more: its socket stays
                // readable, so this would never wait.
                let part =
                    !seen.is_empty() && seen.len() < want.len() && want.starts_with(seen) && !has_ended(fd);
                if part { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(seen.starts_with(want)) }
            };
            let begins = match self {
                Io::Tcp(tcp) => tcp.try_io(Interest::READABLE, || peek(tcp.as_fd(), &mut seen)),
                Io::Unix(unix) => unix.try_io(Interest::READABLE, || peek(unix.as_fd(), &mut seen)),
                Io::Tls(_) => Ok(false),
            };
            match begins {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                begins => return Poll::Ready(begins),
            }
        }
    }

    /// Bytes that were written and that the client's machine has not taken.
    pub(crate) fn in_flight(&self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the descriptor is open, and the kernel writes one int.
        let asked = unsafe { libc::ioctl(self.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if asked == 0 { u64::try_from(bytes).unwrap_or_default() } else { 0 }
    }

    /// Whether something has come that nobody has read.
    pub(crate) fn has_unread(&self) -> bool {
        let decrypted = matches!(self, Io::Tls(stream) if stream.has_plain());
        decrypted || ioctl_fionread(self).is_ok_and(|bytes| bytes > 0)
    }

    /// Has what it keeps by itself counted, as something that this connection holds: TLS does.
    pub(crate) fn count(&mut self, of: &Rc<Holding>) {
        if let Io::Tls(stream) = self {
            stream.count(Hold::new(of));
        }
    }

    /// Whether the kernel can be told to send a file: nothing has to be encrypted.
    pub(crate) fn is_plain(&self) -> bool {
        !matches!(self, Io::Tls(_))
    }

    /// Has the kernel send a part of a file, as much as it takes now: it moves `at`. Only for sockets without TLS. 0: there is no such part.
    pub(crate) fn poll_send_file(
        &mut self,
        file: BorrowedFd<'_>,
        at: &mut u64,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        macro_rules! send {
            ($stream:expr) => {
                loop {
                    ready!(noted($stream.poll_write_ready(cx)))?;
                    let send = || Ok(sendfile($stream.as_fd(), file, Some(&mut *at), most)?);
                    match $stream.try_io(Interest::WRITABLE, send) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        sent => return Poll::Ready(sent),
                    }
                }
            };
        }
        match self {
            Io::Tcp(stream) => send!(stream),
            Io::Unix(stream) => send!(stream),
            Io::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Whether something can be read; holds no buffer meanwhile.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Io::Tcp(stream) => stream.poll_read_ready(cx),
            Io::Unix(stream) => stream.poll_read_ready(cx),
            Io::Tls(stream) => stream.poll_readable(cx),
        }
    }
}

/// Whether the peer sends no more; what it has sent may still wait to be read.
pub(crate) fn has_ended(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_err()
        || fds.iter().any(|fd| fd.revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR))
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(&mut *self, stream => Pin::new(stream).poll_read(cx, to))
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        noted(each!(&mut *self, stream => Pin::new(stream).poll_write(cx, from)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match from {
            [one] => self.poll_write(cx, one),
            _ => noted(each!(&mut *self, stream => Pin::new(stream).poll_write_vectored(cx, from))),
        }
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        noted(each!(&mut *self, stream => Pin::new(stream).poll_flush(cx)))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        noted(each!(&mut *self, stream => Pin::new(stream).poll_shutdown(cx)))
    }
}
