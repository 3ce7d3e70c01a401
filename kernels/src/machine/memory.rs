//! How much memory this process may still use: of the machine, and of the control groups that limit it.

use std::path::Path;

/// Bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Memory of the machine, in bytes.
    pub total: u64,
    /// Available without swapping.
    pub available: u64,
}

/// The machine's memory, where `/proc/meminfo` tells.
pub fn memory() -> Option<Memory> {
    parse_memory(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// The memory that this process may take now besides what it has, in bytes, where the system tells: what is available
/// in the machine, or less where a control group of the process, or one above it, has a limit (in a container, say), or
/// the process itself (`ulimit -v`); of that all but a [reserve](RESERVE). More ends the process, or others.
pub fn available_memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let groups = room_of_groups(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup"));
    let addresses = room_of_addresses(&read("/proc/self/limits"), &read("/proc/self/status"));
    let least = groups.into_iter().chain(addresses).chain(memory().map(|memory| memory.available)).min()?;
    Some(less_reserve(least))
}

/// What stays free of what is available, at least. A program is compared with what was available before it was
/// compiled; compiling it, its kernels' scratch memory, and the stacks and heaps of its threads come on top, and other
/// processes go on taking memory. 64 MiB is what the C library maps for the heap of a thread. Of much memory it is a
/// sixteenth, since what others take grows with the machine.
const RESERVE: u64 = 64 << 20;

fn less_reserve(available: u64) -> u64 {
    available.saturating_sub(RESERVE.max(available / 16))
}

/// What the limit of the process's address space leaves, if there is one. `limits` is the text of `/proc/self/limits`,
/// whose columns are the name, the limit that holds and the most that it can be raised to; `status` that of
/// `/proc/self/status`.
fn room_of_addresses(limits: &str, status: &str) -> Option<u64> {
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = limit.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(kibibytes(status, "VmSize").unwrap_or(0)))
}

/// The files of a control group.
struct Files {
    limits: &'static [&'static str],
    used: &'static str,
    /// Lines of `memory.stat` with what is in `used` and given up when memory is needed: content of files.
    reclaimable: &'static [&'static str],
}

/// Version 2: a group above `memory.high` is slowed down until it is useless, one above `memory.max` is ended.
const UNIFIED: Files = Files {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    reclaimable: &["inactive_file", "active_file", "slab_reclaimable"],
};

/// Version 1, whose totals are those of a group and all below it.
const LEGACY: Files = Files {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    reclaimable: &["total_inactive_file", "total_active_file"],
};

/// The least that a control group of the process, or one above it, leaves. `root` is where the groups are, `groups` the
/// text of `/proc/self/cgroup`: a line `NUMBER:CONTROLLERS:PATH` for each hierarchy.
fn room_of_groups(root: &Path, groups: &str) -> Option<u64> {
    let hierarchies = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        match controllers {
            "" if number == "0" => Some((root.to_owned(), path, &UNIFIED)),
            of if of.split(',').any(|controller| controller == "memory") => Some((root.join("memory"), path, &LEGACY)),
            _ => None,
        }
    });
    hierarchies.filter_map(|(root, path, files)| room_up_to(&root, path, files)).min()
}

/// The least that the group at `path` and those above it leave. In a container the path may be that of the host, and
/// not be there; the group at the root is the container's then.
fn room_up_to(root: &Path, path: &str, files: &Files) -> Option<u64> {
    // Outside of the root that the process sees: `/../other`.
    let is_outside = path.split('/').any(|name| name == "..");
    let path = Path::new(if is_outside { "" } else { path.trim_start_matches('/') });
    path.ancestors().filter_map(|group| room_of(&root.join(group), files)).min()
}

/// What a group leaves of its limit, if it has one.
fn room_of(group: &Path, files: &Files) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let limit = files.limits.iter().filter_map(|name| parse_limit(&read(name)?)).min()?;
    let used = read(files.used).and_then(|text| parse_limit(&text)).unwrap_or(0);
    let statistics = read("memory.stat").unwrap_or_default();
    let reclaimable: u64 = files.reclaimable.iter().filter_map(|name| field(&statistics, name)).sum();
    Some(limit.saturating_sub(used.saturating_sub(reclaimable)))
}

