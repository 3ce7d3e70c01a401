//! NCCL's communicators: a rank's end of a group of devices, and what goes through it.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use fulgurite_kernels::DType;
use fulgurite_kernels::mesh::Axis;
use fulgurite_kernels::ranks;

use super::super::call::static_text;
use super::super::context::Context;
use super::super::error::{CudaError, Result};
use super::super::library;
use super::super::stream::Stream;
use super::combine::Combine;
use super::parts::{Member, Moves};
use super::sys::{Functions, ID_BYTES, RawCommunicator, Status, UniqueId, number_of};
use super::transfer::{Reduction, Tensors, Transfer, Transferred};
use super::watch::Waiting;

/// A rank's end of the group of ranks along an axis.
#[derive(Debug)]
pub struct Communicator {
    context: Context,
    functions: &'static Functions,
    raw: RawCommunicator,
    member: Member,
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
            member: Member { place, ranks: axis.extent() },
            run: ranks::run_number(),
            aborted: AtomicBool::new(false),
        })
    }

    /// The simulation whose ranks joined.
    pub(crate) fn run_number(&self) -> u64 {
        self.run
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

    /// Enqueues a transfer of each tensor, which NCCL carries out as one; with a kernel `combine`, NCCL moves the parts
    /// that the kernel combines.
    ///
    /// # Safety
    /// The tensors are on the device, alive until the stream is done with them, and as the transfer says. All ranks of
    /// the group enqueue the same transfers in the same order.
    pub(crate) unsafe fn run(&self, stream: &Stream, of: &Tensors<'_>, combine: Option<&Combine>) -> Result<()> {
        if of.tensors.iter().all(|tensor| tensor.count == 0) {
            return Ok(());
        }
        if self.aborted.load(Ordering::Acquire) {
            let name = "the communicator was aborted".to_owned();
            return Err(CudaError::Nccl { call: "a transfer of NCCL", name, text: String::new() });
        }
        let raw = stream.bound()?.raw.cast::<c_void>();
        let member = self.member;
        // SAFETY: promised by the caller.
        unsafe {
            let Some(combine) = combine else {
                let some = || of.tensors.iter().filter(|tensor| tensor.count > 0);
                return match of.transfer {
                    Transfer::AllToAll | Transfer::SendRecv(_) => self.moved(stream, &member.moved(of)),
                    _ => self.grouped(|| some().try_for_each(|tensor| self.enqueue(raw, of, *tensor))),
                };
            };
            self.moved(stream, &member.scattered(of))?;
            combine.run(stream, member.place, &member.combined(of))?;
            match of.transfer {
                Transfer::AllReduce(_) => self.moved(stream, &member.gathered(of, false)),
                _ => Ok(()),
            }
        }
    }

    /// Whether NCCL combines numbers as the operators say. It would round each sum of two ranks to 16 bits, its
    /// documentation does not mention NaN in extrema, and it has no integers of 16 bits.
    pub(crate) fn combines([dtype, result]: [DType; 2], by: Reduction) -> bool {
        if dtype != result || matches!(dtype, DType::I16 | DType::U16) {
            return false;
        }
        match by {
            Reduction::Sum | Reduction::Mean | Reduction::Product => !(dtype.is_floating() && dtype.size() == 2),
            Reduction::Max | Reduction::Min => !dtype.is_floating(),
        }
    }

    /// Calls of the library that it carries out as one.
    fn grouped(&self, calls: impl FnOnce() -> Result<()>) -> Result<()> {
        let Communicator { functions, raw, .. } = *self;
        // SAFETY: the communicator is alive.
        check(functions, "ncclGroupStart", unsafe { (functions.ncclGroupStart)() }, raw)?;
        let called = calls();
        // A group that began is ended also after a failure: later calls of this thread would be a part of it.
        // SAFETY: as above.
        let ended = check(functions, "ncclGroupEnd", unsafe { (functions.ncclGroupEnd)() }, raw);
        called.and(ended)
    }

    /// # Safety
    /// As [`Communicator::run`], in a group.
    unsafe fn enqueue(&self, stream: *mut c_void, of: &Tensors<'_>, tensor: Transferred) -> Result<()> {
        let Communicator { functions, raw, member: Member { ranks, .. }, .. } = *self;
        let (count, number) = (tensor.count, number_of(of.dtypes[0]));
        let (send, receive) = (tensor.from.0 as *const c_void, tensor.to.0 as *mut c_void);
        // SAFETY: the communicator and the stream are alive; the tensors are promised by the caller.
        let (call, status) = unsafe {
            match of.transfer {
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
                Transfer::AllToAll | Transfer::SendRecv(_) => return Ok(()),
            }
        };
        check(functions, call, status, raw)
    }

    /// What is moved between this rank and each other one.
    ///
    /// # Safety
    /// As [`Communicator::run`].
    unsafe fn moved(&self, stream: &Stream, moves: &Moves) -> Result<()> {
        let Communicator { functions, raw, .. } = *self;
        let bytes = number_of(DType::U8);
        let bound = stream.bound()?;
        let on = bound.raw.cast::<c_void>();
        // SAFETY: promised by the caller.
        self.grouped(|| unsafe {
            for sent in &moves.sent {
                let (from, rank) = (sent.from.0 as *const c_void, sent.to_rank as c_int);
                check(functions, "ncclSend", (functions.ncclSend)(from, sent.bytes, bytes, rank, raw, on), raw)?;
            }
            for got in &moves.received {
                let (to, rank) = (got.to.0 as *mut c_void, got.from_rank as c_int);
                check(functions, "ncclRecv", (functions.ncclRecv)(to, got.bytes, bytes, rank, raw, on), raw)?;
            }
            Ok(())
        })?;
        // SAFETY: promised by the caller.
        moves.kept.iter().try_for_each(|kept| unsafe { stream.copy_on_device(kept.to, kept.from, kept.bytes) })
    }
}

impl Waiting for Communicator {
    fn asynchronous_error(&self) -> Result<()> {
        if self.aborted.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut found = 0;
        // SAFETY: the communicator is alive; the pointer is valid for the call.
        let status = unsafe { (self.functions.ncclCommGetAsyncError)(self.raw, &mut found) };
        check(self.functions, "ncclCommGetAsyncError", status, self.raw)?;
        check(self.functions, "a transfer of NCCL", found, self.raw)
    }

    /// The library waits then until graphs that have transfers are gone, so that a thread of its own calls it: the
    /// caller may be the one to drop them.
    fn abort(&self) {
        if self.aborted.swap(true, Ordering::AcqRel) {
            return;
        }
        self.end(End::Abort, || {});
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
