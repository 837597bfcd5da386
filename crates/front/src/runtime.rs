//! The event loop: tokio's current-thread runtime with the hub's two hooks.

use std::{io, sync::Arc};

use hayate_ring::Hub;
use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::{Builder, Runtime},
};

/// A runtime whose thread sleeps and wakes together with the hub's rings. Call [`watch`] on it before anything else.
pub fn build(hub: &Arc<Hub>) -> io::Result<Runtime> {
    let (park, unpark) = (Arc::clone(hub), Arc::clone(hub));
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_keep_alive(std::time::Duration::from_secs(5))
        .on_thread_park(move || park.before_park())
        .on_thread_unpark(move || unpark.after_unpark())
        .build()
}

/// Lets the hub's eventfd wake the runtime. Keep the result as long as the runtime; nothing ever reads from it.
pub fn watch(hub: &Arc<Hub>) -> io::Result<AsyncFd<HubFd>> {
    // SAFETY: HubFd keeps the hub, and so the descriptor, open for as long as it is registered.
    unsafe { AsyncFd::register_with_interest(HubFd(Arc::clone(hub)), Interest::READABLE) }.map_err(Into::into)
}

/// Keeps the hub, and so its descriptor, alive while it is registered.
pub struct HubFd(Arc<Hub>);
impl std::os::fd::AsRawFd for HubFd {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.event_fd().as_raw_fd()
    }
}
