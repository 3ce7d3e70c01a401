//! The macros of Fulgurite: a thin shim over `fulgurite-ops-dsl`, which says what each of them does.

use proc_macro::TokenStream;

/// Declares an operator: a module whose functions are its rules.
#[proc_macro_attribute]
pub fn operator(attribute: TokenStream, item: TokenStream) -> TokenStream {
    fulgurite_ops_dsl::operator(attribute.into(), item.into()).into()
}

/// Declares how an executor runs an operator that it does not own.
#[proc_macro_attribute]
pub fn implementation(attribute: TokenStream, item: TokenStream) -> TokenStream {
    fulgurite_ops_dsl::implementation(attribute.into(), item.into()).into()
}

/// Declares an executor.
#[proc_macro_attribute]
pub fn executor(attribute: TokenStream, item: TokenStream) -> TokenStream {
    fulgurite_ops_dsl::executor(attribute.into(), item.into()).into()
}

/// Lists files that hold one operator each: `operator_files! { exp, rms_norm }`.
#[proc_macro]
pub fn operator_files(input: TokenStream) -> TokenStream {
    fulgurite_ops_dsl::operator_files(input.into()).into()
}

/// Declares two arrangements of operators that mean the same.
#[proc_macro_attribute]
pub fn rewrite(attribute: TokenStream, item: TokenStream) -> TokenStream {
    fulgurite_ops_dsl::rewrite(attribute.into(), item.into()).into()
}

/// Declares a family of operators: a template and a table of what differs.
#[proc_macro]
pub fn operators(input: TokenStream) -> TokenStream {
    fulgurite_ops_dsl::operators(input.into()).into()
}

/// Makes a tree of a struct that is generic over its leaf.
#[proc_macro_derive(Tree, attributes(tree))]
pub fn tree(input: TokenStream) -> TokenStream {
    fulgurite_ops_dsl::tree(input.into()).into()
}
