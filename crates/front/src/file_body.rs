//! The body of an answer that is a file too large to be read at once: block by block, as the client takes them. What is in memory already is
//! read by the serving thread, the rest by those of [`crate::disk`].
//!
//! Where the connection allows it, the kernel sends the file by itself, which spares two copies. It would wait for the disk, though, and does
//! not say that it is about to. So a stretch of a file goes that way only if all of it was found in memory within the present second.

use std::{
    future::poll_fn,
    io,
    ops::Range,
    os::{fd::AsFd, unix::fs::FileExt},
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hayate_http::{Exchange, seconds};

use crate::{
    answer_files::{AnswerFiles, Slot},
    disk::{Opened, Place, Running},
    near::{Access, Meta, read_now},
};

/// Bytes read at one time.
const BLOCK: usize = 64 << 10;

/// Bytes that are looked for in memory at one time, and sent by the kernel: at the speed of memory, some ten microseconds.
const STRETCH: u64 = 256 << 10;

/// Where a file was found, so that it can be opened again.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) root: PathBuf,
    /// Below the root.
    pub(crate) path: Vec<u8>,
    /// What it was then. By this it was found fit to be sent.
    pub(crate) meta: Meta,
    /// See [`Opened`].
    pub(crate) near: bool,
}

impl Source {
    /// May wait. An error if it is no longer the same, or has changed.
    fn open(self, place: Arc<Place>) -> io::Result<Opened> {
        let (file, meta) = Access::Waiting(&self.root).open(&self.path).map_err(|_| gone())?;
        let file = Opened::new(file, self.near, place, None);
        if meta == self.meta { Ok(file) } else { Err(gone()) }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the file is another one now")
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
        let (source, place) = (self.source.clone(), Arc::clone(&self.place));
        let file = Box::pin(self.place.start(move || source.open(place))).await??;
        Ok(self.files.keep(&self.slot, file))
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
            Ok(block) if block.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(block) => {
                self.went(block.len() as u64);
                Ok(block.into())
            }
            Err(error) => Err(error),
        })
    }
}
