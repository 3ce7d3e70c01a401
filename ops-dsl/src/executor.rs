//! `#[executor]`: a named set of kernel symbols and implementations.

use proc_macro2::{Ident, TokenStream};
use syn::parse::Parser;
use syn::{Attribute, Expr, ItemStatic, LitInt, LitStr, Visibility};

use crate::declaration::{Rule, parts};
use crate::errors::{Errors, slip_of};
use crate::options;
use crate::parse::{self, Entry, Module, Setting, Value};
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
    /// Its version, if it is not the package's.
    pub version: Option<LitStr>,
    /// Its options.
    pub options: Vec<DeclaredOption>,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// Helpers and other items.
    pub others: Vec<TokenStream>,
}

/// An option: `#[option] pub static BLOCK: usize = 256;`.
#[derive(Debug)]
pub struct DeclaredOption {
    /// The static, without the attribute.
    pub item: ItemStatic,
    /// The option's name: that of the static in small letters.
    pub name: String,
    /// Documentation.
    pub docs: String,
}

/// Reads a declaration; `None` if nothing can be made of it.
pub fn read(attribute: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Executor> {
    let settings = errors.keep(parse::settings.parse2(attribute)).unwrap_or_default();
    let (mut device, mut priority, mut strided, mut precision) = (None, None, false, None);
    let (mut strided_results, mut precisions, mut version) = (None, Vec::new(), None);
    options::once(&settings, &[], errors);
    for setting in &settings {
        match (setting.name.to_string().as_str(), &setting.value) {
            ("device", _) => device = kind_of_device(setting, errors),
            ("priority", Value::Equals(value)) => priority = Some((**value).clone()),
            ("priority", _) => errors.at(setting, "write `priority = 10`: lower comes earlier in the default list"),
            ("strided", _) => strided = options::flag(setting, errors),
            ("strided_results", _) => strided_results = options::strided_results(setting, errors),
            ("precision", _) => precision = options::precision(setting, errors),
            ("version", _) => version = options::text(setting, errors),
            ("precisions", _) => precisions = options::precisions(setting, errors),
            _ => options::unknown(
                setting,
                "`#[executor]`",
                &["device", "priority", "version", "strided", "strided_results", "precision", "precisions"],
                errors,
            ),
        }
    }
    let module: Module = errors.keep(syn::parse2(item))?;
    let (declared, entries) = declared_options(module.entries, errors);
    let mut parts = parts(entries, &EXECUTOR_RULES, errors);
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
        version,
        options: declared,
        rules: parts.rules,
        others: parts.others,
    })
}

/// The options among the entries of a module, and the other entries.
fn declared_options(entries: Vec<Entry>, errors: &mut Errors) -> (Vec<DeclaredOption>, Vec<Entry>) {
    let mut declared = Vec::new();
    let mut others = Vec::new();
    for entry in entries {
        let item = match &entry {
            Entry::Other(tokens) => syn::parse2::<ItemStatic>(tokens.clone()).ok(),
            Entry::Function(_) => None,
        };
        let Some(mut item) = item.filter(|item| item.attrs.iter().any(is_option)) else {
            others.push(entry);
            continue;
        };
        item.attrs.retain(|attribute| !is_option(attribute));
        let docs = parse::documentation(&item.attrs);
        if docs.is_empty() {
            errors.at(&item.ident, "say in a documentation comment what the option does: the command shows it");
        }
        declared.push(DeclaredOption { name: item.ident.to_string().to_lowercase(), item, docs });
    }
    (declared, others)
}

fn is_option(attribute: &Attribute) -> bool {
    attribute.path().is_ident("option")
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

    #[test]
    fn options_and_precisions_say_what_they_are() {
        let said = |settings: &str, inside: &str| {
            let mut errors = Errors::default();
            let item = format!("/// Kernels.\npub mod fast {{ {inside} }}").parse().unwrap();
            let executor = read(format!("device = \"cpu\", {settings}").parse().unwrap(), item, &mut errors);
            (errors.messages(), executor.unwrap().options.iter().map(|option| option.name.clone()).collect::<Vec<_>>())
        };
        let good = "/// How much.\n#[option]\npub static BLOCK: usize = 256;\nstatic OTHER: usize = 1;";
        assert_eq!(said("precisions(fast_tf32 = tf32), version = \"2\"", good), (vec![], vec!["block".to_owned()]));
        let (undocumented, _) = said("priority = 1", "#[option] pub static BLOCK: usize = 256;");
        assert!(undocumented[0].contains("say in a documentation comment what the option does"), "{undocumented:?}");
        let (unknown, _) = said("precisions(fast_tf32 = tf31)", "");
        assert!(unknown[0].contains("there is no precision `tf31`, did you mean `tf32`?"), "{unknown:?}");
    }
}
