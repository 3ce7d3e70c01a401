//! What the machine offers, read from where the system says so.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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

/// A library that is loaded at run time, if it is there.
#[derive(Debug, serde::Serialize)]
pub struct Library {
    /// What it is.
    pub name: &'static str,
    /// Its file, if it was found.
    pub path: Option<PathBuf>,
    /// Why it was not found, and what would mend that.
    pub reason: Option<String>,
}

/// Looks for a library whose file name starts with `file` in the folders that the dynamic linker searches.
pub fn find_library(name: &'static str, file: &str, remedy: &str) -> Library {
    let folders = library_folders();
    let path = folders.iter().find_map(|folder| {
        let mut found: Vec<PathBuf> = fs::read_dir(folder)
            .ok()?
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(file))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found.pop()
    });
    let reason = path.is_none().then(|| format!("no {file} in the {} folders searched; {remedy}", folders.len()));
    Library { name, path, reason }
}

/// The folders of `LD_LIBRARY_PATH`, those that `/etc/ld.so.conf` names, and the usual ones.
fn library_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        std::env::var_os("LD_LIBRARY_PATH").map(|list| std::env::split_paths(&list).collect()).unwrap_or_default();
    let mut configurations = vec![PathBuf::from("/etc/ld.so.conf")];
    if let Ok(entries) = fs::read_dir("/etc/ld.so.conf.d") {
        configurations.extend(entries.flatten().map(|entry| entry.path()));
    }
    for configuration in configurations {
        let text = fs::read_to_string(configuration).unwrap_or_default();
        folders.extend(text.lines().map(str::trim).filter(|line| line.starts_with('/')).map(PathBuf::from));
    }
    let usual = [
        "/lib",
        "/usr/lib",
        "/lib64",
        "/usr/lib64",
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib/aarch64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/local/lib",
        "/usr/local/cuda/lib64",
        "/usr/local/nvidia/lib64",
        "/usr/lib/wsl/lib",
    ];
    folders.extend(usual.map(PathBuf::from));
    let mut seen = BTreeSet::new();
    folders.retain(|folder| !folder.as_os_str().is_empty() && seen.insert(folder.clone()));
    folders
}

/// Models of the NVIDIA GPUs that the kernel's driver lists.
pub fn nvidia_gpus() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/proc/driver/nvidia/gpus") else { return Vec::new() };
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    folders
        .iter()
        .filter_map(|folder| {
            let text = fs::read_to_string(folder.join("information")).ok()?;
            Some(text.lines().find_map(|line| line.strip_prefix("Model:"))?.trim().to_owned())
        })
        .collect()
}

/// The version of the kernel's NVIDIA driver.
pub fn nvidia_driver() -> Option<String> {
    let text = fs::read_to_string(Path::new("/proc/driver/nvidia/version")).ok()?;
    Some(text.lines().next()?.trim().to_owned())
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

    #[test]
    fn a_library_that_is_not_there_has_a_reason() {
        let library = find_library("none", "libfulgurite-is-not-a-library.so", "build it");
        assert!(library.path.is_none());
        assert!(library.reason.unwrap().ends_with("folders searched; build it"));
    }
}
