//! Inputs as kernels expect them: on the device, and aligned.

use std::sync::Arc;

use fulgurite_kernels::launch::{CopyRange, DeviceAddress};

use super::regions::INPUT_ALIGNMENT;
use crate::array::{Array, Memory, Strides};
use crate::device::faults::Origins;
use crate::device::memory::Content;
use crate::device::{DeviceBuffer, DeviceState};
use crate::error::Result;
use crate::meta::Device;

/// The array on `device`, where kernels expect its first element, and the address of that.
pub(super) fn placed(mut array: Array, device: Device, state: &Arc<DeviceState>) -> Result<(Array, DeviceAddress)> {
    if !matches!(array.memory(), Memory::Device(buffer) if Arc::ptr_eq(buffer.state(), state)) {
        array = array.to_device(device)?;
    }
    loop {
        let Memory::Device(buffer) = array.memory() else { unreachable!("moved to the device above") };
        let start = buffer.address().offset(array.byte_offset());
        if is_aligned(&array, start) {
            return Ok((array, start));
        }
        array = aligned(&array, start, state)?;
    }
}

/// Whether kernels may read the array where its first element is at `start`.
pub(super) fn is_aligned(array: &Array, start: DeviceAddress) -> bool {
    start.0.is_multiple_of(INPUT_ALIGNMENT as u64) || array.meta().is_empty()
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

/// What is known of a run's inputs before it.
#[derive(Default)]
pub(super) struct Seen {
    /// The runs that they come from, as far as they may have a fault.
    pub(super) origins: Origins,
    /// Memory of others. It is let go of behind the program: the deleter of such an array may call it.
    pub(super) external: Vec<Array>,
    /// What an input that is overwritten says of its content, and how many of them share that.
    family: Option<(Arc<Content>, usize)>,
    /// Whether some say something else.
    mixed: bool,
}

impl Seen {
    /// Looks at each input once: a training step has hundreds. The error is the number of an input that is to be
    /// overwritten and is still shared.
    pub(super) fn look(inputs: &mut [Array], overwritten: &[bool], state: &Arc<DeviceState>) -> Result<Seen, usize> {
        let mut seen = Seen::default();
        for (i, (array, overwritten)) in inputs.iter_mut().zip(overwritten).enumerate() {
            if *overwritten {
                if !array.is_unique() {
                    return Err(i);
                }
                seen.overwritten(array.memory_mut(), state);
                continue;
            }
            if array.is_external() {
                seen.external.push(array.clone());
            }
            match array.memory() {
                Memory::Device(buffer) if Arc::ptr_eq(buffer.state(), state) => {
                    if let Some(content) = buffer.shared_content() {
                        content.add_origins(&mut seen.origins);
                    }
                }
                // What comes from another device is read on its way, which asks its origins.
                Memory::Device(_) | Memory::Host(_) => {}
            }
        }
        Ok(seen)
    }

    fn overwritten(&mut self, memory: &mut Memory, state: &Arc<DeviceState>) {
        let content = match memory {
            Memory::Device(buffer) if Arc::ptr_eq(buffer.state(), state) => {
                Arc::get_mut(buffer).and_then(DeviceBuffer::own_content)
            }
            Memory::Device(_) | Memory::Host(_) => None,
        };
        match (content, &mut self.family) {
            (Some(content), Some((family, members))) if Arc::ptr_eq(content, family) => *members += 1,
            (Some(content), family) => {
                content.add_origins(&mut self.origins);
                self.mixed |= family.is_some();
                family.get_or_insert_with(|| (content.clone(), 1));
            }
            (None, _) => self.mixed = true,
        }
    }

    /// What all inputs that are overwritten share, if no other array shares it.
    pub(super) fn shared(&self) -> Option<&Arc<Content>> {
        let (family, members) = self.family.as_ref().filter(|_| !self.mixed)?;
        (Arc::strong_count(family) == members + 1).then_some(family)
    }
}
