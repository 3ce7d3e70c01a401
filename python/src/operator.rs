//! Operators as Python sees them: their declarations, and calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite::argument::{Arg, Attribute, Scalar, map_arguments};
use fulgurite::operator::{Autocast, OperatorDef, OperatorKind, ParamDef, ParamKind, ResultsDef};
use fulgurite::{Array, Device, TensorMeta, tracer};
use pyo3::BoundObject;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::array::{PyArray, PyMeta, or_raise};
use crate::bind::{Given, Signature};
use crate::eager::{self, Latest};
use crate::error::{argument_error, panicked};
use crate::exchange::Taking;
use crate::tensor::{self, PyTensor, is_tracing};
use crate::types::PyDType;

/// A declared operator. A call with arrays runs it; a call with values of a function that is being traced is a line of
/// that trace.
#[pyclass(frozen, module = "fulgurite")]
pub(crate) struct Operator {
    signature: Signature,
    latest: Latest,
}

/// All operators that are linked in, by name.
#[pyfunction]
pub(crate) fn operators() -> Vec<Operator> {
    fulgurite::registry::operators().into_iter().map(Operator::of).collect()
}

/// The executors of a kind of device, in the order in which they are asked; and those that take part only where they
/// are named.
#[pyfunction]
pub(crate) fn executors(device: &str) -> (Vec<&'static str>, Vec<&'static str>) {
    let default: Vec<&str> = fulgurite::executor::default_executors(device).iter().map(|def| def.name).collect();
    let all = fulgurite::executor::executors();
    let others = all.iter().map(|def| def.name).filter(|name| !default.contains(name)).collect();
    (default, others)
}

impl Operator {
    pub(crate) fn of(def: &'static OperatorDef) -> Operator {
        Operator { signature: Signature::of(def), latest: Latest::default() }
    }

    pub(crate) fn def(&self) -> &'static OperatorDef {
        self.signature.def
    }

    /// Calls the operator with tensors of PyTorch's dispatcher, which gets tensors that share no memory.
    pub(crate) fn dispatched(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let mut taking = Taking::dispatched();
        let bound = self.signature.bind_taking(py, arguments, keywords, &mut taking)?;
        let results = eager::run(py, self.def(), &self.latest, self.arrays(py, bound)?)?;
        self.python_results(py, taking.tensors(py, &results)?)
    }

    fn python_results<'py, T: IntoPyObject<'py>>(&self, py: Python<'py>, results: Vec<T>) -> PyResult<Py<PyAny>> {
        let one = matches!(self.def().results, ResultsDef::Named([_]));
        let mut objects = Vec::with_capacity(results.len());
        for result in results {
            objects.push(result.into_pyobject(py).map_err(Into::into)?.into_any().unbind());
        }
        if one && let Some(result) = objects.pop() {
            return Ok(result);
        }
        match self.def().results {
            ResultsDef::List => Ok(PyList::new(py, objects)?.into_any().unbind()),
            ResultsDef::Named(_) => Ok(PyTuple::new(py, objects)?.into_any().unbind()),
        }
    }

    /// The arrays of a call that is none of a trace.
    fn arrays(&self, py: Python<'_>, arguments: Vec<Arg<Given>>) -> PyResult<Vec<Arg<Array>>> {
        let array = |param: &ParamDef, given: Given| match given {
            Given::Array(array) => Ok(array),
            Given::Traced(_) | Given::Meta(_) | Given::Sample(_) => {
                let message = format!(
                    "argument '{}' is a value of a trace, which has no data: it lives only in the traced function",
                    param.name
                );
                Err(argument_error(py, self.def().name, Some(param.name), &message))
            }
        };
        let each = self.def().params.iter().zip(arguments).map(|(param, argument)| {
            Ok(match argument {
                Arg::Tensor(given) => Arg::Tensor(array(param, given)?),
                Arg::Optional(given) => Arg::Optional(given.map(|given| array(param, given)).transpose()?),
                Arg::List(given) => {
                    Arg::List(given.into_iter().map(|given| array(param, given)).collect::<PyResult<_>>()?)
                }
                Arg::Attribute(attribute) => Arg::Attribute(attribute),
            })
        });
        each.collect()
    }
}

