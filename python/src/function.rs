//! Python functions that are traced and compiled.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite::compile::{self, Place, Programs, Stage, UserTransform, explain, prepare};
use fulgurite::jit::{Compiled, CompiledVjp, Jit, Pullback as RustPullback, Vjp};
use fulgurite::trace::Trace;
use fulgurite::transforms::autodiff::floating_outputs;
use fulgurite::transforms::plan::MemoryUse;
use fulgurite::transforms::retarget::retarget;
use fulgurite::{Array, Error, Failure, Target, Tensor, jit, tracer};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::array::PyArray;
use crate::error::without_lock;
use crate::narrow::narrow;
use crate::options::{Asked, PerKind};
use crate::tensor::{PyTensor, tracing};
use crate::trace::PyTrace;
use crate::tree::{Flat, Structure};
use crate::words::in_python;

type Traced = Box<dyn Fn(Flat<Tensor>) -> Flat<Tensor> + Send + Sync>;

thread_local! {
    /// What Python raised while a function of this thread was traced or transformed: it is raised again when the
    /// compilation has ended.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The result with what Python raised meanwhile in place of the error that stands for it.
pub(crate) fn or_reraise<T>(result: PyResult<T>) -> PyResult<T> {
    match (result, RAISED.take()) {
        (Err(_), Some(raised)) => Err(raised),
        (result, _) => result,
    }
}

/// The structure of a call's arguments: paths of the leaves, a key that tells structures of one function apart, and
/// what the traced function is given besides.
#[pyclass(frozen, module = "fulgurite")]
pub(crate) struct Form(Arc<Structure>);

#[pymethods]
impl Form {
    #[new]
    fn new(paths: Vec<String>, key: String, object: Py<PyAny>) -> Form {
        Form(Arc::new(Structure { paths, key, object }))
    }
}

impl Form {
    pub(crate) fn of(&self, leaves: &Bound<'_, PyList>) -> PyResult<Flat<Array>> {
        let arrays: PyResult<Vec<Array>> =
            leaves.iter().map(|leaf| Ok(leaf.cast::<PyArray>()?.get().0.clone())).collect();
        let arrays = arrays?;
        if arrays.len() != self.0.paths.len() {
            let message = format!("{} arrays for {} paths", arrays.len(), self.0.paths.len());
            return Err(PyValueError::new_err(message));
        }
        Ok(Flat { leaves: arrays, structure: self.0.clone() })
    }
}

/// What a Python callback returns: tensors, their paths, and the structure of the rest.
pub(crate) fn returned(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Flat<Tensor>> {
    let (tensors, paths, object): (Vec<Bound<'_, PyAny>>, Vec<String>, Py<PyAny>) = value.extract()?;
    let tensors: PyResult<Vec<Tensor>> = tensors.iter().map(|leaf| Ok(leaf.cast::<PyTensor>()?.get().0)).collect();
    let _ = py;
    Ok(Flat { leaves: tensors?, structure: Arc::new(Structure { paths, key: String::new(), object }) })
}

pub(crate) fn handles<'py>(py: Python<'py>, tensors: &[Tensor]) -> PyResult<Bound<'py, PyList>> {
    let handles: PyResult<Vec<_>> = tensors.iter().map(|tensor| Bound::new(py, PyTensor(*tensor))).collect();
    PyList::new(py, handles?)
}

/// Keeps what Python raised, and ends the trace with an error.
pub(crate) fn keep_raised(py: Python<'_>, error: PyErr) {
    let text = error.value(py).to_string();
    RAISED.replace(Some(error));
    tracer::fail("Python", Failure::new("PythonException", text));
}

/// The traced function that calls `callback(object, tensors)`.
fn traced(callback: &Arc<Py<PyAny>>) -> Traced {
    let callback = callback.clone();
    Box::new(move |arguments: Flat<Tensor>| {
        Python::attach(|py| {
            let called = || {
                let given = (arguments.structure.object.bind(py), handles(py, &arguments.leaves)?);
                returned(py, &callback.bind(py).call1(given)?)
            };
            tracing(called).unwrap_or_else(|error| {
                keep_raised(py, error);
                let structure = Structure { paths: Vec::new(), key: String::new(), object: py.None() };
                Flat { leaves: Vec::new(), structure: Arc::new(structure) }
            })
        })
    })
}

/// A transform of Python's: a function from `Trace` to `Trace`.
pub(crate) fn transform(name: String, function: Py<PyAny>, place: &str) -> PyResult<UserTransform> {
    let place = match place {
        "start" => Place::Start,
        "before_autodiff" => Place::BeforeAutodiff,
        "after_autodiff" => Place::AfterAutodiff,
        "before_claim" => Place::BeforeClaim,
        other => {
            let places = "'start', 'before_autodiff', 'after_autodiff' or 'before_claim'";
            return Err(PyValueError::new_err(format!("a transform is at '{other}', expected {places}")));
        }
    };
    let argument = name.clone();
    let apply = move |trace: &Trace| {
        Python::attach(|py| {
            let stage =
                Stage { name: argument.clone(), trace: trace.clone(), gradients: Vec::new(), choices: Vec::new() };
            let called = || {
                let result = function.bind(py).call1((Bound::new(py, PyTrace(stage))?,))?;
                Ok(result.cast::<PyTrace>()?.get().0.trace.clone())
            };
            called().map_err(|error: PyErr| {
                let message = error.value(py).to_string();
                RAISED.replace(Some(error));
                Error::Argument { argument: format!("transform {argument}"), message }
            })
        })
    };
    Ok(UserTransform::new(name, apply).at(place))
}

/// The results of a call for Python: arrays, and the structure of the rest.
pub(crate) fn to_python(py: Python<'_>, results: Flat<Array>) -> PyResult<(Bound<'_, PyList>, Py<PyAny>)> {
    let object = results.structure.object.clone_ref(py);
    let arrays: PyResult<Vec<_>> = results.leaves.into_iter().map(|array| Bound::new(py, PyArray(array))).collect();
    Ok((PyList::new(py, arrays?)?, object))
}

pub(crate) fn stages(py: Python<'_>, stages: &[Stage]) -> PyResult<Vec<Py<PyTrace>>> {
    stages.iter().map(|stage| Py::new(py, PyTrace(stage.clone()))).collect()
}

/// A Python function that is traced and compiled when it is first called, and again when its arguments change form.
#[pyclass(frozen, module = "fulgurite")]
pub(crate) struct Function {
    asked: Asked,
    jits: PerKind<Jit<Flat<Array>, Flat<Tensor>, Traced>>,
    last: Mutex<Option<Arc<Compiled<Flat<Tensor>>>>>,
}

#[pymethods]
impl Function {
    /// `callback(object, tensors)` returns tensors, their paths, and an object for their structure.
    #[new]
    #[pyo3(signature = (callback, name, *, executors=None, device=None, autocast=None, transforms=Vec::new()))]
    fn new(
        py: Python<'_>,
        callback: Py<PyAny>,
        name: &str,
        executors: Option<Vec<String>>,
        device: Option<&Bound<'_, PyAny>>,
        autocast: Option<&Bound<'_, PyAny>>,
        transforms: Vec<(String, Py<PyAny>, String)>,
    ) -> PyResult<Function> {
        let callback = Arc::new(callback);
        let asked = Asked::new(py, executors, device, autocast, transforms)?;
        let (known, name) = (asked.clone(), name.to_owned());
        let make = move |kind: &str| Ok(jit(traced(&callback)).named(&name).options(known.on(kind)?));
        Ok(Function { asked, jits: PerKind::new(make), last: Mutex::default() })
    }

    /// Calls the function with the arrays of a form: the arrays of the results, and the object of their structure.
    fn call<'py>(
        &self,
        py: Python<'py>,
        form: &Form,
        leaves: &Bound<'py, PyList>,
    ) -> PyResult<(Bound<'py, PyList>, Py<PyAny>)> {
        let arguments = form.of(leaves)?;
        let results = or_reraise(without_lock(py, || {
            let jit = self.jits.get(self.asked.kind(arguments.leaves.iter()))?;
            let compiled = jit.compile(&arguments)?;
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(compiled);
            jit.call(arguments)
        }))?;
        to_python(py, results)
    }

    /// Number of compilations.
    #[getter]
    fn compiles(&self) -> usize {
        self.jits.all().iter().map(|jit| jit.compiles()).sum()
    }

    /// Bytes of the program of the last call: inputs, outputs and the program's own memory.
    fn memory(&self) -> Vec<(u64, u64, u64)> {
        self.last().map(|last| bytes(last.program().memory())).into_iter().collect()
    }

    /// The program of the last call after each stage; compiled for another target, where one is given.
    #[pyo3(signature = (target=None))]
    fn stages(&self, py: Python<'_>, target: Option<&str>) -> PyResult<Vec<Py<PyTrace>>> {
        let Some(last) = self.last() else { return Ok(Vec::new()) };
        match target {
            None => stages(py, last.stages()),
            Some(target) => stages(py, &self.compiled_for(py, last.stages(), target)?),
        }
    }

    /// Which executor took which line of the program of the last call, and why others did not.
    #[pyo3(signature = (target=None))]
    fn explain(&self, py: Python<'_>, target: Option<&str>) -> PyResult<String> {
        let last = self.last().ok_or_else(not_called)?;
        match target {
            None => Ok(self.asked.elsewhere(last.program().trace().target.kind()) + &in_python(&last.explain())),
            Some(target) => {
                let made = self.compiled_for(py, last.stages(), target)?;
                Ok(self.asked.elsewhere(target_of(target)?.kind()) + &in_python(&explain(&made)))
            }
        }
    }
}

