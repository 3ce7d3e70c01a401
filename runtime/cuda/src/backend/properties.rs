//! What kernels are planned by: a device's own properties, or those of a usual device of its architecture.

use crate::Device;

use fulgurite_base::device::{Properties, Rates};

/// The architecture that speaks for all where there is no device.
pub(super) const USUAL: &str = "sm_90a";

/// A usual device of a compute capability (times ten): multiprocessors, threads that one holds, KiB of shared memory
/// that it has and that one block may have. The driver keeps a KiB of each block's. Figures are those of the data
/// centre's product, and of the largest one where there is none.
const TYPICAL: [(u32, usize, usize, usize, usize); 10] = [
    (70, 80, 2048, 96, 96),
    (75, 40, 1024, 64, 64),
    (80, 108, 2048, 164, 163),
    (86, 84, 1536, 100, 99),
    (87, 16, 1536, 164, 163),
    (89, 142, 1536, 100, 99),
    (90, 132, 2048, 228, 227),
    (100, 148, 2048, 228, 227),
    (103, 148, 2048, 228, 227),
    (120, 188, 1536, 100, 99),
];
/// What every device has.
const LEAST: (u32, usize, usize, usize, usize) = (0, 132, 1024, 64, 48);

/// What the fastest product of a compute capability (times ten) does by its data sheet: gigabytes of memory and 10^9
/// operations of dense products in types of 16 bits, in a second.
const FASTEST: [(u32, f64, f64); 5] =
    [(80, 2_039.0, 312e3), (86, 768.0, 155e3), (89, 960.0, 362e3), (90, 4_800.0, 989e3), (100, 8_000.0, 2_250e3)];
/// Of an architecture that the table lacks.
const FASTEST_OF_ANY: (f64, f64) = (8_000.0, 2_500e3);

/// What devices of an architecture do at most.
pub(super) fn rates_of(architecture: &str) -> Rates {
    let number = capability(architecture);
    let found = FASTEST.iter().find(|entry| entry.0 == number).map(|entry| (entry.1, entry.2));
    let (bytes, flops) = found.unwrap_or(FASTEST_OF_ANY);
    Rates { bytes_per_second: bytes * 1e9, flops_per_second: flops * 1e9 }
}

/// Compute capability of an architecture, times ten: 90 of `sm_90a`.
fn capability(architecture: &str) -> u32 {
    let digits = architecture.trim_start_matches("sm_").trim_end_matches(|letter: char| !letter.is_ascii_digit());
    digits.parse().unwrap_or(0)
}

/// What is the same for all devices, or follows from the architecture.
pub(super) fn of_architecture(architecture: &str) -> Properties {
    let number = capability(architecture);
    let found = TYPICAL.iter().find(|entry| entry.0 == number).unwrap_or(&LEAST);
    let (_, multiprocessors, threads, shared, of_block) = *found;
    Properties {
        model: format!("a usual device of {architecture}"),
        architecture: Some(architecture.to_owned()),
        multiprocessors,
        threads_per_multiprocessor: threads,
        shared_bytes_per_multiprocessor: shared << 10,
        shared_bytes_per_block: of_block << 10,
        threads_per_block: 1024,
        grid: [i32::MAX as u32, 65_535, 65_535],
        clusters: number >= 90,
    }
}

/// The properties of a device.
pub(super) fn properties_of(device: &Device) -> Properties {
    Properties {
        model: device.to_string(),
        multiprocessors: device.multiprocessors as usize,
        threads_per_multiprocessor: device.threads_per_multiprocessor as usize,
        shared_bytes_per_multiprocessor: device.shared_bytes_per_multiprocessor,
        shared_bytes_per_block: device.shared_bytes_per_block,
        ..of_architecture(&device.architecture())
    }
}
