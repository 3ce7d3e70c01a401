//! Device memory and page-locked host memory, owned by values.

use super::call::driver;
use super::context::Context;
use super::error::{CudaError, Result};
use super::stream::Stream;
use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;
use fulgurite_kernels::launch::DeviceAddress;
use std::ops::Range;
use std::ptr::NonNull;

/// A block of device memory, freed when the value is dropped. It starts on a multiple of 256 bytes.
///
/// Allocating may wait for the device: memory is meant to be taken once, and divided by a plan. The caller drops it
/// only after the work that uses it has ended: freeing a small block does not wait, and its place is given away at
/// once.
#[derive(Debug)]
pub struct DeviceMemory {
    context: Context,
    address: DeviceAddress,
    bytes: usize,
}

impl DeviceMemory {
    /// `bytes` bytes of unspecified content; none are allocated for zero.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`] with what is free.
    pub fn new(context: &Context, bytes: usize) -> Result<DeviceMemory> {
        let mut address = DeviceAddress::NULL;
        if bytes > 0 {
            let _current = context.enter()?;
            // SAFETY: the context is current; the pointer is valid for the call.
            match unsafe { driver!(cuMemAlloc_v2(&mut address.0, bytes)) } {
                Err(CudaError::Driver { name, .. }) if name == "CUDA_ERROR_OUT_OF_MEMORY" => {
                    let info = context.memory_info()?;
                    let held = context.allocated_bytes();
                    return Err(CudaError::OutOfMemory { asked: bytes, free: info.free, total: info.total, held });
                }
                result => result?,
            }
        }
        context.count_allocated(bytes);
        Ok(DeviceMemory { context: context.clone(), address, bytes })
    }

    /// The first byte's address.
    pub fn address(&self) -> DeviceAddress {
        self.address
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the size is zero.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The context of its device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Writes `from` at `offset`, behind what is enqueued on `stream`, and waits for it.
    pub fn write(&mut self, stream: &Stream, offset: usize, from: &[u8]) -> Result<()> {
        let range = self.range(offset, from.len())?;
        // SAFETY: the range is in this memory, which is not freed before the copy is done: it is waited for.
        unsafe { stream.copy_to_device(self.address.offset(range.start), from) }?;
        stream.synchronize()
    }

    /// Reads the bytes at `offset` into `to`, behind what is enqueued on `stream`, and waits for them.
    pub fn read(&self, stream: &Stream, offset: usize, to: &mut [u8]) -> Result<()> {
        let range = self.range(offset, to.len())?;
        // SAFETY: as in `write`.
        unsafe { stream.copy_to_host(to, self.address.offset(range.start)) }?;
        stream.synchronize()
    }

    fn range(&self, offset: usize, bytes: usize) -> Result<Range<usize>> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(offset..end),
            end => Err(CudaError::Range { start: offset, end: end.unwrap_or(usize::MAX), len: self.bytes }),
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        self.context.count_freed(self.bytes);
        // SAFETY: allocated in `new`, and used by no work any more.
        self.context.keep(self.context.enter().and_then(|_current| unsafe { driver!(cuMemFree_v2(self.address.0)) }));
    }
}

/// Page-locked host memory: copies between it and a device are asynchronous and run at full speed. It is zeroed.
#[derive(Debug)]
pub struct PinnedMemory {
    context: Context,
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a block owns its memory, and nothing in it is tied to a thread.
unsafe impl Send for PinnedMemory {}
// SAFETY: shared access only reads, or hands out a raw pointer.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// `bytes` bytes, all zero.
    pub fn new(context: &Context, bytes: usize) -> Result<PinnedMemory> {
        let mut pointer = std::ptr::null_mut();
        if bytes > 0 {
            let _current = context.enter()?;
            // SAFETY: the context is current; the pointer is valid for the call, and then holds `bytes` bytes.
            unsafe {
                driver!(cuMemHostAlloc(&mut pointer, bytes, CU_MEMHOSTALLOC_PORTABLE))?;
                pointer.cast::<u8>().write_bytes(0, bytes);
            }
        }
        let pointer = NonNull::new(pointer.cast()).unwrap_or(NonNull::dangling());
        Ok(PinnedMemory { context: context.clone(), pointer, bytes })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the size is zero.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The first byte. Using it needs that no copy in flight writes the range read, or reads the range written.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// The bytes, for reading. No copy in flight may write to them meanwhile.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: initialized at allocation, and alive as long as `self`; the caller that enqueues a copy into it
        // promised, by the contract of `Stream::copy_to_host`, that nothing reads it before the copy is done.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.bytes) }
    }

    /// The bytes, for writing. No copy in flight may use them meanwhile.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `as_bytes`, and `&mut self` makes the use exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let free = || {
                let _current = self.context.enter()?;
                // SAFETY: allocated in `new`, and not used afterwards.
                unsafe { driver!(cuMemFreeHost(self.as_ptr().cast())) }
            };
            self.context.keep(free());
        }
    }
}
