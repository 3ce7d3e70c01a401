//! What of CUDA this machine has: libraries, their versions, devices. Absence is a value with a reason.

use super::device::{self, Device};
use super::error::Result;
use super::library::{Library, cublaslt, cudnn, driver, nccl, nvrtc};
use std::fmt;
use std::sync::OnceLock;

/// All that was found out about CUDA on this machine. Printed, it is a few lines for people.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The driver; its version is the newest CUDA that it supports.
    pub driver: Library,
    /// The run-time compiler.
    pub nvrtc: Library,
    /// Matrix products.
    pub cublaslt: Library,
    /// Collectives over several devices.
    pub nccl: Library,
    /// Attention and convolutions.
    pub cudnn: Library,
    /// The devices, in the driver's order, or why there are none.
    pub devices: Result<Vec<Device>>,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for library in [&self.driver, &self.nvrtc, &self.cublaslt, &self.nccl, &self.cudnn] {
            writeln!(f, "{library}")?;
        }
        match &self.devices {
            Ok(devices) => devices.iter().try_for_each(|device| writeln!(f, "{device}")),
            Err(error) if self.driver.is_found() => writeln!(f, "devices: none: {error}"),
            Err(_) => writeln!(f, "devices: none without a driver"),
        }
    }
}

/// What this machine has. Everything is looked for once in a process; this loads every library, so programs that only
/// compile or only compute should rather let each part ask for what it needs.
pub fn probe() -> &'static Probe {
    static PROBE: OnceLock<Probe> = OnceLock::new();
    PROBE.get_or_init(|| Probe {
        driver: driver().clone(),
        nvrtc: nvrtc().clone(),
        cublaslt: cublaslt().clone(),
        nccl: nccl().clone(),
        cudnn: cudnn().clone(),
        devices: device::devices(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CudaError, LibraryState};

    #[test]
    fn a_probe_never_panics_and_absence_has_a_reason() {
        let probe = probe();
        println!("{probe}");
        for library in [&probe.driver, &probe.nvrtc, &probe.cublaslt, &probe.nccl, &probe.cudnn] {
            if let LibraryState::Missing { reason, advice } = &library.state {
                assert!(!reason.is_empty() && !advice.is_empty());
                assert!(matches!(library.require(), Err(CudaError::Unavailable { .. })));
            }
        }
        assert!(probe.devices.is_err() || probe.driver.is_found());
    }
}
