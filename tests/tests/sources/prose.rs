//! The form of what people read in the repository: pages and comments keep to 120 columns, and the files that pages
//! name exist.

use std::path::{Path, PathBuf};

/// Columns of a line.
const MOST_COLUMNS: usize = 120;

/// What a text is written in.
#[derive(Clone, Copy)]
enum Language {
    Markdown,
    Rust,
    /// Kernels, whose comments are as those of Rust.
    Cuda,
}

impl Language {
    /// That of a file, if its lines are looked at.
    fn of(path: &Path) -> Option<Language> {
        match path.extension()?.to_str()? {
            "md" => Some(Language::Markdown),
            "rs" => Some(Language::Rust),
            "cu" | "cuh" => Some(Language::Cuda),
            _ => None,
        }
    }

    /// What a line says to its reader: all of it, or the comment that it consists of.
    fn prose(self, line: &str) -> Option<&str> {
        let line = line.trim_start();
        match self {
            Language::Markdown => Some(line),
            Language::Rust | Language::Cuda => {
                line.strip_prefix("//").map(|comment| comment.trim_start_matches(['/', '!']).trim_start())
            }
        }
    }
}

/// Numbers of the lines of prose that are too long. Tables, blocks of code, and lines with an address on the web may
/// be. Code is left to `rustfmt`.
fn long_lines(text: &str, language: Language) -> Vec<usize> {
    let mut in_code = false;
    let mut long = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let Some(prose) = language.prose(line) else {
            in_code = false;
            continue;
        };
        if prose.starts_with("```") {
            in_code = !in_code;
            continue;
        }
        let free = in_code || prose.starts_with('|') || prose.contains("://");
        if !free && line.chars().count() > MOST_COLUMNS {
            long.push(i + 1);
        }
    }
    long
}

/// The paths in back quotes that begin with one of `folders`. A path ends at a blank; patterns and placeholders, in
/// capitals, are none.
fn paths<'a>(page: &'a str, folders: &[String]) -> Vec<&'a str> {
    let quoted = page.split('`').skip(1).step_by(2).filter_map(|quoted| quoted.split_whitespace().next());
    let path = |text: &&str| {
        let plain = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c));
        plain && text.split_once('/').is_some_and(|(folder, _)| folders.iter().any(|known| known == folder))
    };
    quoted.filter(path).collect()
}

/// The place of a path that a page names: below the repository, or a CUDA header by the name that sources include.
fn place(root: &Path, path: &str) -> PathBuf {
    let include = path.starts_with("fulgurite/") && path.ends_with(".cuh");
    if include { root.join("kernels/src/cuda").join(path) } else { root.join(path) }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the repository")
}

/// The folders of the repository, without what is built and what is hidden.
fn folders(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir());
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "target" && !name.starts_with('.')).collect()
}

/// Files below `folder` whose lines are looked at.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for name in folders(folder) {
        files(&folder.join(name), found);
    }
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    found.extend(entries.filter(|path| path.is_file() && Language::of(path).is_some()));
}

#[test]
fn pages_and_comments_keep_to_120_columns() {
    let mut found = Vec::new();
    files(root(), &mut found);
    assert!(found.iter().any(|path| path.ends_with("README.md")) && found.iter().any(|path| path.ends_with(file!())));
    let mut long = String::new();
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in Language::of(&path).map_or_else(Vec::new, |language| long_lines(&text, language)) {
            long += &format!("{}:{line}\n", path.display());
        }
    }
    assert!(long.is_empty(), "lines of more than {MOST_COLUMNS} columns:\n{long}");
}

#[test]
fn pages_name_files_that_exist() {
    let root = root();
    let folders = folders(root);
    let mut pages = Vec::new();
    files(&root.join("docs/src"), &mut pages);
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|page| root.join(page)));
    let mut missing = String::new();
    let mut named = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        for path in paths(&text, &folders) {
            named += 1;
            if !place(root, path).exists() {
                missing += &format!("{} names {path}\n", page.display());
            }
        }
    }
    assert!(named > 0, "no page names a file");
    assert!(missing.is_empty(), "files that do not exist:\n{missing}");
}

/// The suites of `tests/tests` whose names no table of CONTRIBUTING.md has in its first column.
fn without_a_reason(page: &str, suites: &[String]) -> Vec<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let names: Vec<&str> = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    suites.iter().filter(|suite| !names.contains(&suite.as_str())).cloned().collect()
}

/// The test binaries below `folder`, and the modules of those that are folders.
fn suites(folder: &Path) -> Vec<String> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let mut found = entries(folder);
    let grouped = found.clone().into_iter().filter(|path| path.join("main.rs").exists() && !path.ends_with("choices"));
    found.extend(grouped.flat_map(|group| entries(&group)));
    let names = found.iter().map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    names.filter(|name| name != "snapshots" && name != "main").collect()
}

#[test]
fn every_suite_has_its_reason() {
    let page = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let suites = suites(&root().join("tests/tests"));
    assert!(["prose", "sources", "generated"].iter().all(|suite| suites.contains(&(*suite).into())), "{suites:?}");
    let missing = without_a_reason(&page, &suites);
    assert!(missing.is_empty(), "CONTRIBUTING.md does not say what these suites of tests/tests are for: {missing:?}");
    assert_eq!(without_a_reason("| `one`, `two` | words |", &["two".into(), "words".into()]), ["words"]);
}

#[test]
fn a_long_line_is_found() {
    let long = "word ".repeat(25);
    let text = format!("short\n{long}\n| {long} |\n```text\n{long}\n```\nhttps://example.org {long}\n- {long}\n");
    assert_eq!(long_lines(&text, Language::Markdown), [2, 8]);
    let text =
        format!("//! {long}\nfn f() {{}} // {long}\n    // {long}\n/// ```\n/// {long}\n/// ```\n/// | {long} |\n");
    assert_eq!(long_lines(&text, Language::Rust), [1, 3]);
    // Columns are characters, not bytes.
    assert_eq!(long_lines(&"·".repeat(MOST_COLUMNS), Language::Markdown), [0; 0]);
    assert_eq!(long_lines(&"·".repeat(MOST_COLUMNS + 1), Language::Markdown), [1]);
}

#[test]
fn a_path_is_told_from_other_words() {
    let folders = ["ops".to_owned(), "tests".to_owned()];
    let page = "See `ops/src/lib.rs`, `tests/` and `cargo test`; `ops/src/**/*.rs`, `shards/one.bin` and `ops/NAME.rs` \
                are none. `tests/device.sh build` is one, and ops/src is not quoted.";
    assert_eq!(paths(page, &folders), ["ops/src/lib.rs", "tests/", "tests/device.sh"]);
}
