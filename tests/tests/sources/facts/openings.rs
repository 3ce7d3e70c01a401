//! How the sources open files. Another user may plant symbolic links and FIFOs in a folder that several users write to,
//! such as a shared cache, so a file there is opened by `kernels::regular_file` or put in place by `tempfile` and
//! `durable`. Every other opening is listed here, with the reason why it needs neither.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What opens a file, or reads or writes one by its name.
const OPENINGS: [&str; 8] = [
    "File::open(",
    "File::create",
    "File::options(",
    "OpenOptions::new(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::write(",
    "fs::copy(",
];

const THE_WAY: &str = "it is the way that files in shared folders are opened or replaced";
const NEW: &str = "it makes a new file (create_new): a link or FIFO of that name is an error";
const NAMED: &str = "the user names the file, or the folder of one model or run, which may hold links on purpose";
const OWN_RUN: &str = "it appends to a file that this run has just written to its own, locked folder";
const SYSTEM: &str = "the kernel makes the file (/proc, /sys, /dev)";
const SOURCES: &str = "it is a file of the author's sources or a result beside them: for authors, tests, build scripts";

/// The files with openings of their own: how many each has, and why.
const KNOWN: [(&str, usize, &str); 58] = [
    ("benches/src/plot.rs", 1, NAMED),
    ("command/src/bench/step.rs", 1, NAMED),
    ("command/src/cases/results.rs", 2, NEW),
    ("command/src/cases/results.rs", 1, NAMED),
    ("command/src/cases/tensors.rs", 1, NAMED),
    ("command/src/files.rs", 1, NAMED),
    ("command/src/files.rs", 1, NEW),
    ("command/src/fuzz.rs", 1, NAMED),
    ("command/src/launch/processes.rs", 1, NAMED),
    ("command/src/ops_docs.rs", 1, NAMED),
    ("command/src/ops_new.rs", 1, SOURCES),
    ("command/src/ops_new/crate_files.rs", 1, SOURCES),
    ("command/src/ops_new/known.rs", 1, SOURCES),
    ("command/src/ops_new/list.rs", 2, SOURCES),
    ("command/src/ops_new/surroundings.rs", 1, SOURCES),
    ("command/src/ops_run.rs", 1, NAMED),
    ("command/src/profile_page.rs", 1, NAMED),
    ("command/src/review/pending.rs", 2, SOURCES),
    ("command/src/review/side.rs", 1, SOURCES),
    ("command/src/test_changed/workspace.rs", 1, SOURCES),
    ("command/src/trace_files.rs", 1, NAMED),
    ("docs/build.rs", 3, SOURCES),
    ("kernels/src/durable.rs", 1, THE_WAY),
    ("kernels/src/machine.rs", 3, SYSTEM),
    ("kernels/src/machine/memory.rs", 3, SYSTEM),
    ("kernels/src/ranks/greeting.rs", 1, SYSTEM),
    ("kernels/src/regular_file.rs", 2, THE_WAY),
    ("models/src/corpus.rs", 1, NAMED),
    ("models/src/decoder/files.rs", 3, NAMED),
    ("models/src/decoder/litgpt.rs", 1, NAMED),
    ("models/src/hugging_face.rs", 2, NAMED),
    ("models/src/gguf_file.rs", 1, NAMED),
    ("models/src/kept.rs", 1, NAMED),
    ("models/src/llmc/shard.rs", 2, NAMED),
    ("models/src/llmc/stream.rs", 1, NAMED),
    ("models/src/metrics/table.rs", 1, NAMED),
    ("models/src/metrics/table.rs", 1, OWN_RUN),
    ("models/src/report/events.rs", 1, NAMED),
    ("models/src/report/events.rs", 1, OWN_RUN),
    ("models/src/run_file/mod.rs", 1, NAMED),
    ("models/src/stories.rs", 1, NAMED),
    ("models/src/tensor_bytes.rs", 1, NAMED),
    ("models/src/tensor_file.rs", 1, NAMED),
    ("models/src/tokenizer_copy.rs", 1, NAMED),
    ("models/src/tokenizer_file.rs", 5, NAMED),
    ("models/src/tokenizer_vocabulary.rs", 2, NAMED),
    ("models/src/training_data.rs", 1, NAMED),
    ("models/src/vision/cifar.rs", 1, NAMED),
    ("models/src/weight_files.rs", 1, NAMED),
    ("rates/src/too_low.rs", 1, SYSTEM),
    ("runtime/cuda/src/collectives/peers.rs", 1, SYSTEM),
    ("runtime/cuda/src/library_files.rs", 1, SYSTEM),
    ("runtime/cuda/src/sources.rs", 1, SOURCES),
    ("runtime/run/src/choices/file.rs", 1, NAMED),
    ("runtime/testing/src/golden.rs", 2, SOURCES),
    ("runtime/testing/src/registry.rs", 1, SOURCES),
    ("runtime/testing/src/run.rs", 1, SOURCES),
    ("runtime/testing/src/snapshot.rs", 2, SOURCES),
];

