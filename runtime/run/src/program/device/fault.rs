//! What kernels of a program report of their data: an index out of range, or weights that nothing can be drawn by.
//!
//! The record is in device memory of its own, so that it outlives the program for readers of its results. It is
//! cleared at the start of each run and fetched at its end, on the compute stream, which the other streams of the run
//! begin behind and end before. So each run is told of its own faults and of no others.

use std::sync::Arc;

use fulgurite_kernels::launch::DeviceAddress;

use crate::device::block::Block;
use crate::device::faults::{Origins, Record, Reporter};
use crate::device::{DeviceState, DeviceStream, RECORD_BYTES, Report};
use crate::error::{Error, Failure, Result};
use crate::trace::Trace;

/// A program's record of a fault.
#[derive(Debug)]
pub(super) struct FaultCell {
    record: Block,
    trace: Arc<Trace>,
    /// For each symbol the description of a fault that its kernels report.
    meanings: Vec<Option<Report>>,
}

impl FaultCell {
    pub(super) fn new(
        state: &DeviceState,
        trace: &Arc<Trace>,
        meanings: Vec<Option<Report>>,
    ) -> Result<Arc<FaultCell>> {
        let record = state.allocate(RECORD_BYTES)?;
        Ok(Arc::new(FaultCell { record, trace: trace.clone(), meanings }))
    }

    /// Where kernels report to.
    pub(super) fn address(&self) -> DeviceAddress {
        self.record.address()
    }

    /// Enqueues that the record is fetched: the last work of a run. Gives the origins of its results.
    pub(super) fn fetch(self: &Arc<FaultCell>, state: &DeviceState, inputs: Origins) -> Result<Origins> {
        state.faults().fetch((state.context(), state.stream()), self.record.address(), self.clone(), inputs)
    }

    /// Waits for the stream, and looks at the record.
    ///
    /// # Errors
    /// What was reported.
    pub(super) fn check(&self, stream: &dyn DeviceStream) -> Result<()> {
        let mut record = [0; RECORD_BYTES];
        self.record.read(stream, 0, &mut record)?;
        self.error(&record).map_or(Ok(()), Err)
    }
}

impl Reporter for FaultCell {
    fn error(&self, record: &Record) -> Option<Error> {
        let code = u32::from_le_bytes([record[0], record[1], record[2], record[3]]);
        let number = |at: usize| i64::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let (index, size) = (number(8), number(16));
        let at = (code as usize).checked_sub(1)?;
        let unknown = || Failure::new("Fault", format!("a kernel reports a fault: {index} of {size}"));
        let failure = self.meanings.get(at)?.as_ref().map_or_else(unknown, |report| report.failure(index, size));
        let symbol = self.trace.block.symbols.get(at)?;
        Some(symbol.failed(&self.trace.block, failure))
    }
}
