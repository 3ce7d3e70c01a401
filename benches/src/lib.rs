//! What the measurements share.

pub mod gpt2;

use std::time::{Duration, Instant};

/// The median duration of `runs` calls of `f`, after `warmup` calls.
pub fn median(warmup: usize, runs: usize, mut f: impl FnMut()) -> Duration {
    for _ in 0..warmup {
        f();
    }
    let mut times: Vec<Duration> = (0..runs.max(1))
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

/// The median of some numbers, to three decimals.
pub fn median_of(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).map_or(f64::NAN, |middle| (middle * 1e3).round() / 1e3)
}

/// Peak resident memory of this process in MiB, where the system tells.
pub fn peak_resident_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}

/// Size of the last-level cache in bytes, where the system tells; otherwise 32 MiB.
pub fn last_level_cache() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size").unwrap_or_default();
    text.trim().trim_end_matches('K').parse::<usize>().map_or(32 << 20, |kib| kib << 10)
}

/// The processor's name, where the system tells.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned()))
        .unwrap_or_else(|| "unknown".into())
}
