//! Communicators: a rank's end of a group of devices, and what goes through it.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

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
    /// Their product.
    Product = 1,
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
    /// That of the rank as many places before.
    SendRecv(usize),
}

/// A tensor that goes through a communicator.
#[derive(Debug, Clone, Copy)]
pub struct Transferred {
    /// How many elements this rank gives.
    pub count: usize,
    /// The first element that this rank gives.
    pub from: DeviceAddress,
    /// Where the first element that it gets is written.
    pub to: DeviceAddress,
}

/// A rank's end of the group of ranks along an axis.
#[derive(Debug)]
pub struct Communicator {
    context: Context,
    functions: &'static Functions,
    raw: RawCommunicator,
    ranks: usize,
    /// This rank's among them.
    place: usize,
    /// The simulation whose ranks joined.
    run: u64,
    /// Whether it was aborted: it is used no more.
    aborted: AtomicBool,
}

/// How one ends: with all data sent, or at once, with kernels that return without the other ranks.
enum End {
    Destroy,
    Abort,
}

/// Held while one is destroyed: the last of a process frees what all ranks of that process have of it.
static DESTROYING: Mutex<()> = Mutex::new(());

/// How long one that is destroyed waits for those of the other ranks.
const GOOD_ORDER: Duration = Duration::from_secs(5);

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
        Ok(Communicator {
            context: context.clone(),
            functions,
            raw,
            ranks: axis.extent(),
            place,
            run: ranks::run_number(),
            aborted: AtomicBool::new(false),
        })
    }

    /// Fails outside of the simulation whose ranks joined: no other rank would come.
    pub(crate) fn check_simulation(&self) -> Result<()> {
        if self.run == ranks::run_number() { Ok(()) } else { Err(RankError::OtherSimulation.into()) }
    }

    /// An error that occurred behind a call: a connection to another rank is lost.
    pub(super) fn asynchronous_error(&self) -> Result<()> {
        if self.aborted.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut found = 0;
        // SAFETY: the communicator is alive; the pointer is valid for the call.
        let status = unsafe { (self.functions.ncclCommGetAsyncError)(self.raw, &mut found) };
        check(self.functions, "ncclCommGetAsyncError", status, self.raw)?;
        check(self.functions, "a transfer of NCCL", found, self.raw)
    }

    /// Has the device's work end without the other ranks. The library waits then until graphs that have transfers are
    /// gone, so that a thread of its own calls it: the caller may be the one to drop them.
    pub(super) fn abort(&self) {
        if self.aborted.swap(true, Ordering::AcqRel) {
            return;
        }
        self.end(End::Abort, || {});
    }

    /// Has a thread end it, and call `told` then. False if there is no thread: it is left.
    fn end(&self, how: End, told: impl FnOnce() + Send + 'static) -> bool {
        let (context, functions, raw) = (self.context.clone(), self.functions, self.raw as usize);
        let (call, end) = match how {
            End::Destroy => ("ncclCommDestroy", functions.ncclCommDestroy),
            End::Abort => ("ncclCommAbort", functions.ncclCommAbort),
        };
        let ended = move || {
            let _destroying =
                matches!(how, End::Destroy).then(|| DESTROYING.lock().unwrap_or_else(PoisonError::into_inner));
            let done = context.enter().and_then(|_current| {
                // SAFETY: made in `join`, and ended once, after which nothing uses it.
                let status = unsafe { end(raw as RawCommunicator) };
                check(functions, call, status, std::ptr::null_mut())
            });
            context.keep(done);
            told();
        };
        let begun = std::thread::Builder::new().name("end of NCCL".into()).spawn(ended);
        if let Err(error) = &begun {
            tracing::error!(%error, "no thread ends a communicator of NCCL");
        }
        begun.is_ok()
    }

    /// Enqueues a transfer of each tensor; NCCL carries out all of them as one.
    ///
    /// # Safety
    /// The tensors are on the device, alive until the stream is done with them, `from` of `count` elements and `to` of
    /// as many as the transfer gives. All ranks of the group enqueue the same transfers in the same order.
    pub unsafe fn run(&self, stream: &Stream, transfer: Transfer, dtype: DType, tensors: &[Transferred]) -> Result<()> {
        if tensors.iter().all(|tensor| tensor.count == 0) {
            return Ok(());
        }
        if self.aborted.load(Ordering::Acquire) {
            let name = "the communicator was aborted".to_owned();
            return Err(CudaError::Nccl { call: "a transfer of NCCL", name, text: String::new() });
        }
        let bound = stream.bound()?;
        let stream = bound.raw.cast::<c_void>();
        let Communicator { functions, raw, .. } = *self;
        // SAFETY: the communicator is alive; the rest is the caller's promise.
        unsafe {
            check(functions, "ncclGroupStart", (functions.ncclGroupStart)(), raw)?;
            let some = tensors.iter().filter(|tensor| tensor.count > 0);
            let enqueued = some.into_iter().try_for_each(|tensor| self.enqueue(stream, transfer, dtype, *tensor));
            // A group that began is ended also after a failure: later calls of this thread would be a part of it.
            let ended = check(functions, "ncclGroupEnd", (functions.ncclGroupEnd)(), raw);
            enqueued.and(ended)
        }
    }

    /// # Safety
    /// As [`Communicator::run`], in a group.
    unsafe fn enqueue(&self, stream: *mut c_void, transfer: Transfer, dtype: DType, of: Transferred) -> Result<()> {
        let Communicator { functions, raw, ranks, place, .. } = *self;
        let (count, number) = (of.count, number_of(dtype));
        let (send, receive) = (of.from.0 as *const c_void, of.to.0 as *mut c_void);
        // SAFETY: the communicator and the stream are alive; the tensors are promised by the caller.
        let (call, status) = unsafe {
            match transfer {
                Transfer::AllReduce(by) => {
                    ("ncclAllReduce", (functions.ncclAllReduce)(send, receive, count, number, by as c_int, raw, stream))
                }
                Transfer::ReduceScatter(by) => (
                    "ncclReduceScatter",
                    (functions.ncclReduceScatter)(send, receive, count / ranks, number, by as c_int, raw, stream),
                ),
                Transfer::AllGather => {
                    ("ncclAllGather", (functions.ncclAllGather)(send, receive, count, number, raw, stream))
                }
                Transfer::Broadcast(root) => (
                    "ncclBroadcast",
                    (functions.ncclBroadcast)(send, receive, count, number, root as c_int, raw, stream),
                ),
                Transfer::AllToAll => {
                    let part = (dtype, count / ranks);
                    let at = |first: DeviceAddress, rank: usize| first.offset(rank * part.1 * dtype.size());
                    let with =
                        |rank| self.send_and_receive(stream, part, [at(of.from, rank), at(of.to, rank)], [rank; 2]);
                    return (0..ranks).try_for_each(with);
                }
                Transfer::SendRecv(shift) => {
                    let (next, last) = ((place + shift) % ranks, (place + ranks - shift) % ranks);
                    return self.send_and_receive(stream, (dtype, count), [of.from, of.to], [next, last]);
                }
            }
        };
        check(functions, call, status, raw)
    }

    /// To the rank at the first place, and from the one at the second.
    ///
    /// # Safety
    /// As [`Communicator::run`], in a group; the other ranks receive and send the same.
    unsafe fn send_and_receive(
        &self,
        stream: *mut c_void,
        (dtype, count): (DType, usize),
        [from, to]: [DeviceAddress; 2],
        [next, last]: [usize; 2],
    ) -> Result<()> {
        let Communicator { functions, raw, .. } = *self;
        let dtype = number_of(dtype);
        // SAFETY: promised by the caller.
        let [sent, received] = unsafe {
            [
                (functions.ncclSend)(from.0 as *const c_void, count, dtype, next as c_int, raw, stream),
                (functions.ncclRecv)(to.0 as *mut c_void, count, dtype, last as c_int, raw, stream),
            ]
        };
        check(functions, "ncclSend", sent, raw)?;
        check(functions, "ncclRecv", received, raw)
    }
}

impl Drop for Communicator {
    /// Its own work has ended, and its graphs are gone: programs hold it. `ncclCommDestroy` waits for the other ranks
    /// of the host, which may have failed: a thread of its own calls it.
    fn drop(&mut self) {
        if self.aborted.load(Ordering::Acquire) {
            return;
        }
        let (told, ended) = mpsc::channel();
        let begun = self.end(End::Destroy, move || {
            let _ = told.send(());
        });
        if begun && ended.recv_timeout(GOOD_ORDER).is_err() {
            tracing::warn!("the other ranks do not end their communicator of NCCL");
        }
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
