//! The operator language of Fulgurite as an ordinary library: token streams in, token streams out.
//!
//! `parse` reads syntax and `signature` the signature, `model` and `declaration` are what they say, `check` finds what
//! is wrong and collects it, `expand` writes Rust; `expansion` takes each kind of declaration through these. Whatever
//! is wrong, the whole public surface of a declaration is still emitted, so that one mistake gives one message.

pub mod args;
pub mod check;
pub mod declaration;
pub mod errors;
pub mod executor;
pub mod expand;
pub mod expansion;
pub mod family;
pub mod implementation;
pub mod model;
pub mod operator;
pub mod operator_files;
pub mod options;
pub mod package;
pub mod parse;
pub mod rewrite;
pub mod rules;
pub mod scan;
pub mod signature;
pub mod torch_names;
pub mod tree;
pub mod tune;

pub use expansion::{executor, implementation, operator, operators, rewrite, tree};
pub use operator_files::operator_files;
pub use package::{at_root, in_package};

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
            let name = expansion.split("twice \"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned);
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
