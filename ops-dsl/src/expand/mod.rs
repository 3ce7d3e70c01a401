//! From declarations to Rust: one file for each kind of declaration.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::Path;

use crate::declaration::Rule;
use crate::model::{Param, ParamKind, RuleParam, from_inside};
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

/// The module of an operator or executor as seen from inside a declaration, and what imports it there. One that is
/// named by one word is imported as `alias`: rustc suggests names that are alike for an import, and for no other path.
pub(crate) fn module(path: &Path, alias: &str) -> (Option<TokenStream>, Path) {
    let Some(name) = path.get_ident() else { return (None, from_inside(path)) };
    let here = name.span().resolved_at(Span::call_site());
    let alias = Ident::new(alias, here);
    let import = quote_spanned! {here=>
        #[allow(unused_imports)]
        use super::#name as #alias;
    };
    (Some(import), alias.into())
}

/// Fails the build where a kernel is of a kind that the executor `by` never runs.
pub(crate) fn runs_on<'a>(by: &Path, rules: impl IntoIterator<Item = &'a Rule>) -> TokenStream {
    let kernels = rules.into_iter().filter(|rule| matches!(rule.name, "cpu" | "plan")).map(|rule| {
        let here = rule.function.sig.ident.span().resolved_at(Span::call_site());
        let name = rule.name;
        let (executor, device) = (quote!(#by::EXECUTOR.name), quote!(#by::EXECUTOR.device));
        quote_spanned!(here=> const _: () = ::fulgurite::expansion::runs_on(#name, #executor, #device);)
    });
    quote!(#(#kernels)*)
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

/// A `grad` rule whose pullback borrows nothing from the rule's arguments, since it outlives them:
/// `impl FnOnce(..) + use<>`.
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

/// `name(pass(&*ARGUMENTS.x.read(a)), ...)`: calls a rule with the arguments it takes by name. `special` gives those
/// that are read in another way.
pub(crate) fn call(rule: &Rule, special: impl Fn(&RuleParam) -> Option<TokenStream>) -> TokenStream {
    let name = &rule.function.sig.ident;
    let arguments = rule.params.iter().map(|param| {
        special(param).unwrap_or_else(|| {
            let field = Ident::new(&param.name, param.written.span());
            let here = param.written.span().resolved_at(Span::call_site());
            quote_spanned!(here=> ::fulgurite::rules::pass(&*ARGUMENTS.#field.read(a)))
        })
    });
    quote!(#name(#(#arguments),*))
}

/// An argument whose place and kind are known, where the rule asks for it in the plain form: rustc then looks for no
/// conversion.
pub(crate) fn read(params: &[Param], rule: &Rule, param: &RuleParam) -> Option<TokenStream> {
    let index = params.iter().position(|declared| declared.ident == param.name)?;
    let at = Literal::usize_unsuffixed(index);
    let here = param.written.span().resolved_at(Span::call_site());
    let by_reference = matches!(&param.ty, syn::Type::Reference(_));
    match &params[index].kind {
        ParamKind::Tensor(_) => match rule.name {
            "requires" | "meta" | "flops" | "cpu" | "plan" if by_reference => {
                Some(quote_spanned!(here=> ::fulgurite::expansion::read_tensor(a, #at)))
            }
            "decomposition" | "grad" | "scalar" if !by_reference => {
                Some(quote_spanned!(here=> *::fulgurite::expansion::read_tensor(a, #at)))
            }
            _ => None,
        },
        // The scalar rule is given numbers as expressions.
        ParamKind::Attribute(ty) if rule.name != "scalar" => {
            let read = quote_spanned!(here=> ::fulgurite::expansion::read_attribute::<_, #ty>(a, #at));
            if by_reference {
                return Some(quote_spanned!(here=> &#read));
            }
            (param.ty.to_token_stream().to_string() == ty.to_token_stream().to_string()).then_some(read)
        }
        _ => None,
    }
}

/// The symbol that a record is exported as, so that two of one kind and name do not link:
/// `fulgurite.operator.prims.exp`. A `cdylib` lists its symbols in a script for the linker, which has no place for
/// spaces and colons.
pub(crate) fn guard(kind: &str, name: &str) -> String {
    format!("fulgurite.{kind}.{}", name.replace("::", "."))
}

/// A rule as a function of the runtime's form: `form` is one of those of `__rule!`. `params` are the operator's, if
/// they are known.
pub(crate) fn erased(form: &str, rule: &Rule, params: &[Param]) -> TokenStream {
    let (form, call) = (Ident::new(form, Span::call_site()), call(rule, |param| read(params, rule, param)));
    let a = arguments_of(rule);
    quote!(::fulgurite::__rule!(#form #a => #call))
}

/// What the arguments are called in a rule's call: rules without parameters leave them unread.
fn arguments_of(rule: &Rule) -> Ident {
    Ident::new(if rule.params.is_empty() { "_a" } else { "a" }, Span::call_site())
}

/// A host kernel. The outputs are `out` for one result or a list, `out0`, `out1`, ... for more.
pub(crate) fn cpu(rule: &Rule, params: &[Param], is_list: bool) -> TokenStream {
    let (split, call) = with_outputs(rule, params, is_list, quote!(::fulgurite::expansion::outputs));
    let a = arguments_of(rule);
    quote!(::fulgurite::__rule!(cpu #a outputs => { #split #call }))
}

/// Device work.
pub(crate) fn plan(rule: &Rule, params: &[Param], is_list: bool) -> TokenStream {
    let (split, call) = with_outputs(rule, params, is_list, quote!(::fulgurite::device::plan::outputs));
    let a = arguments_of(rule);
    quote!(::fulgurite::__rule!(plan work #a outputs => { #split #call }))
}

/// The statement that names the outputs, and the call that takes them.
fn with_outputs(
    rule: &Rule,
    params: &[Param],
    is_list: bool,
    outputs: TokenStream,
) -> (Option<TokenStream>, TokenStream) {
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
        _ => read(params, rule, param),
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

/// A name made by the expansion.
pub fn made(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}
