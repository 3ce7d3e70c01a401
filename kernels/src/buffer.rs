//! Owned host memory: 64-byte aligned, zeroed or poisoned, optionally fenced by guard bytes.

use std::alloc::{Layout as Allocation, alloc, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Alignment of every buffer, in bytes: one cache line, and the widest vector load.
pub const ALIGNMENT: usize = 64;
/// Bytes written before and after a fenced buffer's payload.
pub const GUARD_BYTES: usize = 64;
/// The value of a guard byte.
pub const GUARD: u8 = 0xA5;
/// The byte that poisons memory: as f32, f64, f16 and bf16 it reads as a NaN, as an integer as -1.
pub const POISON: u8 = 0xFF;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes held by live buffers of this process.
pub fn allocated_bytes() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

/// The largest value that [`allocated_bytes`] had since [`reset_peak`].
pub fn peak_bytes() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// Starts a new measurement of [`peak_bytes`] at the present level.
pub fn reset_peak() {
    PEAK.store(allocated_bytes(), Ordering::Relaxed);
}

fn count(bytes: usize) {
    let now = ALLOCATED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

/// Large buffers that nobody uses, kept for the next one of their size: the system takes longer to hand out and zero fresh
/// pages than a kernel takes to fill them.
mod pool {
    use std::ptr::NonNull;
    use std::sync::{Mutex, OnceLock, PoisonError};

    /// Smaller buffers come quickly from the system's own allocator.
    const SMALLEST: usize = 1 << 20;

    /// What is kept at most, in bytes: an eighth of the machine's memory, where the system tells how much that is; at least 512 MiB.
    fn capacity() -> usize {
        static CAPACITY: OnceLock<usize> = OnceLock::new();
        *CAPACITY.get_or_init(|| {
            let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
            let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
            let kibibytes = total.and_then(|text| text.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
            kibibytes.map_or(0, |kibibytes| kibibytes / 8 * 1024).max(512 << 20)
        })
    }

    struct Kept(NonNull<u8>, usize);
    // SAFETY: memory that nobody uses is tied to no thread.
    unsafe impl Send for Kept {}

    static POOL: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

    /// Memory of exactly `size` bytes, if some is kept.
    pub fn take(size: usize) -> Option<NonNull<u8>> {
        if size < SMALLEST {
            return None;
        }
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let found = pool.iter().rposition(|kept| kept.1 == size)?;
        Some(pool.swap_remove(found).0)
    }

    /// Keeps memory; `false` if it is small or enough is kept.
    pub fn keep(pointer: NonNull<u8>, size: usize) -> bool {
        if size < SMALLEST {
            return false;
        }
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = pool.iter().map(|kept| kept.1).sum();
        let fits = held + size <= capacity();
        if fits {
            pool.push(Kept(pointer, size));
        }
        fits
    }
}

/// Why memory could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("could not allocate {bytes} bytes of host memory")]
pub struct OutOfMemory {
    /// The size asked for.
    pub bytes: usize,
}

/// Host memory owned by one value.
///
/// A buffer is plain bytes: who reads it decides the element type. Sharing and exclusive use are the
/// business of the owner (`Arc<Buffer>` in the runtime).
#[derive(Debug)]
pub struct Buffer {
    pointer: NonNull<u8>,
    bytes: usize,
    guard: usize,
}

// SAFETY: a buffer owns its memory, and nothing in it is tied to a thread.
unsafe impl Send for Buffer {}
// SAFETY: shared access hands out shared slices or raw pointers only; writers go through raw pointers whose
// users promise exclusive use (see `TensorMut::new`).
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `bytes` bytes, all zero.
    pub fn zeroed(bytes: usize) -> Result<Buffer, OutOfMemory> {
        Buffer::allocate(bytes, 0, true)
    }

    /// `bytes` bytes of unspecified (but initialized) content.
    pub fn uninitialized(bytes: usize) -> Result<Buffer, OutOfMemory> {
        if let Some(pointer) = Buffer::layout(bytes, 0).and_then(|layout| pool::take(layout.size())) {
            count(bytes);
            return Ok(Buffer { pointer, bytes, guard: 0 });
        }
        // Zeroed pages come free from the system for large sizes, so nothing is gained by leaving them out, and
        // reading a byte before it is written stays defined.
        Buffer::allocate(bytes, 0, true)
    }

    /// `bytes` bytes of [`POISON`] between two fences of [`GUARD_BYTES`] guard bytes.
    pub fn fenced(bytes: usize) -> Result<Buffer, OutOfMemory> {
        let buffer = Buffer::allocate(bytes, GUARD_BYTES, false)?;
        // SAFETY: the allocation is GUARD_BYTES + bytes (rounded up) + GUARD_BYTES long, and nobody else has it yet.
        unsafe {
            let start = buffer.pointer.as_ptr();
            start.write_bytes(GUARD, GUARD_BYTES);
            start.add(GUARD_BYTES).write_bytes(POISON, bytes);
            start.add(GUARD_BYTES + bytes).write_bytes(GUARD, buffer.allocation().size() - GUARD_BYTES - bytes);
        }
        Ok(buffer)
    }

    fn allocate(bytes: usize, guard: usize, zero: bool) -> Result<Buffer, OutOfMemory> {
        let layout = Buffer::layout(bytes, guard).ok_or(OutOfMemory { bytes })?;
        // SAFETY: the layout has a non-zero size.
        let pointer = unsafe { if zero { alloc_zeroed(layout) } else { alloc(layout) } };
        let pointer = NonNull::new(pointer).ok_or(OutOfMemory { bytes })?;
        count(bytes);
        Ok(Buffer { pointer, bytes, guard })
    }

    fn layout(bytes: usize, guard: usize) -> Option<Allocation> {
        let size = bytes.max(1).checked_add(2 * guard)?.checked_next_multiple_of(ALIGNMENT)?;
        Allocation::from_size_align(size, ALIGNMENT).ok()
    }

    fn allocation(&self) -> Allocation {
        Allocation::from_size_align((self.bytes.max(1) + 2 * self.guard).next_multiple_of(ALIGNMENT), ALIGNMENT)
            .expect("the same layout was accepted when the buffer was made")
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the size is zero.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// First byte of the payload. Writing through it needs exclusive use of the range written.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: the guard lies within the allocation.
        unsafe { self.pointer.as_ptr().add(self.guard) }
    }

    /// The payload, for reading. Nobody may write to the buffer meanwhile.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the payload is initialized at allocation and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.bytes) }
    }

    /// The payload, for writing.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `as_bytes`, and `&mut self` makes the use exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.bytes) }
    }

    /// Whether all guard bytes of a fenced buffer are as they were written; true for a buffer without fences.
    pub fn guards_intact(&self) -> bool {
        if self.guard == 0 {
            return true;
        }
        let size = self.allocation().size();
        // SAFETY: the whole allocation is initialized and lives as long as `self`.
        let all = unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), size) };
        all[..self.guard].iter().chain(&all[self.guard + self.bytes..]).all(|&byte| byte == GUARD)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        ALLOCATED.fetch_sub(self.bytes, Ordering::Relaxed);
        let layout = self.allocation();
        if self.guard == 0 && pool::keep(self.pointer, layout.size()) {
            return;
        }
        // SAFETY: allocated in `allocate` with the same layout.
        unsafe { dealloc(self.pointer.as_ptr(), layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_notice_a_write_past_the_end() {
        for bytes in [0, 1, 63, 64, 100] {
            let buffer = Buffer::fenced(bytes).unwrap();
            assert!(buffer.guards_intact());
            assert!(buffer.as_bytes().iter().all(|&byte| byte == POISON));
            // SAFETY: the byte after the payload is a guard byte of the same allocation.
            unsafe { buffer.as_ptr().add(bytes).write(0) };
            assert!(!buffer.guards_intact());
        }
    }

    #[test]
    fn large_buffers_are_used_again() {
        let bytes = (3 << 20) + 64;
        let first = Buffer::uninitialized(bytes).unwrap();
        let address = first.as_ptr();
        drop(first);
        let second = Buffer::uninitialized(bytes).unwrap();
        assert_eq!(second.as_ptr(), address);
        assert_ne!(Buffer::zeroed(bytes).unwrap().as_ptr(), address);
    }

    #[test]
    fn a_size_beyond_memory_is_an_error() {
        assert_eq!(Buffer::zeroed(usize::MAX).unwrap_err(), OutOfMemory { bytes: usize::MAX });
    }
}
