//! What the system tells of the machine.

mod memory;

pub use memory::{Memory, available_memory, memory};

/// Size of the last-level cache of the first processor in bytes, where the system tells; otherwise 32 MiB.
pub fn last_level_cache() -> usize {
    if cfg!(miri) {
        return 32 << 20;
    }
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size").unwrap_or_default();
    parse_cache(&text).unwrap_or(32 << 20)
}

/// The processor's name, where `/proc/cpuinfo` tells.
pub fn processor() -> Option<String> {
    parse_processor(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// The machine's name, where the system tells.
pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The number of the user that this process acts for; 0 where users have no numbers.
pub fn user() -> u32 {
    #[cfg(unix)]
    // SAFETY: it takes nothing, and always succeeds.
    let user = unsafe { libc::geteuid() };
    #[cfg(not(unix))]
    let user = 0;
    user
}

/// Calls `listen`, which may take signals over. Hangups stay ignored if this process ignores them, as under `nohup`.
pub fn with_hangups_ignored_still<T>(listen: impl FnOnce() -> T) -> T {
    #[cfg(unix)]
    // SAFETY: an action of zeros is a valid value, and without a new one the call only writes that at hand into it.
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    };
    let done = listen();
    #[cfg(unix)]
    if ignored {
        // SAFETY: to ignore a signal runs no code of this process.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    }
    done
}

/// Ends the process with this code while other threads run: nothing is torn down, and nothing that is buffered is
/// written.
pub fn exit_at_once(code: i32) -> ! {
    // SAFETY: it takes a number and does not return; no destructor runs that another thread could be in the way of.
    unsafe { libc::_exit(code) }
}

fn parse_processor(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn parse_cache(text: &str) -> Option<usize> {
    text.trim().strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_tells_is_read() {
        assert_eq!(parse_processor("processor : 0\nmodel name : A B\n").as_deref(), Some("A B"));
        assert_eq!(["266240K\n", "16M", ""].map(parse_cache), [Some(266_240 << 10), None, None]);
    }
}
