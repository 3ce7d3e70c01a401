//! Communicators: a rank's end of a group of devices, and what goes through it.

use std::ffi::{CStr, c_int, c_void};

use fulgurite_kernels::DType;
use fulgurite_kernels::launch::DeviceAddress;
use fulgurite_kernels::mesh::Axis;
use fulgurite_kernels::ranks::{self, RankError};

use super::super::call::static_text;
use super::super::context::Context;
use super::super::error::{CudaError, Result};
use super::super::library;
use super::super::stream::Stream;
use super::sys::{Functions, ID_BYTES, RawCommunicator, Status, UniqueId, number_of};

/// How elements of several devices become one, with `ncclRedOp_t`'s number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Reduction {
    /// Their sum.
    Sum = 0,
    /// The largest.
    Max = 2,
    /// The smallest.
    Min = 3,
    /// Their mean.
    Mean = 4,
}

/// What goes through a communicator. Counts are elements that one rank gives, of contiguous tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// All ranks' tensors as one, on each of them.
    AllReduce(Reduction),
    /// The part of this rank's place of all ranks' tensors as one.
    ReduceScatter(Reduction),
    /// One after another.
    AllGather,
    /// That of the rank at this place.
    Broadcast(usize),
    /// Equal parts, one to each rank, one after another.
    AllToAll,
}

/// A rank's end of the group of ranks along an axis.
#[derive(Debug)]
pub struct Communicator {
    context: Context,
    functions: &'static Functions,
    raw: RawCommunicator,
    ranks: usize,
    /// The simulation whose ranks joined.
    run: u64,
}

// SAFETY: calls of one communicator come from one thread at a time: programs that share it belong to one rank, which is
// a thread.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl Communicator {
    /// Joins the ranks along an axis of the mesh that runs; returns once all of them have called it.
    ///
    /// # Errors
    /// [`CudaError::Unavailable`] without the library, [`CudaError::Ranks`] if a rank does not join, or the library's
    /// own.
    pub fn join(context: &Context, axis: &Axis) -> Result<Communicator> {
        let functions = library::nccl_functions()?;
        let place = ranks::place(axis)?;
        let mut id = UniqueId { bytes: [0; ID_BYTES] };
        if place == 0 {
            // SAFETY: the pointer is valid for the call.
            let status = unsafe { (functions.ncclGetUniqueId)(&mut id) };
            check(functions, "ncclGetUniqueId", status, std::ptr::null_mut())?;
        }
        let ids = ranks::exchange(axis, "a communicator of NCCL", &id.bytes)?;
        id.bytes.copy_from_slice(&ids[0]);
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a context is current; the pointer is valid for the call.
        let status = unsafe { (functions.ncclCommInitRank)(&mut raw, axis.extent() as c_int, id, place as c_int) };
        check(functions, "ncclCommInitRank", status, std::ptr::null_mut())?;
        tracing::debug!(%axis, place, "communicator of NCCL made");
        Ok(Communicator { context: context.clone(), functions, raw, ranks: axis.extent(), run: ranks::run_number() })
    }

    /// Fails outside of the simulation whose ranks joined: no other rank would come.
    pub(crate) fn check_simulation(&self) -> Result<()> {
        if self.run == ranks::run_number() { Ok(()) } else { Err(RankError::OtherSimulation.into()) }
    }

    /// Enqueues a transfer of `count` elements of this rank.
    ///
    /// # Safety
    /// `from` and `to` are tensors of the device, alive until the stream is done with it, of `count` elements and of as
    /// many as the transfer gives. All ranks of the group enqueue the same transfers in the same order.
    pub unsafe fn run(
        &self,
        stream: &Stream,
        transfer: Transfer,
        (dtype, count): (DType, usize),
        from: DeviceAddress,
        to: DeviceAddress,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let bound = stream.bound()?;
        let (stream, raw, dtype) = (bound.raw.cast::<c_void>(), self.raw, number_of(dtype));
        let (send, receive) = (from.0 as *const c_void, to.0 as *mut c_void);
        let functions = self.functions;
        // SAFETY: the communicator and the stream are alive; the tensors are promised by the caller.
        let (call, status) = unsafe {
            match transfer {
                Transfer::AllReduce(by) => {
                    ("ncclAllReduce", (functions.ncclAllReduce)(send, receive, count, dtype, by as c_int, raw, stream))
                }
                Transfer::ReduceScatter(by) => (
                    "ncclReduceScatter",
                    (functions.ncclReduceScatter)(send, receive, count / self.ranks, dtype, by as c_int, raw, stream),
                ),
                Transfer::AllGather => {
                    ("ncclAllGather", (functions.ncclAllGather)(send, receive, count, dtype, raw, stream))
                }
                Transfer::Broadcast(root) => (
                    "ncclBroadcast",
                    (functions.ncclBroadcast)(send, receive, count, dtype, root as c_int, raw, stream),
                ),
                Transfer::AllToAll => return self.all_to_all(stream, (dtype, count), from, to),
            }
        };
        check(functions, call, status, raw)
    }

    /// # Safety
    /// As [`Communicator::run`].
    unsafe fn all_to_all(
        &self,
        stream: *mut c_void,
        (dtype, count): (c_int, usize),
        from: DeviceAddress,
        to: DeviceAddress,
    ) -> Result<()> {
        let Communicator { functions, raw, ranks, .. } = *self;
        let part = count / ranks;
        let bytes = part * size_of_number(dtype);
        // SAFETY: the parts are within both tensors, of which the caller's promise is; a group is one operation.
        unsafe {
            check(functions, "ncclGroupStart", (functions.ncclGroupStart)(), raw)?;
            for rank in 0..ranks {
                let (send, receive) = (from.offset(rank * bytes).0, to.offset(rank * bytes).0);
                let sent = (functions.ncclSend)(send as *const c_void, part, dtype, rank as c_int, raw, stream);
                check(functions, "ncclSend", sent, raw)?;
                let received = (functions.ncclRecv)(receive as *mut c_void, part, dtype, rank as c_int, raw, stream);
                check(functions, "ncclRecv", received, raw)?;
            }
            check(functions, "ncclGroupEnd", (functions.ncclGroupEnd)(), raw)
        }
    }
}

fn size_of_number(dtype: c_int) -> usize {
    match dtype {
        1 => 1,
        6 | 9 => 2,
        2 | 7 => 4,
        _ => 8,
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // Its work has ended: programs hold it. Other ranks may end earlier or later, so that nothing waits for them.
        let closed = self.context.enter().and_then(|_current| {
            // SAFETY: made in `join` and not used afterwards.
            let status = unsafe { (self.functions.ncclCommAbort)(self.raw) };
            check(self.functions, "ncclCommAbort", status, std::ptr::null_mut())
        });
        self.context.keep(closed);
    }
}

/// `Ok` for success; otherwise the status' text, and what the library says of its last error.
fn check(functions: &Functions, call: &'static str, status: Status, communicator: RawCommunicator) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: both are strings of the library; the communicator is one or null.
    let (name, text) = unsafe {
        let last = (functions.ncclGetLastError)(communicator);
        let text = if last.is_null() { String::new() } else { CStr::from_ptr(last).to_string_lossy().into_owned() };
        (static_text((functions.ncclGetErrorString)(status)), text)
    };
    let name = name.unwrap_or_else(|| format!("status {status}"));
    Err(CudaError::Nccl { call, name, text: text.trim().to_owned() })
}
