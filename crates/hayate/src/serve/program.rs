//! What the front leaves of its program in memory once it serves.
//!
//! Starting runs through much code that is not run again: reading the configuration, asking PHP, laying out the pool. Its pages came from the
//! page cache and would stay counted as resident for the life of the process. This gives them back: whatever is run again comes from the page
//! cache, without reading the disk. It must never touch a page that was written to, since that would read as the file has it.

use std::ffi::{c_int, c_void};

/// Gives back the pages of the program's own segments that cannot be written. A kernel that refuses leaves them resident: nothing else follows.
pub fn forget_start() {
    // SAFETY: `forget_program` is called here only, synchronously, with what the dynamic linker knows of each loaded object; it keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(forget_program), std::ptr::null_mut()) };
}

/// Sees the first object, the program itself, and stops there: libraries are shared with other processes, and are small.
unsafe extern "C" fn forget_program(object: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr hands a valid object, whose table of program headers holds dlpi_phnum entries for the duration of the call.
    let (base, headers) = unsafe {
        let object = &*object;
        (
            object.dlpi_addr as usize,
            std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)),
        )
    };
    let page = rustix::param::page_size();
    for header in headers {
        if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        // Whole pages within the segment: those at its ends may be shared with a neighbour that can be written.
        let start = (base + header.p_vaddr as usize).next_multiple_of(page);
        let end = (base + header.p_vaddr as usize + header.p_memsz as usize) & !(page - 1);
        if start < end {
            // SAFETY: a private mapping of a file that cannot be written and never was is, page by page, what the file holds: whoever reads or
            // runs it next gets the same bytes again.
            unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
        }
    }
    1
}
