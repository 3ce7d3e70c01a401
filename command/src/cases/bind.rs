//! Arguments as they are written, made into the arguments of an operator.

use fulgurite::DType;
use fulgurite::argument::{Arg, Attribute, Scalar};
use fulgurite::kernels::dtype::UnknownDType;
use fulgurite::operator::{OperatorDef, ParamDef, ParamKind, nearest};

use super::{CaseError, Value};

/// The arguments of `def` in the order of its signature, with keys in place of tensors.
pub fn bind(def: &OperatorDef, given: &[(String, Value)]) -> Result<Vec<Arg<String>>, CaseError> {
    for (name, _) in given {
        if def.param(name).is_none() {
            let hint = nearest(name, def.params.iter().map(|param| param.name))
                .filter(|_| name.len() <= 64)
                .map(|near| format!(" (did you mean '{near}'?)"))
                .unwrap_or_default();
            let shown: String = name.chars().take(64).collect();
            return Err(CaseError::new(
                "UnknownArgument",
                format!("{} has no argument '{shown}'{hint}: {}", def.name, def.signature()),
            ));
        }
    }
    def.params
        .iter()
        .map(|param| match given.iter().find(|(name, _)| name == param.name) {
            Some((_, value)) => argument(def, param, value),
            None => default(def, param),
        })
        .collect()
}

fn default(def: &OperatorDef, param: &ParamDef) -> Result<Arg<String>, CaseError> {
    match (param.kind, param.default) {
        (ParamKind::Optional(_), _) => Ok(Arg::Optional(None)),
        (_, Some(default)) => Ok(Arg::Attribute(default())),
        (_, None) => Err(CaseError::new(
            "MissingArgument",
            format!("{} needs the argument '{}': {}", def.name, param.name, def.signature()),
        )),
    }
}

fn argument(def: &OperatorDef, param: &ParamDef, value: &Value) -> Result<Arg<String>, CaseError> {
    let of = format!("{}: argument '{}'", def.name, param.name);
    let wrong = || {
        let type_name = (param.type_name)();
        CaseError::new("ArgumentType", format!("{of} is {type_name}, got {value}"))
    };
    match (param.kind, value) {
        (ParamKind::Tensor(_) | ParamKind::Operand(_), Value::Tensor(key)) => Ok(Arg::Tensor(key.clone())),
        (ParamKind::Operand(_), Value::Number(number)) => Ok(Arg::Attribute(Attribute::Scalar(*number))),
        (ParamKind::Optional(_), Value::Null) => Ok(Arg::Optional(None)),
        (ParamKind::Optional(_), Value::Tensor(key)) => Ok(Arg::Optional(Some(key.clone()))),
        (ParamKind::List(_), Value::List(items)) => items
            .iter()
            .map(|item| match item {
                Value::Tensor(key) => Ok(key.clone()),
                _ => Err(wrong()),
            })
            .collect::<Result<_, _>>()
            .map(Arg::List),
        (ParamKind::Attribute, value) => {
            let type_name = (param.type_name)();
            coerce(&type_name, value).map(Arg::Attribute).ok_or_else(|| match unknown_dtype(&type_name, value) {
                Some(error) => CaseError::new("ArgumentType", format!("{of}: {error}")),
                None => wrong(),
            })
        }
        _ => Err(wrong()),
    }
}

/// Why a text is no element type, where one is asked for: the error has their names.
fn unknown_dtype(type_name: &str, value: &Value) -> Option<UnknownDType> {
    match value {
        Value::Text(name) if type_name.trim_end_matches(['?', '[', ']']) == "dtype" => name.parse::<DType>().err(),
        _ => None,
    }
}

