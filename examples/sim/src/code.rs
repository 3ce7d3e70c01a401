//! A program on a simulated device: each command is a piece of work of its stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite::device::{
    Addresses, CodeError, CodeStep, Command, DeviceCode, DeviceError, DeviceStream, LibraryCall, LoadedCode,
};
use fulgurite::kernels::launch::CopyRange;

use crate::error::SimError;
use crate::kernels::Kernel;
use crate::library::{LONGEST, Product};
use crate::stream::SimStream;

/// A program on its device.
pub struct SimCode {
    code: Arc<DeviceCode>,
    /// For each step, the commands that are run.
    commands: Vec<Vec<Command>>,
    /// False once the program is dropped: work that runs then has no code any more.
    loaded: Arc<AtomicBool>,
}

impl Drop for SimCode {
    fn drop(&mut self) {
        self.loaded.store(false, Ordering::SeqCst);
    }
}

impl SimCode {
    /// Chooses what is run: a product that the library lacks is replaced by what is done instead.
    pub fn load(code: &Arc<DeviceCode>) -> Result<SimCode, CodeError> {
        let runs = |call: &LibraryCall| Ok(call.payload::<Product>().is_none_or(|product| product.k <= LONGEST));
        let commands = code.commands(runs)?;
        let commands = commands.into_iter().map(|step| step.into_iter().cloned().collect()).collect();
        Ok(SimCode { code: code.clone(), commands, loaded: Arc::new(AtomicBool::new(true)) })
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
        let of = &self.code.steps[step];
        for command in &self.commands[step] {
            match command {
                // SAFETY: the addresses are those of the step, as the caller promises; the memory checks each access.
                Command::Fill { to, byte, bytes } => unsafe {
                    stream.fill(addresses.at(of, to), *byte, *bytes as usize)?;
                },
                Command::Copy { from, to, bytes } => {
                    let (from, to) = (addresses.at(of, from), addresses.at(of, to));
                    // SAFETY: as above.
                    unsafe { stream.copy(CopyRange { from, to, bytes: *bytes as usize }) }?;
                }
                Command::Library(call) => self.enqueue(stream, call, of, addresses)?,
                Command::Launch { kernel, .. } => return Err(SimError::Unknown(format!("kernel '{kernel}'")).into()),
            }
        }
        Ok(())
    }
}

impl SimCode {
    fn enqueue(
        &self,
        stream: &SimStream,
        call: &LibraryCall,
        step: &CodeStep,
        addresses: &Addresses,
    ) -> Result<(), DeviceError> {
        let operands: Vec<u64> = call.operands.iter().flatten().map(|address| addresses.at(step, address).0).collect();
        let loaded = self.loaded.clone();
        let check = move || loaded.load(Ordering::SeqCst).then_some(()).ok_or(SimError::Unloaded);
        if let Some(product) = call.payload::<Product>().copied() {
            return stream.enqueue(Box::new(move |heap| {
                check()?;
                let [a, b, _] = product.bytes();
                let out = product.compute(&heap.read(operands[0], a)?, &heap.read(operands[1], b)?);
                heap.write(operands[2], &out)
            }));
        }
        let Some(kernel) = call.payload::<Kernel>().cloned() else {
            return Err(SimError::Unknown(format!("{:?}", call.payload)).into());
        };
        stream.enqueue(Box::new(move |heap| {
            check()?;
            let (out, inputs) = operands.split_last().ok_or_else(|| SimError::Unknown(kernel.name.into()))?;
            let read = |(address, bytes): (&u64, &usize)| heap.read(*address, *bytes);
            let inputs = inputs.iter().zip(&kernel.reads).map(read).collect::<Result<Vec<_>, _>>()?;
            heap.write(*out, &(kernel.function)(&inputs))
        }))
    }
}
