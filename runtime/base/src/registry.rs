//! All operators: those that are linked into the program, and those that it registered.

use crate::error::{Error, Result};
use crate::operator::{OperatorDef, Role, did_you_mean};
use crate::registered;

/// Every declared operator that is linked into the program. Filled by the expansion of `#[operator]`.
#[linkme::distributed_slice]
pub static OPERATORS: [&'static OperatorDef];

struct Registry {
    by_name: rustc_hash::FxHashMap<&'static str, &'static OperatorDef>,
    sorted: Vec<&'static OperatorDef>,
    roles: rustc_hash::FxHashMap<Role, &'static OperatorDef>,
}

fn registry() -> &'static Registry {
    static REGISTRY: std::sync::OnceLock<Registry> = std::sync::OnceLock::new();
    REGISTRY.get_or_init(|| {
        let mut sorted: Vec<_> = OPERATORS.iter().copied().collect();
        // Link order differs from build to build.
        sorted.sort_by_key(|def| def.name);
        let by_name = sorted.iter().map(|def| (def.name, *def)).collect();
        let roles = sorted.iter().filter_map(|def| def.overload.map(|role| (role, *def))).collect();
        Registry { by_name, sorted, roles }
    })
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
pub fn find_operator(name: &str) -> Result<&'static OperatorDef> {
    let declared = registry().by_name.get(name).copied();
    declared.or_else(|| registered::find(|def: &OperatorDef| def.name == name)).ok_or_else(|| Error::UnknownOperator {
        name: name.to_owned(),
        hint: did_you_mean(name, operators().iter().map(|def| def.name)),
    })
}

/// The operator that plays `role`, if any is linked in.
pub fn role(role: Role) -> Result<&'static OperatorDef> {
    registry().roles.get(&role).copied().ok_or_else(|| Error::UnknownOperator {
        name: format!("{role:?}"),
        hint: " (no operator declares this role; link the operator library with `use fulgurite_ops as _`)".into(),
    })
}
