//! The body of an answer that is a file too large to be read at once: block by block, as the client takes them. What is in memory already is
//! read by the serving thread, the rest by those of [`crate::disk`].
//!
//! Where the connection allows it, the kernel sends the file by itself, which spares two copies. It would wait for the disk, though, and does
//! not say that it is about to. So a stretch of a file goes that way only if all of it was found in memory within the present second.

use std::{
    future::poll_fn,
    io,
    ops::Range,
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use hayate_http::{Exchange, seconds};

use crate::{
    answer_files::{AnswerFiles, Slot},
    disk::{Opened, PATIENCE, Place, Running},
    near::{Access, Meta, Miss, below, read_now},
    shown::Shown,
};

/// Bytes read at one time.
const BLOCK: usize = 64 << 10;

/// Bytes that are looked for in memory at one time, and sent by the kernel: at the speed of memory, some ten microseconds.
const STRETCH: u64 = 256 << 10;

/// How long to wait before a file is opened again for which there was no descriptor, or no room in the queue of its place.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a file was found, so that it can be opened again.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) root: PathBuf,
    /// Below the root.
    pub(crate) path: Vec<u8>,
    /// What it was then, when it was found fit to be sent.
    pub(crate) meta: Meta,
    /// See [`Opened`].
    pub(crate) near: bool,
}

impl Source {
    /// If it is the same yet, and that can be told at once.
    fn open_now(&self, place: &Arc<Place>) -> Option<Opened> {
        let near = self.near && self.root == place.path();
        let root = if near { place.near().root(place.path())? } else { return None };
        let (file, meta) = Access::Now(&root).open(&self.path).ok()?;
        meta.has_the_content_of(&self.meta).then(|| Opened::new(file, true, Arc::clone(place), None))
    }

