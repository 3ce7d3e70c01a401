//! What must not compile, and what it says. The messages are those of the toolchain that `rust-toolchain.toml` pins.
//!
//! Each file of `tests/ui/` is compiled by the compiler itself, with the libraries that were built for this test: cargo
//! would build all that they depend on once more for a package of such files. `FULGURITE_UI=write` writes the messages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

/// The newest library of that name beside this program. Those of other features may be there as well, from before.
fn library(folder: &Path, name: &str, ending: &str) -> PathBuf {
    let is_one = |path: &PathBuf| {
        let name_of = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let hash = name_of.strip_prefix(&format!("lib{name}-")).and_then(|rest| rest.strip_suffix(ending));
        hash.is_some_and(|hash| hash.chars().all(|c| c.is_ascii_hexdigit()))
    };
    let age = |path: &PathBuf| path.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let newest = entries.filter(is_one).max_by_key(age);
    newest.unwrap_or_else(|| panic!("no lib{name}-*{ending} in {}", folder.display()))
}

/// What the compiler says to a file, or `None` where it takes it.
fn said(file: &Path) -> Option<String> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let out = tempfile::tempdir().unwrap();
    let mut compiler = Command::new("rustc");
    // Libraries name their sources as cargo gave them to the compiler: from the workspace.
    compiler.current_dir(package.parent().unwrap()).arg(file).args([
        "--edition",
        "2024",
        "--crate-type",
        "bin",
        "--emit",
        "metadata",
    ]);
    compiler.args(["--color", "never"]).arg("--out-dir").arg(out.path());
    compiler.arg("-L").arg(format!("dependency={}", built.display()));
    for (name, ending) in [("fulgurite_runtime", ".rlib"), ("fulgurite_ops_macros", std::env::consts::DLL_SUFFIX)] {
        compiler.arg("--extern").arg(format!("{name}={}", library(&built, name, ending).display()));
    }
    // What the macros read of the package that they are expanded in.
    let variables = [
        ("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR")),
        ("CARGO_PKG_NAME", env!("CARGO_PKG_NAME")),
        ("CARGO_PKG_VERSION", env!("CARGO_PKG_VERSION")),
    ];
    let output = compiler.envs(variables).env_remove("RUSTFLAGS").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    (!output.status.success()).then(|| normalized(&text, package))
}

/// Messages without what differs from machine to machine, and from version to version of other crates' files.
fn normalized(text: &str, package: &Path) -> String {
    let workspace = package.parent().unwrap();
    let below = |folder: &Path| format!("{}/", folder.display());
    let text = text.replace(&below(package), "$DIR/").replace(&below(workspace), "$WORKSPACE/");
    let ends = |group: &&str| {
        let last = ["error: aborting due to", "Some errors have", "For more information", "warning: "];
        let is_count = |line: &str| !line.starts_with("warning: ") || line.ends_with(" emitted");
        !group.lines().all(|line| last.iter().any(|begin| line.starts_with(begin) && is_count(line)))
    };
    let groups: Vec<String> =
        text.split("\n\n").filter(|group| !group.trim().is_empty()).filter(ends).map(group).collect();
    groups.join("\n\n") + "\n"
}

