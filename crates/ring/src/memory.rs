//! The mapping itself: creates the memfd, lays it out, and hands out references to its words and copies of its bytes.
//!
//! It promises that every access is inside the mapping and that words are touched only through atomics. It never
//! interprets what the words mean.
//!
//! Its assertions guard `unsafe`, so they stay in releases; none can be reached by what a worker writes:
//!
//! - a slot's number is one of the front's: from its free list, its private copy of the queue's cells, or counted (`Inner::slots`); a bit of a
//!   doorbell is held against that range first (`Ring::drain`);
//! - a worker's number is the pool's, counted, or that of a bit in `Ring::alive`; one that a claim bears is used as it was read once, and only
//!   after `Ring::is_alive` or a comparison with `Ring::workers`;
//! - a thread's number is that of the front's own thread, or was kept by the front when it submitted the request (`Entry::bell`);
//! - words of masks are counted up to what the configuration gives, which [`Config`] keeps below `HY_MASK_WORDS`;
//! - lengths and positions of a worker are compared with the area's size right before [`Memory::read`]; those of [`Memory::write`] and [`Memory::put_record`] are the front's.

use std::{
    ffi::c_void,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::{self, addr_of_mut},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::{MapFlags, ProtFlags},
};

use crate::{
    head::{HeadTooLarge, record},
    layout::*,
    ring::Config,
};

/// An area of a slot.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    offset: usize,
    pub(crate) size: usize,
}

pub(crate) struct Memory {
    base: *mut u8,
    size: usize,
    fd: OwnedFd,
    cells: usize,
    cells_offset: usize,
    workers_offset: usize,
    slots_offset: usize,
    stride: usize,
    slots: u32,
    workers: u32,
    pub(crate) request_head: Area,
    pub(crate) response_head: Area,
    pub(crate) request_body: Area,
    pub(crate) response_body: Area,
    /// What stands in the memory before `queue_head`, word by word.
    constants: [u64; CONSTANTS],
}

/// The words of the header that nobody changes.
const CONSTANTS: usize = std::mem::offset_of!(hy_header, queue_head) / 8;

// SAFETY: the mapping is shared memory by design; all words are accessed atomically, and areas only by the side that the
// protocol in host/layout.h lets write or read them.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

fn round_up(n: usize, to: usize) -> usize {
    n.div_ceil(to) * to
}

macro_rules! word {
    ($name:ident, $atomic:ty, $getter:ident, $field:ident $(, $doc:literal)?) => {
        pub(crate) fn $name(&self) -> &$atomic {
            // SAFETY: the struct lies inside the mapping (checked when the reference was made), is aligned to 128 bytes, and
            // both sides use this word only through atomic operations.
            unsafe { <$atomic>::from_ptr(addr_of_mut!((*self.0).$field)) }
        }
    };
}

/// The words of one slot.
#[derive(Clone, Copy)]
pub(crate) struct SlotWords<'a>(*mut hy_slot, std::marker::PhantomData<&'a Memory>);
impl<'a> SlotWords<'a> {
    word!(claim, AtomicU64, slot, claim);
    word!(submitted_at, AtomicU64, slot, submitted_at);
    word!(request_tail, AtomicU64, slot, request_tail);
    word!(response_taken, AtomicU64, slot, response_taken);
    word!(request_head_len, AtomicU32, slot, request_head_len);
    word!(request_state, AtomicU32, slot, request_state);
    word!(aborted, AtomicU32, slot, aborted);
    word!(front_wants_space, AtomicU32, slot, front_wants_space);
    word!(bell, AtomicU32, slot, bell);
    word!(claimed_at, AtomicU64, slot, claimed_at);
    word!(blocked_ns, AtomicU64, slot, blocked_ns);
    word!(blocked_since, AtomicU64, slot, blocked_since);
    word!(request_taken, AtomicU64, slot, request_taken);
    word!(response_tail, AtomicU64, slot, response_tail);
    word!(response_informed, AtomicU64, slot, response_informed);
    word!(response_head_len, AtomicU32, slot, response_head_len);
    word!(response_state, AtomicU32, slot, response_state);
    word!(worker_waits, AtomicU32, slot, worker_waits);

