//! Signals to the processes of ranks.

use std::process::Child;

/// Asks a process to end.
pub fn terminate(child: &mut Child) {
    #[cfg(unix)]
    if let Ok(process) = i32::try_from(child.id()) {
        // SAFETY: it takes two numbers. The process is a child that was not waited for, so that its number is its own.
        unsafe { libc::kill(process, libc::SIGTERM) };
    }
    #[cfg(not(unix))]
    kill(child);
}

/// Ends a process.
pub fn kill(child: &mut Child) {
    // One that has ended needs no end.
    let _ = child.kill();
}