impl Function {
    fn last(&self) -> Option<Arc<Compiled<Flat<Tensor>>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The stages of a program for another target.
    fn compiled_for(&self, py: Python<'_>, made: &[Stage], target: &str) -> PyResult<Vec<Stage>> {
        let target = target_of(target)?;
        or_reraise(without_lock(py, || {
            let options = self.asked.only_compiled(&target)?;
            compile::stages(acquired(made, &target)?, &options)
        }))
    }
}

/// What a program needs: inputs, outputs and its own memory.
fn bytes(memory: MemoryUse) -> (u64, u64, u64) {
    (memory.inputs, memory.outputs, memory.transient)
}

/// A target by its name.
fn target_of(name: &str) -> PyResult<Target> {
    name.parse().map_err(PyValueError::new_err)
}

/// The program as it was traced, for another target.
fn acquired(made: &[Stage], target: &Target) -> Result<Trace, Error> {
    let first = made.first().ok_or_else(|| Error::Argument {
        argument: "target".into(),
        message: "the function was not called yet".into(),
    })?;
    Ok(retarget(&first.trace, target))
}

pub(crate) fn not_called() -> PyErr {
    PyRuntimeError::new_err("the function was not called yet: nothing is compiled")
}

type LastVjp = Arc<CompiledVjp<Flat<Tensor>>>;

