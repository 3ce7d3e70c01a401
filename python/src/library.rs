//! Operators as PyTorch's dispatcher calls them: what `fulgurite.torch` registers by `torch.library`.

use std::sync::{Mutex, PoisonError};

use fulgurite::operator::ParamKind;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::operator::Operator;

/// A kernel of an operator: takes tensors of PyTorch, on the host or on CUDA, and returns tensors with memory that
/// nobody else has.
#[pyclass(frozen, module = "fulgurite")]
pub(crate) struct Kernel(Py<Operator>);

/// The kernel of an operator in front of autograd. Where nothing but an operator's kernel comes behind autograd, it
/// runs the operator, or leaves it to `differentiated` with the arguments alone if a gradient is asked for; all else it
/// leaves to `others`.
#[pyclass(frozen, module = "fulgurite")]
pub(crate) struct Front {
    operator: Py<Operator>,
    differentiated: Py<PyAny>,
    others: Py<PyAny>,
}

/// A function of a module, found once.
fn function<'py>(
    py: Python<'py>,
    found: &'static PyOnceLock<Py<PyAny>>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    Ok(found.get_or_try_init(py, || PyResult::Ok(py.import(module)?.getattr(name)?.unbind()))?.bind(py))
}

fn run(
    py: Python<'_>,
    operator: &Py<Operator>,
    arguments: &Bound<'_, PyTuple>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyAny>> {
    static REFUSE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    function(py, &REFUSE, "fulgurite.torch._exchange", "refuse_capture")?.call1((operator.get().def().name,))?;
    operator.get().dispatched(py, arguments, keywords)
}

#[pymethods]
impl Kernel {
    #[new]
    fn new(operator: Py<Operator>) -> Kernel {
        Kernel(operator)
    }

    #[pyo3(signature = (*arguments, **keywords))]
    fn __call__(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        run(py, &self.0, arguments, keywords)
    }
}

#[pymethods]
impl Front {
    #[new]
    fn new(operator: Py<Operator>, differentiated: Py<PyAny>, others: Py<PyAny>) -> Front {
        Front { operator, differentiated, others }
    }

    #[pyo3(signature = (*arguments, **keywords))]
    fn __call__(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let values = arguments.get_slice(1, arguments.len());
        let keywords = keywords.filter(|keywords| !keywords.is_empty());
        // PyTorch gives what a schema has by name alone as keywords; these schemas have nothing of that kind.
        if keywords.is_none() && is_direct(&arguments.get_item(0)?)? {
            return match self.is_differentiated(&values)? {
                true => self.differentiated.call1(py, values),
                false => run(py, &self.operator, &values, None),
            };
        }
        self.others.call(py, arguments, keywords)
    }
}

impl Front {
    /// Whether gradients are asked for.
    fn is_differentiated(&self, values: &Bound<'_, PyTuple>) -> PyResult<bool> {
        static ENABLED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        if !function(values.py(), &ENABLED, "torch", "is_grad_enabled")?.call0()?.is_truthy()? {
            return Ok(false);
        }
        for (param, value) in self.operator.get().def().params.iter().zip(values.iter()) {
            let requires = match param.kind {
                ParamKind::Attribute => false,
                _ if value.is_none() => false,
                ParamKind::List(_) => {
                    let items: Vec<Bound<'_, PyAny>> = match value.cast::<PyList>() {
                        Ok(list) => list.iter().collect(),
                        Err(_) => value.try_iter()?.collect::<PyResult<_>>()?,
                    };
                    let mut any = false;
                    for item in items {
                        any = any || requires_grad(&item)?;
                    }
                    any
                }
                ParamKind::Tensor(_) | ParamKind::Optional(_) | ParamKind::Operand(_) => requires_grad(&value)?,
            };
            if requires {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a tensor requires a gradient; numbers, which operands may be, do not.
fn requires_grad(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match value.getattr(intern!(value.py(), "requires_grad")) {
        Ok(requires) => requires.is_truthy(),
        Err(_) => Ok(false),
    }
}

/// Whether the dispatcher has nothing but a kernel for the host or CUDA behind autograd for these keys.
fn is_direct(keys: &Bound<'_, PyAny>) -> PyResult<bool> {
    /// Answers for sets of keys by their bits, of which a process has a few.
    static KNOWN: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());
    static DIRECT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let bits: u64 = keys.call_method0(intern!(keys.py(), "raw_repr"))?.extract()?;
    let found = {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(known, _)| *known == bits).map(|(_, direct)| *direct)
    };
    if let Some(direct) = found {
        return Ok(direct);
    }
    let direct = function(keys.py(), &DIRECT, "fulgurite.torch._library", "is_direct")?.call1((keys,))?.is_truthy()?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() < 64 {
        known.push((bits, direct));
    }
    Ok(direct)
}
