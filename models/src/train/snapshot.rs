//! Copies of a run's state that no step changes: steps write into the memory of the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use fulgurite_kernels::launch::CopyRange;
use fulgurite_runtime::array::Memory;
use fulgurite_runtime::device::memory::{Content, Known};
use fulgurite_runtime::device::{DeviceBuffer, DeviceState};
use fulgurite_runtime::meta::TensorMeta;
use fulgurite_runtime::{Array, Result};

use crate::argument_error::wrong;
use crate::host_tensor::HostTensor;
use crate::parameters::to_host;

/// Bytes of a block of copies on a device: few blocks to allocate, and little memory of the host to read one.
const BLOCK: usize = 256 << 20;
/// Alignment of each copy in a block, in bytes.
const ALIGNMENT: usize = 256;

/// The copies of arrays by name.
#[derive(Default)]
pub(super) struct Snapshot {
    host: BTreeMap<String, HostTensor>,
    blocks: Vec<Block>,
}

/// Copies on a device.
struct Block {
    buffer: DeviceBuffer,
    /// What was copied, and where each copy begins.
    pieces: Vec<(String, TensorMeta, usize)>,
}

impl Snapshot {
    /// Copies of these arrays. Those of a device are copied there, which is not waited for, if at least half of its
    /// free memory is left for the next steps, and are read before this returns otherwise.
    ///
    /// # Errors
    /// If there is not as much memory, and those of the device.
    pub(super) fn of(arrays: Vec<(String, Array)>) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let mut state: Option<Arc<DeviceState>> = None;
        let (mut there, mut bytes) = (Vec::new(), 0);
        for (name, array) in arrays {
            match array.memory() {
                Memory::Device(buffer) if array.is_contiguous() => {
                    bytes += array.meta().bytes().next_multiple_of(ALIGNMENT);
                    state.get_or_insert_with(|| buffer.state().clone());
                    there.push((name, array));
                }
                _ => _ = snapshot.host.insert(name, to_host(&array)?),
            }
        }
        let Some(state) = state else { return Ok(snapshot) };
        if state.memory_free().is_none_or(|free| free / 2 < bytes as u64) {
            for (name, array) in there {
                snapshot.host.insert(name, to_host(&array)?);
            }
            return Ok(snapshot);
        }
        let mut there = there.into_iter().peekable();
        while there.peek().is_some() {
            let (mut copied, mut end) = (Vec::new(), 0);
            let fits = |end: usize, array: &Array| end == 0 || end + array.meta().bytes() <= BLOCK;
            while let Some((name, array)) = there.next_if(|(_, array)| fits(end, array)) {
                let start = end;
                end = (start + array.meta().bytes()).next_multiple_of(ALIGNMENT);
                copied.push((name, array, start));
            }
            let buffer = DeviceBuffer::on(&state, end)?;
            let (mut pieces, mut known) = (Vec::new(), Known::default());
            for (name, array, start) in copied {
                if let Memory::Device(from) = array.memory() {
                    let (from_start, bytes) = (from.address().offset(array.byte_offset()), array.meta().bytes());
                    let range = CopyRange { from: from_start, to: buffer.address().offset(start), bytes };
                    // SAFETY: the block is new and has room for the copy, and the steps after it are on this stream.
                    unsafe { state.stream().copy(range) }?;
                    from.shared_content().iter().for_each(|content| content.add_origins(&mut known.origins));
                }
                // Without the array: steps are refused memory that another array shares.
                pieces.push((name, array.meta().clone(), start));
            }
            known.written = Some(state.written(0)?);
            buffer.set_written(&Content::new(known));
            snapshot.blocks.push(Block { buffer, pieces });
        }
        Ok(snapshot)
    }

    /// The copies on the host, read from a device beside its steps.
    ///
    /// # Errors
    /// As [`Snapshot::of`].
    pub(super) fn into_host(self) -> Result<BTreeMap<String, HostTensor>> {
        let Snapshot { mut host, blocks } = self;
        for Block { buffer, pieces } in blocks {
            let bytes = buffer.to_bytes()?;
            drop(buffer);
            for (name, meta, start) in pieces {
                let own = bytes[start..start + meta.bytes()].to_vec();
                let tensor = HostTensor::new(meta.dtype(), meta.shape(), own);
                host.insert(name, tensor.map_err(|error| wrong("tensor", error))?);
            }
        }
        Ok(host)
    }
}
