//! The operator language of Fulgurite as an ordinary library: token streams in, token streams out.
//!
//! `parse` reads syntax, `model` is what it says, `check` finds what is wrong and collects it, `expand` writes Rust.
//! Whatever is wrong, the whole public surface of a declaration is still emitted, so that one mistake gives one message.

use proc_macro2::TokenStream;

pub mod check;
pub mod errors;
pub mod executor;
pub mod expand;
pub mod implementation;
pub mod model;
pub mod operator;
pub mod options;
pub mod parse;
pub mod scan;

/// `#[operator(...)]` on a module of rules.
pub fn operator(attribute: TokenStream, item: TokenStream) -> TokenStream {
    operator::expansion(attribute, item)
}

/// `#[implementation(of = operator, by = executor)]` on a module of rules.
pub fn implementation(attribute: TokenStream, item: TokenStream) -> TokenStream {
    implementation::expansion(attribute, item)
}

/// `#[executor(device = "cpu", priority = 10)]` on a module.
pub fn executor(attribute: TokenStream, item: TokenStream) -> TokenStream {
    executor::expansion(attribute, item)
}