/// A Python function whose forward and backward pass are two programs.
#[pyclass(frozen, module = "fulgurite")]
pub(crate) struct VjpFunction {
    asked: Asked,
    vjps: PerKind<Vjp<Flat<Array>, Flat<Tensor>, Traced>>,
    wrt: Vec<String>,
    last: Mutex<Option<LastVjp>>,
}

#[pymethods]
impl VjpFunction {
    /// As `Function`, with gradients of the arguments below the paths `wrt`; of all that are floating-point if there is
    /// none.
    #[new]
    #[pyo3(signature = (callback, name, wrt, *, executors=None, device=None, autocast=None, transforms=Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        callback: Py<PyAny>,
        name: &str,
        wrt: Vec<String>,
        executors: Option<Vec<String>>,
        device: Option<&Bound<'_, PyAny>>,
        autocast: Option<&Bound<'_, PyAny>>,
        transforms: Vec<(String, Py<PyAny>, String)>,
    ) -> PyResult<VjpFunction> {
        let callback = Arc::new(callback);
        let asked = Asked::new(py, executors, device, autocast, transforms)?.and(narrow());
        let (known, name, paths) = (asked.clone(), name.to_owned(), wrt.clone());
        let make = move |kind: &str| {
            let vjp = jit(traced(&callback)).named(&name).options(known.on(kind)?).vjp();
            Ok(paths.iter().fold(vjp, |vjp, path| vjp.with_respect_to(path)))
        };
        Ok(VjpFunction { asked, vjps: PerKind::new(make), wrt, last: Mutex::default() })
    }

    /// Runs the forward program: arrays, the object of their structure, and the pullback, which has the saved values.
    fn call<'py>(
        &self,
        py: Python<'py>,
        form: &Form,
        leaves: &Bound<'py, PyList>,
    ) -> PyResult<(Bound<'py, PyList>, Py<PyAny>, Pullback)> {
        let arguments = form.of(leaves)?;
        let (results, pullback) = or_reraise(without_lock(py, || {
            let vjp = self.vjps.get(self.asked.kind(arguments.leaves.iter()))?;
            let compiled = vjp.compile(&arguments)?;
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(compiled);
            vjp.call(arguments)
        }))?;
        let paths = results.structure.paths.clone();
        let (arrays, object) = to_python(py, results)?;
        Ok((arrays, object, Pullback { pullback, paths }))
    }

    /// Compiles for these arguments, and runs nothing.
    fn compile(&self, py: Python<'_>, form: &Form, leaves: &Bound<'_, PyList>) -> PyResult<()> {
        let arguments = form.of(leaves)?;
        or_reraise(without_lock(py, || {
            let compiled = self.vjps.get(self.asked.kind(arguments.leaves.iter()))?.compile(&arguments)?;
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(compiled);
            Ok(())
        }))
    }

    /// Bytes of the forward and of the backward program of the last call, each as inputs, outputs and the program's own
    /// memory; of those compiled for another target, where one is given.
    #[pyo3(signature = (target=None))]
    fn memory(&self, py: Python<'_>, target: Option<&str>) -> PyResult<Vec<(u64, u64, u64)>> {
        let Some(last) = self.last() else { return Ok(Vec::new()) };
        let Some(target) = target else {
            return Ok([last.forward(), last.backward()].map(|program| bytes(program.memory())).into());
        };
        let programs = self.compiled_for(py, &last, target)?;
        let target = target_of(target)?;
        let (forward, backward) = without_lock(py, || prepare(&programs, &self.asked.only_compiled(&target)?))?;
        Ok([forward, backward].map(|program| bytes(program.memory())).into())
    }

    /// Number of compilations.
    #[getter]
    fn compiles(&self) -> usize {
        self.vjps.all().iter().map(|vjp| vjp.compiles()).sum()
    }

    /// The joint, the forward or the backward program of the last call after each stage; compiled for another target,
    /// where one is given.
    #[pyo3(signature = (which, target=None))]
    fn stages(&self, py: Python<'_>, which: &str, target: Option<&str>) -> PyResult<Vec<Py<PyTrace>>> {
        let Some(last) = self.last() else { return Ok(Vec::new()) };
        let elsewhere = target.map(|target| self.compiled_for(py, &last, target)).transpose()?;
        let programs = elsewhere.as_ref().unwrap_or_else(|| last.programs());
        match which {
            "joint" => stages(py, &programs.joint),
            "forward" => stages(py, &programs.forward),
            "backward" => stages(py, &programs.backward),
            other => Err(PyValueError::new_err(format!("'{other}' is none of 'joint', 'forward' and 'backward'"))),
        }
    }

    /// Which executor supplied which gradient and took which line, and why others did not.
    #[pyo3(signature = (target=None))]
    fn explain(&self, py: Python<'_>, target: Option<&str>) -> PyResult<String> {
        let last = self.last().ok_or_else(not_called)?;
        match target {
            None => Ok(self.asked.elsewhere(last.forward().trace().target.kind()) + &in_python(&last.explain())),
            Some(target) => {
                let Programs { joint, forward, backward } = self.compiled_for(py, &last, target)?;
                let told = explain(joint.iter().chain(&forward).chain(&backward));
                Ok(self.asked.elsewhere(target_of(target)?.kind()) + &in_python(&told))
            }
        }
    }
}

