//! What the CUDA tests share: skipping aloud where the machine lacks something.

use fulgurite_cuda::{self as cuda, CudaError};

/// With this variable set to 1, a test that would be skipped fails instead: for machines that must have all of CUDA.
const REQUIRE_CUDA: &str = "FULGURITE_REQUIRE_CUDA";
/// The same for NVRTC alone, on machines without a device.
const REQUIRE_NVRTC: &str = "FULGURITE_REQUIRE_NVRTC";

fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| value == "1")
}

/// What is there; `None`, said aloud, if it is missing and may be.
fn available<T>(found: cuda::Result<T>, variables: &[&str]) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(error) if variables.iter().any(|variable| is_set(variable)) => panic!("{error}"),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// Whether the run-time compiler is there.
#[allow(dead_code)] // each test binary uses its own half of this module
pub fn has_nvrtc() -> bool {
    available(cuda::nvrtc::version(), &[REQUIRE_CUDA, REQUIRE_NVRTC]).is_some()
}

/// The first device, if there is one, and everything else that tests of it need.
#[allow(dead_code)]
pub fn device() -> Option<cuda::Context> {
    let everything = || -> Result<_, CudaError> {
        cuda::nvrtc::version()?;
        cuda::Context::new(0)
    };
    available(everything(), &[REQUIRE_CUDA])
}
