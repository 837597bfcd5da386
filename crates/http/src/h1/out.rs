//! What is to be written: heads and small pieces gathered in one block, large pieces as they are; all of it in few calls.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use smallvec::SmallVec;

use tokio::io::AsyncWrite;

use crate::{
    block::Block,
    io::Io,
    pool::{self, BLOCK},
};

/// Pieces up to this size are copied: an entry of their own would cost more.
const COPIED: usize = 1 << 10;
/// Pieces given to the kernel at one time.
const SLICES: usize = 16;

#[derive(Debug)]
enum Piece {
    Text(Range<usize>),
    Data(Block),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Out {
    text: Vec<u8>,
    /// Before the last run of text, which begins at `tail`.
    pieces: VecDeque<Piece>,
    tail: usize,
}

impl Out {
    /// The block, to be appended to.
    pub(crate) fn text(&mut self) -> &mut Vec<u8> {
        if self.text.capacity() == 0 {
            self.text = pool::take();
        }
        &mut self.text
    }

    pub(crate) fn data(&mut self, data: Bytes) {
        if data.len() <= COPIED {
            self.text().extend_from_slice(&data);
            return;
        }
        if self.tail < self.text.len() {
            self.pieces.push_back(Piece::Text(self.tail..self.text.len()));
            self.tail = self.text.len();
        }
        self.pieces.push_back(Piece::Data(Block::new(data)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail >= self.text.len()
    }

    /// Bytes of memory that are kept for what was not written yet.
    pub(crate) fn size(&self) -> usize {
        let data = self.pieces.iter().map(|piece| match piece {
            Piece::Data(data) => data.kept(),
            Piece::Text(_) => 0,
        });
        // A block of its own counts once something stays in it.
        let text = if self.text.is_empty() { 0 } else { self.text.capacity() };
        data.fold(text, usize::saturating_add)
    }

    /// Gives memory back that an idle connection does not need.
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            self.pieces = VecDeque::new();
            self.tail = 0;
            pool::give(std::mem::take(&mut self.text));
        }
    }

    fn clear(&mut self) {
        self.tail = 0;
        self.text.clear();
        if self.text.capacity() > BLOCK {
            self.text = Vec::new();
        }
    }

    /// So many bytes were written.
    fn advance(&mut self, mut n: usize) {
        while n > 0 {
            match self.pieces.front_mut() {
                Some(Piece::Text(range)) if n < range.len() => {
                    range.start += n;
                    return;
                }
                Some(Piece::Data(data)) if n < data.len() => {
                    data.advance(n);
                    return;
                }
                Some(Piece::Text(range)) => n -= range.len(),
                Some(Piece::Data(data)) => n -= data.len(),
                None => {
                    self.tail = self.tail.saturating_add(n).min(self.text.len());
                    return;
                }
            }
            self.pieces.pop_front();
        }
    }

    /// Writes all; `wrote` hears whether the client is waited for now, and how many bytes went.
    pub(crate) fn poll_flush(
        &mut self,
        io: &mut Io,
        cx: &mut Context<'_>,
        mut wrote: impl FnMut(bool, usize),
    ) -> Poll<io::Result<()>> {
        let mut progress = 0;
        while !self.is_empty() {
            let result = {
                let tail = self.text.get(self.tail..).unwrap_or_default();
                if self.pieces.is_empty() {
                    Pin::new(&mut *io).poll_write(cx, tail)
                } else {
                    let mut slices: SmallVec<[IoSlice<'_>; SLICES]> = SmallVec::new();
                    for piece in self.pieces.iter().take(SLICES - 1) {
                        slices.push(IoSlice::new(match piece {
                            Piece::Text(range) => self.text.get(range.clone()).unwrap_or_default(),
                            Piece::Data(data) => data,
                        }));
                    }
                    if self.pieces.len() < SLICES && !tail.is_empty() {
                        slices.push(IoSlice::new(tail));
                    }
                    Pin::new(&mut *io).poll_write_vectored(cx, &slices)
                }
            };
            if result.is_pending() {
                wrote(true, progress);
            }
            match ready!(result)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => {
                    self.advance(n);
                    progress += n;
                }
            }
        }
        // TLS may hold what it has taken.
        let flushed = Pin::new(&mut *io).poll_flush(cx);
        if flushed.is_pending() {
            wrote(true, progress);
        }
        ready!(flushed)?;
        self.clear();
        wrote(false, progress);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        pool::give(std::mem::take(&mut self.text));
    }
}
