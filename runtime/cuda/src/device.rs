//! The devices of this machine and what they offer.

use super::call::driver;
use super::error::{CudaError, Result};
use super::library;
use cudarc::driver::sys::{CUdevice, CUdevice_attribute_enum as Attribute};
use std::ffi::{CStr, c_char};
use std::fmt;

/// A device, as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its number in this process.
    pub ordinal: usize,
    /// Its product name.
    pub name: String,
    /// Compute capability, such as (9, 0).
    pub compute_capability: (u32, u32),
    /// Device memory, in bytes.
    pub memory_bytes: usize,
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Level 2 cache, in bytes.
    pub l2_bytes: usize,
    /// Shared memory that one block may have, in bytes. Beyond 48 KiB it must be dynamic.
    pub shared_bytes_per_block: usize,
    /// Shared memory of a multiprocessor, in bytes.
    pub shared_bytes_per_multiprocessor: usize,
    /// Threads that a multiprocessor holds at once.
    pub threads_per_multiprocessor: u32,
}

impl Device {
    /// The architecture that code for this device is compiled for, such as `sm_80` or `sm_90a`. From 9.0 on it is the
    /// variant with the instructions of this very generation.
    pub fn architecture(&self) -> String {
        let (major, minor) = self.compute_capability;
        format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GIB: f64 = (1u64 << 30) as f64;
        const MIB: f64 = (1u64 << 20) as f64;
        write!(
            f,
            "device {}: {} ({}), {:.1} GiB, {} multiprocessors, {:.0} MiB of L2, {} KiB of shared memory a block",
            self.ordinal,
            self.name,
            self.architecture(),
            self.memory_bytes as f64 / GIB,
            self.multiprocessors,
            self.l2_bytes as f64 / MIB,
            self.shared_bytes_per_block / 1024,
        )
    }
}

/// The devices of this process, in the driver's order (see `CUDA_VISIBLE_DEVICES`). There is at least one in an `Ok`:
/// a driver without a device is an error of the driver.
pub fn devices() -> Result<Vec<Device>> {
    (0..count()?).map(describe).collect()
}

/// Device `ordinal` of this process.
///
/// # Errors
/// [`CudaError::Unavailable`] without a driver, [`CudaError::NoSuchDevice`], or what the driver says.
pub fn device(ordinal: usize) -> Result<Device> {
    let count = count()?;
    if ordinal < count { describe(ordinal) } else { Err(CudaError::NoSuchDevice { ordinal, count }) }
}

/// How many devices this process sees.
pub(super) fn count() -> Result<usize> {
    library::driver().require()?;
    let mut count = 0;
    // SAFETY: the driver is loaded and initialized; the pointer is valid for the call.
    unsafe { driver!(cuDeviceGetCount(&mut count)) }?;
    Ok(count as usize)
}

/// The driver's handle of a device below [`count`].
pub(super) fn handle(ordinal: usize) -> Result<CUdevice> {
    let mut device = 0;
    // SAFETY: as in `count`.
    unsafe { driver!(cuDeviceGet(&mut device, ordinal as i32)) }?;
    Ok(device)
}

/// What the driver knows of a device below [`count`].
pub(super) fn describe(ordinal: usize) -> Result<Device> {
    let device = handle(ordinal)?;
    let attribute = |attribute: Attribute| -> Result<u32> {
        let mut value = 0;
        // SAFETY: the driver is loaded and the device is one of its own; the pointer is valid for the call.
        unsafe { driver!(cuDeviceGetAttribute(&mut value, attribute, device)) }?;
        Ok(value.max(0) as u32)
    };
    let mut name = [0 as c_char; 256];
    let mut memory_bytes = 0;
    // SAFETY: as above; the name's length is passed along, and the driver ends it with NUL.
    let name = unsafe {
        driver!(cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device))?;
        driver!(cuDeviceTotalMem_v2(&mut memory_bytes, device))?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    use Attribute::*;
    Ok(Device {
        ordinal,
        name,
        compute_capability: (
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        memory_bytes,
        multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        l2_bytes: attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as usize,
        shared_bytes_per_block: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
        shared_bytes_per_multiprocessor: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)? as usize,
        threads_per_multiprocessor: attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
    })
}
