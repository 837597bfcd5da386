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
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hayate_http::{Exchange, seconds};
use tokio::time::{sleep, timeout};

use crate::{
    answer_files::{AnswerFiles, Slot},
    disk::{Opened, PATIENCE, Place},
    near::{Access, Meta, Miss, below, read_now},
    reminder::Reminder,
    shown::Shown,
};

/// Bytes read at one time.
const BLOCK: usize = 64 << 10;

/// Bytes that are looked for in memory at one time, and sent by the kernel: at the speed of memory, some ten microseconds.
const STRETCH: u64 = 256 << 10;

/// How long a block waits for its turn, while others of its place are read.
const TURN: Duration = Duration::from_secs(60);
/// How long to wait before a file is tried again for which there was no descriptor, or no room in the queue of its place.
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
    fn open(&self, place: Arc<Place>) -> io::Result<Opened> {
        let opened = Access::Waiting(&self.root).open(&self.path);
        let (file, meta) = opened.map_err(|miss| match miss {
            Miss::NotThere | Miss::Forbidden => io::ErrorKind::NotFound,
            Miss::Trouble(_) | Miss::Changed | Miss::Wait => io::ErrorKind::WouldBlock,
        })?;
        let file = Opened::new(file, self.near, place, None);
        if meta.has_the_content_of(&self.meta) { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// What a thread needs to read some of a file. The file it does not have: while it waits for a thread it may be closed for others' sake.
struct Job {
    /// Gone with the answer.
    slot: Weak<Slot>,
    files: Arc<AnswerFiles>,
    source: Arc<Source>,
    place: Arc<Place>,
    at: u64,
    most: usize,
}

impl Job {
    /// Reads so many bytes, fewer at the end of the file; opens it again if it has to. May wait. Errors as of [`Source::open`], and of reading.
    fn read(self) -> io::Result<Vec<u8>> {
        let slot = self.slot.upgrade().ok_or(io::ErrorKind::BrokenPipe)?;
        let file = match slot.file() {
            Some(file) => file,
            None => self.files.keep(&slot, self.source.open(self.place)?),
        };
        let mut block = vec![0; self.most];
        let n = loop {
            match file.read_at(&mut block, self.at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        block.truncate(n);
        Ok(block)
    }
}

/// How the kernel says that it does not send a file by itself.
const NOT_STRAIGHT: [io::ErrorKind; 3] =
    [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied];

/// Part of a file.
pub(crate) struct FileBody {
    slot: Arc<Slot>,
    files: Arc<AnswerFiles>,
    source: Arc<Source>,
    at: u64,
    left: u64,
    place: Arc<Place>,
    /// Up to here in the file the kernel does not send it by itself.
    copied: u64,
}

impl FileBody {
    /// `slot`: where the file is kept open.
    pub(crate) fn new(
        slot: Arc<Slot>,
        source: Source,
        at: u64,
        left: u64,
        place: Arc<Place>,
        files: Arc<AnswerFiles>,
    ) -> FileBody {
        FileBody { slot, files, source: Arc::new(source), at, left, place, copied: 0 }
    }

    /// The log hears now and then that an answer is not whole.
    fn breaks_off(&self, among: &Reminder, why: &str) {
        if let Some(times) = among.happened() {
            let path = below(&self.source.root, &self.source.path);
            let path = Shown(path.as_os_str().as_bytes());
            tracing::warn!(times, "the answer with \"{path}\" broke off: {why}");
        }
    }

    fn has_changed(&self) {
        self.breaks_off(
            &self.files.broken_off,
            "the file was replaced, removed or changed while it was being sent; put a new file beside the old one, and remove that when no \
             client needs it",
        );
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
        let mut block = Vec::with_capacity(BLOCK);
        let mut at = start;
        while at < end {
            block.clear();
            match read_now(file, &mut block, BLOCK, at) {
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
        let most = room.min(BLOCK).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let block = match self.read_at_once(most) {
            Some(block) => block,
            None => Box::pin(self.read_by_thread(most)).await?,
        };
        if block.is_empty() {
            self.has_changed();
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.went(block.len() as u64);
        Ok(block.into())
    }

    /// The next bytes, `most` of them if there are so many, if the file is open or can be opened at once, and they are in memory.
    fn read_at_once(&self, most: usize) -> Option<Vec<u8>> {
        let file = match self.slot.file() {
            Some(file) => file,
            None => self.files.keep(&self.slot, self.source.open_now(&self.place)?),
        };
        let mut block = Vec::new();
        read_now(&*file, &mut block, most, self.at).ok()?;
        Some(block)
    }

    /// The same by a thread, within ten seconds from its turn on. An error: the file is another one, or cannot be read, or does not come in that time.
    async fn read_by_thread(&self, most: usize) -> io::Result<Vec<u8>> {
        // Many may need a thread at one time: who finds no room has to wait, or is cut off for what others do. Who came first is first.
        let Ok(_turn) = timeout(TURN, self.place.turn()).await else {
            let why =
                "others' files of the same place were read for a minute; it is slow, or many ask for it";
            self.breaks_off(&self.files.given_up, why);
            return Err(io::ErrorKind::TimedOut.into());
        };
        let read = async {
            loop {
                let job = Job {
                    slot: Arc::downgrade(&self.slot),
                    files: Arc::clone(&self.files),
                    source: Arc::clone(&self.source),
                    place: Arc::clone(&self.place),
                    at: self.at,
                    most,
                };
                let read = self.place.start(move || job.read()).await.and_then(|read| read);
                let again = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
                if !read.as_ref().is_err_and(|error| again.contains(&error.kind())) {
                    return read;
                }
                sleep(PAUSE).await;
                if let Some(block) = self.read_at_once(most) {
                    return Ok(block);
                }
            }
        };
        let read = timeout(PATIENCE, read).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
        match read.as_ref().map_err(|error| (error.kind(), error)) {
            Ok(_) => {}
            Err((io::ErrorKind::NotFound, _)) => self.has_changed(),
            Err((io::ErrorKind::TimedOut, _)) => self.breaks_off(
                &self.files.given_up,
                "for ten seconds the file could be neither opened nor read; does its file system hang, or are too many files open (LimitNOFILE)?",
            ),
            Err((_, error)) => self.breaks_off(&self.files.given_up, &format!("the file cannot be read: {error}")),
        }
        read
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
        FileBody::new(Arc::default(), source, 0, meta.len, Arc::clone(place), AnswerFiles::new(0))
    }

    /// A body of a file that the kernel never reads at once; it is open.
    fn slow(root: &Path, place: &Arc<Place>, files: &Arc<AnswerFiles>) -> FileBody {
        let body = FileBody { files: Arc::clone(files), ..closed(root, place, false) };
        let file = File::open("/proc/self/status").unwrap();
        files.keep(&body.slot, Opened::new(file, true, Arc::clone(place), None));
        body
    }

    /// All threads of a place wait for the end of what is returned, and all room before them is taken, if `full`.
    fn hang(place: &Arc<Place>, full: bool) -> mpsc::Sender<()> {
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let busy = || {
            let gate = Arc::clone(&gate);
            place.send(Box::new(move || {
                let _ = gate.lock().recv();
            }))
        };
        let waiting = if full { WAITING } else { 0 };
        assert!((0..PER_PLACE + waiting).all(|_| busy()) && !(full && busy()), "there is no room");
        release
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
            assert_eq!(closed(&root, &place, true).read_at_once(7).unwrap(), b"aaaaaaa");
        }
    }

    #[tokio::test]
    async fn who_finds_no_room_waits() {
        let (_dir, root) = directory();
        let place = Disk::start(Disk::THREADS).unwrap().place(&root);
        let release = hang(&place, true);
        let body = closed(&root, &place, false);
        let mut reading = Box::pin(body.read_by_thread(7));
        assert!(timeout(Duration::from_millis(50), &mut reading).await.is_err());
        drop(release);
        assert_eq!(reading.await.unwrap(), b"aaaaaaa");
    }

    #[tokio::test]
    async fn what_many_answers_wait_for_leaves_room_for_those_that_begin() {
        let (_dir, root) = directory();
        let place = Disk::start(Disk::THREADS).unwrap().place(&root);
        let release = hang(&place, false);
        let bodies: Vec<_> = (0..2 * WAITING).map(|_| closed(&root, &place, false)).collect();
        let mut reading: Vec<_> = bodies.iter().map(|body| Box::pin(body.read_by_thread(7))).collect();
        for reading in &mut reading {
            assert!(timeout(Duration::ZERO, reading).await.is_err());
        }
        let newcomer = place.start(|| 7);
        drop(release);
        assert_eq!(newcomer.await.unwrap(), 7);
        for reading in reading {
            assert_eq!(reading.await.unwrap(), b"aaaaaaa");
        }
    }

    #[tokio::test]
    async fn what_waits_for_a_thread_has_nothing_open() {
        let (_dir, root) = directory();
        let place = Disk::start(Disk::THREADS).unwrap().place(&root);
        let release = hang(&place, false);
        let files = AnswerFiles::new(0);
        let bodies: Vec<_> = (0..100).map(|_| slow(&root, &place, &files)).collect();
        let mut reading: Vec<_> = bodies.iter().map(|body| Box::pin(body.read_by_thread(7))).collect();
        for reading in &mut reading {
            assert!(timeout(Duration::ZERO, reading).await.is_err());
        }
        let more: Vec<_> = (0..100).map(|_| slow(&root, &place, &files)).collect();
        assert!(files.open() <= 4, "{} are open", files.open());
        drop(release);
        // Each is opened again.
        for reading in reading {
            assert_eq!(reading.await.unwrap(), b"aaaaaaa");
        }
        drop(more);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_ten_seconds() {
        let (_dir, root) = directory();
        let place = Disk::start(Disk::THREADS).unwrap().place(&root);
        let release = hang(&place, true);
        let began = tokio::time::Instant::now();
        let body = closed(&root, &place, false);
        let reading = async { (body.read_by_thread(7).await, began.elapsed()) };
        // There is room before it is over, and a thread never.
        let room = async {
            sleep(PATIENCE / 2).await;
            release.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        };
        let ((read, waited), ()) = tokio::join!(reading, room);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(waited <= PATIENCE + PAUSE, "{waited:?}");
    }

    #[tokio::test]
    async fn another_file_is_one_with_other_content() {
        let (_dir, root) = directory();
        let place = Disk::start(Disk::THREADS).unwrap().place(&root);
        let body = closed(&root, &place, false);
        let again = closed(&root, &place, false);
        fs::set_permissions(root.join("a"), Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(root.join("a"), root.join("backup")).unwrap();
        assert!(body.read_by_thread(7).await.is_ok());
        fs::write(root.join("b"), [b'b'; 100_000]).unwrap();
        fs::rename(root.join("b"), root.join("a")).unwrap();
        assert_eq!(again.read_by_thread(7).await.unwrap_err().kind(), io::ErrorKind::NotFound);
        let written = closed(&root, &place, false);
        tokio::time::sleep(Duration::from_millis(20)).await;
        fs::write(root.join("a"), [b'c'; 100_000]).unwrap();
        assert_eq!(written.read_by_thread(7).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
