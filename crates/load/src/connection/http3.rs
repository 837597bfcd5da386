//! HTTP/3 by the crates `h3` and `quinn`: several users on one connection, each with one stream at a time.
//!
//! Promises: what [`super::http2`] promises; and that the server meets a client that shares no code with it above QUIC, if it is
//! Hayate. Each connection has a UDP socket of its own, as clients on different machines have: packets of one are never held up by
//! another's. Each handshake is a full one: quinn does not say which resumed a session, and a guess is no figure. Nobody leaves without
//! a word, also at the end of the load: the server would wait for what is not confirmed.

use std::{
    cell::Cell,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use h3::{
    client::{SendRequest, builder},
    error::{Code, StreamError},
};
use h3_quinn::OpenStreams;
use quinn::{Endpoint, crypto::rustls::QuicClientConfig};
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

use super::{
    Answer, Connection, Outcome, Traffic,
    http2::outgoing,
    line::{Line, Shared},
};
use crate::{failure::Failure, request::Request, user::Desk};

/// How a handshake fails for want of a common protocol: TLS's alert no_application_protocol.
const NO_PROTOCOL: u8 = 120;
/// How HTTP/3 says that nothing is wrong (RFC 9114, 8.1).
const NO_ERROR: u32 = 0x100;

/// A connection that is shared, as one user holds it.
#[derive(Clone)]
pub(crate) struct Joint {
    sender: SendRequest<OpenStreams, Bytes>,
    quic: quinn::Connection,
    /// What the users' requests have been charged with so far.
    charged: Rc<Cell<Traffic>>,
    /// The server takes no new requests on it.
    leaving: Rc<Cell<bool>>,
    ended: watch::Receiver<bool>,
}

/// Longest time for the last words at the end of a load.
const FAREWELL: Duration = Duration::from_secs(1);

/// The connections of a generator thread that are open, as far as the end of the load concerns them.
#[derive(Default)]
pub(crate) struct Farewell {
    open: Cell<usize>,
    over: watch::Sender<bool>,
    none: Notify,
}

impl Farewell {
    /// Closes all connections, and returns when their servers have been told.
    pub(crate) async fn say(&self) {
        self.over.send_replace(true);
        let all = async {
            while self.open.get() > 0 {
                self.none.notified().await;
            }
        };
        let _ = timeout(FAREWELL, all).await;
    }
}

/// Tells the recorder when a connection is of no more use.
struct Open(Rc<Desk>);

impl Open {
    fn new(desk: &Rc<Desk>) -> Self {
        desk.recorder.borrow_mut().opened();
        Self(Rc::clone(desk))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.recorder.borrow_mut().closed();
    }
}

/// Tells who says farewell when the server has been told.
struct Told(Rc<Desk>);

impl Told {
    fn new(desk: &Rc<Desk>) -> Self {
        desk.farewell.open.update(|open| open + 1);
        Self(Rc::clone(desk))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.0.farewell.open.update(|open| open.saturating_sub(1));
        self.0.farewell.none.notify_one();
    }
}

impl Shared for Joint {
    fn is_useful(&self) -> bool {
        !self.leaving.get() && !*self.ended.borrow()
    }

    async fn open(desk: &Rc<Desk>) -> Result<Self, Failure> {
        let address = desk.load.requests.address();
        let tls = desk.tls.as_ref().ok_or(Failure::Tls)?;
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let endpoint = Endpoint::client(any).map_err(|error| Failure::of_connect(&error))?;
        let crypto = QuicClientConfig::try_from(Arc::clone(&tls.config)).map_err(|_| Failure::Tls)?;
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        let connecting =
            endpoint.connect_with(config, address, &tls.name.to_str()).map_err(|_| Failure::Connect)?;
        let quic = connecting.await.map_err(|error| match error {
            quinn::ConnectionError::TransportError(error) => {
                // TLS's alerts are the codes from 0x100 on (RFC 9001, 4.8).
                tls.note_failure(&match u64::from(error.code) {
                    code if code == 0x100 + u64::from(NO_PROTOCOL) => {
                        "the server does not offer HTTP/3 (ALPN 'h3')".to_owned()
                    }
                    _ => error.to_string(),
                });
                Failure::Tls
            }
            quinn::ConnectionError::ConnectionClosed(close) => {
                tls.note_failure(&close.to_string());
                Failure::Tls
            }
            quinn::ConnectionError::TimedOut => Failure::ConnectTimeout,
            quinn::ConnectionError::Reset => Failure::Reset,
            _ => Failure::Connect,
        })?;
        tls.note_quic();
        let (open, told) = (Open::new(desk), Told::new(desk));
        desk.recorder.borrow_mut().shook_hands(false);
        let (mut driver, sender) = builder()
            .send_grease(false)
            .build(h3_quinn::Connection::new(quic.clone()))
            .await
            .map_err(|_| Failure::Connect)?;
        let (end, ended) = watch::channel(false);
        let closing = quic.clone();
        let mut over = desk.farewell.over.subscribe();
        tokio::task::spawn_local(async move {
            tokio::select! {
                // Its error, if there is one, reaches the requests.
                _ = driver.wait_idle() => {}
                _ = over.wait_for(|over| *over) => {}
            }
            end.send_replace(true);
            closing.close(quinn::VarInt::from_u32(NO_ERROR), b"");
            drop(open);
            endpoint.wait_idle().await;
            drop(told);
        });
        Ok(Self { sender, quic, charged: Rc::default(), leaving: Rc::default(), ended })
    }
}

impl Joint {
    /// What has gone over it so far: the payload of UDP's datagrams.
    fn meter(&self) -> Traffic {
        let stats = self.quic.stats();
        Traffic { sent: stats.udp_tx.bytes, received: stats.udp_rx.bytes }
    }
}

/// See the module.
pub(crate) struct Http3 {
    shared: Joint,
    keep_alive: bool,
    /// This user's part of what went over the connection.
    traffic: Traffic,
}

impl Connection for Http3 {
    type Line = Line<Joint>;

    async fn open(desk: &Rc<Desk>, line: &Rc<Line<Joint>>) -> Result<Self, Failure> {
        let keep_alive = desk.load.requests.keep_alive();
        let shared = if keep_alive { line.join(desk).await? } else { Joint::open(desk).await? };
        Ok(Self { shared, keep_alive, traffic: Traffic::default() })
    }

    async fn exchange(
        &mut self,
        request: &Request,
        cookies: Option<&str>,
        answer: &mut Answer,
    ) -> Result<Outcome, Failure> {
        let result = self.converse(request, cookies, answer).await;
        // What belongs to no request (handshakes, acknowledgements) and that of the others is charged to who ends first.
        let all = self.shared.meter();
        let new = all - self.shared.charged.replace(all);
        self.traffic = self.traffic + new;
        answer.reusable = self.keep_alive && self.shared.is_useful();
        result
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    async fn ended(&mut self) {
        // An error says that whoever would have told is gone.
        let _ = self.shared.ended.wait_for(|ended| *ended).await;
    }
}

impl Http3 {
    async fn converse(
        &mut self,
        request: &Request,
        cookies: Option<&str>,
        answer: &mut Answer,
    ) -> Result<Outcome, Failure> {
        // Waits while the server allows no more streams.
        let Ok(mut stream) = self.shared.sender.send_request(outgoing(request, cookies)).await else {
            // Nothing of it went over the wire.
            self.shared.leaving.set(true);
            return Ok(Outcome::Unprocessed);
        };
        // The server may answer without having read the body.
        if !request.body.is_empty() {
            let _ = stream.send_data(request.body.clone()).await;
        }
        let _ = stream.finish().await;
        let head = loop {
            match stream.recv_response().await {
                // Early hints; h3 gives them as what they are, answers.
                Ok(response) if response.status().is_informational() => {}
                Ok(response) => break response,
                // The server says that it has not looked at it (RFC 9114, 4.1.1).
                Err(StreamError::RemoteTerminate { code: Code::H3_REQUEST_REJECTED, .. }) => {
                    return Ok(Outcome::Unprocessed);
                }
                Err(error) => return Err(self.failure(&error, false)),
            }
        };
        answer.status = head.status().as_u16();
        for (name, value) in head.headers() {
            answer.header(name.as_str(), value.as_bytes());
        }
        loop {
            match stream.recv_data().await {
                Ok(Some(mut piece)) => {
                    while piece.has_remaining() {
                        let chunk = piece.chunk();
                        let len = chunk.len();
                        answer.push_body(chunk);
                        piece.advance(len);
                    }
                }
                Ok(None) => return Ok(Outcome::Answered),
                Err(error) => return Err(self.failure(&error, true)),
            }
        }
    }

    /// h3's error in our words; what it says of connections is not for others to read, so that is asked of quinn. `begun`: some of the
    /// answer had come.
    fn failure(&self, error: &StreamError, begun: bool) -> Failure {
        match (error, self.shared.quic.close_reason()) {
            (StreamError::RemoteTerminate { .. }, _) | (_, Some(quinn::ConnectionError::Reset)) => {
                Failure::Reset
            }
            // We refuse what it sent.
            (StreamError::StreamError { .. } | StreamError::HeaderTooBig { .. }, _)
            | (_, Some(quinn::ConnectionError::LocallyClosed | quinn::ConnectionError::TransportError(_))) => {
                Failure::Malformed
            }
            (_, Some(quinn::ConnectionError::TimedOut)) => Failure::Timeout,
            _ if begun => Failure::Incomplete,
            _ => Failure::Closed,
        }
    }
}
