//! What a client has confirmed to have. quinn says it of a stream only at its end; who controls its congestion hears of each packet.
//!
//! It promises: nothing but what the client has acknowledged is counted, each packet once. How fast is sent is left to quinn's own algorithm.

use std::{any::Any, sync::Arc, time::Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;

use super::seat::Seat;

/// Makes what controls the congestion of a connection, on each of its ways.
#[derive(Debug)]
pub(super) struct Counting {
    cubic: Arc<CubicConfig>,
    seat: Arc<Seat>,
}

impl Counting {
    pub(super) fn new(seat: &Arc<Seat>) -> Counting {
        Counting { cubic: Arc::default(), seat: Arc::clone(seat) }
    }
}

impl ControllerFactory for Counting {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = Arc::clone(&self.cubic).build(now, current_mtu);
        Box::new(Counted { inner, seat: Arc::clone(&self.seat) })
    }
}

/// quinn's own, which says what was confirmed.
struct Counted {
    inner: Box<dyn Controller>,
    seat: Arc<Seat>,
}

impl Controller for Counted {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.seat.confirm(bytes);
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.inner.on_congestion_event(now, sent, is_persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Counted { inner: self.inner.clone_box(), seat: Arc::clone(&self.seat) })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
