//! HTTP/2 by the `h2` crate: several users on one connection, each with one stream at a time.
//!
//! Promises: users of one line share a connection for as long as the server keeps it, and move on to a new one together when
//! it says that it goes away. A request of which the server says that it has not looked at it is no failure: it is sent again.
//! The connection's own future is a task beside theirs, which is part of why HTTP/2 costs the generator more than HTTP/1.1.

use std::{cell::Cell, future::poll_fn, io, rc::Rc};

use ::h2::{
    Reason,
    client::{Builder, SendRequest},
};
use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::sync::watch;

use super::{
    Answer, Connection, Outcome, Traffic, Transport,
    line::{Line, Shared},
};
use crate::{failure::Failure, request::Request, user::Desk};

/// Bytes of one answer, and of all answers together, that a server may send before it is told that they were read: in the
/// order of what browsers give, so that a download is not limited by the generator.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// A connection that is shared, as one user holds it.
#[derive(Clone)]
pub(crate) struct Joint {
    sender: SendRequest<Bytes>,
    meter: Rc<Cell<Traffic>>,
    /// What the users' requests have been charged with so far.
    charged: Rc<Cell<Traffic>>,
    /// The server takes no new requests on it.
    leaving: Rc<Cell<bool>>,
    ended: watch::Receiver<bool>,
}

impl Shared for Joint {
    fn is_useful(&self) -> bool {
        !self.leaving.get() && !*self.ended.borrow()
    }

    async fn open(desk: &Rc<Desk>) -> Result<Self, Failure> {
        let transport = Transport::open(desk).await?;
        let meter = transport.meter();
        let (sender, connection) = Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .enable_push(false)
            .handshake(transport)
            .await
            .map_err(|_| Failure::Connect)?;
        let (end, ended) = watch::channel(false);
        tokio::task::spawn_local(async move {
            // Its error, if there is one, reaches the requests.
            let _ = connection.await;
            end.send_replace(true);
        });
        Ok(Self { sender, meter, charged: Rc::default(), leaving: Rc::default(), ended })
    }
}

/// See the module.
pub(crate) struct Http2 {
    shared: Joint,
    keep_alive: bool,
    /// This user's part of what went over the connection.
    traffic: Traffic,
}

impl Connection for Http2 {
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
        // Frames that belong to no request (settings, windows) and those of the others are charged to who ends first.
        let all = self.shared.meter.get();
        let new = all - self.shared.charged.replace(all);
        self.traffic.sent += new.sent;
        self.traffic.received += new.received;
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

impl Http2 {
    async fn converse(
        &mut self,
        request: &Request,
        cookies: Option<&str>,
        answer: &mut Answer,
    ) -> Result<Outcome, Failure> {
        let sender = &mut self.shared.sender;
        let bodiless = request.body.is_empty();
        // Waits while the server allows no more streams.
        let sent = match poll_fn(|context| sender.poll_ready(context)).await {
            Ok(()) => sender.send_request(outgoing(request, cookies), bodiless),
            Err(error) => Err(error),
        };
        let Ok((answered, mut upload)) = sent else {
            // Nothing of it went over the wire.
            self.shared.leaving.set(true);
            return Ok(Outcome::Unprocessed);
        };
        if !bodiless {
            // What the server's window does not take yet waits in memory. It may answer without having read it.
            let _ = upload.send_data(request.body.clone(), true);
        }
        let (head, mut body) = match answered.await {
            Ok(response) => response.into_parts(),
            Err(error) if is_unprocessed(&error) => {
                self.shared.leaving.set(error.is_go_away());
                return Ok(Outcome::Unprocessed);
            }
            Err(error) => return Err(failure(&error, false)),
        };
        answer.status = head.status.as_u16();
        for (name, value) in &head.headers {
            answer.header(name.as_str(), value.as_bytes());
        }
        while let Some(piece) = body.data().await {
            let piece = piece.map_err(|error| failure(&error, true))?;
            answer.push_body(&piece);
            body.flow_control().release_capacity(piece.len()).map_err(|error| failure(&error, true))?;
        }
        Ok(Outcome::Answered)
    }
}

pub(super) fn outgoing(request: &Request, cookies: Option<&str>) -> http::Request<()> {
    let mut outgoing = http::Request::new(());
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = request.absolute.clone();
    *outgoing.headers_mut() = request.fields.clone();
    if let Some(Ok(cookies)) = cookies.map(HeaderValue::from_str) {
        outgoing.headers_mut().append(header::COOKIE, cookies);
    }
    outgoing
}

/// Whether the server says that it has not looked at the request (RFC 9113, 6.8 and 8.7).
fn is_unprocessed(error: &::h2::Error) -> bool {
    let refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    let going = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
    error.is_remote() && (refused || going)
}

/// h2's error in our words. `begun`: some of the answer had come.
fn failure(error: &::h2::Error, begun: bool) -> Failure {
    match error.get_io().map(io::Error::kind) {
        Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) | None if error.is_io() => {
            if begun {
                Failure::Incomplete
            } else {
                Failure::Closed
            }
        }
        Some(io::ErrorKind::TimedOut) => Failure::Timeout,
        Some(_) => Failure::Reset,
        // We refuse what it sent, or it refuses what we sent.
        None if error.is_library() => Failure::Malformed,
        None if error.is_remote() => Failure::Reset,
        None if begun => Failure::Incomplete,
        None => Failure::Closed,
    }
}
