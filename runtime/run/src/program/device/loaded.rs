//! A program on its device: its memory, its code, and what goes with each run.

use std::sync::Arc;

use fulgurite_kernels::launch::DeviceAddress;

use super::fault::FaultCell;
use super::regions::Regions;
use super::staging::Staging;
use crate::device::block::Block;
use crate::device::fences::Fences;
use crate::device::state::Written;
use crate::device::{CodeError, DeviceCode, DeviceError, DeviceState, LoadedCode, Report, Room};
use crate::error::Result;
use crate::trace::Trace;

/// A program on its device.
pub(super) struct Loaded {
    pub(super) staging: Staging,
    /// Dropped before the memory, which other devices may know by it.
    pub(super) code: Box<dyn LoadedCode>,
    /// Arena, workspace, staged inputs, fresh outputs.
    _memory: Block,
    /// If its steps are on several streams.
    pub(super) fences: Option<Fences>,
    pub(super) room: Room,
    /// If some kernel checks its data.
    pub(super) fault: Option<Arc<FaultCell>>,
    pub(super) state: Arc<DeviceState>,
    /// Behind the last run; `None` while there may be work that no mark is behind.
    pub(super) last: Option<Arc<Written>>,
}

/// Why a program is not loaded.
pub(super) enum Refused {
    /// Its memory could not be had.
    Memory(DeviceError),
    /// Its code could not be loaded.
    Code(CodeError),
    /// Any other error.
    Other(crate::Error),
}

impl<E: Into<crate::Error>> From<E> for Refused {
    fn from(error: E) -> Refused {
        Refused::Other(error.into())
    }
}

/// What goes with a program's memory, in the order of [`Loaded`].
type Parts = (Staging, Box<dyn LoadedCode>, Option<Fences>, Room, Option<Arc<FaultCell>>);

impl Loaded {
    /// Allocates memory for the program, and has the device's backend load its code. `meanings` has for each symbol the
    /// description of a fault that its kernels report.
    pub(super) fn new(
        state: Arc<DeviceState>,
        code: &Arc<DeviceCode>,
        regions: &Regions,
        trace: &Arc<Trace>,
        meanings: Vec<Option<Report>>,
    ) -> Result<Loaded, Refused> {
        let memory = state.allocate(regions.total as usize).map_err(Refused::Memory)?;
        // Loading may use the memory, and may fail after that.
        let made = Loaded::within(&memory, &state, code, regions, trace, meanings);
        if made.is_err()
            && let Err(error) = state.synchronize()
        {
            tracing::error!(%error, "waiting for the work of a program that was not loaded");
        }
        let (staging, code, fences, room, fault) = made?;
        Ok(Loaded { _memory: memory, staging, code, fences, room, fault, state, last: None })
    }

    /// What goes with the program's own memory.
    fn within(
        memory: &Block,
        state: &Arc<DeviceState>,
        code: &Arc<DeviceCode>,
        regions: &Regions,
        trace: &Arc<Trace>,
        meanings: Vec<Option<Report>>,
    ) -> Result<Parts, Refused> {
        tracing::debug!(function = %code.name, bytes = regions.total, "memory allocated");
        let reports = meanings.iter().any(Option::is_some);
        let fault = reports.then(|| FaultCell::new(state, trace, meanings)).transpose()?;
        let fault_address = fault.as_ref().map(|fault| fault.address());
        let room = Room { own: memory.address(), bytes: memory.bytes(), fault: fault_address };
        let loaded = state.context().load(code, state.stream(), room).map_err(Refused::Code)?;
        let landings = regions.landings.map(|landing| memory.address().offset(landing as usize));
        let staging = Staging::new(state, (regions.staged.end - regions.staged.start) as usize, landings)?;
        let fences = Fences::new(code, || state.context().event(false))?;
        Ok((staging, loaded, fences, room, fault))
    }

    /// Where the program's own memory starts.
    pub(super) fn own(&self) -> DeviceAddress {
        self.room.own
    }
}

impl Drop for Loaded {
    /// Memory and code must outlive the work that uses them. No driver promises to wait: CUDA gives the place of a
    /// small block or of a module to the next one while kernels are still on their way.
    fn drop(&mut self) {
        let waited = match &self.last {
            Some(last) => last.wait(&self.state),
            None => self.state.synchronize(),
        };
        if let Err(error) = waited {
            tracing::error!(%error, "waiting for the work of a program that is dropped");
        }
    }
}
