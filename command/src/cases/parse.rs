//! Reads the text of a file of cases. Whatever the text, the outcome is cases or an error that names the place.

use std::collections::{BTreeMap, HashSet};

use fulgurite::argument::Scalar;
use fulgurite::operator::nearest;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::{Case, CaseBody, CaseError, Grad, VERSION, Value};

/// Reads a file of cases. A file that does not list cases is an error with its place; a case that cannot be understood
/// is an error of its own, under its place in the list where it has no id.
pub fn parse_cases(text: &[u8]) -> Result<Vec<Case>, String> {
    // The form of the whole text first, then what each part of it means: a number beyond all numbers is the case's own
    // error.
    let whole: &RawValue = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if !whole.get().starts_with('{') {
        return Err(format!("expected an object with \"version\" and \"cases\", got {}", kind_of_text(whole)));
    }
    let file: BTreeMap<String, &RawValue> = serde_json::from_str(whole.get()).map_err(|error| error.to_string())?;
    only_fields(file.keys(), &["version", "cases"], "a file of cases")?;
    match file.get("version") {
        Some(version) if version.get().parse() == Ok(VERSION) => {}
        Some(version) => return Err(format!("version is {}, expected {VERSION}", cut(version.get()))),
        None => return Err(format!("has no \"version\", expected {VERSION}")),
    }
    let cases: Vec<&RawValue> = match file.get("cases") {
        Some(cases) if cases.get().starts_with('[') => {
            serde_json::from_str(cases.get()).map_err(|error| format!("cases: {error}"))?
        }
        Some(other) => return Err(format!("cases: expected a list, got {}", kind_of_text(other))),
        None => return Err("has no \"cases\"".into()),
    };
    let cases: Vec<Result<Json, String>> =
        cases.into_iter().map(|case| serde_json::from_str(case.get()).map_err(|error| error.to_string())).collect();
    let id_of = |case: &Result<Json, String>| match case.as_ref().ok()?.get("id")? {
        Json::String(id) if !id.is_empty() => Some(id.clone()),
        _ => None,
    };
    let given: HashSet<String> = cases.iter().filter_map(id_of).collect();
    let mut seen = HashSet::new();
    let read = |(i, case): (usize, &Result<Json, String>)| {
        let place = format!("cases[{i}]");
        let (id, wrong) = match (id_of(case), case) {
            (Some(id), _) => {
                let twice = (!seen.insert(id.clone())).then(|| format!("{place}.id: '{id}' occurs twice"));
                (id, twice)
            }
            (None, Err(error)) => (unlike(&given, &place), Some(format!("{place}: {error}"))),
            (None, Ok(case)) => {
                let message = match case.get("id") {
                    Some(other) => format!("{place}.id: expected a string that is not empty, got {}", short(other)),
                    None => format!("{place}: expected an object with an \"id\", got {}", kind(case)),
                };
                (unlike(&given, &place), Some(message))
            }
        };
        let body = match (wrong, case) {
            (Some(message), _) => Err(message),
            (None, Ok(case)) => parse_body(case),
            (None, Err(error)) => Err(error.clone()),
        };
        Case { id, body: body.map_err(|message| CaseError::new("BadCase", message)) }
    };
    Ok(cases.iter().enumerate().map(read).collect())
}

/// The name of a case that has none: its place, told apart from what others are called.
fn unlike(given: &HashSet<String>, place: &str) -> String {
    let mut name = place.to_owned();
    while given.contains(&name) {
        name.push('\'');
    }
    name
}

/// The fields of a case.
const FIELDS: [&str; 7] = ["id", "op", "args", "grad", "layout", "torch", "digest"];

/// Refuses fields other than `known`.
fn only_fields<'a>(mut fields: impl Iterator<Item = &'a String>, known: &[&str], of: &str) -> Result<(), String> {
    let Some(field) = fields.find(|field| !known.contains(&field.as_str())) else { return Ok(()) };
    // Names of any length may come; hints are for those that could be meant.
    let near = if field.len() > 64 { None } else { nearest(field, known.iter().copied()) };
    let hint = near.map(|near| format!(", did you mean '{near}'?")).unwrap_or_default();
    let shown: String = field.chars().take(64).collect();
    Err(format!("{of} has no field '{shown}'{hint} (its fields: {})", known.join(", ")))
}