/// A message with its notes. Numbers of lines are those of the file; its margin is as wide as they are.
fn group(text: &str) -> String {
    let arrow = text.lines().find_map(|line| line.trim_start().starts_with("--> ").then(|| line.find('-')).flatten());
    let Some(width) = arrow else { return text.trim_end().to_owned() };
    let (mut of_the_file, mut in_heading) = (true, false);
    let mut lines: Vec<(Option<&str>, String)> = Vec::new();
    for line in text.trim_end().lines() {
        let margin = line.get(..width).filter(|margin| margin.chars().all(|c| c == ' ' || c.is_ascii_digit()));
        // A heading of several lines goes on up to the place or the margin.
        in_heading &= !line.trim_start().starts_with("--> ") && !line.trim_start().starts_with('|');
        let Some(margin) = margin.filter(|_| !in_heading) else {
            in_heading = line != "...";
            lines.push((None, line.to_owned()));
            continue;
        };
        let mut rest = line[width..].to_owned();
        if let Some(place) = rest.strip_prefix("--> ").or_else(|| rest.strip_prefix("::: ")) {
            let own = place.strip_prefix("$DIR/").filter(|own| own.starts_with("tests/ui/"));
            of_the_file = own.is_some();
            if let Some(own) = own {
                rest = format!("{}{own}", &rest[..4]);
            } else {
                // Paths of a workspace's own packages are those below it.
                let root = if place.starts_with(['$', '/']) { "" } else { "$WORKSPACE/" };
                let file = place.split(':').next().unwrap_or_default();
                rest = format!("{}{root}{file}", &rest[..4]);
            }
        }
        let others = rest.trim().strip_prefix("and ").and_then(|rest| rest.strip_suffix(" others"));
        if let Some(count) = others.filter(|count| count.chars().all(|c| c.is_ascii_digit())) {
            rest = rest.replace(count, "$N");
        }
        let number = Some(margin.trim()).filter(|number| of_the_file && !number.is_empty());
        lines.push((Some(number.unwrap_or_default()), rest));
    }
    let width = lines.iter().filter_map(|(number, _)| Some((*number)?.len())).max().unwrap_or(1).max(1);
    let written = lines.into_iter().map(|(number, rest)| match number {
        Some(number) => format!("{number:>width$}{rest}").trim_end().to_owned(),
        None => rest,
    });
    written.collect::<Vec<String>>().join("\n")
}

#[test]
fn ui() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "rs"));
    files.sort();
    assert!(files.len() > 25, "{} files", files.len());
    let write = std::env::var_os("FULGURITE_UI").is_some_and(|value| value == "write");
    let (count, faults) = (files.len(), Mutex::new(Vec::new()));
    let files = Mutex::new(files);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(file) = files.lock().unwrap().pop() else { return };
                    let place = Path::new("tests/ui").join(file.file_name().unwrap());
                    let place = place.display();
                    let stored = file.with_extension("stderr");
                    let fault = match (said(&file), std::fs::read_to_string(&stored)) {
                        (None, _) => format!("{place}: it compiles"),
                        (Some(said), Ok(known)) if said == known => continue,
                        (Some(said), _) if write => {
                            std::fs::write(&stored, said).unwrap();
                            continue;
                        }
                        (Some(said), known) => {
                            let known = known.unwrap_or_default();
                            format!("{place}: expected\n{known}\nand the compiler says\n{said}")
                        }
                    };
                    faults.lock().unwrap().push(fault);
                }
            });
        }
    });
    let mut faults = faults.into_inner().unwrap();
    faults.sort();
    assert!(faults.is_empty(), "{} of {count} files:\n\n{}", faults.len(), faults.join("\n\n"));
}

#[test]
fn messages_are_those_of_every_machine() {
    let text = "\
error[E0277]: no
   --> /home/of/dsl/tests/ui/a.rs:8:3
    |
  8 |     f(x)
    |     ^ no
help: there is
      but of two lines
   --> runtime/ir/src/rules.rs:101:5
    |
101 | impl A for B {
    | ^^^
    = help: and 12 others
            and 12 others

warning: x
 --> /home/of/dsl/src/a.rs:1:1

warning: 1 warning emitted

error: aborting due to 1 previous error; 1 warning emitted

For more information about this error, try `rustc --explain E0277`.
";
    let expected = "\
error[E0277]: no
 --> tests/ui/a.rs:8:3
  |
8 |     f(x)
  |     ^ no
help: there is
      but of two lines
 --> $WORKSPACE/runtime/ir/src/rules.rs
  |
  | impl A for B {
  | ^^^
  = help: and 12 others
          and $N others

warning: x
 --> $DIR/src/a.rs
";
    assert_eq!(normalized(text, Path::new("/home/of/dsl")), expected);
}
