//! The form of a load: when the next request is sent.

use std::time::Duration;

use crate::schedule::Schedule;

/// One of the three forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Open loop: every shot has its moment, whatever the server does, and latency counts from that moment.
    Scheduled(Schedule),
    /// Closed loop: each connection sends its next request when it has the answer to the last (as wrk, ab, siege -b).
    Closed {
        /// Connections, all opened at the start; at least 1.
        connections: usize,
        /// When it ends.
        until: Until,
    },
    /// Virtual users (as JMeter's thread group): thread i of n starts at `i · ramp_up / n`, has a connection of its own,
    /// sends `loops` requests one after the other, and ends.
    Threads {
        /// Virtual users; at least 1.
        threads: usize,
        /// Time over which their starts are spread; 0: all at once.
        ramp_up: Duration,
        /// Requests of each; at least 1.
        loops: u64,
    },
}

/// When a closed loop ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this time. Requests without an answer by then are abandoned, and counted as unfinished, unless the load is to
    /// wait for them.
    Duration(Duration),
    /// When this many requests are done.
    Requests(u64),
}

impl Plan {
    /// Requests that will be sent, as far as it is known beforehand.
    pub fn requests(&self) -> Option<u64> {
        match self {
            Self::Scheduled(schedule) => Some(schedule.shots()),
            Self::Closed { until: Until::Requests(n), .. } => Some(*n),
            Self::Closed { until: Until::Duration(_), .. } => None,
            Self::Threads { threads, loops, .. } => Some(*threads as u64 * loops),
        }
    }

    /// How long it will take, as far as it is known beforehand (answers that are late come on top).
    pub fn duration(&self) -> Option<Duration> {
        match self {
            Self::Scheduled(schedule) => Some(schedule.duration()),
            Self::Closed { until: Until::Duration(duration), .. } => Some(*duration),
            Self::Closed { until: Until::Requests(_), .. } | Self::Threads { .. } => None,
        }
    }
}
