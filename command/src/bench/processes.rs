//! The processes of rows and of peers, one at a time: they end with the command.

use std::io::{self, Read};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often it is looked whether a process that has closed its output has ended.
const POLL: Duration = Duration::from_millis(5);

/// The process that runs, if one does.
#[derive(Debug, Default)]
pub struct Processes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    child: Option<Child>,
    /// Whether none is started any more.
    ended: bool,
}

/// The ends of a process's pipes; those that were asked for.
pub struct Pipes {
    pub input: Option<ChildStdin>,
    pub output: Option<ChildStdout>,
    pub errors: Option<ChildStderr>,
}

impl Processes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process.
    ///
    /// # Errors
    /// If it cannot be started, or [`Processes::end`] was called.
    pub fn start(&self, command: &mut Command) -> io::Result<Pipes> {
        // Held while it starts: it is ended too, or never begins.
        let mut state = self.state();
        if state.ended {
            return Err(io::Error::other("the command was interrupted"));
        }
        let mut child = command.spawn()?;
        let pipes = Pipes { input: child.stdin.take(), output: child.stdout.take(), errors: child.stderr.take() };
        state.child = Some(child);
        Ok(pipes)
    }

    /// Waits until the process has ended.
    ///
    /// # Errors
    /// Those of the system, and that no process runs.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            {
                let mut state = self.state();
                let child = state.child.as_mut().ok_or_else(|| io::Error::other("no process runs"))?;
                if let Some(status) = child.try_wait()? {
                    state.child = None;
                    return Ok(status);
                }
            }
            std::thread::sleep(POLL);
        }
    }

    /// Ends the process that runs, and lets none start after it.
    pub fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        if let Some(mut child) = state.child.take() {
            // It has nothing to lose: what it writes is in a folder that goes with the command.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a process to its end: its status, and what it wrote to standard error if that is piped.
///
/// # Errors
/// If it cannot be started, or was ended by [`Processes::end`].
pub fn complaints_of(processes: &Processes, command: &mut Command) -> io::Result<(ExitStatus, String)> {
    let mut text = Vec::new();
    if let Some(mut errors) = processes.start(command)?.errors {
        errors.read_to_end(&mut text)?;
    }
    Ok((processes.wait()?, String::from_utf8_lossy(&text).into_owned()))
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn processes_end_and_none_starts_after_that() {
        let processes = Processes::default();
        let mut sleeps = Command::new("sleep");
        sleeps.arg("1000").stdout(Stdio::piped());
        let mut output = processes.start(&mut sleeps).unwrap().output.unwrap();
        processes.end();
        // It ends with the process.
        assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 0);
        assert!(processes.wait().is_err());
        assert_eq!(processes.start(&mut sleeps).err().unwrap().to_string(), "the command was interrupted");
    }

    #[test]
    fn a_process_gives_its_output_and_its_status() {
        let processes = Processes::default();
        let mut says = Command::new("sh");
        says.args(["-c", "echo said; exit 3"]).stdout(Stdio::piped());
        let mut said = String::new();
        processes.start(&mut says).unwrap().output.unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((said.as_str(), processes.wait().unwrap().code()), ("said\n", Some(3)));
    }
}
