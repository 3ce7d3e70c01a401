//! The expansion of `#[implementation]`.
//!
//! The signature is elsewhere, maybe in another crate: arguments are read at the places that the operator's `ARGUMENTS`
//! has as fields, so that rustc reports names that do not exist.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{LitInt, Path};

use super::{
    KernelResults, as_function, cpu, erased, function, grad_function, guard, made, module, plan, register, root,
    root_at, scope,
};
use crate::declaration::Rule;
use crate::implementation::{By, Implementation, is_whole_kernel};
use crate::rules::RuleKind;
use crate::{scan, tune};

/// Expands a declaration. `complete` says that nothing is wrong with it.
pub fn expand(implementation: &Implementation, complete: bool) -> TokenStream {
    let Implementation { attrs, vis, ident, others, .. } = implementation;
    let scope = scope();
    let (import_of, of) = module(&implementation.of, "__of");
    let executors: Vec<(Option<TokenStream>, Path)> =
        implementation.by.iter().map(|by| super::executor(&by.path, implementation.by.len())).collect();
    let import_by = executors.iter().map(|(import, _)| import);
    let rules = implementation.rules.iter().map(|rule| match rule.kind {
        RuleKind::Grad => grad_function(rule),
        _ => function(&rule.function),
    });
    let grads = implementation.rules.iter().any(|rule| rule.kind == RuleKind::Grad).then(|| quote!(, Grads));
    let args = implementation.rules.iter().any(|rule| rule.args().is_some()).then(|| quote!(, Args));
    // What a kernel is written over, where it takes all arguments as a whole.
    let named = implementation.by.iter().flat_map(|by| by.facts.in_place.iter().flatten());
    let over = named.filter(|_| implementation.rules.iter().any(is_whole_kernel));
    let over = over.map(|name| quote!(const _: () = { let _ = &ARGUMENTS.#name; };));
    let complete_rules = implementation.rules.iter().map(complete_by_name);
    let paths: Vec<&Path> = executors.iter().map(|(_, by)| by).collect();
    let runs_on = super::runs_on(&paths, &implementation.rules, false);
    let records = implementation.by.iter().zip(&executors).map(|(by, (_, path))| record(implementation, &of, by, path));
    let lenient = (!complete).then(|| quote!(#[allow(dead_code, unused_imports)]));
    quote! {
        #(#attrs)*
        #lenient
        #vis mod #ident {
            #scope
            #import_of
            #(#import_by)*
            #[allow(unused_imports)]
            use #of::{ARGUMENTS, Code, PARAMS, RESULTS #grads #args};
            #(#rules)*
            #(#others)*
            #(#complete_rules)*
            #(#over)*
            #runs_on
            #(#records)*
        }
    }
}

/// The record of the implementation by one executor, and its registration; a rule that takes the precision gets that of
/// the executor.
fn record(implementation: &Implementation, of: &Path, own: &By, by: &Path) -> TokenStream {
    let root = root();
    let (mut fields, mut kernel) = (TokenStream::new(), TokenStream::new());
    for rule in implementation.rules.iter().filter(|rule| rule.right) {
        let field = made(rule.kind.name());
        match rule.kind {
            RuleKind::Checker => {
                let value = as_function(erased(rule, &[]));
                fields.extend(quote!(#field: #value,));
            }
            RuleKind::Execution | RuleKind::Grad | RuleKind::Padded => {
                let value = as_function(erased(rule, &[]));
                fields.extend(quote!(#field: Some(#value),));
            }
            _ => kernel.extend(kernel_field(rule)),
        }
    }
    if own.facts.strided {
        kernel.extend(quote!(strided: true,));
    }
    if let Some(packed) = &own.facts.strided_results {
        kernel.extend(quote!(strided_results: Some(#packed),));
    }
    kernel.extend(super::in_place(own.facts.in_place.as_deref()));
    if !kernel.is_empty() {
        fields.extend(quote! {
            kernel: #root::kernel::KernelRules { #kernel ..#root::kernel::KernelRules::EMPTY },
        });
    }
    let takes_precision = implementation
        .rules
        .iter()
        .flat_map(|rule| &rule.params)
        .any(|param| param.name == "precision" && param.given.is_some());
    let precision =
        takes_precision.then(|| quote!(const PRECISION: #root::precision::Precision = #by::EXECUTOR.precision;));
    let register = register(
        quote!(#root::executor::IMPLEMENTATIONS),
        quote!(#root::executor::ImplementationDef),
        made("IMPLEMENTATION"),
    );
    let tuned = tune::choices(&implementation.tuned);
    let tuned = tuned.iter().skip(1).map(|choice| tuned_record(implementation, own, by, choice));
    let record = quote! {
        #precision
        /// The record of this implementation.
        #[allow(clippy::needless_update)]
        pub static IMPLEMENTATION: #root::executor::ImplementationDef = #root::executor::ImplementationDef {
            of: #of::OPERATOR.name,
            by: #by::EXECUTOR.name,
            #fields
            package: env!("CARGO_PKG_NAME"),
            file: file!(),
            line: line!(),
            ..#root::expansion::IMPLEMENTATION
        };
        #register
        #(#tuned)*
    };
    // Several records of one name, each in a scope of its own.
    match &implementation.by[..] {
        [_] => record,
        _ => quote!(const _: () = { #record };),
    }
}

/// The field of a kernel.
fn kernel_field(rule: &Rule) -> TokenStream {
    let kernel_of = if rule.kind == RuleKind::Plan { plan } else { cpu };
    let (field, value) = (made(rule.kind.name()), as_function(kernel_of(rule, &[], &KernelResults::Elsewhere)));
    quote!(#field: Some(#value),)
}

/// The record of the implementation with other values of its tuned parameters, by an executor of its own, which must be
/// named: so it is a candidate where choices are measured. Gradients are those of the first record.
fn tuned_record(implementation: &Implementation, own: &By, by: &Path, choice: &[(&Ident, &LitInt)]) -> TokenStream {
    let root = root();
    let mut name = implementation.ident.to_string();
    if let ([_, _, ..], Some(executor)) = (&implementation.by[..], own.path.segments.last()) {
        name += &format!("_{}", executor.ident);
    }
    choice.iter().for_each(|(param, value)| name += &format!("_{param}_{}", value.base10_digits()));
    let values: Vec<String> = choice.iter().map(|(param, value)| format!("{param} = {value}")).collect();
    let docs = format!("The kernel of `{}` with {}.", implementation.ident, values.join(", "));
    let (mut kernels, mut fields) = (TokenStream::new(), TokenStream::new());
    for rule in implementation.rules.iter().filter(|rule| rule.right) {
        let takes_value = rule.params.iter().any(|param| choice.iter().any(|(name, _)| param.written == **name));
        let mut params = rule.params.clone();
        for param in &mut params {
            let value = choice.iter().find(|(name, _)| param.written == **name).map(|(_, value)| quote!(#value));
            param.given = value.or(param.given.take());
        }
        let (rule, field) = (Rule { params, ..rule.clone() }, made(rule.kind.name()));
        match rule.kind {
            RuleKind::Cpu | RuleKind::Plan => kernels.extend(kernel_field(&rule)),
            // What they say depends on the value as well.
            RuleKind::Checker if takes_value => {
                let value = as_function(erased(&rule, &[]));
                fields.extend(quote!(#field: #value,));
            }
            RuleKind::Padded if takes_value => {
                let value = as_function(erased(&rule, &[]));
                fields.extend(quote!(#field: Some(#value),));
            }
            _ => {}
        }
    }
    let guard = guard("executor", &name);
    let [executor, implementations] =
        [("EXECUTORS", "ExecutorDef", "EXECUTOR"), ("IMPLEMENTATIONS", "ImplementationDef", "TUNED")].map(
            |(slice, ty, item)| {
                let (slice, ty) = (made(slice), made(ty));
                register(quote!(#root::executor::#slice), quote!(#root::executor::#ty), made(item))
            },
        );
    quote! {
        const _: () = {
            #[unsafe(export_name = #guard)]
            static EXECUTOR: #root::executor::ExecutorDef =
                #root::expansion::tuned_executor(#name, #docs, env!("CARGO_PKG_NAME"), &#by::EXECUTOR);
            static TUNED: #root::executor::ImplementationDef = #root::executor::ImplementationDef {
                by: EXECUTOR.name,
                kernel: #root::kernel::KernelRules { #kernels ..IMPLEMENTATION.kernel },
                #fields
                grad: None,
                ..IMPLEMENTATION
            };
            const _: () = { #executor };
            #implementations
        };
    }
}

/// A rule that stands for the operator takes every argument, so that none falls back to a default unseen, and each in
/// one form; a kernel writes every result; and cotangents are called after results. The names are known when the
/// constants are evaluated.
fn complete_by_name(rule: &Rule) -> TokenStream {
    let here = rule.function.sig.ident.span().resolved_at(Span::call_site());
    let (name, taken) = (rule.kind.name(), rule.params.iter().map(|param| &param.name));
    let beside =
        rule.params.iter().filter(|param| rule.args().is_some() && param.args.is_none() && param.given.is_none());
    let in_one_form = beside.map(|param| {
        let (here, param) = (param.written.span().resolved_at(Span::call_site()), &param.name);
        let root = root_at(here);
        quote_spanned!(here=> const _: () = #root::expansion::in_one_form(#name, PARAMS, #param);)
    });
    let in_one_form = quote!(#(#in_one_form)*);
    match rule.kind {
        RuleKind::Execution | RuleKind::Grad => {
            let takes_all = rule.taken().map(|taken| {
                let here = taken.at.span().resolved_at(Span::call_site());
                let (names, [before, behind]) = (taken.names, taken.unused);
                let (unused, root) = (quote!([#before, #behind]), root_at(here));
                quote_spanned!(here=>
                    const _: () = #root::expansion::takes_all(#name, PARAMS, &[#(#names),*], #unused);
                )
            });
            let bodies = rule.function.body.iter().filter(|_| rule.kind == RuleKind::Grad);
            let pullbacks = bodies.flat_map(|body| scan::pullbacks(body.stream()));
            let cotangents = pullbacks.filter(|pullback| pullback.cotangents.len() > 1).map(|pullback| {
                let (names, root) = (pullback.cotangents.iter().map(Ident::to_string), root_at(here));
                quote_spanned!(here=> const _: () = #root::expansion::cotangents(RESULTS, &[#(#names),*]);)
            });
            quote!(#in_one_form #takes_all #(#cotangents)*)
        }
        RuleKind::Cpu | RuleKind::Plan => {
            let root = root_at(here);
            let writes_all = quote_spanned!(here=>
                const _: () = #root::expansion::writes_all(#name, RESULTS, &[#(#taken),*]);
            );
            quote!(#in_one_form #writes_all)
        }
        _ => in_one_form,
    }
}
