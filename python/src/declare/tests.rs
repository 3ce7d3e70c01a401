//! The generated tests of what a program declares, for pytest.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite::testing::directives::Template;
use fulgurite::testing::{Filter, GeneratedTest, Outcome, Settings, generated_tests};
use pyo3::prelude::*;

use crate::error::panicked;
use crate::words::in_python;

/// A generated test.
#[pyclass(frozen, name = "GeneratedTest", module = "fulgurite.testing")]
pub(crate) struct PyTest(GeneratedTest);

#[pymethods]
impl PyTest {
    /// Unique: `squareplus::consistency::cpu::f32`.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The operator.
    #[getter]
    fn operator(&self) -> &str {
        &self.0.operator
    }

    /// The template that it was generated from.
    #[getter]
    fn template(&self) -> &'static str {
        self.0.template.name()
    }

    /// The executor that runs the operator, where that matters.
    #[getter]
    fn executor(&self) -> Option<&'static str> {
        self.0.executor
    }

    /// Why it cannot run here, or is not wanted.
    #[getter]
    fn skip(&self) -> Option<&str> {
        self.0.skip.as_deref().or(self.0.lacks.as_deref())
    }

    /// Runs the test: what is wrong; `None` if it passes.
    fn run(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let outcome = py.detach(|| catch_unwind(AssertUnwindSafe(|| (self.0.run)())));
        py.check_signals()?;
        super::raised::forget();
        if let Some((text, _)) = super::raised::take_fatal() {
            return Ok(Some(text));
        }
        match outcome.map_err(|panic| panicked(py, &*panic))? {
            Ok(Outcome::Passed | Outcome::Nothing(_)) => Ok(None),
            Err(message) => {
                // No command repeats the test but pytest's.
                let lines: Vec<&str> = message.lines().filter(|line| !line.starts_with("  repeat: ")).collect();
                Ok(Some(in_python(&lines.join("\n"))))
            }
        }
    }

    fn __repr__(&self) -> String {
        format!("<generated test {}>", self.0.name)
    }
}

/// The tests of operators; with `executors`, those alone that run them by one of these. Snapshots and PyTorch's vectors
/// are files of a package, and are not among them.
#[pyfunction]
#[pyo3(signature = (operators, executors=None))]
pub(crate) fn tests(py: Python<'_>, operators: Vec<String>, executors: Option<Vec<String>>) -> Vec<PyTest> {
    let only = executors.is_some();
    let filter = Filter { operators, executors: executors.unwrap_or_default(), ..Filter::default() };
    let mut found = py.detach(|| generated_tests(&filter, &Settings::default()));
    found.retain(|test| !matches!(test.template, Template::Snapshot | Template::Golden));
    found.retain(|test| filter.operators.contains(&test.operator) && (!only || test.executor.is_some()));
    found.into_iter().map(PyTest).collect()
}
