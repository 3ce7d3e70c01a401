//! Owned host memory: 64-byte aligned, zeroed or poisoned, optionally fenced by guard bytes. And memory of others.

mod memory;
mod pool;

use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory::Memory;

pub use memory::ALIGNMENT;

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

/// Why an allocation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("could not allocate {bytes} bytes of host memory")]
pub struct OutOfMemory {
    /// The requested size.
    pub bytes: usize,
}

/// Keeps memory alive that was allocated elsewhere. It is dropped with the buffer.
pub struct Owner(Box<dyn Any + Send + Sync>);

impl Owner {
    /// The value that keeps the memory alive.
    pub fn new(owner: impl Any + Send + Sync) -> Owner {
        Owner(Box::new(owner))
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Owner({:?})", (*self.0).type_id())
    }
}

/// Host memory owned by one value.
///
/// A buffer is plain bytes: its reader decides the element type. Sharing and exclusive use are the
/// business of the owner (`Arc<Buffer>` in the runtime).
#[derive(Debug)]
pub struct Buffer {
    /// `None` if the memory was allocated elsewhere; `owner` keeps that alive.
    memory: Option<Memory>,
    /// Keeps memory alive that was allocated elsewhere.
    owner: Option<Owner>,
    start: *mut u8,
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
        Buffer::allocate(bytes, 0, Memory::zeroed)
    }

    /// `bytes` bytes of unspecified (but initialized) content.
    pub fn uninitialized(bytes: usize) -> Result<Buffer, OutOfMemory> {
        // Zeroed pages come free from the system for large sizes, so nothing is gained by leaving them out, and
        // reading a byte before it is written stays defined.
        Buffer::allocate(bytes, 0, |size| pool::take(size).or_else(|| Memory::zeroed(size)))
    }

    /// `bytes` bytes of [`POISON`] between two fences of [`GUARD_BYTES`] guard bytes.
    pub fn fenced(bytes: usize) -> Result<Buffer, OutOfMemory> {
        let buffer = Buffer::allocate(bytes, GUARD_BYTES, Memory::unwritten)?;
        // SAFETY: the memory is GUARD_BYTES + bytes (rounded up) + GUARD_BYTES long, and nobody else has it yet.
        unsafe {
            buffer.start.write_bytes(GUARD, GUARD_BYTES);
            buffer.start.add(GUARD_BYTES).write_bytes(POISON, bytes);
            buffer.start.add(GUARD_BYTES + bytes).write_bytes(GUARD, buffer.size() - GUARD_BYTES - bytes);
        }
        Ok(buffer)
    }

    fn allocate(
        bytes: usize,
        guard: usize,
        allocated: impl Fn(usize) -> Option<Memory>,
    ) -> Result<Buffer, OutOfMemory> {
        let size = bytes.max(1).checked_add(2 * guard).and_then(|size| size.checked_next_multiple_of(ALIGNMENT));
        let memory = size.and_then(|size| {
            allocated(size).or_else(|| {
                pool::clear();
                allocated(size)
            })
        });
        let memory = memory.ok_or(OutOfMemory { bytes })?;
        count(bytes);
        Ok(Buffer { start: memory.start().as_ptr(), memory: Some(memory), owner: None, bytes, guard })
    }

    /// Memory that was allocated elsewhere, which `owner` keeps alive. It is not counted, and is aligned as it is.
    ///
    /// # Safety
    /// `start` must be valid for reads of `bytes` initialized bytes until `owner` is dropped, and nobody may write to
    /// them before that. Nobody may write through the buffer either, unless the memory may be written to.
    pub unsafe fn external(start: NonNull<u8>, bytes: usize, owner: Owner) -> Buffer {
        Buffer { memory: None, owner: Some(owner), start: start.as_ptr(), bytes, guard: 0 }
    }

    /// Whether the memory was allocated elsewhere.
    pub fn is_external(&self) -> bool {
        self.owner.is_some()
    }

    /// Bytes of the memory, guards included.
    fn size(&self) -> usize {
        self.memory.as_ref().map_or(0, Memory::size)
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
        // SAFETY: the guard is within the allocation.
        unsafe { self.start.add(self.guard) }
    }

    /// The payload, for reading. The buffer must not be written meanwhile.
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
        // SAFETY: all of the memory is initialized and lives as long as `self`.
        let all = unsafe { std::slice::from_raw_parts(self.start, self.size()) };
        all[..self.guard].iter().chain(&all[self.guard + self.bytes..]).all(|&byte| byte == GUARD)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.memory.is_some() {
            ALLOCATED.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        if let Some(memory) = self.memory.take().filter(|_| self.guard == 0) {
            pool::keep(memory);
        }
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
    fn large_buffers_are_used_again_unless_memory_runs_out() {
        let bytes = (3 << 20) + 64;
        let first = Buffer::uninitialized(bytes).unwrap();
        let address = first.as_ptr();
        drop(first);
        let second = Buffer::uninitialized(bytes).unwrap();
        assert_eq!(second.as_ptr(), address);
        assert_ne!(Buffer::zeroed(bytes).unwrap().as_ptr(), address);
        drop(second);
        let beyond = 1 << 60;
        assert_eq!(Buffer::uninitialized(beyond).unwrap_err(), OutOfMemory { bytes: beyond });
        assert!(pool::take(bytes).is_none());
    }

    #[test]
    fn a_size_beyond_memory_is_an_error() {
        assert_eq!(Buffer::zeroed(usize::MAX).unwrap_err(), OutOfMemory { bytes: usize::MAX });
    }
}
