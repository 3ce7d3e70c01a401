//! `#[operator]`: from tokens to a declaration.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::parse::Parser;
use syn::{Attribute, LitStr, Visibility};

use crate::errors::Errors;
use crate::model::{self, Kind, Options, ParamKind, RuleParam, Signature};
use crate::parse::{self, Entry, Function, Module};

/// The rules of an operator.
pub const RULES: [&str; 11] =
    ["requires", "meta", "decomposition", "grad", "scalar", "view", "reference", "cpu", "plan", "samples", "errors"];

/// A rule of a declaration.
#[derive(Debug)]
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// As it was written.
    pub function: Function,
    /// Its parameters by name.
    pub params: Vec<RuleParam>,
    /// Whether its parameters are right, so that it can be called.
    pub right: bool,
}

/// A declared operator.
#[derive(Debug)]
pub struct Operator {
    /// The module's attributes.
    pub attrs: Vec<Attribute>,
    /// The module's visibility.
    pub vis: Visibility,
    /// The module's name, which is the operator's.
    pub ident: Ident,
    /// The operator's name in traces.
    pub name: String,
    /// Documentation.
    pub docs: String,
    /// Settings.
    pub options: Options,
    /// The signature.
    pub signature: Signature,
    /// Rules.
    pub rules: Vec<Rule>,
    /// Helpers and other items.
    pub others: Vec<TokenStream>,
    /// The named preconditions.
    pub codes: Vec<Ident>,
}

impl Operator {
    /// The rule of that name.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.name == name)
    }

    /// The arguments that are waived, with reasons.
    pub fn undecided(&self) -> impl Iterator<Item = &(Ident, LitStr)> {
        self.options.waived.iter().filter(|(name, _)| self.signature.params.iter().any(|param| param.ident == *name))
    }

    /// The cotangents that are waived, with reasons: every other name.
    pub fn waived_cotangents(&self) -> Vec<(Ident, LitStr)> {
        let param = |name: &Ident| self.signature.params.iter().any(|param| param.ident == *name);
        self.options.waived.iter().filter(|(name, _)| !param(name)).cloned().collect()
    }

    /// Whether its meta follows from its scalar rule.
    pub fn derives_meta(&self) -> bool {
        self.rule("meta").is_none() && self.rule("scalar").is_some() && self.rule("decomposition").is_none()
    }

    /// Whether that meta can fail: with several tensors, whose shapes and dtypes may differ. The library has error
    /// samples for it.
    pub fn derives_errors(&self) -> bool {
        let tensors = |param: &&model::Param| {
            matches!(param.kind, ParamKind::Tensor(_) | ParamKind::Optional(_) | ParamKind::Operand(_))
        };
        let lists = self.signature.params.iter().any(|param| matches!(param.kind, ParamKind::List(_)));
        self.derives_meta() && (lists || self.signature.params.iter().filter(tensors).count() > 1)
    }
}

/// The rules and other entries of a module.
#[derive(Debug, Default)]
pub struct Parts {
    /// Body-less functions.
    pub signatures: Vec<Function>,
    /// Rules by name.
    pub rules: Vec<Rule>,
    /// Functions that are no rules.
    pub helpers: Vec<Function>,
    /// Items that are no functions.
    pub items: Vec<TokenStream>,
    /// Everything that is passed through, helpers and items, in order.
    pub others: Vec<TokenStream>,
}

/// Sorts the entries of a module.
pub fn parts(entries: Vec<Entry>, known: &[&'static str], errors: &mut Errors) -> Parts {
    let mut parts = Parts::default();
    for entry in entries {
        let function = match entry {
            Entry::Other(tokens) => {
                parts.items.push(tokens.clone());
                parts.others.push(tokens);
                continue;
            }
            Entry::Function(function) => *function,
        };
        let name = function.sig.ident.to_string();
        if function.body.is_none() {
            parts.signatures.push(function);
        } else if let Some(name) = known.iter().find(|rule| **rule == name) {
            if parts.rules.iter().any(|rule| rule.name == *name) {
                errors.at(&function.sig.ident, format!("the rule `{name}` is given twice"));
                continue;
            }
            let params = model::rule_params(&function, errors);
            parts.rules.push(Rule { name, function, params, right: true });
        } else {
            parts.others.push(function.to_token_stream());
            parts.helpers.push(function);
        }
    }
    parts
}

/// Reads a declaration; `None` if nothing can be made of it.
pub fn read(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Operator> {
    let settings = errors.keep(parse::settings.parse2(attribute)).unwrap_or_default();
    let options = crate::options::operator(settings, errors);
    let module: Module = errors.keep(syn::parse2(item))?;
    let mut docs = parse::documentation(&module.attrs);
    let mut parts = parts(module.entries, &RULES, errors);
    let rules = std::mem::take(&mut parts.rules);
    let mut signatures = std::mem::take(&mut parts.signatures).into_iter();
    let Some(written) = signatures.next() else {
        errors.at(
            &module.ident,
            format!(
                "the signature is missing: write `fn {}(input: Tensor, ...) -> Tensor;`, without a body",
                module.ident
            ),
        );
        return None;
    };
    for other in signatures {
        errors.at(&other.sig.ident, "an operator has one signature; give this function a body");
    }
    if written.sig.ident != module.ident {
        errors
            .at(&written.sig.ident, format!("the signature is named as its module: write `fn {}(...)`", module.ident));
    }
    if docs.is_empty() {
        docs = parse::documentation(&written.attrs);
    }
    let signature = model::signature(&written, errors);
    let taken: Vec<String> = signature.params.iter().map(|param| param.ident.to_string()).collect();
    crate::check::in_place(options.in_place.as_deref(), &taken, "the signature has", errors);
    let short = module.ident.to_string();
    let name = match (&options.name, &options.kind) {
        (Some(name), _) => name.value(),
        (None, Kind::Prim) => format!("{}::{short}", crate::namespace().as_deref().unwrap_or("prims")),
        (None, Kind::Symbol(path)) => {
            format!("{}::{short}", path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default())
        }
        (None, Kind::Composite) => {
            crate::namespace().map_or_else(|| short.clone(), |namespace| format!("{namespace}::{short}"))
        }
    };
    let mut operator = Operator {
        attrs: module.attrs,
        vis: module.vis,
        ident: module.ident,
        name,
        docs,
        options,
        signature,
        rules,
        others: std::mem::take(&mut parts.others),
        codes: Vec::new(),
    };
    crate::check::operator(&mut operator, &parts, errors);
    Some(operator)
}

/// The expansion of `#[operator]`.
pub fn expansion(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let operator = read(attribute, item, &mut errors);
    let mut tokens = errors.to_compile_errors();
    if let Some(operator) = operator {
        tokens.extend(crate::expand::operator::expand(&operator, errors.is_empty()));
    }
    tokens
}

/// The messages for a declaration, for tests.
pub fn messages(attribute: TokenStream, item: TokenStream) -> Vec<String> {
    let mut errors = Errors::default();
    read(attribute, item, &mut errors);
    errors.messages()
}

/// A name made by the expansion.
pub fn made(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}
