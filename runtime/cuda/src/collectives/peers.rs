//! The devices of one host, which write to each other's memory.
//!
//! Each rank writes what another one needs to where it is needed, by the device's copy engines. A flag in the memory of
//! the other device says that all of it is there; another flag says before that the memory may be written to. The
//! stream waits for a flag, which takes no multiprocessor. Ranks write to the memory of programs, which the plan lays
//! out alike on all ranks: each rank knows the others' addresses by its own.
//!
//! A flag has the number of the collective, and the rank that waited clears it. A rank that runs another program than
//! the others waits for a number that does not come, until the watch ends it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{
    CUstreamBatchMemOpParams, CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st as WaitValue,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1 as Awaited,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st as WriteValue,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st__bindgen_ty_1 as Written,
    CUstreamBatchMemOpType_enum as Operation, CUstreamWaitValue_flags_enum as Wait,
};
use fulgurite_kernels::launch::{CopyRange, DeviceAddress};
use fulgurite_kernels::mesh::Axis;
use fulgurite_kernels::ranks;

use super::super::call::driver;
use super::super::context::Context;
use super::super::error::Result;
use super::super::gather::Gather;
use super::super::memory::DeviceMemory;
use super::super::stream::Stream;
use super::combine::Combine;
use super::parts::{Member, Moves};
use super::peer_memory::{Exported, Mapped};
use super::transfer::{Tensors, Transfer};
use super::watch::Waiting;

/// Set to 0, collectives of devices of one host go through NCCL too.
const VARIABLE: &str = "FULGURITE_PEERS";

/// What is smaller is copied by a kernel: a copy engine takes 2 us to begin, and a kernel writes this much meanwhile.
const BY_ENGINE: usize = 256 << 10;

/// Room of the flags: an allocation of its own, of which the driver gives no part to others.
const FLAGS: usize = 2 << 20;

/// For how long an abort lets the devices' streams come to their end.
const TO_THE_END: Duration = Duration::from_secs(10);
/// Between telling the others and the end of the own waits, which gives them wrong data.
const TOLD: Duration = Duration::from_millis(100);

/// What a flag says. Before a rank writes one again, it has waited for a flag of another kind, which the other rank
/// wrote after it had cleared the first: no flag is cleared that was not waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flag {
    /// The rank's memory may be written to.
    Ready,
    /// What was to be written is there.
    Done,
    /// The same, of the second half of a reduction.
    Gathered,
}

/// A rank's end of a group of ranks whose devices write to each other's memory.
#[derive(Debug)]
pub struct Peers {
    context: Context,
    member: Member,
    run: u64,
    gather: Gather,
    flags: Arc<DeviceMemory>,
    /// Those of the other ranks, by place.
    others: Vec<Option<Mapped>>,
    /// The number of the last collective that was made.
    last: AtomicU32,
    /// When it was aborted.
    aborted: Arc<OnceLock<Instant>>,
}

/// The memory of a program, on all ranks of a group.
#[derive(Debug)]
pub struct PeersMemory {
    own: DeviceAddress,
    others: Vec<Option<Mapped>>,
    aborted: Arc<OnceLock<Instant>>,
}

impl Drop for PeersMemory {
    /// After an abort another rank's device may be late, and write here: the memory is kept for a while.
    fn drop(&mut self) {
        if let Some(aborted) = self.aborted.get() {
            std::thread::sleep(TO_THE_END.saturating_sub(aborted.elapsed()));
        }
    }
}

impl PeersMemory {
    /// Where an address of this rank's memory is in that of the rank at a place, which is not this one.
    fn at(&self, place: usize, address: DeviceAddress) -> DeviceAddress {
        let other = self.others[place].as_ref().unwrap_or_else(|| unreachable!("a rank sends nothing to itself"));
        other.address().offset((address.0 - self.own.0) as usize)
    }
}

/// What ranks of one host have the same of, and no others; none where the system does not say.
fn host() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|host| !host.is_empty())
}

/// What all ranks of a group export, as far as they are on one host and could.
fn exchanged(context: &Context, axis: &Axis, called: &str, address: DeviceAddress) -> Result<Option<Vec<Exported>>> {
    let own = Exported::new(context, address);
    let said = own.as_ref().map(Exported::bytes).unwrap_or_default();
    let given = ranks::exchange(axis, called, &said)?;
    // The first error is the driver's own.
    if let Err(error) = &own {
        tracing::info!(%error, "this device's memory is not open to others");
    }
    Ok(given.iter().map(|bytes| Exported::read(bytes)).collect())
}