/// The value as an attribute of the type that a signature names, as PyTorch would take it: integers and booleans are
/// floats where floats are asked for, and one value is a list where a list is.
fn coerce(type_name: &str, value: &Value) -> Option<Attribute> {
    let scalar = |scalar| Some(Attribute::Scalar(scalar));
    if let Some(inner) = type_name.strip_suffix('?') {
        return if *value == Value::Null { Some(Attribute::None) } else { coerce(inner, value) };
    }
    if let Some(inner) = type_name.strip_suffix("[]") {
        return match value {
            Value::List(items) => {
                items.iter().map(|item| coerce(inner, item)).collect::<Option<_>>().map(Attribute::List)
            }
            single => coerce(inner, single).filter(|a| *a != Attribute::None).map(|a| Attribute::List([a].into())),
        };
    }
    match (type_name, value) {
        ("bool", Value::Number(Scalar::Bool(value))) => scalar(Scalar::Bool(*value)),
        ("bool", Value::Number(Scalar::Int(value @ (0 | 1)))) => scalar(Scalar::Bool(*value == 1)),
        ("int", Value::Number(number @ (Scalar::Int(_) | Scalar::Bool(_)))) => scalar(Scalar::Int(number.to_i64())),
        ("size", Value::Number(Scalar::Int(value @ 0..))) => scalar(Scalar::Int(*value)),
        ("float", Value::Number(number)) => scalar(Scalar::Float(number.to_f64())),
        ("number", Value::Number(number)) => scalar(*number),
        ("str", Value::Text(text)) => Some(Attribute::Text(text.as_str().into())),
        ("dtype", Value::DType(dtype)) => Some(Attribute::DType(*dtype)),
        ("dtype", Value::Text(name)) => name.parse().ok().map(Attribute::DType),
        (variants, Value::Text(text)) if variants.starts_with('"') => {
            let known = variants.split('|').any(|variant| variant == format!("{text:?}"));
            known.then(|| Attribute::Text(text.as_str().into()))
        }
        // A type of the author's own, whose rules check it.
        (_, Value::Number(number)) if !KNOWN.contains(&type_name) && !type_name.starts_with('"') => scalar(*number),
        (_, Value::Text(text)) if !KNOWN.contains(&type_name) => Some(Attribute::Text(text.as_str().into())),
        (own, Value::List(items)) if !KNOWN.contains(&own) && !own.starts_with('"') => {
            items.iter().map(|item| coerce(own, item)).collect::<Option<_>>().map(Attribute::List)
        }
        _ => None,
    }
}

/// The types of attributes that this module knows by name.
const KNOWN: [&str; 7] = ["bool", "int", "size", "float", "number", "str", "dtype"];

#[cfg(test)]
mod tests {
    use super::*;

    fn int(value: i64) -> Value {
        Value::Number(Scalar::Int(value))
    }

    #[test]
    fn values_become_attributes() {
        let text = |type_name, value: Value| coerce(type_name, &value).map(|attribute| attribute.to_string());
        assert_eq!(text("float", int(1)).as_deref(), Some("1.0"));
        assert_eq!(text("float?", Value::Null).as_deref(), Some("none"));
        assert_eq!(text("number", int(1)).as_deref(), Some("1"));
        assert_eq!(text("int[]", int(-1)).as_deref(), Some("[-1]"));
        assert_eq!(text("int[]?", Value::Null).as_deref(), Some("none"));
        assert_eq!(
            text("int[][]", Value::List(vec![int(1), Value::List(vec![int(2), int(3)])])).as_deref(),
            Some("[[1], [2, 3]]")
        );
        assert_eq!(text("bool", int(1)).as_deref(), Some("true"));
        assert_eq!(text("dtype", Value::Text("torch.float32".into())).as_deref(), Some("f32"));
        assert_eq!(text("dtype?", Value::DType(DType::BF16)).as_deref(), Some("bf16"));
        assert_eq!(text("\"none\"|\"tanh\"", Value::Text("tanh".into())).as_deref(), Some("\"tanh\""));
        assert_eq!(text("\"none\"|\"tanh\"", Value::Text("tan".into())), None);
        assert_eq!(text("\"none\"|\"tanh\"", int(1)), None);
        assert_eq!(text("size", int(-1)), None);
        assert_eq!(text("int", Value::Number(Scalar::Float(1.0))), None);
        assert_eq!(text("bool", int(2)), None);
        assert_eq!(text("float", Value::Null), None);
    }
}
