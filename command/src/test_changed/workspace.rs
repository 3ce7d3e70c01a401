//! The packages of a workspace, their targets and dependencies, and the files of its repository.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use serde_json::Value;

use super::calls::Calls;
use crate::git::Repository;
use crate::outcome::Failed;

/// A workspace.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Its folder on this machine.
    pub root: PathBuf,
    /// Where the repository has it: empty at the top, otherwise with a slash at the end.
    pub prefix: String,
    /// Its packages.
    pub packages: Vec<Package>,
    /// The files of the repository below it, by their paths from its root.
    pub files: BTreeSet<String>,
    /// The texts that were looked at.
    pub texts: RefCell<BTreeMap<String, Rc<str>>>,
    /// What they call, without their tests and with them.
    pub(super) called: RefCell<[BTreeMap<String, Rc<Calls>>; 2]>,
}

/// A package.
#[derive(Debug, Default, Clone)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its folder from the root of the workspace, with a slash at the end.
    pub folder: String,
    /// The packages that its library depends on.
    pub uses: BTreeSet<String>,
    /// The packages that its tests alone depend on.
    pub tests_use: BTreeSet<String>,
    /// Whether it has a library that is compiled for tests of its own.
    pub library: bool,
    /// Targets of tests: the name, and the path of the file from the root of the workspace.
    pub tests: Vec<(String, String)>,
}

impl Workspace {
    /// The workspace of the current folder.
    pub fn read(repository: &Repository) -> Result<Workspace, Failed> {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let ran = Command::new(program).args(["metadata", "--format-version", "1", "--no-deps", "--offline"]).output();
        let ran = ran.map_err(|error| Failed(format!("cargo: {error}; packages are listed by the program cargo")))?;
        if !ran.status.success() {
            let message = String::from_utf8_lossy(&ran.stderr);
            let first = message.lines().find(|line| line.starts_with("error")).unwrap_or("it failed");
            return Err(Failed(format!("cargo metadata: {}", first.trim_start_matches("error: "))));
        }
        let read: Value = serde_json::from_slice(&ran.stdout)
            .map_err(|error| Failed(format!("cargo metadata: its answer cannot be read: {error}")))?;
        let root = PathBuf::from(read["workspace_root"].as_str().unwrap_or_default());
        let top = repository.root.canonicalize().unwrap_or_else(|_| repository.root.clone());
        let below = root.canonicalize().unwrap_or_else(|_| root.clone());
        let Ok(prefix) = below.strip_prefix(&top) else {
            return Err(Failed(format!("the workspace {} is not in the repository {}", root.display(), top.display())));
        };
        let prefix = with_slash(&prefix.to_string_lossy().replace('\\', "/"));
        let packages = read["packages"].as_array().into_iter().flatten().map(|package| Package::of(package, &root));
        let files = repository.all_files()?;
        let files = files.iter().filter_map(|path| path.strip_prefix(&prefix)).map(str::to_owned).collect();
        Ok(Workspace { packages: packages.collect(), files, prefix, root, ..Workspace::default() })
    }

    /// The package of this name.
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// The package that a file is in: the one of the innermost folder.
    pub fn package_of(&self, path: &str) -> Option<&Package> {
        let around = self.packages.iter().filter(|package| path.starts_with(&package.folder));
        around.max_by_key(|package| package.folder.len())
    }

