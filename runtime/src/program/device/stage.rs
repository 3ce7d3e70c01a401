//! Small inputs put where the program has them.

use fulgurite_kernels::launch::CopyRange;

use super::DeviceProgram;
use super::loaded::Loaded;
use crate::array::{Array, Memory};
use crate::error::Result;

impl DeviceProgram {
    /// Copies small inputs to their places: those of the host in one copy, those of the device in one launch.
    pub(super) fn stage(&self, loaded: &mut Loaded, inputs: &[Array]) -> Result<()> {
        let own = loaded.own();
        let first = self.regions.staged.start;
        let staged =
            || inputs.iter().zip(&self.regions.staging).filter_map(|(array, staged)| Some((array, (*staged)?)));
        // What was sent ahead is on the device.
        let from_host = staged().any(|(array, _)| matches!(array.memory(), Memory::Host(_)));
        if from_host {
            loaded.staging.send(&loaded.state, &self.trace.name, own.offset(first as usize), |bytes| {
                let mut end = 0;
                for (array, offset) in staged() {
                    if let Memory::Host(buffer) = array.memory() {
                        let (at, length) = ((offset - first) as usize, array.meta().bytes());
                        bytes[at..at + length].copy_from_slice(&buffer.as_bytes()[array.byte_offset()..][..length]);
                        end = at + length;
                    }
                }
                end
            })?;
        }
        let copies: Vec<CopyRange> = staged()
            .filter_map(|(array, offset)| match array.memory() {
                Memory::Device(buffer) => Some(CopyRange {
                    from: buffer.address().offset(array.byte_offset()),
                    to: own.offset(offset as usize),
                    bytes: array.meta().bytes(),
                }),
                Memory::Host(_) => None,
            })
            .collect();
        // SAFETY: the ranges are allocated, each input has a place of its own, and whoever uses them later does so on
        // this stream.
        unsafe { loaded.state.stream().copy_all(&copies) }?;
        Ok(())
    }
}
