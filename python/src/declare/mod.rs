//! Operators, executors and implementations declared in Python: registrations at run time whose rules call back.
//!
//! Each rule is a Python function of the arguments in the order of the signature, made by
//! `python/fulgurite/_operator.py` and `_executor.py`. It is called with the interpreter's lock on whatever thread the
//! compiler or a program is on, which do not hold the lock meanwhile. What it raises is the rule's failure; see
//! [`raised`].

pub(crate) mod kernel;
pub(crate) mod raised;
mod rules;
pub(crate) mod samples;
pub(crate) mod tests;
mod text;

use std::sync::{Arc, OnceLock};

use fulgurite::executor::{ExecutorDef, ImplementationDef};
use fulgurite::kernel::KernelRules;
use fulgurite::operator::{Autocast, OperatorDef};
use fulgurite::precision::Precision;
use fulgurite::registration::{self, Registration};
use fulgurite::testing::directives::{Directive, DirectiveKind, Template, Tolerance};
use fulgurite::{DType, Device};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::or_raise;
use crate::operator::Operator;
use kernel::Kernel;
use raised::interned;
use text::Text;

/// A text that lives as long as the process, as records do.
fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// A function of a declaration, if there is one.
fn part(parts: &Bound<'_, PyDict>, name: &str) -> PyResult<Option<Py<PyAny>>> {
    let found = parts.get_item(name)?.filter(|part| !part.is_none());
    Ok(found.map(Bound::unbind))
}

enum Any {
    Operator(Registration<OperatorDef>),
    Executor(Registration<ExecutorDef>),
    Implementation(Registration<ImplementationDef>),
}

/// What was registered. It is there as long as the process unless it is withdrawn.
#[pyclass(frozen, name = "Registration", module = "fulgurite._native")]
pub(crate) struct PyRegistration(Any);

#[pymethods]
impl PyRegistration {
    /// Takes the registration back; programs that were compiled with it keep running.
    fn withdraw(&self, py: Python<'_>) -> PyResult<()> {
        or_raise(
            py,
            match &self.0 {
                Any::Operator(own) => own.withdraw(),
                Any::Executor(own) => own.withdraw(),
                Any::Implementation(own) => own.withdraw(),
            },
        )
    }

    /// The operator that was registered.
    #[getter]
    fn operator(&self) -> Option<Operator> {
        match &self.0 {
            Any::Operator(own) => Some(Operator::of(own.record())),
            _ => None,
        }
    }
}

/// Where a declaration is in Python.
type At = (String, u32);

