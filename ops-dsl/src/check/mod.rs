//! What must not compile, and what to write instead. What rustc says well at the author's token is left to rustc.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::{LitStr, Type, TypePath, parse_quote};

use crate::declaration::{Operator, Parts, Rule};
use crate::errors::{Errors, did_you_mean, nearest};
use crate::model::{Kind, Param, ParamKind, is_word, list_index};
use crate::parse::Function;
use crate::rules::{EXECUTOR_RULES, IMPLEMENTATION_RULES, OPERATOR_RULES, REWRITE_RULES, RuleKind};
use crate::scan;
use crate::torch_names;

mod by_name;
mod cotangents;
pub mod rewrite;

/// Where each rule belongs, for rules in the wrong declaration.
const ELSEWHERE: [(&str, &[RuleKind]); 4] = [
    ("#[operator]", &OPERATOR_RULES),
    ("#[implementation]", &IMPLEMENTATION_RULES),
    ("#[executor]", &EXECUTOR_RULES),
    ("#[rewrite]", &REWRITE_RULES),
];

/// Checks an operator; rules that cannot be called are marked as not right.
pub fn operator(operator: &mut Operator, parts: &Parts, errors: &mut Errors) {
    signature(&mut operator.signature.params, errors);
    names(parts, &operator.rules, &OPERATOR_RULES, "an operator", errors);
    crate::tune::refuse(&mut operator.rules, errors);
    let params: Vec<String> = operator.signature.params.iter().map(|param| param.ident.to_string()).collect();
    let results = &operator.signature.results;
    for rule in operator.rules.iter_mut().filter(|rule| rule.right) {
        rule.right = match rule.kind {
            RuleKind::Samples | RuleKind::Errors => collector(rule, errors),
            // While it is unclear how results are called nothing can be said about a kernel's.
            RuleKind::Cpu | RuleKind::Plan if !operator.signature.results_named => false,
            RuleKind::Cpu | RuleKind::Plan => {
                by_name::kernel(rule, &params, results, errors) && by_name::writes_all(rule, results, errors)
            }
            RuleKind::Decomposition | RuleKind::Grad => {
                by_name::taken(rule, &params, "signature", errors) && by_name::takes_all(rule, &params, errors)
            }
            _ => by_name::taken(rule, &params, "signature", errors),
        };
    }
    rules_of_kind(operator, errors);
    let results = operator.signature.results_named.then(|| operator.signature.results.names());
    cotangents::check(&operator.rules, &operator.waived_cotangents(), results.as_deref(), errors);
    dtypes(operator, errors);
    codes(operator, &parts.helpers, errors);
}

/// Checks a signature, and mends what would otherwise give further errors.
fn signature(params: &mut [Param], errors: &mut Errors) {
    let mut defaulted: Option<Ident> = None;
    let mut seen: Vec<Ident> = Vec::new();
    for param in params {
        let name = param.ident.to_string();
        if seen.contains(&param.ident) {
            errors.at(&param.ident, format!("the parameter `{name}` is given twice"));
        }
        seen.push(param.ident.clone());
        if name.starts_with('_') {
            errors.at(
                &param.ident,
                "a parameter of a signature begins with a letter: `_name` is how a rule says that it does not use \
                 `name`",
            );
        }
        if let Some(message) = raw(&param.ident, "the parameter") {
            errors.at(&param.ident, message);
        }
        if list_index(&name).is_some() {
            errors.at(&param.ident, format!("`{name}` is what kernels call a result; give the parameter another name"));
        }
        if matches!(name.as_str(), "arguments" | "args") {
            errors.at(
                &param.ident,
                format!("`{name}` is how a rule takes all of them at once; give the parameter another name"),
            );
        }
        if name == "precision" && matches!(&param.kind, ParamKind::Attribute(ty) if is_word(ty, "Precision")) {
            errors.at(
                &param.ident,
                "`precision: Precision` is how a rule of an implementation takes that of its executor; give the \
                 parameter another name",
            );
        }
        if matches!(name.as_str(), "call" | "into_arguments") && param.default.is_some() {
            errors.at(
                &param.ident,
                format!("`{name}` is a method of the arguments' builder; give the parameter another name"),
            );
        }
        match (&mut param.kind, &mut param.default) {
            (ParamKind::Tensor(_) | ParamKind::List(_), default @ Some(_)) => errors.at(
                &default.take(),
                format!(
                    "a tensor has no default; write `#[default(None)] {name}: Option<Tensor>` if it may be left out"
                ),
            ),
            (ParamKind::Optional(_), Some(default)) if default.to_string() != "None" => {
                errors.at(default, "an optional tensor is absent by default: write `#[default(None)]`");
                *default = quote!(None);
            }
            (ParamKind::Attribute(ty), _) => attribute_type(ty, errors),
            _ => {}
        }
        match (&defaulted, &param.default) {
            (Some(before), None) => errors.at(
                &param.ident,
                format!("`{name}` needs a default (`#[default(...)]`), as it follows `{before}`, which has one"),
            ),
            (None, Some(_)) => defaulted = Some(param.ident.clone()),
            _ => {}
        }
    }
}

