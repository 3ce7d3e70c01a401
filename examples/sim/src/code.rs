//! A program on a simulated device: each command is a piece of work of its stream.

use std::sync::Arc;

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
}

impl SimCode {
    /// Chooses what is run: a product that the library lacks is replaced by what is done instead.
    pub fn load(code: &Arc<DeviceCode>) -> Result<SimCode, CodeError> {
        let mut commands = Vec::with_capacity(code.steps.len());
        for (i, step) in code.steps.iter().enumerate() {
            let mut chosen = Vec::new();
            choose(&step.commands, &mut chosen).map_err(|error| CodeError::at(i, error))?;
            commands.push(chosen);
        }
        Ok(SimCode { code: code.clone(), commands })
    }
}

fn choose(commands: &[Command], chosen: &mut Vec<Command>) -> Result<(), SimError> {
    for command in commands {
        match command {
            Command::Launch { kernel, .. } => return Err(SimError::Unknown(format!("kernel '{kernel}'"))),
            Command::Library(call) => match call.payload::<Product>() {
                Some(product) if product.k > LONGEST && call.instead.is_empty() => {
                    return Err(SimError::Unknown(format!("a product of {} terms", product.k)));
                }
                Some(product) if product.k > LONGEST => choose(&call.instead, chosen)?,
                _ => chosen.push(command.clone()),
            },
            Command::Fill { .. } | Command::Copy { .. } => chosen.push(command.clone()),
        }
    }
    Ok(())
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
                Command::Library(call) => enqueue(stream, call, of, addresses)?,
                Command::Launch { kernel, .. } => return Err(SimError::Unknown(format!("kernel '{kernel}'")).into()),
            }
        }
        Ok(())
    }
}

fn enqueue(stream: &SimStream, call: &LibraryCall, step: &CodeStep, addresses: &Addresses) -> Result<(), DeviceError> {
    let operands: Vec<u64> = call.operands.iter().flatten().map(|address| addresses.at(step, address).0).collect();
    if let Some(product) = call.payload::<Product>().copied() {
        return stream.enqueue(Box::new(move |heap| {
            let [a, b, _] = product.bytes();
            let out = product.compute(&heap.read(operands[0], a)?, &heap.read(operands[1], b)?);
            heap.write(operands[2], &out)
        }));
    }
    let Some(kernel) = call.payload::<Kernel>().cloned() else {
        return Err(SimError::Unknown(format!("{:?}", call.payload)).into());
    };
    stream.enqueue(Box::new(move |heap| {
        let (out, inputs) = operands.split_last().ok_or_else(|| SimError::Unknown(kernel.name.into()))?;
        let read = |(address, bytes): (&u64, &usize)| heap.read(*address, *bytes);
        let inputs = inputs.iter().zip(&kernel.reads).map(read).collect::<Result<Vec<_>, _>>()?;
        heap.write(*out, &(kernel.function)(&inputs))
    }))
}
