//! The expansion of `#[operator]`.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};

use super::{KernelResults, cpu, erased, function, grad_function, made, plan, root, root_at, runs_on};
use crate::declaration::Operator;
use crate::model::{Class, Directive, DirectiveKind, Kind, Param, ParamKind, Results, generic_argument, is_word};
use crate::options::DTYPES;
use crate::rules::RuleKind;

/// Expands a declaration. `complete` says that nothing is wrong with it.
pub fn expand(operator: &Operator, complete: bool) -> TokenStream {
    let (module, exported) = (module(operator, &call(operator), complete), exported(operator));
    let vis = &operator.vis;
    quote! {
        #module
        #[doc(inline)]
        #[allow(unused_imports)]
        #vis use #exported;
    }
}

/// What the surroundings of the module have of it: the function, and the method.
pub(super) fn exported(operator: &Operator) -> TokenStream {
    let ident = &operator.ident;
    match has_method(operator) {
        true => {
            let method = method_name(ident);
            quote!(#ident::{#ident, #method})
        }
        false => quote!(#ident::#ident),
    }
}

/// The module of an operator, with the call of the library's macro that makes what the author did not write.
pub(super) fn module(operator: &Operator, library: &TokenStream, complete: bool) -> TokenStream {
    let Operator { attrs, vis, ident, others, .. } = operator;
    let rules = operator.rules.iter().map(|rule| match rule.kind {
        RuleKind::Grad => grad_function(rule),
        _ => function(&rule.function),
    });
    let owners = owners(operator);
    let paths: Vec<&syn::Path> = owners.iter().map(|(_, by)| by).collect();
    let runs_on = runs_on(&paths, &operator.rules, true);
    let one_each = one_a_device(&paths);
    let import_by = owners.iter().map(|(import, _)| import);
    // What is wrong is said by the errors; rules that are left aside because of them are no dead code.
    let lenient = (!complete).then(|| quote!(#[allow(dead_code, unused_imports)]));
    quote! {
        #(#attrs)*
        #lenient
        #vis mod #ident {
            #library
            #(#import_by)*
            #(#rules)*
            #(#others)*
            #runs_on
            #one_each
        }
    }
}

/// The executors that a symbol belongs to: what imports each, and its module.
fn owners(operator: &Operator) -> Vec<(Option<TokenStream>, syn::Path)> {
    match &operator.options.kind {
        Kind::Symbol(paths) => paths.iter().map(|path| super::executor(path, paths.len())).collect(),
        _ => Vec::new(),
    }
}

/// Fails the build if two of a symbol's executors run on one kind of device.
fn one_a_device(owners: &[&syn::Path]) -> Option<TokenStream> {
    let last = owners.last().filter(|_| owners.len() > 1)?;
    let here = last.segments.last()?.ident.span().resolved_at(proc_macro2::Span::call_site());
    let root = root_at(here);
    Some(quote_spanned!(here=> const _: () = #root::expansion::one_a_device(&[#(&#owners::EXECUTOR),*]);))
}

/// What `__operator!` is told of an operator beside its [`signature`].
pub(super) struct Library {
    /// Names, documentation and settings.
    pub own: TokenStream,
    /// The sets of rules and facts.
    pub sets: Vec<TokenStream>,
}

impl Library {
    /// What it is told of this operator.
    pub fn of(operator: &Operator) -> Library {
        let Operator { ident, name, docs, .. } = operator;
        let record = record(operator);
        let method = has_method(operator).then(|| {
            let method = method_name(ident);
            quote!(method #method;)
        });
        let own = quote!(#ident #name, #docs; #method record { #record });
        Library { own, sets: rule_sets(operator) }
    }
}

/// The call of the library's macro for an operator that shares nothing with others.
pub(super) fn call(operator: &Operator) -> TokenStream {
    let (signature, Library { own, sets }) = (signature(operator, own_class), Library::of(operator));
    let root = root();
    quote!(#root::__operator! { #signature #own #(#sets)* })
}

/// Kind, results and arguments. `class` gives what is written for the class of the parameter at a place.
pub(super) fn signature(operator: &Operator, class: impl Fn(usize, Class) -> TokenStream) -> TokenStream {
    let Operator { options, signature, codes, .. } = operator;
    let kind = match &options.kind {
        Kind::Prim => quote!(Prim),
        Kind::Symbol(_) => {
            let owners = owners(operator).into_iter().map(|(_, by)| by);
            quote!(Symbol(&[#(#owners::EXECUTOR.name),*]))
        }
        Kind::Composite => quote!(Composite),
    };
    let results = results_type(&signature.results);
    let arguments = arguments(&signature.params, &signature.results.names(), class);
    // A struct that is generic over tensors has one.
    let tensors = signature.params.iter().any(|param| param.kind.class().is_some());
    let seen = tensors.then(|| quote!(seen as T;));
    let gradients = gradients(&signature.params);
    quote!(__f::OperatorKind::#kind => #results; #arguments #seen #gradients codes { #(#codes)* })
}

/// The class of a parameter as the library names it.
pub(crate) fn own_class(_place: usize, class: Class) -> TokenStream {
    made(class.name()).into_token_stream()
}

/// How a parameter is given by a caller: its type, and, where it does not follow from the kind, the value made of it.
/// `Tensor` has the place of a tensor.
fn given(param: &Param) -> (TokenStream, Option<TokenStream>) {
    let name = &param.ident;
    match &param.kind {
        ParamKind::Tensor(_) => (quote!(Tensor), None),
        ParamKind::Optional(_) => (quote!(impl Into<Option<Tensor>>), None),
        ParamKind::List(_) => (quote!(impl AsRef<[Tensor]>), None),
        ParamKind::Operand(_) => (quote!(impl Into<Operand<Tensor>>), None),
        ParamKind::Attribute(ty) => match generic_argument(ty, "Vec") {
            Some(element) => (quote!(impl AsRef<[#element]>), Some(quote!(#name.as_ref().to_vec()))),
            None if optional_list(ty).is_some() => {
                let element = optional_list(ty);
                let root = root();
                let given = quote!(impl #root::argument::IntoOptionalList<#element>);
                (given, Some(quote!(#name.into_optional_list())))
            }
            None if generic_argument(ty, "Option").is_some() || is_word(ty, "String") || is_word(ty, "Scalar") => {
                (quote!(impl Into<#ty>), Some(quote!(#name.into())))
            }
            None => (ty.to_token_stream(), None),
        },
    }
}

/// `T` of `Option<Vec<T>>`.
fn optional_list(ty: &syn::Type) -> Option<&syn::Type> {
    generic_argument(generic_argument(ty, "Option")?, "Vec")
}

/// A default as the record keeps it.
fn default(param: &Param) -> Option<TokenStream> {
    let value = param.default.as_ref()?;
    Some(match &param.kind {
        ParamKind::Attribute(ty) if is_word(ty, "String") || is_word(ty, "Scalar") => {
            quote!(__f::default_attribute(<#ty>::from(#value)))
        }
        ParamKind::Attribute(ty) => quote!(__f::default_attribute::<#ty>(#value)),
        ParamKind::Operand(_) => quote!(__f::default_operand(#value)),
        _ => quote!(__f::Attribute::None),
    })
}

/// The groups of `__arguments!`: arguments that must be given, those with defaults, results. `class` gives what is
/// written for the class of the parameter at a place.
pub(crate) fn arguments(
    params: &[Param],
    results: &[String],
    written: impl Fn(usize, Class) -> TokenStream,
) -> TokenStream {
    let (mut required, mut defaulted) = (TokenStream::new(), TokenStream::new());
    for (place, param) in params.iter().enumerate() {
        let index = Literal::usize_unsuffixed(place);
        let kind = made(if param.accumulates { "factor" } else { param.kind.word() });
        let name = &param.ident;
        let (given, value) = given(param);
        let value = value.map(|value| quote!(=> #value));
        let (class, ty) = match &param.kind {
            ParamKind::Attribute(ty) => (None, Some(quote!(as #ty #value))),
            kind => {
                let class = written(place, kind.class().unwrap_or(Class::Any));
                (Some(quote!((#class))), None)
            }
        };
        match (default(param), &param.default) {
            (Some(default), Some(text)) => {
                let text = text.to_string();
                defaulted.extend(quote!(#index #kind #class #name: #given #ty, #text, #default;));
            }
            _ => required.extend(quote!(#index #kind #class #name: #given #ty;)),
        }
    }
    // A parameter that is called as a result is reported; there is one field for both.
    let free = |name: &&String| !params.iter().any(|param| param.ident == **name);
    let results = results.iter().filter(free).enumerate().map(|(index, name)| {
        let (index, name) = (Literal::usize_unsuffixed(index), made(name));
        quote!(#index #name)
    });
    quote!(required { #required } defaulted { #defaulted } results { #(#results)* })
}

fn results_type(results: &Results) -> TokenStream {
    let root = root();
    let tensor = quote!(#root::Tensor);
    match results {
        Results::One => tensor,
        Results::Tuple(names) => {
            let tensors = names.iter().map(|_| &tensor);
            quote!((#(#tensors),*))
        }
        Results::List => quote!(Vec<#tensor>),
    }
}

fn method_name(ident: &Ident) -> Ident {
    format_ident!("{}Method", crate::model::camel_case(ident.to_string().trim_start_matches("r#")))
}

fn has_method(operator: &Operator) -> bool {
    let first = operator.signature.params.first();
    let on_tensor = first.is_some_and(|param| param.ident == "input" && matches!(param.kind, ParamKind::Tensor(_)));
    // A prim, or an operator that says a prefixed name, comes below an operator of the same name, which has the
    // method.
    let below = match &operator.options.name {
        Some(name) => name.value().contains("::"),
        None => matches!(operator.options.kind, Kind::Prim),
    };
    on_tensor && !matches!(operator.options.kind, Kind::Symbol(_)) && !below
}

/// The group that makes `Grads`, if anything has a gradient.
fn gradients(params: &[Param]) -> Option<TokenStream> {
    let differentiable = params.iter().enumerate().filter(|(_, param)| param.kind.differentiable());
    let fields: Vec<TokenStream> = differentiable
        .map(|(i, param)| {
            let (index, name) = (Literal::usize_unsuffixed(i), &param.ident);
            match param.kind {
                ParamKind::Tensor(_) => quote!(#index tensor #name),
                ParamKind::List(_) => quote!(#index list #name),
                _ => quote!(#index optional #name),
            }
        })
        .collect();
    (!fields.is_empty()).then(|| quote!(gradients { #(#fields)* }))
}

fn directive(directive: &Directive) -> TokenStream {
    let Directive { kind, templates, executor, precision, dtype, sample, reason } = directive;
    let kind = match kind {
        DirectiveKind::Skip => quote!(Skip),
        DirectiveKind::ExpectedFailure => quote!(ExpectedFailure),
        DirectiveKind::Tolerance(by) => {
            let [factor, scaled] = &**by;
            let factor = factor.as_ref().map_or_else(|| quote!(1.0), ToTokens::to_token_stream);
            let scaled = scaled.as_ref().map_or_else(|| quote!(0.0), ToTokens::to_token_stream);
            quote!(Tolerance(__f::Tolerance::new(#factor, #scaled)))
        }
    };
    let option = |value: Option<TokenStream>| value.map_or_else(|| quote!(None), |value| quote!(Some(#value)));
    let executor = option(executor.as_ref().map(ToTokens::to_token_stream));
    let precision = option(precision.as_ref().map(|own| quote!(__f::Precision::#own)));
    let dtype = option(dtype.as_ref().map(|dtype| quote!(__f::DType::#dtype)));
    let sample = option(sample.as_ref().map(ToTokens::to_token_stream));
    quote! {
        __f::directive(
            __f::DirectiveKind::#kind, &[#(__f::Template::#templates),*],
            #executor, #precision, #dtype, #sample, #reason
        )
    }
}

/// What the record has beside name, kind, documentation, parameters and results.
fn record(operator: &Operator) -> TokenStream {
    let Operator { options, signature, .. } = operator;
    let position = |wanted: &str| signature.params.iter().position(|param| param.ident == wanted);
    let mut fields = TokenStream::new();
    if let Some(torch) = &options.torch {
        fields.extend(quote!(torch: Some(#torch),));
    }
    fields.extend(effects(operator, &position));
    let facts = [("complex", options.complex), ("cheap", options.cheap), ("exact", options.exact)];
    for (fact, holds) in facts.into_iter().chain([("commutes", options.commutes)]) {
        let fact = made(fact);
        fields.extend(holds.then(|| quote!(#fact: true,)));
    }
    if let Some(role) = &options.overload {
        fields.extend(quote!(overload: Some(__f::Role::#role),));
    }
    if !options.dtypes.is_empty() {
        let dtypes = &options.dtypes;
        let exact = DTYPES.iter().filter(|(_, dtype)| !Class::Floating.holds(dtype)).count();
        let all_exact = dtypes.len() == exact && !dtypes.iter().any(|dtype| Class::Floating.holds(&dtype.to_string()));
        fields.extend(match all_exact {
            true => quote!(dtypes: &__f::DType::EXACT,),
            false => quote!(dtypes: &[#(__f::DType::#dtypes),*],),
        });
    }
    if let Some(class) = &options.autocast {
        fields.extend(quote!(autocast: Some(__f::Autocast::#class),));
    }
    if !options.autocast_keeps.is_empty() {
        let names = options.autocast_keeps.iter().map(ToString::to_string);
        fields.extend(quote!(autocast_keeps: &[#(#names),*],));
    }
    fields
}

/// The sets of rules that the declaration fills, each `Set { rules and facts }`.
fn rule_sets(operator: &Operator) -> Vec<TokenStream> {
    let Operator { options, .. } = operator;
    let set = |name: &str, fields: TokenStream| {
        let name = made(name);
        (!fields.is_empty()).then(|| quote!(#name { #fields }))
    };
    let mut kernel = rules_of_set(operator, &[RuleKind::Cpu, RuleKind::Plan]);
    if options.strided {
        kernel.extend(quote!(.strided = true;));
    }
    if let Some(packed) = &options.strided_results {
        kernel.extend(quote!(.strided_results = Some(#packed);));
    }
    if let Some(named) = &options.in_place {
        kernel.extend(quote!(.in_place = true;));
        if !named.is_empty() {
            let names = named.iter().map(Ident::to_string);
            kernel.extend(quote!(.in_place_over = &[#(#names),*];));
        }
    }
    let mut gradient = rules_of_set(operator, &[RuleKind::Grad]);
    if let Some(reason) = &options.no_grad {
        gradient.extend(quote!(.no_grad = Some(#reason);));
    }
    let mut arithmetic = rules_of_set(operator, &[RuleKind::Scalar]);
    if let Some(elements) = &options.elements {
        arithmetic.extend(quote!(.elements = Some(__f::Elements::#elements);));
    }
    let mut tracing = rules_of_set(operator, &[RuleKind::Requires, RuleKind::Meta, RuleKind::Decomposition]);
    if operator.derives_meta() {
        tracing.extend(quote!(meta |a| __f::scalar_meta(&OPERATOR, a);));
    }
    [
        set("TracingRules", tracing),
        set("GradientRules", gradient),
        set("Arithmetic", arithmetic),
        set("CostRules", rules_of_set(operator, &[RuleKind::Flops])),
        set("LayoutRules", rules_of_set(operator, &[RuleKind::View, RuleKind::Channels])),
        set("KernelRules", kernel),
        set("TestRules", test_rules(operator)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `rule |a| call;` for the declared rules of these kinds.
fn rules_of_set(operator: &Operator, kinds: &[RuleKind]) -> TokenStream {
    let (params, results) = (&operator.signature.params, KernelResults::Known(&operator.signature.results));
    let rules = operator.rules.iter().filter(|rule| rule.right && kinds.contains(&rule.kind)).map(|rule| {
        let rule = match rule.kind {
            RuleKind::Cpu => cpu(rule, params, &results),
            RuleKind::Plan => plan(rule, params, &results),
            _ => erased(rule, params),
        };
        quote!(#rule;)
    });
    quote!(#(#rules)*)
}

/// How the operator is known to be right.
fn test_rules(operator: &Operator) -> TokenStream {
    let Operator { options, signature, .. } = operator;
    let declared = |kind: RuleKind| operator.rule(kind).filter(|rule| rule.right).map(|rule| &rule.function.sig.ident);
    let mut fields = rules_of_set(operator, &[RuleKind::Reference]);
    if let Some(samples) = declared(RuleKind::Samples) {
        fields.extend(quote!(@samples #samples;));
    }
    match (operator.derives_errors(), declared(RuleKind::Errors)) {
        (true, None) => fields.extend(quote!(@errors |e| e.elementwise(&OPERATOR);)),
        (true, Some(errors)) => {
            fields.extend(quote!(@errors |e| { e.elementwise(&OPERATOR); #errors(e) };));
        }
        (false, Some(errors)) => fields.extend(quote!(@errors #errors;)),
        (false, None) => {}
    }
    if operator.derives_errors() {
        let codes = operator.codes.iter().map(Ident::to_string);
        let codes = codes.chain(derived_codes(&signature.params).map(str::to_owned));
        fields.extend(quote!(.codes = &[#(#codes),*];));
    } else if !operator.codes.is_empty() {
        fields.extend(quote!(.codes = CODES;));
    }
    let undecided: Vec<_> = operator.undecided().collect();
    if !undecided.is_empty() {
        let undecided = undecided.iter().map(|(name, reason)| {
            let name = name.to_string();
            quote!((#name, #reason))
        });
        fields.extend(quote!(.undecided = &[#(#undecided),*];));
    }
    if !options.directives.is_empty() {
        let directives = options.directives.iter().map(directive);
        fields.extend(quote!(.directives = &[#(#directives),*];));
    }
    fields
}

/// The preconditions of the meta that follows from a scalar rule: see `fulgurite::rules::scalar_meta`.
fn derived_codes(params: &[Param]) -> impl Iterator<Item = &'static str> {
    let operands = params.iter().any(|param| matches!(param.kind, ParamKind::Operand(_)));
    // Booleans have one dtype, which cannot mismatch.
    let varied = || params.iter().filter(|param| param.kind.class().is_some_and(|class| class != Class::Boolean));
    let list = varied().any(|param| matches!(param.kind, ParamKind::List(_)));
    let tensor = varied().any(|param| matches!(param.kind, ParamKind::Tensor(_) | ParamKind::List(_)));
    let codes = [
        (true, "ShapeMismatch"),
        (list || varied().count() > 1, "DTypeMismatch"),
        (operands && !tensor, "NoTensor"),
        (operands && varied().count() > 1, "NumberDType"),
    ];
    codes.into_iter().filter(|(applies, _)| *applies).map(|(_, code)| code)
}

fn effects(operator: &Operator, position: &impl Fn(&str) -> Option<usize>) -> Option<TokenStream> {
    let effects = &operator.options.effects;
    let mut fields = TokenStream::new();
    if effects.random {
        fields.extend(quote!(random: true,));
        if let Some(generator) = position("generator").map(Literal::usize_unsuffixed) {
            fields.extend(quote!(generator: Some(#generator),));
        }
    }
    if effects.collective {
        fields.extend(quote!(collective: true,));
    }
    let axis = position("axis").filter(|_| effects.collective || effects.place).map(Literal::usize_unsuffixed);
    if let Some(axis) = axis {
        fields.extend(quote!(axis: Some(#axis),));
    }
    (!fields.is_empty()).then(|| {
        quote! {
            effects: __f::Effects { #fields ..__f::Effects::NONE },
        }
    })
}
