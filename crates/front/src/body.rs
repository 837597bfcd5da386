//! The body of an answer, whatever it is made of, and what has to happen when it is over.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::{
    access_log::{AccessLog, Line},
    file_body::FileBody,
    metrics::SiteMetrics,
    promise::Promise,
    relay::Relay,
    state::State,
};

/// What hyper sends.
pub(crate) struct Body {
    kind: Kind,
    promise: Option<Promise>,
    finish: Option<Finish>,
}

pub(crate) enum Kind {
    Empty,
    Full(Bytes),
    /// A script that is still answering.
    Script(Relay),
    File(FileBody),
}

/// The account of one request, closed when this is dropped: with the answer's body, or before there is one if the client left.
pub(crate) struct Finish {
    started: Instant,
    pub(crate) status: u16,
    sent: u64,
    state: Arc<State>,
    metrics: Option<Arc<SiteMetrics>>,
    pub(crate) log: Option<(AccessLog, Box<Line>)>,
}

/// nginx's statuses for the log when there was no answer: the client left, or was cut off because it took too long.
const CLIENT_LEFT: u16 = 499;
const CLIENT_SLOW: u16 = 408;

impl Finish {
    /// Begins the account.
    pub(crate) fn new(
        started: Instant,
        state: Arc<State>,
        metrics: Option<Arc<SiteMetrics>>,
        log: Option<(AccessLog, Box<Line>)>,
    ) -> Finish {
        if let Some(metrics) = &metrics {
            metrics.in_flight.inc();
        }
        Finish { started, status: CLIENT_LEFT, sent: 0, state, metrics, log }
    }
}

impl Body {
    pub(crate) fn new(kind: Kind) -> Body {
        Body { kind, promise: None, finish: None }
    }

    /// With the length that the script has said; the answer's Content-Length has to say the same.
    pub(crate) fn promised(kind: Kind, promise: Promise) -> Body {
        Body { kind, promise: Some(promise), finish: None }
    }

    pub(crate) fn finish(&mut self, finish: Finish) {
        self.finish = Some(finish);
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        self.state.finished();
        if self.status == CLIENT_LEFT {
            if std::thread::panicking() {
                self.status = 500;
            } else if self.state.is_late() {
                self.status = CLIENT_SLOW;
            }
        }
        let took = self.started.elapsed();
        if let Some(metrics) = &self.metrics {
            metrics.in_flight.dec();
            metrics.answered(self.status, took.as_secs_f64(), self.sent);
        }
        if let Some((log, line)) = &self.log {
            log.write(line, self.status, self.sent, took);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let frame = match &mut this.kind {
            Kind::Empty => None,
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                this.kind = Kind::Empty;
                (!bytes.is_empty()).then_some(Ok(bytes))
            }
            Kind::Script(relay) => ready!(relay.poll_next(cx)),
            Kind::File(file) => ready!(file.poll_next(cx)),
        };
        let frame = match &mut this.promise {
            Some(promise) => ready!(promise.keep(frame, cx)),
            None => frame,
        };
        Poll::Ready(frame.map(|result| {
            result.map(|bytes| {
                if let Some(finish) = &mut this.finish {
                    finish.sent += bytes.len() as u64;
                }
                Frame::data(bytes)
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        if self.promise.as_ref().is_some_and(Promise::is_open) {
            return false;
        }
        match &self.kind {
            Kind::Empty => true,
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::File(file) => file.left() == 0,
            Kind::Script(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        if self.promise.is_some() {
            // hyper goes by the header.
            return SizeHint::default();
        }
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::File(file) => SizeHint::with_exact(file.left()),
            Kind::Script(_) => SizeHint::default(),
        }
    }
}