/// Registers an operator. `parts` has its rules by name, each a function of all arguments in their order; `owners` are
/// the executors of a kernel symbol, whose kernel is the part `fn`, and on devices the part `cuda` if there is one.
#[pyfunction]
#[pyo3(signature = (name, signature, docs, at, parts, *, owners=Vec::new(), codes=Vec::new(), waive=Vec::new(),
    tolerances=Vec::new(), no_grad=None, torch=None, dtypes=Vec::new(), autocast=None, autocast_keeps=Vec::new(),
    borrows=false, plain=false))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn register_operator(
    py: Python<'_>,
    name: String,
    signature: String,
    docs: String,
    at: At,
    parts: &Bound<'_, PyDict>,
    owners: Vec<String>,
    codes: Vec<String>,
    waive: Vec<(String, String)>,
    tolerances: Vec<(Vec<String>, Option<String>, f64, f64, String)>,
    no_grad: Option<String>,
    torch: Option<String>,
    dtypes: Vec<String>,
    autocast: Option<&str>,
    autocast_keeps: Vec<String>,
    borrows: bool,
    plain: bool,
) -> PyResult<PyRegistration> {
    let own: rules::Own = Arc::new(OnceLock::new());
    let mut made = registration::Operator::build(&name).signature(signature).docs(docs).declared_at(at.0, at.1);
    if let Some(requires) = part(parts, "requires")? {
        made = made.requires(rules::requires(requires));
    }
    if let Some(meta) = part(parts, "meta")? {
        made = made.meta(rules::meta(meta, own.clone()));
    }
    if let Some(decomposition) = part(parts, "decomposition")? {
        made = made.decomposition(rules::traced(decomposition, "its decomposition", own.clone()));
    }
    if let Some(grad) = part(parts, "grad")? {
        made = made.grad(rules::grad(grad, "its grad".to_owned(), own.clone()));
    }
    if let Some(reference) = part(parts, "reference")? {
        made = made.reference(rules::reference(reference, own.clone()));
    }
    if let Some(samples) = part(parts, "samples")? {
        made = made.samples(samples::rule(samples, own.clone()));
    }
    let codes: Vec<&str> = codes.iter().map(String::as_str).collect();
    made = match part(parts, "errors")? {
        Some(errors) => made.errors(&codes, samples::errors_rule(errors, own.clone())),
        // The generated test says that nothing trips them.
        None if !codes.is_empty() => made.errors(&codes, |_| {}),
        None => made,
    };
    if !owners.is_empty() {
        let (on_host, elsewhere): (Vec<&String>, Vec<&String>) = owners.iter().partition(|owner| {
            let found = fulgurite::executor::find_executor(owner);
            found.is_ok_and(|executor| Device::is_host(executor.device))
        });
        let (mut rules, who) = (KernelRules::EMPTY, "its kernel");
        if let Some(function) = part(parts, "fn")? {
            let kernel = Arc::new(Kernel { function, who: who.into(), borrows, plain, own: own.clone() });
            rules.cpu = if on_host.is_empty() { None } else { Some(leaked(kernel::host(kernel.clone()))) };
            rules.plan = if elsewhere.is_empty() { None } else { Some(leaked(kernel::device(kernel))) };
        }
        if let Some(function) = part(parts, "cuda")? {
            let text = Arc::new(Text { function, who: who.into(), own: own.clone() });
            rules.plan = Some(leaked(text::device(text)));
        }
        made = made.kernels_of(owners, rules);
    }
    for (argument, reason) in waive {
        made = made.waive(argument, reason);
    }
    let directives: PyResult<Vec<Directive>> = tolerances.into_iter().map(directive).collect();
    made = made.directives(directives?);
    if let Some(reason) = no_grad {
        made = made.no_grad(reason);
    }
    if let Some(function) = torch {
        made = made.torch(function);
    }
    if let Some(name) = autocast {
        made = made.autocast(class_of(name)?);
    }
    made = made.autocast_keeps(autocast_keeps);
    made = made.dtypes(&dtypes.iter().map(|name| parsed(name)).collect::<PyResult<Vec<DType>>>()?);
    let registered = or_raise(py, made.register())?;
    // The rules read it; nobody else knows the name before this function returns but by asking the registry.
    let _ = own.set(registered.record());
    Ok(PyRegistration(Any::Operator(registered)))
}

fn parsed(dtype: &str) -> PyResult<DType> {
    dtype.parse().map_err(|error: fulgurite::kernels::dtype::UnknownDType| PyValueError::new_err(error.to_string()))
}

/// The class of autocast of a name.
fn class_of(name: &str) -> PyResult<Autocast> {
    Autocast::ALL.into_iter().find(|class| class.name() == name).ok_or_else(|| {
        let known = Autocast::ALL.map(Autocast::name).join(", ");
        PyValueError::new_err(format!("no class of autocast is called '{name}', there are: {known}"))
    })
}

/// A looser tolerance: templates, an element type, factor, scaled part, and the reason.
fn directive(
    (templates, dtype, factor, scaled, reason): (Vec<String>, Option<String>, f64, f64, String),
) -> PyResult<Directive> {
    let template = |name: &String| {
        let found = Template::ALL.into_iter().find(|template| template.name() == name);
        found.ok_or_else(|| {
            let known = Template::ALL.map(Template::name).join(", ");
            PyValueError::new_err(format!("no template is called '{name}', there are: {known}"))
        })
    };
    let templates = templates.iter().map(template).collect::<PyResult<Vec<Template>>>()?;
    Ok(Directive {
        kind: DirectiveKind::Tolerance(Tolerance::new(factor, scaled)),
        templates: templates.leak(),
        executor: None,
        precision: None,
        dtype: dtype.as_deref().map(parsed).transpose()?,
        sample: None,
        reason: interned(&reason),
    })
}