    /// The packages whose libraries are built of these, with these: all of them change.
    pub fn with_dependents(&self, names: &[&str]) -> BTreeSet<String> {
        let mut found: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        loop {
            let uses = |package: &&Package| !package.uses.is_disjoint(&found) && !found.contains(&package.name);
            let more: Vec<String> = self.packages.iter().filter(uses).map(|package| package.name.clone()).collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }

    /// The files whose paths begin so, in their order.
    pub fn beginning(&self, begin: &str) -> impl Iterator<Item = &String> {
        let from = (Bound::Included(begin), Bound::Unbounded);
        self.files.range::<str, _>(from).take_while(move |path| path.starts_with(begin))
    }

    /// The text of a file; empty if it cannot be read.
    pub fn text(&self, path: &str) -> Rc<str> {
        if let Some(text) = self.texts.borrow().get(path) {
            return text.clone();
        }
        let text: Rc<str> = std::fs::read_to_string(self.root.join(path)).unwrap_or_default().into();
        self.texts.borrow_mut().insert(path.to_owned(), text.clone());
        text
    }

    /// What a file calls; `tests` says whether tests at its end count.
    pub fn calls(&self, path: &str, tests: bool) -> Rc<Calls> {
        if let Some(calls) = self.called.borrow()[usize::from(tests)].get(path) {
            return calls.clone();
        }
        let calls = Rc::new(Calls::of(&self.text(path), tests));
        self.called.borrow_mut()[usize::from(tests)].insert(path.to_owned(), calls.clone());
        calls
    }

    /// The manifest of a package around a file that is a workspace of its own, if there is one.
    pub fn manifest_of_own(&self, path: &str) -> Option<String> {
        let innermost = self.package_of(path).map_or("", |package| &package.folder);
        let mut folder = path;
        while let Some((above, _)) = folder.rsplit_once('/') {
            if with_slash(above).len() <= innermost.len() {
                return None;
            }
            let manifest = format!("{above}/Cargo.toml");
            if self.files.contains(&manifest) {
                return Some(manifest);
            }
            folder = above;
        }
        None
    }
}

impl Package {
    fn of(read: &Value, root: &Path) -> Package {
        let relative = |path: &Value| {
            let path = Path::new(path.as_str().unwrap_or_default());
            path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
        };
        let manifest = relative(&read["manifest_path"]);
        let (mut uses, mut tests_use) = (BTreeSet::new(), BTreeSet::new());
        for dependency in read["dependencies"].as_array().into_iter().flatten() {
            let name = dependency["name"].as_str().unwrap_or_default().to_owned();
            if dependency["kind"] == "dev" { &mut tests_use } else { &mut uses }.insert(name);
        }
        let mut library = false;
        let mut tests = Vec::new();
        for target in read["targets"].as_array().into_iter().flatten() {
            let name = target["name"].as_str().unwrap_or_default();
            let kinds: Vec<&str> = target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let is_library = kinds.iter().any(|kind| kind.ends_with("lib") || *kind == "proc-macro");
            library |= is_library && target["test"] != false;
            if kinds.contains(&"test") {
                tests.push((name.to_owned(), relative(&target["src_path"])));
            }
        }
        Package {
            name: read["name"].as_str().unwrap_or_default().to_owned(),
            folder: manifest.strip_suffix("Cargo.toml").unwrap_or(&manifest).to_owned(),
            uses,
            tests_use,
            library,
            tests,
        }
    }

    /// Whether it has a target of tests of this name.
    pub fn has_test(&self, name: &str) -> bool {
        self.tests.iter().any(|(own, _)| own == name)
    }

    /// The target and the module that a file of tests is: `tests/programs/joins.rs` is `joins` of `programs`. The file
    /// of the target itself is no module.
    pub fn module_of(&self, path: &str) -> Option<(&str, String)> {
        for (name, file) in &self.tests {
            if file == path {
                return Some((name, String::new()));
            }
            // `tests/programs/main.rs`, or `tests/command.rs` with the folder `tests/command`.
            let folder = match file.strip_suffix("/main.rs") {
                Some(folder) => format!("{folder}/"),
                None => format!("{}/", file.strip_suffix(".rs").unwrap_or(file)),
            };
            if let Some(rest) = path.strip_prefix(&folder) {
                let module = rest.strip_suffix(".rs").map(|rest| rest.strip_suffix("/mod").unwrap_or(rest));
                // What is no source is known to the modules of its folder.
                let module = module.or_else(|| rest.rsplit_once('/').map(|(folder, _)| folder)).unwrap_or_default();
                return Some((name, module.replace('/', "::")));
            }
        }
        None
    }
}

/// A folder with a slash at the end; the top is empty.
fn with_slash(folder: &str) -> String {
    if folder.is_empty() || folder.ends_with('/') { folder.to_owned() } else { format!("{folder}/") }
}
