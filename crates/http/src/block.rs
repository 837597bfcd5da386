//! Bytes that wait for a client, and the memory that they keep. A slice of a block keeps all of that block, however little of it is left, so what
//! counts is the block; and a small rest is copied, rather than keep a large block.

use std::{
    ops::{Deref, Range},
    rc::Rc,
};

use bytes::{Buf, Bytes};

use crate::{Hold, Holding};

/// A rest up to this size is copied: that costs less than what it would keep.
const REST: usize = 4 << 10;

/// What is left of a block of memory.
#[derive(Debug, Default)]
pub(crate) struct Block {
    rest: Bytes,
    /// Bytes of memory that this keeps.
    kept: usize,
}

impl Block {
    /// Of a whole block. Much spare room at its end is given back, which means that it is copied.
    pub(crate) fn new(whole: Bytes) -> Block {
        let rest = match whole.try_into_mut() {
            Ok(whole) if whole.capacity() / 2 > whole.len().max(REST / 2) => Bytes::copy_from_slice(&whole),
            Ok(whole) => whole.freeze(),
            Err(shared) => shared,
        };
        Block { kept: rest.len(), rest }
    }

    /// Bytes of memory that it keeps.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// So many bytes of it have gone.
    pub(crate) fn advance(&mut self, n: usize) {
        self.rest.advance(n.min(self.rest.len()));
        self.shrink();
    }

    /// Takes the first bytes away; what they keep is what this kept before.
    fn split_to(&mut self, n: usize) -> Bytes {
        let first = self.rest.split_to(n.min(self.rest.len()));
        self.shrink();
        first
    }

    fn shrink(&mut self) {
        let len = self.rest.len();
        if len <= REST && len < self.kept.div_ceil(2) {
            *self = Block { rest: Bytes::copy_from_slice(&self.rest), kept: len };
        }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.rest
    }
}

/// The same, which counts by itself, together with what was taken away from it.
#[derive(Debug)]
pub(crate) struct Counted {
    block: Block,
    hold: Rc<Hold>,
}

impl Counted {
    pub(crate) fn new(whole: Bytes, of: &Rc<Holding>) -> Counted {
        let block = Block::new(whole);
        Counted { hold: Rc::new(Hold::with(of, block.kept())), block }
    }

    /// Takes the first bytes away, and what is to be held as long as these are.
    pub(crate) fn split_to(&mut self, n: usize) -> (Bytes, Rc<Hold>) {
        let (first, held) = (self.block.split_to(n), Rc::clone(&self.hold));
        if self.block.kept() != held.bytes() {
            self.hold = Rc::new(held.another(self.block.kept()));
        }
        (first, held)
    }
}

impl Deref for Counted {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block
    }
}

/// A part of what is whole, which keeps no more than twice its own size in memory. For what is to be sent: see [`crate::Exchange::send`].
pub fn part(whole: &Bytes, range: Range<usize>) -> Bytes {
    let part = whole.get(range).unwrap_or_default();
    if part.len() < whole.len() / 2 { Bytes::copy_from_slice(part) } else { whole.slice_ref(part) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_counts_as_its_block_and_a_small_rest_is_a_block_of_its_own() {
        let mut block = Block::new(vec![7; 64 << 10].into());
        block.advance(16 << 10);
        assert_eq!((block.len(), block.kept()), (48 << 10, 64 << 10));
        block.advance((48 << 10) - 1);
        assert_eq!((&block[..], block.kept()), (&[7][..], 1));
        block.advance(1);
        assert_eq!((block.len(), block.kept()), (0, 0));
    }

    #[test]
    fn spare_room_is_given_back() {
        let mut spare = Vec::with_capacity(64 << 10);
        spare.extend_from_slice(b"little");
        let at = spare.as_ptr();
        let block = Block::new(spare.into());
        assert!(&block[..] == b"little" && block.as_ptr() != at);
        let whole = vec![1; 64 << 10];
        let at = whole.as_ptr();
        assert_eq!(Block::new(whole.into()).as_ptr(), at, "nothing is copied for nothing");
    }

    #[test]
    fn what_was_taken_away_counts_until_the_last_of_it_goes() {
        let of = Rc::new(Holding::default());
        let mut counted = Counted::new(vec![7; 64 << 10].into(), &of);
        let first = counted.split_to(1 << 10);
        assert_eq!((first.0.len(), of.bytes()), (1 << 10, 64 << 10));
        // What a window of 65,535 bytes leaves of it.
        let second = counted.split_to((63 << 10) - 1);
        assert_eq!((counted.len(), of.bytes()), (1, (64 << 10) + 1));
        drop(first);
        assert_eq!(of.bytes(), (64 << 10) + 1, "the second is a part of the same memory");
        drop(second);
        assert_eq!(of.bytes(), 1);
        drop(counted);
        assert_eq!(of.bytes(), 0);
    }

    #[test]
    fn a_small_part_does_not_keep_the_whole() {
        let whole = Bytes::from(vec![3; 1000]);
        let inside = |part: &Bytes| whole.as_ptr_range().contains(&part.as_ptr());
        let (small, large) = (part(&whole, 999..1000), part(&whole, 0..999));
        assert!(small.len() == 1 && !inside(&small) && large.len() == 999 && inside(&large));
        assert!(part(&whole, 5..5).is_empty() && part(&whole, 5..5000).is_empty());
    }
}
