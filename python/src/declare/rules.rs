//! Rules of declarations as closures over Python functions.

use std::sync::{Arc, OnceLock};

use fulgurite::argument::{Arg, Attribute};
use fulgurite::executor::Claim;
use fulgurite::gradient::Pullback;
use fulgurite::operator::{OperatorDef, ParamKind, ResultsDef};
use fulgurite::reference::ReferenceTensor;
use fulgurite::rules::{ArrayD, IxDyn};
use fulgurite::{Array, DType, Failure, Tensor, TensorMeta, tracer};
use pyo3::PyClass;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyString, PyTuple};

use super::raised::{failure, fatal};
use crate::array::{PyArray, PyMeta};
use crate::operator::value;
use crate::tensor::{PyTensor, tracing};

/// The operator of a rule, once it is registered.
pub(super) type Own = Arc<OnceLock<&'static OperatorDef>>;

/// The arguments of a call as Python has them: `tensor` makes an object of each tensor.
pub(super) fn arguments<'py, V>(
    py: Python<'py>,
    arguments: &[Arg<V>],
    mut tensor: impl FnMut(&V) -> PyResult<Py<PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let mut objects: Vec<Py<PyAny>> = Vec::with_capacity(arguments.len());
    for argument in arguments {
        objects.push(match argument {
            Arg::Tensor(own) | Arg::Optional(Some(own)) => tensor(own)?,
            Arg::Optional(None) => py.None(),
            Arg::List(all) => {
                let all: PyResult<Vec<Py<PyAny>>> = all.iter().map(&mut tensor).collect();
                PyList::new(py, all?)?.into_any().unbind()
            }
            Arg::Attribute(attribute) => value(py, attribute)?,
        });
    }
    PyTuple::new(py, objects)
}

fn object<T: PyClass + Into<PyClassInitializer<T>>>(py: Python<'_>, value: T) -> PyResult<Py<PyAny>> {
    Ok(Py::new(py, value)?.into_any())
}

/// What a function of results returned, as a list: several are a tuple or a list, one is itself.
fn listed<'py>(value: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyList>() {
        return value.try_iter()?.collect();
    }
    Ok(vec![value.clone()])
}

fn kind(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string())
}

/// Checks that there are as many results as the signature says.
fn counted<T>(own: &Own, found: Vec<T>) -> PyResult<Vec<T>> {
    match own.get().and_then(|def| def.results.count()) {
        Some(count) if count != found.len() => {
            Err(PyValueError::new_err(format!("it returned {} results, the signature says {count}", found.len())))
        }
        _ => Ok(found),
    }
}

type Metas<'a> = &'a [Arg<TensorMeta>];

pub(super) fn requires(function: Py<PyAny>) -> impl Fn(Metas<'_>) -> Result<(), Failure> + Send + Sync + 'static {
    move |metas| {
        Python::attach(|py| {
            let given = arguments(py, metas, |meta| object(py, PyMeta(meta.clone())));
            let called = given.and_then(|given| function.bind(py).call1(given));
            called.map(|_| ()).map_err(|error| failure(py, "its requires", error))
        })
    }
}

pub(super) fn meta(
    function: Py<PyAny>,
    own: Own,
) -> impl Fn(Metas<'_>) -> Result<Vec<TensorMeta>, Failure> + Send + Sync + 'static {
    move |metas| {
        Python::attach(|py| {
            let called = || {
                let given = arguments(py, metas, |meta| object(py, PyMeta(meta.clone())))?;
                let results = listed(&function.bind(py).call1(given)?)?;
                let found = results.iter().map(|result| match result.cast::<PyMeta>() {
                    Ok(meta) => Ok(meta.get().0.clone()),
                    Err(_) => Err(PyTypeError::new_err(format!("it returned {}, expected a Meta", kind(result)))),
                });
                counted(&own, found.collect::<PyResult<Vec<_>>>()?)
            };
            called().map_err(|error| failure(py, "its meta", error))
        })
    }
}

fn handles<'py>(py: Python<'py>, given: &[Arg<Tensor>]) -> PyResult<Bound<'py, PyTuple>> {
    arguments(py, given, |tensor| object(py, PyTensor(*tensor)))
}

