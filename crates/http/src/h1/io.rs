//! The sockets that HTTP/1 runs on, as one type: what is above is compiled once.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::AsyncWrite,
    net::{TcpStream, UnixStream},
};
use tokio_util::io::poll_read_buf;

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
    /// Reads once, into what is free of `to`. 0: the end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, to: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        each!(self, stream => poll_read_buf(Pin::new(stream), cx, to))
    }

    /// Whether something can be read; holds no buffer meanwhile.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read_ready(cx))
    }

    /// Writes some of them.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices {
            [one] => each!(self, stream => Pin::new(stream).poll_write(cx, one)),
            _ => each!(self, stream => Pin::new(stream).poll_write_vectored(cx, slices)),
        }
    }

    /// Says that nothing more will be written.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