impl VjpFunction {
    fn last(&self) -> Option<LastVjp> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Both programs for another target.
    fn compiled_for(&self, py: Python<'_>, last: &LastVjp, target: &str) -> PyResult<Programs> {
        let target = target_of(target)?;
        or_reraise(without_lock(py, || {
            let options = self.asked.only_compiled(&target)?;
            let trace = acquired(&last.programs().joint, &target)?;
            let block = &trace.block;
            let chosen = |name: &str| {
                let below = |path: &String| {
                    name.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                self.wrt.is_empty() || self.wrt.iter().any(below)
            };
            let wrt: Vec<usize> = (0..block.parameters.len())
                .filter(|i| {
                    let value = block.value(block.parameters[*i]);
                    value.meta.dtype().is_differentiable() && chosen(&value.name)
                })
                .collect();
            let of = floating_outputs(&trace);
            compile::split_stages(trace, &wrt, &of, &options)
        }))
    }
}

/// Takes cotangents of the results to gradients of the arguments, as often as it is asked to.
#[pyclass(frozen, module = "fulgurite")]
pub(crate) struct Pullback {
    pullback: RustPullback<Flat<Tensor>>,
    paths: Vec<String>,
}

#[pymethods]
impl Pullback {
    /// Gradients by the paths of the arguments, for cotangents of the results in order; `None` is zero.
    fn call<'py>(
        &self,
        py: Python<'py>,
        cotangents: Vec<Option<PyRef<'py, PyArray>>>,
    ) -> PyResult<Vec<(String, PyArray)>> {
        let each = self.paths.iter().zip(&cotangents);
        let given: Vec<(String, Array)> =
            each.filter_map(|(path, array)| Some((path.clone(), array.as_ref()?.0.clone()))).collect();
        let gradients = without_lock(py, || self.pullback.call(given))?;
        Ok(gradients.iter().map(|(path, array)| (path.to_owned(), PyArray(array.clone()))).collect())
    }

