//! What must not compile, and what to write instead.

use proc_macro2::TokenStream;
use quote::ToTokens;

use crate::errors::Errors;
use crate::operator::Operator;
use crate::parse::Function;
use crate::scan;

/// Checks an operator; rules that cannot be called are marked as not right.
pub fn operator(operator: &mut Operator, helpers: &[Function], _errors: &mut Errors) {
    let mut bodies = TokenStream::new();
    for function in operator.rules.iter().map(|rule| &rule.function).chain(helpers) {
        function.body.to_tokens(&mut bodies);
    }
    operator.codes = scan::required_codes(bodies);
}

/// Checks an implementation.
pub fn implementation(
    _ident: &proc_macro2::Ident,
    _parts: &crate::operator::Parts,
    _complete: bool,
    _errors: &mut Errors,
) {
}

/// Checks an executor.
pub fn executor(_ident: &proc_macro2::Ident, _parts: &crate::operator::Parts, _errors: &mut Errors) {}
