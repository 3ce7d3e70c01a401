//! From the tokens of a declaration to those that the compiler gets: read, checked, expanded.

use proc_macro2::TokenStream;

use crate::errors::Errors;
use crate::{expand, family};

/// `#[operator(...)]` on a module of rules.
pub fn operator(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expanded(|errors| crate::operator::read(attribute, item, errors), expand::operator::expand)
}

/// `#[implementation(of = operator, by = executor)]` on a module of rules.
pub fn implementation(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expanded(|errors| crate::implementation::read(attribute, item, errors), expand::implementation::expand)
}

/// `#[executor(device = "cpu", priority = 10)]` on a module.
pub fn executor(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expanded(|errors| crate::executor::read(attribute, item, errors), expand::executor::expand)
}

/// `#[rewrite]` on a module of rules.
pub fn rewrite(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expanded(|errors| crate::rewrite::read(attribute, item, errors), expand::rewrite::expand)
}

/// `operators! { template table(...) { rows } }`: many operators of one kind.
pub fn operators(input: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let declarations = family::read(input, &mut errors);
    let mut tokens = errors.to_compile_errors();
    let mut operators = Vec::new();
    for (attribute, module) in declarations {
        let mut errors = Errors::default();
        let operator = crate::operator::read(attribute, module, &mut errors);
        tokens.extend(errors.to_compile_errors());
        operators.extend(operator.map(|operator| (operator, errors.is_empty())));
    }
    tokens.extend(expand::family::expand(&operators));
    tokens
}

/// `#[derive(Tree)]`.
pub fn tree(input: TokenStream) -> TokenStream {
    expanded(|errors| crate::tree::read(input, errors), |tree, _| expand::tree::expand(tree))
}

/// The messages for a declaration, and what it expands to if anything can be made of it; `expand` is told whether
/// nothing is wrong.
fn expanded<D>(
    read: impl FnOnce(&mut Errors) -> Option<D>,
    expand: impl FnOnce(&D, bool) -> TokenStream,
) -> TokenStream {
    let mut errors = Errors::default();
    let declaration = read(&mut errors);
    let mut tokens = errors.to_compile_errors();
    tokens.extend(declaration.map(|declaration| expand(&declaration, errors.is_empty())));
    tokens
}
