//! `#[executor]`: a named set of kernel symbols and implementations.

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser;
use syn::{Attribute, Expr, LitStr, Visibility};

use crate::errors::Errors;
use crate::operator::{Rule, parts};
use crate::options;
use crate::parse::{self, Module, Value};

/// The rules of an executor; all of them may be absent.
pub const RULES: [&str; 7] = ["claims", "prepare", "plan", "fuse", "admits_region", "prepare_region", "plan_region"];

/// A declared executor.
#[derive(Debug)]
pub struct Executor {
    /// The module's attributes.
    pub attrs: Vec<Attribute>,
    /// The module's visibility.
    pub vis: Visibility,
    /// The module's name, which is the executor's.
    pub ident: Ident,
    /// Documentation.
    pub docs: String,
    /// The kind of device.
    pub device: LitStr,
    /// The place in the default list.
    pub priority: Option<Expr>,
    /// Whether its kernels take operands of any strides.
    pub strided: bool,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Helpers and other items.
    pub others: Vec<TokenStream>,
}

/// Reads a declaration; `None` if nothing can be made of it.
pub fn read(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Executor> {
    let settings = errors.keep(parse::settings.parse2(attribute)).unwrap_or_default();
    let (mut device, mut priority, mut strided) = (None, None, false);
    for setting in &settings {
        match (setting.name.to_string().as_str(), &setting.value) {
            ("device", _) => device = options::text(setting, errors),
            ("priority", Value::Equals(value)) => priority = Some((**value).clone()),
            ("priority", _) => errors.at(setting, "write `priority = 10`: lower stands earlier in the default list"),
            ("strided", _) => strided = options::flag(setting, errors),
            _ => options::unknown(setting, "`#[executor]`", &["device", "priority", "strided"], errors),
        }
    }
    let module: Module = errors.keep(syn::parse2(item))?;
    let parts = parts(module.entries, &RULES, errors);
    crate::check::executor(&parts, errors);
    let device = device.unwrap_or_else(|| {
        if !settings.iter().any(|setting| setting.name == "device") {
            errors.at(&module.ident, "say which kind of device it runs on: `#[executor(device = \"cpu\")]`");
        }
        LitStr::new("", module.ident.span())
    });
    let docs = parse::documentation(&module.attrs);
    Some(Executor {
        attrs: module.attrs,
        vis: module.vis,
        ident: module.ident,
        docs,
        device,
        priority,
        strided,
        rules: parts.rules,
        others: parts.others,
    })
}

/// The expansion of `#[executor]`.
pub fn expansion(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let executor = read(attribute, item, &mut errors);
    let mut tokens = errors.to_compile_errors();
    if let Some(executor) = executor {
        tokens.extend(crate::expand::executor::expand(&executor, errors.is_empty()));
    }
    tokens
}
