//! Libraries that are not compiled for tests of their own.

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

/// `test = false` spares a library its second build, and would leave out tests that it has.
#[test]
fn libraries_that_are_not_tested_have_no_tests() {
    let mut all = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut all);
    let mut checked = 0;
    for manifest in all.iter().filter(|path| path.ends_with("Cargo.toml")) {
        let text = std::fs::read_to_string(manifest).unwrap();
        let Some((_, library)) = text.split_once("[lib]") else { continue };
        if !library.split("\n[").next().unwrap().lines().any(|line| line == "test = false") {
            continue;
        }
        checked += 1;
        let sources = manifest.with_file_name("src");
        for source in
            all.iter().filter(|path| path.starts_with(&sources) && path.extension().is_some_and(|e| e == "rs"))
        {
            let text = std::fs::read_to_string(source).unwrap();
            let has_test = text.lines().any(makes_a_test);
            assert!(!has_test, "{}: a test that never runs: see [lib] of {}", source.display(), manifest.display());
        }
    }
    assert!(checked > 10, "{checked} manifests were read");
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
