//! Writes a log on a thread of its own: the access log, and Hayate's own on standard error. A full disk, a pipe that nobody reads or a
//! file system that hangs must not hold up requests.
//!
//! It promises never to make a caller wait, and never to hold more than [`QUEUE`] bytes: what does not fit is lost, counted, and spoken of once
//! the log flows again. (tracing-appender's non_blocking was looked at first: it wakes its thread for every line, bounds lines instead of
//! bytes, and can neither reopen its file nor say when all is written.)

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use hayate_panics::caught_now;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::OFlags,
    io::Errno,
    process::geteuid,
};
use tokio::sync::oneshot;

use crate::disk::PATIENCE;

/// Bytes that may wait for the thread.
const QUEUE: usize = 4 << 20;
/// How long a file that cannot be opened is left alone before it is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// What an order costs besides its bytes.
const ORDER: usize = 128;

enum Order {
    Write { block: Vec<u8>, lines: u64 },
    Reopen(oneshot::Sender<io::Result<()>>),
    Report(oneshot::Sender<()>),
}

impl Order {
    fn size(&self) -> usize {
        match self {
            Order::Write { block, .. } => block.len().saturating_add(ORDER),
            Order::Reopen(_) | Order::Report(_) => ORDER,
        }
    }
}

/// What caller and thread share.
#[derive(Default)]
struct Shared {
    /// Bytes of the orders that the thread has not taken.
    waiting: AtomicUsize,
    /// Lines that were lost and that nobody has spoken of.
    lost: AtomicU64,
    lost_ever: AtomicU64,
}

impl Shared {
    fn lose(&self, lines: u64) {
        self.lost.fetch_add(lines, Relaxed);
        self.lost_ever.fetch_add(lines, Relaxed);
    }
}

/// The caller's end. Once it is dropped, the thread writes what it was given before and ends.
pub struct LogWriter {
    orders: Sender<Order>,
    shared: Arc<Shared>,
    pub(crate) path: Option<PathBuf>,
}

/// It may wait for a disk, and not for somebody who reads a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().append(true).create(true).custom_flags(flags).open(path).map_err(|e| {
        let (shown, user) = (path.display(), geteuid().as_raw());
        let remedy = match e.raw_os_error() {
            Some(error) if error == Errno::NXIO.raw_os_error() => {
                "it is a pipe that nobody reads, or a socket; start what reads the pipe first, or name a file".to_owned()
            }
            _ => format!(
                "access_log names a file that the front's user (uid {user}) may write, in a directory that is there"
            ),
        };
        io::Error::new(e.kind(), format!("cannot open the access log {shown}: {e}; {remedy}"))
    })
}

/// A log in messages: its file, or `-` for standard output.
fn named(path: Option<&Path>) -> impl fmt::Display {
    path.unwrap_or(Path::new("-")).display()
}

/// The log at `path` was not opened within [`PATIENCE`].
fn hangs(path: &Path) -> io::Error {
    let why = format!(
        "cannot open the access log {}: its file system does not answer; repair that, or name a file elsewhere",
        path.display()
    );
    io::Error::new(ErrorKind::TimedOut, why)
}

/// A stream of the process as a file, so that no lock of the standard library's is held while it is written to.
fn stream(of: impl AsFd) -> io::Result<File> {
    Ok(File::from(of.as_fd().try_clone_to_owned()?))
}

impl LogWriter {
    /// Appends to a file, made if needed, which is opened again when asked. Its thread opens it: a file system that hangs costs that one.
    pub(crate) async fn file(path: &Path) -> io::Result<LogWriter> {
        let (tell, opened) = oneshot::channel();
        let of_thread = path.to_owned();
        let opens = move || match open(&of_thread) {
            // Nobody writes to what comes too late: the thread ends.
            Ok(file) => tell.send(Ok(())).is_ok().then_some(Some(file)),
            Err(error) => {
                let _ = tell.send(Err(error));
                None
            }
        };
        let writer = LogWriter::start(opens, Some(path.to_owned()), false)?;
        match tokio::time::timeout(PATIENCE, opened).await {
            Ok(Ok(opened)) => opened.map(|()| writer),
            Ok(Err(_)) => Err(io::Error::other("the thread of the access log has ended")),
            Err(_) => Err(hangs(path)),
        }
    }

    /// The same for who has to go on whatever becomes of the log: does not wait for it. As long as it cannot be opened lines are lost, and now and
    /// then it is tried again.
    pub(crate) fn file_in_time(path: &Path) -> io::Result<LogWriter> {
        let of_thread = path.to_owned();
        let opens = move || {
            let opened = open(&of_thread);
            let missed = |error| {
                tracing::error!("{error}; lines of it are lost until then, all else is served on");
            };
            Some(opened.map_err(missed).ok())
        };
        LogWriter::start(opens, Some(path.to_owned()), false)
    }

