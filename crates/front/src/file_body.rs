//! The body of an answer that is a file too large to be read at once: block by block, as the client takes them. What is in memory already is
//! read by the serving thread, the rest by those of [`crate::disk`].

use std::{
    io,
    os::unix::fs::FileExt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;

use crate::{
    disk::{Opened, Place, Running},
    near::read_now,
};

/// Bytes read at one time.
pub(crate) const BLOCK: usize = 64 << 10;

/// Part of a file.
pub(crate) struct FileBody {
    file: Arc<Opened>,
    at: u64,
    left: u64,
    place: Arc<Place>,
    reading: Option<Running<io::Result<Vec<u8>>>>,
}

impl FileBody {
    pub(crate) fn new(file: Opened, at: u64, left: u64, place: Arc<Place>) -> FileBody {
        FileBody { file: Arc::new(file), at, left, place, reading: None }
    }

    /// Bytes that are still to come.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes, `most` of them if there are so many; an error when the file has become shorter, or cannot be read.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Bytes>> {
        let read = match &mut self.reading {
            Some(reading) => ready!(Pin::new(reading).poll(cx)).and_then(|read| read),
            None => {
                let mut block = vec![0; self.left.min(most.min(BLOCK) as u64) as usize];
                match read_now(&*self.file, &mut block, self.at) {
                    Ok(n) => {
                        block.truncate(n);
                        Ok(block)
                    }
                    // Not in memory, or the file system cannot say.
                    Err(_) => {
                        let (file, at) = (Arc::clone(&self.file), self.at);
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
                let n = block.len() as u64;
                self.at = self.at.saturating_add(n);
                self.left = self.left.saturating_sub(n);
                Ok(block.into())
            }
            Err(error) => Err(error),
        })
    }
}