/// What is mapped on all ranks of a group; none if one of them could not.
fn mapped(
    context: &Context,
    (axis, place): (&Axis, usize),
    called: &str,
    exported: Option<Vec<Exported>>,
) -> Result<Option<Vec<Option<Mapped>>>> {
    let mapped = exported.map(|exported| {
        let of = |(at, exported): (usize, &Exported)| {
            if at == place { Ok(None) } else { Mapped::new(context, exported).map(Some) }
        };
        exported.iter().enumerate().map(of).collect::<Result<Vec<_>>>()
    });
    let mapped = match mapped {
        Some(Ok(mapped)) => Some(mapped),
        Some(Err(error)) if error.is_fatal() => return Err(error),
        Some(Err(error)) => {
            tracing::info!(%error, "this device does not reach another rank's memory");
            None
        }
        None => None,
    };
    let given = ranks::exchange(axis, called, &[u8::from(mapped.is_some())])?;
    Ok(mapped.filter(|_| given.iter().all(|given| given[..] == [1])))
}

impl Peers {
    /// Joins the ranks along an axis of the mesh that runs, and returns once all of them have called it. `None`, on all
    /// ranks, if they are not on one host, or a device cannot write to another one's memory.
    ///
    /// # Errors
    /// [`CudaError::Ranks`](super::super::CudaError::Ranks) if a rank does not join, or the driver's.
    pub fn join(context: &Context, axis: &Axis) -> Result<Option<Peers>> {
        let place = ranks::place(axis)?;
        let wanted = std::env::var_os(VARIABLE).is_none_or(|set| set != "0");
        let host = if wanted { host().unwrap_or_default() } else { String::new() };
        let given = ranks::exchange(axis, "the hosts of the ranks", host.as_bytes())?;
        if host.is_empty() || given.iter().any(|other| other[..] != *host.as_bytes()) {
            return Ok(None);
        }
        // Before the flags are known to others: they are written to from then on.
        let flags = Arc::new(DeviceMemory::new(context, FLAGS)?);
        let stream = Stream::new(context)?;
        // SAFETY: the memory is not used by other work yet.
        unsafe { stream.fill_u8(flags.address(), 0, FLAGS) }?;
        stream.synchronize()?;
        let gather = Gather::new(context)?;
        let exported = exchanged(context, axis, "flags of the ranks", flags.address())?;
        let others = mapped(context, (axis, place), "flags that are reached", exported)?;
        tracing::info!(%axis, place, peers = others.is_some(), "devices of the ranks");
        Ok(others.map(|others| Peers {
            context: context.clone(),
            member: Member { place, ranks: axis.extent() },
            run: ranks::run_number(),
            gather,
            flags,
            others,
            last: AtomicU32::new(0),
            aborted: Arc::default(),
        }))
    }

    /// Exchanges the start of a program's own memory with the other ranks. All of them call it; `None`, on all, if it
    /// cannot be mapped.
    ///
    /// # Errors
    /// As [`Peers::join`].
    pub fn memory(&self, axis: &Axis, own: DeviceAddress) -> Result<Option<PeersMemory>> {
        let exported = exchanged(&self.context, axis, "the memory of a program", own)?;
        let others = mapped(&self.context, (axis, self.member.place), "memory that is reached", exported)?;
        Ok(others.map(|others| PeersMemory { own, others, aborted: self.aborted.clone() }))
    }

    /// The simulation whose ranks joined.
    pub(crate) fn run_number(&self) -> u64 {
        self.run
    }

    /// The number of one more collective. All ranks ask for it in the same order.
    pub(crate) fn next(&self) -> u32 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The place of a flag that the rank at `of` writes.
    fn flag(flag: Flag, of: usize) -> usize {
        (of * 4 + flag as usize) * size_of::<u32>()
    }

    /// Tells the other ranks, and waits for the same from them.
    fn meet(&self, stream: &Stream, flag: Flag, number: u32) -> Result<()> {
        let own = self.member.place;
        let mut operations: Vec<CUstreamBatchMemOpParams> = Vec::with_capacity(3 * self.member.ranks);
        let others = || self.member.others().zip(self.member.others().filter_map(|place| self.others[place].as_ref()));
        operations.extend(others().map(|(_, other)| write(other.address().offset(Peers::flag(flag, own)), number)));
        let given = |place| self.flags.address().offset(Peers::flag(flag, place));
        operations.extend(others().map(|(place, _)| wait(given(place), number)));
        operations.extend(others().map(|(place, _)| write(given(place), 0)));
        let bound = stream.bound()?;
        // The driver's limit.
        for operations in operations.chunks_mut(256) {
            // SAFETY: the flags are mapped as long as this value lives, which programs hold; the stream is alive.
            unsafe { driver!(cuStreamBatchMemOp_v2(bound.raw, operations.len() as u32, operations.as_mut_ptr(), 0)) }?;
        }
        Ok(())
    }

