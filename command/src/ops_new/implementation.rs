//! What `ops new --implementation` writes: a checker, and a kernel that takes the operator's tensors by name.

use std::path::{Component, Path};

use fulgurite::DType;
use fulgurite::operator::{OperatorDef, ParamDef, ParamKind, ResultsDef, RuleSet};
use fulgurite::transforms::autodiff::rules::GradientRules;

use super::known;
use super::plan::other_plan;
use super::surroundings::Surroundings;

/// The folders between a crate's `src` and the file, as modules; `None` if no folder is called so.
fn modules_above(file: &Path) -> Option<Vec<String>> {
    let parts: Vec<String> = file
        .parent()?
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    let source = parts.iter().rposition(|part| part == "src")?;
    Some(parts[source + 1..].to_vec())
}

/// Whether the library declares the operator.
fn of_library(of: &OperatorDef) -> bool {
    of.package == "fulgurite-ops"
}

/// The path of the operator's module where a file that becomes `path` has to import it: an operator of a crate outside
/// of this repository, which the prelude does not have.
pub(super) fn module_of(of: &OperatorDef, surroundings: Surroundings, path: &Path) -> Option<String> {
    if surroundings != Surroundings::Outside || of_library(of) {
        return None;
    }
    let short = of.short_name();
    let own = modules_above(Path::new(of.file)).unwrap_or_default();
    let here = modules_above(&std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    match here {
        Some(here) if here != own => {
            Some(format!("crate::{}", own.join("::") + if own.is_empty() { "" } else { "::" } + short))
        }
        _ => Some(format!("super::{short}")),
    }
}

/// How the file's crate names the module of an operator.
fn path_of(of: &OperatorDef, surroundings: Surroundings) -> String {
    let short = of.short_name();
    // `ops/src/nn/relu.rs`
    let folder = of.file.split_once("ops/src/").and_then(|(_, rest)| rest.split_once('/')).map(|(folder, _)| folder);
    match (surroundings, folder.filter(|_| of_library(of))) {
        (Surroundings::Operators, Some(folder)) => format!("crate::{folder}::{short}"),
        (Surroundings::BesideOperators, Some(folder)) => format!("fulgurite_ops::{folder}::{short}"),
        (Surroundings::Outside, Some("prims")) => format!("fulgurite::ops::prims::{short}"),
        _ => short.to_owned(),
    }
}

/// The operator's tensors that are always there.
pub(super) fn tensors(of: &OperatorDef) -> Vec<&'static str> {
    of.params.iter().filter(|param| matches!(param.kind, ParamKind::Tensor(_))).map(|param| param.name).collect()
}

/// What a kernel calls the results; nothing for a list of them.
pub(super) fn outputs(of: &OperatorDef) -> Vec<String> {
    match of.results {
        ResultsDef::Named(names) => names.iter().map(|name| (*name).to_owned()).collect(),
        ResultsDef::List => Vec::new(),
    }
}

/// The parameters of a kernel: tensors, where those that `unused` names begin with an underscore, and results.
fn parameters(of: &OperatorDef, types: [&str; 5], unused: impl Fn(&str) -> bool) -> String {
    let [one, optional, several, result, results] = types;
    let written = |name: &str, ty: &str| format!("{}{name}: {ty}", if unused(name) { "_" } else { "" });
    let operands = of.params.iter().filter_map(|param| match param.kind {
        ParamKind::Tensor(_) => Some(written(param.name, one)),
        ParamKind::Optional(_) => Some(written(param.name, optional)),
        ParamKind::List(_) => Some(written(param.name, several)),
        _ => None,
    });
    let outputs = match of.results {
        ResultsDef::List => vec![written("out", results)],
        ResultsDef::Named(_) => outputs(of).iter().map(|name| written(name, result)).collect(),
    };
    operands.chain(outputs).collect::<Vec<_>>().join(", ")
}

