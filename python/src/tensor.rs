//! `fulgurite.Tensor`: a value of a function that is being traced.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite::argument::Arg;
use fulgurite::operator::OperatorDef;
use fulgurite::{Tensor, tracer};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::{panicked, raised};
use crate::types::PyDType;

/// A value of a function that is being traced: shape, element type and device, no data.
#[pyclass(frozen, name = "Tensor", module = "fulgurite")]
pub(crate) struct PyTensor(pub Tensor);

#[pymethods]
impl PyTensor {
    /// Extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.meta().shape())
    }

    /// Element type.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.0.dtype())
    }

    /// Device: `cpu`, `cuda:0`.
    #[getter]
    fn device(&self) -> String {
        self.0.device().to_string()
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.0.rank()
    }

    /// Number of elements.
    fn numel(&self) -> usize {
        self.0.meta().len()
    }

    fn __repr__(&self) -> String {
        let meta = self.0.meta();
        if self.0.is_poisoned() { "Tensor(of another trace)".into() } else { format!("Tensor({meta})") }
    }
}

thread_local! {
    /// How many Python functions are being traced on this thread, one in another.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether a function is being traced on this thread.
#[pyfunction]
pub(crate) fn is_tracing() -> bool {
    DEPTH.get() > 0
}

/// Runs what traces a Python function.
pub(crate) fn tracing<T>(run: impl FnOnce() -> T) -> T {
    /// Counts down also where `run` unwinds.
    struct Traced;
    impl Drop for Traced {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    let _traced = Traced;
    run()
}

/// Runs a kernel, which is no part of what may be traced on this thread.
pub(crate) fn outside<T>(run: impl FnOnce() -> T) -> T {
    /// Goes on tracing also where `run` unwinds.
    struct Before(usize);
    impl Drop for Before {
        fn drop(&mut self) {
            DEPTH.set(self.0);
        }
    }
    let _before = Before(DEPTH.replace(0));
    run()
}

/// Calls `function` with names in the trace prefixed by `name`.
#[pyfunction]
pub(crate) fn scope(name: &str, function: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    tracer::scope(name, || function.call0().map(Bound::unbind))
}

/// Adds a call to the trace. An error is raised here, and the trace goes on without the call if Python handles it.
pub(crate) fn call(py: Python<'_>, def: &'static OperatorDef, arguments: Vec<Arg<Tensor>>) -> PyResult<Vec<Tensor>> {
    // An operator whose number of results is unknown unwinds where it fails.
    let outcome = catch_unwind(AssertUnwindSafe(|| tracer::call(def, arguments)));
    if let Some(error) = tracer::take_error() {
        return Err(raised(py, &error));
    }
    outcome.map_err(|panic| panicked(py, &*panic))
}
