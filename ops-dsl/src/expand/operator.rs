//! The expansion of `#[operator]`.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, format_ident, quote};

use super::{cpu, erased, function, grad_function, guard, made, module, plan, register, runs_on, scope};
use crate::declaration::Operator;
use crate::model::{
    Class, Directive, DirectiveKind, Kind, Param, ParamKind, Results, generic_argument, is_word, result_index,
};

/// Expands a declaration. `complete` says that nothing is wrong with it.
pub fn expand(operator: &Operator, complete: bool) -> TokenStream {
    let Operator { attrs, vis, ident, others, codes, .. } = operator;
    let scope = scope();
    let arguments = arguments(&operator.signature.params);
    let results = results_type(operator.signature.results);
    let surface = surface(operator, &results);
    let gradients = gradients(&operator.signature.params);
    let rules = operator.rules.iter().map(|rule| match rule.name {
        "errors" => function(
            &rule.function,
            quote!(
                #[allow(unused_imports)]
                use Code::*;
            ),
        ),
        "grad" => grad_function(rule),
        _ => function(&rule.function, TokenStream::new()),
    });
    let owner = match &operator.options.kind {
        Kind::Symbol(path) => Some(module(path, "__by")),
        _ => None,
    };
    let runs_on = owner.as_ref().map(|(_, by)| runs_on(by, &operator.rules));
    let import_by = owner.as_ref().and_then(|(import, _)| import.as_ref());
    let record = record(operator, owner.as_ref().map(|(_, by)| by));
    let register = register(
        quote!(::fulgurite::registry::OPERATORS),
        quote!(::fulgurite::operator::OperatorDef),
        made("OPERATOR"),
    );
    let guard = guard("operator", &operator.name);
    // What is wrong is said by the errors; rules that are left aside because of them are no dead code.
    let lenient = (!complete).then(|| quote!(#[allow(dead_code, unused_imports)]));
    let exported = match has_method(operator) {
        true => {
            let method = method_name(ident);
            quote!({#ident, #method})
        }
        false => ident.to_token_stream(),
    };
    quote! {
        #(#attrs)*
        #lenient
        #vis mod #ident {
            #scope
            #import_by
            #arguments
            impl ArgsWithoutCall<::fulgurite::Tensor> {
                /// Calls the operator.
                #[inline]
                #[track_caller]
                pub fn call(self) -> #results {
                    ::fulgurite::expansion::call(&OPERATOR, self.0)
                }
            }
            #surface
            #gradients
            ::fulgurite::__codes! { #(#codes),* }
            #(#rules)*
            #(#others)*
            #runs_on
            /// The record of this declaration.
            #[unsafe(export_name = #guard)]
            #[allow(clippy::needless_update)]
            pub static OPERATOR: ::fulgurite::operator::OperatorDef = #record;
            #register
        }
        #[doc(inline)]
        #[allow(unused_imports)]
        #vis use #ident::#exported;
    }
}

/// How a parameter is given by a caller: its type, and the argument made of it. `tensor` stands for a tensor.
fn given(param: &Param, tensor: &TokenStream) -> (TokenStream, TokenStream) {
    let name = &param.ident;
    let list = |element: TokenStream| (quote!(impl AsRef<[#element]>), quote!(#name.as_ref().to_vec()));
    let into = |target: TokenStream| (quote!(impl Into<#target>), quote!(#name.into()));
    match &param.kind {
        ParamKind::Tensor(_) => (tensor.clone(), quote!(#name)),
        ParamKind::Optional(_) => into(quote!(Option<#tensor>)),
        ParamKind::List(_) => list(tensor.clone()),
        ParamKind::Operand(_) => into(quote!(::fulgurite::argument::Operand<#tensor>)),
        ParamKind::Attribute(ty) => match generic_argument(ty, "Vec") {
            Some(element) => list(element.to_token_stream()),
            None if optional_list(ty).is_some() => {
                let element = optional_list(ty);
                (quote!(impl ::fulgurite::argument::IntoOptionalList<#element>), quote!(#name.into_optional_list()))
            }
            None if generic_argument(ty, "Option").is_some() || is_word(ty, "String") || is_word(ty, "Scalar") => {
                into(ty.to_token_stream())
            }
            None => (ty.to_token_stream(), quote!(#name)),
        },
    }
}

/// `T` of `Option<Vec<T>>`.
fn optional_list(ty: &syn::Type) -> Option<&syn::Type> {
    generic_argument(generic_argument(ty, "Option")?, "Vec")
}

/// The type of an attribute, by which its value is read and its default checked; nothing for what is no attribute.
fn field(kind: &ParamKind) -> TokenStream {
    match kind {
        // What stands for a tensor is known where the argument is read.
        ParamKind::Attribute(ty) => ty.to_token_stream(),
        _ => quote!(()),
    }
}

/// A default as the record keeps it.
fn default(param: &Param) -> Option<TokenStream> {
    let value = param.default.as_ref()?;
    Some(match &param.kind {
        ParamKind::Attribute(ty) if is_word(ty, "String") || is_word(ty, "Scalar") => {
            quote!(::fulgurite::expansion::default_attribute(<#ty>::from(#value)))
        }
        ParamKind::Attribute(ty) => quote!(::fulgurite::expansion::default_attribute::<#ty>(#value)),
        ParamKind::Operand(_) => quote!(::fulgurite::expansion::default_operand(#value)),
        _ => quote!(::fulgurite::argument::Attribute::None),
    })
}

/// `ArgsWithoutCall`, `with` and the setters.
pub(crate) fn arguments(params: &[Param]) -> TokenStream {
    let tensor = quote!(V);
    let (mut required, mut defaulted) = (TokenStream::new(), TokenStream::new());
    for (index, param) in params.iter().enumerate() {
        let index = Literal::usize_unsuffixed(index);
        let (kind, name, ty) = (made(param.kind.word()), &param.ident, field(&param.kind));
        let class = made(param.kind.class().unwrap_or(Class::Any).name());
        let (given, value) = given(param, &tensor);
        match (default(param), &param.default) {
            (Some(default), Some(text)) => {
                let text = text.to_string();
                defaulted.extend(quote!(#index #kind(#class) #name: #ty = #default, #text, #given => #value;));
            }
            _ => required.extend(quote!(#index #kind(#class) #name: #ty, #given => #value;)),
        }
    }
    quote!(::fulgurite::__arguments! { required { #required } defaulted { #defaulted } })
}

fn results_type(results: Results) -> TokenStream {
    let tensor = quote!(::fulgurite::Tensor);
    match results {
        Results::One => tensor,
        Results::Tuple(n) => {
            let tensors = (0..n).map(|_| &tensor);
            quote!((#(#tensors),*))
        }
        Results::List => quote!(Vec<#tensor>),
    }
}

fn method_name(ident: &Ident) -> Ident {
    format_ident!("{}Method", crate::model::camel_case(&ident.to_string()))
}

fn has_method(operator: &Operator) -> bool {
    let first = operator.signature.params.first();
    let on_tensor = first.is_some_and(|param| param.ident == "input" && matches!(param.kind, ParamKind::Tensor(_)));
    // A prim, or an operator that says a prefixed name, stands below an operator of the same name, which has the
    // method.
    let below = match &operator.options.name {
        Some(name) => name.value().contains("::"),
        None => matches!(operator.options.kind, Kind::Prim),
    };
    on_tensor && !matches!(operator.options.kind, Kind::Symbol(_)) && !below
}

/// The function and the method.
fn surface(operator: &Operator, results: &TokenStream) -> TokenStream {
    let ident = &operator.ident;
    let docs = &operator.docs;
    let tensor = quote!(::fulgurite::Tensor);
    let required: Vec<&Param> = operator.signature.params.iter().filter(|param| param.default.is_none()).collect();
    let names: Vec<&Ident> = required.iter().map(|param| &param.ident).collect();
    let types: Vec<TokenStream> = required.iter().map(|param| given(param, &tensor).0).collect();
    let lint = (required.len() > 7).then(|| quote!(#[allow(clippy::too_many_arguments)]));
    let method = has_method(operator).then(|| {
        let trait_name = method_name(ident);
        let about = format!("`input.{ident}(...)`.");
        let (names, types) = (&names[1..], &types[1..]);
        quote! {
            #[doc = #about]
            pub trait #trait_name {
                #[doc = #docs]
                #[track_caller]
                #lint
                fn #ident(self, #(#names: #types),*) -> #results;
            }
            impl #trait_name for #tensor {
                #[inline]
                #[track_caller]
                fn #ident(self, #(#names: #types),*) -> #results {
                    with(self, #(#names),*).call()
                }
            }
        }
    });
    quote! {
        #[doc = #docs]
        #[inline]
        #[track_caller]
        #lint
        pub fn #ident(#(#names: #types),*) -> #results {
            with(#(#names),*).call()
        }
        #method
    }
}

/// `Grads`, if anything has a gradient.
fn gradients(params: &[Param]) -> Option<TokenStream> {
    let count = Literal::usize_unsuffixed(params.len());
    let fields: Vec<TokenStream> = params
        .iter()
        .enumerate()
        .filter(|(_, param)| param.kind.differentiable())
        .map(|(i, param)| {
            let (index, name) = (Literal::usize_unsuffixed(i), &param.ident);
            let tensor = quote!(::fulgurite::Tensor);
            match param.kind {
                ParamKind::Tensor(_) => quote!(#index tensor #name: #tensor;),
                ParamKind::List(_) => quote!(#index list #name: Vec<#tensor>;),
                _ => quote!(#index optional #name: Option<#tensor>;),
            }
        })
        .collect();
    (!fields.is_empty()).then(|| quote!(::fulgurite::__gradients! { #count: #(#fields)* }))
}

fn directive(directive: &Directive) -> TokenStream {
    let Directive { kind, template, executor, precision, dtype, sample, reason } = directive;
    let kind = match kind {
        DirectiveKind::Skip => quote!(Skip),
        DirectiveKind::ExpectedFailure => quote!(ExpectedFailure),
        DirectiveKind::Tolerance(by) => {
            let [factor, scaled] = &**by;
            let factor = factor.as_ref().map_or_else(|| quote!(1.0), ToTokens::to_token_stream);
            let scaled = scaled.as_ref().map_or_else(|| quote!(0.0), ToTokens::to_token_stream);
            quote!(Tolerance(::fulgurite::testing::directives::Tolerance::new(#factor, #scaled)))
        }
    };
    let option = |value: Option<TokenStream>| value.map_or_else(|| quote!(None), |value| quote!(Some(#value)));
    let executor = option(executor.as_ref().map(ToTokens::to_token_stream));
    let precision = option(precision.as_ref().map(|own| quote!(::fulgurite::precision::Precision::#own)));
    let dtype = option(dtype.as_ref().map(|dtype| quote!(::fulgurite::DType::#dtype)));
    let sample = option(sample.as_ref().map(ToTokens::to_token_stream));
    quote! {
        ::fulgurite::expansion::directive(
            ::fulgurite::testing::directives::DirectiveKind::#kind,
            ::fulgurite::testing::directives::Template::#template,
            #executor, #precision, #dtype, #sample, #reason,
        )
    }
}

/// The static's value: what differs from a record that declares nothing. `owner` is the executor of a symbol.
fn record(operator: &Operator, owner: Option<&syn::Path>) -> TokenStream {
    let Operator { name, docs, options, signature, .. } = operator;
    let params = &signature.params;
    let position = |wanted: &str| params.iter().position(|param| param.ident == wanted);
    let mut fields = quote!(name: #name,);
    match &options.kind {
        Kind::Prim => fields.extend(quote!(kind: ::fulgurite::operator::OperatorKind::Prim,)),
        Kind::Composite => {}
        Kind::Symbol(_) => {
            fields.extend(quote!(kind: ::fulgurite::operator::OperatorKind::Symbol(#owner::EXECUTOR.name),));
        }
    }
    fields.extend(quote!(docs: #docs,));
    if let Some(torch) = &options.torch {
        fields.extend(quote!(torch: Some(#torch),));
    }
    fields.extend(quote!(params: PARAMS,));
    match signature.results {
        Results::One => {}
        Results::Tuple(n) => {
            let n = Literal::usize_unsuffixed(n);
            fields.extend(quote!(results: ::fulgurite::operator::ResultsDef::Fixed(#n),));
        }
        Results::List => fields.extend(quote!(results: ::fulgurite::operator::ResultsDef::List,)),
    }
    fields.extend(effects(operator, &position));
    if options.cheap {
        fields.extend(quote!(cheap: true,));
    }
    if let Some(role) = &options.overload {
        fields.extend(quote!(overload: Some(::fulgurite::operator::Role::#role),));
    }
    if !options.dtypes.is_empty() {
        let dtypes = &options.dtypes;
        fields.extend(quote!(dtypes: &[#(::fulgurite::DType::#dtypes),*],));
    }
    if let Some(class) = &options.autocast {
        fields.extend(quote!(autocast: Some(::fulgurite::operator::Autocast::#class),));
    }
    let rules = rule_sets(operator);
    if !rules.is_empty() {
        fields.extend(quote!(rules: &[#(#rules),*],));
    }
    quote! {
        ::fulgurite::operator::OperatorDef {
            #fields
            package: env!("CARGO_PKG_NAME"),
            file: file!(),
            line: line!(),
            ..::fulgurite::expansion::OPERATOR
        }
    }
}

/// The sets of rules that the declaration fills, each `&Set { ..., ..Set::EMPTY }`.
fn rule_sets(operator: &Operator) -> Vec<TokenStream> {
    let Operator { options, .. } = operator;
    let set = |path: TokenStream, fields: TokenStream| {
        (!fields.is_empty()).then(|| quote!(&#path { #fields ..#path::EMPTY }))
    };
    let mut kernel = rule_fields(operator, &["cpu", "plan"]);
    if options.strided {
        kernel.extend(quote!(strided: true,));
    }
    kernel.extend(super::in_place(options.in_place.as_deref()));
    let mut gradient = rule_fields(operator, &["grad"]);
    if let Some(reason) = &options.no_grad {
        gradient.extend(quote!(no_grad: Some(#reason),));
    }
    let mut arithmetic = rule_fields(operator, &["scalar"]);
    if let Some(elements) = &options.elements {
        arithmetic.extend(quote!(elements: Some(::fulgurite::arithmetic::Elements::#elements),));
    }
    let mut tracing = rule_fields(operator, &["requires", "meta", "decomposition"]);
    if operator.derives_meta() {
        let meta = quote!(::fulgurite::__rule!(meta a => ::fulgurite::rules::scalar_meta(&OPERATOR, a)));
        tracing.extend(quote!(meta: Some(#meta),));
    }
    [
        set(quote!(::fulgurite::tracer::rules::TracingRules), tracing),
        set(quote!(::fulgurite::transforms::autodiff::rules::GradientRules), gradient),
        set(quote!(::fulgurite::arithmetic::Arithmetic), arithmetic),
        set(quote!(::fulgurite::cost::CostRules), rule_fields(operator, &["flops"])),
        set(quote!(::fulgurite::strided::LayoutRules), rule_fields(operator, &["view"])),
        set(quote!(::fulgurite::kernel::KernelRules), kernel),
        set(quote!(::fulgurite::testing::rules::TestRules), test_fields(operator)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `rule: Some(...)` for those of the declared rules that are named.
fn rule_fields(operator: &Operator, names: &[&str]) -> TokenStream {
    let (params, results) = (&operator.signature.params, operator.signature.results);
    let mut fields = TokenStream::new();
    for rule in operator.rules.iter().filter(|rule| rule.right && names.contains(&rule.name)) {
        let (field, function) = (made(rule.name), &rule.function.sig.ident);
        let value = match rule.name {
            "requires" | "meta" | "grad" | "scalar" | "flops" | "reference" | "view" => erased(rule.name, rule, params),
            "decomposition" => erased("traced", rule, params),
            "cpu" => cpu(rule, params, results == Results::List),
            "plan" => plan(rule, params, results == Results::List),
            _ => quote!(::fulgurite::__rule!(#field #function)),
        };
        fields.extend(quote!(#field: Some(#value),));
    }
    fields
}

/// How the operator is known to be right.
fn test_fields(operator: &Operator) -> TokenStream {
    let Operator { options, signature, .. } = operator;
    let derived = operator.derives_errors();
    let mut fields =
        rule_fields(operator, if derived { &["reference", "samples"] } else { &["reference", "samples", "errors"] });
    let mut codes: Vec<String> = operator.codes.iter().map(Ident::to_string).collect();
    if derived {
        let declared = operator.rule("errors").filter(|rule| rule.right).map(|rule| {
            let errors = &rule.function.sig.ident;
            quote!(#errors(e);)
        });
        let errors = quote!((|e| { e.elementwise(&OPERATOR); #declared }));
        fields.extend(quote!(errors: Some(::fulgurite::__rule!(errors #errors)),));
        codes.extend(derived_codes(&signature.params).map(str::to_owned));
    }
    if !codes.is_empty() {
        fields.extend(quote!(codes: &[#(#codes),*],));
    }
    let undecided: Vec<_> = operator.undecided().collect();
    if !undecided.is_empty() {
        let undecided = undecided.iter().map(|(name, reason)| {
            let name = name.to_string();
            quote!((#name, #reason))
        });
        fields.extend(quote!(undecided: &[#(#undecided),*],));
    }
    if !options.directives.is_empty() {
        let directives = options.directives.iter().map(directive);
        fields.extend(quote!(directives: &[#(#directives),*],));
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
    let index = |ident: &Ident| position(&ident.to_string()).map(Literal::usize_unsuffixed);
    if !effects.mutates.is_empty() {
        let indices = effects.mutates.iter().filter_map(index);
        fields.extend(quote!(mutates: &[#(#indices),*],));
    }
    if !effects.aliases.is_empty() {
        let pairs = effects.aliases.iter().filter_map(|(result, param)| {
            let result = Literal::usize_unsuffixed(result_index(&result.to_string())?);
            let param = index(param)?;
            Some(quote!((#result, #param)))
        });
        fields.extend(quote!(aliases: &[#(#pairs),*],));
    }
    (!fields.is_empty()).then(|| {
        quote! {
            effects: ::fulgurite::operator::Effects { #fields ..::fulgurite::operator::Effects::NONE },
        }
    })
}
