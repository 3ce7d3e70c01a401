//! Copies and fills, enqueued on a stream.
//!
//! They work on raw addresses, since memory is divided by a plan that this floor does not know; the caller has the plan
//! and makes the promises.

use super::call::driver;
use super::error::Result;
use super::stream::Stream;
use fulgurite_kernels::launch::DeviceAddress;

impl Stream {
    /// Copies `from` to device memory. From page-locked memory the host does not wait.
    ///
    /// # Safety
    /// The device range must be allocated, and used by no work that is not ordered with this stream. `from` must stay
    /// alive and unchanged until the copy is done.
    pub unsafe fn copy_to_device(&self, to: DeviceAddress, from: &[u8]) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: promised by the caller; the stream is alive.
        unsafe { driver!(cuMemcpyHtoDAsync_v2(to.0, from.as_ptr().cast(), from.len(), self.bound()?.raw)) }
    }

    /// Copies device memory to `to`. Into page-locked memory the host does not wait.
    ///
    /// # Safety
    /// As [`Stream::copy_to_device`]; `to` must stay alive and must not be read until the copy is done.
    pub unsafe fn copy_to_host(&self, to: &mut [u8], from: DeviceAddress) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: promised by the caller; the stream is alive.
        unsafe { driver!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from.0, to.len(), self.bound()?.raw)) }
    }

    /// Copies `bytes` bytes within the device.
    ///
    /// # Safety
    /// Both ranges must be allocated, must not overlap, and must be used by no work that is not ordered with this
    /// stream.
    pub unsafe fn copy_on_device(&self, to: DeviceAddress, from: DeviceAddress, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: promised by the caller; the stream is alive.
        unsafe { driver!(cuMemcpyDtoDAsync_v2(to.0, from.0, bytes, self.bound()?.raw)) }
    }

    /// Sets `count` bytes to `value`.
    ///
    /// # Safety
    /// The range must be allocated, and used by no work that is not ordered with this stream.
    pub unsafe fn fill_u8(&self, to: DeviceAddress, value: u8, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: promised by the caller; the stream is alive.
        unsafe { driver!(cuMemsetD8Async(to.0, value, count, self.bound()?.raw)) }
    }

    /// Sets `count` elements of two bytes to `value`; the address must be a multiple of two.
    ///
    /// # Safety
    /// As [`Stream::fill_u8`].
    pub unsafe fn fill_u16(&self, to: DeviceAddress, value: u16, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: promised by the caller; the stream is alive.
        unsafe { driver!(cuMemsetD16Async(to.0, value, count, self.bound()?.raw)) }
    }

    /// Sets `count` elements of four bytes to `value`; the address must be a multiple of four.
    ///
    /// # Safety
    /// As [`Stream::fill_u8`].
    pub unsafe fn fill_u32(&self, to: DeviceAddress, value: u32, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: promised by the caller; the stream is alive.
        unsafe { driver!(cuMemsetD32Async(to.0, value, count, self.bound()?.raw)) }
    }
}