    /// Clears every word but `claim`. Only for a slot that is FREE.
    pub(crate) fn reset(&self) {
        for word in [self.submitted_at(), self.request_tail(), self.response_taken(), self.claimed_at()] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [self.blocked_ns(), self.blocked_since(), self.request_taken(), self.response_tail()] {
            word.store(0, Ordering::Relaxed);
        }
        self.response_informed().store(0, Ordering::Relaxed);
        for word in [self.request_head_len(), self.request_state(), self.aborted(), self.front_wants_space()]
        {
            word.store(0, Ordering::Relaxed);
        }
        for word in [self.bell(), self.response_head_len(), self.response_state(), self.worker_waits()] {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// The words of one worker.
#[derive(Clone, Copy)]
pub(crate) struct WorkerWords<'a>(*mut hy_worker, std::marker::PhantomData<&'a Memory>);
impl WorkerWords<'_> {
    word!(wake, AtomicU32, worker, wake);
    word!(quit, AtomicU32, worker, quit);
    word!(state, AtomicU32, worker, state);
    word!(retired, AtomicU32, worker, retired);
    word!(requests, AtomicU64, worker, requests);
    word!(fits_below, AtomicU64, worker, fits_below);
    word!(rewinds, AtomicU64, worker, rewinds);
    word!(clean_ns, AtomicU64, worker, clean_ns);
    word!(scan_ns, AtomicU64, worker, scan_ns);
    word!(copy_ns, AtomicU64, worker, copy_ns);
    word!(cold_pages, AtomicU64, worker, cold_pages);
    word!(hot_pages, AtomicU32, worker, hot_pages);
    word!(tracking, AtomicU32, worker, tracking);
    word!(resets, AtomicU64, worker, resets);
    word!(reset_ns, AtomicU64, worker, reset_ns);
    word!(warm, AtomicU32, worker, warm);
}

/// The words of the header.
#[derive(Clone, Copy)]
pub(crate) struct HeaderWords<'a>(*mut hy_header, std::marker::PhantomData<&'a Memory>);
impl HeaderWords<'_> {
    word!(queue_head, AtomicU64, header, queue_head);
    word!(queue_tail, AtomicU64, header, queue_tail);

    pub(crate) fn sleepers(&self, i: usize) -> &AtomicU64 {
        assert!(i < HY_MASK_WORDS as usize);
        // SAFETY: in bounds by the assertion; otherwise as in `word!`.
        unsafe { AtomicU64::from_ptr(addr_of_mut!((*self.0).sleepers).cast::<u64>().add(i)) }
    }
}

/// The words of one thread's bell.
#[derive(Clone, Copy)]
pub(crate) struct BellWords<'a>(*mut hy_bell, std::marker::PhantomData<&'a Memory>);
impl BellWords<'_> {
    word!(sleeping, AtomicU32, bell, sleeping);

    pub(crate) fn doorbells(&self, i: usize) -> &AtomicU64 {
        assert!(i < HY_MASK_WORDS as usize);
        // SAFETY: in bounds by the assertion; otherwise as in `word!`.
        unsafe { AtomicU64::from_ptr(addr_of_mut!((*self.0).doorbells).cast::<u64>().add(i)) }
    }
}

impl Memory {
    /// `bells` is the number of the front's threads, 1 to `HY_MAX_BELLS`.
    pub(crate) fn create(config: &Config, bells: u32) -> io::Result<Memory> {
        let line = HY_LINE as usize;
        let cells = (config.slots as usize * 4).next_power_of_two();
        let cells_offset = size_of::<hy_header>();
        let workers_offset = round_up(cells_offset + cells * 4, line);
        let slots_offset = round_up(workers_offset + config.workers as usize * size_of::<hy_worker>(), 4096);
        let request_head = Area { offset: size_of::<hy_slot>(), size: round_up(config.request_head, line) };
        let response_head = Area {
            offset: request_head.offset + request_head.size,
            size: round_up(config.response_head, line),
        };
        let request_body = Area {
            offset: round_up(response_head.offset + response_head.size, 4096),
            size: config.body.next_power_of_two(),
        };
        let response_body = Area { offset: request_body.offset + request_body.size, size: request_body.size };
        let stride = round_up(response_body.offset + response_body.size, 4096);
        let size = slots_offset + stride * config.slots as usize;

        let fd = rustix::fs::memfd_create("hayate", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, size as u64)?;
        // A worker that shrank the file could kill the front with SIGBUS.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: a fresh shared mapping of a file we own, at an address the kernel chooses.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut::<c_void>(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )?
        }
        .cast::<u8>();

        // SAFETY: base is page-aligned, the mapping is at least a header long, and no other process has it yet.
        let header = unsafe { &mut *base.cast::<hy_header>() };
        header.magic = HY_MAGIC;
        header.version = HY_LAYOUT_VERSION;
        header.header_size = size_of::<hy_header>() as u32;
        header.size = size as u64;
        header.slots = config.slots;
        header.workers = config.workers;
        header.queue_cells = cells as u32;
        header.slot_stride = stride as u32;
        header.queue_offset = cells_offset as u64;
        header.workers_offset = workers_offset as u64;
        header.slots_offset = slots_offset as u64;
        header.request_head_offset = request_head.offset as u32;
        header.request_head_size = request_head.size as u32;
        header.response_head_offset = response_head.offset as u32;
        header.response_head_size = response_head.size as u32;
        header.request_body_offset = request_body.offset as u32;
        header.request_body_size = request_body.size as u32;
        header.response_body_offset = response_body.offset as u32;
        header.response_body_size = response_body.size as u32;
        header.bells_used = bells;

