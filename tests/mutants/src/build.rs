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

/// Where the switch is, and the library that hands it on to its own files.
const LIBRARY: &str = "ops/src/lib.rs";
const HANDS_ON: &str = "executors/cpu/src/lib.rs";

/// The operators of the suite in the runner.
const BUILDERS: &str = "runner/src/builders.rs";

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
    /// Copies the operators and executors, but for the files that mutants are written into, and writes the manifests.
    pub fn new(root: &Path, mutants: &[Mutant]) -> io::Result<Workspace> {
        let mut files: Vec<String> = mutants.iter().map(|mutant| mutant.file.clone()).collect();
        files.dedup();
        if !files.iter().any(|file| file == HANDS_ON) {
            files.push(HANDS_ON.to_owned());
        }
        let workspace = Workspace { root: root.to_owned(), folder: root.join("target/mutants"), files };
        let library = root.join(LIBRARY);
        let skipped = |path: &Path| path == library || workspace.files.iter().any(|file| path == root.join(file));
        let mut members = Vec::new();
        // Executors depend on the operators that are changed.
        for copied in ["ops", "executors"] {
            copy(&root.join(copied), &workspace.folder.join(copied), &skipped)?;
            members.extend(packages(root, copied)?);
        }
        for member in &members {
            let manifest = fs::read_to_string(root.join(member).join("Cargo.toml"))?;
            write(&workspace.folder.join(member).join("Cargo.toml"), &without_tests(&manifest))?;
        }
        fs::create_dir_all(workspace.folder.join("runner/src"))?;
        write(&workspace.folder.join("runner/src/main.rs"), include_str!("../runner/main.rs"))?;
        // Operators of the suite, which run what no operator of the library does.
        write(&workspace.folder.join(BUILDERS), &fs::read_to_string(root.join("tests/src/builders.rs"))?)?;
        write(
            &workspace.folder.join("runner/Cargo.toml"),
            "[package]\nname = \"runner\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
             fulgurite-executors.workspace = true\nfulgurite-ops.workspace = true\n\
             fulgurite-ops-macros.workspace = true\nndarray.workspace = true\n\
             fulgurite-runtime = { path = \"../../../runtime\", features = [\"testing\"] }\n",
        )?;
        // The same versions and profiles, with the members that are changed.
        let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
        let (before, rest) = manifest.split_once("members = [").unwrap_or((&manifest, ""));
        let (_, behind) = rest.split_once(']').unwrap_or(("", ""));
        let lines = behind.lines().filter(|line| !line.starts_with("default-members = ")).map(|line| {
            match line.starts_with("fulgurite-ops = ") || line.starts_with("fulgurite-executor") {
                true => line.to_owned(),
                false => line.replace("path = \"", "path = \"../../"),
            }
        });
        let lines = lines.collect::<Vec<_>>().join("\n");
        members.push("runner".into());
        write(&workspace.folder.join("Cargo.toml"), &format!("{before}members = {members:?}{lines}\n"))?;
        fs::copy(root.join("Cargo.lock"), workspace.folder.join("Cargo.lock"))?;
        let text = fs::read_to_string(&library)?;
        write(&workspace.folder.join(LIBRARY), &format!("{text}{SWITCH}"))?;
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
            let (messages, done) =
                self.cargo(&["check", "-p", "fulgurite-ops", "-p", "fulgurite-executor-cpu", "--message-format=json"])?;
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
            let switch = if file == HANDS_ON { "\npub use fulgurite_ops::mutant;\n" } else { "" };
            write(&self.folder.join(file), &format!("{}{switch}", woven.text))?;
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

/// The folders of packages in a folder, from the repository's root.
fn packages(root: &Path, folder: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    if root.join(folder).join("Cargo.toml").exists() {
        found.push(folder.to_owned());
    }
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let inner = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().join("Cargo.toml").exists() {
            found.push(inner);
        }
    }
    found.sort();
    Ok(found)
}

/// A manifest without what only tests need, and without lints: replacements are not written as people would. What
/// always fails is found by the tests; only when programs are made the compiler would refuse it.
fn without_tests(manifest: &str) -> String {
    let sections = manifest.split("\n[");
    let left = sections.filter(|section| !section.starts_with("dev-dependencies]") && !section.starts_with("lints]"));
    let allowed = "[lints.rust]\narithmetic_overflow = \"allow\"\nunconditional_panic = \"allow\"\n";
    format!("{}\n{allowed}", left.collect::<Vec<_>>().join("\n["))
}

/// Error messages as the compiler shows them.
fn rendered(messages: &[Value]) -> String {
    messages.iter().filter_map(|message| message["rendered"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The mutants to blame: the innermost whose replacement contains an error, else all of the innermost expression around
/// it. What an error is about may contain further mutants, which are not to blame. If the place of the error is in no
/// mutant, the other places that its message names count, and at last the mutants within the smallest of these places.
fn blamed(messages: &[Value], woven: &[(String, Woven)]) -> Vec<usize> {
    let mut bad = Vec::new();
    for message in messages {
        let found = [true, false].map(|primary| at_places(message, primary, woven));
        bad.extend(found.into_iter().find(|found| !found.is_empty()).unwrap_or_else(|| within_places(message, woven)));
    }
    bad.sort_unstable();
    bad.dedup();
    bad
}

/// The mutants at the places of a message: at those of the error itself, or at the others that it names.
fn at_places(message: &Value, primary: bool, woven: &[(String, Woven)]) -> Vec<usize> {
    let mut spans = Vec::new();
    collect(message, primary, &mut spans);
    let mut found = Vec::new();
    for (file, start, end) in spans {
        let Some((_, own)) = woven.iter().find(|(name, _)| file.ends_with(name.as_str())) else { continue };
        let contains = |place: &std::ops::Range<usize>| place.start <= start && end <= place.end;
        let replaced = own.places.iter().filter(|place| contains(&place.1)).min_by_key(|place| place.1.len());
        let around = own.places.iter().filter(|place| contains(&place.2)).min_by_key(|place| place.2.len());
        match (replaced, around) {
            (Some(place), _) => found.push(place.0),
            (None, Some(whole)) => {
                found.extend(own.places.iter().filter(|place| place.2 == whole.2).map(|place| place.0));
            }
            (None, None) => {}
        }
    }
    found
}

/// The mutants within the smallest place of a message that has any.
fn within_places(message: &Value, woven: &[(String, Woven)]) -> Vec<usize> {
    let mut spans = Vec::new();
    [true, false].into_iter().for_each(|primary| collect(message, primary, &mut spans));
    spans.sort_by_key(|(_, start, end)| end - start);
    let within = |(file, start, end): &(String, usize, usize)| -> Vec<usize> {
        let own = woven.iter().filter(|(name, _)| file.ends_with(name.as_str())).flat_map(|(_, own)| &own.places);
        own.filter(|place| *start <= place.2.start && place.2.end <= *end).map(|place| place.0).collect()
    };
    spans.iter().map(within).find(|found| !found.is_empty()).unwrap_or_default()
}

/// The places of a message's error, or the others that it names, with those of macros that led there.
fn collect(message: &Value, primary: bool, spans: &mut Vec<(String, usize, usize)>) {
    let of = |span: &Value| -> Option<(String, usize, usize)> {
        let at = |key: &str| span[key].as_u64().map(|at| at as usize);
        Some((span["file_name"].as_str()?.to_owned(), at("byte_start")?, at("byte_end")?))
    };
    for span in message["spans"].as_array().into_iter().flatten().filter(|span| span["is_primary"] == primary) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::blamed;
    use crate::find::find;
    use crate::weave::weave;

    #[test]
    fn an_error_is_that_of_the_replacement_around_it() {
        let source = "fn f() { add(mul(a, b), c) }";
        let mut mutants = find("a.rs", source, &Default::default());
        mutants.iter_mut().enumerate().for_each(|(id, mutant)| mutant.id = id + 1);
        let woven = weave(source, &mutants);
        let at = |text: &str| woven.text.find(text).unwrap();
        let error = |start: usize, end: usize| {
            let span = json!({"is_primary": true, "file_name": "a.rs", "byte_start": start, "byte_end": end});
            blamed(&[json!({"spans": [span]})], &[("a.rs".to_owned(), weave(source, &mutants))])
        };
        let of = |replacement: &str| mutants.iter().find(|mutant| mutant.replacement == replacement).unwrap().id;
        let last = at("else { c }") + "else { ".len();
        assert_eq!(error(last, last + 1), [of("c")]);
        let product = at("mul(a, b)");
        let inner: Vec<usize> = ["div(a, b)", "a", "b"].map(of).into();
        assert_eq!(error(product, product + "mul(a, b)".len()), inner);
        assert!(error(0, 5).is_empty());
        assert_eq!(error(0, woven.text.len()), (1..=mutants.len()).collect::<Vec<_>>());
        let beside = |start: usize, end: usize, primary: bool| json!({"is_primary": primary, "file_name": "a.rs", "byte_start": start, "byte_end": end});
        let named = json!({"spans": [beside(0, 5, true), beside(last, last + 1, false)]});
        assert_eq!(blamed(&[named], &[("a.rs".to_owned(), weave(source, &mutants))]), [of("c")]);
    }
}
