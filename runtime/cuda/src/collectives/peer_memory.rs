//! Memory of a device that the devices of other ranks write to.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use cudarc::driver::sys::{CUipcMem_flags_enum, CUipcMemHandle};
use fulgurite_kernels::launch::DeviceAddress;

use super::super::call::driver;
use super::super::context::Context;
use super::super::error::{CudaError, Result};

/// Bytes of a handle of the driver.
const HANDLE: usize = size_of::<CUipcMemHandle>();

/// A number that no other process has, be it in another container with the same process number.
fn this_process() -> u64 {
    static DRAWN: OnceLock<u64> = OnceLock::new();
    *DRAWN.get_or_init(|| RandomState::new().hash_one(std::process::id()))
}

/// What other ranks need to know of a rank's memory: the process and the device that it is of, and where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exported {
    process: u64,
    ordinal: u32,
    address: DeviceAddress,
    /// From the start of the allocation, which the handle is of.
    offset: u64,
    handle: [u8; HANDLE],
}

impl Exported {
    /// Of memory at an address of this process.
    pub(super) fn new(context: &Context, address: DeviceAddress) -> Result<Exported> {
        let _current = context.enter()?;
        let (mut base, mut bytes) = (0, 0);
        let mut handle = CUipcMemHandle { reserved: [0; HANDLE] };
        // SAFETY: the address is one of an allocation of this context; the pointers are valid for the calls.
        unsafe {
            driver!(cuMemGetAddressRange_v2(&mut base, &mut bytes, address.0))?;
            driver!(cuIpcGetMemHandle(&mut handle, base))?;
        }
        Ok(Exported {
            process: this_process(),
            ordinal: context.device().ordinal as u32,
            address,
            offset: address.0 - base,
            handle: handle.reserved.map(|byte| byte as u8),
        })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(28 + HANDLE);
        bytes.extend(self.process.to_le_bytes());
        bytes.extend(self.ordinal.to_le_bytes());
        bytes.extend(self.address.0.to_le_bytes());
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.handle);
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Exported> {
        let (process, rest) = bytes.split_first_chunk()?;
        let (ordinal, rest) = rest.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        Some(Exported {
            process: u64::from_le_bytes(*process),
            ordinal: u32::from_le_bytes(*ordinal),
            address: DeviceAddress(u64::from_le_bytes(*address)),
            offset: u64::from_le_bytes(*offset),
            handle: rest.try_into().ok()?,
        })
    }
}

/// Memory of another rank's device, where this rank's device can write to it.
#[derive(Debug)]
pub(super) struct Mapped {
    context: Context,
    address: DeviceAddress,
    /// What the driver opened; none of memory of the same process.
    opened: Option<DeviceAddress>,
}

impl Mapped {
    /// # Errors
    /// If this device cannot write there.
    pub(super) fn new(context: &Context, of: &Exported) -> Result<Mapped> {
        if of.process == this_process() {
            let other = Context::new(of.ordinal as usize)?;
            context.reach(&other)?;
            return Ok(Mapped { context: context.clone(), address: of.address, opened: None });
        }
        let _current = context.enter()?;
        let handle = CUipcMemHandle { reserved: of.handle.map(|byte| byte as _) };
        let mut base = DeviceAddress::NULL;
        let reach = CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        // SAFETY: a context is current; the handle is one of a process of this host, and the driver checks it.
        unsafe { driver!(cuIpcOpenMemHandle_v2(&mut base.0, handle, reach)) }?;
        let address = base.offset(of.offset as usize);
        Ok(Mapped { context: context.clone(), address, opened: Some(base) })
    }

    pub(super) fn address(&self) -> DeviceAddress {
        self.address
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let Some(base) = self.opened else { return };
        // SAFETY: opened in `new`, and used by no work any more.
        let closed = self.context.enter().and_then(|_current| unsafe { driver!(cuIpcCloseMemHandle(base.0)) });
        self.context.keep(closed);
    }
}

impl Context {
    /// Has this device write to memory of another one of this process.
    fn reach(&self, other: &Context) -> Result<()> {
        let mut can = 0;
        // SAFETY: both are devices of the driver; the pointer is valid for the call.
        unsafe { driver!(cuDeviceCanAccessPeer(&mut can, self.handle(), other.handle())) }?;
        if can == 0 {
            let text = format!("device {} does not reach {}", self.device().ordinal, other.device().ordinal);
            return Err(CudaError::Driver { call: "cuDeviceCanAccessPeer", name: "no".into(), text });
        }
        let _current = self.enter()?;
        // SAFETY: a context is current, and the other one is alive.
        match unsafe { driver!(cuCtxEnablePeerAccess(other.raw(), 0)) } {
            Err(CudaError::Driver { name, .. }) if name == "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED" => Ok(()),
            enabled => enabled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exported_is_read_again() {
        let mut handle = [0; HANDLE];
        handle.iter_mut().zip(1..).for_each(|(byte, number)| *byte = number);
        let address = DeviceAddress(0x7f00_1234_5600);
        let exported = Exported { process: 77, ordinal: 3, address, offset: 0x5600, handle };
        let bytes = exported.bytes();
        assert_eq!(format!("{:?}", Exported::read(&bytes).unwrap()), format!("{exported:?}"));
        assert!(Exported::read(&bytes[1..]).is_none());
    }
}
