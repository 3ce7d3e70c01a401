//! The body-less signature of an operator, read: parameters by kind, results by name.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident};
use syn::punctuated::Punctuated;
use syn::{FnArg, PathArguments, ReturnType, Token, Type};

use crate::errors::Errors;
use crate::model::{Class, Param, ParamKind, Results, Signature, generic_argument};
use crate::parse::Function;

/// Reads the body-less signature.
pub fn read(function: &Function, errors: &mut Errors) -> Signature {
    let mut params = Vec::new();
    for input in &function.sig.inputs {
        let FnArg::Typed(typed) = input else {
            errors.at(input, "an operator has no `self`: write `input: Tensor`");
            continue;
        };
        let syn::Pat::Ident(pattern) = &*typed.pat else {
            errors.at(&typed.pat, "a parameter of an operator has a plain name");
            continue;
        };
        let mut default = None;
        for attribute in &typed.attrs {
            if attribute.path().is_ident("default") {
                default = errors.keep(attribute.parse_args::<TokenStream>());
            } else if !attribute.path().is_ident("doc") {
                errors.at(attribute, "a parameter takes `#[default(value)]` and nothing else");
            }
        }
        let kind = param_kind(&typed.ty, errors);
        params.push(Param { ident: pattern.ident.clone(), kind, default, accumulates: false });
    }
    let before = errors.messages().len();
    let results = results(function, &params, errors);
    Signature { params, results, results_named: errors.messages().len() == before }
}

/// Reads what is returned, with the names that `#[results(...)]` gives to several tensors.
fn results(function: &Function, params: &[Param], errors: &mut Errors) -> Results {
    let mut named = None;
    for attribute in &function.attrs {
        if attribute.path().is_ident("results") {
            named = errors.keep(attribute.parse_args_with(Punctuated::<Ident, Token![,]>::parse_terminated));
        }
    }
    let ReturnType::Type(_, ty) = &function.sig.output else {
        errors.at(
            &function.sig.ident,
            "an operator returns tensors: write `-> Tensor`, `-> (Tensor, Tensor)` or `-> Vec<Tensor>`",
        );
        return Results::One;
    };
    let returned = returned(ty, errors);
    match (returned, named) {
        (Returned::Tuple(count), named) => Results::Tuple(names(function, count, named, params, errors)),
        (Returned::One, Some(_)) => {
            errors.at(ty, "one result is called `out`; remove `#[results(...)]`");
            Results::One
        }
        (Returned::List, Some(_)) => {
            errors.at(ty, "the tensors of a list have numbers instead of names; remove `#[results(...)]`");
            Results::List
        }
        (Returned::One, None) => Results::One,
        (Returned::List, None) => Results::List,
    }
}

/// The names of `count` results. Where they are wrong, as many names as there are results.
fn names(
    function: &Function,
    count: usize,
    named: Option<Punctuated<Ident, Token![,]>>,
    params: &[Param],
    errors: &mut Errors,
) -> Vec<Ident> {
    let made = |i: usize| format_ident!("out{i}");
    let Some(named) = named else {
        if !function.attrs.iter().any(|attribute| attribute.path().is_ident("results")) {
            errors.at(
                &function.sig.output,
                "several results have names: write `#[results(first, second)]` above the signature, one for each",
            );
        }
        return (0..count).map(made).collect();
    };
    if named.len() != count {
        let message = format!("`#[results(...)]` gives {} names, the signature returns {count} tensors", named.len());
        errors.at(&named, message);
    }
    let mut names: Vec<Ident> = Vec::new();
    for name in &named {
        let taken = |known: &Ident| known == name;
        let wrong = if names.iter().any(taken) {
            Some(format!("the result `{name}` is named twice"))
        } else if params.iter().any(|param| param.ident == *name) {
            Some(format!("`{name}` is a parameter; give the result another name"))
        } else if let Some(message) = crate::check::raw(name, "the result") {
            Some(message)
        } else if name.to_string().starts_with('_') || name == "plan" {
            Some(format!("`{name}` has another meaning in rules; give the result another name"))
        } else {
            None
        };
        if let Some(message) = wrong {
            errors.at(name, message);
        } else {
            names.push(name.clone());
        }
    }
    names.truncate(count);
    names.extend((names.len()..count).map(made));
    names
}

/// The form of a return type.
enum Returned {
    One,
    Tuple(usize),
    List,
}

fn returned(ty: &Type, errors: &mut Errors) -> Returned {
    let wrong = "expected `Tensor`, a tuple of `Tensor`s, or `Vec<Tensor>`";
    match ty {
        Type::Tuple(tuple) if tuple.elems.len() > 1 => {
            for element in &tuple.elems {
                if tensor_class(element, "Tensor", errors).is_none() {
                    errors.at(element, wrong);
                }
            }
            Returned::Tuple(tuple.elems.len())
        }
        _ if tensor_class(ty, "Tensor", errors).is_some() => Returned::One,
        _ if generic_argument(ty, "Vec").is_some_and(|inner| tensor_class(inner, "Tensor", errors).is_some()) => {
            Returned::List
        }
        _ => {
            errors.at(ty, wrong);
            Returned::One
        }
    }
}

fn param_kind(ty: &Type, errors: &mut Errors) -> ParamKind {
    if let Some(class) = tensor_class(ty, "Tensor", errors) {
        return ParamKind::Tensor(class);
    }
    if let Some(class) = tensor_class(ty, "Operand", errors) {
        return ParamKind::Operand(class);
    }
    if let Some(class) = generic_argument(ty, "Option").and_then(|inner| tensor_class(inner, "Tensor", errors)) {
        return ParamKind::Optional(class);
    }
    if let Some(class) = generic_argument(ty, "Vec").and_then(|inner| tensor_class(inner, "Tensor", errors)) {
        return ParamKind::List(class);
    }
    ParamKind::Attribute(Box::new(ty.clone()))
}

/// The class of `Tensor`, `Tensor<Class>`; `None` if `ty` is something else.
fn tensor_class(ty: &Type, word: &str, errors: &mut Errors) -> Option<Class> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    if last.ident != word {
        return None;
    }
    match &last.arguments {
        PathArguments::None => Some(Class::Any),
        arguments => {
            let inner = generic_argument(ty, word);
            let class = inner.and_then(|inner| {
                let name = inner.to_token_stream().to_string();
                Class::ALL.iter().find(|(known, _)| *known == name).map(|(_, class)| *class)
            });
            if class.is_none() {
                errors.at(
                    &arguments.to_token_stream(),
                    format!(
                        "expected the class of its element types: `{word}<Floating>`, `<Integer>`, `<Boolean>`, \
                             `<Number>`, `<Complex>` or `<Any>`"
                    ),
                );
            }
            Some(class.unwrap_or(Class::Any))
        }
    }
}
