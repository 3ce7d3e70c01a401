//! Tests to run, and the commands of cargo that run them.

use std::collections::{BTreeMap, BTreeSet};

use super::workspace::Workspace;

/// Tests of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tests {
    /// All tests of the workspace.
    Everything,
    /// These.
    Some(Vec<Selection>),
}

/// Tests of a package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selection {
    /// The package; of one that is a workspace of its own, the path of its manifest.
    pub package: String,
    /// Which of its targets.
    pub target: Target,
    /// Parts of the tests' names; all without any.
    pub filters: Vec<String>,
}

/// What cargo tests of a package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// All targets.
    All,
    /// The unit tests of the library.
    Lib,
    /// The documentation tests.
    Doc,
    /// A target of tests.
    Test(String),
}

impl Selection {
    /// All tests of a package.
    pub fn package(name: &str) -> Selection {
        Selection { package: name.to_owned(), target: Target::All, filters: Vec::new() }
    }

    /// Those of a target whose names have one of these in them.
    pub fn test(package: &str, target: &str, filters: &[&str]) -> Selection {
        let filters = filters.iter().map(|filter| (*filter).to_owned()).collect();
        Selection { package: package.to_owned(), target: Target::Test(target.to_owned()), filters }
    }
}

/// The tests of several changes together.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    everything: bool,
    /// Filters by package and target; `None` is no filter.
    chosen: BTreeMap<String, BTreeMap<Target, Option<BTreeSet<String>>>>,
}

impl Plan {
    /// Adds tests.
    pub fn add(&mut self, tests: Tests) {
        let selections = match tests {
            Tests::Everything => return self.everything = true,
            Tests::Some(selections) => selections,
        };
        for Selection { package, target, filters } in selections {
            let known = self.chosen.entry(package).or_default().entry(target).or_insert_with(|| Some(BTreeSet::new()));
            match (filters.is_empty(), known.as_mut()) {
                (true, _) => *known = None,
                (false, Some(all)) => all.extend(filters),
                (false, None) => {}
            }
        }
    }

    /// Arguments of cargo, one list for each run. Whole packages are one run.
    pub fn commands(&self, workspace: &Workspace) -> Vec<Vec<String>> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
        if self.everything {
            return vec![words(&["test", "--workspace"])];
        }
        let is_whole = |targets: &BTreeMap<Target, _>| targets.contains_key(&Target::All);
        let is_member = |package: &&String| workspace.package(package).is_some();
        let whole: Vec<&String> =
            self.chosen.iter().filter(|(_, targets)| is_whole(targets)).map(|(package, _)| package).collect();
        let mut commands = Vec::new();
        let members: Vec<&String> = whole.iter().copied().filter(is_member).collect();
        if !members.is_empty() {
            let packages = members.iter().flat_map(|package| ["-p".to_owned(), (*package).clone()]);
            commands.push(words(&["test"]).into_iter().chain(packages).collect());
        }
        for manifest in whole.iter().copied().filter(|package| !is_member(package)) {
            commands.push(words(&["test", "--manifest-path", manifest]));
        }
        for (package, targets) in self.chosen.iter().filter(|(_, targets)| !is_whole(targets)) {
            // Targets without filters are one run.
            let all = targets.iter().filter(|(_, filters)| filters.is_none());
            let (docs, plain): (Vec<&Target>, Vec<&Target>) =
                all.map(|(target, _)| target).partition(|target| **target == Target::Doc);
            if !plain.is_empty() {
                let options = plain.iter().flat_map(|target| option(target));
                commands.push(words(&["test", "-p", package]).into_iter().chain(options).collect());
            }
            // Cargo runs documentation tests alone.
            for target in docs {
                commands.push(words(&["test", "-p", package]).into_iter().chain(option(target)).collect());
            }
            for (target, filters) in targets {
                let Some(filters) = filters else { continue };
                let command = words(&["test", "-p", package]).into_iter().chain(option(target));
                commands.push(command.chain(["--".to_owned()]).chain(filters.iter().cloned()).collect());
            }
        }
        commands
    }
}

/// A target as cargo's options.
fn option(target: &Target) -> Vec<String> {
    match target {
        Target::All => Vec::new(),
        Target::Lib => vec!["--lib".into()],
        Target::Doc => vec!["--doc".into()],
        Target::Test(name) => vec!["--test".into(), name.clone()],
    }
}
