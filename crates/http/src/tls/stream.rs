//! A connection on which TLS was agreed.

use std::{
    future::poll_fn,
    io::{self, IoSlice, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use rustls::ServerConnection;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    time::timeout,
};

use super::LONGEST_HANDSHAKE;
use crate::{Hold, pool};

/// Bytes of which nothing has come yet that count for nothing: nearly all words of clients are shorter.
const FEW: usize = 4 << 10;

/// How long a client is listened to that was refused. Those that mean well leave when they have read why.
const LAST_WORD: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct TlsStream {
    tcp: TcpStream,
    pub(super) session: ServerConnection,
    /// Decrypted bytes that wait in the session.
    plain: usize,
    /// Bytes that were encrypted and wait for the kernel, at most.
    sealed: usize,
    /// Bytes that came since something came of them, at most.
    begun: usize,
    /// The client sends no more, whether it said so or not.
    ended: bool,
    /// It was told that nothing more comes.
    closed: bool,
    /// What of all this is kept while something is waited for.
    hold: Option<Hold>,
}

/// What goes wrong with one.
pub(super) enum Fault {
    Io(io::Error),
    Tls(rustls::Error),
}

/// The socket, for rustls, which knows no futures: what is not ready would block.
struct Wire<'a, 'b> {
    tcp: &'a mut TcpStream,
    cx: &'a mut Context<'b>,
}

fn or_would_block<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Read for Wire<'_, '_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut to = ReadBuf::new(to);
        or_would_block(Pin::new(&mut *self.tcp).poll_read(self.cx, &mut to))?;
        Ok(to.filled().len())
    }
}

impl Write for Wire<'_, '_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.tcp).poll_write(self.cx, from))
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.tcp).poll_write_vectored(self.cx, from))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsStream {
    pub(super) fn new(tcp: TcpStream, session: ServerConnection) -> TlsStream {
        TlsStream { tcp, session, plain: 0, sealed: 0, begun: 0, ended: false, closed: false, hold: None }
    }

    /// Reads once, and decrypts what came. The number of bytes; 0: the client sends no more.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Fault>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        let mut wire = Wire { tcp: &mut self.tcp, cx };
        let n = match self.session.read_tls(&mut wire) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(Fault::Io(error))),
        };
        self.ended = n == 0;
        match self.session.process_new_packets() {
            Ok(state) => {
                let came_of_it = state.plaintext_bytes_to_read() > self.plain || self.session.wants_write();
                self.begun = if came_of_it { 0 } else { self.begun.saturating_add(n) };
                self.plain = state.plaintext_bytes_to_read();
                self.ended |= state.peer_has_closed();
            }
            Err(error) => {
                // The alert, if it goes at once.
                let _ = self.poll_drain(cx);
                return Poll::Ready(Err(Fault::Tls(error)));
            }
        }
        Poll::Ready(Ok(n))
    }

    /// Waits until all that was encrypted is with the kernel.
    pub(super) fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut wire = Wire { tcp: &mut self.tcp, cx };
            match self.session.write_tls(&mut wire) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.sealed = 0;
        Poll::Ready(Ok(()))
    }

    /// Tells a client why it is refused, and throws away what it still sends, for a moment: of TLS 1.3 it may have sent its request already, and a
    /// socket that is closed with that unread resets the connection, so that the client never sees the alert.
    pub(super) async fn refuse(mut self) {
        let listen = async move {
            poll_fn(|cx| self.poll_drain(cx)).await?;
            // The session's memory goes first.
            let TlsStream { mut tcp, session, .. } = self;
            drop(session);
            tcp.shutdown().await?;
            let mut left = LONGEST_HANDSHAKE;
            while left > 0 {
                tcp.readable().await?;
                let mut block = pool::take();
                let read = tcp.try_read_buf(&mut block);
                pool::give(block);
                match read {
                    Ok(0) => break,
                    Ok(n) => left = left.saturating_sub(n),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        // Whether it heard that or not, it is let go.
        let _ = timeout(LAST_WORD, listen).await;
    }

    /// Bytes of a record, or of a message of a handshake, that is not whole; 0 for few.
    pub(super) fn begun(&self) -> usize {
        if self.begun > FEW { self.begun.min(LONGEST_HANDSHAKE) } else { 0 }
    }

    /// Whether decrypted bytes wait to be read.
    pub(crate) fn has_plain(&self) -> bool {
        self.plain > 0
    }

    /// Has what it keeps counted from now on: what waits for the kernel, what is not whole, and what nobody has read.
    pub(crate) fn count(&mut self, hold: Hold) {
        self.hold = Some(hold);
        self.counts();
    }

    fn counts(&mut self) {
        let bytes = self.sealed.saturating_add(self.begun()).saturating_add(self.plain);
        if let Some(hold) = &mut self.hold {
            hold.set(bytes);
        }
    }

    /// Waits until something has come.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.tcp.readable().await
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(self.poll_fill(cx)) {
            Ok(_) => {
                // Answers of TLS itself (a key update); what does not go now goes with the next write.
                if self.session.wants_write()
                    && let Poll::Ready(Err(error)) = self.poll_drain(cx)
                {
                    return Poll::Ready(Err(error));
                }
                Poll::Ready(Ok(()))
            }
            Err(Fault::Io(error)) => Poll::Ready(Err(error)),
            Err(Fault::Tls(error)) => Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error))),
        }
    }

    /// Whether something can be read, the end included.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.plain == 0 && !self.ended {
            match self.poll_more(cx) {
                Poll::Ready(more) => more?,
                Poll::Pending => {
                    self.counts();
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_encrypt(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut rustls::Writer<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        let n = write(&mut self.session.writer())?;
        self.sealed = self.sealed.saturating_add(n);
        // What does not go at once goes with the flush, or before the next write.
        let drained = self.poll_drain(cx);
        self.counts();
        if let Poll::Ready(Err(error)) = drained {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(n))
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_readable(cx))?;
        if self.plain == 0 {
            // HTTP says by itself where its messages end, so a client that leaves without close_notify is one that leaves.
            return Poll::Ready(Ok(()));
        }
        let n = self.session.reader().read(to.initialize_unfilled())?;
        to.advance(n);
        self.plain = self.plain.saturating_sub(n);
        self.counts();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_encrypt(cx, |writer| writer.write(from))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_encrypt(cx, |writer| writer.write_vectored(from))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let drained = self.poll_drain(cx);
        self.counts();
        drained
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.closed, true) {
            self.session.send_close_notify();
        }
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
