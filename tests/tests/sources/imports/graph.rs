//! Which file of a crate needs which other: the names that the code of a file takes from others, resolved to the files
//! that define them. Calls of methods are not seen, but a file that has a value of a type has its name from somewhere.
//! Macros in textual scope (`#[macro_use]`) and what the code that macros expand to needs are not seen either.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::module::{Module, attributes, for_tests, path_attribute};

/// By file below `src`: the files that it needs, and the names that it takes from each.
pub type Needs = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

/// Paths that lead to a name by way of more re-exports than this have none: globs may lead in a circle.
const MOST_STEPS: usize = 16;

/// The modules of a crate, by their paths.
pub struct Graph {
    source: PathBuf,
    modules: BTreeMap<Vec<String>, Module>,
    /// All words in the macros of the crate, by their names.
    macros: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Reads the crate whose root is `src/lib.rs` below `folder`. What is for tests alone is left out.
    ///
    /// # Panics
    /// If a file cannot be read or is no Rust.
    pub fn of_crate(folder: &Path) -> Graph {
        let source = folder.join("src");
        let mut graph = Graph { source: source.clone(), modules: BTreeMap::new(), macros: BTreeMap::new() };
        graph.read_file(&source.join("lib.rs"), &source, Vec::new());
        graph
    }

    /// Reads a file whose modules are in the folder `children`.
    fn read_file(&mut self, file: &Path, children: &Path, path: Vec<String>) {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.read_items(&parsed.items, file, children, path);
    }

    fn read_items(&mut self, items: &[syn::Item], file: &Path, children: &Path, path: Vec<String>) {
        let mut module = Module::new(file.strip_prefix(&self.source).unwrap_or(file).to_owned());
        for item in items.iter().filter(|item| !for_tests(attributes(item))) {
            let syn::Item::Mod(inner) = item else {
                module.read(item);
                continue;
            };
            let name = inner.ident.to_string();
            let below: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
            module.modules.insert(name.clone(), below.clone());
            let folder = children.join(&name);
            match (&inner.content, path_attribute(&inner.attrs)) {
                (Some((_, items)), _) => self.read_items(items, file, &folder, below),
                (None, Some(named)) => {
                    // As in a `mod.rs`: its modules are beside it.
                    let file = file.with_file_name(named);
                    let beside = file.parent().unwrap_or(children).to_owned();
                    self.read_file(&file, &beside, below);
                }
                (None, None) => {
                    let file = children.join(format!("{name}.rs"));
                    let file = if file.exists() { file } else { folder.join("mod.rs") };
                    self.read_file(&file, &folder, below);
                }
            }
        }
        for (name, words) in &module.macros {
            self.macros.entry(name.clone()).or_default().extend(words.iter().cloned());
        }
        self.modules.insert(path, module);
    }

    /// Whether a macro that a module calls where items are may make an item of this name.
    fn makes(&self, module: &Module, name: &str) -> bool {
        let by = |called: &String| self.macros.get(called).is_some_and(|words| words.contains(name));
        module.words.contains(name) || module.calls.iter().any(by)
    }

    /// The file that defines what `path` says in the module `at`; `None` for a module, and what is of another crate.
    fn resolve(&self, at: &[String], path: &[String], import: bool, steps: usize) -> Option<&Path> {
        let module = self.modules.get(at).filter(|_| steps < MOST_STEPS)?;
        let (first, rest) = path.split_first()?;
        let go = |at: &[String], path: &[String]| self.resolve(at, path, import, steps + 1);
        match first.as_str() {
            "crate" => return go(&[], rest),
            "self" => return go(at, rest),
            "super" => return go(at.split_last()?.1, rest),
            _ => {}
        }
        let below = module.modules.get(first);
        match below {
            Some(below) if !rest.is_empty() => return go(below, rest),
            Some(_) if import => return None,
            _ => {}
        }
        // Paths lead through types and modules alone, whatever else has their names.
        if module.types.contains(first) || (rest.is_empty() && module.values.contains(first)) {
            return Some(&module.file);
        }
        if let Some(targets) = module.uses.get(first) {
            // `use name;` of another crate leads to itself.
            let own = |target: &[String]| target.len() == 1 && target.first() == Some(first);
            let mut others = targets.iter().filter(|target| !own(target));
            return others.find_map(|target| go(at, &[target, rest].concat()));
        }
        if below.is_some() {
            return None;
        }
        let by_glob = module.globs.iter().find_map(|glob| go(at, &[glob, path].concat()));
        by_glob.or_else(|| self.makes(module, first).then_some(&*module.file))
    }

    /// What each file takes from the others.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::new();
        for (at, module) in &self.modules {
            let of_file = needs.entry(module.file.clone()).or_default();
            for named in &module.named {
                let file = self.resolve(at, &named.path, named.import, 0).filter(|file| *file != module.file);
                if let Some(file) = file {
                    of_file.entry(file.to_owned()).or_default().extend(named.path.last().cloned());
                }
            }
        }
        needs
    }
}