    /// Enqueues what is moved, between flags of which the first may be left out.
    ///
    /// # Safety
    /// As [`Peers::run`].
    unsafe fn moved(
        &self,
        stream: &Stream,
        (ready, done, number): (bool, Flag, u32),
        memory: &PeersMemory,
        moves: &Moves,
    ) -> Result<()> {
        if ready {
            self.meet(stream, Flag::Ready, number)?;
        }
        let copies = moves.sent.iter().map(|sent| {
            let to = memory.at(sent.to_rank, sent.to);
            CopyRange { from: sent.from, to, bytes: sent.bytes }
        });
        // SAFETY: promised by the caller; the other ranks' memory is at the same places of theirs.
        unsafe {
            self.copies(stream, copies)?;
            self.meet(stream, done, number)?;
            self.copies(stream, moves.kept.iter().copied())
        }
    }

    /// # Safety
    /// As [`Gather::copy`].
    unsafe fn copies(&self, stream: &Stream, copies: impl Iterator<Item = CopyRange>) -> Result<()> {
        let (large, small): (Vec<CopyRange>, Vec<CopyRange>) = copies.partition(|copy| copy.bytes >= BY_ENGINE);
        // SAFETY: promised by the caller.
        unsafe {
            self.gather.copy(stream, &small)?;
            large.iter().try_for_each(|copy| stream.copy_on_device(copy.to, copy.from, copy.bytes))
        }
    }

    /// Enqueues a transfer, whose number is [`Peers::next`]'s. `by_slots` is whether its results are not in `memory`.
    ///
    /// # Safety
    /// The tensors are on the device, alive until the stream is done with them, and as the transfer says; what others
    /// write to, results or, of a reduction, the workspace, is in `memory`, at the same places on all ranks. All ranks
    /// of the group enqueue the same transfers in the same order.
    pub(crate) unsafe fn run(
        &self,
        stream: &Stream,
        (number, memory, by_slots): (u32, &PeersMemory, bool),
        of: &Tensors<'_>,
        combine: Option<&Combine>,
    ) -> Result<()> {
        if of.tensors.iter().all(|tensor| tensor.count == 0) {
            return Ok(());
        }
        let member = self.member;
        // SAFETY: promised by the caller.
        unsafe {
            let Some(combine) = combine else {
                return self.moved(stream, (true, Flag::Done, number), memory, &member.moved(of));
            };
            self.moved(stream, (true, Flag::Done, number), memory, &member.scattered(of))?;
            combine.run(stream, member.place, &member.combined(of))?;
            if let Transfer::AllReduce(_) = of.transfer {
                // The slots may be read by the kernel of another rank still; the rank's own tensors were all read.
                self.moved(stream, (by_slots, Flag::Gathered, number), memory, &member.gathered(of, by_slots))?;
            }
            Ok(())
        }
    }
}

impl Waiting for Peers {
    fn asynchronous_error(&self) -> Result<()> {
        Ok(())
    }

    /// Writes all flags of this rank, again and again, until what is enqueued has come to its end.
    fn abort(&self) {
        if self.aborted.set(Instant::now()).is_err() {
            return;
        }
        let (context, flags) = (self.context.clone(), self.flags.clone());
        let (last, words) = (self.last.load(Ordering::Relaxed), Peers::flag(Flag::Ready, self.member.ranks) / 4);
        let write = move || {
            std::thread::sleep(TOLD);
            let begun = Instant::now();
            let written = Stream::new(&context).and_then(|stream| {
                // Until the programs are gone that had waits.
                while begun.elapsed() < TO_THE_END && Arc::strong_count(&flags) > 1 {
                    for number in 1..=last {
                        // SAFETY: the flags are alive.
                        unsafe { stream.fill_u32(flags.address(), number, words) }?;
                        while !stream.is_idle()? {
                            std::hint::spin_loop();
                        }
                    }
                }
                Ok(())
            });
            context.keep(written);
        };
        if let Err(error) = std::thread::Builder::new().name("end of collectives".into()).spawn(write) {
            tracing::error!(%error, "no thread ends the waits of this device");
        }
    }
}

fn wait(address: DeviceAddress, value: u32) -> CUstreamBatchMemOpParams {
    CUstreamBatchMemOpParams {
        waitValue: WaitValue {
            operation: Operation::CU_STREAM_MEM_OP_WAIT_VALUE_32,
            address: address.0,
            __bindgen_anon_1: Awaited { value },
            flags: Wait::CU_STREAM_WAIT_VALUE_EQ as u32,
            alias: 0,
        },
    }
}

/// What was enqueued before is seen by all devices before the value is.
fn write(address: DeviceAddress, value: u32) -> CUstreamBatchMemOpParams {
    CUstreamBatchMemOpParams {
        writeValue: WriteValue {
            operation: Operation::CU_STREAM_MEM_OP_WRITE_VALUE_32,
            address: address.0,
            __bindgen_anon_1: Written { value },
            flags: 0,
            alias: 0,
        },
    }
}
