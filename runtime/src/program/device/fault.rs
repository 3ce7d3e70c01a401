//! What kernels found wrong with their data: an index out of range.

use std::sync::{Arc, Mutex, PoisonError};

use fulgurite_kernels::cuda::{DeviceAddress, PinnedMemory, Stream};

use crate::device::state::{DeviceState, Faulty};
use crate::error::{CallStack, Error, Failure, Result};
use crate::trace::{Trace, print_symbol};

/// Size of the device's record (`struct Fault` of the shared header).
pub(super) const BYTES: usize = 24;

/// The host's copy of a program's record.
#[derive(Debug)]
pub(super) struct FaultCell {
    copy: Mutex<PinnedMemory>,
    address: DeviceAddress,
    state: Arc<DeviceState>,
    trace: Arc<Trace>,
    /// For each symbol the argument whose indices it checks.
    arguments: Vec<Option<String>>,
}

impl FaultCell {
    pub(super) fn new(
        state: &Arc<DeviceState>,
        address: DeviceAddress,
        trace: &Arc<Trace>,
        arguments: Vec<Option<String>>,
    ) -> Result<Arc<FaultCell>> {
        let copy = Mutex::new(PinnedMemory::new(state.context(), BYTES)?);
        // SAFETY: the record is part of the program's memory.
        unsafe { state.stream().fill_u8(address, 0, BYTES) }?;
        let cell = Arc::new(FaultCell { copy, address, state: state.clone(), trace: trace.clone(), arguments });
        let watched: Arc<dyn Faulty> = cell.clone();
        state.watch(Arc::downgrade(&watched));
        Ok(cell)
    }

    /// Has the record copied to the host, behind the work enqueued.
    pub(super) fn fetch(&self, stream: &Stream, from: DeviceAddress) -> Result<()> {
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the copy lives as long as this cell, which the program keeps until the stream is done; it is read only
        // after the stream was waited for.
        unsafe { stream.copy_to_host(copy.as_bytes_mut(), from) }?;
        Ok(())
    }
}

impl Faulty for FaultCell {
    fn take_fault(&self) -> Option<Error> {
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = copy.as_bytes();
        let code = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let number = |at: usize| i64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let (index, size) = (number(8), number(16));
        if code == 0 {
            return None;
        }
        copy.as_bytes_mut().fill(0);
        // SAFETY: as in `new`. A failure leaves the fault to be told once more, which does no harm.
        let _ = unsafe { self.state.stream().fill_u8(self.address, 0, BYTES) };
        let symbol = self.trace.block.symbols.get(code as usize - 1)?;
        let argument = self.arguments.get(code as usize - 1).cloned().flatten().unwrap_or_else(|| "an argument".into());
        let message = format!("{argument} holds {index}, expected 0 to below {size}");
        Some(Error::Run {
            operator: symbol.name().to_owned(),
            failure: Failure::new("IndexOutOfRange", message),
            line: print_symbol(&self.trace.block, symbol),
            stack: CallStack { at: symbol.place, frames: Vec::new() },
        })
    }
}
