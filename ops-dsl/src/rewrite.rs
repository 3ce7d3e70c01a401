//! `#[rewrite]`: two arrangements of operators that mean the same.

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser;
use syn::{Attribute, Expr, ExprLit, FnArg, Lit, Path, RangeLimits, Visibility};

use crate::declaration::{Rule, parts};
use crate::errors::Errors;
use crate::model::{Class, Param, ParamKind, RuleParam, is_word};
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
    /// The pattern's tensors, and the attributes that it binds.
    pub params: Vec<Param>,
    /// The fewest and the most dimensions of the tensors that say so, by their places.
    pub ranks: Vec<(usize, [usize; 2])>,
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
    let pattern = rules.iter_mut().find(|rule| rule.kind == RuleKind::Pattern);
    let (mut params, ranks) = pattern.map(|rule| parameters(rule, errors)).unwrap_or_default();
    crate::check::rewrite::check(&module.ident, &mut rules, &parts, &mut params, errors);
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
        ranks,
        rules,
        others: parts.others,
    })
}

/// The parameters of a pattern, and the ranks that they declare by `#[rank(2)]`, which the function loses.
fn parameters(pattern: &mut Rule, errors: &mut Errors) -> (Vec<Param>, Vec<(usize, [usize; 2])>) {
    let (mut params, mut ranks) = (Vec::new(), Vec::new());
    let written = pattern.function.sig.inputs.iter_mut().filter_map(|input| match input {
        FnArg::Typed(typed) if matches!(*typed.pat, syn::Pat::Ident(_)) => Some(&mut typed.attrs),
        _ => None,
    });
    for (place, (param, attrs)) in pattern.params.iter().zip(written).enumerate() {
        let RuleParam { written, name, ty, .. } = param;
        let tensor = is_word(ty, "Tensor");
        let kind = if tensor { ParamKind::Tensor(Class::Any) } else { ParamKind::Attribute(Box::new(ty.clone())) };
        for attribute in std::mem::take(attrs) {
            if !attribute.path().is_ident("rank") {
                errors.at(&attribute, "a parameter of a pattern takes `#[rank(...)]` alone");
            } else if !tensor {
                errors.at(&attribute, format!("`{name}` is an attribute; `#[rank(...)]` is for tensors"));
            } else if let Some(declared) = rank(&attribute, errors) {
                ranks.push((place, declared));
            }
        }
        let ident = Ident::new(name, written.span());
        params.push(Param { ident, kind, default: None, accumulates: false });
    }
    (params, ranks)
}

/// The fewest and the most dimensions of `#[rank(2)]`, `#[rank(2..)]`, `#[rank(1..=3)]`.
fn rank(attribute: &Attribute, errors: &mut Errors) -> Option<[usize; 2]> {
    let number = |expression: &Expr| match expression {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse::<usize>().ok(),
        _ => None,
    };
    let read = |expression: &Expr| match expression {
        Expr::Range(range) => {
            let least = range.start.as_deref().map_or(Some(0), number)?;
            let most = match (range.end.as_deref(), &range.limits) {
                (None, _) => usize::MAX,
                (Some(end), RangeLimits::Closed(_)) => number(end)?,
                (Some(end), RangeLimits::HalfOpen(_)) => number(end)?.checked_sub(1)?,
            };
            Some([least, most])
        }
        one => number(one).map(|rank| [rank; 2]),
    };
    let declared = attribute.parse_args::<Expr>().ok().and_then(|expression| read(&expression));
    if declared.is_none_or(|[least, most]| least > most) {
        errors.at(attribute, "write how many dimensions: `#[rank(2)]`, `#[rank(2..)]` or `#[rank(1..=3)]`");
        return None;
    }
    declared
}
