//! What kernels found wrong with their data: an index out of range.
//!
//! The record lies in device memory of its own, so that it outlives the program for whoever is just waiting for the stream.
//! It is fetched when the stream is waited for, not behind every run: on the one stream, a copy stands between kernels and
//! never sees half a record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite_kernels::cuda::{DeviceAddress, DeviceMemory, PinnedMemory};

use crate::device::state::{DeviceState, Faulty};
use crate::error::{Error, Failure, Result};
use crate::trace::Trace;

/// Size of the device's record (`struct Fault` of the shared header).
pub(super) const BYTES: usize = 24;

/// A program's record of a fault.
#[derive(Debug)]
pub(super) struct FaultCell {
    record: DeviceMemory,
    copy: Mutex<PinnedMemory>,
    /// Whether kernels ran since the record was last fetched.
    ran: AtomicBool,
    state: Arc<DeviceState>,
    trace: Arc<Trace>,
    /// For each symbol the argument whose indices it checks.
    arguments: Vec<Option<String>>,
}

impl FaultCell {
    pub(super) fn new(
        state: &Arc<DeviceState>,
        trace: &Arc<Trace>,
        arguments: Vec<Option<String>>,
    ) -> Result<Arc<FaultCell>> {
        let record = DeviceMemory::new(state.context(), BYTES)?;
        // SAFETY: the record was just allocated, with as many bytes.
        unsafe { state.stream().fill_u8(record.address(), 0, BYTES) }?;
        let copy = Mutex::new(PinnedMemory::new(state.context(), BYTES)?);
        let ran = AtomicBool::new(false);
        let cell = Arc::new(FaultCell { record, copy, ran, state: state.clone(), trace: trace.clone(), arguments });
        let watched: Arc<dyn Faulty> = cell.clone();
        state.watch(Arc::downgrade(&watched));
        Ok(cell)
    }

    /// Where kernels report to.
    pub(super) fn address(&self) -> DeviceAddress {
        self.record.address()
    }

    /// Says that kernels that may report were enqueued.
    pub(super) fn mark(&self) {
        self.ran.store(true, Ordering::Release);
    }
}

impl Faulty for FaultCell {
    fn fetch(&self) -> Result<bool> {
        if !self.ran.swap(false, Ordering::AcqRel) {
            return Ok(false);
        }
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: both are this cell's, which the caller keeps until the stream was waited for; nobody reads the copy before.
        unsafe { self.state.stream().copy_to_host(copy.as_bytes_mut(), self.record.address()) }?;
        Ok(true)
    }

    fn take_fault(&self) -> Option<Error> {
        let copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = copy.as_bytes();
        let code = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let number = |at: usize| i64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let (index, size) = (number(8), number(16));
        if code == 0 {
            return None;
        }
        // SAFETY: the record is this cell's. A failure leaves the fault to be told once more, which does no harm.
        let _ = unsafe { self.state.stream().fill_u8(self.record.address(), 0, BYTES) };
        let symbol = self.trace.block.symbols.get(code as usize - 1)?;
        let argument = self.arguments.get(code as usize - 1).cloned().flatten().unwrap_or_else(|| "an argument".into());
        let message = format!("{argument} holds {index}, expected 0 to below {size}");
        Some(symbol.failed(&self.trace.block, Failure::new("IndexOutOfRange", message)))
    }
}
