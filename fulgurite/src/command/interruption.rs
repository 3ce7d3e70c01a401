//! Interruptions: Ctrl-C, and what else asks a process to end.

use super::outcome::Failed;

/// The exit code of what an interruption ended.
pub const INTERRUPTED: u8 = 130;

/// Calls `interrupted` at each Ctrl-C, SIGTERM and SIGHUP. A SIGHUP that is ignored, as under `nohup`, stays ignored.
///
/// # Errors
/// Those of the system.
pub fn listen(interrupted: impl FnMut() + Send + 'static) -> Result<(), Failed> {
    fulgurite_kernels::machine::with_hangups_ignored_still(|| ctrlc::set_handler(interrupted))
        .map_err(|error| Failed(format!("interruptions cannot be listened to: {error}")))
}