/// Registers an executor of a kind of device.
#[pyfunction]
#[pyo3(signature = (name, device, version, docs, priority, precision, at))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn register_executor(
    py: Python<'_>,
    name: String,
    device: String,
    version: String,
    docs: String,
    priority: Option<u32>,
    precision: &str,
    at: At,
) -> PyResult<PyRegistration> {
    let Some(precision) = Precision::named(precision) else {
        return Err(PyValueError::new_err(format!("precision is '{precision}', expected exact, tf32 or fp8")));
    };
    let made = registration::Executor::build(name, device).release(version).docs(docs).declared_at(at.0, at.1);
    let made = made.precision(precision);
    let made = if let Some(priority) = priority { made.priority(priority) } else { made };
    or_raise(py, made.register()).map(|own| PyRegistration(Any::Executor(own)))
}

/// Registers how an executor runs an operator: by the function `fn` on arrays, by text of CUDA (`cuda`), by an
/// `execution` in traced code, with a gradient of its own (`grad`), for the calls that its `checker` accepts.
#[pyfunction]
#[pyo3(signature = (operator, executor, at, parts, *, borrows=false, plain=false))]
pub(crate) fn register_implementation(
    py: Python<'_>,
    operator: &str,
    executor: &str,
    at: At,
    parts: &Bound<'_, PyDict>,
    borrows: bool,
    plain: bool,
) -> PyResult<PyRegistration> {
    let def = or_raise(py, fulgurite::registry::find_operator(operator))?;
    let runner = or_raise(py, fulgurite::executor::find_executor(executor))?;
    let own: rules::Own = Arc::new(OnceLock::from(def));
    let mut made = registration::Implementation::build(operator, executor).declared_at(at.0, at.1);
    if let Some(checker) = part(parts, "checker")? {
        made = made.checker(rules::checker(checker, format!("the checker of {operator} by {executor}")));
    }
    if let Some(execution) = part(parts, "execution")? {
        made = made.execution(rules::traced(execution, "its execution", own.clone()));
    }
    if let Some(grad) = part(parts, "grad")? {
        made = made.grad(rules::grad(grad, format!("its grad by {executor}"), own.clone()));
    }
    let who = format!("the kernel of {executor}");
    if let Some(function) = part(parts, "cuda")? {
        made = made.plan(text::device(Arc::new(Text { function, who, own })));
    } else if let Some(function) = part(parts, "fn")? {
        let kernel = Arc::new(Kernel { function, who, borrows, plain, own });
        made = if Device::is_host(runner.device) {
            made.cpu(kernel::host(kernel))
        } else {
            made.plan(kernel::device(kernel))
        };
    }
    or_raise(py, made.register()).map(|own| PyRegistration(Any::Implementation(own)))
}

/// The kinds of devices of which there is one on this machine.
#[pyfunction]
pub(crate) fn devices() -> Vec<&'static str> {
    let here = fulgurite::device::device_kinds().into_iter().filter(|kind| kind.properties(0).is_ok());
    std::iter::once("cpu").chain(here.map(|kind| kind.name())).collect()
}

/// The devices of this machine by name: `cpu`, `cuda:0`.
#[pyfunction]
pub(crate) fn device_names() -> Vec<String> {
    let all = fulgurite::device::device_kinds()
        .into_iter()
        .flat_map(|kind| (0..kind.count().unwrap_or(0)).map(|index| Device::new(kind.name(), index).to_string()));
    std::iter::once("cpu".to_owned()).chain(all).collect()
}
