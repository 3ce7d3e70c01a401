//! The device that a test wants, and files that are found where the test binary was carried to.

use std::path::PathBuf;

use fulgurite_runtime::Device;
use fulgurite_runtime::device::DeviceState;

/// The first CUDA device; says so if there is none. With `FULGURITE_REQUIRE_CUDA=1` that is a failure.
pub fn cuda() -> Option<Device> {
    let device = Device::new("cuda", 0);
    match DeviceState::of(device) {
        Ok(_) => Some(device),
        Err(error) => {
            assert!(
                std::env::var_os("FULGURITE_REQUIRE_CUDA").is_none_or(|value| value != "1"),
                "FULGURITE_REQUIRE_CUDA=1, and there is no device: {error}"
            );
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// A file of `tests/golden`: beside the sources, or in the working folder where the binary runs elsewhere.
#[allow(dead_code, reason = "not every test that wants a device reads vectors")]
pub fn golden(name: &str) -> PathBuf {
    let built = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/golden")).join(name);
    if built.exists() { built } else { PathBuf::from("golden").join(name) }
}
