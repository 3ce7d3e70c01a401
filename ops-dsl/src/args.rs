//! A rule that takes all arguments as one struct: `args: Args<&TensorMeta>`, or
//! `Args { input, eps, .. }: Args<Tensor>`.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::{GenericArgument, Member, Pat, PathArguments, Type};

use crate::errors;
use crate::parse::Function;
use crate::rules::RuleKind::{self, *};

/// The name of the struct.
const STRUCT: &str = "Args";

/// How rules see tensors.
const FORMS: [(&str, &[RuleKind]); 6] = [
    ("&TensorMeta", &[Requires, Meta, Flops, Channels, Checker]),
    ("Tensor", &[Decomposition, Execution, Grad]),
    ("&ReferenceTensor", &[Reference]),
    ("TensorRef", &[Cpu]),
    ("&DeviceTensor", &[Plan]),
    ("&Strided", &[View, Padded]),
];

/// What a rule reads of its struct of arguments.
#[derive(Debug, Clone)]
pub enum Fields {
    /// These alone.
    Named(Vec<String>),
    /// All of them, or those that another function reads: the struct is passed on, or destructured without `..`.
    All,
}

/// The struct of arguments, where `pattern: ty` is one.
pub fn read(pattern: &Pat, ty: &Type, function: &Function) -> Option<(Ident, Fields)> {
    match pattern {
        Pat::Struct(fields) => {
            let name = fields.path.segments.last().filter(|last| last.ident == STRUCT)?;
            let named = fields.fields.iter().filter_map(|field| match &field.member {
                Member::Named(name) => Some(name.to_string()),
                Member::Unnamed(_) => None,
            });
            let read = if fields.rest.is_some() { Fields::Named(named.collect()) } else { Fields::All };
            Some((name.ident.clone(), read))
        }
        Pat::Ident(name) if name.ident == "args" || named_struct(ty).is_some() => {
            let body = function.body.as_ref().map(Group::stream).unwrap_or_default();
            let mut named = Vec::new();
            let read = if fields_of(body, &name.ident, &mut named) { Fields::Named(named) } else { Fields::All };
            Some((name.ident.clone(), read))
        }
        _ => None,
    }
}

/// The arguments of `Args<...>`, behind references.
fn named_struct(ty: &Type) -> Option<&PathArguments> {
    match ty {
        Type::Reference(reference) => named_struct(&reference.elem),
        Type::Path(path) => path.path.segments.last().filter(|last| last.ident == STRUCT).map(|last| &last.arguments),
        _ => None,
    }
}

/// Whether `args` is read field by field in a body; the fields are added to `named`.
fn fields_of(body: TokenStream, args: &Ident, named: &mut Vec<String>) -> bool {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let is = |at: usize, wanted: char| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == wanted);
    tokens.iter().enumerate().all(|(at, token)| match token {
        TokenTree::Group(group) => fields_of(group.stream(), args, named),
        TokenTree::Ident(ident) if ident == args => match (tokens.get(at + 2), tokens.get(at + 3)) {
            (Some(TokenTree::Ident(_)), Some(TokenTree::Group(call)))
                if is(at + 1, '.') && call.delimiter() == Delimiter::Parenthesis =>
            {
                false
            }
            (Some(TokenTree::Ident(field)), _) if is(at + 1, '.') => {
                named.push(field.to_string());
                true
            }
            // `let Args { input, .. } = args;`
            _ => match at.checked_sub(2).map(|before| &tokens[before]) {
                Some(TokenTree::Group(pattern)) if is(at - 1, '=') => destructured(pattern.stream(), named),
                _ => false,
            },
        },
        _ => true,
    })
}

/// Whether a pattern has `..`; the fields before it are added to `named`.
fn destructured(pattern: TokenStream, named: &mut Vec<String>) -> bool {
    let tokens: Vec<TokenTree> = pattern.into_iter().collect();
    let dot = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == '.');
    for field in tokens.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ',')) {
        match field.first() {
            Some(TokenTree::Ident(name)) => named.push(name.to_string()),
            first if dot(first) => return true,
            _ => {}
        }
    }
    false
}

/// Whether a rule may take the struct, of this type.
pub fn is_right(rule: RuleKind, ty: &Type, written: &Ident, errors: &mut errors::Errors) -> bool {
    if matches!(rule, Samples | Errors) {
        return true;
    }
    let Some((form, _)) = FORMS.iter().find(|(_, rules)| rules.contains(&rule)) else {
        let reason = if rule == Scalar { "numbers become expressions there" } else { "a rewrite has no `Args`" };
        errors.at(written, format!("`{rule}` takes its arguments by name: {reason}"));
        return false;
    };
    let wanted: Type = syn::parse_str(form).unwrap_or_else(|error| unreachable!("`{form}` is a type: {error}"));
    let given = match (ty, named_struct(ty)) {
        (Type::Path(_), Some(PathArguments::AngleBracketed(given))) => given.args.first(),
        _ => None,
    };
    let right = matches!(given, Some(GenericArgument::Type(given)) if last_word(given) == last_word(&wanted));
    if !right {
        let message = format!("`{rule}` sees tensors as `{form}`: write `Args<{form}>`");
        match given {
            Some(given) => errors.at(given, message),
            None => errors.at(ty, message),
        }
    }
    right
}

/// The last word of a path, and whether it is behind a reference.
fn last_word(ty: &Type) -> Option<(bool, &Ident)> {
    match ty {
        Type::Reference(reference) => last_word(&reference.elem).map(|(_, word)| (true, word)),
        Type::Path(path) => path.path.segments.last().map(|last| (false, &last.ident)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::{format_ident, quote};

    fn read_by(body: TokenStream) -> Option<Vec<String>> {
        let mut named = Vec::new();
        fields_of(body, &format_ident!("args"), &mut named).then_some(named)
    }

    #[test]
    fn fields_that_a_body_reads() {
        let named = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(read_by(quote!(f(args.input, g(args.eps)))), named(&["input", "eps"]));
        assert_eq!(read_by(quote!(let Args { input, eps: small, .. } = args; input)), named(&["input", "eps"]));
        assert_eq!(read_by(quote!(args.weights[0] + args.input.size(0))), named(&["weights", "input"]));
    }

    #[test]
    fn all_fields_may_be_read() {
        assert_eq!(read_by(quote!(f(args))), None);
        assert_eq!(read_by(quote!(f(&args, args.input))), None);
        assert_eq!(read_by(quote!(args.call())), None);
        assert_eq!(read_by(quote!(let Args { input, eps: _ } = args; input)), None);
    }
}