fn tensors(results: &[Bound<'_, PyAny>]) -> PyResult<Vec<Tensor>> {
    let each = results.iter().map(|result| match result.cast::<PyTensor>() {
        Ok(tensor) => Ok(tensor.get().0),
        Err(_) => Err(PyTypeError::new_err(format!("it returned {}, expected a value of the trace", kind(result)))),
    });
    each.collect()
}

/// A decomposition or an execution: traced code.
pub(super) fn traced(
    function: Py<PyAny>,
    who: &'static str,
    own: Own,
) -> impl Fn(&[Arg<Tensor>]) -> Result<Vec<Tensor>, Failure> + Send + Sync + 'static {
    move |given| {
        Python::attach(|py| {
            let called = || {
                let results = tracing(|| function.bind(py).call1(handles(py, given)?))?;
                counted(&own, tensors(&listed(&results)?)?)
            };
            called().map_err(|error| failure(py, who, error))
        })
    }
}

/// A gradient: the function returns results and a pullback; that takes cotangents of the results, and returns a list
/// with a gradient or `None` for each tensor of the arguments.
pub(super) fn grad(
    function: Py<PyAny>,
    who: String,
    own: Own,
) -> impl Fn(&[Arg<Tensor>]) -> (Vec<Tensor>, Pullback) + Send + Sync + 'static {
    let who: Arc<str> = who.into();
    move |given| {
        let name = own.get().map_or("", |def| def.name);
        let params: Vec<ParamKind> = own.get().map_or_else(Vec::new, |def| def.params.iter().map(|p| p.kind).collect());
        let forms: Vec<Arg<()>> = fulgurite::argument::map_arguments(given, |_| ());
        let found = Python::attach(|py| {
            let called = || {
                let pair = tracing(|| function.bind(py).call1(handles(py, given)?))?;
                let (results, pullback): (Bound<'_, PyAny>, Py<PyAny>) = pair.extract()?;
                PyResult::Ok((counted(&own, tensors(&listed(&results)?)?)?, pullback))
            };
            called().map_err(|error| failure(py, &who, error))
        });
        let (results, pullback) = match found {
            Ok(found) => found,
            // Outside of what holds the interpreter's lock: this unwinds.
            Err(failure) => tracer::end_rule(failure),
        };
        let who = who.clone();
        let back: Pullback = Box::new(move |cotangents, results| {
            let found = Python::attach(|py| {
                let called = || {
                    let cotangents: PyResult<Vec<Py<PyAny>>> = cotangents
                        .iter()
                        .zip(results)
                        .map(|(cotangent, result)| match cotangent {
                            Some(cotangent) => object(py, PyTensor(*cotangent)),
                            // Nobody asked: a zero, where the result may have a cotangent at all.
                            None if result.dtype().is_differentiable() => {
                                object(py, PyTensor(tracer::zeros_like(*result)))
                            }
                            None => Ok(py.None()),
                        })
                        .collect();
                    let gradients = tracing(|| pullback.bind(py).call1((PyList::new(py, cotangents?)?,)))?;
                    gradient_arguments(&gradients, &forms, &params)
                };
                called().map_err(|error| failure(py, &format!("the pullback of {who}"), error))
            });
            found.unwrap_or_else(|failure| {
                tracer::fail(name, failure);
                forms.iter().map(|_| Arg::Attribute(Attribute::None)).collect()
            })
        });
        (results, back)
    }
}

/// Gradients of the arguments: `None` or a value of the trace for each tensor.
fn gradient_arguments(
    gradients: &Bound<'_, PyAny>,
    forms: &[Arg<()>],
    params: &[ParamKind],
) -> PyResult<Vec<Arg<Tensor>>> {
    let all: Vec<Bound<'_, PyAny>> = gradients.try_iter()?.collect::<PyResult<_>>()?;
    if all.len() != forms.len() {
        return Err(PyValueError::new_err(format!("{} gradients for {} arguments", all.len(), forms.len())));
    }
    let one = |gradient: &Bound<'_, PyAny>| -> PyResult<Tensor> {
        gradient.cast::<PyTensor>().map(|tensor| tensor.get().0).map_err(|_| {
            PyTypeError::new_err(format!("a gradient is {}, expected a value of the trace", kind(gradient)))
        })
    };
    let none = || Arg::Attribute(Attribute::None);
    let each = all.iter().zip(forms).zip(params).map(|((gradient, form), _)| {
        Ok(match form {
            _ if gradient.is_none() => none(),
            Arg::Tensor(()) => Arg::Tensor(one(gradient)?),
            Arg::Optional(Some(())) => Arg::Optional(Some(one(gradient)?)),
            Arg::List(tensors) => {
                let found = listed(gradient)?;
                if found.len() != tensors.len() {
                    let message = format!("{} gradients for a list of {} tensors", found.len(), tensors.len());
                    return Err(PyValueError::new_err(message));
                }
                Arg::List(found.iter().map(one).collect::<PyResult<_>>()?)
            }
            Arg::Optional(None) | Arg::Attribute(_) => none(),
        })
    });
    each.collect()
}

