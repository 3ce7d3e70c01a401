//! `#[implementation]`: how an executor runs an operator that it does not own.

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser;
use syn::{Attribute, LitInt, LitStr, Path, Visibility};

use crate::declaration::{Rule, parts};
use crate::errors::Errors;
use crate::options;
use crate::parse::{self, Module};
use crate::rules::{IMPLEMENTATION_RULES, RuleKind};

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
    /// The executor's module.
    pub by: Path,
    /// Whether its host kernel takes operands of any strides.
    pub strided: bool,
    /// How many of the last dimensions of results its kernel wants packed, if it writes others at any distance.
    pub strided_results: Option<LitInt>,
    /// Whether its kernel may write a result over an operand: over these, or over any if none is named.
    pub in_place: Option<Vec<Ident>>,
    /// Cotangents that are not used, with reasons.
    pub waived: Vec<(Ident, LitStr)>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Helpers and other items.
    pub others: Vec<TokenStream>,
}

/// Reads a declaration; `None` if nothing can be made of it.
pub fn read(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Implementation> {
    let settings = errors.keep(parse::settings.parse2(attribute)).unwrap_or_default();
    let (mut of, mut by, mut strided, mut in_place, mut waived) = (None, None, false, None, Vec::new());
    let mut strided_results = None;
    options::once(&settings, &["waive"], errors);
    for setting in &settings {
        match setting.name.to_string().as_str() {
            "of" => of = options::path(setting, errors),
            "by" => by = options::path(setting, errors),
            "strided" => strided = options::flag(setting, errors),
            "strided_results" => strided_results = options::strided_results(setting, errors),
            "in_place" => in_place = options::in_place(setting, errors),
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
    let parts = parts(module.entries, &IMPLEMENTATION_RULES, errors);
    crate::check::implementation(&module.ident, &parts, &waived, errors);
    // The signature is elsewhere, but the kernel takes what it is written over.
    let kernel = |rule: &&Rule| matches!(rule.kind, RuleKind::Cpu | RuleKind::Plan);
    let named = in_place.as_deref().filter(|_| !parts.rules.iter().any(is_whole_kernel));
    let taken: Vec<String> =
        parts.rules.iter().filter(kernel).flat_map(|rule| &rule.params).map(|param| param.name.clone()).collect();
    crate::check::in_place(named, &taken, "its kernel takes", errors);
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
        by: by?,
        strided,
        strided_results,
        in_place,
        waived,
        rules: parts.rules,
        others: parts.others,
    })
}

/// Whether a rule is a kernel that takes all arguments as a whole.
pub fn is_whole_kernel(rule: &Rule) -> bool {
    matches!(rule.kind, RuleKind::Cpu | RuleKind::Plan) && rule.args().is_some()
}
