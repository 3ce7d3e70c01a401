//! Python's arguments, made into those of an operator by its declared signature.

use fulgurite::argument::{Arg, Attribute, Scalar};
use fulgurite::operator::{OperatorDef, ParamDef, ParamKind, did_you_mean};
use fulgurite::testing::samples::SampleTensor;
use fulgurite::{Array, Tensor, TensorMeta};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::array::{PyArray, PyMeta};
use crate::declare::samples::PySampleTensor;
use crate::dlpack::import_by_method;
use crate::error::argument_error;
use crate::exchange::{Taking, has_functions};
use crate::tensor::PyTensor;
use crate::types::dtype_of;

/// What stands for a tensor in a call from Python.
#[derive(Debug, Clone)]
pub(crate) enum Given {
    /// Data.
    Array(Array),
    /// A value of the function being traced.
    Traced(Tensor),
    /// Only what is known before it is computed.
    Meta(TensorMeta),
    /// A tensor of a sample of a declaration.
    Sample(SampleTensor),
}

/// The type of an attribute, read once from its name in the signature.
#[derive(Debug, Clone)]
enum Type {
    Bool,
    Int,
    Size,
    Float,
    Number,
    Text,
    Element,
    /// One of these words.
    Word(Vec<String>),
    /// One of these types.
    Any(Vec<Type>),
    /// A type of the author's own, whose rules check it.
    Own,
    Optional(Box<Type>),
    List(Box<Type>),
}

impl Type {
    fn of(name: &str) -> Type {
        // `size[]|"same"|"valid"` is one of several types; the words of an enum alone are one.
        if name.contains('|') && !name.starts_with('"') {
            return Type::Any(name.split('|').map(Type::of).collect());
        }
        if let Some(inner) = name.strip_suffix('?') {
            return Type::Optional(Box::new(Type::of(inner)));
        }
        if let Some(inner) = name.strip_suffix("[]") {
            return Type::List(Box::new(Type::of(inner)));
        }
        match name {
            "bool" => Type::Bool,
            "int" => Type::Int,
            "size" => Type::Size,
            "float" => Type::Float,
            "number" => Type::Number,
            "str" => Type::Text,
            "dtype" => Type::Element,
            words if words.starts_with('"') => {
                Type::Word(words.split('|').map(|word| word.trim_matches('"').to_owned()).collect())
            }
            _ => Type::Own,
        }
    }

    /// The value as an attribute of this type, as PyTorch would take it: integers are floats where floats are asked
    /// for, and one value is a list where a list is. `None` if it is of another type.
    fn attribute(&self, value: &Bound<'_, PyAny>) -> PyResult<Option<Attribute>> {
        let scalar = |scalar| Ok(Some(Attribute::Scalar(scalar)));
        Ok(match self {
            Type::Optional(_) if value.is_none() => Some(Attribute::None),
            Type::Optional(inner) => return inner.attribute(value),
            Type::List(inner) => match items(value) {
                Some(items) => {
                    let items: PyResult<Option<Vec<Attribute>>> =
                        items?.iter().map(|item| inner.attribute(item)).collect();
                    items?.map(|items| Attribute::List(items.into()))
                }
                None if value.is_none() => None,
                None => inner.attribute(value)?.map(|single| Attribute::List([single].into())),
            },
            Type::Any(types) => {
                for each in types {
                    if let Some(found) = each.attribute(value)? {
                        return Ok(Some(found));
                    }
                }
                None
            }
            Type::Element => dtype_of(value)?.map(Attribute::DType),
            Type::Text => match value.cast::<PyString>() {
                Ok(text) => Some(Attribute::Text((&*text.to_cow()?).into())),
                // `torch.device`
                Err(_) if value.get_type().name()?.to_cow()? == "device" => {
                    Some(Attribute::Text((&*value.str()?.to_cow()?).into()))
                }
                Err(_) => None,
            },
            Type::Word(words) => match value.cast::<PyString>() {
                Ok(text) => {
                    let text = text.to_cow()?;
                    words.iter().any(|word| *word == text).then(|| Attribute::Text((&*text).into()))
                }
                Err(_) => None,
            },
            Type::Own => {
                if let Some(number) = number(value)? {
                    return scalar(number);
                }
                if let Ok(text) = value.cast::<PyString>() {
                    return Ok(Some(Attribute::Text((&*text.to_cow()?).into())));
                }
                match items(value) {
                    Some(items) => {
                        let items: PyResult<Option<Vec<Attribute>>> =
                            items?.iter().map(|item| self.attribute(item)).collect();
                        items?.map(|items| Attribute::List(items.into()))
                    }
                    None => None,
                }
            }
            Type::Bool | Type::Int | Type::Size | Type::Float | Type::Number => match (self, number(value)?) {
                (Type::Number, Some(number)) => return scalar(number),
                (Type::Bool, Some(Scalar::Bool(value))) => return scalar(Scalar::Bool(value)),
                (Type::Bool, Some(Scalar::Int(value @ (0 | 1)))) => return scalar(Scalar::Bool(value == 1)),
                (Type::Int, Some(number @ (Scalar::Int(_) | Scalar::Bool(_)))) => {
                    return scalar(Scalar::Int(number.to_i64()));
                }
                (Type::Size, Some(Scalar::Int(value @ 0..))) => return scalar(Scalar::Int(value)),
                (Type::Float, Some(number)) => return scalar(Scalar::Float(number.to_f64())),
                _ => None,
            },
        })
    }
}

