//! Arrays over memory that was allocated elsewhere.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite_kernels::Buffer;
use fulgurite_kernels::buffer::{ALIGNMENT, Owner};
use fulgurite_kernels::launch::DeviceAddress;
use fulgurite_kernels::view::contiguous_strides;

use crate::array::{Array, Memory, Strides, reach};
use crate::device::memory::Release;
use crate::device::{DeviceBuffer, DeviceEvent, DeviceState};
use crate::error::{Error, Result};
use crate::meta::TensorMeta;
use crate::stream_kind::StreamKind;

/// What is called once, when it is dropped.
struct Deleter(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Drop for Deleter {
    fn drop(&mut self) {
        if let Some(deleter) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            deleter();
        }
    }
}

fn wrong(argument: &str, message: String) -> Error {
    Error::Argument { argument: argument.into(), message }
}

impl Array {
    /// An array over memory that was allocated elsewhere, without a copy: the first element at `pointer`, `strides` in
    /// elements (row-major ones if they are `None`), on the device of `meta`.
    ///
    /// `deleter` is called exactly once: when the last array, program run or export that uses the memory is gone, or
    /// before an error is returned. On a device the host waits for the work that reads the memory first. `ready` is an
    /// event after which the data is there: work on the array waits for it, on the host this call does.
    ///
    /// Programs only read such memory. Donating it is refused ([`Array::is_unique`] is false); donate a copy, which
    /// [`Array::to_contiguous`] makes, or [lend](Array::lent) the memory.
    ///
    /// # Safety
    /// From `ready` on and until `deleter` is called, all bytes from the lowest to the highest element that shape and
    /// strides reach must be valid and initialized, and be written by nobody: those between elements too, since they
    /// may be copied. An element of `bool` is 0 or 1. On a device the pointer is an address there.
    ///
    /// # Errors
    /// If the pointer is null or not aligned to an element, there is not one stride for each dimension, the elements
    /// reach beyond addresses, the memory is not on the device, or the device is not available.
    pub unsafe fn from_external(
        pointer: *mut u8,
        meta: TensorMeta,
        strides: Option<&[isize]>,
        deleter: impl FnOnce() + Send + 'static,
        ready: Option<&dyn DeviceEvent>,
    ) -> Result<Array> {
        // SAFETY: promised by the caller.
        unsafe { Array::from_external_of(pointer, meta, strides, deleter, ready, None) }
    }

    /// As [`Array::from_external`]; on a device the memory goes back to a stream of the other library, if there is one,
    /// and the host does not wait.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn from_external_of(
        pointer: *mut u8,
        meta: TensorMeta,
        strides: Option<&[isize]>,
        deleter: impl FnOnce() + Send + 'static,
        ready: Option<&dyn DeviceEvent>,
        release: Option<Arc<dyn Release>>,
    ) -> Result<Array> {
        let owner = Owner::new(Deleter(Mutex::new(Some(Box::new(deleter)))));
        let strides = strides.map_or_else(|| contiguous_strides(meta.shape()).into(), Strides::from_slice);
        if strides.len() != meta.rank() {
            return Err(wrong("strides", format!("are {strides:?}, expected {} for {meta}", meta.rank())));
        }
        let size = meta.dtype().size();
        let bytes_of = |elements: usize| elements.checked_mul(size).filter(|bytes| isize::try_from(*bytes).is_ok());
        let reached = reach(meta.shape(), &strides);
        let bytes = reached.and_then(|(first, last)| Some((bytes_of(first)?, bytes_of(last.checked_add(1)?)?)));
        let Some((before, bytes)) = bytes else {
            return Err(wrong("strides", format!("are {strides:?}, with which {meta} reaches further than memory")));
        };
        let bytes = if meta.is_empty() { 0 } else { bytes };
        if bytes > 0 && pointer.is_null() {
            return Err(wrong("pointer", format!("is null, expected the elements of {meta}")));
        }
        let aligned = meta.dtype().alignment();
        if bytes > 0 && !pointer.addr().is_multiple_of(aligned) {
            let of = if meta.dtype().is_complex() { "a part of an element" } else { "an element" };
            let message = format!("is {pointer:p}, expected a multiple of the {aligned} bytes of {of} of {meta}");
            return Err(wrong("pointer", message));
        }
        if bytes > 0 && pointer.addr().checked_sub(before).is_none_or(|start| start.checked_add(bytes).is_none()) {
            return Err(wrong("strides", format!("are {strides:?}, with which {meta} reaches beyond addresses")));
        }
        let device = meta.device();
        let start = pointer.wrapping_sub(before);
        let memory = if device.is_cpu() {
            if let Some(ready) = ready {
                ready.synchronize()?;
            }
            let nothing = std::ptr::without_provenance_mut(ALIGNMENT);
            let start = NonNull::new(if bytes > 0 { start } else { nothing });
            let start = start.ok_or_else(|| wrong("pointer", format!("is null, expected the elements of {meta}")))?;
            // SAFETY: promised by the caller: these are the bytes between the lowest and the highest element.
            Memory::Host(Arc::new(unsafe { Buffer::external(start, bytes, owner) }))
        } else {
            if let Some(ready) = ready {
                let state = DeviceState::of(device)?;
                StreamKind::ALL.into_iter().try_for_each(|kind| state.stream_of(kind).wait(ready))?;
            }
            let address = if bytes > 0 { DeviceAddress(start.addr() as u64) } else { DeviceAddress::NULL };
            // SAFETY: promised by the caller, and all streams of the device wait for `ready`.
            Memory::Device(Arc::new(unsafe { DeviceBuffer::external(device, (address, bytes), owner, release) }?))
        };
        Ok(Array::from_memory(memory, meta, strides, before / size))
    }
}
