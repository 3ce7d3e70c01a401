//! The map from files to the tests that a change of them can affect. Which operators a file concerns is the map of the
//! mutants, `fulgurite::testing::concerned`.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use fulgurite::testing::concerned::{Callers, Files};

use super::declarations::Declarations;
use super::places;
use super::selection::{Selection, Target, Tests};
use super::workspace::{Package, Workspace};

/// The target that runs generated tests.
const GENERATED: &str = "generated";

/// The package with the generated tests of packages that have none of their own.
const SUITE: &str = "fulgurite-tests";

/// Tests of a generated target that no single operator has: a rewrite finds operators that its file does not declare.
const WHOLE: [&str; 4] = ["registry::", "snapshots::", "directives::", "::rewrite"];

/// Files of which everything depends, wherever they are.
const BUILD: [&str; 4] = ["Cargo.lock", "rust-toolchain.toml", "clippy.toml", "rustfmt.toml"];

/// What the map is made from.
pub struct Map<'a> {
    pub workspace: &'a Workspace,
    pub declarations: &'a Declarations,
    /// Which items of the packages with declarations mention which others; read when it is first asked.
    pub callers: OnceCell<Callers>,
    /// What the files concern that were asked for: many kernels are named by the same sources.
    pub concerned: RefCell<HashMap<String, BTreeSet<String>>>,
}

