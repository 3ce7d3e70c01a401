//! `#[implementation]`: how an executor runs an operator that it does not own.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::Parser;
use syn::{Attribute, LitInt, LitStr, Path, Visibility};

use crate::declaration::{Rule, parts};
use crate::errors::Errors;
use crate::model::is_word;
use crate::options;
use crate::parse::{self, Module, Setting};
use crate::rules::{IMPLEMENTATION_RULES, RuleKind};
use crate::tune::{self, Tuned};

/// A declared implementation.
#[derive(Debug)]
pub struct Implementation {
    /// The module's attributes.
    pub attrs: Vec<Attribute>,
    /// The module's visibility.
    pub vis: Visibility,
    /// The module's name.
    pub ident: Ident,
    /// The operator's module.
    pub of: Path,
    /// The executors, which run the same rules.
    pub by: Vec<By>,
    /// Parameters of its kernels that are tuned.
    pub tuned: Vec<Tuned>,
    /// Cotangents that are not used, with reasons.
    pub waived: Vec<(Ident, LitStr)>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Helpers and other items.
    pub others: Vec<TokenStream>,
}

/// An executor of an implementation.
#[derive(Debug)]
pub struct By {
    /// Its module.
    pub path: Path,
    /// What holds of the kernel when this executor runs it.
    pub facts: KernelFacts,
}

/// What an implementation says of its kernel.
#[derive(Debug, Clone, Default)]
pub struct KernelFacts {
    /// Whether it takes operands of any strides.
    pub strided: bool,
    /// How many of the last dimensions of results it wants packed, if it writes others at any distance.
    pub strided_results: Option<LitInt>,
    /// Whether it may write a result over an operand: over these, or over any if none is named.
    pub in_place: Option<Vec<Ident>>,
}

impl KernelFacts {
    const NAMES: [&'static str; 3] = ["strided", "strided_results", "in_place"];

    /// Reads a setting with one of these names.
    fn read(&mut self, setting: &Setting, errors: &mut Errors) {
        match setting.name.to_string().as_str() {
            "strided" => self.strided = options::flag(setting, errors),
            "strided_results" => self.strided_results = options::strided_results(setting, errors),
            _ => self.in_place = options::in_place(setting, errors),
        }
    }
}

/// Reads a declaration; `None` if nothing can be made of it.
pub fn read(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Implementation> {
    let settings = errors.keep(parse::settings.parse2(attribute)).unwrap_or_default();
    let (mut of, mut executors, mut facts, mut waived) = (None, Vec::new(), KernelFacts::default(), Vec::new());
    options::once(&settings, &["waive"], errors);
    for setting in &settings {
        match setting.name.to_string().as_str() {
            "of" => of = options::path(setting, errors),
            "by" => executors = options::executors(setting, errors),
            name if KernelFacts::NAMES.contains(&name) => facts.read(setting, errors),
            "waive" => waived.extend(options::waived(setting, errors)),
            _ => options::unknown(
                setting,
                "`#[implementation]`",
                &["of", "by", "strided", "strided_results", "in_place", "waive"],
                errors,
            ),
        }
    }
    let module: Module = errors.keep(syn::parse2(item))?;
    let mut parts = parts(module.entries, &IMPLEMENTATION_RULES, errors);
    for param in parts.rules.iter_mut().flat_map(|rule| &mut rule.params) {
        param.given = (param.name == "precision" && is_word(&param.ty, "Precision")).then(|| quote!(PRECISION));
    }
    let tuned = tune::take(&mut parts.rules, errors);
    crate::check::implementation(&module.ident, &parts, &waived, errors);
    // The signature is elsewhere, but the kernel takes what it is written over.
    let kernel = |rule: &&Rule| matches!(rule.kind, RuleKind::Cpu | RuleKind::Plan);
    let taken: Vec<String> =
        parts.rules.iter().filter(kernel).flat_map(|rule| &rule.params).map(|param| param.name.clone()).collect();
    let by: Vec<By> = executors.into_iter().map(|(path, own)| of_executor(path, &own, &facts, errors)).collect();
    for named in by.iter().filter_map(|by| by.facts.in_place.as_deref()) {
        let named = Some(named).filter(|_| !parts.rules.iter().any(is_whole_kernel));
        crate::check::in_place(named, &taken, "its kernel takes", errors);
    }
    for (name, example) in [("of", "of = rms_norm"), ("by", "by = liger")] {
        if !settings.iter().any(|setting| setting.name == name) {
            let what = if name == "of" { "operator" } else { "executor" };
            errors.at(
                &module.ident,
                format!("say which {what}: `#[implementation({example})]`, the path of the {what}'s module"),
            );
        }
    }
    Some(Implementation {
        attrs: module.attrs,
        vis: module.vis,
        ident: module.ident,
        of: of?,
        by: Some(by).filter(|by| !by.is_empty())?,
        tuned,
        waived,
        rules: parts.rules,
        others: parts.others,
    })
}

/// An executor of `by`, with settings of its own beside those of the implementation.
fn of_executor(path: Path, own: &[Setting], facts: &KernelFacts, errors: &mut Errors) -> By {
    let mut facts = facts.clone();
    options::once(own, &[], errors);
    for setting in own {
        match KernelFacts::NAMES.iter().any(|name| setting.name == name) {
            true => facts.read(setting, errors),
            false => options::unknown(setting, "an executor of `by`", &KernelFacts::NAMES, errors),
        }
    }
    By { path, facts }
}

/// Whether a rule is a kernel that takes all arguments as a whole.
pub fn is_whole_kernel(rule: &Rule) -> bool {
    matches!(rule.kind, RuleKind::Cpu | RuleKind::Plan) && rule.args().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with an implementation by these executors.
    fn said(by: &str) -> Vec<String> {
        let mut errors = Errors::default();
        let item = "mod one { fn checker() -> Claim { Ok(()) } fn cpu(x: TensorRef, out: &mut TensorMut) {} }";
        read(format!("of = add, by = {by}").parse().unwrap(), item.parse().unwrap(), &mut errors);
        errors.messages()
    }

    #[test]
    fn several_executors_have_settings_of_their_own() {
        for by in ["a", "[a]", "[a, b::c]", "[a, b(in_place(x), strided)]", "[a(strided_results = 1), b]"] {
            assert_eq!(said(by), [""; 0], "{by}");
        }
        for (by, wrong) in [
            ("[]", "write `by = path`"),
            ("[a, a]", "the executor is given twice"),
            ("[a, 3]", "write the path of a module"),
            ("[a, b(in_place(y))]", "its kernel takes"),
            ("[a, b(waived)]", "an executor of `by` has no setting `waived`"),
        ] {
            let said = said(by);
            assert!(said.iter().any(|said| said.contains(wrong)), "{by}: {said:?}");
        }
    }
}
