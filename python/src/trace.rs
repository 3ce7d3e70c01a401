//! Traces as Python objects.

use fulgurite::compile::Stage;
use fulgurite::notebook::Show;
use fulgurite::trace::{Block, Callee, parse};
use pyo3::prelude::*;

use crate::array::or_raise;
use crate::error::without_lock;
use crate::lines::{PyLine, PyValue, lines_of};

/// The program after one stage of its compilation. `str` is its text, which `Trace(text)` reads.
#[pyclass(frozen, name = "Trace", module = "fulgurite")]
pub(crate) struct PyTrace(pub Stage);

#[pymethods]
impl PyTrace {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<PyTrace> {
        let trace = or_raise(py, parse(text))?;
        let name = trace.history.last().map_or_else(|| "program".to_owned(), ToString::to_string);
        Ok(PyTrace(Stage { name, trace, gradients: Vec::new(), choices: Vec::new() }))
    }

    /// The stage: `acquire`, `autodiff`, `claim`, ...
    #[getter]
    fn stage(&self) -> &str {
        &self.0.name
    }

    /// The function's name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.trace.name
    }

    /// What it is compiled for: `cpu`, `cuda:sm_90a`.
    #[getter]
    fn target(&self) -> String {
        self.0.trace.target.to_string()
    }

    /// The lines in order, each as the operator's name and the executor that runs it (`None` before it is claimed).
    /// Lines of regions are behind their region, which is called `region`.
    #[getter]
    fn symbols(&self) -> Vec<(String, Option<String>)> {
        let mut found = Vec::new();
        symbols(&self.0.trace.block, &mut found);
        found
    }

    /// The lines in order. Lines inside of others (of `value_and_grad`, `checkpoint` and regions) are behind them.
    #[getter]
    fn lines(&self) -> Vec<PyLine> {
        lines_of(&self.0.trace)
    }

    /// The lines that call an operator of this name, also those inside of others.
    fn find(&self, py: Python<'_>, operator: &str) -> PyResult<Vec<PyLine>> {
        let statements = ["value_and_grad", "checkpoint", "region"];
        if !statements.contains(&operator) {
            or_raise(py, fulgurite::registry::find_operator(operator))?;
        }
        let mut found = lines_of(&self.0.trace);
        found.retain(|line| line.calls(operator));
        Ok(found)
    }

    /// The inputs: parameters, arguments, and in a backward trace saved values and cotangents.
    #[getter]
    fn inputs(&self) -> Vec<PyValue> {
        let block = &self.0.trace.block;
        block.parameters.iter().map(|id| PyValue::of(block, &[], *id)).collect()
    }

    /// The values that it returns, by their paths.
    #[getter]
    fn outputs(&self) -> Vec<(String, PyValue)> {
        let Stage { trace, .. } = &self.0;
        let each = trace.outputs.iter().zip(&trace.block.results);
        each.map(|(output, id)| (output.path.clone(), PyValue::of(&trace.block, &[], *id))).collect()
    }

    fn __str__(&self, py: Python<'_>) -> PyResult<String> {
        without_lock(py, || Ok(self.0.trace.to_string()))
    }

    fn __repr__(&self) -> String {
        let trace = &self.0.trace;
        format!("<Trace {} after {}: {} lines>", trace.name, self.0.name, trace.block.symbols.len())
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        without_lock(py, || Ok(self.0.content().html))
    }
}

fn symbols(block: &Block, found: &mut Vec<(String, Option<String>)>) {
    for symbol in &block.symbols {
        let name = match &symbol.callee {
            Callee::Operator(def) => def.name,
            Callee::ValueAndGrad { .. } => "value_and_grad",
            Callee::Checkpoint => "checkpoint",
            Callee::Region { .. } => "region",
            _ => "other",
        };
        found.push((name.to_owned(), symbol.executor.map(str::to_owned)));
        if let (Callee::Region { .. }, Some(body)) = (&symbol.callee, &symbol.body) {
            symbols(body, found);
        }
    }
}

/// The stages as one page for a notebook.
#[pyfunction]
pub(crate) fn show(py: Python<'_>, stages: Vec<PyRef<'_, PyTrace>>) -> PyResult<String> {
    let stages: Vec<Stage> = stages.iter().map(|trace| trace.0.clone()).collect();
    without_lock(py, move || Ok(stages.content().html))
}
