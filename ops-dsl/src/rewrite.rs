//! `#[rewrite]`: two arrangements of operators that mean the same.

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser;
use syn::{Attribute, Path, Visibility};

use crate::declaration::{Rule, parts};
use crate::errors::Errors;
use crate::model::{Class, Param, ParamKind, is_word};
use crate::options;
use crate::parse::{self, Module};
use crate::rules::{REWRITE_RULES, RuleKind};

/// Settings of the attribute.
const SETTINGS: [&str; 6] = ["default", "late", "executor", "claimed", "keep_inner", "name"];

/// A declared rewrite.
#[derive(Debug)]
pub struct Rewrite {
    /// The module's attributes.
    pub attrs: Vec<Attribute>,
    /// The module's visibility.
    pub vis: Visibility,
    /// The module's name.
    pub ident: Ident,
    /// The rewrite's name.
    pub name: String,
    /// Documentation.
    pub docs: String,
    /// Whether it takes part without being asked for.
    pub default: bool,
    /// Whether it works on what autodiff leaves, instead of on what was acquired.
    pub late: bool,
    /// The executors' modules, if it takes part where one of them does.
    pub executors: Vec<Path>,
    /// Whether an executor of the list must run the replacement as it is.
    pub claimed: bool,
    /// Whether inner values may be read elsewhere.
    pub keep_inner: bool,
    /// The pattern's tensors.
    pub params: Vec<Param>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Helpers and other items.
    pub others: Vec<TokenStream>,
}

/// Reads a declaration; `None` if nothing can be made of it.
pub fn read(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Rewrite> {
    let settings = errors.keep(parse::settings.parse2(attribute)).unwrap_or_default();
    let (mut default, mut late, mut executors, mut name) = (false, false, Vec::new(), None);
    let (mut claimed, mut keep_inner) = (false, false);
    options::once(&settings, &["executor"], errors);
    for setting in &settings {
        match setting.name.to_string().as_str() {
            "default" => default = options::flag(setting, errors),
            "late" => late = options::flag(setting, errors),
            "executor" => executors.extend(options::path(setting, errors)),
            "claimed" => claimed = options::flag(setting, errors),
            "keep_inner" => keep_inner = options::flag(setting, errors),
            "name" => name = options::text(setting, errors),
            _ => options::unknown(setting, "`#[rewrite]`", &SETTINGS, errors),
        }
    }
    let given = |name: &str| settings.iter().find(|setting| setting.name == name);
    for word in ["default", "late", "claimed"] {
        if let (Some(setting), Some(_)) = (given(word), given("executor")) {
            errors.at(
                &setting.name,
                format!("an executor's rewrite takes part late, where the executor does: leave out `{word}`"),
            );
        }
    }
    let module: Module = errors.keep(syn::parse2(item))?;
    let mut parts = parts(module.entries, &REWRITE_RULES, errors);
    let mut rules = std::mem::take(&mut parts.rules);
    let mut params = Vec::new();
    for param in rules.iter().filter(|rule| rule.kind == RuleKind::Pattern).flat_map(|rule| &rule.params) {
        if !is_word(&param.ty, "Tensor") {
            errors.at(&param.ty, "a pattern takes tensors: write `Tensor`; attributes are written out in the pattern");
        }
        let ident = Ident::new(&param.name, param.written.span());
        params.push(Param { ident, kind: ParamKind::Tensor(Class::Any), default: None, accumulates: false });
    }
    let names: Vec<String> = params.iter().map(|param| param.ident.to_string()).collect();
    crate::check::rewrite(&module.ident, &mut rules, &parts, &names, errors);
    Some(Rewrite {
        name: name.map_or_else(|| module.ident.to_string(), |name| name.value()),
        docs: parse::documentation(&module.attrs),
        attrs: module.attrs,
        vis: module.vis,
        ident: module.ident,
        default,
        late,
        executors,
        claimed,
        keep_inner,
        params,
        rules,
        others: parts.others,
    })
}
