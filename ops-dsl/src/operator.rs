//! `#[operator]`: from tokens to a declaration.

use proc_macro2::TokenStream;
use syn::parse::Parser;

use crate::declaration::{Operator, parts};
use crate::errors::Errors;
use crate::model::{Kind, ParamKind};
use crate::parse::{self, Module};
use crate::rules::OPERATOR_RULES;
use crate::signature;

/// Reads a declaration; `None` if nothing can be made of it.
pub fn read(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Operator> {
    let settings = errors.keep(parse::settings.parse2(attribute)).unwrap_or_default();
    let options = crate::options::operator(settings, errors);
    let module: Module = errors.keep(syn::parse2(item))?;
    let mut docs = parse::documentation(&module.attrs);
    let mut parts = parts(module.entries, &OPERATOR_RULES, errors);
    let rules = std::mem::take(&mut parts.rules);
    let mut signatures = std::mem::take(&mut parts.signatures).into_iter();
    let Some(written) = signatures.next() else {
        errors.at(
            &module.ident,
            format!(
                "the signature is missing: write `fn {}(input: Tensor, ...) -> Tensor;`, without a body",
                module.ident
            ),
        );
        return None;
    };
    for other in signatures {
        errors.at(&other.sig.ident, "an operator has one signature; give this function a body");
    }
    if written.sig.ident != module.ident {
        errors
            .at(&written.sig.ident, format!("the signature is named as its module: write `fn {}(...)`", module.ident));
    }
    if docs.is_empty() {
        docs = parse::documentation(&written.attrs);
    }
    let mut signature = signature::read(&written, errors);
    let taken: Vec<String> = signature.params.iter().map(|param| param.ident.to_string()).collect();
    crate::check::in_place(options.in_place.as_deref(), &taken, "the signature has", errors);
    crate::check::known_operands(&options.accumulates, "accumulate", &taken, "the signature has", errors);
    for param in &mut signature.params {
        let Some(named) = options.accumulates.iter().find(|named| **named == param.ident) else { continue };
        param.accumulates = matches!(param.kind, ParamKind::Operand(_));
        if !param.accumulates {
            errors.at(named, format!("`{named}` takes no number; `accumulates` is for parameters of type `Operand`"));
        }
    }
    crate::check::known_operands(&options.autocast_keeps, "be kept", &taken, "the signature has", errors);
    let short = module.ident.to_string();
    let name = match (&options.name, &options.kind) {
        (Some(name), _) => name.value(),
        (None, Kind::Prim) => format!("{}::{short}", crate::package::namespace().as_deref().unwrap_or("prims")),
        (None, Kind::Symbol(owners)) => {
            let last = owners.first().and_then(|path| path.segments.last());
            format!("{}::{short}", last.map(|s| s.ident.to_string()).unwrap_or_default())
        }
        (None, Kind::Composite) => {
            crate::package::namespace().map_or_else(|| short.clone(), |namespace| format!("{namespace}::{short}"))
        }
    };
    let mut operator = Operator {
        attrs: module.attrs,
        vis: module.vis,
        ident: module.ident,
        name,
        docs,
        options,
        signature,
        rules,
        others: std::mem::take(&mut parts.others),
        codes: Vec::new(),
    };
    crate::check::operator(&mut operator, &parts, errors);
    Some(operator)
}
