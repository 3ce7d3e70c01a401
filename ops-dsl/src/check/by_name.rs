//! Rules take arguments and results by name: those that the signature has, and all where none may be left out.

use crate::declaration::Rule;
use crate::errors::{Errors, did_you_mean};
use crate::model::{Results, RuleParam};
use crate::rules::RuleKind;

/// Whether a rule is traced in the place of the operator: it may take all arguments at once.
fn is_traced(rule: &Rule) -> bool {
    matches!(rule.kind, RuleKind::Decomposition | RuleKind::Execution | RuleKind::Grad)
}

/// Whether an argument that is taken by name is not taken as a field of the struct as well.
fn is_in_one_form(rule: &Rule, param: &RuleParam, errors: &mut Errors) -> bool {
    let args = rule.args();
    if let Some(args) = args {
        let (rule, name, args) = (rule.kind, &param.name, &args.written);
        errors.at(
            &param.written,
            format!("`{rule}` takes `{name}` in `{args}` already: read that field, or take every argument by name"),
        );
    }
    args.is_none()
}

/// Every name that a rule takes is in the signature.
pub fn taken(rule: &Rule, params: &[String], of: &str, errors: &mut Errors) -> bool {
    let mut right = true;
    for param in &rule.params {
        if param.args.is_some() || (is_traced(rule) && param.is_all_arguments()) {
            continue;
        }
        if params.contains(&param.name) {
            right &= is_in_one_form(rule, param, errors);
            continue;
        }
        right = false;
        let hint = did_you_mean(&param.name, params.iter().map(String::as_str));
        let there_are =
            if params.is_empty() { "takes no arguments".into() } else { format!("takes: {}", params.join(", ")) };
        errors.at(&param.written, format!("the {of} has no parameter `{}`{hint} (it {there_are})", param.name));
    }
    right
}

/// Every name that a kernel takes is a parameter or a result of the signature.
pub fn kernel(rule: &Rule, params: &[String], results: &Results, errors: &mut Errors) -> bool {
    let outputs = results.outputs();
    let mut right = true;
    for param in &rule.params {
        let name = &param.name;
        if param.args.is_some() || outputs.contains(name) || (rule.kind == RuleKind::Plan && name == "plan") {
            continue;
        }
        if params.contains(name) {
            right &= is_in_one_form(rule, param, errors);
            continue;
        }
        right = false;
        let hint = did_you_mean(name, params.iter().chain(&outputs).map(String::as_str));
        let takes =
            if params.is_empty() { "takes no arguments".into() } else { format!("takes: {}", params.join(", ")) };
        errors.at(
            &param.written,
            format!(
                "the signature has no parameter or result `{name}`{hint} (it {takes}; it gives: {})",
                outputs.join(", ")
            ),
        );
    }
    right
}

/// A kernel takes all of its results by name.
pub fn writes_all(rule: &Rule, results: &Results, errors: &mut Errors) -> bool {
    let outputs = results.outputs();
    let missing: Vec<&String> =
        outputs.iter().filter(|name| !rule.params.iter().any(|param| param.name == **name)).collect();
    if let Some(first) = missing.first() {
        let (what, form) = match (rule.kind, results) {
            (RuleKind::Cpu, Results::List) => ("host kernel", "&mut [TensorMut]"),
            (RuleKind::Cpu, _) => ("host kernel", "&mut TensorMut"),
            (_, Results::List) => ("plan", "&[DeviceTensor]"),
            _ => ("plan", "&DeviceTensor"),
        };
        let list: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
        errors.at(
            &rule.function.sig.ident,
            format!("a {what} writes every result; {} is missing: write `{first}: {form}`", list.join(", ")),
        );
    }
    missing.is_empty()
}

/// A rule that stands for the operator takes every argument.
pub fn takes_all(rule: &Rule, params: &[String], errors: &mut Errors) -> bool {
    let Some(taken) = rule.taken() else { return true };
    let missing: Vec<&String> = params.iter().filter(|name| !taken.names.contains(name)).collect();
    if let Some(first) = missing.first() {
        let list: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
        let [before, behind] = taken.unused;
        errors.at(
            taken.at,
            format!(
                "`{}` leaves out {}: it takes every argument, so that none falls back to a default unseen; write \
                 `{before}{first}{behind}` for one that it does not use",
                rule.kind,
                list.join(", ")
            ),
        );
    }
    missing.is_empty()
}
