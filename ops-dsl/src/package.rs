//! The package whose declarations are expanded: their names follow from it, and it has the root that they are expanded
//! for under a name of its own.

use std::cell::RefCell;

thread_local! {
    static PACKAGE: RefCell<Option<String>> = const { RefCell::new(None) };
    static ROOT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The packages whose operators have names without a namespace: the library, and what tests it.
const HOUSE: [&str; 19] = [
    "fulgurite",
    "fulgurite-benches",
    "fulgurite-command",
    "fulgurite-executor-cpu",
    "fulgurite-executor-cublaslt",
    "fulgurite-executor-cuda",
    "fulgurite-executor-cudnn",
    "fulgurite-executor-decode",
    "fulgurite-executor-flash",
    "fulgurite-executor-liger",
    "fulgurite-executor-llmc",
    "fulgurite-executor-optim",
    "fulgurite-executor-regions",
    "fulgurite-executors",
    "fulgurite-models",
    "fulgurite-ops",
    "fulgurite-ops-dsl",
    "fulgurite-runtime",
    "fulgurite-tests",
];

/// Expands declarations of a package: its operators have the namespace of its crate unless they say their names.
pub fn in_package<R>(package: Option<String>, expand: impl FnOnce() -> R) -> R {
    let before = PACKAGE.replace(package);
    let expansion = expand();
    PACKAGE.replace(before);
    expansion
}

/// The namespace of operators that do not say their names.
pub(crate) fn namespace() -> Option<String> {
    PACKAGE.with_borrow(|package| {
        package.as_deref().filter(|package| !HOUSE.contains(package)).map(|package| package.replace('-', "_"))
    })
}

/// Expands declarations of a package that has the facade, or the runtime, as the crate `root`.
pub fn at_root<R>(root: String, expand: impl FnOnce() -> R) -> R {
    let before = ROOT.replace(Some(root));
    let expansion = expand();
    ROOT.replace(before);
    expansion
}

/// The crate at whose root expansions find what they need.
pub(crate) fn root() -> String {
    ROOT.with_borrow(|root| root.clone().unwrap_or_else(|| "fulgurite".into()))
}