impl Map<'_> {
    /// The tests that a change of a file can affect, and why. `path` is from the top of the repository.
    pub fn of(&self, path: &str) -> (Tests, String) {
        let everything = |why: &str| (Tests::Everything, format!("{why}: everything"));
        let Some(path) = path.strip_prefix(&self.workspace.prefix) else {
            return everything("is outside of the workspace");
        };
        if BUILD.contains(&path) || path == "Cargo.toml" {
            return everything("is a file of the whole build");
        }
        if let Some((selections, why)) = places::tests_of(path, self.workspace) {
            return (Tests::Some(selections), why);
        }
        if let Some(manifest) = self.workspace.manifest_of_own(path) {
            return (
                Tests::Some(vec![Selection::package(&manifest)]),
                format!("is in a workspace of its own, {manifest}"),
            );
        }
        let Some(package) = self.workspace.package_of(path) else { return everything("is in no package") };
        let found = self
            .of_snapshot(package, path)
            .or_else(|| self.of_tests(package, path))
            .or_else(|| self.of_declarations(package, path))
            .or_else(|| self.of_data(package, path));
        found.map_or_else(|| self.of_package(package), |(selections, why)| (Tests::Some(selections), why))
    }

    /// A stored trace of an operator: `tests/snapshots/liger__rope.snap`.
    fn of_snapshot(&self, package: &Package, path: &str) -> Option<(Vec<Selection>, String)> {
        let stem = path.strip_suffix(".snap").or_else(|| path.strip_suffix(".snap.new"))?;
        let (folder, name) = stem.rsplit_once('/')?;
        if folder == format!("{}snapshots", package.folder) && package.has_test(GENERATED) {
            let name = name.replace("__", "::");
            let filter = format!("{name}::snapshot");
            let selection = Selection::test(&package.name, GENERATED, &[&filter, "snapshots::"]);
            return Some((vec![selection], format!("is the snapshot of {name}")));
        }
        // That of a test: `models__gpt2_traces__step.snap` is of `gpt2_traces` in `models`.
        let mut parts = name.split("__");
        let (target, module) = (parts.next()?, parts.next()?);
        package.has_test(target).then(|| {
            let filters = self.filters_of(package, target, module);
            (
                vec![Selection { package: package.name.clone(), target: Target::Test(target.into()), filters }],
                "is a snapshot of its test".into(),
            )
        })
    }

    /// A file of tests, or a module that several targets have.
    fn of_tests(&self, package: &Package, path: &str) -> Option<(Vec<Selection>, String)> {
        let inside = path.strip_prefix(&package.folder)?;
        if !inside.starts_with("tests/") {
            return None;
        }
        if let Some((target, module)) = package.module_of(path) {
            let filters = self.filters_of(package, target, &module);
            let why = if filters.is_empty() {
                format!("is of the tests {target}")
            } else {
                format!("is {module} of the tests {target}")
            };
            return Some((
                vec![Selection { package: package.name.clone(), target: Target::Test(target.into()), filters }],
                why,
            ));
        }
        // `tests/device/mod.rs`, which several targets name.
        let module = path.rsplit_once('/').map(|(folder, _)| folder.rsplit('/').next().unwrap_or(folder))?;
        let named = [format!("mod {module};"), format!("/{module}/mod.rs")];
        let selections: Vec<Selection> = package
            .tests
            .iter()
            .filter(|(_, file)| {
                self.below(file).iter().any(|own| named.iter().any(|word| self.workspace.text(own).contains(word)))
            })
            .map(|(name, _)| Selection::test(&package.name, name, &[]))
            .collect();
        (!selections.is_empty()).then(|| (selections, format!("is a module of tests, {module}")))
    }

    /// Parts of names by which a module's tests are chosen; none, which is all, unless the target has such a module.
    fn filters_of(&self, package: &Package, target: &str, module: &str) -> Vec<String> {
        let first = module.split("::").next().unwrap_or_default();
        let file = package.tests.iter().find(|(name, _)| name == target).map(|(_, file)| file.as_str());
        let text = file.map_or_else(|| Rc::from(""), |file| self.workspace.text(file));
        match !first.is_empty() && text.contains(&format!("mod {first};")) {
            true => vec![format!("{first}::")],
            false => Vec::new(),
        }
    }

    /// The files of a target of tests.
    fn below(&self, file: &str) -> Vec<&str> {
        let folder = file.strip_suffix("main.rs").map_or_else(|| file.replace(".rs", "/"), str::to_owned);
        let own = self.workspace.files.get(file).filter(|file| !file.starts_with(&folder));
        let inside = self.workspace.beginning(&folder).filter(|path| path.ends_with(".rs"));
        own.into_iter().chain(inside).map(String::as_str).collect()
    }

    /// A file of operators, of an executor's rules or kernels, or one that such files name.
    fn of_declarations(&self, package: &Package, path: &str) -> Option<(Vec<Selection>, String)> {
        if !self.declarations.declares(&package.name)
            || path.ends_with("Cargo.toml")
            || !self.workspace.files.contains(path)
        {
            return None;
        }
        let text = |file: &str| self.workspace.text(file).to_string();
        let of = |file: &str| self.workspace.package_of(file).map(|package| package.name.clone());
        let callers = self.callers.get_or_init(|| {
            let declares = |file: &str| of(file).is_some_and(|package| self.declarations.declares(&package));
            let sources = self.workspace.files.iter().filter(|file| file.ends_with(".rs") && declares(file));
            Callers::new(sources.map(|file| (file.clone(), text(file))))
        });
        let files = Files { text: &text, package: &of, callers };
        let concerned = |file: &str| {
            if let Some(known) = self.concerned.borrow().get(file) {
                return known.clone();
            }
            let found = self.declarations.declared.concerned(&files, file, "");
            self.concerned.borrow_mut().insert(file.to_owned(), found.clone());
            found
        };
        let mut names: BTreeSet<String> = match path.ends_with(".rs") {
            true => concerned(path),
            false => self.naming(package, path).iter().flat_map(|file| concerned(file)).collect(),
        };
        let is_executor = self.declarations.executors.contains(&package.name);
        if names.is_empty() && is_executor {
            // What its kernels and rules share.
            names = self.declarations.of_package(package);
        }
        if names.is_empty() {
            return None;
        }
        // What runs an operator runs it in the operators that it is a part of, which have other programs of their own.
        let all = if is_executor { names.clone() } else { self.declarations.with_users(&names) };
        let mut selections = self.generated(&all, &package.name);
        if is_executor {
            let around = |other: &&Package| package.folder.starts_with(&other.folder) && !other.folder.is_empty();
            selections.extend(self.workspace.packages.iter().filter(around).map(|own| Selection::package(&own.name)));
        } else if package.library {
            selections.push(Selection { package: package.name.clone(), target: Target::Lib, filters: Vec::new() });
        }
        let callers = self.callers(package, &names);
        selections.extend(callers.iter().cloned());
        let users: Vec<&String> = all.difference(&names).collect();
        let mut why = format!("concerns {}", listed(&names.iter().collect::<Vec<_>>()));
        if !users.is_empty() {
            why += &format!("; in {}", listed(&users));
        }
        if !callers.is_empty() {
            let callers: BTreeSet<&String> = callers.iter().map(|caller| &caller.package).collect();
            why += &format!("; called by {}", listed(&callers.into_iter().collect::<Vec<_>>()));
        }
        Some((selections, why))
    }

    /// The sources of a package that name a file, or that name files which name it.
    fn naming(&self, package: &Package, path: &str) -> BTreeSet<String> {
        let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let sources: Vec<(&String, Rc<str>)> = self
            .workspace
            .beginning(&package.folder)
            .filter(|file| !file.ends_with(".snap"))
            .map(|file| (file, self.workspace.text(file)))
            .collect();
        let mut found = BTreeSet::from([path.to_owned()]);
        loop {
            let before = found.len();
            for (file, text) in &sources {
                if !found.contains(*file)
                    && found.iter().any(|named| !named.ends_with(".rs") && text.contains(&last(named)))
                {
                    found.insert((*file).clone());
                }
            }
            if found.len() == before {
                found.retain(|file| file.ends_with(".rs"));
                return found;
            }
        }
    }

    /// The generated tests of these names, in the packages that run them.
    fn generated(&self, names: &BTreeSet<String>, near: &str) -> Vec<Selection> {
        let mut selections: Vec<Selection> = Vec::new();
        for name in names {
            let package = self.declarations.packages.get(name).map_or(near, String::as_str);
            let own = self.workspace.package(package).filter(|package| package.has_test(GENERATED));
            let Some(own) = own.or_else(|| self.workspace.package(SUITE)) else { continue };
            let filter = format!("{name}::");
            match selections.iter_mut().find(|selection| selection.package == own.name) {
                Some(known) => known.filters.push(filter),
                None => {
                    let mut selection = Selection::test(&own.name, GENERATED, &WHOLE);
                    selection.filters.push(filter);
                    selections.push(selection);
                }
            }
        }
        selections
    }

    /// Tests of other crates that call one of these operators: modules of tests, and the unit tests of libraries that
    /// declare nothing with the targets of tests that name those libraries.
    fn callers(&self, declaring: &Package, names: &BTreeSet<String>) -> Vec<Selection> {
        let dependents = self.workspace.with_dependents(&[&declaring.name]);
        let short: BTreeSet<&str> = names.iter().map(|name| name.rsplit("::").next().unwrap_or(name)).collect();
        let calls = |file: &str| {
            let calls = self.workspace.calls(file, true);
            short.iter().any(|name| calls.names(name))
        };
        let mut found = BTreeSet::new();
        for package in &self.workspace.packages {
            let depends = dependents.contains(&package.name) || !package.tests_use.is_disjoint(&dependents);
            if !depends || package.name == declaring.name || self.declarations.declares(&package.name) {
                continue;
            }
            for (target, file) in package.tests.iter().filter(|(target, _)| target != GENERATED) {
                for own in self.below(file).into_iter().filter(|own| calls(own)) {
                    let module = package.module_of(own).map(|(_, module)| module).unwrap_or_default();
                    let filters = self.filters_of(package, target, &module);
                    found.insert(Selection {
                        package: package.name.clone(),
                        target: Target::Test(target.clone()),
                        filters,
                    });
                }
            }
            let sources = format!("{}src/", package.folder);
            let calling = |file: &&String| {
                let calls = self.workspace.calls(file, false);
                short.iter().any(|name| calls.function(name))
            };
            let own = self.workspace.beginning(&sources).filter(|file| file.ends_with(".rs"));
            for file in own.filter(calling) {
                match places::tests_of(file, self.workspace) {
                    Some((selections, _)) => found.extend(selections),
                    None => {
                        let name = package.name.clone();
                        found.extend(self.tests_naming(&BTreeSet::from([name.clone()])));
                        if package.library {
                            found.insert(Selection { package: name, target: Target::Lib, filters: Vec::new() });
                        }
                    }
                }
            }
        }
        found.into_iter().collect()
    }

    /// The targets of tests, and the unit tests, that name one of these crates and whose packages need them for tests
    /// alone.
    fn tests_naming(&self, crates: &BTreeSet<String>) -> Vec<Selection> {
        let mut found = Vec::new();
        for package in self.workspace.packages.iter().filter(|package| !crates.contains(&package.name)) {
            let words: Vec<String> =
                package.tests_use.intersection(crates).map(|name| name.replace('-', "_")).collect();
            let names = |file: &str| {
                let text = self.workspace.text(file);
                words.iter().any(|word| text.contains(word.as_str()))
            };
            let own =
                package.tests.iter().filter(|(_, file)| !words.is_empty() && self.below(file).into_iter().any(names));
            found.extend(own.map(|(target, _)| Selection::test(&package.name, target, &[])));
            let sources = format!("{}src/", package.folder);
            let mut own = self.workspace.beginning(&sources);
            if package.library && !words.is_empty() && own.any(|file| names(file)) {
                found.push(Selection { package: package.name.clone(), target: Target::Lib, filters: Vec::new() });
            }
        }
        found
    }

    /// Data beside tests, which sources of tests name: a file, or the folder that it is in.
    fn of_data(&self, package: &Package, path: &str) -> Option<(Vec<Selection>, String)> {
        let inside = path.strip_prefix(&package.folder)?;
        if inside.ends_with(".rs") || inside.starts_with("src/") || inside == "Cargo.toml" {
            return None;
        }
        let mut selections = BTreeSet::new();
        // Words of its path from the file upwards; names of a single folder level say too little.
        for word in inside.split('/').rev().take(inside.matches('/').count()) {
            for package in &self.workspace.packages {
                for (target, file) in &package.tests {
                    for own in self.below(file).into_iter().filter(|own| self.workspace.text(own).contains(word)) {
                        let module = package.module_of(own).map(|(_, module)| module).unwrap_or_default();
                        let filters = self.filters_of(package, target, &module);
                        selections.insert(Selection {
                            package: package.name.clone(),
                            target: Target::Test(target.clone()),
                            filters,
                        });
                    }
                }
            }
            if !selections.is_empty() {
                return Some((selections.into_iter().collect(), format!("is data of tests, '{word}'")));
            }
        }
        None
    }

    /// A crate and all that depends on it.
    fn of_package(&self, package: &Package) -> (Tests, String) {
        let crates = self.workspace.with_dependents(&[&package.name]);
        let mut selections: Vec<Selection> = crates.iter().map(|name| Selection::package(name)).collect();
        selections.extend(self.tests_naming(&crates));
        let dependents: Vec<&String> = crates.iter().filter(|name| **name != package.name).collect();
        let why = match dependents.is_empty() {
            true => format!("is of {}, which no crate depends on", package.name),
            false => format!("is of {}, and so are {}", package.name, listed(&dependents)),
        };
        (Tests::Some(selections), why)
    }
}

/// The first names, and how many more there are.
fn listed(names: &[&String]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(|name| name.as_str()).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
