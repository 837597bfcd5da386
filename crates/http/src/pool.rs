//! Blocks of memory for reading and writing, kept for the next connection that needs one: so an idle connection has none, and a busy one
//! does not ask the allocator.

use std::cell::RefCell;

/// Bytes of a block: a whole head nearly always, or a good piece of a body.
pub(crate) const BLOCK: usize = 16 << 10;
/// Bytes of a small one: the head of most requests by itself. Not more, since each request that waits for a worker has one.
const SMALL: usize = 1 << 10;
/// Blocks of each size that a thread keeps: a megabyte and a sixteenth.
const KEPT: usize = 64;

thread_local! {
    static BLOCKS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static SMALL_BLOCKS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty block.
pub(crate) fn take() -> Vec<u8> {
    BLOCKS.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(BLOCK))
}

/// Room for so many bytes that are copied out of a block.
pub(crate) fn take_for(len: usize) -> Vec<u8> {
    if len > SMALL {
        return Vec::with_capacity(len);
    }
    SMALL_BLOCKS.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(SMALL))
}

/// Gives one back. What is of another size, or more than is kept, is freed.
pub(crate) fn give(mut block: Vec<u8>) {
    let of_its_size = match block.capacity() {
        BLOCK => &BLOCKS,
        SMALL => &SMALL_BLOCKS,
        _ => return,
    };
    block.clear();
    // At a thread's end there may be no place for it any more.
    let _ = of_its_size.try_with(|blocks| {
        let mut blocks = blocks.borrow_mut();
        if blocks.len() < KEPT {
            blocks.push(block);
        }
    });
}
