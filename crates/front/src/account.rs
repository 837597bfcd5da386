//! The account of one request, closed when it is dropped: with the end of its answer, or before there is one if the client left.

use std::{rc::Rc, sync::Arc, time::Instant};

use hayate_http::Clock;

use crate::{
    access_log::{AccessLog, Line},
    metrics::SiteMetrics,
};

/// See the module's head.
pub(crate) struct Account {
    started: Instant,
    pub(crate) status: u16,
    /// Bytes of the answer's body.
    pub(crate) sent: u64,
    clock: Rc<Clock>,
    metrics: Option<Arc<SiteMetrics>>,
    pub(crate) log: Option<(AccessLog, Box<Line>)>,
}

/// nginx's statuses for the log when there was no answer: the client left, or was cut off because it took too long.
const CLIENT_LEFT: u16 = 499;
const CLIENT_SLOW: u16 = 408;

impl Account {
    /// Begins it. `clock` knows whether the client was late.
    pub(crate) fn new(
        started: Instant,
        clock: &Rc<Clock>,
        metrics: Option<Arc<SiteMetrics>>,
        log: Option<(AccessLog, Box<Line>)>,
    ) -> Account {
        if let Some(metrics) = &metrics {
            metrics.in_flight.inc();
        }
        Account { started, status: CLIENT_LEFT, sent: 0, clock: Rc::clone(clock), metrics, log }
    }

    /// The client takes no answer.
    pub(crate) fn left(&mut self) {
        self.status = CLIENT_LEFT;
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.status == CLIENT_LEFT {
            if std::thread::panicking() {
                self.status = 500;
            } else if self.clock.is_late() {
                self.status = CLIENT_SLOW;
            }
        }
        // What is cut while the kernel sends a file is not asked any more.
        self.sent = self.sent.max(self.clock.sent());
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
