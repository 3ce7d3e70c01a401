//! Attributes: numbers, booleans, strings, element types, lists.

use fulgurite_kernels::DType;

use super::super::print::{MAX_DEPTH, is_numeric};
use super::Parser;
use super::messages::quote;
use crate::argument::{Attribute, Scalar};
use crate::error::Result;

/// Whether an attribute is of the type that a signature names; types that are not known here take anything.
pub fn fits(type_name: &str, attribute: &Attribute) -> bool {
    if let Some(inner) = type_name.strip_suffix('?') {
        return *attribute == Attribute::None || fits(inner, attribute);
    }
    if let Some(inner) = type_name.strip_suffix("[]") {
        return matches!(attribute, Attribute::List(items) if items.iter().all(|item| fits(inner, item)));
    }
    match (type_name, attribute) {
        ("bool", attribute) => matches!(attribute, Attribute::Scalar(Scalar::Bool(_))),
        ("int", attribute) => matches!(attribute, Attribute::Scalar(Scalar::Int(_))),
        ("size", attribute) => matches!(attribute, Attribute::Scalar(Scalar::Int(0..))),
        ("float", attribute) => matches!(attribute, Attribute::Scalar(Scalar::Float(_))),
        ("number", attribute) => matches!(attribute, Attribute::Scalar(_)),
        ("str", attribute) => matches!(attribute, Attribute::Text(_)),
        ("dtype", attribute) => matches!(attribute, Attribute::DType(_)),
        (variants, attribute) if variants.starts_with('"') => {
            matches!(attribute, Attribute::Text(text) if variants.split('|').any(|v| v == format!("{text:?}")))
        }
        _ => true,
    }
}

impl Parser<'_> {
    /// A number or boolean, if one is next.
    pub(super) fn scalar(&mut self) -> Result<Option<Scalar>> {
        let word = self.number_word();
        let start = self.at;
        let scalar = match word {
            "true" => Scalar::Bool(true),
            "false" => Scalar::Bool(false),
            "inf" => Scalar::Float(f64::INFINITY),
            "-inf" => Scalar::Float(f64::NEG_INFINITY),
            "nan" => {
                self.at += word.len();
                if !self.eat('(') {
                    return Ok(Some(Scalar::Float(f64::NAN)));
                }
                let word = self.peek_word();
                let digits = word.strip_prefix("0x").filter(|d| !d.starts_with(['+', '-']));
                let value = digits.and_then(|d| u64::from_str_radix(d, 16).ok()).map(f64::from_bits);
                let Some(value) = value.filter(|value| value.is_nan()) else {
                    return self.fail(self.at, "expected the bits of a NaN, as in 'nan(0xfff8000000000000)'");
                };
                self.at += word.len();
                self.expect(')', "after the bits")?;
                return Ok(Some(Scalar::Float(value)));
            }
            _ => {
                let digits = word.strip_prefix('-').unwrap_or(word);
                if !is_numeric(digits) {
                    return if digits.len() < word.len() { self.expected("a number") } else { Ok(None) };
                }
                if digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    match word.parse() {
                        Ok(value) => Scalar::Int(value),
                        Err(_) => return self.fail(start, format!("{} is out of range for an integer", quote(word))),
                    }
                } else {
                    match word.parse::<f64>() {
                        Ok(value) if value.is_finite() => Scalar::Float(value),
                        _ => return self.fail(start, format!("{} is out of range for a number", quote(word))),
                    }
                }
            }
        };
        self.at += word.len();
        Ok(Some(scalar))
    }

    pub(super) fn attribute(&mut self, depth: usize) -> Result<Attribute> {
        if depth > MAX_DEPTH {
            return self.fail(self.at, format!("lists nest deeper than {MAX_DEPTH}"));
        }
        match self.peek() {
            Some('"') => return self.string().map(|text| Attribute::Text(text.into())),
            Some('[') => {
                self.at += 1;
                return self.list(']', |p| p.attribute(depth + 1)).map(|items| Attribute::List(items.into()));
            }
            _ => {}
        }
        if self.eat_word("none") {
            return Ok(Attribute::None);
        }
        if let Some(scalar) = self.scalar()? {
            return Ok(Attribute::Scalar(scalar));
        }
        if let Some(dtype) = DType::ALL.into_iter().find(|dtype| dtype.name() == self.peek_word()) {
            self.at += dtype.name().len();
            return Ok(Attribute::DType(dtype));
        }
        self.expected("a number, true, false, none, a dtype, a string in double quotes or a list in brackets")
    }
}
