//! What the memory of the host and of devices moves in a second.

use std::time::Instant;

use rayon::prelude::*;

use super::flops::named;

/// Elements of each of the two arrays: together more than caches hold.
const ELEMENTS: usize = 8 << 20;
/// Elements that a thread copies at once.
const PART: usize = 64 << 10;
/// Copies that are timed.
const RUNS: usize = 7;

/// Bytes that a copy by all threads of the pool reads and writes in a second: the fastest of several, in about 0.1 s.
pub fn of_host() -> f64 {
    let from = vec![1u64; ELEMENTS];
    let mut to = vec![2u64; ELEMENTS];
    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        to.par_chunks_mut(PART).zip(from.par_chunks(PART)).for_each(|(to, from)| to.copy_from_slice(from));
        least = least.min(start.elapsed().as_secs_f64());
    }
    std::hint::black_box(&to);
    2.0 * size_of_val(&*from) as f64 / least.max(1e-9)
}

/// Bytes a second of the memory of a device that is called `model`, as its maker says; `None` for a device that is not
/// in this list.
pub fn of_device(model: &str) -> Option<f64> {
    // In units of 10⁹. NVIDIA's data sheets. The first name that is a part of the device's decides: names of more words
    // come before their beginnings.
    const DEVICES: [(&str, f64); 10] = [
        ("H200", 4800.0),
        ("H100 PCIe", 2000.0),
        ("H100 NVL", 3900.0),
        ("H100", 3350.0),
        ("A100-SXM4-80GB", 2039.0),
        ("A100 80GB PCIe", 1935.0),
        ("A100", 1555.0),
        ("L40S", 864.0),
        ("L4", 300.0),
        ("A10", 600.0),
    ];
    named(model, DEVICES).map(|(_, billions)| billions * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_names_are_found_first() {
        assert_eq!(of_device("NVIDIA H100 80GB HBM3"), Some(3350e9));
        assert_eq!(of_device("NVIDIA A100-SXM4-80GB"), Some(2039e9));
        assert_eq!(of_device("NVIDIA L400"), None);
    }
}
