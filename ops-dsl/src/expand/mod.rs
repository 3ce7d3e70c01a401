//! From declarations to Rust: one file for each kind of declaration.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Path, Type};

use crate::declaration::Rule;
use crate::model::{Param, ParamKind, Results, RuleParam, from_inside};
use crate::parse::Function;
use crate::rules::RuleKind;
use crate::scan;

pub mod executor;
pub mod family;
pub mod implementation;
pub mod operator;
pub mod rewrite;
pub mod tree;

/// The path of the root that expansions find what they need at.
pub(crate) fn root() -> TokenStream {
    root_at(Span::call_site())
}

/// The same, where errors about what it begins point at `here`.
pub(crate) fn root_at(here: Span) -> TokenStream {
    let name = Ident::new(&crate::package::root(), here);
    quote_spanned!(here=> ::#name)
}

/// The names that a module of rules works with. The module's surroundings are in scope as well.
pub(crate) fn scope() -> TokenStream {
    let root = root();
    quote! {
        #[allow(unused_imports)]
        use super::*;
        #[allow(unused_imports)]
        use #root::rules::*;
    }
}

/// The module of an operator or executor as seen from inside a declaration, and what imports it there. One that is
/// named by one word is imported as `alias`: rustc suggests names that are alike for an import, and for no other path.
pub(crate) fn module(path: &Path, alias: &str) -> (Option<TokenStream>, Path) {
    let Some(name) = path.get_ident() else { return (None, from_inside(path)) };
    let here = name.span().resolved_at(Span::call_site());
    let alias = Ident::new(alias, here);
    (Some(quote_spanned!(here=> use super::#name as #alias;)), alias.into())
}

/// The module of one of so many executors as seen from inside a declaration, and what imports it.
pub(crate) fn executor(path: &Path, count: usize) -> (Option<TokenStream>, Path) {
    match path.get_ident() {
        Some(name) if count > 1 => module(path, &format!("__by_{name}")),
        _ => module(path, "__by"),
    }
}

/// Fails the build if none of the `executors` runs on a device that a kernel among the rules is for, and if one of
/// several runs on a device that none of the kernels is for. They must run on different kinds of devices if there is
/// `one_each`, which another message says.
pub(crate) fn runs_on(executors: &[&Path], rules: &[Rule], one_each: bool) -> TokenStream {
    if executors.is_empty() {
        // A prim's or a composite's own kernel is an error of the macro.
        return TokenStream::new();
    }
    let kernels: Vec<&Rule> = rules.iter().filter(|rule| matches!(rule.kind, RuleKind::Cpu | RuleKind::Plan)).collect();
    let run = kernels.iter().map(|rule| {
        let here = rule.function.sig.ident.span().resolved_at(Span::call_site());
        let (name, root) = (rule.kind.name(), root_at(here));
        let check = Ident::new(if one_each && executors.len() > 1 { "one_runs_on" } else { "runs_on" }, here);
        quote_spanned!(here=> const _: () = #root::expansion::#check(#name, &[#(&#executors::EXECUTOR),*]);)
    });
    let opened = kernels.is_empty() || rules.iter().any(|rule| rule.kind == RuleKind::Execution);
    let each = executors.iter().filter(|_| !opened && executors.len() > 1).map(|by| {
        let here = by.segments.last().map_or_else(Span::call_site, |last| last.ident.span());
        let here = here.resolved_at(Span::call_site());
        let (names, root) = (kernels.iter().map(|rule| rule.kind.name()), root_at(here));
        quote_spanned!(here=> const _: () = #root::expansion::has_kernel(&#by::EXECUTOR, &[#(#names),*]);)
    });
    quote!(#(#run)* #(#each)*)
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

/// A rule as it was written.
pub(crate) fn function(function: &Function) -> TokenStream {
    let mut function = function.clone();
    many_arguments(&mut function);
    function.to_token_stream()
}

/// A rule has as many arguments as its signature; that is not the rule's fault.
fn many_arguments(function: &mut Function) {
    if function.sig.inputs.len() > 7 {
        function.attrs.push(syn::parse_quote!(#[allow(clippy::too_many_arguments)]));
    }
}

/// A `grad` rule whose pullback borrows nothing from the rule's arguments, since it outlives them:
/// `impl FnOnce(..) + use<>` where an argument is a reference.
pub(crate) fn grad_function(rule: &Rule) -> TokenStream {
    let mut function = rule.function.clone();
    many_arguments(&mut function);
    let borrows = scan::has_reference(function.sig.inputs.to_token_stream());
    if let syn::ReturnType::Type(_, ty) = &mut function.sig.output {
        let pullback = match &mut **ty {
            syn::Type::Tuple(tuple) => tuple.elems.last_mut(),
            other => Some(other),
        };
        let captures = |bound: &syn::TypeParamBound| matches!(bound, syn::TypeParamBound::PreciseCapture(_));
        if let Some(syn::Type::ImplTrait(pullback)) = pullback
            && borrows
            && !pullback.bounds.iter().any(captures)
        {
            pullback.bounds.push(syn::parse_quote!(use<>));
        }
    }
    function.to_token_stream()
}

/// `name(__f::pass(&*ARGUMENTS.x.read(a)), ...)`: calls a rule with the arguments it takes by name. `special` gives
/// those that are read in another way.
pub(crate) fn call(rule: &Rule, special: impl Fn(&RuleParam) -> Option<TokenStream>) -> TokenStream {
    let name = &rule.function.sig.ident;
    let arguments = rule.params.iter().map(|param| {
        if param.is_all_arguments() {
            let here = param.written.span().resolved_at(Span::call_site());
            return quote_spanned!(here=> __f::Arguments::of(a));
        }
        if param.args.is_some() {
            let here = param.written.span().resolved_at(Span::call_site());
            return quote_spanned!(here=> Args::of(a));
        }
        if let Some(given) = &param.given {
            return given.clone();
        }
        special(param).unwrap_or_else(|| {
            let field = field(param);
            let here = param.written.span().resolved_at(Span::call_site());
            quote_spanned!(here=> __f::pass(&*ARGUMENTS.#field.read(a)))
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
        ParamKind::Tensor(_) => match rule.kind {
            RuleKind::Requires
            | RuleKind::Meta
            | RuleKind::Flops
            | RuleKind::Channels
            | RuleKind::Cpu
            | RuleKind::Plan
                if by_reference =>
            {
                Some(quote_spanned!(here=> __f::read_tensor(a, #at)))
            }
            RuleKind::Decomposition | RuleKind::Grad | RuleKind::Scalar if !by_reference => {
                Some(quote_spanned!(here=> *__f::read_tensor(a, #at)))
            }
            _ => None,
        },
        // The scalar rule is given numbers as expressions.
        ParamKind::Attribute(ty) if rule.kind != RuleKind::Scalar => {
            let read = quote_spanned!(here=> __f::read_attribute::<#ty>(a, #at));
            if by_reference {
                return Some(quote_spanned!(here=> &#read));
            }
            (param.ty.to_token_stream().to_string() == ty.to_token_stream().to_string()).then_some(read)
        }
        _ => None,
    }
}

/// The symbol that a record is exported as, so that two of one kind and name do not link: `fulgurite.executor.liger`.
/// (Of operators the registry says where both are.) A `cdylib` lists its symbols in a script for the linker, which has
/// no place for spaces and colons.
pub(crate) fn guard(kind: &str, name: &str) -> String {
    format!("fulgurite.{kind}.{}", name.replace("::", "."))
}

/// A rule as `__rule!` takes it: `rule |a| call`. `params` are the operator's, if they are known.
pub(crate) fn erased(rule: &Rule, params: &[Param]) -> TokenStream {
    let call = call(rule, |param| read(params, rule, param));
    let (name, a) = (made(rule.kind.name()), arguments_of(rule));
    quote!(#name |#a| #call)
}

/// A rule as a function, where no library macro takes it.
pub(crate) fn as_function(rule: TokenStream) -> TokenStream {
    let root = root();
    quote!(#root::__rule!(#rule))
}

/// What the arguments are called in a rule's call: rules without parameters leave them unread.
fn arguments_of(rule: &Rule) -> Ident {
    Ident::new(if rule.params.iter().all(|param| param.given.is_some()) { "_a" } else { "a" }, Span::call_site())
}

/// The parameters of a kernel that stand for results: of an operator those that it names, of an implementation, whose
/// operator is elsewhere, those that are written.
pub(crate) enum KernelResults<'a> {
    /// As an operator names them.
    Known(&'a Results),
    /// Those of the operator that the implementation is of.
    Elsewhere,
}

impl KernelResults<'_> {
    /// Whether `param` is all results of a list.
    fn is_list(&self, param: &RuleParam) -> bool {
        match self {
            KernelResults::Known(results) => **results == Results::List && param.name == "out",
            KernelResults::Elsewhere => {
                let slice = |ty: &Type| matches!(ty, Type::Reference(to) if matches!(*to.elem, Type::Slice(_)));
                param.name == "out" && slice(&param.ty)
            }
        }
    }

    /// Whether `param` is one result, as far as it can be told.
    fn is_one(&self, param: &RuleParam) -> bool {
        match self {
            KernelResults::Known(results) => results.names().contains(&param.name),
            KernelResults::Elsewhere => {
                matches!(&param.ty, Type::Reference(to) if to.mutability.is_some()) && param.name != "plan"
            }
        }
    }
}

/// The field of `ARGUMENTS` that an argument of a rule is.
fn field(param: &RuleParam) -> Ident {
    let span = param.written.span();
    match param.name.strip_prefix("r#") {
        Some(keyword) => Ident::new_raw(keyword, span),
        None => Ident::new(&param.name, span),
    }
}

/// A host kernel. It takes its results by their names, or as `out` if they are a list.
pub(crate) fn cpu(rule: &Rule, params: &[Param], results: &KernelResults<'_>) -> TokenStream {
    let call = call(rule, |param| match (results.is_list(param), results.is_one(param)) {
        (true, _) => Some(quote!(outputs)),
        (_, true) => {
            let field = field(param);
            let here = param.written.span().resolved_at(Span::call_site());
            Some(quote_spanned!(here=> ARGUMENTS.#field.written(&mut outputs)))
        }
        _ => read(params, rule, param),
    });
    let split = rule
        .params
        .iter()
        .any(|param| results.is_one(param) && !results.is_list(param))
        .then(|| quote!(let mut outputs = __f::outputs::<{ RESULTS.len() }>(outputs)?;));
    let is_read = |param: &RuleParam| param.given.is_none() && !results.is_list(param) && !results.is_one(param);
    let reads = rule.params.iter().any(is_read);
    let a = Ident::new(if reads { "a" } else { "_a" }, Span::call_site());
    quote!(cpu |#a, outputs| { #split #call })
}

/// Device work.
pub(crate) fn plan(rule: &Rule, params: &[Param], results: &KernelResults<'_>) -> TokenStream {
    let call = call(rule, |param| match param.name.as_str() {
        "plan" => Some(quote!(work)),
        _ if results.is_list(param) => Some(quote!(outputs)),
        _ => read(params, rule, param).or_else(|| {
            let field = field(param);
            let here = param.written.span().resolved_at(Span::call_site());
            Some(quote_spanned!(here=> __f::pass(&*ARGUMENTS.#field.planned(&operands))))
        }),
    });
    let list = rule.params.iter().any(|param| results.is_list(param));
    let operands = match list {
        true if rule.args().is_some() => TokenStream::new(),
        true => quote!(let operands = __f::Operands { arguments: a, results: outputs };),
        false => quote!(let operands = __f::Operands::of(a, outputs, RESULTS)?;),
    };
    quote!(plan |work, a, outputs| { #operands #call })
}

/// Registers the static `item` of type `ty` in the slice at `slice`.
pub(crate) fn register(slice: TokenStream, ty: TokenStream, item: Ident) -> TokenStream {
    let root = root();
    quote! {
        #[#root::__private::linkme::distributed_slice(#slice)]
        #[linkme(crate = #root::__private::linkme)]
        static REGISTERED: &'static #ty = &#item;
    }
}

/// A name made by the expansion.
pub fn made(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}
