//! What the machine offers, read from where the system says so.

use std::fs;

/// Bytes of memory.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Memory {
    /// In the machine.
    pub total: u64,
    /// To be had without swapping.
    pub available: u64,
}

/// The machine's memory, where `/proc/meminfo` tells.
pub fn memory() -> Option<Memory> {
    parse_memory(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_memory(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        kilobytes.checked_mul(1024)
    };
    Some(Memory { total: field("MemTotal")?, available: field("MemAvailable")? })
}

/// The processor's name, where `/proc/cpuinfo` tells.
pub fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Vector instructions that the processor has and this library knows of.
pub fn cpu_features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        let all = [
            ("sse4.2", std::arch::is_x86_feature_detected!("sse4.2")),
            ("avx", std::arch::is_x86_feature_detected!("avx")),
            ("avx2", std::arch::is_x86_feature_detected!("avx2")),
            ("fma", std::arch::is_x86_feature_detected!("fma")),
            ("f16c", std::arch::is_x86_feature_detected!("f16c")),
            ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
            ("avx512bf16", std::arch::is_x86_feature_detected!("avx512bf16")),
        ];
        all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
    }
    #[cfg(target_arch = "aarch64")]
    {
        if std::arch::is_aarch64_feature_detected!("neon") { vec!["neon"] } else { Vec::new() }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let memory = parse_memory("MemTotal:  16 kB\nMemFree: 1 kB\nMemAvailable:   8 kB\n").unwrap();
        assert_eq!((memory.total, memory.available), (16 << 10, 8 << 10));
        assert!(parse_memory("MemTotal: many kB").is_none());
        assert!(parse_memory("MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB").is_none());
    }
}