    /// Writes to standard output.
    pub(crate) fn stdout() -> io::Result<LogWriter> {
        let to = stream(io::stdout())?;
        LogWriter::start(|| Some(Some(to)), None, false)
    }

    /// Writes Hayate's own log to standard error; what is lost of it is said in it, for nobody else would.
    pub fn stderr() -> io::Result<LogWriter> {
        let to = stream(io::stderr())?;
        LogWriter::start(|| Some(Some(to)), None, true)
    }

    /// `to`: what is written to, which may not be open yet; `None`: there is nothing to do.
    fn start(
        to: impl FnOnce() -> Option<Option<File>> + Send + 'static,
        path: Option<PathBuf>,
        own: bool,
    ) -> io::Result<LogWriter> {
        let (orders, queue) = channel();
        let shared = Arc::new(Shared::default());
        let (of_thread, theirs) = (path.clone(), Arc::clone(&shared));
        thread::Builder::new().name("log".into()).spawn(move || {
            if let Some(to) = to() {
                let (failing, tried) = (to.is_none(), Instant::now());
                Thread {
                    to,
                    tried,
                    path: of_thread,
                    shared: theirs,
                    own,
                    failing,
                    rest: Vec::new(),
                    length: None,
                }
                .run(&queue);
            }
        })?;
        Ok(LogWriter { orders, shared, path })
    }

    /// `false`: it does not fit, or the thread is gone.
    fn order(&self, order: Order) -> bool {
        let size = order.size();
        let room = |waiting: usize| waiting.checked_add(size).filter(|waiting| *waiting <= QUEUE);
        self.shared.waiting.fetch_update(Relaxed, Relaxed, room).is_ok() && self.orders.send(order).is_ok()
    }

    /// Hands over a block of whole lines.
    pub fn write(&self, block: Vec<u8>, lines: u64) {
        if !self.order(Order::Write { block, lines }) {
            self.shared.lose(lines);
        }
    }