/// The elements of a list or tuple (`torch.Size` is one); `None` of anything else.
fn items<'py>(value: &Bound<'py, PyAny>) -> Option<PyResult<Vec<Bound<'py, PyAny>>>> {
    if let Ok(list) = value.cast::<PyList>() {
        return Some(Ok(list.iter().collect()));
    }
    value.cast::<PyTuple>().ok().map(|tuple| Ok(tuple.iter().collect()))
}

/// The number that a value is: also NumPy's scalars and what has `__index__`. `None` of tensors and of anything else.
fn number(value: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(value.is_true())));
    }
    if value.is_instance_of::<PyInt>() {
        return value.extract().map(|value| Some(Scalar::Int(value)));
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract().map(|value| Some(Scalar::Float(value)));
    }
    // Arrays have these methods too.
    if value.is_instance_of::<PyString>() || value.hasattr("__dlpack__")? || value.cast::<PyTensor>().is_ok() {
        return Ok(None);
    }
    if value.hasattr("__index__")? {
        return value.call_method0("__index__")?.extract().map(|value| Some(Scalar::Int(value)));
    }
    // NumPy's complex scalars become real ones, and lose their imaginary parts.
    if value.get_type().name()?.to_cow()?.starts_with("complex") {
        return Ok(None);
    }
    if value.hasattr("__float__")? {
        return value.call_method0("__float__")?.extract().map(|value| Some(Scalar::Float(value)));
    }
    Ok(None)
}

/// What a value is, for messages.
fn described(value: &Bound<'_, PyAny>) -> String {
    let kind = value.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
    if value.is_none() {
        return "None".into();
    }
    if value.hasattr("shape").unwrap_or(false) {
        let shape = value.getattr("shape").map_or_else(|_| String::new(), |shape| shape.to_string());
        return format!("a {kind} of shape {shape}");
    }
    let text: String = value.repr().map_or_else(|_| String::new(), |text| text.to_string());
    let short: String = text.chars().take(60).collect();
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!("{kind} {short}{dots}")
}

/// An operator's signature, ready to bind arguments.
#[derive(Debug)]
pub(crate) struct Signature {
    pub def: &'static OperatorDef,
    types: Vec<Type>,
}

impl Signature {
    pub(crate) fn of(def: &'static OperatorDef) -> Signature {
        Signature { def, types: def.params.iter().map(|param| Type::of(&(param.type_name)())).collect() }
    }

    fn wrong(&self, py: Python<'_>, argument: Option<&str>, message: &str) -> PyErr {
        argument_error(py, self.def.name, argument, message)
    }

