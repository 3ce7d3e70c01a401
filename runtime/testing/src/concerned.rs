//! Which generated tests say something about a source file: those of the operators, implementations and rewrites that
//! it declares, has kernels for, or that call what is in it, also through other functions. The mutants and
//! `fulgurite test --changed` ask this map.

use std::collections::BTreeSet;
use std::path::Path;

use crate::DType;
use crate::argument::map_arguments;
use crate::executor::{executors, implementations, rewrites};
use crate::meta::Device;
use crate::samples::Samples;
use fulgurite_ir::registry::operators;

pub use super::callers::Callers;
pub use super::test::PROGRAMS;

/// The files of a repository, by their paths from its root.
pub struct Files<'a> {
    /// The text of a file; empty if there is none.
    pub text: &'a dyn Fn(&str) -> String,
    /// The package that a file is in.
    pub package: &'a dyn Fn(&str) -> Option<String>,
    /// Which items of the sources mention which others.
    pub callers: &'a Callers,
}

/// The linked declarations by the files and packages that they are in.
#[derive(Debug, Clone, Default)]
pub struct Declared {
    /// Operators, rewrites, and operators with an implementation of an executor; each with the file that declares it.
    pub files: Vec<(String, String)>,
    /// The operators that an executor takes by its rules, with the executor's package.
    pub claims: Vec<(String, String)>,
}

impl Declared {
    /// What is linked into this program; claims of executors on these kinds of devices, of all without any.
    pub fn linked(devices: &[&str]) -> Declared {
        let mut files: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, file: &str| files.push((name.to_owned(), file.to_owned()));
        operators().iter().for_each(|def| add(def.name, def.file));
        implementations().iter().for_each(|implementation| add(implementation.of, implementation.file));
        rewrites().iter().for_each(|rewrite| add(rewrite.name, rewrite.file));
        let mut claims = Vec::new();
        for executor in
            executors().into_iter().filter(|executor| devices.is_empty() || devices.contains(&executor.device))
        {
            let Some(takes) = executor.claims else { continue };
            let device = if executor.device == "any" { Device::CPU } else { Device::new(executor.device, 0) };
            for def in operators() {
                let mut samples = Samples::of_operator(def, DType::F32).into_iter();
                let taken = |metas: &[_]| takes(def, metas).is_ok();
                if samples.next().is_some_and(|sample| taken(&map_arguments(&sample.arguments, |t| t.meta(device)))) {
                    claims.push((def.name.to_owned(), executor.package.to_owned()));
                }
            }
        }
        Declared { files, claims }
    }

    /// The names that `file` declares.
    fn declared_in(&self, file: &str) -> BTreeSet<String> {
        let own = self.files.iter().filter(|(_, other)| other.ends_with(file));
        own.map(|(name, _)| name.clone()).collect()
    }

    /// The names whose files have one of these words in them.
    fn naming(&self, files: &Files, words: &[String]) -> BTreeSet<String> {
        let all: BTreeSet<&str> = self.files.iter().map(|(_, file)| &**file).collect();
        let names = |text: &str| words.iter().any(|word| text.contains(word.as_str()));
        let naming = all.into_iter().filter(|file| names(&(files.text)(file)));
        naming.flat_map(|file| self.declared_in(file)).collect()
    }

    /// What has tests that say something of a function of `file`, of the whole file without one: the operators and
    /// rewrites that the file declares or has kernels for, and those of files that call the function, or a function
    /// that calls it; without any, those of files that name the file. Of a file that declares an executor, these are
    /// also the operators that the executor takes by its rules, and random programs. Empty if no declaration is near
    /// the file.
    pub fn concerned(&self, files: &Files, file: &str, function: &str) -> BTreeSet<String> {
        let mut names = self.declared_in(file);
        // `Type::method` is reached through its type; the module of a declaration is no item with a name.
        let first = function.split("::").next().unwrap_or_default();
        let mut items = files.callers.names_in(file);
        items.retain(|name| first.is_empty() || *name == first);
        let calling: BTreeSet<&str> = items.into_iter().flat_map(|name| files.callers.files(file, name)).collect();
        names.extend(calling.into_iter().flat_map(|file| self.declared_in(file)));
        if names.is_empty() {
            let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            names.extend(self.naming(files, &[format!("{stem}::"), format!("use super::{stem};")]));
        }
        if (files.text)(file).contains("#[executor(") {
            let package = (files.package)(file);
            let own = self.claims.iter().filter(|(_, of)| Some(of) == package.as_ref());
            names.extend(own.map(|(name, _)| name.clone()));
            names.insert(PROGRAMS.to_owned());
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_mapped_to_what_their_tests_are_called() {
        let pair = |name: &str, file: &str| (name.to_owned(), file.to_owned());
        let declared = Declared {
            files: vec![
                pair("gelu", "ops/src/nn/gelu.rs"),
                pair("silu", "ops/src/nn/silu.rs"),
                pair("gelu", "fast/src/gelu.rs"),
            ],
            claims: vec![pair("exp", "fast"), pair("log", "slow")],
        };
        let texts = [
            ("ops/src/nn/silu.rs", "use super::sigmoids;\npub mod silu {\n    fn meta() { sigmoids::middle(1) }\n}"),
            ("ops/src/nn/sigmoids.rs", "pub fn middle() {\n    logistic(1)\n}"),
            ("ops/src/nn/shared.rs", "pub fn logistic() {\n    Kind::One\n}\nimpl Kind {\n    fn one() {}\n}"),
            ("ops/src/nn/gelu.rs", "pub mod gelu {\n    fn meta() { beside() }\n}\npub fn beside() {}"),
            ("fast/src/gelu.rs", "pub mod by_fast {\n    fn run() { fulgurite_ops::nn::sigmoids::middle(1) }\n}"),
            ("fast/src/lib.rs", "#[executor(device = \"cpu\")]\npub mod fast {}"),
        ];
        let text = |file: &str| {
            texts.iter().find(|(path, _)| *path == file).map_or(String::new(), |(_, text)| (*text).to_owned())
        };
        let callers = Callers::new(texts.map(|(file, text)| (file.to_owned(), text.to_owned())));
        let package = |file: &str| file.split('/').next().map(str::to_owned);
        let files = Files { text: &text, package: &package, callers: &callers };
        let of =
            |file: &str, function: &str| declared.concerned(&files, file, function).into_iter().collect::<Vec<_>>();
        assert_eq!(of("ops/src/nn/gelu.rs", ""), ["gelu"]);
        assert_eq!(of("fast/src/gelu.rs", ""), ["gelu"]);
        assert_eq!(of("ops/src/nn/gelu.rs", "beside"), ["gelu"]);
        // Through another function, in files that nothing declares.
        assert_eq!(of("ops/src/nn/sigmoids.rs", ""), ["gelu", "silu"]);
        assert_eq!(of("ops/src/nn/shared.rs", "logistic"), ["gelu", "silu"]);
        assert_eq!(of("ops/src/nn/shared.rs", "Kind::one"), ["gelu", "silu"]);
        assert_eq!(of("ops/src/nn/silu.rs", "silu::meta"), ["silu"]);
        assert_eq!(of("fast/src/lib.rs", ""), ["exp", PROGRAMS]);
        assert!(of("runtime/src/lib.rs", "").is_empty());
    }
}
