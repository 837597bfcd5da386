//! The way to the server: TCP, or TLS over it.
//!
//! Promises: counts the bytes that go over the wire (with TLS, its records and handshakes), and tells the recorder when it is
//! opened and closed. Must never know what is said over it.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use rustls::{AlertDescription, HandshakeKind, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::Traffic;
use crate::{
    failure::Failure,
    run::Version,
    tls::{Tls, reason},
    user::Desk,
};

/// A socket that counts.
struct Socket {
    stream: TcpStream,
    traffic: Rc<Cell<Traffic>>,
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        let read = (buffer.filled().len() - before) as u64;
        self.traffic.update(|traffic| Traffic { received: traffic.received + read, ..traffic });
        result
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = result {
            self.traffic.update(|traffic| Traffic { sent: traffic.sent + written as u64, ..traffic });
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

/// See the module.
pub(crate) struct Transport {
    stream: Stream,
    traffic: Rc<Cell<Traffic>>,
    desk: Rc<Desk>,
}

impl Transport {
    /// Connects, and agrees on TLS if the load is one over TLS.
    pub(crate) async fn open(desk: &Rc<Desk>) -> Result<Self, Failure> {
        let address = desk.load.requests.address();
        let stream = TcpStream::connect(address).await.map_err(|error| Failure::of_connect(&error))?;
        // A request is written at once; waiting for the acknowledgement of the last would only delay it.
        stream.set_nodelay(true).map_err(|_| Failure::Local)?;
        let traffic = Rc::<Cell<Traffic>>::default();
        let socket = Socket { stream, traffic: Rc::clone(&traffic) };
        let stream = match &desk.tls {
            None => Stream::Plain(socket),
            Some(tls) => Stream::Tls(Box::new(handshake(desk, tls, socket).await?)),
        };
        desk.recorder.borrow_mut().opened();
        Ok(Self { stream, traffic, desk: Rc::clone(desk) })
    }

    /// What has gone over it so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic.get()
    }

    /// The same, for when it belongs to somebody else.
    pub(crate) fn meter(&self) -> Rc<Cell<Traffic>> {
        Rc::clone(&self.traffic)
    }
}

async fn handshake(desk: &Desk, tls: &Tls, socket: Socket) -> Result<TlsStream<Socket>, Failure> {
    let name: ServerName<'static> = tls.name.clone();
    let connector = TlsConnector::from(tls.config.clone());
    let stream = connector.connect(name, socket).await.map_err(|error| {
        match error.get_ref().and_then(|reason| reason.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
                tls.note_failure(no_protocol(desk));
            }
            Some(error) => tls.note_failure(&reason(error)),
            None => {}
        }
        Failure::of_handshake(&error)
    })?;
    let session = stream.get_ref().1;
    if desk.load.version == Version::Http2 && session.alpn_protocol() != Some(b"h2") {
        tls.note_failure(no_protocol(desk));
        return Err(Failure::Tls);
    }
    tls.note_agreement(session);
    let resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
    desk.recorder.borrow_mut().shook_hands(resumed);
    Ok(stream)
}

fn no_protocol(desk: &Desk) -> &'static str {
    match desk.load.version {
        Version::Http2 => "the server does not offer HTTP/2 (ALPN 'h2')",
        _ => "the server does not offer HTTP/1.1 (ALPN 'http/1.1'): load it with --http2",
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.desk.recorder.borrow_mut().closed();
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
