//! A program on a simulated device: each command is a piece of work of its stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite::device::{
    Addresses, CodeError, CodeStep, Command, DeviceCode, DeviceError, DeviceStream, LibraryCall, LoadedCode,
    ReplayCounts, Room, same_addresses,
};
use fulgurite::kernels::launch::DeviceAddress;

use crate::error::SimError;
use crate::heap::Heap;
use crate::kernels::Kernel;
use crate::library::{LONGEST, Product};
use crate::stream::SimStream;

/// A piece of work that is done again and again.
type Piece = Arc<dyn Fn(&Heap) -> Result<(), SimError> + Send + Sync>;

/// The work of a whole run, with the addresses of inputs and outputs that it uses.
struct Recorded {
    given: Arc<[DeviceAddress]>,
    pieces: Vec<Piece>,
}

/// A program on its device.
pub struct SimCode {
    code: Arc<DeviceCode>,
    room: Room,
    /// For each step, the commands that are run.
    commands: Vec<Vec<Command>>,
    /// False once the program is dropped: work that runs then has no code any more.
    loaded: Arc<AtomicBool>,
    recorded: Option<Recorded>,
    counts: ReplayCounts,
}

impl Drop for SimCode {
    fn drop(&mut self) {
        self.loaded.store(false, Ordering::SeqCst);
    }
}

impl SimCode {
    /// Chooses what is run: a product that the library lacks is replaced by what is done instead.
    pub fn load(code: &Arc<DeviceCode>, room: Room) -> Result<SimCode, CodeError> {
        let runs = |call: &LibraryCall| Ok(call.payload::<Product>().is_none_or(|product| product.k <= LONGEST));
        let commands = code.commands(runs)?;
        let commands = commands.into_iter().map(|step| step.into_iter().cloned().collect()).collect();
        let (code, loaded) = (code.clone(), Arc::new(AtomicBool::new(true)));
        Ok(SimCode { code, room, commands, loaded, recorded: None, counts: ReplayCounts::default() })
    }

    /// The work of a step, a piece for each command.
    fn pieces(&self, step: usize, addresses: &Addresses) -> Result<Vec<Piece>, DeviceError> {
        let of = &self.code.steps[step];
        let piece = |command: &Command| -> Result<Piece, DeviceError> {
            match command {
                Command::Fill { to, byte, bytes } => {
                    let (to, byte, bytes) = (addresses.at(of, to), *byte, *bytes as usize);
                    Ok(Arc::new(move |heap| heap.fill(to.0, byte, bytes)))
                }
                Command::Copy { from, to, bytes } => {
                    let (from, to, bytes) = (addresses.at(of, from), addresses.at(of, to), *bytes as usize);
                    Ok(Arc::new(move |heap| heap.write(to.0, &heap.read(from.0, bytes)?)))
                }
                Command::Library(call) => self.call(call, of, addresses),
                Command::Launch { kernel, .. } => Err(SimError::Unknown(format!("kernel '{kernel}'")).into()),
            }
        };
        self.commands[step].iter().map(piece).collect()
    }

    fn call(&self, call: &LibraryCall, step: &CodeStep, addresses: &Addresses) -> Result<Piece, DeviceError> {
        let operands: Vec<u64> = call.operands.iter().flatten().map(|address| addresses.at(step, address).0).collect();
        let loaded = self.loaded.clone();
        let check = move || loaded.load(Ordering::SeqCst).then_some(()).ok_or(SimError::Unloaded);
        if let Some(product) = call.payload::<Product>().copied() {
            return Ok(Arc::new(move |heap| {
                check()?;
                let [a, b, _] = product.bytes();
                let out = product.compute(&heap.read(operands[0], a)?, &heap.read(operands[1], b)?);
                heap.write(operands[2], &out)
            }));
        }
        let Some(kernel) = call.payload::<Kernel>().cloned() else {
            return Err(SimError::Unknown(format!("{:?}", call.payload)).into());
        };
        Ok(Arc::new(move |heap| {
            check()?;
            let (out, inputs) = operands.split_last().ok_or_else(|| SimError::Unknown(kernel.name.into()))?;
            let read = |(address, bytes): (&u64, &usize)| heap.read(*address, *bytes);
            let inputs = inputs.iter().zip(&kernel.reads).map(read).collect::<Result<Vec<_>, _>>()?;
            heap.write(*out, &(kernel.function)(&inputs))
        }))
    }
}

impl LoadedCode for SimCode {
    unsafe fn step(
        &mut self,
        stream: &dyn DeviceStream,
        step: usize,
        addresses: &Addresses,
    ) -> Result<(), DeviceError> {
        let stream = SimStream::of(stream)?;
        // Whatever the addresses are, the memory checks each access.
        self.pieces(step, addresses)?
            .into_iter()
            .try_for_each(|piece| stream.enqueue(Box::new(move |heap| piece(heap))))
    }

    /// The pieces of a run are made once for each set of addresses, and enqueued one by one: each may be late. Steps on
    /// several streams are not replayed.
    unsafe fn replay(&mut self, stream: &dyn DeviceStream, given: &Arc<[DeviceAddress]>) -> Result<bool, CodeError> {
        if !self.code.other_streams().is_empty() {
            return Ok(false);
        }
        if self.recorded.as_ref().is_none_or(|recorded| !same_addresses(&recorded.given, given)) {
            let addresses = self.code.addresses(&self.room, given);
            let steps = 0..self.code.steps.len();
            let pieces = steps.map(|step| self.pieces(step, &addresses).map_err(|error| CodeError::at(step, error)));
            let pieces = pieces.collect::<Result<Vec<_>, _>>()?.concat();
            let count = if self.recorded.is_none() { &mut self.counts.graphs } else { &mut self.counts.updates };
            *count += 1;
            self.recorded = Some(Recorded { given: given.clone(), pieces });
        }
        self.room.begin(stream)?;
        let stream = SimStream::of(stream).map_err(DeviceError::from)?;
        for piece in self.recorded.iter().flat_map(|recorded| &recorded.pieces).cloned() {
            stream.enqueue(Box::new(move |heap| piece(heap)))?;
        }
        self.counts.replays += 1;
        Ok(true)
    }

    fn counts(&self) -> ReplayCounts {
        self.counts
    }
}
