//! The event loop of one of the front's threads: tokio's local runtime with the hub's two hooks. A `LocalSet` within a runtime would be a second
//! scheduler inside of the first, and cost each turn of each task a second queue.

use std::{io, sync::Arc};

use hayate_ring::Hub;
use tokio::{
    io::unix::AsyncFd,
    runtime::{Builder, LocalOptions, LocalRuntime},
};

/// A runtime for the present thread, which sleeps and wakes as that thread of the hub. Keep the second as long as the first: it lets the hub wake it.
pub fn build(hub: &Arc<Hub>, thread: u32) -> io::Result<(LocalRuntime, AsyncFd<std::os::fd::OwnedFd>)> {
    let (park, unpark) = (Arc::clone(hub), Arc::clone(hub));
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_keep_alive(std::time::Duration::from_secs(5))
        .on_thread_park(move || park.before_park(thread))
        .on_thread_unpark(move || unpark.after_unpark(thread))
        .build_local(LocalOptions::default())?;
    hub.attach(thread, runtime.handle());
    let watch = hub.watch_own(thread)?;
    Ok((runtime, watch))
}