/// Rust files of the workspace, without those of tests.
pub(super) fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with('.') && !["target", "tests"].contains(&&*name) {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" && !name.ends_with("_tests.rs") {
            found.push(path);
        }
    }
}

/// The lines of a text before its module of tests, without comments.
pub(super) fn code(text: &str) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests = |pair: &[&str]| {
        let attribute = pair[0].starts_with("#[cfg(test") || pair[0].starts_with("#[cfg(all(test");
        attribute && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    let end = lines.windows(2).position(is_tests).unwrap_or(lines.len());
    lines.into_iter().take(end).map(|line| line.split("//").next().unwrap_or_default())
}

/// How often a line opens a file. A function of `std::fs` that is imported by its name counts too: it would be called
/// without a word of where it comes from.
fn openings(line: &str) -> usize {
    let of_word = |word: &str| {
        let begins = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        line.match_indices(word).filter(|(at, _)| begins(*at)).count()
    };
    let called: usize = OPENINGS.iter().map(|word| of_word(word)).sum();
    let imported = line.strip_prefix("use std::fs::").map_or(0, |names| {
        let names = names.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
        names.filter(|name| name.starts_with(char::is_lowercase) && *name != "self").count()
    });
    called + imported
}

/// Lines of files of `root` that `count` finds something in must be those that `known` lists: how many each file has,
/// and why. `what` names them, `instead` says what to write.
pub(super) fn only_known(
    root: &Path,
    files: &[PathBuf],
    known: &[(&str, usize, &str)],
    count: impl Fn(&str) -> usize,
    [what, instead]: [&str; 2],
) {
    let mut expected: BTreeMap<&str, usize> = BTreeMap::new();
    known.iter().for_each(|(file, count, _)| *expected.entry(file).or_default() += count);
    let mut wrong = String::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let path = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        let found: Vec<(usize, &str)> =
            code(&text).enumerate().flat_map(|(i, line)| vec![(i + 1, line); count(line)]).collect();
        let expected = expected.remove(&*path).unwrap_or(0);
        if found.len() != expected {
            wrong += &format!("{path} has {} {what}, {expected} are known\n", found.len());
            found.iter().for_each(|(number, line)| wrong += &format!("    {number}: {}\n", line.trim()));
        }
    }
    let listed_only: Vec<&str> = expected.into_keys().collect();
    assert!(
        wrong.is_empty() && listed_only.is_empty(),
        "{instead}, or list it with its reason:\n{wrong}listed, and without {what}: {listed_only:?}"
    );
}

#[test]
fn every_opening_of_a_file_is_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    sources(root, &mut files);
    assert!(files.len() > 500, "{}", files.len());
    let instead = "open it by kernels::regular_file or durable if others may write to its folder";
    only_known(root, &files, &KNOWN, openings, ["openings", instead]);
}

#[test]
fn an_opening_is_found() {
    assert_eq!(openings("    let file = File::open(path)?.read(&mut fs::read(other)?);"), 2);
    assert_eq!(openings("let file = MappedFile::open(path)?; Folder::read(name); regular_file::open(path)"), 0);
    assert_eq!(openings("use std::fs::{self, File, read_to_string};"), 1);
    assert_eq!(openings("std::fs::OpenOptions::new().append(true)"), 1);
    let text =
        "// fs::read(path)\n#[cfg(test)]\nuse other;\nfs::write(a, b)\n#[cfg(test)]\nmod tests {\nfs::read(x)\n}";
    assert_eq!(code(text).map(openings).sum::<usize>(), 1);
}