    /// Bytes that wait for the thread.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Relaxed)
    }

    /// Whether all that was handed over is written, or was tried to.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting() == 0
    }

    /// Lines lost since the last call, here or because they could not be written.
    pub(crate) fn take_lost(&self) -> u64 {
        self.shared.lost.swap(0, Relaxed)
    }

    /// Lines lost since the start.
    pub fn lost(&self) -> u64 {
        self.shared.lost_ever.load(Relaxed)
    }

    /// Opens the file again, after what was handed over before is written.
    pub(crate) async fn reopen(&self) -> io::Result<()> {
        let (reply, done) = oneshot::channel();
        let stalled = || {
            io::Error::other(format!(
                "the access log {} is stalled: what it is written to takes nothing",
                named(self.path.as_deref())
            ))
        };
        if !self.order(Order::Reopen(reply)) {
            return Err(stalled());
        }
        tokio::time::timeout(PATIENCE, done).await.map_err(|_| stalled())?.unwrap_or_else(|_| Err(stalled()))
    }

    /// Waits until everything handed over so far is written, or was tried to; `false` when that takes longer than `limit`.
    pub async fn written(&self, limit: Duration) -> bool {
        let ask = async {
            loop {
                let (reply, done) = oneshot::channel();
                if self.order(Order::Report(reply)) {
                    // An error means that the thread is gone, and with it the hope.
                    let _ = done.await;
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(limit, ask).await.is_ok()
    }
}

struct Thread {
    /// `None`: it could not be opened so far; when it was last tried.
    to: Option<File>,
    tried: Instant,
    path: Option<PathBuf>,
    shared: Arc<Shared>,
    /// It is the log to which everything here speaks.
    own: bool,
    failing: bool,
    /// What the file still wants of a line that it has the beginning of: what comes next would stand behind that.
    rest: Vec<u8>,
    /// How long the file was then.
    length: Option<u64>,
}

impl Thread {
    fn run(&mut self, queue: &Receiver<Order>) {
        for order in queue {
            let size = order.size();
            // Who waits for an answer learns of a panic by the end of the channel.
            let _ = caught_now(|| match order {
                Order::Write { block, lines } => self.write(&block, lines),
                // Whoever asked may have stopped waiting.
                Order::Reopen(reply) => drop(reply.send(self.reopen())),
                Order::Report(reply) => drop(reply.send(())),
            });
            self.shared.waiting.fetch_sub(size, Relaxed);
        }
    }

    fn write(&mut self, block: &[u8], lines: u64) {
        match self.write_whole_lines(block) {
            Ok(()) => {
                if std::mem::take(&mut self.failing) && !self.own {
                    tracing::info!("the access log {} can be written again", named(self.path.as_deref()));
                }
                if self.own && self.shared.lost.load(Relaxed) > 0 {
                    let lines = self.shared.lost.swap(0, Relaxed);
                    tracing::warn!(
                        lines,
                        "lines of this log were lost: what it is written to took nothing for a while"
                    );
                }
            }
            Err(Cut { kept, error }) => {
                self.shared.lose(lines.saturating_sub(kept));
                if !std::mem::replace(&mut self.failing, true) && !self.own {
                    tracing::error!(
                        "the access log {} cannot be written, lines are being lost: {error}",
                        named(self.path.as_deref())
                    );
                }
            }
        }
    }

    fn opened(&mut self) -> io::Result<&mut File> {
        if self.to.is_none() && self.tried.elapsed() >= AGAIN {
            self.tried = Instant::now();
            self.reopen()?;
        }
        self.to.as_mut().ok_or_else(|| io::Error::other("it could not be opened"))
    }

    /// A line that is cut in the middle, since the disk is full, goes on once there is room.
    fn write_whole_lines(&mut self, block: &[u8]) -> Result<(), Cut> {
        let mut rest = std::mem::take(&mut self.rest);
        // Somebody has emptied or shortened the file, or another front writes there, too: that line is not at its end any more.
        if !rest.is_empty() && self.length() != self.length {
            rest.clear();
            self.shared.lose(1);
        }
        let mut written = 0;
        if !rest.is_empty()
            && let Err(error) = self.write_all(&rest, &mut written)
        {
            self.rest = rest.get(written..).unwrap_or_default().to_vec();
            self.length = self.length();
            return Err(Cut { kept: 0, error });
        }
        written = 0;
        let Err(error) = self.write_all(block, &mut written) else { return Ok(()) };
        let (before, after) = block.split_at_checked(written).unwrap_or((block, &[]));
        if before.last().is_some_and(|last| *last != b'\n') {
            self.rest = after.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default().to_vec();
            self.length = self.length();
        }
        let ends = before.iter().filter(|byte| **byte == b'\n').count() as u64;
        Err(Cut { kept: ends.saturating_add(u64::from(!self.rest.is_empty())), error })
    }

    /// Of what is written to, if it is a file.
    fn length(&self) -> Option<u64> {
        self.to.as_ref()?.metadata().ok().filter(|of| of.is_file()).map(|of| of.len())
    }

    /// `written`: how far it has come, also where it comes no further.
    fn write_all(&mut self, block: &[u8], written: &mut usize) -> io::Result<()> {
        let to = self.opened()?;
        while let Some(left) = block.get(*written..).filter(|left| !left.is_empty()) {
            match to.write(left) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => *written = written.saturating_add(n),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Somebody who shares the terminal or pipe has made it so.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(to, PollFlags::OUT)], None)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            let file = open(path)?;
            let which = |file: &File| file.metadata().map(|of| (of.dev(), of.ino())).ok();
            // Another file has not the beginning of that line.
            if self.to.as_ref().and_then(which) != which(&file) && !std::mem::take(&mut self.rest).is_empty()
            {
                self.shared.lose(1);
            }
            self.to = Some(file);
        }
        Ok(())
    }
}

/// Not all of a block could be written: how many of its lines were, and why no more.
struct Cut {
    kept: u64,
    error: io::Error,
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_costs_lines_and_no_time() {
        let (mut reader, writer) = io::pipe().unwrap();
        let to = stream(&writer).unwrap();
        let log = LogWriter::start(|| Some(Some(to)), None, false).unwrap();
        drop(writer);
        let lines = 3 * QUEUE / 1000;
        for _ in 0..lines {
            log.write([&[b'x'; 999][..], b"\n"].concat(), 1);
        }
        let lost = log.take_lost();
        assert!(lost > 0 && lost == log.lost() && lost < lines as u64, "{lost} of {lines}");
        drop(log);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(got.len() as u64, (lines as u64 - lost) * 1000);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_opened_yet_costs_lines_until_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not yet/log");
        let log = LogWriter::file_in_time(&path).unwrap();
        log.write(b"lost\n".to_vec(), 1);
        assert!(log.written(Duration::from_secs(60)).await);
        assert_eq!(log.take_lost(), 1);
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        // By itself after a while, and at once when asked to.
        log.reopen().await.unwrap();
        log.write(b"kept\n".to_vec(), 1);
        assert!(log.written(Duration::from_secs(60)).await);
        assert_eq!((std::fs::read(&path).unwrap(), log.take_lost()), (b"kept\n".to_vec(), 0));
    }

    #[tokio::test]
    async fn a_pipe_without_a_reader_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let error = LogWriter::file(&path).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("a pipe that nobody reads") && error.contains("name a file"), "{error}");
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut reader = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
        let log = LogWriter::file(&path).await.unwrap();
        log.write(b"a line\n".to_vec(), 1);
        assert!(log.written(Duration::from_secs(5)).await);
        let mut line = [0; 7];
        reader.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"a line\n");
        drop(reader);
        assert!(log.reopen().await.is_err(), "nobody reads any more");
    }
}
