//! `test --changed`: in repositories with a small package, whose tests cargo runs.

use crate::Ran;
use crate::review::Repository;
use crate::run_with;

const MANIFEST: &str = "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
const SUMS: &str = "#[test]\nfn sums_are_right() { assert_eq!(small::sum(1, 2), 3); }\n";

/// A repository with a package and two targets of tests.
fn repository() -> Repository {
    let repository = Repository::with(&[]);
    repository.write(".gitignore", "/target\n");
    repository.write("Cargo.toml", MANIFEST);
    repository.write("src/lib.rs", "pub fn sum(a: i32, b: i32) -> i32 { a + b }\n");
    repository.write("tests/sums.rs", SUMS);
    repository.write("tests/others/main.rs", "mod first;\nmod second;\n");
    repository.write("tests/others/first.rs", "#[test]\nfn runs() {}\n");
    repository.write("tests/others/second.rs", "#[test]\nfn runs() {}\n");
    repository.commit("second");
    repository
}

/// Runs the command with a build of the package's own.
fn changed(repository: &Repository, arguments: &[&str]) -> Ran {
    let target = repository.path().join("target");
    let variables = [("CARGO_TARGET_DIR", target.to_str().unwrap()), ("RUSTC_WORKSPACE_WRAPPER", "")];
    run_with(repository.path(), &[&["test", "--changed"], arguments].concat(), &variables)
}

#[test]
fn the_tests_of_a_change_are_listed_with_the_reason() {
    let repository = repository();
    let nothing = changed(&repository, &[]).ok();
    assert!(nothing.starts_with("nothing changed since HEAD ("), "{nothing}");
    repository.write("tests/others/second.rs", "#[test]\nfn runs() { assert!(true); }\n");
    let listed = changed(&repository, &["--list"]).ok();
    assert!(listed.contains("tests/others/second.rs: is second of the tests others"), "{listed}");
    assert!(listed.ends_with("cargo test -p small --test others -- second::\n"), "{listed}");
    assert_eq!(changed(&repository, &["--dry-run"]).ok(), listed);
    // A new file counts, one that git ignores does not, and the base may be any commit.
    repository.write("tests/sums.rs", &format!("{SUMS}\n"));
    repository.write("target/made.rs", "");
    repository.write("notes", "x");
    let listed = changed(&repository, &["--list"]).ok();
    assert!(listed.contains("3 files changed since HEAD (") && !listed.contains("made.rs"), "{listed}");
    assert!(listed.contains("  notes: is of small, which no crate depends on\n"), "{listed}");
    assert!(listed.ends_with("cargo test -p small\n"), "{listed}");
    repository.commit("third");
    assert!(changed(&repository, &["--list"]).ok().starts_with("nothing changed"), "{listed}");
    let listed = changed(&repository, &["HEAD~1", "--list"]).ok();
    assert!(listed.contains("since HEAD~1 (") && listed.contains("tests/sums.rs"), "{listed}");
}

#[test]
fn the_exit_code_is_that_of_the_tests() {
    let repository = repository();
    repository.write("tests/others/first.rs", "#[test]\nfn runs() { assert!(1 + 1 == 2); }\n");
    let ran = changed(&repository, &[]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("first::runs ... ok") && !ran.out.contains("second::runs"), "{}", ran.out);
    // A crate's file: all that depends on it.
    repository.write("src/lib.rs", "pub fn sum(a: i32, b: i32) -> i32 { a - b }\n");
    let ran = changed(&repository, &[]);
    assert_eq!(ran.code, 101, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("sums_are_right") && ran.out.contains("FAILED"), "{}", ran.out);
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let repository = repository();
    let unknown = changed(&repository, &["no-such-branch"]).fails(1);
    assert!(unknown.contains("'no-such-branch' is not a commit of this repository"), "{unknown}");
    let nowhere = tempfile::tempdir().unwrap();
    let outside = crate::run_in(nowhere.path(), &["test", "--changed"]).fails(1);
    assert!(
        outside.contains("test --changed asks git what changed") && outside.contains("git repository"),
        "{outside}"
    );
    // Without the option there is nothing to choose by.
    assert_eq!(crate::run_in(repository.path(), &["test"]).code, 2);
    std::fs::remove_file(repository.path().join("Cargo.toml")).unwrap();
    let no_package = changed(&repository, &[]).fails(1);
    assert!(no_package.contains("cargo metadata: could not find `Cargo.toml`"), "{no_package}");
}
