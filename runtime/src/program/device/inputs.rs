//! Inputs as kernels expect them: on the device, and aligned.

use std::sync::Arc;

use fulgurite_kernels::launch::{CopyRange, DeviceAddress};

use super::regions::INPUT_ALIGNMENT;
use crate::array::{Array, Memory, Strides};
use crate::device::faults::Origins;
use crate::device::{DeviceBuffer, DeviceState};
use crate::error::Result;
use crate::meta::Device;

/// The array on `device`, where kernels expect its first element, and the address of that.
pub(super) fn placed(mut array: Array, device: Device, state: &DeviceState) -> Result<(Array, DeviceAddress)> {
    if array.device() != device {
        array = array.to_device(device)?;
    }
    loop {
        let Memory::Device(buffer) = array.memory() else { unreachable!("moved to the device above") };
        let start = buffer.address().offset(array.byte_offset());
        if start.0.is_multiple_of(INPUT_ALIGNMENT as u64) || array.meta().is_empty() {
            return Ok((array, start));
        }
        array = aligned(&array, start, state)?;
    }
}

/// A copy of the array, whose first element is at `start`, that begins where kernels expect it.
fn aligned(array: &Array, start: DeviceAddress, state: &DeviceState) -> Result<Array> {
    // From the lowest element that strides reach to the highest one.
    let reach = |wanted: fn(isize) -> bool| -> usize {
        let all = array.shape().iter().zip(array.strides()).filter(|(_, stride)| wanted(**stride));
        all.map(|(n, stride)| (n - 1) * stride.unsigned_abs()).sum()
    };
    let size = array.dtype().size();
    let (before, bytes) = (reach(|stride| stride < 0) * size, (reach(|_| true) + 1) * size);
    // The first element is what is aligned, whatever is before it.
    let first = before.next_multiple_of(INPUT_ALIGNMENT);
    let copy = DeviceBuffer::new(array.device(), first - before + bytes)?;
    let to = copy.address().offset(first - before);
    // SAFETY: the elements are the array's own, which it keeps alive; the copy is new, and used on this stream alone.
    unsafe { state.stream().copy(CopyRange { from: DeviceAddress(start.0 - before as u64), to, bytes }) }?;
    if let Memory::Device(buffer) = array.memory() {
        copy.set_copied(buffer);
    }
    let (meta, strides) = (array.meta().clone(), Strides::from_slice(array.strides()));
    Ok(Array::from_memory(Memory::Device(Arc::new(copy)), meta, strides, first / size))
}

/// The runs that arrays on a device come from, as far as they may have a fault.
pub(super) fn origins_of(arrays: &[Array], device: Device) -> Origins {
    let mut origins = Origins::default();
    for array in arrays {
        // What comes from another device is read on its way, which asks its origins.
        if let (Memory::Device(buffer), true) = (array.memory(), array.device() == device) {
            buffer.add_origins(&mut origins);
        }
    }
    origins
}
