//! Functions that update a state where it is: training steps.

use std::sync::{Arc, Mutex, PoisonError};

use fulgurite::jit::{Bound as BoundTree, Compiled, Jit};
use fulgurite::program::with_overwritten;
use fulgurite::{Array, Device, Error, Tensor, jit};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::array::{PyArray, first_byte};
use crate::dlpack;
use crate::error::{panicked, raised, without_lock};
use crate::function::{Form, handles, keep_raised, not_called, or_reraise, returned, stages, to_python};
use crate::options::{Asked, PerKind, device_among};
use crate::tensor::{PyTensor, tracing};
use crate::trace::PyTrace;
use crate::tree::{Flat, Structure};
use crate::words::in_python;

type Arguments<L> = (Flat<L>, Flat<L>);
type Traced = Box<dyn Fn(Arguments<Tensor>) -> Arguments<Tensor> + Send + Sync>;
type StepJit = Jit<Arguments<Array>, Arguments<Tensor>, Traced>;
type Held = BoundTree<Flat<Tensor>, Flat<Tensor>>;

/// The arrays that the calls of a [`StepFunction`] update. It has them from call to call, and nobody else does.
#[pyclass(frozen, module = "fulgurite")]
pub(crate) struct State {
    /// `None` while a call has it, and after one that failed.
    held: Mutex<Option<Held>>,
    /// The device of the arrays that are not on the host.
    device: Option<Device>,
    /// Where the first element of each array is, of those in memory of others.
    places: Mutex<Vec<Option<usize>>>,
}

#[pymethods]
impl State {
    /// Of the memory of objects that have `__dlpack__`, which calls write to; of `Array`s copies are made. The caller
    /// promises that no two of them share memory, and that nobody uses it while a call runs.
    #[new]
    fn new(py: Python<'_>, paths: Vec<String>, key: String, producers: &Bound<'_, PyList>) -> PyResult<State> {
        let mut leaves = Vec::with_capacity(producers.len());
        let mut places = Vec::with_capacity(producers.len());
        for producer in producers {
            if let Ok(own) = producer.cast::<PyArray>() {
                // A copy, also of what is contiguous: the caller keeps its array.
                let array = &own.get().0;
                leaves.push(without_lock(py, || copied(array))?);
                places.push(None);
                continue;
            }
            let array = dlpack::lent(py, &producer)?;
            places.push(Some(first_byte(&array)));
            leaves.push(array);
        }
        if leaves.len() != paths.len() {
            return Err(PyValueError::new_err(format!("{} arrays for {} paths", leaves.len(), paths.len())));
        }
        let device = device_among(leaves.iter());
        let structure = Arc::new(Structure { paths, key, object: py.None() });
        let held = Mutex::new(Some(BoundTree::new(Flat { leaves, structure })));
        Ok(State { held, device, places: Mutex::new(places) })
    }

    /// Copies of the arrays, in order.
    fn copies<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let arrays = without_lock(py, || {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            let state = held.as_mut().ok_or_else(in_use)?.get()?;
            state.leaves.iter().map(copied).collect::<Result<Vec<Array>, Error>>()
        })?;
        let arrays: PyResult<Vec<_>> = arrays.into_iter().map(|array| Bound::new(py, PyArray(array))).collect();
        PyList::new(py, arrays?)
    }
}

/// The array in memory of its own.
fn copied(array: &Array) -> Result<Array, Error> {
    match array.device() {
        device if device.is_cpu() => Array::from_bytes(array.shape(), array.dtype(), &array.to_bytes()?),
        device => array.to_host()?.to_device(device),
    }
}

fn in_use() -> Error {
    let message = "is in use by another call, or went with a call that failed".to_owned();
    Error::Argument { argument: "state".into(), message }
}

/// The traced function that calls `callback(state_tensors, object, tensors)`, which returns the new state's tensors,
/// the results' tensors with their paths, and an object for these.
fn traced(callback: &Arc<Py<PyAny>>) -> Traced {
    let callback = callback.clone();
    Box::new(move |(state, others): Arguments<Tensor>| {
        Python::attach(|py| {
            let called = || {
                let object = others.structure.object.bind(py);
                let given = (handles(py, &state.leaves)?, object, handles(py, &others.leaves)?);
                let (next, rest): (Vec<Bound<'_, PyAny>>, Bound<'_, PyAny>) =
                    callback.bind(py).call1(given)?.extract()?;
                let next: PyResult<Vec<Tensor>> =
                    next.iter().map(|leaf| Ok(leaf.cast::<PyTensor>()?.get().0)).collect();
                PyResult::Ok((Flat { leaves: next?, structure: state.structure.clone() }, returned(py, &rest)?))
            };
            tracing(called).unwrap_or_else(|error| {
                keep_raised(py, error);
                let none = || Arc::new(Structure { paths: Vec::new(), key: String::new(), object: py.None() });
                (Flat { leaves: Vec::new(), structure: none() }, Flat { leaves: Vec::new(), structure: none() })
            })
        })
    })
}

/// A Python function of a state and other arguments, compiled with the state donated: results take its memory.
#[pyclass(frozen, module = "fulgurite")]
pub(crate) struct StepFunction {
    asked: Asked,
    jits: PerKind<StepJit>,
    last: Mutex<Option<Arc<Compiled<Arguments<Tensor>>>>>,
}

