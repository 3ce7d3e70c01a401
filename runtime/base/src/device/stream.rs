//! Memory, streams and events of a device.

use std::any::Any;
use std::fmt::Debug;

use fulgurite_kernels::Buffer;
use fulgurite_kernels::launch::{CopyRange, DeviceAddress};

use super::error::DeviceError;

/// A block of a device's memory, freed when it is dropped. The runtime drops it after the work that uses it has ended:
/// freeing need not wait.
pub trait DeviceMemory: Debug + Send + Sync {
    /// Its first byte.
    fn address(&self) -> DeviceAddress;

    /// Size in bytes.
    fn bytes(&self) -> usize;
}

/// A block of host memory, freed when it is dropped.
///
/// # Safety
/// The pointer must be valid for reads and writes of `bytes` initialized bytes as long as the value lives, and aligned
/// for any element type. The caller that enqueues copies orders them; the block itself has no lock.
pub unsafe trait HostMemory: Debug + Send + Sync {
    /// Its first byte.
    fn pointer(&self) -> *mut u8;

    /// Size in bytes.
    fn bytes(&self) -> usize;
}

// SAFETY: a zeroed buffer owns as many initialized bytes, aligned for every element type.
unsafe impl HostMemory for Buffer {
    fn pointer(&self) -> *mut u8 {
        self.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A queue of a device's work, in order within one, independent between two. Its methods enqueue and return; an error
/// of the work itself is returned by a later call that waits.
pub trait DeviceStream: Any + Debug + Send + Sync {
    /// The driver's handle, for other libraries of this process; `None` if there is none.
    fn handle(&self) -> Option<u64> {
        None
    }

    /// Waits on the host until everything enqueued is done. Errors of that work come out here.
    ///
    /// # Errors
    /// The driver's; [`Category::Lost`](super::Category::Lost) if nothing runs on the device any more.
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// Whether everything enqueued is done; the host does not wait.
    ///
    /// # Errors
    /// As [`DeviceStream::synchronize`].
    fn is_idle(&self) -> Result<bool, DeviceError>;

    /// Work enqueued from now on waits until `event`, as last recorded, has happened; the host does not wait. An event
    /// that was never recorded is not waited for.
    ///
    /// # Errors
    /// The driver's; that the event is of another kind of device.
    fn wait(&self, event: &dyn DeviceEvent) -> Result<(), DeviceError>;

    /// Puts `event` behind everything enqueued by now, instead of where it was before.
    ///
    /// # Errors
    /// The driver's; that the event is of another kind of device.
    fn record(&self, event: &dyn DeviceEvent) -> Result<(), DeviceError>;

    /// Copies `from` to device memory.
    ///
    /// # Safety
    /// The device range must be allocated, and used by no work that is not ordered with this stream. `from` must stay
    /// alive and unchanged until the copy is done.
    ///
    /// # Errors
    /// The driver's.
    unsafe fn copy_in(&self, to: DeviceAddress, from: &[u8]) -> Result<(), DeviceError>;

    /// Copies device memory to `to`.
    ///
    /// # Safety
    /// As [`DeviceStream::copy_in`]; `to` must stay alive, and nobody may look at it until the copy is done.
    ///
    /// # Errors
    /// The driver's.
    unsafe fn copy_out(&self, to: &mut [u8], from: DeviceAddress) -> Result<(), DeviceError>;

    /// Copies within the device.
    ///
    /// # Safety
    /// Both ranges must be allocated, must not overlap, and must be used by no work that is not ordered with this
    /// stream.
    ///
    /// # Errors
    /// The driver's.
    unsafe fn copy(&self, range: CopyRange) -> Result<(), DeviceError>;

    /// Many copies within the device, in no order among themselves.
    ///
    /// # Safety
    /// As [`DeviceStream::copy`], for each of them; what one writes no other may read or write.
    ///
    /// # Errors
    /// The driver's.
    unsafe fn copy_all(&self, ranges: &[CopyRange]) -> Result<(), DeviceError> {
        // SAFETY: promised by the caller.
        ranges.iter().try_for_each(|range| unsafe { self.copy(*range) })
    }

    /// Sets `bytes` bytes to `byte`.
    ///
    /// # Safety
    /// The range must be allocated, and used by no work that is not ordered with this stream.
    ///
    /// # Errors
    /// The driver's.
    unsafe fn fill(&self, to: DeviceAddress, byte: u8, bytes: usize) -> Result<(), DeviceError>;
}

/// A mark in a stream.
pub trait DeviceEvent: Any + Debug + Send + Sync {
    /// Waits on the host until the mark is reached; at once if it was never recorded.
    ///
    /// # Errors
    /// The driver's.
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// Whether the mark is reached, or was never recorded; the host does not wait.
    ///
    /// # Errors
    /// The driver's.
    fn is_reached(&self) -> Result<bool, DeviceError>;

    /// Milliseconds of device time from `earlier` to this mark.
    ///
    /// # Errors
    /// The driver's, if one of the two keeps no time, was not recorded, or is not reached yet.
    fn milliseconds_since(&self, earlier: &dyn DeviceEvent) -> Result<f64, DeviceError>;
}