    /// May wait. An error: `NotFound` if it is no longer the same, or has changed; `WouldBlock` if it could not be opened this time.
    fn open(self, place: Arc<Place>) -> io::Result<Opened> {
        let opened = Access::Waiting(&self.root).open(&self.path);
        let (file, meta) = opened.map_err(|miss| match miss {
            Miss::NotThere | Miss::Forbidden => io::ErrorKind::NotFound,
            Miss::Failed | Miss::Changed | Miss::Wait => io::ErrorKind::WouldBlock,
        })?;
        let file = Opened::new(file, self.near, place, None);
        if meta.has_the_content_of(&self.meta) { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// How the kernel says that it does not send a file by itself.
const NOT_STRAIGHT: [io::ErrorKind; 3] =
    [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied];

/// Part of a file.
pub(crate) struct FileBody {
    slot: Arc<Slot>,
    files: Arc<AnswerFiles>,
    source: Source,
    at: u64,
    left: u64,
    place: Arc<Place>,
    reading: Option<Running<io::Result<Vec<u8>>>>,
    /// Up to here in the file the kernel does not send it by itself.
    copied: u64,
}

impl FileBody {
    pub(crate) fn new(
        file: Opened,
        source: Source,
        at: u64,
        left: u64,
        place: Arc<Place>,
        files: Arc<AnswerFiles>,
    ) -> FileBody {
        let slot = Arc::default();
        files.keep(&slot, file);
        FileBody { slot, files, source, at, left, place, reading: None, copied: 0 }
    }

    /// The file, opened again if it was closed for others' sake.
    async fn file(&mut self) -> io::Result<Arc<Opened>> {
        if let Some(file) = self.slot.file() {
            return Ok(file);
        }
        // Many may be opened again at one time: who finds no room has to wait, or is cut off for what others do.
        let last = Instant::now() + PATIENCE;
        let file = loop {
            if let Some(file) = self.source.open_now(&self.place) {
                break file;
            }
            let (source, place) = (self.source.clone(), Arc::clone(&self.place));
            match Box::pin(self.place.start(move || source.open(place))).await.and_then(|opened| opened) {
                Ok(file) => break file,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if Instant::now() < last => {
                        tokio::time::sleep(PAUSE).await;
                    }
                    io::ErrorKind::NotFound => {
                        self.breaks_off();
                        return Err(error);
                    }
                    _ => return Err(error),
                },
            }
        };
        Ok(self.files.keep(&self.slot, file))
    }

    /// The file has changed: the log hears of it now and then.
    fn breaks_off(&self) {
        if let Some(times) = self.files.broken_off.happened() {
            let path = below(&self.source.root, &self.source.path);
            let path = Shown(path.as_os_str().as_bytes());
            tracing::warn!(
                times,
                "the answer with \"{path}\" broke off: the file was replaced, removed or changed while it was being sent; put a new file \
                 beside the old one, and remove that when no client needs it"
            );
        }
    }

    /// Bytes that are still to come.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Sends the next bytes: a block or a stretch, and flushes them. An error: the file has become shorter, or cannot be read, or the client is
    /// gone.
    pub(crate) async fn send(&mut self, exchange: &mut Exchange<'_>) -> io::Result<()> {
        // The first block goes in one call with the head, and for a last one a look costs as much as it spares.
        let straight = exchange.sent() > 0 && self.left > BLOCK as u64 && self.at >= self.copied;
        if straight && exchange.takes_files() {
            match poll_fn(|cx| self.poll_straight(cx, exchange)).await {
                // This kind of file, or this kernel, or what filters calls of the kernel, does not allow it.
                Some(Err(error)) if NOT_STRAIGHT.contains(&error.kind()) => self.copied = u64::MAX,
                Some(sent) => return sent,
                // Blocks may be small, when memory is short: not a look for each.
                None => self.copied = self.stretch().end,
            }
        }
        let block = self.next(exchange).await?;
        exchange.send(block);
        poll_fn(|cx| exchange.poll_flush(cx)).await
    }

    /// Has the kernel send the present stretch. `None`: it is not in memory, or not open.
    fn poll_straight(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange<'_>,
    ) -> Poll<Option<io::Result<()>>> {
        // Each time anew: a client may take its time.
        let Some(file) = self.slot.file() else { return Poll::Ready(None) };
        let Some(end) = self.stretch_in_memory(&file) else { return Poll::Ready(None) };
        let mut at = self.at;
        let sent = exchange.poll_send_file(cx, file.as_fd(), &mut at, end);
        self.went(at.saturating_sub(self.at));
        sent.map(Some)
    }

    /// The stretch of the file that the next byte is in.
    fn stretch(&self) -> Range<u64> {
        let from = self.at / STRETCH * STRETCH;
        from..from.saturating_add(STRETCH)
    }

    /// Where the present stretch ends, or what is sent of it, if all of it is in memory.
    fn stretch_in_memory(&self, file: &Opened) -> Option<u64> {
        let Range { start, end } = self.stretch();
        let (warm, began) = (&self.place.near().warm, seconds());
        let wanted = end.min(self.at.saturating_add(self.left));
        let stretch = (self.source.meta.id, start);
        if warm.has(&stretch) {
            return Some(wanted);
        }
        // What is not remembered would be looked at each time that the client takes some of it; and of a stretch that is not wanted to its end
        // more would be read than is sent.
        if !warm.has_room() || wanted < end.min(self.source.meta.len) {
            return None;
        }
        let mut block = vec![0; BLOCK];
        let mut at = start;
        while at < end {
            match read_now(file, &mut block, at) {
                Ok(0) if at >= wanted => break,
                Ok(n @ 1..) => at = at.saturating_add(n as u64),
                // Not in memory, or the file system cannot say, or the file has become shorter.
                _ => return None,
            }
        }
        warm.add(stretch, began);
        // Unless others were faster, or a second is over.
        warm.has(&stretch).then_some(wanted)
    }

    fn went(&mut self, bytes: u64) {
        self.at = self.at.saturating_add(bytes);
        self.left = self.left.saturating_sub(bytes);
    }

    /// Reads the next block, but not before the client can take some of it: as much of it as memory allows. Errors as of [`FileBody::send`].
    pub(crate) async fn next(&mut self, exchange: &mut Exchange<'_>) -> io::Result<Bytes> {
        let most = exchange.clock().holding().ready(BLOCK);
        let most = most.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let room = poll_fn(|cx| exchange.poll_room(cx, most)).await?;
        let file = self.file().await?;
        poll_fn(|cx| self.poll_next(cx, &file, room)).await
    }

    /// The next bytes, `most` of them if there are so many; an error when the file has become shorter, or cannot be read.
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        file: &Arc<Opened>,
        most: usize,
    ) -> Poll<io::Result<Bytes>> {
        let read = match &mut self.reading {
            Some(reading) => ready!(Pin::new(reading).poll(cx)).and_then(|read| read),
            None => {
                let mut block = vec![0; self.left.min(most.min(BLOCK) as u64) as usize];
                match read_now(&**file, &mut block, self.at) {
                    Ok(n) => {
                        block.truncate(n);
                        Ok(block)
                    }
                    // Not in memory, or the file system cannot say.
                    Err(_) => {
                        let (file, at) = (Arc::clone(file), self.at);
                        let reading = self.reading.insert(self.place.start(move || {
                            let n = file.read_at(&mut block, at)?;
                            block.truncate(n);
                            Ok(block)
                        }));
                        ready!(Pin::new(reading).poll(cx)).and_then(|read| read)
                    }
                }
            }
        };
        self.reading = None;
        Poll::Ready(match read {
            Ok(block) if block.is_empty() => {
                self.breaks_off();
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(block) => {
                self.went(block.len() as u64);
                Ok(block.into())
            }
            Err(error) => Err(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, Permissions},
        os::unix::fs::PermissionsExt,
        path::Path,
        sync::mpsc,
    };

    use parking_lot::Mutex;
    use rustix::fs::fstat;

    use super::*;
    use crate::disk::{Disk, PER_PLACE, WAITING};

    /// A body of the file `a` there, which was closed for others' sake.
    fn closed(root: &Path, place: &Arc<Place>, near: bool) -> FileBody {
        let file = File::open(root.join("a")).unwrap();
        let meta = Meta::of(&fstat(&file).unwrap());
        let source = Source { root: root.to_owned(), path: b"/a".to_vec(), meta, near };
        let opened = Opened::new(file, true, Arc::clone(place), None);
        let body = FileBody::new(opened, source, 0, meta.len, Arc::clone(place), AnswerFiles::new(0));
        FileBody { slot: Arc::default(), ..body }
    }

    fn directory() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::write(root.join("a"), [b'a'; 100_000]).unwrap();
        (dir, root)
    }

    #[tokio::test]
    async fn what_is_in_memory_needs_no_thread_to_be_opened_again() {
        let (_dir, root) = directory();
        // No thread ever comes.
        let place = Disk::without_threads().place(&root);
        place.near().learn(&root);
        assert!(
            place.near().root(&root).is_some(),
            "tests need TMPDIR on a local file system, and Linux 5.12"
        );
        for _ in 0..2 * WAITING {
            assert!(closed(&root, &place, true).file().await.is_ok());
        }
    }

    #[tokio::test]
    async fn who_finds_no_room_waits() {
        let (_dir, root) = directory();
        let place = Disk::start().unwrap().place(&root);
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let busy = || {
            let gate = Arc::clone(&gate);
            place.send(Box::new(move || {
                let _ = gate.lock().recv();
            }))
        };
        assert!((0..PER_PLACE + WAITING).all(|_| busy()) && !busy(), "there is no room");
        let mut body = closed(&root, &place, false);
        let mut opening = Box::pin(body.file());
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut opening).await.is_err());
        drop(release);
        assert!(opening.await.is_ok());
    }

    #[tokio::test]
    async fn another_file_is_one_with_other_content() {
        let (_dir, root) = directory();
        let place = Disk::start().unwrap().place(&root);
        let mut body = closed(&root, &place, false);
        let mut again = closed(&root, &place, false);
        fs::set_permissions(root.join("a"), Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(root.join("a"), root.join("backup")).unwrap();
        assert!(body.file().await.is_ok());
        fs::write(root.join("b"), [b'b'; 100_000]).unwrap();
        fs::rename(root.join("b"), root.join("a")).unwrap();
        assert_eq!(again.file().await.err().unwrap().kind(), io::ErrorKind::NotFound);
        let mut written = closed(&root, &place, false);
        tokio::time::sleep(Duration::from_millis(20)).await;
        fs::write(root.join("a"), [b'c'; 100_000]).unwrap();
        assert_eq!(written.file().await.err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