#[pymethods]
impl Operator {
    /// The whole name: `rms_norm`, `prims::exp`.
    #[getter]
    fn name(&self) -> &'static str {
        self.def().name
    }

    /// `prim`, `composite`, or the names of the executors that have the kernel symbol.
    #[getter]
    fn kind(&self) -> String {
        match self.def().kind {
            OperatorKind::Prim => "prim".into(),
            OperatorKind::Composite => "composite".into(),
            OperatorKind::Symbol(owners) => owners.join(", "),
        }
    }

    /// PyTorch's function below `torch.`, or `None`.
    #[getter]
    fn torch(&self) -> Option<&'static str> {
        self.def().torch
    }

    /// The declaration's documentation.
    #[getter]
    fn docs(&self) -> &'static str {
        self.def().docs
    }

    /// The signature as the command prints it.
    #[getter]
    fn signature(&self) -> String {
        self.def().signature()
    }

    /// Names of the results; `None` if their number follows from the arguments.
    #[getter]
    fn results(&self) -> Option<Vec<&'static str>> {
        match self.def().results {
            ResultsDef::Named(names) => Some(names.to_vec()),
            ResultsDef::List => None,
        }
    }

    /// Whether it draws random numbers.
    #[getter]
    fn random(&self) -> bool {
        self.def().effects.random
    }

    /// Whether it exchanges data with other ranks.
    #[getter]
    fn collective(&self) -> bool {
        self.def().effects.collective || self.def().effects.axis.is_some()
    }

    /// What autocast makes of its operands: `low`, `full`, `widest`, `keep` or `None`.
    #[getter]
    fn autocast(&self) -> Option<&'static str> {
        self.def().autocast.map(Autocast::name)
    }

    /// Names of operands that autocast leaves as they are.
    #[getter]
    fn autocast_keeps(&self) -> Vec<&'static str> {
        self.def().autocast_keeps.to_vec()
    }

    /// Where it is declared: `file:line`.
    #[getter]
    fn declared(&self) -> String {
        format!("{}:{}", self.def().file, self.def().line)
    }

    /// For each parameter: its name, its kind (`tensor`, `optional`, `list`, `operand`, `attribute`), its type in
    /// words, the element types that it takes in words (empty for attributes), whether it has a default, and that.
    #[getter]
    fn params<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.def().params.iter().map(|param| parameter(py, param)).collect()
    }

    /// Calls the operator.
    #[pyo3(signature = (*arguments, **keywords))]
    fn __call__(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let mut taking = Taking::default();
        let bound = self.signature.bind_taking(py, arguments, keywords, &mut taking)?;
        if is_tracing() {
            let given = || bound.iter().flat_map(|argument| argument.tensors());
            let traced = given().any(|given| matches!(given, Given::Traced(_)));
            if traced || given().next().is_none() {
                let results = tensor::call(py, self.def(), self.signature.traced(py, &bound)?)?;
                return self.python_results(py, results.into_iter().map(PyTensor).collect());
            }
        }
        let results = eager::run(py, self.def(), &self.latest, self.arrays(py, bound)?)?;
        taking.leave();
        self.python_results(py, results.into_iter().map(PyArray).collect())
    }

    /// The metas of the results, of arguments whose tensors are arrays or metas. Nothing is computed.
    #[pyo3(signature = (*arguments, **keywords))]
    fn infer(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let bound = self.signature.bind(py, arguments, keywords)?;
        let metas = map_arguments(&bound, |given| match given {
            Given::Array(array) => array.meta().clone(),
            Given::Traced(tensor) => tensor.meta(),
            Given::Meta(meta) => meta.clone(),
            Given::Sample(tensor) => tensor.meta(Device::CPU),
        });
        let inferred = catch_unwind(AssertUnwindSafe(|| tracer::infer(self.def(), &metas)));
        let inferred = inferred.map_err(|panic| panicked(py, &*panic))?;
        let results: Vec<TensorMeta> =
            or_raise(py, inferred.map(|(metas, _)| metas).map_err(|error| error.of(self.def().name, None)))?;
        self.python_results(py, results.into_iter().map(PyMeta).collect())
    }

    /// Gradients of the tensors named by `wrt` (`tensors.0` is the first of a list), for cotangents of the results:
    /// one for each, `None` for zero.
    fn gradients(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        wrt: Vec<String>,
        cotangents: Vec<Option<Bound<'_, PyAny>>>,
    ) -> PyResult<Vec<PyArray>> {
        let arrays = self.arrays(py, self.signature.bind(py, arguments, None)?)?;
        let mut given = Vec::new();
        for (i, cotangent) in cotangents.iter().enumerate() {
            if let Some(cotangent) = cotangent {
                let array = crate::array::array_of(py, cotangent)?;
                let message = "a cotangent is no array";
                given.push((i, array.ok_or_else(|| argument_error(py, self.def().name, None, message))?));
            }
        }
        let gradients = eager::gradients(py, self.def(), arrays, wrt, given)?;
        Ok(gradients.into_iter().map(PyArray).collect())
    }

    fn __repr__(&self) -> String {
        format!("<operator {}>", self.def().signature())
    }
}

fn parameter<'py>(py: Python<'py>, param: &ParamDef) -> PyResult<Bound<'py, PyTuple>> {
    let (kind, class) = match param.kind {
        ParamKind::Tensor(class) => ("tensor", class.describe()),
        ParamKind::Optional(class) => ("optional", class.describe()),
        ParamKind::List(class) => ("list", class.describe()),
        ParamKind::Operand(class) => ("operand", class.describe()),
        ParamKind::Attribute => ("attribute", ""),
    };
    let default = match (param.default, param.kind.is_optional()) {
        (Some(default), _) => Some(value(py, &default())?),
        (None, true) => Some(py.None()),
        (None, false) => None,
    };
    let has_default = default.is_some();
    (param.name, kind, (param.type_name)(), class, has_default, default).into_pyobject(py)
}

/// An attribute as a Python value.
pub(crate) fn value(py: Python<'_>, attribute: &Attribute) -> PyResult<Py<PyAny>> {
    Ok(match attribute {
        Attribute::None => py.None(),
        Attribute::Scalar(Scalar::Bool(value)) => value.into_pyobject(py)?.to_owned().into_any().unbind(),
        Attribute::Scalar(Scalar::Int(value)) => value.into_pyobject(py)?.into_any().unbind(),
        Attribute::Scalar(Scalar::Float(value)) => value.into_pyobject(py)?.into_any().unbind(),
        Attribute::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
        Attribute::DType(dtype) => PyDType(*dtype).into_pyobject(py)?.into_any().unbind(),
        Attribute::List(items) => {
            let items: PyResult<Vec<Py<PyAny>>> = items.iter().map(|item| value(py, item)).collect();
            PyTuple::new(py, items?)?.into_any().unbind()
        }
    })
}
