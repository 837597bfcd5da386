//! The sockets that HTTP runs on, as one type: what is above is compiled once.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

/// A connected socket.
#[derive(Debug)]
pub enum Io {
    /// TCP.
    Tcp(TcpStream),
    /// A unix stream socket.
    Unix(UnixStream),
}

/// The same call for whichever it is.
macro_rules! each {
    ($io:expr, $stream:ident => $call:expr) => {
        match $io {
            Io::Tcp($stream) => $call,
            Io::Unix($stream) => $call,
        }
    };
}

impl Io {
    /// Whether something can be read; holds no buffer meanwhile.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read_ready(cx))
    }
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
        each!(&mut *self, stream => Pin::new(stream).poll_write(cx, from))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match from {
            [one] => self.poll_write(cx, one),
            _ => each!(&mut *self, stream => Pin::new(stream).poll_write_vectored(cx, from)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut *self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut *self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
