//! The files of the linked declarations, and which operators contain which.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite::Target;
use fulgurite::compile::{Options, gradients_stage};
use fulgurite::executor::executors;
use fulgurite::operator::OperatorDef;
use fulgurite::registry::operators;
use fulgurite::testing::concerned::Declared;
use fulgurite::testing::sampled_dtypes;
use fulgurite::trace::Block;

use super::workspace::Package;
use crate::subject;

/// The linked declarations.
#[derive(Debug, Default)]
pub struct Declarations {
    /// Files and claims.
    pub declared: Declared,
    /// The operators that have an operator in their decomposition or in their gradients.
    pub users: BTreeMap<String, BTreeSet<String>>,
    /// The packages of operators.
    pub packages: BTreeMap<String, String>,
    /// The packages that declare executors.
    pub executors: BTreeSet<String>,
}

impl Declarations {
    /// What is linked into this command.
    pub fn linked() -> Declarations {
        let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let all = operators();
        let names: BTreeSet<&str> = all.iter().map(|def| def.name).collect();
        for def in all {
            let inner = contained(def).into_iter().filter(|inner| inner != def.name && names.contains(&**inner));
            for inner in inner {
                users.entry(inner).or_default().insert(def.name.to_owned());
            }
        }
        let packages = operators().iter().map(|def| (def.name.to_owned(), def.package.to_owned())).collect();
        let executors = executors().iter().map(|executor| executor.package.to_owned()).collect();
        Declarations { declared: Declared::linked(&[]), users, packages, executors }
    }

    /// The names, and the operators that contain one of them.
    pub fn with_users(&self, names: &BTreeSet<String>) -> BTreeSet<String> {
        let users = names.iter().filter_map(|name| self.users.get(name)).flatten();
        names.iter().chain(users).cloned().collect()
    }

    /// Whether a package declares operators or executors.
    pub fn declares(&self, package: &str) -> bool {
        self.packages.values().any(|own| own == package) || self.executors.contains(package)
    }

    /// All names that a package declares or takes.
    pub fn of_package(&self, package: &Package) -> BTreeSet<String> {
        let files = self.declared.files.iter().filter(|(_, file)| file.starts_with(&package.folder));
        let claims = self.declared.claims.iter().filter(|(_, own)| *own == package.name);
        files.chain(claims).map(|(name, _)| name.clone()).collect()
    }
}

/// What the traces of an operator's samples call, and those of their gradients.
fn contained(def: &'static OperatorDef) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let Some(dtype) = sampled_dtypes(def).into_iter().next() else { return found };
    for (at, (_, _, trace)) in subject::accepted(def, dtype, &Target::cpu()).into_iter().enumerate() {
        collect(&trace.block, &mut found);
        let wrt = subject::differentiable(def, &trace);
        // Gradients are traced for the first samples: they cost most, and samples of an operator share them.
        if at < 3
            && !wrt.is_empty()
            && let Ok(stage) = gradients_stage(trace, &wrt, &Options::default())
        {
            collect(&stage.trace.block, &mut found);
        }
    }
    found
}

fn collect(block: &Block, found: &mut BTreeSet<String>) {
    for symbol in &block.symbols {
        if let Some(body) = &symbol.body {
            // A body of an operator that was seen has nothing new.
            if found.contains(symbol.name()) {
                continue;
            }
            collect(body, found);
        }
        found.insert(symbol.name().to_owned());
    }
}