#[pymethods]
impl StepFunction {
    /// `callback(state_tensors, object, tensors)` returns the new state's tensors in the order of the old ones, and
    /// what a `Function`'s callback returns for the other results. Paths of the state below `donated` are given to
    /// them.
    #[new]
    #[pyo3(signature = (callback, name, donated, *, executors=None, device=None, autocast=None, transforms=Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        callback: Py<PyAny>,
        name: &str,
        donated: Vec<String>,
        executors: Option<Vec<String>>,
        device: Option<&Bound<'_, PyAny>>,
        autocast: Option<&Bound<'_, PyAny>>,
        transforms: Vec<(String, Py<PyAny>, String)>,
    ) -> PyResult<StepFunction> {
        let callback = Arc::new(callback);
        let asked = Asked::new(py, executors, device, autocast, transforms)?;
        let (known, name) = (asked.clone(), name.to_owned());
        let make = move |kind: &str| {
            let jit = jit(traced(&callback)).named(&name).options(known.on(kind)?);
            Ok(donated.iter().fold(jit, |jit, path| jit.donate(path)))
        };
        Ok(StepFunction { asked, jits: PerKind::new(make), last: Mutex::default() })
    }

    /// Compiles for this state and these arguments, and runs nothing. The state stays as it is.
    fn compile(&self, py: Python<'_>, state: &State, form: &Form, leaves: &Bound<'_, PyList>) -> PyResult<()> {
        let others = form.of(leaves)?;
        or_reraise(without_lock(py, || {
            let mut held = state.held.lock().unwrap_or_else(PoisonError::into_inner);
            let jit = self.jit(state, &others)?;
            let state = held.as_mut().ok_or_else(in_use)?.get()?.clone();
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(jit.compile(&(state, others))?);
            Ok(())
        }))
    }

    /// Updates the state. The arrays of the other results, the object of their structure, and of the state's arrays in
    /// memory of others those that the program could not update where they are, with their numbers: their owner has to
    /// copy them there, and to lend them again. Signals are handled by the caller, when it has noted the update.
    ///
    /// An error has the attribute `overwritten`: whether a part of the state was written to. The state is gone then;
    /// its memory stays that of its owner.
    fn call<'py>(
        &self,
        py: Python<'py>,
        state: &State,
        form: &Form,
        leaves: &Bound<'py, PyList>,
    ) -> PyResult<(Bound<'py, PyList>, Py<PyAny>, Vec<(usize, PyArray)>)> {
        let others = form.of(leaves)?;
        let Some(mut held) = state.held.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Err(raised(py, &in_use()));
        };
        let run = || {
            let results = self.jit(state, &others)?.call_bound(&mut held, (others,))?;
            let places = state.places.lock().unwrap_or_else(PoisonError::into_inner);
            let mut moved = Vec::new();
            if !held.is_bound() {
                let arrays = held.get()?.leaves.iter().zip(&*places).enumerate();
                let elsewhere = arrays.filter(|(_, (array, place))| {
                    !array.meta().is_empty() && place.is_some_and(|place| place != first_byte(array))
                });
                moved.extend(elsewhere.map(|(i, (array, _))| (i, PyArray(array.clone()))));
            }
            Ok::<_, Error>((held, results, moved))
        };
        let work = std::panic::AssertUnwindSafe(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)));
        let (outcome, overwritten) = py.detach(|| with_overwritten(work));
        let outcome = match outcome {
            Ok(outcome) => outcome.map_err(|error| raised(py, &error)),
            Err(panic) => Err(panicked(py, &*panic)),
        };
        let (held, results, moved) = or_reraise(outcome).inspect_err(|error| {
            // An exception without attributes is a caller's own, from before the run.
            let _ = error.value(py).setattr("overwritten", overwritten);
        })?;
        *state.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        let (arrays, object) = to_python(py, results)?;
        Ok((arrays, object, moved))
    }

    /// Number of compilations.
    #[getter]
    fn compiles(&self) -> usize {
        self.jits.all().iter().map(|jit| jit.compiles()).sum()
    }

    /// The program of the last `compile` after each stage.
    fn stages(&self, py: Python<'_>) -> PyResult<Vec<Py<PyTrace>>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stages(py, last.as_deref().map_or(&[], Compiled::stages))
    }

    /// Which executor took which line of the program of the last `compile`, and why others did not.
    fn explain(&self) -> PyResult<String> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.map(|compiled| in_python(&compiled.explain())).ok_or_else(not_called)
    }

    /// Of each donated path, which result took its memory, or why none did.
    fn donations(&self) -> Vec<(String, Option<String>, Option<String>)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all = last.map(|compiled| compiled.donations()).unwrap_or_default();
        all.into_iter()
            .map(|each| match each.outcome {
                Ok(result) => (each.input, Some(result), None),
                Err(why) => (each.input, None, Some(why)),
            })
            .collect()
    }
}

impl StepFunction {
    /// The function for the device of a state, or of the other arguments.
    fn jit(&self, state: &State, others: &Flat<Array>) -> Result<Arc<StepJit>, Error> {
        self.jits.get(self.asked.kind_of(state.device.or_else(|| device_among(others.leaves.iter()))))
    }
}
