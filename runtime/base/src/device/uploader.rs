//! Arrays sent to a device ahead of the run that takes them, while other work goes on there.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::block::Block;
use super::host_time::waiting;
use super::kind::find_kind;
use super::memory::{DeviceBuffer, Lender};
use super::state::DeviceState;
use super::stream::{DeviceEvent, DeviceStream, HostMemory};
use super::timeline::INPUTS;
use crate::array::{Array, Memory, Strides};
use crate::error::Result;
use crate::meta::Device;
use crate::stream_kind::StreamKind;

/// Alignment of each array in a block, in bytes.
const ALIGNMENT: usize = 256;
/// Blocks that are kept for later arrays.
const MOST_SPARE: usize = 8;

/// Sends arrays of the host to a device on a stream of its own, through page-locked memory, to blocks that are used
/// again. Another thread than that of the runs may do so, which then finds its inputs on the device.
///
/// The sender waits for each copy; no stream of the device waits for one (docs/src/cuda.md says why).
pub struct Uploader {
    device: Device,
    /// The function that takes the arrays, as a timeline calls it.
    function: String,
    lane: Mutex<Lane>,
    spare: Mutex<Vec<Spare>>,
    state: Arc<DeviceState>,
}

/// What one copy at a time uses.
struct Lane {
    /// `None` where the kind of device has no copy stream: arrays stay on the host.
    stream: Option<Box<dyn DeviceStream>>,
    pinned: Option<Box<dyn HostMemory>>,
}

/// A block without arrays, and a mark behind the work that may still use it.
struct Spare {
    block: Block,
    used: Box<dyn DeviceEvent>,
}

/// Where the memory of an uploaded array goes in the end.
struct Home {
    uploader: Arc<Uploader>,
    used: Box<dyn DeviceEvent>,
}

impl fmt::Debug for Uploader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uploader({} to {})", self.function, self.device)
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uploader.fmt(f)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Uploader {
    /// Sends inputs of `function` to `device`.
    ///
    /// # Errors
    /// If the device is not available, with the reason.
    pub fn new(device: Device, function: &str) -> Result<Arc<Uploader>> {
        let state = DeviceState::of(device)?;
        let copies = find_kind(device.kind())?.streams().contains(&StreamKind::Copy);
        let stream = copies.then(|| state.context().stream()).transpose()?;
        Ok(Arc::new(Uploader {
            device,
            function: function.to_owned(),
            lane: Mutex::new(Lane { stream, pinned: None }),
            spare: Mutex::default(),
            state,
        }))
    }

    /// The arrays on the device, contiguous, once they are there. They share a block, so that none can be donated.
    /// Where the kind of device has no copy stream, they are returned as they are.
    ///
    /// # Errors
    /// The driver's; arrays that are on a device already.
    pub fn send<const N: usize>(self: &Arc<Self>, arrays: [Array; N]) -> Result<[Array; N]> {
        let mut lane = locked(&self.lane);
        let Lane { stream: Some(stream), pinned } = &mut *lane else { return Ok(arrays) };
        let mut starts: SmallVec<[usize; 8]> = SmallVec::new();
        let mut bytes = 0;
        for array in &arrays {
            starts.push(bytes);
            bytes = (bytes + array.meta().bytes()).next_multiple_of(ALIGNMENT);
        }
        let memory = match pinned {
            Some(memory) if memory.bytes() >= bytes => memory,
            _ => pinned.insert(self.state.context().host_memory(bytes)?),
        };
        // SAFETY: the memory holds as many initialized bytes, and is used under its lock alone; the copy that was
        // enqueued last from it has ended, since it was waited for.
        let through = unsafe { std::slice::from_raw_parts_mut(memory.pointer(), bytes) };
        for (array, start) in arrays.iter().zip(&starts) {
            let contiguous = if array.is_contiguous() { array.clone() } else { array.to_contiguous()? };
            let length = array.meta().bytes();
            let from = &contiguous.buffer()?.as_bytes()[contiguous.byte_offset()..][..length];
            through[*start..*start + length].copy_from_slice(from);
        }
        let Spare { block, used } = self.block(bytes)?;
        let to = block.address();
        let name = || format!("{INPUTS}{}", self.function);
        let copied = self.state.timed_on(&**stream, StreamKind::Copy, name, |stream| {
            // SAFETY: the block is as large, and what used it last has ended; the copy is waited for below.
            unsafe { stream.copy_in(to, through) }
        });
        let waited = waiting(|| stream.synchronize());
        copied.and(waited).map_err(|error| self.state.faulted(error))?;
        drop(lane);
        let home = Home { uploader: self.clone(), used };
        let buffer = Arc::new(DeviceBuffer::lent(self.state.clone(), block, Box::new(home)));
        let mut starts = starts.into_iter();
        Ok(arrays.map(|array| {
            let start = starts.next().unwrap_or_else(|| unreachable!("one for each array"));
            let meta = array.meta().with_device(self.device);
            let strides: Strides = fulgurite_kernels::view::contiguous_strides(meta.shape()).into();
            let offset = start / meta.dtype().size();
            Array::from_memory(Memory::Device(buffer.clone()), meta, strides, offset)
        }))
    }

    /// A block of so many bytes that no work uses.
    fn block(&self, bytes: usize) -> Result<Spare> {
        let mut spare = locked(&self.spare);
        for at in 0..spare.len() {
            if spare[at].block.bytes() == bytes
                && spare[at].used.is_reached().map_err(|error| self.state.faulted(error))?
            {
                return Ok(spare.swap_remove(at));
            }
        }
        drop(spare);
        Ok(Spare { block: self.state.allocate(bytes)?, used: self.state.context().event(false)? })
    }
}

impl Lender for Home {
    fn take_back(self: Box<Self>, block: Block) {
        let Home { uploader, used } = *self;
        let mut spare = locked(&uploader.spare);
        match uploader.state.stream().record(&*used) {
            Ok(()) if spare.len() < MOST_SPARE => spare.push(Spare { block, used }),
            _ => {
                drop(spare);
                uploader.state.free(vec![block]);
            }
        }
    }
}

impl Drop for Uploader {
    fn drop(&mut self) {
        let spare = std::mem::take(&mut *locked(&self.spare));
        self.state.free(spare.into_iter().map(|spare| spare.block).collect());
    }
}