fn cpu(of: &OperatorDef) -> String {
    let types = ["TensorRef", "Option<TensorRef>", "&[TensorRef]", "&mut TensorMut", "&mut [TensorMut]"];
    format!(
        "    // PLACEHOLDER: the kernel, with the arguments that it needs (an underscore marks an unused one). Use
    // `execution` instead to call kernel symbols.
    fn cpu({}) -> Result<()> {{
        todo!(\"{{}}: write the kernel at PLACEHOLDER\", file!())
    }}
",
        parameters(of, types, |_| true)
    )
}

/// Types of what a rule `plan` takes.
const PLANNED: [&str; 5] =
    ["&DeviceTensor", "Option<&DeviceTensor>", "&[DeviceTensor]", "&DeviceTensor", "&[DeviceTensor]"];

/// The launch of a CUDA kernel.
fn plan(name: &str, of: &OperatorDef) -> String {
    let (inputs, outputs) = (tensors(of), outputs(of));
    let bound = |name: &str| inputs.contains(&name) || outputs.iter().any(|own| own == name);
    let first = outputs.first();
    let count = first.map_or("0usize".to_owned(), |out| format!("{out}.meta.len()"));
    let binds: Vec<&str> = inputs.iter().copied().chain(outputs.iter().map(String::as_str)).chain(["count"]).collect();
    format!(
        "    // PLACEHOLDER: the launch of the kernel in {name}.cu: its name, its grid, and its
    // arguments in the order of its parameters. Use `execution` instead to call kernel symbols.
    fn plan(plan: &mut Plan, {}) -> Result<()> {{
        let count = {count};
        if count == 0 {{
            return Ok(());
        }}
        plan.source(source_files![\"{name}.cu\"]);
        let shape = LaunchShape::linear(count.div_ceil(256) as u32, 256);
        plan.launch(\"{name}\", shape, binds![{}])
    }}
",
        parameters(of, PLANNED, |name| !bound(name)),
        binds.join(", ")
    )
}

/// The gradient, of an operator that has one and returns as many tensors as its signature says.
fn grad(of: &OperatorDef, path: &str) -> String {
    let names = outputs(of);
    let differentiable = |param: &&ParamDef| match param.kind {
        ParamKind::Tensor(class) | ParamKind::Optional(class) | ParamKind::List(class) | ParamKind::Operand(class) => {
            class.accepts(DType::F32)
        }
        ParamKind::Attribute => false,
    };
    if GradientRules::of(of).no_grad.is_some()
        || names.is_empty()
        || !of.params.iter().any(|param| differentiable(&param))
    {
        return String::new();
    }
    let fields = of.params.iter().filter(|param| param.kind != ParamKind::Attribute);
    let fields: Vec<&str> = fields.map(|param| param.name).collect();
    let fields = fields.join(", ");
    let all =
        |one: &str| if names.len() == 1 { one.to_owned() } else { format!("({})", vec![one; names.len()].join(", ")) };
    let results = all("Tensor");
    let cotangents = if names.len() == 1 { "Tensor".to_owned() } else { all("Option<Tensor>") };
    let called: Vec<String> = names.iter().map(|name| format!("d_{name}")).collect();
    let (pattern, shown) = match &called[..] {
        [one] => (one.clone(), format!("{{{one}:?}}")),
        several => (
            format!("({})", several.join(", ")),
            several.iter().map(|one| format!("{{{one}:?}}")).collect::<Vec<_>>().join(", "),
        ),
    };
    format!(
        "
    // PLACEHOLDER: the results by kernels of this executor, and the gradients of the operands from the cotangents of
    // the results. Without the rule the gradient is the operator's own, or that of its decomposition: remove it if
    // that calls what this executor runs.
    fn grad(arguments: Arguments) -> ({results}, impl FnOnce({cotangents}) -> Grads) {{
        let results = {path}::call(arguments);
        (results, move |{pattern}: {cotangents}| -> Grads {{
            todo!(\"{{}}: write `Grads {{{{ {fields} }}}}` from {shown} at PLACEHOLDER\", file!())
        }})
    }}
"
    )
}

/// The declaration.
pub(super) fn text(name: &str, executor: &str, of: &OperatorDef, surroundings: Surroundings, device: &str) -> String {
    let (checked, check) = match tensors(of).first() {
        Some(first) => (
            format!("{first}: &TensorMeta"),
            format!(
                "        refuse_unless!({first}.dtype() == DType::F32, \"{first} is {{}}, takes f32\", \
                 {first}.dtype());\n"
            ),
        ),
        None => (String::new(), String::new()),
    };
    let path = path_of(of, surroundings);
    let kernel = match device {
        known::HOST => cpu(of),
        known::CUDA => plan(name, of),
        other => other_plan(other, &parameters(of, PLANNED, |_| true)),
    };
    let grad = grad(of, &path);
    format!(
        "\
#[implementation(of = {path}, by = {executor})]
mod {name} {{
    // PLACEHOLDER: accept the calls that it can run, and refuse the others with a reason. Arguments are taken by name.
    fn checker({checked}) -> Claim {{
{check}        Ok(())
    }}

{kernel}{grad}}}
"
    )
}
