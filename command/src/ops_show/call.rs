//! How a call of an operator is written in Rust.

use fulgurite::operator::OperatorDef;

use super::super::rust_names::KEYWORDS;

/// `gelu(input)`, and with arguments that may be left out `gelu::with(input).approximate(..).call()`.
pub(super) fn in_rust(def: &OperatorDef) -> String {
    let mut words: Vec<String> = def.name.split("::").map(word).collect();
    // Symbols and composites are called by their own name, prims by that of their module.
    if words.len() > 1 && words[0] != "prims" {
        words.drain(..words.len() - 1);
    }
    let name = words.join("::");
    let of = |defaulted: bool| def.params.iter().filter(move |param| param.default.is_some() == defaulted);
    let required: Vec<String> = of(false).map(|param| word(param.name)).collect();
    let required = required.join(", ");
    let setters: String = of(true).map(|param| format!(".{}(..)", word(param.name))).collect();
    match setters.is_empty() {
        true => format!("{name}({required})"),
        false => format!("{name}({required}), or {name}::with({required}){setters}.call()"),
    }
}

/// A name as Rust has it: one that is a keyword ends with an underscore.
fn word(name: &str) -> String {
    if KEYWORDS.contains(&name) { format!("{name}_") } else { name.to_owned() }
}
