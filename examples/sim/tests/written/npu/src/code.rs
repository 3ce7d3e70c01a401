//! A program on a device: its commands, enqueued step by step.

use std::sync::Arc;

use fulgurite::device::{Addresses, CodeError, Command, DeviceCode, DeviceError, DeviceStream, LoadedCode};
use fulgurite::kernels::launch::CopyRange;

use crate::error::KindError;
use crate::kernels::Kernel;
use crate::stream::pointer;

/// A program on its device.
pub struct Code {
    code: Arc<DeviceCode>,
    /// For each step, the commands that are run.
    commands: Vec<Vec<Command>>,
}

impl Code {
    /// TODO: compile sources, and say which calls of libraries the device cannot do: the closure's `false` takes what
    /// is planned instead.
    pub(crate) fn load(code: &Arc<DeviceCode>) -> Result<Code, CodeError> {
        let commands = code.commands(|_| Ok(true))?;
        let commands = commands.into_iter().map(|step| step.into_iter().cloned().collect()).collect();
        Ok(Code { code: code.clone(), commands })
    }
}

impl LoadedCode for Code {
    unsafe fn step(
        &mut self,
        stream: &dyn DeviceStream,
        step: usize,
        addresses: &Addresses,
    ) -> Result<(), DeviceError> {
        let of = &self.code.steps[step];
        for command in &self.commands[step] {
            match command {
                // SAFETY: the runtime planned these bytes for the step.
                Command::Fill { to, byte, bytes } => unsafe {
                    stream.fill(addresses.at(of, to), *byte, *bytes as usize)?;
                },
                // SAFETY: as above.
                Command::Copy { from, to, bytes } => unsafe {
                    let (from, to) = (addresses.at(of, from), addresses.at(of, to));
                    stream.copy(CopyRange { from, to, bytes: *bytes as usize })?;
                },
                Command::Library(call) => {
                    let unknown = || KindError::Unknown(format!("{:?}", call.payload));
                    let kernel = call.payload::<Kernel>().ok_or_else(unknown)?;
                    let operands = call.operands.iter().flatten();
                    let operands: Vec<*mut u8> = operands.map(|at| pointer(addresses.at(of, at))).collect();
                    // SAFETY: the runtime planned as many bytes for each operand as the kernel was planned with.
                    unsafe { kernel.run(&operands) }
                }
                Command::Launch { kernel, .. } => {
                    return Err(KindError::Unknown(format!("kernel '{kernel}'")).into());
                }
            }
        }
        Ok(())
    }
}
