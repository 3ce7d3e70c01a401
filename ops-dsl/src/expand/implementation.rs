//! The expansion of `#[implementation]`.
//!
//! The signature is elsewhere, maybe in another crate: arguments are read at the places that the operator's `ARGUMENTS`
//! has as fields, so that rustc reports names that do not exist.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};

use super::{cpu, erased, function, grad_function, made, module, plan, register, scope};
use crate::declaration::Rule;
use crate::implementation::Implementation;

/// Expands a declaration. `complete` says that nothing is wrong with it.
pub fn expand(implementation: &Implementation, complete: bool) -> TokenStream {
    let Implementation { attrs, vis, ident, others, .. } = implementation;
    let scope = scope();
    let (import_of, of) = module(&implementation.of, "__of");
    let (import_by, by) = module(&implementation.by, "__by");
    let rules = implementation.rules.iter().map(|rule| match rule.name {
        "grad" => grad_function(rule),
        _ => function(&rule.function, TokenStream::new()),
    });
    let grads = implementation.rules.iter().any(|rule| rule.name == "grad").then(|| quote!(, Grads));
    let (mut fields, mut kernel) = (TokenStream::new(), TokenStream::new());
    for rule in implementation.rules.iter().filter(|rule| rule.right) {
        let field = made(rule.name);
        match rule.name {
            "checker" => {
                let value = erased(rule.name, rule, &[]);
                fields.extend(quote!(#field: #value,));
            }
            "execution" | "grad" => {
                let value = erased(if rule.name == "grad" { "grad" } else { "traced" }, rule, &[]);
                fields.extend(quote!(#field: Some(#value),));
            }
            _ => {
                let is_list = rule.params.iter().any(|param| {
                    param.name == "out"
                        && matches!(&param.ty, syn::Type::Reference(to) if matches!(*to.elem, syn::Type::Slice(_)))
                });
                let value = if rule.name == "plan" { plan(rule, &[], is_list) } else { cpu(rule, &[], is_list) };
                kernel.extend(quote!(#field: Some(#value),));
            }
        }
    }
    if implementation.strided {
        kernel.extend(quote!(strided: true,));
    }
    kernel.extend(super::in_place(implementation.in_place.as_deref()));
    if !kernel.is_empty() {
        fields.extend(quote! {
            kernel: ::fulgurite::kernel::KernelRules { #kernel ..::fulgurite::kernel::KernelRules::EMPTY },
        });
    }
    let exhaustive =
        implementation.rules.iter().filter(|rule| matches!(rule.name, "execution" | "grad")).map(exhaustive);
    let register = register(
        quote!(::fulgurite::executor::IMPLEMENTATIONS),
        quote!(::fulgurite::executor::ImplementationDef),
        made("IMPLEMENTATION"),
    );
    let runs_on = super::runs_on(&by, &implementation.rules);
    let lenient = (!complete).then(|| quote!(#[allow(dead_code, unused_imports)]));
    quote! {
        #(#attrs)*
        #lenient
        #vis mod #ident {
            #scope
            #import_of
            #import_by
            #[allow(unused_imports)]
            use #of::{ARGUMENTS, Code, PARAMS #grads};
            #(#rules)*
            #(#others)*
            #(#exhaustive)*
            #runs_on
            /// The record of this implementation.
            #[allow(clippy::needless_update)]
            pub static IMPLEMENTATION: ::fulgurite::executor::ImplementationDef = ::fulgurite::executor::ImplementationDef {
                of: #of::OPERATOR.name,
                by: #by::EXECUTOR.name,
                #fields
                package: env!("CARGO_PKG_NAME"),
                file: file!(),
                line: line!(),
                ..::fulgurite::expansion::IMPLEMENTATION
            };
            #register
        }
    }
}

/// A rule that stands for the operator must take every argument, so that none falls back to a default unseen. The names
/// are known when the constant is evaluated.
fn exhaustive(rule: &Rule) -> TokenStream {
    let here = rule.function.sig.ident.span().resolved_at(Span::call_site());
    let (name, taken) = (rule.name, rule.params.iter().map(|param| &param.name));
    quote_spanned!(here=> const _: () = ::fulgurite::expansion::takes_all(#name, PARAMS, &[#(#taken),*]);)
}