    /// The arguments in the order of the signature, defaults included.
    pub(crate) fn bind(
        &self,
        py: Python<'_>,
        positional: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Arg<Given>>> {
        let mut taking = Taking::default();
        let bound = self.bind_taking(py, positional, keywords, &mut taking)?;
        taking.leave();
        Ok(bound)
    }

    /// As [`Signature::bind`], with tensors of other libraries in one call.
    pub(crate) fn bind_taking(
        &self,
        py: Python<'_>,
        positional: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
        taking: &mut Taking,
    ) -> PyResult<Vec<Arg<Given>>> {
        let def = self.def;
        if positional.len() > def.params.len() {
            let message =
                format!("takes {} arguments, got {}: {}", def.params.len(), positional.len(), def.signature());
            return Err(self.wrong(py, None, &message));
        }
        let mut given: Vec<Option<Bound<'_, PyAny>>> = positional.iter().map(Some).collect();
        given.resize_with(def.params.len(), || None);
        for (name, value) in keywords.into_iter().flatten() {
            let name = name.cast::<PyString>()?.to_str()?;
            let Some(at) = def.param(name) else {
                let hint = did_you_mean(name, def.params.iter().map(|param| param.name));
                let message = format!("has no argument '{name}'{hint}: {}", def.signature());
                return Err(self.wrong(py, Some(name), &message));
            };
            if given[at].replace(value).is_some() {
                let message = format!("argument '{name}' is given twice, by position and by name");
                return Err(self.wrong(py, Some(name), &message));
            }
        }
        let each = def.params.iter().zip(&self.types).zip(given);
        each.map(|((param, kind), value)| match value {
            Some(value) if taking.is_dispatched() && value.is_none() && param.default.is_some() => {
                Ok(param.default_argument())
            }
            Some(value) => self.argument(param, kind, &value, taking),
            None if param.default.is_some() || param.kind.is_optional() => Ok(param.default_argument()),
            None => {
                let message = format!("needs the argument '{}': {}", param.name, def.signature());
                Err(self.wrong(py, Some(param.name), &message))
            }
        })
        .collect()
    }

    fn argument(
        &self,
        param: &ParamDef,
        kind: &Type,
        value: &Bound<'_, PyAny>,
        taking: &mut Taking,
    ) -> PyResult<Arg<Given>> {
        let wrong = || {
            let message =
                format!("argument '{}' is {}, expected {}", param.name, described(value), (param.type_name)());
            self.wrong(value.py(), Some(param.name), &message)
        };
        match param.kind {
            ParamKind::Tensor(_) => tensor(value, taking)?.map(Arg::Tensor).ok_or_else(wrong),
            ParamKind::Optional(_) if value.is_none() => Ok(Arg::Optional(None)),
            ParamKind::Optional(_) => {
                tensor(value, taking)?.map(|tensor| Arg::Optional(Some(tensor))).ok_or_else(wrong)
            }
            ParamKind::Operand(_) => match if is_tensor(value)? { None } else { number(value)? } {
                Some(number) => Ok(Arg::Attribute(Attribute::Scalar(number))),
                None => tensor(value, taking)?.map(Arg::Tensor).ok_or_else(wrong),
            },
            ParamKind::List(_) => {
                let Some(items) = items(value) else { return Err(wrong()) };
                let tensors: PyResult<Vec<Given>> =
                    items?.iter().map(|item| tensor(item, taking)?.ok_or_else(wrong)).collect();
                tensors.map(Arg::List)
            }
            ParamKind::Attribute => kind.attribute(value)?.map(Arg::Attribute).ok_or_else(wrong),
        }
    }

    /// The arguments for a function that is being traced.
    pub(crate) fn traced(&self, py: Python<'_>, arguments: &[Arg<Given>]) -> PyResult<Vec<Arg<Tensor>>> {
        let concrete = |given: &Given| !matches!(given, Given::Traced(_));
        for (param, argument) in self.def.params.iter().zip(arguments) {
            if argument.tensors().iter().any(concrete) {
                let message = format!(
                    "argument '{}' is an array, expected a value of the function that is being traced: pass the array \
                     to that function as an argument",
                    param.name
                );
                return Err(self.wrong(py, Some(param.name), &message));
            }
        }
        let tensor = |given: &Given| match given {
            Given::Traced(tensor) => *tensor,
            Given::Array(_) | Given::Meta(_) | Given::Sample(_) => Tensor::PLACEHOLDER,
        };
        Ok(arguments.iter().map(|argument| argument.map(tensor)).collect())
    }
}

/// Whether a value is known to be a tensor at first sight, and so no number.
fn is_tensor(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(value.cast::<PyArray>().is_ok() || value.cast::<PyTensor>().is_ok() || has_functions(value)?)
}

fn tensor(value: &Bound<'_, PyAny>, taking: &mut Taking) -> PyResult<Option<Given>> {
    if let Ok(own) = value.cast::<PyArray>() {
        return Ok(Some(Given::Array(own.get().0.clone())));
    }
    if let Some(array) = taking.array(value)? {
        return Ok(Some(Given::Array(array)));
    }
    if let Ok(traced) = value.cast::<PyTensor>() {
        return Ok(Some(Given::Traced(traced.get().0)));
    }
    if let Ok(meta) = value.cast::<PyMeta>() {
        return Ok(Some(Given::Meta(meta.get().0.clone())));
    }
    if let Ok(sample) = value.cast::<PySampleTensor>() {
        return Ok(Some(Given::Sample(sample.get().0.clone())));
    }
    if value.hasattr("__dlpack__")? {
        return import_by_method(value.py(), value).map(|array| Some(Given::Array(array)));
    }
    Ok(None)
}
