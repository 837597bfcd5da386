//! What is to be written: heads and small pieces gathered in one block, large pieces as they are; all of it in few calls.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

use tokio::io::AsyncWrite;

use crate::io::Io;

/// Pieces up to this size are copied: an entry of their own would cost more.
const COPIED: usize = 1 << 10;
/// Pieces given to the kernel at one time.
const SLICES: usize = 16;
/// A larger block is not kept for the next answer.
const KEPT: usize = 64 << 10;

#[derive(Debug)]
enum Piece {
    Text(Range<usize>),
    Data(Bytes),
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
        &mut self.text
    }

    pub(crate) fn data(&mut self, data: Bytes) {
        if data.len() <= COPIED {
            self.text.extend_from_slice(&data);
            return;
        }
        if self.tail < self.text.len() {
            self.pieces.push_back(Piece::Text(self.tail..self.text.len()));
            self.tail = self.text.len();
        }
        self.pieces.push_back(Piece::Data(data));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail >= self.text.len()
    }

    /// Gives memory back that an idle connection does not need.
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            *self = Out::default();
        }
    }

    fn clear(&mut self) {
        self.tail = 0;
        self.text.clear();
        if self.text.capacity() > KEPT {
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

    /// Writes all; `wrote` hears of each piece that went, and of the wait for the next.
    pub(crate) fn poll_flush(
        &mut self,
        io: &mut Io,
        cx: &mut Context<'_>,
        wrote: impl Fn(bool, bool),
    ) -> Poll<io::Result<()>> {
        let mut progress = false;
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
                n => self.advance(n),
            }
            progress = true;
        }
        self.clear();
        wrote(false, progress);
        Poll::Ready(Ok(()))
    }
}
