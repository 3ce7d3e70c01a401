//! Rewrites: which rules they have, and what the attributes of a pattern are.

use proc_macro2::Ident;
use quote::ToTokens;
use syn::parse_quote;

use super::{attribute_type, bodies, by_name, collector, names};
use crate::declaration::{Parts, Rule};
use crate::errors::Errors;
use crate::model::{Param, ParamKind};
use crate::rules::{REWRITE_RULES, RuleKind};
use crate::scan;

/// Checks a rewrite; rules that cannot be called are marked as not right.
pub fn check(ident: &Ident, rules: &mut [Rule], parts: &Parts, params: &mut [Param], errors: &mut Errors) {
    names(parts, rules, &REWRITE_RULES, "a rewrite", errors);
    bodies(parts, errors);
    let bound = rules.iter().filter(|rule| rule.kind == RuleKind::Pattern).all(|rule| bound(rule, params, errors));
    let params: Vec<String> = params.iter().map(|param| param.ident.to_string()).collect();
    let params = &params[..];
    for (kind, form) in [
        (RuleKind::Pattern, "fn pattern(x: Tensor, ...) -> Tensor"),
        (RuleKind::Replacement, "fn replacement(...)` with the parameters of `pattern"),
        (
            RuleKind::Samples,
            "fn samples(s: &mut Samples)` with inputs on which both sides must agree: `s.case(with(...))",
        ),
    ] {
        if !rules.iter().any(|rule| rule.kind == kind) {
            errors.at(ident, format!("`{ident}` has no {kind}; write `{form}`"));
        }
    }
    for rule in rules.iter_mut().filter(|rule| rule.right) {
        rule.right = match rule.kind {
            // The parameters are unclear: calls of these rules would give further errors.
            _ if !bound => rule.kind == RuleKind::Samples && collector(rule, errors),
            RuleKind::Pattern => true,
            RuleKind::Samples => collector(rule, errors),
            RuleKind::Replacement => {
                by_name::taken(rule, params, "pattern", errors) && by_name::takes_all(rule, params, errors)
            }
            _ => by_name::taken(rule, params, "pattern", errors),
        };
    }
}

/// Whether the attributes of a pattern are owned values that it gives to an operator.
fn bound(pattern: &Rule, params: &mut [Param], errors: &mut Errors) -> bool {
    let mut right = true;
    for (param, written) in params.iter_mut().zip(&pattern.params) {
        let ParamKind::Attribute(ty) = &mut param.kind else { continue };
        let name = &written.name;
        let tensors = ["Tensor", "Operand"].iter().any(|word| scan::mentions(ty.to_token_stream(), word));
        if tensors {
            errors.at(
                &written.ty,
                format!(
                    "a pattern takes tensors (`{name}: Tensor`) and attributes that it binds (`{name}: f64`); write a \
                     rewrite for each form of a tensor that may be absent, a number or a list"
                ),
            );
            **ty = parse_quote!(bool);
            right = false;
            continue;
        }
        attribute_type(ty, errors);
        let used = pattern.function.body.as_ref().is_some_and(|body| scan::mentions(body.stream(), name));
        if !used || written.written != *name {
            errors.at(
                &written.written,
                format!(
                    "the pattern gives `{name}` to no operator, so nothing binds it: write it as an argument of a \
                     call, or remove the parameter"
                ),
            );
        }
    }
    right
}
