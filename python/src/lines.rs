//! Lines and values of a trace as Python objects, for transforms that are written in Python.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use fulgurite::TensorMeta;
use fulgurite::argument::Arg;
use fulgurite::trace::{Block, BoundSymbol, Callee, Trace, ValueId, print_symbol};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::operator::value as attribute_value;
use crate::types::PyDType;

/// In which block of a trace a line is: the numbers of the lines around it, from the outermost.
pub(crate) type Within = Vec<usize>;

/// A value of a trace: what a line defines, or an input. Values of one trace are equal if they are the same.
#[pyclass(frozen, name = "Value", module = "fulgurite", from_py_object)]
#[derive(Debug, Clone)]
pub(crate) struct PyValue {
    pub within: Within,
    pub id: ValueId,
    name: Arc<str>,
    meta: TensorMeta,
}

impl PyValue {
    pub(crate) fn of(block: &Block, within: &[usize], id: ValueId) -> PyValue {
        let value = block.value(id);
        PyValue { within: within.to_vec(), id, name: value.name.clone(), meta: value.meta.clone() }
    }

    /// The name, for messages.
    pub(crate) fn called(&self) -> &str {
        &self.name
    }

    /// Whether it is a value of this block.
    pub(crate) fn is_in(&self, block: &Block) -> bool {
        block.values.get(self.id.index()).is_some_and(|value| value.name == self.name && value.meta == self.meta)
    }
}

#[pymethods]
impl PyValue {
    /// The name in the trace: `h.0.attn.softmax`.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.meta.shape())
    }

    /// Element type.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.meta.dtype())
    }

    /// Device: `cpu`, `cuda:0`.
    #[getter]
    fn device(&self) -> String {
        self.meta.device().to_string()
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.meta.rank()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyValue>().is_ok_and(|other| {
            let other = other.get();
            self.within == other.within && self.id == other.id && self.name == other.name && self.meta == other.meta
        })
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.within, self.id, &self.name).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<Value {}: {}>", self.name, self.meta)
    }
}

/// A line of a trace: a call of an operator with what it defines.
#[pyclass(frozen, name = "Line", module = "fulgurite", from_py_object)]
#[derive(Debug, Clone)]
pub(crate) struct PyLine {
    pub within: Within,
    pub number: usize,
    symbol: BoundSymbol,
    results: Vec<PyValue>,
    arguments: Vec<Arg<PyValue>>,
    text: String,
    inside: Vec<PyLine>,
}

/// The lines of a trace, those inside of others behind them.
pub(crate) fn lines_of(trace: &Trace) -> Vec<PyLine> {
    let mut found = Vec::new();
    lines(&trace.block, &mut Vec::new(), &mut found);
    found
}

fn lines(block: &Block, within: &mut Within, found: &mut Vec<PyLine>) {
    for (number, symbol) in block.symbols.iter().enumerate() {
        if matches!(symbol.callee, Callee::Delete) {
            continue;
        }
        let mut inside = Vec::new();
        if let (None, Some(body)) = (symbol.operator(), &symbol.body) {
            within.push(number);
            lines(body, within, &mut inside);
            within.pop();
        }
        let value = |id: ValueId| PyValue::of(block, within, id);
        found.push(PyLine {
            within: within.clone(),
            number,
            symbol: symbol.clone(),
            results: symbol.results.iter().map(|id| value(*id)).collect(),
            arguments: symbol.arguments.iter().map(|argument| argument.map(|id| value(*id))).collect(),
            text: print_symbol(block, symbol),
            inside: inside.clone(),
        });
        found.append(&mut inside);
    }
}

impl PyLine {
    /// What is called, for messages.
    pub(crate) fn described(&self) -> String {
        match self.results.first() {
            Some(first) => format!("'{}' ({})", first.name, self.symbol.name()),
            None => self.symbol.name().to_owned(),
        }
    }

    /// Whether it calls this.
    pub(crate) fn calls(&self, name: &str) -> bool {
        self.symbol.name() == name
    }

    /// Whether it is this line of a block.
    pub(crate) fn is_in(&self, block: &Block) -> bool {
        block.symbols.get(self.number).is_some_and(|symbol| *symbol == self.symbol)
            && self.results.iter().all(|value| value.is_in(block))
    }
}

#[pymethods]
impl PyLine {
    /// The whole name of the operator that is called: `rms_norm`, `prims::exp`, `liger::rope`; or `value_and_grad`,
    /// `checkpoint`, `region`.
    #[getter]
    fn operator(&self) -> &str {
        self.symbol.name()
    }

    /// The name of the first result.
    #[getter]
    fn name(&self) -> &str {
        self.results.first().map_or("", |value| &value.name)
    }

    /// The executor that runs it; `None` before executors were asked.
    #[getter]
    fn executor(&self) -> Option<&str> {
        self.symbol.executor
    }

    /// `forward`, `backward`, or `recomputed`: values of the forward pass that the backward pass computes again.
    #[getter]
    fn pass_(&self) -> &'static str {
        self.symbol.pass.name()
    }

    /// The values that the line defines.
    #[getter]
    fn results(&self) -> Vec<PyValue> {
        self.results.clone()
    }

    /// The values that it reads, in the order of its parameters.
    #[getter]
    fn operands(&self) -> Vec<PyValue> {
        self.arguments.iter().flat_map(|argument| argument.tensors()).cloned().collect()
    }

    /// Its arguments by the names of the operator's parameters: values, lists of values, `None`, numbers and words.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let named = PyDict::new(py);
        let names = self.symbol.operator().map_or(&[][..], |def| def.params);
        for (i, argument) in self.arguments.iter().enumerate() {
            let name = names.get(i).map_or_else(|| i.to_string(), |param| param.name.to_owned());
            match argument {
                Arg::Tensor(value) | Arg::Optional(Some(value)) => named.set_item(name, value.clone())?,
                Arg::Optional(None) => named.set_item(name, py.None())?,
                Arg::List(values) => named.set_item(name, PyList::new(py, values.iter().cloned())?)?,
                Arg::Attribute(attribute) => named.set_item(name, attribute_value(py, attribute)?)?,
            }
        }
        Ok(named)
    }

    /// The argument of this name.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let arguments = self.arguments(py)?;
        let names = || arguments.keys().iter().map(|key| key.to_string()).collect::<Vec<_>>().join(", ");
        arguments.get_item(name)?.ok_or_else(|| {
            let operator = self.symbol.name();
            PyKeyError::new_err(format!("{operator} has no parameter '{name}', it has: {}", names()))
        })
    }

    /// The lines inside of it: of `value_and_grad`, `checkpoint` and `region`.
    #[getter]
    fn lines(&self) -> Vec<PyLine> {
        self.inside.clone()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyLine>().is_ok_and(|other| {
            let other = other.get();
            self.within == other.within && self.number == other.number && self.symbol == other.symbol
        })
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.within, self.number, self.symbol.name()).hash(&mut hasher);
        hasher.finish()
    }

    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<Line {}>", self.text)
    }
}
