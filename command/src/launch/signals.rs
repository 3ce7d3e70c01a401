//! Signals to the processes of ranks, each of which leads a group with what it started itself.

use std::process::Child;

/// Asks a process, and those that it started, to end.
pub fn terminate(child: &mut Child) {
    #[cfg(unix)]
    to_group(child, libc::SIGTERM);
    #[cfg(not(unix))]
    kill(child);
}

/// Ends a process, and those that it started.
pub fn kill(child: &mut Child) {
    #[cfg(unix)]
    to_group(child, libc::SIGKILL);
    // One that has ended needs no end.
    #[cfg(not(unix))]
    let _ = child.kill();
}

#[cfg(unix)]
fn to_group(child: &Child, signal: i32) {
    if let Ok(process) = i32::try_from(child.id()) {
        // SAFETY: it takes two numbers. The leader of the group is a child that was not waited for, so that the number
        // is its own.
        unsafe { libc::kill(-process, signal) };
    }
}
