//! Why a request did not get the answer that was expected.
//!
//! Promises one kind for every way in which an exchange can end badly, so that reports never have an "other".

use std::io;

/// One kind of failure. The order is that of an exchange's life; reports keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// All connections were busy until the shot's time was over; it was never sent. Schedules only.
    Queued,
    /// This machine could not open a connection: no descriptors, ports or memory. The generator's limit, not the server's.
    Local,
    /// The server's machine refused the connection.
    Refused,
    /// The connection could not be made for another reason: no route, reset while connecting.
    Connect,
    /// The connection was not made within the time limit.
    ConnectTimeout,
    /// TLS was not agreed on: the certificate, the versions, or HTTP/2 is not offered. Why is in the report's warnings.
    Tls,
    /// The server reset the connection before the answer was complete.
    Reset,
    /// The server closed the connection without a byte of an answer.
    Closed,
    /// The server closed the connection within an answer.
    Incomplete,
    /// What came is not HTTP, or more than the answer's length said.
    Malformed,
    /// The answer was not complete within the time limit.
    Timeout,
    /// A complete answer with a status that was not expected.
    Status,
    /// A complete answer with the expected status and a body that was not expected.
    Body,
}

impl Failure {
    /// All kinds, in order.
    pub const ALL: [Self; 13] = [
        Self::Queued,
        Self::Local,
        Self::Refused,
        Self::Connect,
        Self::ConnectTimeout,
        Self::Tls,
        Self::Reset,
        Self::Closed,
        Self::Incomplete,
        Self::Malformed,
        Self::Timeout,
        Self::Status,
        Self::Body,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Local => "local",
            Self::Refused => "refused",
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Incomplete => "incomplete",
            Self::Malformed => "malformed",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::Body => "body",
        }
    }

    /// What it means, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Queued => "no connection came free in time, never sent",
            Self::Local => "this machine ran out of ports, descriptors or memory",
            Self::Refused => "connection refused",
            Self::Connect => "connection failed",
            Self::ConnectTimeout => "connection not made in time",
            Self::Tls => "TLS not agreed on, see the warnings",
            Self::Reset => "connection reset by the server",
            Self::Closed => "connection closed without an answer",
            Self::Incomplete => "connection closed within the answer",
            Self::Malformed => "answer is not valid HTTP",
            Self::Timeout => "no complete answer in time",
            Self::Status => "unexpected status",
            Self::Body => "unexpected body",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.name() == name)
    }

    /// Why a connection could not be made.
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        use rustix::io::Errno;
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(
                Errno::MFILE
                | Errno::NFILE
                | Errno::ADDRNOTAVAIL
                | Errno::NOBUFS
                | Errno::NOMEM
                | Errno::AGAIN,
            ) => Self::Local,
            Some(Errno::CONNREFUSED) => Self::Refused,
            Some(Errno::TIMEDOUT) => Self::ConnectTimeout,
            _ => Self::Connect,
        }
    }

    /// Why there is no TLS on a connection that was made.
    pub(crate) fn of_handshake(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Tls,
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::of_exchange(error),
        }
    }

    /// Why an exchange on an open connection broke off.
    pub(crate) fn of_exchange(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Reset,
        }
    }
}