/// The number of a line `NAME NUMBER`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// `max` is no limit.
fn parse_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn parse_memory(text: &str) -> Option<Memory> {
    Some(Memory { total: kibibytes(text, "MemTotal")?, available: kibibytes(text, "MemAvailable")? })
}

/// The bytes of a line `NAME: NUMBER kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_tells_is_read() {
        let memory = parse_memory("MemTotal:  16 kB\nMemFree: 1 kB\nMemAvailable:   8 kB\n").unwrap();
        assert_eq!((memory.total, memory.available), (16 << 10, 8 << 10));
        assert!(parse_memory("MemTotal: many kB").is_none());
        assert!(parse_memory("MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB").is_none());
        assert_eq!(["4096\n", "max\n", ""].map(parse_limit), [Some(4096), None, None]);
        assert_eq!(field("file 9\ninactive_file 5\n", "inactive_file"), Some(5));
        assert_eq!(field("inactive_files 5\n", "inactive_file"), None);
    }

    #[test]
    fn the_address_space_of_a_process_is_limited_too() {
        let limits = |soft: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max cpu time              5                    unlimited            seconds   \n\
                 Max address space         {soft:<20} 9000000              bytes     \n"
            )
        };
        let status = "Name:\tx\nVmPeak:\t     700 kB\nVmSize:\t     500 kB\n";
        assert_eq!(room_of_addresses(&limits("1024000"), status), Some(1_024_000 - (500 << 10)));
        assert_eq!(room_of_addresses(&limits("1024"), status), Some(0));
        assert_eq!(room_of_addresses(&limits("unlimited"), status), None);
        assert_eq!(room_of_addresses("", ""), None);
    }

    #[test]
    fn what_is_free_is_not_all_given() {
        assert_eq!([0, 1, RESERVE].map(less_reserve), [0; 3]);
        assert_eq!(less_reserve(RESERVE + 5), 5);
        assert_eq!(less_reserve(64 << 30), 60 << 30);
    }

    /// A folder of groups with these files.
    fn groups(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn every_group_above_a_process_limits_it() {
        let root = groups(&[
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "700\n"),
            ("a/memory.stat", "anon 600\ninactive_file 40\nactive_file 50\nslab_reclaimable 10\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.current", "650\n"),
            ("a/b/c/memory.max", "5000\n"),
            ("a/b/c/memory.high", "900\n"),
            ("a/b/c/memory.current", "650\n"),
            ("full/memory.max", "1000\n"),
            ("full/memory.current", "1100\n"),
        ]);
        let of = |groups: &str| room_of_groups(root.path(), groups);
        assert_eq!(of("0::/a/b/c\n"), Some(250), "memory.high of the innermost");
        assert_eq!(of("0::/a/b\n"), Some(400), "memory.max of the outermost, files given up");
        assert_eq!(of("0::/full\n"), Some(0));
        assert_eq!(of("0::/gone/elsewhere\n"), None, "a path of the host");
        assert_eq!(of("0::/\n"), None);
        assert_eq!(of("0::/../a\n"), None, "outside of what the process sees");
        assert_eq!(of(""), None);
    }

    /// The path of the host is not there; the root is the container's own group.
    #[test]
    fn a_container_is_limited_at_its_root() {
        let root = groups(&[("memory.max", "300\n"), ("memory.current", "100\n")]);
        for groups in ["0::/\n", "0::/docker/0123/x\n", "0::/../0123\n"] {
            assert_eq!(room_of_groups(root.path(), groups), Some(200), "{groups}");
        }
    }

    #[test]
    fn groups_of_version_1_limit_too() {
        let root = groups(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.usage_in_bytes", "100\n"),
            ("memory/job/memory.limit_in_bytes", "1000\n"),
            ("memory/job/memory.usage_in_bytes", "800\n"),
            ("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n"),
        ]);
        let text = "12:cpu,cpuacct:/job\n5:rdma,memory:/job/task\n1:name=systemd:/x\n0::/\n";
        assert_eq!(room_of_groups(root.path(), text), Some(500));
        assert_eq!(room_of_groups(root.path(), "12:cpu:/job\n"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads files of the system")]
    fn what_is_available_is_no_more_than_the_machine_has() {
        let Some(memory) = memory() else { return };
        assert!(available_memory().is_some_and(|available| available > 0 && available <= memory.total));
    }
}
