//! `#[executor]`: a named set of kernel symbols and implementations.

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser;
use syn::{Attribute, Expr, LitInt, LitStr, Visibility};

use crate::declaration::{Rule, parts};
use crate::errors::{Errors, slip_of};
use crate::options;
use crate::parse::{self, Module, Setting, Value};
use crate::rules::{EXECUTOR_RULES, RuleKind};

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
    /// How many of the last dimensions of results its kernels want packed, if they write others at any distance.
    pub strided_results: Option<LitInt>,
    /// How exactly it computes: the variant of `Precision`.
    pub precision: Option<Ident>,
    /// Further precisions, variants of `Precision`, by the names that executor lists ask for them with.
    pub precisions: Vec<(Ident, Ident)>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Helpers and other items.
    pub others: Vec<TokenStream>,
}

/// Reads a declaration; `None` if nothing can be made of it.
pub fn read(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Executor> {
    let settings = errors.keep(parse::settings.parse2(attribute)).unwrap_or_default();
    let (mut device, mut priority, mut strided, mut precision) = (None, None, false, None);
    let (mut strided_results, mut precisions) = (None, Vec::new());
    options::once(&settings, &[], errors);
    for setting in &settings {
        match (setting.name.to_string().as_str(), &setting.value) {
            ("device", _) => device = kind_of_device(setting, errors),
            ("priority", Value::Equals(value)) => priority = Some((**value).clone()),
            ("priority", _) => errors.at(setting, "write `priority = 10`: lower comes earlier in the default list"),
            ("strided", _) => strided = options::flag(setting, errors),
            ("strided_results", _) => strided_results = options::strided_results(setting, errors),
            ("precision", _) => precision = options::precision(setting, errors),
            ("precisions", _) => precisions = options::precisions(setting, errors),
            _ => options::unknown(
                setting,
                "`#[executor]`",
                &["device", "priority", "strided", "strided_results", "precision", "precisions"],
                errors,
            ),
        }
    }
    let module: Module = errors.keep(syn::parse2(item))?;
    let mut parts = parts(module.entries, &EXECUTOR_RULES, errors);
    crate::check::executor(&parts, errors);
    let device = device.unwrap_or_else(|| {
        if !settings.iter().any(|setting| setting.name == "device") {
            errors.at(&module.ident, "say which kind of device it runs on: `#[executor(device = \"cpu\")]`");
        }
        LitStr::new("", module.ident.span())
    });
    never_run(&device, &mut parts.rules, errors);
    let docs = parse::documentation(&module.attrs);
    Some(Executor {
        attrs: module.attrs,
        vis: module.vis,
        ident: module.ident,
        docs,
        device,
        priority,
        strided,
        strided_results,
        precision,
        precisions,
        rules: parts.rules,
        others: parts.others,
    })
}

/// `device = "cpu"`: the host, or a kind of device. Kinds are an open set, which a crate that is linked later may add
/// to. Where it differs from one that comes with Fulgurite by a slip of the pen, it is a mistake.
fn kind_of_device(setting: &Setting, errors: &mut Errors) -> Option<LitStr> {
    let given = options::text(setting, errors)?;
    let (name, known) = (given.value(), options::DEVICES);
    let meant = slip_of(&name, known);
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if meant.is_some() || !is_word {
        let hint = meant.map(|meant| format!(", did you mean `{meant}`?")).unwrap_or_default();
        let known = known.join(", ");
        errors.at(&given, format!("there is no kind of device \"{name}\"{hint} (Fulgurite comes with: {known})"));
    }
    Some(given)
}

/// Reports and removes rules that make kernels for a kind of device that the executor does not run on.
fn never_run(device: &LitStr, rules: &mut Vec<Rule>, errors: &mut Errors) {
    let pairs = [(RuleKind::Prepare, RuleKind::Plan), (RuleKind::PrepareRegion, RuleKind::PlanRegion)];
    for (host, other) in pairs {
        let (idle, needed) = match device.value().as_str() {
            "cpu" => (other, host),
            _ => (host, other),
        };
        for rule in rules.iter().filter(|rule| rule.kind == idle) {
            let device = device.value();
            errors.at(
                &rule.function.sig.ident,
                format!(
                    "`{idle}` is never run: on {device} the rule is `{needed}`; an executor has one kind of device"
                ),
            );
        }
        rules.retain(|rule| rule.kind != idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with an executor of this kind of device.
    fn said(device: &str) -> Vec<String> {
        let mut errors = Errors::default();
        let item = "/// Kernels.\npub mod fast {}".parse().unwrap();
        read(format!("device = {device:?}").parse().unwrap(), item, &mut errors);
        errors.messages()
    }

    #[test]
    fn kinds_of_devices_are_an_open_set() {
        for device in ["cpu", "cuda", "npu", "gpu", "tpu", "sim"] {
            assert_eq!(said(device), [""; 0], "{device}");
        }
        for (device, meant) in [("cdua", "`cuda`"), ("cuda1", "`cuda`"), ("cp", "`cpu`")] {
            let said = said(device);
            assert!(said.len() == 1 && said[0].contains(&format!("did you mean {meant}?")), "{said:?}");
        }
        assert!(said("an npu")[0].contains("no kind of device"));
    }
}
