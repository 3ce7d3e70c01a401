//! `#[tune(BLOCK in [128, 256, 512])]`: parameters of a kernel that have one of several values.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Lit, LitInt, Token, bracketed};

use crate::declaration::Rule;
use crate::errors::Errors;
use crate::rules::RuleKind;

/// What is written where something else is found.
const FORM: &str = "#[tune(BLOCK in [128, 256, 512])]";

/// A parameter of a kernel and its values, of which the first is the default.
#[derive(Debug, Clone)]
pub struct Tuned {
    /// The parameter.
    pub name: Ident,
    /// Its values.
    pub values: Vec<LitInt>,
}

/// As it is written.
struct Written {
    name: Ident,
    values: Punctuated<Expr, Token![,]>,
}

impl Parse for Written {
    fn parse(input: ParseStream<'_>) -> syn::Result<Written> {
        let name = input.parse()?;
        input.parse::<Token![in]>()?;
        let content;
        bracketed!(content in input);
        Ok(Written { name, values: Punctuated::parse_terminated(&content)? })
    }
}

/// Takes the attributes from the kernels of an implementation, and marks the parameters that they give.
pub fn take(rules: &mut [Rule], errors: &mut Errors) -> Vec<Tuned> {
    let mut all: Vec<Tuned> = Vec::new();
    // Parameters that have no values: no argument of the operator has their name either.
    let mut without: Vec<Ident> = Vec::new();
    let executed = rules.iter().any(|rule| rule.kind == RuleKind::Execution);
    for rule in &mut *rules {
        for attribute in taken(rule) {
            if executed || !matches!(rule.kind, RuleKind::Cpu | RuleKind::Plan) {
                let kind = if executed { RuleKind::Execution } else { rule.kind };
                errors.at(
                    &attribute,
                    format!("`{kind}` is not tuned: `tune` is for `fn cpu` and `fn plan` that run the call"),
                );
                without.extend(first_word(&attribute));
                rule.right = false;
                continue;
            }
            let Some(tuned) = read(&attribute, errors) else {
                without.extend(first_word(&attribute));
                rule.right = false;
                continue;
            };
            if all.iter().any(|other| other.name == tuned.name) {
                errors.at(&tuned.name, format!("`{}` is tuned twice", tuned.name));
                continue;
            }
            if !rule.params.iter().any(|param| param.written == tuned.name) {
                let (kind, name) = (rule.kind, &tuned.name);
                errors.at(name, format!("`{kind}` does not take `{name}`: write the parameter `{name}: usize`"));
                rule.right = false;
                continue;
            }
            rule.function.attrs.push(syn::parse_quote!(#[allow(non_snake_case)]));
            all.push(tuned);
        }
    }
    for rule in rules.iter_mut().filter(|rule| matches!(rule.kind, RuleKind::Cpu | RuleKind::Plan)) {
        let lacks = |tuned: &&Tuned| !rule.params.iter().any(|param| param.written == tuned.name);
        if let Some(Tuned { name, .. }) = all.iter().find(lacks) {
            errors.at(
                &rule.function.sig.ident,
                format!(
                    "`{kind}` does not take `{name}`, so its candidates would be one kernel: write the parameter \
                     `{name}: usize`, or an implementation of its own for each kind of device",
                    kind = rule.kind
                ),
            );
            rule.right = false;
        }
    }
    without.retain(|name| all.iter().all(|tuned| tuned.name != *name));
    for rule in &mut *rules {
        rule.right &= !rule.params.iter().any(|param| without.contains(&param.written));
    }
    for param in rules.iter_mut().flat_map(|rule| &mut rule.params) {
        let tuned = all.iter().find(|tuned| param.written == tuned.name);
        param.given = tuned.map(|tuned| tuned.values[0].to_token_stream()).or(param.given.take());
    }
    all
}

/// Reports and removes the attributes of an operator's rules.
pub fn refuse(rules: &mut [Rule], errors: &mut Errors) {
    for rule in rules {
        for attribute in taken(rule) {
            errors.at(
                &attribute,
                "kernel symbols are not measured, so nothing would choose a value: write the kernel in an \
                 implementation, `#[implementation(of = ..., by = ...)]`",
            );
            // The signature does not have its parameter either.
            rule.right = false;
        }
    }
}

fn taken(rule: &mut Rule) -> Vec<Attribute> {
    let (own, others) = rule.function.attrs.drain(..).partition(|attribute| attribute.path().is_ident("tune"));
    rule.function.attrs = others;
    own
}

/// The parameter that an attribute names, whatever else is wrong with it.
fn first_word(attribute: &Attribute) -> Option<Ident> {
    let word = |input: ParseStream<'_>| {
        let word: Ident = input.parse()?;
        input.parse::<TokenStream>()?;
        Ok(word)
    };
    attribute.parse_args_with(word).ok()
}

fn read(attribute: &Attribute, errors: &mut Errors) -> Option<Tuned> {
    let Ok(Written { name, values }) = attribute.parse_args::<Written>() else {
        errors.at(attribute, format!("write `{FORM}`: a parameter of the kernel and its values, the default first"));
        return None;
    };
    let mut integers: Vec<LitInt> = Vec::new();
    for value in &values {
        match value {
            Expr::Lit(ExprLit { lit: Lit::Int(integer), .. }) => {
                if integers.iter().any(|other| other.base10_digits() == integer.base10_digits()) {
                    errors.at(value, format!("the value {integer} of `{name}` is given twice"));
                    return None;
                }
                integers.push(integer.clone());
            }
            other => {
                errors.at(other, format!("the values of `{name}` are integers, as in `{FORM}`"));
                return None;
            }
        }
    }
    if integers.is_empty() {
        errors.at(attribute, format!("`{name}` has no values: write `{FORM}`, the default first"));
        return None;
    }
    Some(Tuned { name, values: integers })
}

/// Every choice of a value for each of the parameters; the first has all defaults.
pub fn choices(tuned: &[Tuned]) -> Vec<Vec<(&Ident, &LitInt)>> {
    tuned.iter().fold(vec![Vec::new()], |before, Tuned { name, values }| {
        before
            .iter()
            .flat_map(|so_far| values.iter().map(move |value| so_far.iter().copied().chain([(name, value)]).collect()))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use crate::errors::Errors;
    use quote::quote;

    /// What is wrong with a kernel that has this attribute.
    fn said(attribute: proc_macro2::TokenStream) -> Vec<String> {
        let mut errors = Errors::default();
        let item = quote! {
            mod squared_by_blocks {
                fn checker() -> Claim { Ok(()) }
                #attribute
                fn plan(plan: &mut Plan, BLOCK: usize, out: &DeviceTensor) -> Result<()> { Ok(()) }
            }
        };
        crate::implementation::read(quote!(of = squared, by = blocks), item, &mut errors);
        errors.messages()
    }

    #[test]
    fn misuse_is_refused() {
        assert_eq!(said(quote!(#[tune(BLOCK in [128, 256])])), [""; 0]);
        for (attribute, message) in [
            (quote!(#[tune]), "write `#[tune(BLOCK in"),
            (quote!(#[tune(BLOCK)]), "write `#[tune(BLOCK in"),
            (quote!(#[tune(BLOCK in [])]), "`BLOCK` has no values"),
            (quote!(#[tune(BLOCK in [128, 0x80])]), "the value 0x80 of `BLOCK` is given twice"),
            (quote!(#[tune(BLOCK in [128, 2.5])]), "the values of `BLOCK` are integers"),
            (quote!(#[tune(BLOCK in [128])] #[tune(BLOCK in [256])]), "`BLOCK` is tuned twice"),
            (quote!(#[tune(ROWS in [1, 2])]), "`plan` does not take `ROWS`"),
        ] {
            let said = said(attribute);
            assert!(said.len() == 1 && said[0].contains(message), "{said:?}, expected {message}");
        }
        let mut errors = Errors::default();
        let item = quote! {
            mod squared_by_blocks {
                #[tune(BLOCK in [1, 2])]
                fn checker(BLOCK: usize) -> Claim { Ok(()) }
                fn plan(plan: &mut Plan, out: &DeviceTensor) -> Result<()> { Ok(()) }
            }
        };
        crate::implementation::read(quote!(of = squared, by = blocks), item, &mut errors);
        assert!(errors.messages()[0].contains("`checker` is not tuned"));
        let mut errors = Errors::default();
        let item = quote! {
            mod squared_by_both {
                fn checker() -> Claim { Ok(()) }
                #[tune(BLOCK in [1, 2])]
                fn cpu(BLOCK: usize, out: &mut TensorMut) -> Result<()> { Ok(()) }
                fn plan(plan: &mut Plan, out: &DeviceTensor) -> Result<()> { Ok(()) }
            }
        };
        crate::implementation::read(quote!(of = squared, by = [host, gpu]), item, &mut errors);
        assert!(errors.messages()[0].starts_with("`plan` does not take `BLOCK`"), "{:?}", errors.messages());
    }
}
