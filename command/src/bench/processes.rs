//! The processes of rows and of peers, one at a time: they end with the command.

use std::io::{self, Read};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often it is looked whether a process that has closed its output has ended.
const POLL: Duration = Duration::from_millis(5);
/// How long a process that is asked to end has until it is asked again: signals that come closer together are one.
#[cfg(unix)]
const ASKED: Duration = Duration::from_millis(300);
/// How often it is asked, before it is ended from outside.
#[cfg(unix)]
const TIMES: usize = 12;

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
            // It has nothing to lose: what it writes is in a folder that goes with the command. But what it has
            // started, ranks on all devices, ends with it only where it is asked.
            #[cfg(unix)]
            asked_to_end(&mut child);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Asks a process to end until it has: the second time a run does so at once, the third time a launcher ends its ranks.
#[cfg(unix)]
fn asked_to_end(child: &mut Child) {
    for _ in 0..TIMES {
        if let Ok(process) = i32::try_from(child.id()) {
            // SAFETY: it takes two numbers. The child was not waited for, so that the number is its own.
            unsafe { libc::kill(process, libc::SIGTERM) };
        }
        let since = std::time::Instant::now();
        while since.elapsed() < ASKED {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL);
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
    fn a_process_is_asked_to_end_so_that_it_ends_what_it_has_started() {
        let processes = Processes::default();
        let mut starts = Command::new("sh");
        starts.args(["-c", "sleep 1000 & trap 'kill $!; echo asked; exit' TERM; echo started; wait"]);
        let mut output = processes.start(starts.stdout(Stdio::piped())).unwrap().output.unwrap();
        let mut begun = [0; 8];
        output.read_exact(&mut begun).unwrap();
        processes.end();
        let mut said = String::new();
        // The pipe ends with both of them.
        output.read_to_string(&mut said).unwrap();
        assert_eq!((&begun, said.as_str()), (b"started\n", "asked\n"));
    }

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
