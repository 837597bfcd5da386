//! Writes the access log's blocks, on a thread of its own: a full disk or a pipe that nobody reads must not hold up requests.
//!
//! It promises never to make a caller wait: what does not fit its queue is lost, and counted. (tracing-appender's non_blocking was looked at
//! first: it wakes its thread for every line, and can neither reopen its file nor say when all is written.)

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use tokio::sync::oneshot;

/// Blocks that may wait. One is handed over each second, or sooner when 64 KiB are full: at most 4 MiB wait, or a minute.
const QUEUE: usize = 64;

enum Order {
    Write { block: Vec<u8>, lines: u64 },
    Reopen(oneshot::Sender<io::Result<()>>),
    Report(oneshot::Sender<()>),
}

/// The caller's end. Once it is dropped, the thread writes what it was given before and ends.
pub(crate) struct Writer {
    orders: SyncSender<Order>,
    lost: Arc<AtomicU64>,
    pub(crate) path: Option<PathBuf>,
}

pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|e| io::Error::new(e.kind(), format!("cannot open the access log {}: {e}", path.display())))
}

impl Writer {
    /// Starts the thread. `path` is what is opened again when asked; without one, nothing ever is.
    pub(crate) fn start(to: Box<dyn Write + Send>, path: Option<PathBuf>) -> io::Result<Writer> {
        let (orders, queue) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let mut thread = Thread { to, path: path.clone(), lost: Arc::clone(&lost), failing: false };
        thread::Builder::new().name("access-log".into()).spawn(move || thread.run(&queue))?;
        Ok(Writer { orders, lost, path })
    }

    /// Hands over a block of whole lines.
    pub(crate) fn write(&self, block: Vec<u8>, lines: u64) {
        if self.orders.try_send(Order::Write { block, lines }).is_err() {
            self.lost.fetch_add(lines, Relaxed);
        }
    }

    /// Lines lost since the last call, here or because they could not be written.
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Relaxed)
    }

    /// Opens the file again, after what was handed over before is written.
    pub(crate) async fn reopen(&self) -> io::Result<()> {
        let (reply, done) = oneshot::channel();
        let stalled = || io::Error::other("the access log is stalled: what it is written to takes nothing");
        self.orders.try_send(Order::Reopen(reply)).map_err(|_| stalled())?;
        done.await.unwrap_or_else(|_| Err(stalled()))
    }

    /// Waits until everything handed over so far is written, or was tried to; `false` when that takes longer than `limit`.
    pub(crate) async fn written(&self, limit: Duration) -> bool {
        let (reply, done) = oneshot::channel();
        let ask = async {
            let mut order = Order::Report(reply);
            while let Err(TrySendError::Full(again)) = self.orders.try_send(order) {
                order = again;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // An error means that the thread is gone, and with it the hope.
            let _ = done.await;
        };
        tokio::time::timeout(limit, ask).await.is_ok()
    }
}

struct Thread {
    to: Box<dyn Write + Send>,
    path: Option<PathBuf>,
    lost: Arc<AtomicU64>,
    failing: bool,
}

impl Thread {
    fn run(&mut self, queue: &Receiver<Order>) {
        for order in queue {
            match order {
                Order::Write { block, lines } => self.write(&block, lines),
                // Whoever asked may have stopped waiting.
                Order::Reopen(reply) => drop(reply.send(self.reopen())),
                Order::Report(reply) => drop(reply.send(())),
            }
        }
    }

    fn write(&mut self, block: &[u8], lines: u64) {
        match self.to.write_all(block).and_then(|()| self.to.flush()) {
            Ok(()) if self.failing => {
                self.failing = false;
                tracing::info!("the access log can be written again");
            }
            Ok(()) => {}
            Err(error) => {
                self.lost.fetch_add(lines, Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!("the access log cannot be written, lines are being lost: {error}");
                }
            }
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            self.to = Box::new(open(path)?);
        }
        Ok(())
    }
}
