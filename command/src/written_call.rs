//! A call of an operator whose arguments are written on the command line: `NAME=VALUE`, tensors as their types.

use fulgurite::argument::{Arg, Scalar, map_arguments};
use fulgurite::operator::OperatorDef;
use fulgurite::{DType, Target, TensorMeta};

use super::outcome::Failed;
use crate::cases::{Value, bind};

/// Lists within lists are read to this depth.
const MOST_DEPTH: usize = 8;

/// The arguments of `def` as they are written in `given`; the others have their defaults. Tensors are on the target's
/// device.
///
/// # Errors
/// What is wrong, with the option's name.
pub fn arguments(def: &OperatorDef, given: &[String], target: &Target) -> Result<Vec<Arg<TensorMeta>>, Failed> {
    let failed = |text: &str, reason: String| Failed(format!("--argument '{text}': {reason}"));
    let mut named: Vec<(String, Value)> = Vec::new();
    for text in given {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| failed(text, "expected NAME=VALUE, such as input=f32[4096,768] or dim=-1".into()))?;
        let name = name.trim().to_owned();
        if named.iter().any(|(known, _)| *known == name) {
            return Err(failed(text, format!("'{name}' is given twice")));
        }
        named.push((name, value_of(value, 0).map_err(|reason| failed(text, reason))?));
    }
    let keys = bind(def, &named).map_err(|error| Failed(format!("--argument: {}", error.message)))?;
    let device = target.device();
    // Each key is a type that was read before.
    Ok(map_arguments(&keys, |key| {
        let (dtype, shape) = tensor(key).and_then(Result::ok).unwrap_or((DType::F32, Vec::new()));
        TensorMeta::new(&shape, dtype, device)
    }))
}

/// The element type of the first tensor of floating-point numbers that is given.
pub fn dtype(given: &[String]) -> Option<DType> {
    let types = given.iter().filter_map(|text| tensor(text.split_once('=')?.1)?.ok());
    types.map(|(dtype, _)| dtype).find(|dtype| dtype.is_floating())
}

/// A tensor's type (`f32[4096,768]`), a list in brackets, a number, `true`, `false`, `null` or `none`, or a text.
fn value_of(text: &str, depth: usize) -> Result<Value, String> {
    let text = text.trim();
    if let Some(tensor) = tensor(text) {
        return tensor.map(|_| Value::Tensor(text.to_owned()));
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        if depth == MOST_DEPTH {
            return Err(format!("lists within lists go {MOST_DEPTH} deep at most"));
        }
        return items(inner)
            .into_iter()
            .map(|item| value_of(item, depth + 1))
            .collect::<Result<_, _>>()
            .map(Value::List);
    }
    let number = |scalar| Ok(Value::Number(scalar));
    match text {
        "true" => return number(Scalar::Bool(true)),
        "false" => return number(Scalar::Bool(false)),
        "null" | "none" => return Ok(Value::Null),
        _ => {}
    }
    if let Ok(integer) = text.parse() {
        return number(Scalar::Int(integer));
    }
    match text.parse() {
        Ok(float) => number(Scalar::Float(float)),
        Err(_) => Ok(Value::Text(text.trim_matches('"').to_owned())),
    }
}

/// Element type and extents of `f32[4096,768]`; `None` for what does not begin as a type does.
fn tensor(text: &str) -> Option<Result<(DType, Vec<usize>), String>> {
    let (dtype, extents) = text.trim().split_once('[')?;
    let dtype = DType::ALL.into_iter().find(|known| known.name() == dtype.trim())?;
    let read = || {
        let wrong = || format!("is '{text}', expected a type such as f32[4096,768]");
        let extents = extents.strip_suffix(']').ok_or_else(wrong)?;
        let shape: Vec<usize> = items(extents)
            .into_iter()
            .map(|extent| extent.trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|_| wrong())?;
        TensorMeta::new(&shape, dtype, fulgurite::Device::CPU).addressable().map_err(|error| error.to_string())?;
        Ok((dtype, shape))
    };
    Some(read())
}

/// What commas separate that are in no brackets.
fn items(text: &str) -> Vec<&str> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let (mut depth, mut from, mut items) = (0_usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                items.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[from..]);
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::resolve_operator;

    fn call(name: &str, given: &[&str]) -> Result<String, String> {
        let def = resolve_operator(name).unwrap();
        let given: Vec<String> = given.iter().map(|&text| text.to_owned()).collect();
        match arguments(def, &given, &Target::cpu()) {
            Ok(arguments) => {
                let tensors: Vec<String> =
                    arguments.iter().flat_map(Arg::tensors).map(|tensor| tensor.to_string()).collect();
                Ok(tensors.join(" "))
            }
            Err(Failed(message)) => Err(message),
        }
    }

    #[test]
    fn arguments_are_types_lists_numbers_and_texts() {
        assert_eq!(call("gelu", &["input=bf16[4096, 768]", "approximate=tanh"]).unwrap(), "bf16[4096, 768]");
        let norm = ["input=f32[8,4]", "normalized_shape=[4]", "weight=f32[4]"];
        assert_eq!(call("layer_norm", &norm).unwrap(), "f32[8, 4] f32[4]");
        assert_eq!(call("cat", &["tensors=[f32[2,3],f32[4,3]]", "dim=0"]).unwrap(), "f32[2, 3] f32[4, 3]");
        assert_eq!(call("softmax", &["input=f32[]", "dim=-1"]).unwrap(), "f32[]");
        assert_eq!(value_of("[1,[2.5,true],none]", 0).unwrap().to_string(), "[1, [2.5, true], null]");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, given, expected) in [
            ("gelu", &["f32[4]"][..], "--argument 'f32[4]': expected NAME=VALUE, such as input=f32[4096,768]"),
            ("gelu", &["input=f32[4"], "is 'f32[4', expected a type such as f32[4096,768]"),
            ("gelu", &["input=f32[-1]"], "is 'f32[-1]', expected a type"),
            ("gelu", &["input=f32[4]", "input=f32[4]"], "'input' is given twice"),
            ("gelu", &["inputs=f32[4]"], "gelu has no argument 'inputs' (did you mean 'input'?)"),
            ("layer_norm", &["input=f32[4]"], "layer_norm needs the argument 'normalized_shape'"),
            ("gelu", &["input=f32[9223372036854775807]"], "--argument 'input="),
            ("gelu", &["input=f32[4]", "approximate=tan"], "argument 'approximate'"),
        ] {
            let message = call(name, given).unwrap_err();
            assert!(message.contains(expected), "{given:?}: {message}");
        }
        assert!(value_of(&"[".repeat(100), 0).is_ok(), "a text");
        let deep = format!("{}{}", "[".repeat(20), "]".repeat(20));
        assert!(value_of(&deep, 0).unwrap_err().contains("8 deep at most"));
    }
}
