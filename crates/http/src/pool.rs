//! Blocks of memory for reading and writing, kept for the next connection that needs one: so an idle connection has none, and a busy one
//! does not ask the allocator.

use std::cell::RefCell;

/// Bytes of a block: a whole head nearly always, or a good piece of a body.
pub(crate) const BLOCK: usize = 16 << 10;
/// Blocks that a thread keeps: one megabyte.
const KEPT: usize = 64;

thread_local! {
    static BLOCKS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty block.
pub(crate) fn take() -> Vec<u8> {
    BLOCKS.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(BLOCK))
}

/// Gives one back. What is larger or smaller, or more than is kept, is freed.
pub(crate) fn give(mut block: Vec<u8>) {
    if block.capacity() == BLOCK {
        block.clear();
        // At a thread's end there may be no place for it any more.
        let _ = BLOCKS.try_with(|blocks| {
            let mut blocks = blocks.borrow_mut();
            if blocks.len() < KEPT {
                blocks.push(block);
            }
        });
    }
}
