//! Properties of the machine, as the operating system reports them.

use fulgurite_kernels::machine;

/// Bytes of memory.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Memory {
    /// Memory of the machine.
    pub total: u64,
    /// Available without swapping.
    pub available: u64,
}

/// The machine's memory, where the system tells.
pub fn memory() -> Option<Memory> {
    machine::memory().map(|memory| Memory { total: memory.total, available: memory.available })
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
