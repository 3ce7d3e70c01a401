//! All operators: those that are linked into the program, and those that it registered.

use crate::error::{CallStack, Error, Failure, Place, Result};
use crate::operator::{OperatorDef, Role, did_you_mean};
use crate::registered;

/// Every declared operator that is linked into the program. Filled by the expansion of `#[operator]`.
#[linkme::distributed_slice]
pub static OPERATORS: [&'static OperatorDef];

struct Registry {
    by_name: rustc_hash::FxHashMap<&'static str, &'static OperatorDef>,
    sorted: Vec<&'static OperatorDef>,
    /// Pairs of operators of one name.
    clashes: Vec<[&'static OperatorDef; 2]>,
    roles: rustc_hash::FxHashMap<Role, Result<&'static OperatorDef, Error>>,
}

fn registry() -> &'static Registry {
    static REGISTRY: std::sync::OnceLock<Registry> = std::sync::OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut sorted: Vec<_> = OPERATORS.iter().copied().collect();
        // Link order differs from build to build.
        sorted.sort_by_key(|def| (def.name, def.file, def.line));
        let pairs = sorted.windows(2).filter_map(|pair| <[_; 2]>::try_from(pair).ok());
        let clashes = pairs.filter(|[first, second]: &[&OperatorDef; 2]| first.name == second.name).collect();
        let by_name = sorted.iter().map(|def| (def.name, *def)).collect();
        let roles = sorted.iter().filter_map(|def| def.overload.map(|role| (role, played(role, def)))).collect();
        Registry { by_name, sorted, clashes, roles }
    })
}

/// Declared operators of one name, each pair with both places, in words.
pub fn clashes() -> Vec<String> {
    registry().clashes.iter().map(|[first, second]| clash(first, second)).collect()
}

fn clash(first: &OperatorDef, second: &OperatorDef) -> String {
    let place = |def: &OperatorDef| format!("{}:{}, in the package {}", def.file, def.line, def.package);
    format!(
        "two operators are called '{}': one is declared at {}, the other at {}; give one of them another name, \
         #[operator(name = \"...\")]",
        first.name,
        place(first),
        place(second)
    )
}

/// Checks that no other declared operator has this name.
///
/// # Errors
/// Where both are declared.
pub fn declared_once(name: &str) -> Result<(), Failure> {
    match registry().clashes.iter().find(|[first, _]| first.name == name) {
        None => Ok(()),
        Some([first, second]) => Err(Failure::new("DeclaredTwice", clash(first, second))),
    }
}

/// All operators, sorted by name.
pub fn operators() -> Vec<&'static OperatorDef> {
    let mut all = registry().sorted.clone();
    let registered = registered::records::<OperatorDef>();
    if !registered.is_empty() {
        all.extend(registered);
        all.sort_by_key(|def| def.name);
    }
    all
}

/// Whether an operator of that name is linked in.
pub fn is_operator(name: &str) -> bool {
    registry().by_name.contains_key(name)
}

/// The operator of that name.
///
/// # Errors
/// If there is none, or if two are called so.
pub fn find_operator(name: &str) -> Result<&'static OperatorDef> {
    declared_once(name).map_err(|failure| Error::Operator {
        operator: name.to_owned(),
        failure,
        stack: CallStack::default(),
    })?;
    let declared = registry().by_name.get(name).copied();
    declared.or_else(|| registered::find(|def: &OperatorDef| def.name == name)).ok_or_else(|| Error::UnknownOperator {
        name: name.to_owned(),
        hint: did_you_mean(name, operators().iter().map(|def| def.name)),
    })
}

fn played(role: Role, def: &'static OperatorDef) -> Result<&'static OperatorDef> {
    let at = Some(Place::declared(def));
    let stack = CallStack { at, frames: Vec::new() };
    role.check(def).map(|()| def).map_err(|failure| Error::Operator { operator: def.name.to_owned(), failure, stack })
}

/// The operator that plays `role`.
///
/// # Errors
/// If none is linked in, or if the one that declares it has other parameters than the role.
pub fn role(role: Role) -> Result<&'static OperatorDef> {
    registry().roles.get(&role).cloned().unwrap_or_else(|| {
        Err(Error::UnknownOperator {
            name: format!("{role:?}"),
            hint: " (no operator declares this role; link the operator library with `use fulgurite_ops as _`)".into(),
        })
    })
}
