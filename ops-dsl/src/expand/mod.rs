//! From declarations to Rust: one file for each kind of declaration.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};

use crate::model::RuleParam;
use crate::operator::Rule;
use crate::parse::Function;

pub mod executor;
pub mod implementation;
pub mod operator;
pub mod rewrite;
pub mod tree;

/// The names that a module of rules works with. The module's surroundings are in scope as well.
pub(crate) fn scope() -> TokenStream {
    quote! {
        #[allow(unused_imports)]
        use super::*;
        #[allow(unused_imports)]
        use ::fulgurite::rules::*;
    }
}

/// The fields that say whether a kernel may write a result over an operand.
pub(crate) fn in_place(named: Option<&[Ident]>) -> TokenStream {
    let Some(named) = named else { return TokenStream::new() };
    let over = (!named.is_empty()).then(|| {
        let names = named.iter().map(Ident::to_string);
        quote!(in_place_over: &[#(#names),*],)
    });
    quote!(in_place: true, #over)
}

/// A rule as it was written; rules that nobody calls (because something is wrong) are no dead code.
pub(crate) fn function(function: &Function, prelude: TokenStream) -> TokenStream {
    let mut function = function.clone();
    many_arguments(&mut function);
    // Read by the expansion, unknown to rustc.
    function.attrs.retain(|attribute| !attribute.path().is_ident("cuda"));
    if let (false, Some(body)) = (prelude.is_empty(), &mut function.body) {
        let inner = body.stream();
        let mut with_prelude = proc_macro2::Group::new(body.delimiter(), quote!(#prelude #inner));
        with_prelude.set_span(body.span());
        *body = with_prelude;
    }
    function.to_token_stream()
}

/// A rule has as many arguments as its signature; that is not the rule's fault.
fn many_arguments(function: &mut Function) {
    if function.sig.inputs.len() > 7 {
        function.attrs.push(syn::parse_quote!(#[allow(clippy::too_many_arguments)]));
    }
}

/// A `grad` rule whose pullback borrows nothing from the rule's arguments, since it outlives them: `impl FnOnce(..) + use<>`.
pub(crate) fn grad_function(rule: &Rule) -> TokenStream {
    let mut function = rule.function.clone();
    many_arguments(&mut function);
    if let syn::ReturnType::Type(_, ty) = &mut function.sig.output {
        let pullback = match &mut **ty {
            syn::Type::Tuple(tuple) => tuple.elems.last_mut(),
            other => Some(other),
        };
        let captures = |bound: &syn::TypeParamBound| matches!(bound, syn::TypeParamBound::PreciseCapture(_));
        if let Some(syn::Type::ImplTrait(pullback)) = pullback
            && !pullback.bounds.iter().any(captures)
        {
            pullback.bounds.push(syn::parse_quote!(use<>));
        }
    }
    function.to_token_stream()
}

/// `name(pass(&a.x), ...)`: calls a rule with the arguments it takes by name. `special` gives those that are no arguments.
pub(crate) fn call(rule: &Rule, special: impl Fn(&RuleParam) -> Option<TokenStream>) -> TokenStream {
    let name = &rule.function.sig.ident;
    let arguments = rule.params.iter().map(|param| {
        special(param).unwrap_or_else(|| {
            let field = Ident::new(&param.name, param.written.span());
            let here = param.written.span().resolved_at(Span::call_site());
            quote_spanned!(here=> ::fulgurite::rules::pass(&a.#field))
        })
    });
    quote!(#name(#(#arguments),*))
}

/// Some traced rule: `|a| { ... }`.
pub(crate) fn traced(rule: &Rule) -> TokenStream {
    let call = call(rule, |_| None);
    quote!(|a| {
        let a = Args::<::fulgurite::Tensor>::read(a);
        ::fulgurite::rules::IntoResults::into_results(#call)
    })
}

/// A `grad` rule: `|a| { ... }`.
pub(crate) fn grad(rule: &Rule) -> TokenStream {
    let call = call(rule, |_| None);
    quote!(|a| {
        let a = Args::<::fulgurite::Tensor>::read(a);
        ::fulgurite::rules::erase_grad(#call, Grads::into_arguments)
    })
}

/// A host kernel: `|a, outputs| { ... }`. The outputs are `out` for one result or a list, `out0`, `out1`, ... for more.
pub(crate) fn cpu(rule: &Rule, is_list: bool) -> TokenStream {
    let (split, call) = with_outputs(rule, is_list, quote!(::fulgurite::expansion::outputs));
    quote!(|a, outputs| {
        let a = Args::<::fulgurite::rules::TensorRef<'_>>::read(a);
        #split
        #call
    })
}

/// Device work: `|plan, a, outputs| { ... }`. A source named by `#[cuda("file.cu")]` is the plan's from the start.
pub(crate) fn plan(rule: &Rule, is_list: bool) -> TokenStream {
    let (split, call) = with_outputs(rule, is_list, quote!(::fulgurite::device::plan::outputs));
    let sources =
        rule.function.attrs.iter().filter(|attribute| attribute.path().is_ident("cuda")).map(
            |attribute| match attribute.parse_args::<syn::LitStr>() {
                Ok(file) => quote!(work.source(#file, include_str!(#file));),
                Err(error) => error.to_compile_error(),
            },
        );
    quote!(|work, a, outputs| {
        let a = Args::<::fulgurite::device::DeviceTensor>::read(a);
        #(#sources)*
        #split
        #call
    })
}

/// The statement that names the outputs, and the call that takes them.
fn with_outputs(rule: &Rule, is_list: bool, outputs: TokenStream) -> (Option<TokenStream>, TokenStream) {
    let number = |param: &RuleParam| param.name.strip_prefix("out").and_then(|n| n.parse::<usize>().ok());
    let count = rule.params.iter().filter_map(number).max().map_or(1, |last| last + 1);
    let call = call(rule, |param| match (param.name.as_str(), number(param)) {
        ("plan", _) if rule.name == "plan" => Some(quote!(work)),
        ("out", _) if is_list => Some(quote!(outputs)),
        ("out", _) => Some(quote!(out0)),
        (_, Some(n)) => {
            let name = Ident::new(&format!("out{n}"), Span::call_site());
            Some(quote!(#name))
        }
        _ => None,
    });
    let split = (!is_list).then(|| {
        let taken =
            |n: usize| rule.params.iter().any(|param| number(param) == Some(n) || (param.name == "out" && count == 1));
        let names = (0..count).map(|n| match taken(n) {
            true => Ident::new(&format!("out{n}"), Span::call_site()),
            false => Ident::new("_", Span::call_site()),
        });
        quote!(let [#(#names),*] = #outputs(outputs)?;)
    });
    (split, call)
}

/// Registers the static `item` of type `ty` in the slice at `slice`.
pub(crate) fn register(slice: TokenStream, ty: TokenStream, item: Ident) -> TokenStream {
    quote! {
        #[::fulgurite::__private::linkme::distributed_slice(#slice)]
        #[linkme(crate = ::fulgurite::__private::linkme)]
        static REGISTERED: &'static #ty = &#item;
    }
}