fn parse_body(case: &Json) -> Result<CaseBody, String> {
    if let Json::Object(fields) = case {
        only_fields(fields.keys(), &FIELDS, "a case")?;
    }
    let operator = match case.get("op") {
        Some(Json::String(name)) => name.clone(),
        Some(other) => return Err(format!("op: expected a string, got {}", short(other))),
        None => return Err("has no \"op\"".into()),
    };
    let arguments = match case.get("args") {
        Some(Json::Object(arguments)) => arguments
            .iter()
            .map(|(name, value)| Ok((name.clone(), parse_value(value, &format!("args.{name}"))?)))
            .collect::<Result<_, String>>()?,
        Some(other) => return Err(format!("args: expected an object, got {}", short(other))),
        None => Vec::new(),
    };
    let grad = match case.get("grad") {
        None | Some(Json::Null) => None,
        Some(Json::Object(grad)) => {
            only_fields(grad.keys(), &["cotangents", "inputs"], "grad")?;
            Some(Grad {
                cotangents: parse_names(grad.get("cotangents"), "grad.cotangents")?,
                inputs: parse_names(grad.get("inputs"), "grad.inputs")?,
            })
        }
        Some(other) => return Err(format!("grad: expected an object, got {}", short(other))),
    };
    let layout = match case.get("layout") {
        None | Some(Json::Null) => Vec::new(),
        Some(Json::Object(layout)) => layout
            .iter()
            .map(|(name, strides)| Ok((name.clone(), parse_strides(strides, &format!("layout.{name}"))?)))
            .collect::<Result<_, String>>()?,
        Some(other) => return Err(format!("layout: expected an object, got {}", short(other))),
    };
    Ok(CaseBody { operator, arguments, grad, layout })
}

fn parse_strides(value: &Json, place: &str) -> Result<Vec<i64>, String> {
    let Json::Array(items) = value else {
        return Err(format!("{place}: expected a list of strides, got {}", short(value)));
    };
    let number = |(i, item): (usize, &Json)| match item.as_i64() {
        Some(stride) => Ok(stride),
        None => Err(format!("{place}[{i}]: expected an integer, got {}", short(item))),
    };
    items.iter().enumerate().map(number).collect()
}

fn parse_names(value: Option<&Json>, place: &str) -> Result<Vec<String>, String> {
    let Some(Json::Array(items)) = value else {
        return Err(format!("{place}: expected a list of strings, got {}", value.map_or("nothing".into(), short)));
    };
    items
        .iter()
        .enumerate()
        .map(|(i, item)| match item {
            Json::String(name) => Ok(name.clone()),
            other => Err(format!("{place}[{i}]: expected a string, got {}", short(other))),
        })
        .collect()
}

fn parse_value(value: &Json, place: &str) -> Result<Value, String> {
    match value {
        Json::Null => Ok(Value::Null),
        Json::Bool(value) => Ok(Value::Number(Scalar::Bool(*value))),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), ..) => Ok(Value::Number(Scalar::Int(value))),
            (None, Some(value), _) => Err(format!("{place}: {value} does not fit a 64-bit signed integer")),
            (None, None, Some(value)) => Ok(Value::Number(Scalar::Float(value))),
            (None, None, None) => Err(format!("{place}: {number} is out of range")),
        },
        Json::String(text) => Ok(Value::Text(text.clone())),
        Json::Array(items) => items
            .iter()
            .enumerate()
            .map(|(i, item)| parse_value(item, &format!("{place}[{i}]")))
            .collect::<Result<_, _>>()
            .map(Value::List),
        Json::Object(object) => {
            let mut fields = object.iter();
            let (Some((form, value)), None) = (fields.next(), fields.next()) else {
                return Err(format!(
                    "{place}: expected {{\"tensor\": key}}, {{\"number\": \"inf\"}} or {{\"dtype\": name}}, got {}",
                    short(&Json::Object(object.clone()))
                ));
            };
            parse_form(form, value, place)
        }
    }
}

fn parse_form(form: &str, value: &Json, place: &str) -> Result<Value, String> {
    match (form, value) {
        ("tensor", Json::String(key)) => Ok(Value::Tensor(key.clone())),
        ("number", Json::Number(_)) => parse_value(value, place),
        ("number", Json::String(name)) => match name.as_str() {
            "inf" => Ok(Value::Number(Scalar::Float(f64::INFINITY))),
            "-inf" => Ok(Value::Number(Scalar::Float(f64::NEG_INFINITY))),
            "nan" => Ok(Value::Number(Scalar::Float(f64::NAN))),
            _ => Err(format!("{place}: expected \"inf\", \"-inf\" or \"nan\", got {}", short(value))),
        },
        ("dtype", Json::String(name)) => name.parse().map(Value::DType).map_err(|error| format!("{place}: {error}")),
        ("tensor" | "number" | "dtype", _) => Err(format!("{place}.{form}: expected a string, got {}", short(value))),
        _ => Err(format!("{place}: expected \"tensor\", \"number\" or \"dtype\", got {}", short(&form.into()))),
    }
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

fn kind_of_text(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'n') => "null",
        Some(b't' | b'f') => "a boolean",
        Some(b'"') => "a string",
        Some(b'[') => "a list",
        Some(b'{') => "an object",
        _ => "a number",
    }
}

/// The value as text, cut short if it is long.
fn short(value: &Json) -> String {
    cut(&value.to_string())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
