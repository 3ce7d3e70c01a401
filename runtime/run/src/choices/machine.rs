//! What a record belongs to: a model of devices, and the versions of what runs programs on it.

use fulgurite_kernels::machine::processor;

use crate::device::find_kind;
use crate::error::Result;
use crate::meta::Device;

/// The version of this library, as records have it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a record belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Machine {
    /// The device's model. Devices of one model are as fast as one another.
    pub device: String,
    /// Versions of its driver and libraries.
    pub libraries: String,
}

impl Machine {
    /// That of `device`, which is not opened.
    ///
    /// # Errors
    /// If the device is not available, with the reason.
    pub fn of(device: Device) -> Result<Machine> {
        if device.is_cpu() {
            let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
            let processor = processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned());
            return Ok(Machine { device: format!("{processor}, {threads} threads"), libraries: "none".into() });
        }
        let kind = find_kind(device.kind())?;
        Ok(Machine { device: kind.properties(device.index())?.model, libraries: kind.software() })
    }
}