        let mut memory = Memory {
            base,
            size,
            fd,
            cells,
            cells_offset,
            workers_offset,
            slots_offset,
            stride,
            slots: config.slots,
            workers: config.workers,
            request_head,
            response_head,
            request_body,
            response_body,
            constants: [0; CONSTANTS],
        };
        memory.constants = memory.read_constants();
        Ok(memory)
    }

    fn read_constants(&self) -> [u64; CONSTANTS] {
        std::array::from_fn(|i| {
            // SAFETY: the words lie in the header, the mapping is page-aligned, and nobody but a worker that has gone mad writes them.
            unsafe { AtomicU64::from_ptr(self.base.add(i * 8).cast()) }.load(Ordering::Relaxed)
        })
    }

    /// Whether the memory still says of itself what it was made with.
    pub(crate) fn constants_are_intact(&self) -> bool {
        self.read_constants() == self.constants
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn cells(&self) -> usize {
        self.cells
    }

    pub(crate) fn header(&self) -> HeaderWords<'_> {
        HeaderWords(self.base.cast(), std::marker::PhantomData)
    }

    pub(crate) fn bell(&self, thread: u32) -> BellWords<'_> {
        assert!(thread < HY_MAX_BELLS, "thread {thread} of {HY_MAX_BELLS}");
        // SAFETY: the header lies in the mapping, and has that many bells.
        let at = unsafe {
            addr_of_mut!((*self.base.cast::<hy_header>()).bells).cast::<hy_bell>().add(thread as usize)
        };
        BellWords(at, std::marker::PhantomData)
    }

    pub(crate) fn cell(&self, ticket: u64) -> &AtomicU32 {
        let i = ticket as usize & (self.cells - 1);
        // SAFETY: i is below `cells`, and the cells lie inside the mapping, 4-byte aligned; used only atomically.
        unsafe { AtomicU32::from_ptr(self.base.add(self.cells_offset + i * 4).cast()) }
    }

    pub(crate) fn worker(&self, index: u32) -> WorkerWords<'_> {
        assert!(index < self.workers, "worker {index} of {}", self.workers);
        // SAFETY: in bounds by the assertion.
        let at = unsafe { self.base.add(self.workers_offset + index as usize * size_of::<hy_worker>()) };
        WorkerWords(at.cast(), std::marker::PhantomData)
    }

    fn slot_base(&self, index: u32) -> *mut u8 {
        assert!(index < self.slots, "slot {index} of {}", self.slots);
        // SAFETY: in bounds by the assertion.
        unsafe { self.base.add(self.slots_offset + index as usize * self.stride) }
    }

    pub(crate) fn slot(&self, index: u32) -> SlotWords<'_> {
        SlotWords(self.slot_base(index).cast(), std::marker::PhantomData)
    }

    /// Copies `bytes` into an area of a slot, from `at` on. Panics when they do not fit, which is a fault of the caller's.
    pub(crate) fn write(&self, index: u32, area: Area, at: usize, bytes: &[u8]) {
        assert!(at <= area.size && bytes.len() <= area.size - at);
        // SAFETY: inside the area by the assertion; the protocol gives this range to the front until it publishes it.
        unsafe {
            let to = self.slot_base(index).add(area.offset + at);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Writes a record of a request's head at `at`; where the next one goes. Panics when `at` is beyond the area, which is a fault of the
    /// caller's.
    pub(crate) fn put_record(
        &self,
        index: u32,
        at: usize,
        field: u16,
        name: &[u8],
        value: &[u8],
    ) -> Result<usize, HeadTooLarge> {
        let area = self.request_head;
        assert!(at <= area.size);
        let (begin, len) = record(field, name, value, area.size - at)?;
        // SAFETY: `len` is the sum of what is written, and lies inside the area by the check above; until the slot is published it is the
        // front's. The sources are the front's own memory.
        unsafe {
            let to = self.slot_base(index).add(area.offset + at);
            ptr::copy_nonoverlapping(begin.as_ptr(), to, begin.len());
            let to = to.add(begin.len());
            ptr::copy_nonoverlapping(name.as_ptr(), to, name.len());
            to.add(name.len()).write(0);
            let to = to.add(name.len() + 1);
            ptr::copy_nonoverlapping(value.as_ptr(), to, value.len());
            to.add(value.len()).write(0);
        }
        Ok(at + len)
    }

    /// Appends `len` bytes of an area of a slot, from `at` on, to `to`. Panics when the range leaves the area,
    /// which is for the caller to have looked at.
    pub(crate) fn read(&self, index: u32, area: Area, at: usize, len: usize, to: &mut Vec<u8>) {
        assert!(at <= area.size && len <= area.size - at);
        to.reserve(len);
        // SAFETY: the source is inside the area by the assertion, the destination was reserved; the worker has published this
        // range and, if it keeps to the protocol, writes it no more. If it does not, the copy holds some bytes or other, which
        // whoever parses the copy has to expect anyway.
        unsafe {
            let from = self.slot_base(index).add(area.offset + at);
            ptr::copy_nonoverlapping(from, to.as_mut_ptr().add(to.len()), len);
            to.set_len(to.len() + len);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it any more. A failure would leak address space, no more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.size) };
    }
}