/// Whether an executor takes a call: the function returns `True`, `False`, or the reason why not.
pub(super) fn checker(function: Py<PyAny>, who: String) -> impl Fn(Metas<'_>) -> Claim + Send + Sync + 'static {
    move |metas| {
        Python::attach(|py| {
            let called = || {
                let given = arguments(py, metas, |meta| object(py, PyMeta(meta.clone())))?;
                let answer = function.bind(py).call1(given)?;
                if let Ok(reason) = answer.cast::<PyString>() {
                    return Ok(Err(reason.to_cow()?.into_owned()));
                }
                match answer.cast::<PyBool>() {
                    Ok(answer) if answer.is_true() => Ok(Ok(())),
                    Ok(_) => Ok(Err("its checker says no".to_owned())),
                    Err(_) => {
                        let message = "expected True, False, or the reason of a refusal as a string";
                        Err(PyTypeError::new_err(format!("it returned {}, {message}", kind(&answer))))
                    }
                }
            };
            called().unwrap_or_else(|error| match failure(py, &who, error) {
                Failure { code, message } if code != super::raised::CODE => Err(message),
                Failure { message, .. } => {
                    // A refusal would hide it.
                    if let Some(cause) = super::raised::take_cause(super::raised::CODE, &message) {
                        fatal(py, &who, cause);
                    }
                    Err(message)
                }
            })
        })
    }
}

/// The data of a reference as an array: f64, c128, i64 or bool.
fn reference_array(py: Python<'_>, tensor: &ReferenceTensor) -> PyResult<Py<PyAny>> {
    let array = match tensor.dtype() {
        DType::Bool => {
            Array::from_f64(tensor.shape(), DType::Bool, &tensor.floats().iter().copied().collect::<Vec<_>>())
        }
        dtype if dtype.is_floating() => {
            Array::new(tensor.shape(), &tensor.floats().iter().copied().collect::<Vec<f64>>())
        }
        dtype if dtype.is_complex() => Array::from_f64(tensor.shape(), DType::C128, &tensor.numbers()),
        _ => Array::new(tensor.shape(), &tensor.integers().iter().copied().collect::<Vec<i64>>()),
    };
    object(py, PyArray(crate::array::or_raise(py, array)?))
}

fn reference_of(array: &Array) -> fulgurite::Result<ReferenceTensor> {
    /// The values in the array's shape.
    fn shaped<T>(array: &Array, values: Vec<T>) -> ArrayD<T> {
        let shaped = ArrayD::from_shape_vec(IxDyn(array.shape()), values);
        shaped.unwrap_or_else(|_| unreachable!("as many elements as the shape says"))
    }
    Ok(match array.dtype() {
        DType::I64 => ReferenceTensor::from_integers(DType::I64, shaped(array, array.to_vec::<i64>()?)),
        DType::Bool => ReferenceTensor::from_floats(DType::Bool, shaped(array, array.to_f64()?)),
        dtype if dtype.is_complex() => array.to_reference()?,
        _ => ReferenceTensor::from_floats(DType::F64, shaped(array, array.to_f64()?)),
    })
}

/// An independent reference: a function of arrays of f64, i64 and bool.
pub(super) fn reference(
    function: Py<PyAny>,
    own: Own,
) -> impl Fn(&[Arg<ReferenceTensor>]) -> Result<Vec<ReferenceTensor>, Failure> + Send + Sync + 'static {
    move |given| {
        let arrays = Python::attach(|py| {
            let called = || {
                let given = arguments(py, given, |tensor| reference_array(py, tensor))?;
                let results = function.bind(py).call1(given)?;
                let results: Vec<PyRef<'_, PyArray>> = results.extract()?;
                counted(&own, results.iter().map(|array| array.0.clone()).collect())
            };
            called().map_err(|error| failure(py, "its reference", error))
        })?;
        let found: fulgurite::Result<Vec<ReferenceTensor>> = arrays.iter().map(reference_of).collect();
        found.map_err(|error| Failure::new("Reference", error.to_string()))
    }
}

/// What a result is called in messages.
pub(super) fn result_name(own: &Own, index: usize) -> String {
    own.get().map_or(ResultsDef::List, |def| def.results).describe(index)
}
