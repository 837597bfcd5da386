//! The body of an answer, whatever it is made of, and what has to happen when it is over.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, ReadBuf};

use crate::{
    access_log::{AccessLog, Line},
    connection::State,
    dynamic::Running,
    metrics::SiteMetrics,
};

/// What hyper sends.
pub(crate) struct Body {
    kind: Kind,
    sent: u64,
    finish: Option<Finish>,
}

pub(crate) enum Kind {
    Empty,
    Full(Bytes),
    /// A script that is still answering.
    Running(Box<Running>),
    File {
        file: tokio::fs::File,
        left: u64,
    },
}

/// What is done once the body is over, however it ends.
pub(crate) struct Finish {
    pub(crate) started: Instant,
    pub(crate) status: u16,
    pub(crate) state: Arc<State>,
    pub(crate) metrics: Option<Arc<SiteMetrics>>,
    pub(crate) log: Option<(AccessLog, Box<Line>)>,
}

impl Body {
    pub(crate) fn new(kind: Kind) -> Body {
        Body { kind, sent: 0, finish: None }
    }

    pub(crate) fn finish(&mut self, finish: Finish) {
        self.finish = Some(finish);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let Some(finish) = self.finish.take() else { return };
        finish.state.idle();
        let took = finish.started.elapsed();
        if let Some(metrics) = finish.metrics {
            metrics.in_flight.dec();
            metrics.answered(finish.status, took.as_secs_f64(), self.sent);
        }
        if let Some((log, line)) = finish.log {
            log.write(&line, finish.status, self.sent, took);
        }
    }
}

/// Bytes read from a file at one time.
const BLOCK: usize = 64 << 10;

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
            Kind::Running(running) => ready!(running.poll_body(cx)),
            Kind::File { file, left } => {
                if *left == 0 {
                    None
                } else {
                    let mut block = BytesMut::zeroed(BLOCK.min(*left as usize));
                    let mut buffer = ReadBuf::new(&mut block);
                    match ready!(Pin::new(file).poll_read(cx, &mut buffer)) {
                        Err(error) => Some(Err(error)),
                        Ok(()) => match buffer.filled().len() {
                            0 => Some(Err(io::ErrorKind::UnexpectedEof.into())),
                            n => {
                                *left -= n as u64;
                                block.truncate(n);
                                Some(Ok(block.freeze()))
                            }
                        },
                    }
                }
            }
        };
        Poll::Ready(frame.map(|result| {
            result.map(|bytes| {
                this.sent += bytes.len() as u64;
                Frame::data(bytes)
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty => true,
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::File { left, .. } => *left == 0,
            Kind::Running(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::File { left, .. } => SizeHint::with_exact(*left),
            Kind::Running(_) => SizeHint::default(),
        }
    }
}
