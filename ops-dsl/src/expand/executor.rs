//! The expansion of `#[executor]`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::ItemStatic;

use super::{function, guard, made, register, root, scope};
use crate::executor::Executor;
use crate::options;

/// Expands a declaration. `complete` says that nothing is wrong with it.
pub fn expand(executor: &Executor, complete: bool) -> TokenStream {
    let Executor { attrs, vis, ident, docs, device, priority, strided, strided_results, precision, others, .. } =
        executor;
    let further = executor.precisions.iter().map(|(name, precision)| further(executor, name, precision));
    let (scope, root) = (scope(), root());
    let name = ident.to_string();
    let priority = priority.as_ref().map(|priority| quote!(priority: Some(#priority),));
    let precision = precision.as_ref().map(|own| quote!(precision: #root::precision::Precision::#own,));
    let strided = strided.then(|| quote!(strided: true,));
    let strided_results = strided_results.as_ref().map(|packed| quote!(strided_results: Some(#packed),));
    let rules = executor.rules.iter().map(|rule| function(&rule.function));
    let fields = executor.rules.iter().map(|rule| {
        let (field, function) = (made(rule.kind.name()), &rule.function.sig.ident);
        quote!(#field: Some(&#function),)
    });
    let version = match &executor.version {
        Some(version) => quote!(#version),
        None => quote!(env!("CARGO_PKG_VERSION")),
    };
    let names = executor.options.iter().map(|option| &option.item.ident);
    let listed = (!executor.options.is_empty()).then(|| quote!(options: &[#(&#names),*],));
    let declared = executor.options.iter().map(|option| {
        let (option_name, option_docs) = (&option.name, &option.docs);
        let ItemStatic { attrs, vis, ident, ty, expr, .. } = &option.item;
        quote! {
            #(#attrs)*
            #vis static #ident: #root::executor::ExecutorOption<#ty> = #root::executor::ExecutorOption {
                executor: #name,
                name: #option_name,
                docs: #option_docs,
                default: #expr,
            };
        }
    });
    let register = register(quote!(#root::executor::EXECUTORS), quote!(#root::executor::ExecutorDef), made("EXECUTOR"));
    let guard = guard("executor", &name);
    let lenient = (!complete).then(|| quote!(#[allow(dead_code, unused_imports)]));
    quote! {
        #(#attrs)*
        #lenient
        #vis mod #ident {
            #scope
            #(#rules)*
            #(#others)*
            #(#declared)*
            /// The record of this executor.
            #[unsafe(export_name = #guard)]
            #[allow(clippy::needless_update)]
            pub static EXECUTOR: #root::executor::ExecutorDef = #root::executor::ExecutorDef {
                name: #name,
                docs: #docs,
                version: #version,
                #listed
                device: #device,
                #priority
                #strided
                #strided_results
                #precision
                #(#fields)*
                package: env!("CARGO_PKG_NAME"),
                ..#root::expansion::EXECUTOR
            };
            #register
        }
        #(#further)*
    }
}

/// The executor in a further precision: the same record under another name, which must be named.
fn further(executor: &Executor, own: &Ident, precision: &Ident) -> TokenStream {
    let Executor { vis, ident, .. } = executor;
    let (root, name) = (root(), own.to_string());
    let docs = format!("As `{ident}`, with {}.", options::meaning(precision));
    let comment = format!(" {docs}");
    let register = register(quote!(#root::executor::EXECUTORS), quote!(#root::executor::ExecutorDef), made("EXECUTOR"));
    let guard = guard("executor", &name);
    quote! {
        #[doc = #comment]
        #vis mod #own {
            /// The record of this executor.
            #[unsafe(export_name = #guard)]
            pub static EXECUTOR: #root::executor::ExecutorDef = #root::executor::ExecutorDef {
                name: #name,
                docs: #docs,
                priority: None,
                precision: #root::precision::Precision::#precision,
                ..super::#ident::EXECUTOR
            };
            #register
        }
    }
}
