//! The changed operators and their tests as a workspace of its own, below `target/mutants`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::find::Mutant;
use crate::weave::{Woven, weave};

/// What is asked of every mutant: whether it is the one that this run is about.
const SWITCH: &str = "
/// Whether this run is about that mutant.
#[doc(hidden)]
pub fn mutant(id: u32) -> bool {
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let read = || std::env::var(\"FULGURITE_MUTANT\").ok().and_then(|id| id.parse().ok()).unwrap_or(0);
    *CHOSEN.get_or_init(read) == id
}
";

/// How often what does not compile is taken out: the compiler shows the errors of its earlier stages alone.
const ROUNDS: usize = 24;

/// The workspace.
pub struct Workspace {
    root: PathBuf,
    folder: PathBuf,
    /// The files that mutants are written into, from the repository's root.
    files: Vec<String>,
}

impl Workspace {
    /// Copies the operators, but for the files that mutants are written into, and writes the manifests.
    pub fn new(root: &Path, mutants: &[Mutant]) -> io::Result<Workspace> {
        let mut files: Vec<String> = mutants.iter().map(|mutant| mutant.file.clone()).collect();
        files.dedup();
        let workspace = Workspace { root: root.to_owned(), folder: root.join("target/mutants"), files };
        let mutated = |path: &Path| workspace.files.iter().any(|file| path == root.join(file));
        let (from, to) = (root.join("ops"), workspace.folder.join("ops"));
        let manifest = fs::read_to_string(from.join("Cargo.toml"))?.replace("path = \"../", "path = \"../../../");
        let library = from.join("src/lib.rs");
        copy(&from, &to, &|path| path == library || path == from.join("Cargo.toml") || mutated(path))?;
        write(&to.join("Cargo.toml"), &manifest)?;
        fs::create_dir_all(workspace.folder.join("runner/src"))?;
        write(&workspace.folder.join("runner/src/main.rs"), include_str!("../runner/main.rs"))?;
        write(
            &workspace.folder.join("runner/Cargo.toml"),
            "[package]\nname = \"runner\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
             fulgurite = { package = \"fulgurite-runtime\", path = \"../../../runtime\", features = [\"testing\"] }\n\
             fulgurite-ops.workspace = true\n",
        )?;
        // The same versions and profiles, with the members that are changed.
        let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
        let lines = manifest.lines().map(|line| match line {
            line if line.starts_with("members = ") => "members = [\"ops\", \"runner\"]".to_owned(),
            line if line.starts_with("fulgurite-ops = ") => line.to_owned(),
            line => line.replace("path = \"", "path = \"../../"),
        });
        write(&workspace.folder.join("Cargo.toml"), &(lines.collect::<Vec<_>>().join("\n") + "\n"))?;
        fs::copy(root.join("Cargo.lock"), workspace.folder.join("Cargo.lock"))?;
        let text = fs::read_to_string(&library)?;
        let at = text.find("\npub mod").map_or(text.len(), |at| at + 1);
        write(&to.join("src/lib.rs"), &format!("{}#![allow(warnings)]\n{}{SWITCH}", &text[..at], &text[at..]))?;
        Ok(workspace)
    }

    /// The path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the mutants into the sources and compiles them. Those that are no programs are taken out.
    pub fn build(&self, mutants: &mut Vec<Mutant>) -> Result<PathBuf, String> {
        // Those of an earlier run are not tried again: what is written twice is compiled twice.
        let list = self.folder.join("rejected.txt");
        let mut rejected: BTreeSet<String> =
            fs::read_to_string(&list).unwrap_or_default().lines().map(str::to_owned).collect();
        mutants.retain(|mutant| !rejected.contains(&mutant.key()));
        for round in 0..ROUNDS {
            let woven = self.write(mutants).map_err(|error| error.to_string())?;
            let (messages, done) = self.cargo(&["check", "-p", "fulgurite-ops", "--message-format=json"])?;
            if done {
                eprintln!("{} mutants compile, {} do not", mutants.len(), rejected.len());
                let (messages, done) = self.cargo(&["build", "-p", "runner", "--message-format=json"])?;
                let binary = self.root.join("target/debug/runner");
                return if done { Ok(binary) } else { Err(format!("the runner:\n{}", rendered(&messages))) };
            }
            let bad = blamed(&messages, &woven);
            eprintln!("round {}: {} of {} mutants do not compile", round + 1, bad.len(), mutants.len());
            if bad.is_empty() {
                return Err(format!("errors that no mutant is to blame for:\n{}", rendered(&messages)));
            }
            let is_bad = |mutant: &&Mutant| bad.contains(&mutant.id);
            rejected.extend(mutants.iter().filter(is_bad).map(Mutant::key));
            mutants.retain(|mutant| !is_bad(&mutant));
            let text: String = rejected.iter().map(|key| format!("{key}\n")).collect();
            write(&list, &text).map_err(|error| error.to_string())?;
        }
        Err(format!("mutants that do not compile are left after {ROUNDS} rounds"))
    }

    fn write(&self, mutants: &[Mutant]) -> io::Result<Vec<(String, Woven)>> {
        let mut all = Vec::new();
        for file in &self.files {
            let source = fs::read_to_string(self.root.join(file))?;
            let own: Vec<Mutant> = mutants.iter().filter(|mutant| mutant.file == *file).cloned().collect();
            let woven = weave(&source, &own);
            write(&self.folder.join(file), &woven.text)?;
            all.push((file.clone(), woven));
        }
        Ok(all)
    }

    /// Runs cargo; its error messages, and whether all went well.
    fn cargo(&self, arguments: &[&str]) -> Result<(Vec<Value>, bool), String> {
        let output = Command::new("cargo")
            .args(arguments)
            .current_dir(&self.folder)
            // That of the repository: the packages of others are built already.
            .env("CARGO_TARGET_DIR", self.root.join("target"))
            .env("CARGO_INCREMENTAL", "0")
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let messages = lines.filter(|line| line["message"]["level"] == "error").map(|line| line["message"].clone());
        Ok((messages.collect(), output.status.success()))
    }
}

/// Error messages as the compiler shows them.
fn rendered(messages: &[Value]) -> String {
    messages.iter().filter_map(|message| message["rendered"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The mutants whose replacements contain errors; for an error in none, the innermost around it.
fn blamed(messages: &[Value], woven: &[(String, Woven)]) -> Vec<usize> {
    let mut bad = Vec::new();
    for message in messages {
        let mut spans = Vec::new();
        collect(message, &mut spans);
        for (file, start, end) in spans {
            let Some((_, own)) = woven.iter().find(|(name, _)| file.ends_with(name.as_str())) else { continue };
            let inside = |place: &std::ops::Range<usize>| place.start < end && start < place.end;
            let hit: Vec<usize> = own.places.iter().filter(|place| inside(&place.1)).map(|place| place.0).collect();
            if hit.is_empty() {
                let around = own.places.iter().filter(|place| inside(&place.2));
                bad.extend(around.min_by_key(|place| place.2.len()).map(|place| place.0));
            }
            bad.extend(hit);
        }
    }
    bad.sort_unstable();
    bad.dedup();
    bad
}

/// Every place that a message names, with those of macros that led there.
fn collect(message: &Value, spans: &mut Vec<(String, usize, usize)>) {
    let of = |span: &Value| -> Option<(String, usize, usize)> {
        let at = |key: &str| span[key].as_u64().map(|at| at as usize);
        Some((span["file_name"].as_str()?.to_owned(), at("byte_start")?, at("byte_end")?))
    };
    for span in message["spans"].as_array().into_iter().flatten().filter(|span| span["is_primary"] == true) {
        let mut span = span;
        loop {
            spans.extend(of(span));
            match span.get("expansion").and_then(|expansion| expansion.get("span")) {
                Some(next) if !next.is_null() => span = next,
                _ => break,
            }
        }
    }
}

/// Writes a file unless it is the same: what is not touched is not compiled again.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) { Ok(()) } else { fs::write(path, text) }
}

/// Copies the files of a folder that are not skipped, and leaves those that are the same as they are.
fn copy(from: &Path, to: &Path, skipped: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&path, &target, skipped)?;
        } else if !skipped(&path) {
            let bytes = fs::read(&path)?;
            if fs::read(&target).map_or(true, |old| old != bytes) {
                fs::write(target, bytes)?;
            }
        }
    }
    Ok(())
}
