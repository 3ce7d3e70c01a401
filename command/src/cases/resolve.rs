//! Operators by their own name or by PyTorch's.

use std::borrow::Cow;

use fulgurite::argument::Scalar;
use fulgurite::operator::{OperatorDef, OperatorKind, nearest};
use fulgurite::registry::operators;

use super::{CaseBody, CaseError, Grad, Value};

/// Names longer than this get no "did you mean".
const MAX_HINT: usize = 64;

/// The operator of that name (`gelu`, `prims::exp`), or the one that mirrors that function of PyTorch
/// (`nn.functional.gelu`, with or without the prefix `torch.`).
pub fn resolve_operator(name: &str) -> Result<&'static OperatorDef, CaseError> {
    let (below_torch, torch) = match name.strip_prefix("torch.") {
        Some(below) => (below, true),
        None => (name, false),
    };
    if !torch && let Some(def) = operators().into_iter().find(|def| def.name == name) {
        return Ok(def);
    }
    // PyTorch has some functions under two names: `torch.softmax` is `nn.functional.softmax`.
    let short = below_torch.strip_prefix("nn.functional.").unwrap_or(below_torch);
    // A function of PyTorch is mirrored by an operator that promotes and broadcasts as it does, and maybe by a prim
    // below.
    let rank = |def: &OperatorDef| match def.kind {
        OperatorKind::Composite => 0,
        OperatorKind::Prim => 1,
        OperatorKind::Symbol(_) => 2,
    };
    let mirrors = operators().into_iter().filter(|def| def.torch == Some(below_torch));
    let under_two_names = operators().into_iter().filter(|def| def.torch == Some(short));
    if let Some(def) = mirrors.min_by_key(|def| rank(def)).or_else(|| under_two_names.min_by_key(|def| rank(def))) {
        return Ok(def);
    }
    let hint = hint(name);
    let shown: String = name.chars().take(MAX_HINT).collect();
    Err(CaseError::new("UnknownOperator", format!("no operator is called '{shown}'{hint}")))
}

/// `, did you mean 'x'?` for the operator whose name is near `name`, or those whose names share a part with it.
pub fn hint(name: &str) -> String {
    if name.len() > MAX_HINT {
        return String::new();
    }
    let below_torch = name.strip_prefix("torch.").unwrap_or(name);
    let candidates =
        operators().into_iter().flat_map(|def| [Some(def.name), def.torch, Some(def.short_name())]).flatten();
    // A short name stands for the whole one.
    let own = |near: &str| operators().into_iter().any(|def| def.name == near || def.torch == Some(near));
    // A word of other names is more likely one of these than a name that is spelled alike.
    let is_word = |def: &OperatorDef| def.short_name().split('_').any(|word| word == below_torch);
    let near = nearest(below_torch, candidates).filter(|_| !operators().into_iter().any(is_word));
    match near {
        Some(near) if own(near) => format!(", did you mean '{near}'?"),
        Some(near) => {
            let whole = operators().into_iter().find(|def| def.short_name() == near).map_or(near, |def| def.name);
            format!(", did you mean '{whole}'?")
        }
        None => alike(below_torch.strip_prefix("nn.functional.").unwrap_or(below_torch)),
    }
}

/// Operators shown for a name that is near to none of theirs.
const MOST_ALIKE: usize = 5;