    /// Names and arrays that the forward program saved.
    fn saved(&self) -> Vec<(String, PyArray)> {
        self.pullback.saved().map(|(name, array)| (name.to_string(), PyArray(array.clone()))).collect()
    }
}

/// In a traced function: `callback(tensors)` returns a scalar and auxiliary tensors. Returns the scalar, these, and the
/// gradients of the scalar with respect to each of `tensors`, as one line of the trace.
#[pyfunction]
pub(crate) fn value_and_grad<'py>(
    py: Python<'py>,
    tensors: Vec<PyRef<'py, PyTensor>>,
    callback: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyTuple>> {
    let parameters: Vec<Tensor> = tensors.iter().map(|tensor| tensor.0).collect();
    let mut raised = None;
    let ((loss, aux), gradients) = tracer::value_and_grad_aux(parameters, |inner: &Vec<Tensor>| {
        let called = || {
            let (loss, aux): (Bound<'_, PyAny>, Vec<Bound<'_, PyAny>>) =
                callback.call1((handles(py, inner)?,))?.extract()?;
            let tensor = |leaf: &Bound<'_, PyAny>| PyResult::Ok(leaf.cast::<PyTensor>()?.get().0);
            Ok((tensor(&loss)?, aux.iter().map(tensor).collect::<PyResult<Vec<Tensor>>>()?))
        };
        called().unwrap_or_else(|error: PyErr| {
            tracer::fail("Python", Failure::new("PythonException", error.value(py).to_string()));
            raised = Some(error);
            (Tensor::PLACEHOLDER, Vec::new())
        })
    });
    let error = tracer::take_error();
    if let Some(raised) = raised {
        return Err(raised);
    }
    if let Some(error) = error {
        return Err(crate::error::raised(py, &error));
    }
    let loss = Bound::new(py, PyTensor(loss))?.into_any();
    PyTuple::new(py, [loss, handles(py, &aux)?.into_any(), handles(py, &gradients)?.into_any()])
}
