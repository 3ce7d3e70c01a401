//! The operator language of Fulgurite as an ordinary library: token streams in, token streams out.
//!
//! `parse` reads syntax, `model` is what it says, `check` finds what is wrong and collects it, `expand` writes Rust.
//! Whatever is wrong, the whole public surface of a declaration is still emitted, so that one mistake gives one message.

use proc_macro2::TokenStream;

pub mod check;
pub mod errors;
pub mod executor;
pub mod expand;
pub mod family;
pub mod implementation;
pub mod model;
pub mod operator;
pub mod options;
pub mod parse;
pub mod rewrite;
pub mod scan;
pub mod tree;

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

/// The expansion of `operator_files! { exp, rms_norm }`: one file for each operator, named after it, whose operator module
/// and function stand in the module that lists the file. (A file module of the operator's own name would hide the
/// operator's module.)
pub fn operator_files(input: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    use syn::parse::Parser;
    let names = syn::punctuated::Punctuated::<syn::Ident, syn::Token![,]>::parse_terminated.parse2(input);
    let names = match names {
        Ok(names) => names,
        Err(error) => return error.to_compile_error(),
    };
    names
        .iter()
        .map(|name| {
            let path = format!("{name}.rs");
            let module = quote::format_ident!("{name}_file");
            quote::quote! {
                #[path = #path]
                mod #module;
                pub use #module::*;
            }
        })
        .collect()
}

/// `#[rewrite]` on a module of rules.
pub fn rewrite(attribute: TokenStream, item: TokenStream) -> TokenStream {
    rewrite::expansion(attribute, item)
}

/// `operators! { template table(...) { rows } }`: many operators of one kind.
pub fn operators(input: TokenStream) -> TokenStream {
    family::expansion(input)
}

/// `#[derive(Tree)]`.
pub fn tree(input: TokenStream) -> TokenStream {
    tree::expansion(input)
}