/// The names that share the longest part with `name`, of four letters at least (or all of `name`), as a hint.
fn alike(name: &str) -> String {
    let name = name.to_lowercase();
    let least = name.len().clamp(1, 4);
    let shared = |other: &str| {
        let other = other.to_lowercase();
        let whole = |from: usize, to: usize| name.get(from..to).is_some_and(|part| other.contains(part));
        // Every part of `name`, by where it begins: the longest that `other` has, without what joins words.
        let longest = |from: usize| {
            let parts = (from + 1..=name.len()).take_while(|to| whole(from, *to));
            parts.last().map_or(0, |to| name[from..to].trim_matches('_').len())
        };
        // `h_norm` of `batch_norm` says nothing: of several words a part begins with one of them.
        let begins = |from: &usize| !name.contains('_') || *from == 0 || name.as_bytes()[*from - 1] == b'_';
        (0..name.len()).filter(begins).map(longest).max().unwrap_or(0)
    };
    let mut ranked: Vec<(usize, &str)> = operators()
        .iter()
        .map(|def| (shared(def.short_name()).max(def.torch.map_or(0, shared)), def.name))
        .filter(|(length, _)| *length >= least)
        .collect();
    // Those of the library come before those of executors.
    ranked.sort_by_key(|(length, own)| (std::cmp::Reverse(*length), own.contains("::"), *own));
    let Some((most, _)) = ranked.first().copied() else { return String::new() };
    let names: Vec<&str> =
        ranked.iter().take_while(|(length, _)| *length == most).take(MOST_ALIKE).map(|(_, own)| *own).collect();
    format!("; alike are {}", names.join(", "))
}

/// The call with the operator and the argument names of PyTorch's overload; any other call unchanged.
///
/// - `split(tensor, split_size_or_sections, dim)` with a list is `split_with_sizes`, with a number `split`;
/// - `arange(end)` begins at 0;
/// - `var(input, unbiased)` has a boolean where `var(input, dim)` has dimensions;
/// - `median(input)` and `nanmedian(input)` are of all elements;
/// - `ctc_loss` with lists of lengths is `ctc_loss_of_lengths`.
pub fn without_overloads(body: &CaseBody) -> Cow<'_, CaseBody> {
    let name = body.operator.strip_prefix("torch.").unwrap_or(&body.operator);
    let argument = |name: &str| body.arguments.iter().find(|(given, _)| given == name).map(|(_, value)| value);
    let given = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, argument(name)?)));
    let (operator, renamed): (&str, &[(&str, &str)]) = match name {
        "split" | "Tensor.split" => match given(["split_size_or_sections", "split_size"]) {
            Some((_, Value::List(_))) => (
                "split_with_sizes",
                &[("split_size_or_sections", "split_sizes"), ("split_size", "split_sizes"), ("tensor", "input")],
            ),
            Some(("split_size_or_sections", _)) => {
                ("split", &[("split_size_or_sections", "split_size"), ("tensor", "input")])
            }
            _ => return Cow::Borrowed(body),
        },
        "arange" if argument("end").is_none() && argument("start").is_some() => ("arange", &[("start", "end")]),
        "var" if matches!(argument("dim"), Some(Value::Number(Scalar::Bool(_)))) && argument("unbiased").is_none() => {
            ("var", &[("dim", "unbiased")])
        }
        "median" | "Tensor.median" if argument("dim").is_none() => ("median_of_all", &[]),
        "nanmedian" | "Tensor.nanmedian" if argument("dim").is_none() => ("nanmedian_of_all", &[]),
        "nn.functional.ctc_loss" | "ctc_loss" if matches!(argument("input_lengths"), Some(Value::List(_))) => {
            ("ctc_loss_of_lengths", &[])
        }
        _ => return Cow::Borrowed(body),
    };
    let own = |name: &String| match renamed.iter().find(|(from, _)| from == name) {
        Some((_, to)) => (*to).to_owned(),
        None => name.clone(),
    };
    let mut arguments: Vec<(String, Value)> =
        body.arguments.iter().map(|(name, value)| (own(name), value.clone())).collect();
    if operator == "arange" {
        arguments.insert(0, ("start".to_owned(), Value::Number(Scalar::Int(0))));
    }
    let grad = body.grad.clone().map(|grad| Grad { inputs: grad.inputs.iter().map(own).collect(), ..grad });
    let layout = body.layout.iter().map(|(name, strides)| (own(name), strides.clone())).collect();
    Cow::Owned(CaseBody { operator: operator.to_owned(), arguments, grad, layout })
}
