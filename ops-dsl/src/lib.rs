//! The operator language of Fulgurite as an ordinary library: token streams in, token streams out.
//!
//! `parse` reads syntax, `model` is what it says, `check` finds what is wrong and collects it, `expand` writes Rust.
//! Whatever is wrong, the whole public surface of a declaration is still emitted, so that one mistake gives one message.

use std::cell::RefCell;

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

thread_local! {
    static PACKAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The packages whose operators have names without a namespace: the library, and what tests it.
const HOUSE: [&str; 7] = [
    "fulgurite",
    "fulgurite-benches",
    "fulgurite-models",
    "fulgurite-ops",
    "fulgurite-ops-macros",
    "fulgurite-runtime",
    "fulgurite-tests",
];

/// Expands declarations of a package: its operators have the namespace of its crate unless they say their names.
pub fn in_package<R>(package: Option<String>, expand: impl FnOnce() -> R) -> R {
    let before = PACKAGE.replace(package);
    let expansion = expand();
    PACKAGE.replace(before);
    expansion
}

/// The namespace of operators that do not say their names.
pub(crate) fn namespace() -> Option<String> {
    PACKAGE.with_borrow(|package| {
        package.as_deref().filter(|package| !HOUSE.contains(package)).map(|package| package.replace('-', "_"))
    })
}

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

#[cfg(test)]
mod tests {
    use quote::quote;

    #[test]
    fn operators_of_other_crates_have_their_namespace() {
        let named = |package: Option<&str>, settings: proc_macro2::TokenStream| {
            let item = quote! {
                pub mod twice {
                    fn twice(input: Tensor<Floating>) -> Tensor;
                    fn scalar(input: Expr) -> Expr { input + input }
                    fn decomposition(input: Tensor) -> Tensor { input + input }
                    fn samples(s: &mut Samples) { s.elementwise_unary(Domain::ALL); }
                }
            };
            let expansion =
                super::in_package(package.map(str::to_owned), || super::operator(settings, item)).to_string();
            let name = expansion.split("name : \"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned);
            (name.expect("it has a record"), expansion.contains("TwiceMethod"))
        };
        assert_eq!(named(Some("my-operators"), quote!()), ("my_operators::twice".into(), true));
        assert_eq!(named(Some("my-operators"), quote!(name = "twice")), ("twice".into(), true));
        assert_eq!(named(Some("my-operators"), quote!(name = "mine::twice")), ("mine::twice".into(), false));
        assert_eq!(named(Some("my-operators"), quote!(prim)), ("my_operators::twice".into(), false));
        assert_eq!(named(Some("fulgurite-ops"), quote!()), ("twice".into(), true));
        assert_eq!(named(Some("fulgurite-ops"), quote!(prim)), ("prims::twice".into(), false));
        assert_eq!(named(None, quote!()), ("twice".into(), true));
    }
}
