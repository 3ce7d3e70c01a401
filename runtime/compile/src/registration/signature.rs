//! Signatures as text: `(input: tensor<floating>, eps: float = 1e-5, mode: "none"|"mean" = "mean") -> tensor`.

use crate::argument::Attribute;
use crate::operator::{Class, ParamDef, ParamKind, ResultsDef};
use crate::trace::{attribute_from_text, fits_type};

use super::{leaked, leaked_text, names};

/// What a signature says.
#[derive(Debug)]
pub(super) struct Signature {
    pub(super) params: &'static [ParamDef],
    pub(super) results: ResultsDef,
}

/// Reads a signature.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn parse(text: &str) -> Result<Signature, String> {
    let wrong = |message: String| format!("the signature '{text}' cannot be read: {message}");
    let (params, results) = text.rsplit_once("->").ok_or_else(|| wrong("expected '-> tensor' at its end".into()))?;
    let inner = params.trim().strip_prefix('(').and_then(|params| params.strip_suffix(')'));
    let inner = inner.ok_or_else(|| wrong("expected parameters in parentheses before '->'".into()))?;
    let mut all: Vec<ParamDef> = Vec::new();
    for one in split(inner).into_iter().filter(|one| !one.trim().is_empty()) {
        let param = parameter(one.trim()).map_err(&wrong)?;
        if all.iter().any(|known| known.name == param.name) {
            return Err(wrong(format!("two parameters are called '{}'", param.name)));
        }
        if param.default.is_none() && all.last().is_some_and(|last| last.default.is_some()) {
            return Err(wrong(format!("'{}' has no default, and comes after one that has", param.name)));
        }
        all.push(param);
    }
    let results = match results.trim() {
        "tensor" => ResultsDef::Named(&["out"]),
        "tensor[]" => ResultsDef::List,
        tuple => {
            let inner = tuple.strip_prefix('(').and_then(|tuple| tuple.strip_suffix(')'));
            let items: Vec<&str> = inner.map_or_else(Vec::new, |inner| inner.split(',').map(str::trim).collect());
            let name =
                |item: &&str| item.strip_suffix("tensor")?.trim().strip_suffix(':').map(|name| name.trim().to_owned());
            let names: Option<Vec<String>> = items.iter().map(name).collect();
            let Some(names) = names.filter(|names| names.len() > 1) else {
                let expected = "expected 'tensor', 'tensor[]' or '(values: tensor, indices: tensor)'";
                return Err(wrong(format!("its results are '{tuple}', {expected}")));
            };
            for (i, name) in names.iter().enumerate() {
                names::result(name).map_err(&wrong)?;
                if names[..i].contains(name) || all.iter().any(|param| param.name == name) {
                    return Err(wrong(format!("the result '{name}' needs a name of its own")));
                }
            }
            // Records live as long as the process.
            let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
            ResultsDef::Named(names.leak())
        }
    };
    Ok(Signature { params: all.leak(), results })
}

/// The bytes at which `mark` is in no string, list or class.
fn marks(text: &str, mark: char) -> Vec<usize> {
    let (mut places, mut depth, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '[' | '<' => depth += 1,
            ']' | '>' => depth -= 1,
            _ if c == mark && depth == 0 => places.push(at),
            _ => {}
        }
    }
    places
}

/// The pieces between commas.
fn split(text: &str) -> Vec<&str> {
    let (mut pieces, mut start) = (Vec::new(), 0);
    for at in marks(text, ',') {
        pieces.push(&text[start..at]);
        start = at + 1;
    }
    pieces.push(&text[start..]);
    pieces
}

fn parameter(text: &str) -> Result<ParamDef, String> {
    let (name, rest) = text.split_once(':').ok_or_else(|| format!("'{text}' has no type, expected 'NAME: TYPE'"))?;
    let name = name.trim();
    names::parameter(name)?;
    let (type_text, default) = match marks(rest, '=').first() {
        Some(at) => (rest[..*at].trim(), Some(rest[at + 1..].trim())),
        None => (rest.trim(), None),
    };
    let default = default.map(|text| attribute_from_text(text).map_err(|error| format!("'{name}': {error}")));
    let default = default.transpose()?;
    let (kind, type_name) = kind_of(type_text).map_err(|message| format!("'{name}': {message}"))?;
    let allowed = default.as_ref().is_none_or(|default| match kind {
        ParamKind::Tensor(_) | ParamKind::List(_) => false,
        ParamKind::Optional(_) => *default == Attribute::None,
        ParamKind::Operand(_) => matches!(default, Attribute::Scalar(_)),
        ParamKind::Attribute => fits_type(type_name, default),
    });
    if let Some(default) = default.as_ref().filter(|_| !allowed) {
        return Err(format!("'{name}': {default} cannot be the default of a {type_name}"));
    }
    let is_attribute = kind == ParamKind::Attribute;
    Ok(ParamDef {
        name: leaked_text(name),
        kind,
        type_name: leaked(move || type_name.to_owned()),
        rust_enum: &|| None,
        accepts: leaked(move |given: &Attribute| !is_attribute || fits_type(type_name, given)),
        default: default.map(|default| {
            let rule: crate::operator::DefaultRule = leaked(move || default.clone());
            rule
        }),
        accumulates: false,
    })
}

