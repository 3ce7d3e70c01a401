//! How lists and descriptions word what is declared.

use fulgurite::executor::RewriteDef;
use fulgurite::operator::{OperatorDef, OperatorKind};

/// The kind of an operator in a word, and the executors that own it.
pub fn kind_of(def: &OperatorDef) -> (&'static str, Option<String>) {
    match def.kind {
        OperatorKind::Prim => ("prim", None),
        OperatorKind::Composite => ("composite", None),
        OperatorKind::Symbol(executors) => ("symbol", Some(executors.join(", "))),
    }
}

/// When a rewrite runs, in words.
pub fn takes_part(def: &RewriteDef) -> String {
    if !def.executors.is_empty() {
        return format!("after autodiff, where one of these executors is in the list: {}", def.executors.join(", "));
    }
    let when = if def.late { "after autodiff" } else { "before autodiff" };
    let named = if def.default { "" } else { ", if it is named" };
    let claimed = if def.claimed { ", where an executor of the list runs the replacement" } else { "" };
    format!("{when}{named}{claimed}")
}