/// Whether a text is one word that traces can be read back with.
fn is_plain(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    word.chars().all(plain) && word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// What is wrong with a raw identifier: names are printed in traces and kernels, which have no such words.
pub(crate) fn raw(ident: &Ident, what: &str) -> Option<String> {
    let name = ident.to_string();
    let bare = name.strip_prefix("r#")?;
    Some(format!("`{name}` is a keyword of Rust; give {what} another name, such as `{bare}_`"))
}

/// An attribute holds no tensors, and is owned.
fn attribute_type(ty: &mut Type, errors: &mut Errors) {
    if let Type::Reference(reference) = &*ty {
        let owned = match &*reference.elem {
            Type::Path(TypePath { path, .. }) if path.is_ident("str") => parse_quote!(String),
            Type::Slice(slice) => {
                let element = &slice.elem;
                parse_quote!(Vec<#element>)
            }
            other => other.clone(),
        };
        let text = owned.to_token_stream().to_string().replace(' ', "");
        errors.at(ty, format!("a signature owns its arguments: write `{text}`; rules may take them by reference"));
        *ty = owned;
    } else if ["Tensor", "Operand"].iter().any(|word| scan::mentions(ty.to_token_stream(), word)) {
        errors.at(
            ty,
            "signatures write tensors as `Tensor`, `Option<Tensor>`, `Vec<Tensor>` or `Operand` (a tensor or a \
             number)",
        );
        *ty = parse_quote!(bool);
    }
}

/// Rules in the wrong declaration, and misspelt rules. A helper is called by other code; such a rule is not.
fn names(parts: &Parts, rules: &[Rule], known: &[RuleKind], of: &str, errors: &mut Errors) {
    let called = |name: &str| {
        let mut functions = rules.iter().map(|rule| &rule.function).chain(&parts.helpers);
        functions.any(|function| function.body.as_ref().is_some_and(|body| scan::mentions(body.stream(), name)))
            || parts.items.iter().any(|item| scan::mentions(item.clone(), name))
    };
    for helper in &parts.helpers {
        let ident = &helper.sig.ident;
        let name = ident.to_string();
        if called(&name) {
            continue;
        }
        if let Some((home, _)) = ELSEWHERE.iter().find(|(_, kinds)| kinds.iter().any(|kind| kind.name() == name)) {
            errors.at(ident, format!("`{name}` is a rule of `{home}`, not of {of}; {of} has: {}", names_of(known)));
        } else if let Some(near) = nearest(&name, known.iter().map(|kind| kind.name())) {
            errors.at(
                ident,
                format!(
                    "{of} has no rule `{name}`, did you mean `{near}`? (helpers may have such names, but this \
                         one is not called)"
                ),
            );
        }
    }
}

/// The names of rules, for messages.
fn names_of(kinds: &[RuleKind]) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    names.join(", ")
}

/// `samples` and `errors` take a collector.
fn collector(rule: &Rule, errors: &mut Errors) -> bool {
    let wanted = if rule.kind == RuleKind::Samples { "s: &mut Samples" } else { "e: &mut ErrorSamples" };
    let right = rule.params.len() == 1 && matches!(&rule.params[0].ty, Type::Reference(_));
    if !right {
        errors.at(&rule.function.sig.ident, format!("write `fn {}({wanted})`", rule.kind));
    }
    right
}

/// Which rules an operator of its kind must and must not have.
fn rules_of_kind(operator: &Operator, errors: &mut Errors) {
    let ident = &operator.ident;
    let has = |kind: RuleKind| operator.rule(kind).is_some();
    if !has(RuleKind::Samples) {
        errors.at(
            ident,
            format!(
                "`{ident}` has no samples, so nothing would test it; write `fn samples(s: &mut Samples) \
                     {{ s.case(with(s.normal([4, 8]))); }}`"
            ),
        );
    }
    // What is said below would only confuse while it is unclear what kind of operator this is.
    if !operator.options.reliable {
        return;
    }
    let kind = &operator.options.kind;
    match (kind, operator.rule(RuleKind::Decomposition)) {
        (Kind::Prim | Kind::Symbol(_), Some(rule)) => errors.at(
            &rule.function.sig.ident,
            format!(
                "{} does not decompose; remove this rule, or declare a composite: `#[operator]` without \
                     `{}`",
                kind.describe(),
                match kind {
                    Kind::Prim => "prim",
                    _ => "executor",
                }
            ),
        ),
        (Kind::Composite, None) => errors.at(
            ident,
            format!(
                "`{ident}` is a composite without a decomposition; write `fn decomposition(...) -> ...`, or \
                     declare `#[operator(prim)]` or `#[operator(executor = ...)]`"
            ),
        ),
        _ => {}
    }
    let kernel = operator.rule(RuleKind::Cpu).or_else(|| operator.rule(RuleKind::Plan));
    if let (Kind::Composite | Kind::Prim, Some(rule)) = (kind, kernel) {
        errors.at(
            &rule.function.sig.ident,
            format!(
                "nothing runs a kernel of {}; write it in an implementation, `#[implementation(of = {ident}, by = \
                     ...)]`, or declare a kernel symbol, `#[operator(executor = ...)]`",
                kind.describe()
            ),
        );
    }
    if !matches!(kind, Kind::Composite) && !has(RuleKind::Meta) && !has(RuleKind::Scalar) {
        errors.at(
            ident,
            format!(
                "`{ident}` is {} and needs `fn meta(...) -> Result<TensorMeta>`, which gives the results' shapes \
                     and dtypes",
                kind.describe()
            ),
        );
    }
    let options = &operator.options;
    let differentiable = operator.signature.params.iter().find(|param| param.kind.differentiable());
    match (differentiable, operator.rule(RuleKind::Grad), &options.no_grad) {
        (Some(param), None, None) if !has(RuleKind::Decomposition) && !matches!(kind, Kind::Composite) => errors.at(
            ident,
            format!(
                "`{ident}` has no gradient of `{}`; write `fn grad(...)`, or `no_grad = \"reason\"` if it has none",
                param.ident
            ),
        ),
        (_, Some(_), Some(reason)) => {
            errors.at(reason, "`no_grad` is given, and so is the rule `grad`; remove one of them")
        }
        (None, Some(rule), None) => errors.at(
            &rule.function.sig.ident,
            format!("no argument of `{ident}` can have a gradient: none is a floating-point tensor; remove this rule"),
        ),
        _ => {}
    }
    if let (Some(class), None) = (&options.autocast, differentiable) {
        errors.at(
            class,
            format!(
                "no argument of `{ident}` can be a floating-point tensor, so autocast leaves it alone; remove \
                     `autocast`"
            ),
        );
    }
    if let (None, Some(kept)) = (&options.autocast, options.autocast_keeps.first()) {
        errors.at(kept, "autocast keeps all operands where no class is declared; write `autocast = low` or `full`");
    }
    if let (None, Some((name, _))) = (operator.rule(RuleKind::Grad), operator.waived_cotangents().first()) {
        errors.at(name, "there is no rule `grad` whose cotangent could be waived, and no argument of that name");
    }
    if let Some(torch) = &options.torch {
        if torch.value().starts_with("torch.") {
            errors.at(torch, "write the name below `torch.`: `nn.functional.gelu`");
        } else if let Some(problem) = torch_names::problem(&torch.value()) {
            errors.at(torch, problem);
        }
    }
    if let Some(message) = raw(&operator.ident, "the module") {
        errors.at(&operator.ident, format!("{message}, and the operator its name with `name = \"...\"`"));
    }
    if let Some(name) = &options.name
        && !name.value().split("::").all(is_plain)
    {
        errors.at(name, "an operator's name is words of ASCII letters, digits and `_`, separated by `::`");
    }
}

/// Declared element types restrict a tensor.
fn dtypes(operator: &Operator, errors: &mut Errors) {
    for dtype in &operator.options.dtypes {
        let of_class = |param: &Param| param.kind.class().is_some_and(|class| class.holds(&dtype.to_string()));
        if !operator.signature.params.iter().any(of_class) {
            errors.at(
                dtype,
                format!("no argument of `{}` is a tensor that may have elements of this type", operator.ident),
            );
        }
    }
}

/// Every precondition is tripped by an error sample, and every error sample trips one.
fn codes(operator: &mut Operator, helpers: &[Function], errors: &mut Errors) {
    let samples = |function: &Function| scan::mentions(function.sig.inputs.to_token_stream(), "ErrorSamples");
    let (mut rules, mut sampled) = (TokenStream::new(), TokenStream::new());
    for function in operator.rules.iter().map(|rule| &rule.function).chain(helpers) {
        let bodies = if samples(function) { &mut sampled } else { &mut rules };
        if let Some(body) = &function.body {
            bodies.extend(body.to_token_stream());
        }
    }
    let mut codes = scan::required_codes(rules);
    for code in &codes {
        if !scan::mentions(sampled.clone(), &code.to_string()) {
            errors.at(
                code,
                format!(
                    "no error sample trips `{code}`; add `e.case({code}, with(...), \"part of the message\")` to \
                         `fn errors(e: &mut ErrorSamples)`"
                ),
            );
        }
    }
    for code in scan::sampled_codes(sampled) {
        if !codes.contains(&code) {
            let names: Vec<String> = codes.iter().map(Ident::to_string).collect();
            let hint = did_you_mean(&code.to_string(), names.iter().map(String::as_str));
            errors.at(
                &code,
                format!(
                    "no rule requires `{code}`{hint} (write `require!(condition, {code}, \"message\")` where it \
                         is checked)"
                ),
            );
            codes.push(code);
        }
    }
    operator.codes = codes;
}

/// Checks an implementation.
pub fn implementation(ident: &Ident, parts: &Parts, waived: &[(Ident, LitStr)], errors: &mut Errors) {
    names(parts, &parts.rules, &IMPLEMENTATION_RULES, "an implementation", errors);
    bodies(parts, errors);
    let has = |kind: RuleKind| parts.rules.iter().any(|rule| rule.kind == kind);
    if !has(RuleKind::Checker) {
        errors.at(
            ident,
            "an implementation says what it takes; write `fn checker(...) -> Claim \
             { refuse_unless!(condition, \"reason\"); Ok(()) }`",
        );
    }
    if !has(RuleKind::Execution) && !has(RuleKind::Cpu) && !has(RuleKind::Plan) {
        errors.at(
            ident,
            "an implementation runs the operator; write `fn execution(...)` in terms of kernel symbols, the host \
             kernel `fn cpu(...)`, or the device work `fn plan(...)`",
        );
    }
    // The signature is elsewhere: the names of cotangents are checked against it when constants are evaluated.
    cotangents::check(&parts.rules, waived, None, errors);
}

/// Checks an executor.
pub fn executor(parts: &Parts, errors: &mut Errors) {
    names(parts, &parts.rules, &EXECUTOR_RULES, "an executor", errors);
    bodies(parts, errors);
}

/// Only operators have a signature.
fn bodies(parts: &Parts, errors: &mut Errors) {
    for function in &parts.signatures {
        errors.at(&function.sig.ident, "this function has no body; a signature belongs to `#[operator]`");
    }
}

/// Checks that what a kernel is written over is `known`; `what` says what these are.
pub fn in_place(named: Option<&[Ident]>, known: &[String], what: &str, errors: &mut Errors) {
    known_operands(named.unwrap_or_default(), "be written over", known, what, errors);
}

/// Checks that operands which are named to `be_done` something with are `known`; `what` says what these are.
pub fn known_operands(named: &[Ident], be_done: &str, known: &[String], what: &str, errors: &mut Errors) {
    for ident in named {
        let name = ident.to_string();
        if !known.contains(&name) {
            let hint = did_you_mean(&name, known.iter().map(String::as_str));
            errors.at(ident, format!("there is no `{name}` to {be_done}{hint} ({what}: {})", known.join(", ")));
        }
    }
}
