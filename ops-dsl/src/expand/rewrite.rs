//! The expansion of `#[rewrite]`.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote};

use super::operator::{arguments, own_class};
use super::{as_function, erased, function, guard, made, register, root, scope};
use crate::model::from_inside;
use crate::rewrite::Rewrite;
use crate::rules::RuleKind;

/// Expands a declaration. `complete` says that nothing is wrong with it.
pub fn expand(rewrite: &Rewrite, complete: bool) -> TokenStream {
    let Rewrite { attrs, vis, ident, name, docs, default, late, executors, others, .. } = rewrite;
    let (scope, root) = (scope(), root());
    let arguments = arguments(&rewrite.params, &[], own_class);
    let rules = rewrite.rules.iter().map(|rule| function(&rule.function));
    let ranks = (!rewrite.ranks.is_empty()).then(|| {
        let ranks = rewrite.ranks.iter().map(|(place, [least, most])| {
            let [place, least] = [place, least].map(|number| Literal::usize_unsuffixed(*number));
            let most = match *most {
                usize::MAX => quote!(usize::MAX),
                most => Literal::usize_unsuffixed(most).into_token_stream(),
            };
            quote!(#root::expansion::ranks(#place, #least, #most))
        });
        quote!(ranks: &[#(#ranks),*],)
    });
    let fields = rewrite.rules.iter().filter(|rule| rule.right).map(|rule| {
        let field = made(rule.kind.name());
        match rule.kind {
            RuleKind::Condition => {
                let condition = as_function(erased(rule, &[]));
                quote!(#field: Some(#condition),)
            }
            RuleKind::Samples => {
                let samples = rule.function.sig.ident.to_token_stream();
                quote!(#field: Some(#root::__rule!(samples = #samples)),)
            }
            _ => {
                let traced = as_function(erased(rule, &[]));
                quote!(#field: #traced,)
            }
        }
    });
    let default = default.then(|| quote!(default: true,));
    let late = (*late || !executors.is_empty()).then(|| quote!(late: true,));
    let executors = (!executors.is_empty()).then(|| {
        let paths = executors.iter().map(from_inside);
        quote!(executors: &[#(#paths::EXECUTOR.name),*],)
    });
    let claimed = rewrite.claimed.then(|| quote!(claimed: true,));
    let keep_inner = rewrite.keep_inner.then(|| quote!(keep_inner: true,));
    let register = register(quote!(#root::executor::REWRITES), quote!(#root::executor::RewriteDef), made("REWRITE"));
    let guard = guard("rewrite", name);
    let lenient = (!complete).then(|| quote!(#[allow(dead_code, unused_imports)]));
    quote! {
        #(#attrs)*
        #lenient
        #vis mod #ident {
            #scope
            #root::__arguments! { #arguments }
            #(#rules)*
            #(#others)*
            /// The record of this rewrite.
            #[unsafe(export_name = #guard)]
            #[allow(clippy::needless_update)]
            pub static REWRITE: #root::executor::RewriteDef = #root::executor::RewriteDef {
                name: #name,
                docs: #docs,
                params: PARAMS,
                #ranks
                #default
                #late
                #executors
                #claimed
                #keep_inner
                #(#fields)*
                package: env!("CARGO_PKG_NAME"),
                file: file!(),
                line: line!(),
                ..#root::expansion::REWRITE
            };
            #register
        }
    }
}
