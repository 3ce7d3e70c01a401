//! Blocks of the system's memory.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of every buffer, in bytes: one cache line, and the widest vector load.
pub const ALIGNMENT: usize = 64;

/// What the system's allocator aligns to by itself. Asked for more, it does not know that fresh pages are zero, and a
/// zeroed block is written from end to end by one thread; so blocks are a little larger, and aligned here.
const SYSTEM_ALIGNMENT: usize = 16;

/// A block of memory, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: a block owns its memory, and nothing in it is tied to a thread.
unsafe impl Send for Memory {}
// SAFETY: nothing is read or written through a shared block here.
unsafe impl Sync for Memory {}

impl Memory {
    /// `size` zeroed bytes; `None` if the allocation fails.
    pub(super) fn zeroed(size: usize) -> Option<Memory> {
        let layout = Memory::layout(size)?;
        // SAFETY: the layout has a size above zero.
        Some(Memory { base: NonNull::new(unsafe { alloc_zeroed(layout) })?, size })
    }

    /// `size` uninitialized bytes: write them before they are read.
    pub(super) fn unwritten(size: usize) -> Option<Memory> {
        let layout = Memory::layout(size)?;
        // SAFETY: the layout has a size above zero.
        Some(Memory { base: NonNull::new(unsafe { alloc(layout) })?, size })
    }

    /// Its first byte, at a multiple of [`ALIGNMENT`].
    pub(super) fn start(&self) -> NonNull<u8> {
        let offset = self.base.as_ptr().align_offset(ALIGNMENT);
        // SAFETY: the base is a multiple of SYSTEM_ALIGNMENT, so that the offset is at most the slack of `layout`.
        unsafe { self.base.add(offset) }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    fn layout(size: usize) -> Option<Layout> {
        let slack = ALIGNMENT - SYSTEM_ALIGNMENT;
        Layout::from_size_align(size.checked_add(slack)?.max(1), SYSTEM_ALIGNMENT).ok()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let layout = Memory::layout(self.size).expect("the layout that it was allocated with");
        // SAFETY: allocated with this layout, and used by nobody any more.
        unsafe { dealloc(self.base.as_ptr(), layout) }
    }
}
