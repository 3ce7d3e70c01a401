//! The cotangents of a gradient rule: each is called after its result, and used or waived.

use proc_macro2::Ident;
use syn::LitStr;

use crate::declaration::Rule;
use crate::errors::{Errors, did_you_mean};
use crate::rules::RuleKind;
use crate::scan;

/// A cotangent that is not used is a gradient that is silently zero. Those of several `results`, if these are known,
/// are called after them.
pub fn check(rules: &[Rule], waived: &[(Ident, LitStr)], results: Option<&[String]>, errors: &mut Errors) {
    let Some(rule) = rules.iter().find(|rule| rule.kind == RuleKind::Grad) else { return };
    let Some(body) = &rule.function.body else { return };
    let pullbacks = scan::pullbacks(body.stream());
    let mut names = Vec::new();
    for pullback in &pullbacks {
        if let Some(results) = results.filter(|results| results.len() > 1) {
            called_after(results, &pullback.cotangents, errors);
        }
        for cotangent in &pullback.cotangents {
            let text = cotangent.to_string();
            if text == "_" {
                errors.at(
                    cotangent,
                    "name this cotangent and use it; if its gradient is zero or unknown, name it \
                                      `_d_name` and add `waive(d_name = \"reason\")` to the attribute",
                );
                continue;
            }
            let name = text.trim_start_matches('_').to_owned();
            let reason = waived.iter().find(|(known, _)| *known == name);
            match (scan::mentions(pullback.body.clone(), &text), reason) {
                (false, None) => errors.at(
                    cotangent,
                    format!(
                        "the cotangent `{name}` is not used, so its part of the gradient would be lost; use it, \
                             or add `waive({name} = \"reason\")` to the attribute"
                    ),
                ),
                (true, Some((known, _))) => errors.at(
                    known,
                    format!(
                        "the cotangent `{name}` is waived and used; \
                    remove the waiver"
                    ),
                ),
                _ => {}
            }
            names.push(name);
        }
    }
    if pullbacks.is_empty() {
        return;
    }
    for (known, _) in waived.iter().filter(|(known, _)| !names.contains(&known.to_string())) {
        let hint = did_you_mean(&known.to_string(), names.iter().map(String::as_str));
        errors.at(known, format!("`grad` has no cotangent `{known}`{hint}"));
    }
}

/// Cotangents of several results are called `d_` and the result. A pullback may also take all of them as one value.
fn called_after(results: &[String], cotangents: &[Ident], errors: &mut Errors) {
    if cotangents.len() != results.len() {
        return;
    }
    for (cotangent, result) in cotangents.iter().zip(results) {
        let text = cotangent.to_string();
        if text != "_" && text.trim_start_matches('_') != format!("d_{result}") {
            errors.at(cotangent, format!("the cotangent of the result `{result}` is called `d_{result}`"));
        }
    }
}
