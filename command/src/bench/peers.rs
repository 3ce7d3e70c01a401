//! Peers of the rows: the same work in PyTorch, by the scripts of a folder.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use fulgurite::Device;
use serde_json::{Value, json};

use super::figures::Peer;
use super::processes::{Processes, complaints_of};
use super::rows::Row;

/// The script of the peers, in the folder.
const SCRIPT: &str = "bench_torch.py";
/// The interpreter, where it is not `python3`.
const PYTHON: &str = "FULGURITE_PYTHON";

fn python() -> String {
    std::env::var(PYTHON).ok().filter(|path| !path.is_empty()).unwrap_or_else(|| "python3".into())
}

/// Whether the scripts are there; the error says where they were looked for.
pub fn has_script(folder: &Path) -> Result<(), String> {
    let script = folder.join(SCRIPT);
    match script.is_file() {
        true => Ok(()),
        false => Err(format!("there is no '{}' (--peers FOLDER names another folder)", script.display())),
    }
}

/// Why no peers can be run with the scripts of `folder`.
fn missing(folder: &Path, processes: &Processes) -> Option<String> {
    if let Err(reason) = has_script(folder) {
        return Some(reason);
    }
    let mut imports = Command::new(python());
    imports.args(["-c", "import torch"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    match complaints_of(processes, &mut imports) {
        Err(error) => Some(format!("'{}' cannot be started: {error}", python())),
        Ok((status, _)) if status.success() => None,
        Ok((_, text)) => {
            let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message").to_owned();
            Some(format!("'{}' cannot import torch: {last}", python()))
        }
    }
}

/// Runs the peers of the rows; `each` is told every row of theirs. Says the versions of PyTorch and its libraries, or
/// why there are no peers.
pub fn run(folder: &Path, rows: &[Row], device: Device, processes: &Processes, each: &mut dyn FnMut(Peer)) -> String {
    let ran = match missing(folder, processes) {
        Some(reason) => Err(reason),
        None => run_script(folder, rows, device, processes, each),
    };
    ran.unwrap_or_else(|reason| format!("none: {reason}"))
}

fn run_script(
    folder: &Path,
    rows: &[Row],
    device: Device,
    processes: &Processes,
    each: &mut dyn FnMut(Peer),
) -> Result<String, String> {
    let mut command = Command::new(python());
    // What the script complains of is for the user of the command.
    command.arg(folder.join(SCRIPT)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let pipes = processes.start(&mut command).map_err(|error| format!("'{}' cannot be started: {error}", python()))?;
    let asked = json!({"device": device.to_string(), "rows": rows}).to_string();
    if let Some(mut input) = pipes.input {
        input.write_all(asked.as_bytes()).map_err(|error| format!("'{SCRIPT}' does not read its rows: {error}"))?;
    }
    let mut about = String::new();
    for line in pipes.output.map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let Ok(line) = line else { break };
        read(&line, &mut about, each);
    }
    let status = processes.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        about = format!("{about}; '{SCRIPT}' ended early: {status}");
    }
    Ok(about)
}

/// Reads a line of the script: a row, or `{"about": ...}`, which says what runs the rows. Libraries print other lines,
/// which are passed over.
fn read(line: &str, about: &mut String, each: &mut dyn FnMut(Peer)) {
    let Ok(value) = serde_json::from_str::<Value>(line) else { return };
    if let Some(text) = value["about"].as_str() {
        text.clone_into(about);
    } else if let Ok(peer) = serde_json::from_value::<Peer>(value) {
        each(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_script_are_read_and_others_passed_over() {
        let (mut about, mut told) = (String::new(), Vec::new());
        for line in [
            r#"{"about": "torch 2.11"}"#,
            "a warning of a library",
            r#"{"row": "a", "who": "torch", "figures": [{"name": "step", "unit": "ms", "median": 2.0}]}"#,
            r#"{"row": "b", "who": "torch", "failed": "out of memory"}"#,
            r#"{"rows": 3}"#,
        ] {
            read(line, &mut about, &mut |peer| told.push(peer));
        }
        assert_eq!((about.as_str(), told.len()), ("torch 2.11", 2));
        assert_eq!(told[0].figures[0].median, 2.0);
        assert_eq!(told[1].failed.as_deref(), Some("out of memory"));
    }

    #[test]
    fn a_folder_without_scripts_is_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let about = run(folder.path(), &[], Device::CPU, &Processes::default(), &mut |peer| unreachable!("{peer:?}"));
        assert!(about.starts_with("none: there is no '"), "{about}");
    }
}