/// The kind of a type, and the type's name as signatures print it.
fn kind_of(text: &str) -> Result<(ParamKind, &'static str), String> {
    if let Some(rest) = text.strip_prefix("tensor") {
        let (class, rest) = match rest.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
            Some((class, rest)) => (class_of(class.trim())?, rest),
            None => (Class::Any, rest),
        };
        return match rest.trim() {
            "" => Ok((ParamKind::Tensor(class), "tensor")),
            "?" => Ok((ParamKind::Optional(class), "tensor?")),
            "[]" => Ok((ParamKind::List(class), "tensor[]")),
            "|number" => Ok((ParamKind::Operand(class), "tensor|number")),
            other => Err(format!("'{other}' cannot follow 'tensor', expected '?', '[]' or '|number'")),
        };
    }
    let base = text.trim_end_matches(['?', '[', ']']);
    let variants = base.split('|').all(|word| word.len() > 2 && word.starts_with('"') && word.ends_with('"'));
    let known = ["bool", "int", "size", "float", "number", "str", "dtype"].contains(&base);
    let suffix = &text[base.len()..];
    if (known || variants) && ["", "?", "[]", "[]?", "?[]", "[][]"].contains(&suffix) {
        return Ok((ParamKind::Attribute, leaked_text(text)));
    }
    Err(format!(
        "'{text}' is no type, expected tensor, tensor?, tensor[], tensor|number, bool, int, size, float, number, str, \
         dtype, \"a\"|\"b\", or one of these with '?' or '[]'"
    ))
}

fn class_of(text: &str) -> Result<Class, String> {
    Ok(match text {
        "any" => Class::Any,
        "floating" => Class::Floating,
        "integer" => Class::Integer,
        "boolean" => Class::Boolean,
        "number" => Class::Number,
        "complex" => Class::Complex,
        _ => return Err(format!("'{text}' is no class, expected any, floating, integer, boolean, number or complex")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::OperatorDef;

    #[test]
    fn signatures_print_as_they_are_written() {
        for text in [
            "(input: tensor) -> tensor",
            "() -> tensor[]",
            "(input: tensor, weight: tensor? = none, eps: float = 1e-5, dims: int[] = [-1, 0]) -> (mean: tensor, rstd: tensor)",
            "(tensors: tensor[], other: tensor|number, mode: \"none\"|\"a,b\" = \"a,b\", to: dtype? = none) -> tensor",
            "(input: tensor, mode: \"a=b\"|\"a->b\"|\"[\" = \"a=b\", text: str = \"x, \\\"y\\\" = z\") -> tensor",
        ] {
            let Signature { params, results } = parse(text).unwrap();
            let def = OperatorDef { name: "f", params, results, ..crate::expansion::OPERATOR };
            assert_eq!(def.signature(), format!("f{text}"));
        }
    }

    #[test]
    fn classes_and_types_are_kept() {
        let params =
            parse("(input: tensor<floating>, mask: tensor<boolean>?, p: float = 0.5) -> tensor").unwrap().params;
        assert_eq!(params[0].kind, ParamKind::Tensor(Class::Floating));
        assert_eq!(params[1].kind, ParamKind::Optional(Class::Boolean));
        assert!((params[2].accepts)(&Attribute::Scalar(2.0.into())));
        assert!(!(params[2].accepts)(&Attribute::Text("2".into())));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, expected) in [
            ("input: tensor", "expected '-> tensor'"),
            ("input: tensor -> tensor", "in parentheses"),
            ("(input) -> tensor", "'input' has no type"),
            ("(input: tensr) -> tensor", "'tensr' is no type"),
            ("(input: tensor<float>) -> tensor", "'float' is no class"),
            ("(input: tensor!) -> tensor", "cannot follow 'tensor'"),
            ("(input: tensor = 1.0) -> tensor", "cannot be the default of a tensor"),
            ("(p: float = 1) -> tensor", "1 cannot be the default of a float"),
            ("(p: float = 1.0, x: tensor) -> tensor", "comes after one that has"),
            ("(x: tensor, x: tensor) -> tensor", "two parameters are called 'x'"),
            ("(x: tensor) -> number", "its results are 'number'"),
            ("(p: float = oops) -> tensor", "'p'"),
            ("(2x: tensor) -> tensor", "'2x' is no name"),
            ("(a b: tensor) -> tensor", "'a b' is no name"),
            ("(x: tensor) -> (a b: tensor, c: tensor)", "'a b' is no name of a result"),
            ("(x: tensor) -> (x: tensor, c: tensor)", "'x' needs a name of its own"),
            ("(x: tensor, m: \"a|b\" = \"a\") -> tensor", "'\"a|b\"' is no type"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected) && error.contains(text), "{text}: {error}");
        }
    }
}
