//! What a client has confirmed to have. quinn says it of a stream only at its end; who controls its congestion hears of each packet.
//!
//! It promises: nothing but what the client has acknowledged is counted, each packet once. How fast is sent is left to quinn's own algorithm.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;

/// Makes what controls the congestion of a connection.
#[derive(Debug, Default)]
pub(super) struct Counting(Arc<CubicConfig>);

impl ControllerFactory for Counting {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = Arc::clone(&self.0).build(now, current_mtu);
        Box::new(Counted { inner, confirmed: Arc::default() })
    }
}

/// quinn's own, and the bytes of the packets that were confirmed. Copies count together.
struct Counted {
    inner: Box<dyn Controller>,
    confirmed: Arc<AtomicU64>,
}

impl Controller for Counted {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.confirmed.fetch_add(bytes, Relaxed);
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
        Box::new(Counted { inner: self.inner.clone_box(), confirmed: Arc::clone(&self.confirmed) })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Bytes of the packets that a client has confirmed since its connection, or its present address, began.
pub(super) fn confirmed(connection: &quinn::Connection) -> u64 {
    let counted = connection.congestion_state().into_any().downcast::<Counted>();
    counted.map_or(0, |counted| counted.confirmed.load(Relaxed))
}
