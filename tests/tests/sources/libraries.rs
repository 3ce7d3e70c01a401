//! Libraries that are not compiled for tests of their own, or whose documentation is not read for tests.

use std::path::{Path, PathBuf};

/// The files below a folder, without what is built and what is hidden.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        match entry.path().is_dir() {
            true if name != "target" && !name.starts_with('.') => files(&entry.path(), found),
            true => {}
            false => found.push(entry.path()),
        }
    }
}

/// Whether a line of a source makes a test: the attribute, alone or before the function, or the macro of random data.
fn makes_a_test(line: &str) -> bool {
    let line = line.split("//").next().unwrap_or_default().trim();
    line.starts_with("#[test]") || line.contains(" #[test]") || line.contains("proptest!")
}

/// What the sections of a manifest that are called `header` say.
fn sections<'a>(manifest: &'a str, header: &str) -> Vec<&'a str> {
    manifest.split(header).skip(1).map(|rest| rest.split("\n[").next().unwrap_or_default()).collect()
}

/// The manifests of the repository with their texts, and its Rust sources.
fn manifests_and_sources() -> (Vec<(PathBuf, String)>, Vec<PathBuf>) {
    let mut all = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut all);
    let manifests = all.iter().filter(|path| path.ends_with("Cargo.toml"));
    let manifests = manifests.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect();
    (manifests, all.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs")).collect())
}

/// `test = false` spares a library its second build, and would leave out tests that it has.
#[test]
fn libraries_that_are_not_tested_have_no_tests() {
    let (manifests, sources) = manifests_and_sources();
    let mut checked = 0;
    for (manifest, text) in &manifests {
        let is_spared = |section: &&str| section.lines().any(|line| line == "test = false");
        let folder = manifest.with_file_name("src");
        let mut of_library = Vec::new();
        if sections(text, "[lib]").iter().any(is_spared) {
            of_library.extend(sources.iter().filter(|path| path.starts_with(&folder)));
            checked += 1;
        }
        // A program of one file, which only calls its library.
        for section in sections(text, "[[bin]]").iter().filter(|section| is_spared(section)) {
            let path = section.lines().find_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"')).unwrap();
            let main = sources.iter().find(|source| **source == manifest.with_file_name(path)).unwrap();
            assert!(!std::fs::read_to_string(main).unwrap().contains("\nmod "), "{}", main.display());
            of_library.push(main);
        }
        for source in of_library {
            let text = std::fs::read_to_string(source).unwrap();
            let has_test = text.lines().any(makes_a_test);
            assert!(!has_test, "{}: a test that never runs: see {}", source.display(), manifest.display());
        }
    }
    assert!(checked > 10, "{checked} manifests were read");
}

/// The lines of a source that begin a block of code in its documentation that rustdoc would compile.
fn compiled_blocks(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let line = line.trim_start();
        let Some(words) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            open = false;
            continue;
        };
        let Some(language) = words.trim_start().strip_prefix("```") else { continue };
        let is_rust = |word: &str| {
            let of_rust = ["rust", "no_run", "should_panic", "compile_fail", "standalone_crate"];
            of_rust.contains(&word) || word.starts_with("edition") || word.starts_with('E')
        };
        let mut language = language.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty());
        if !open && language.all(is_rust) {
            found.push(line);
        }
        open = !open;
    }
    found
}

/// `doctest = false` spares a library to be read, and its macros to be expanded, for tests in its documentation. It
/// would leave out those that it has.
#[test]
fn libraries_whose_documentation_is_not_tested_have_no_tests_there() {
    let (manifests, sources) = manifests_and_sources();
    let mut checked = 0;
    for (manifest, text) in &manifests {
        if !sections(text, "[lib]").iter().any(|section| section.lines().any(|line| line == "doctest = false")) {
            continue;
        }
        checked += 1;
        let folder = manifest.with_file_name("src");
        for source in sources.iter().filter(|path| path.starts_with(&folder)) {
            let text = std::fs::read_to_string(source).unwrap();
            let blocks = compiled_blocks(&text);
            let place = source.display();
            assert!(blocks.is_empty(), "{place}: code that is never run: {blocks:?}: see {}", manifest.display());
        }
    }
    assert!(checked > 20, "{checked} manifests were read");
}

#[test]
fn blocks_that_are_compiled_are_found() {
    let text = "/// ```\n/// f();\n/// ```\nfn f() {}\n//! ```text\n//! f\n//! ```\n    /// ```no_run\n    /// f();\n\
                /// ```\n/// ```ignore\n/// ```\n/// ```compile_fail,E0277\n/// ```\n// ```\n";
    assert_eq!(compiled_blocks(text), ["/// ```", "/// ```no_run", "/// ```compile_fail,E0277"]);
}

#[test]
fn a_line_that_makes_a_test_is_found() {
    for line in [
        "    #[test]",
        "#[test] fn one_line() {}",
        "mod m { #[test] fn f() {} }",
        "proptest! {",
        "proptest::proptest! {",
    ] {
        assert!(makes_a_test(line), "{line}");
    }
    for line in ["/// With `#[test]`.", "#[cfg(test)]", "let text = \"#[test]\";"] {
        assert!(!makes_a_test(line), "{line}");
    }
}
