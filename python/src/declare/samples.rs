//! Samples and error samples that a declaration in Python makes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fulgurite::DType;
use fulgurite::argument::{Arg, map_arguments};
use fulgurite::operator::OperatorDef;
use fulgurite::rules::Precondition;
use fulgurite::testing::samples::{Domain, ErrorSamples, Sample, SampleTensor, Samples};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::raised::interned;
use super::rules::Own;
use crate::bind::{Given, Signature};
use crate::types::{PyDType, dtype_of};

/// A tensor of a sample: shape, element type, and a description of its values.
#[pyclass(frozen, name = "SampleTensor", module = "fulgurite.testing")]
pub(crate) struct PySampleTensor(pub SampleTensor);

#[pymethods]
impl PySampleTensor {
    /// Extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// Element type.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.0.dtype())
    }

    /// The same values in another element type.
    fn cast(&self, dtype: &Bound<'_, PyAny>) -> PyResult<PySampleTensor> {
        Ok(PySampleTensor(self.0.clone().cast(element_type(dtype)?)))
    }
}

fn element_type(dtype: &Bound<'_, PyAny>) -> PyResult<DType> {
    dtype_of(dtype)?.ok_or_else(|| PyTypeError::new_err("expected an element type or its name"))
}

/// What draws tensors: equal numbers of draws before give equal tensors.
struct Source {
    samples: Samples,
    drawn: usize,
}

impl Source {
    fn new(dtype: DType) -> Source {
        Source { samples: Samples::new(None, dtype), drawn: 0 }
    }

    fn draw(&mut self, tensor: impl FnOnce(&Samples) -> SampleTensor) -> PySampleTensor {
        self.drawn += 1;
        PySampleTensor(tensor(&self.samples))
    }
}

/// The arguments of a sample, bound by the operator's signature.
fn bound(
    py: Python<'_>,
    def: &'static OperatorDef,
    positional: &Bound<'_, PyTuple>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<Arg<SampleTensor>>> {
    let given = Signature::of(def).bind(py, positional, keywords)?;
    let of_samples = given.iter().flat_map(Arg::tensors).all(|given| matches!(given, Given::Sample(_)));
    if !of_samples {
        let message = format!("a sample of {} has tensors that the samples make: s.normal([4, 8])", def.name);
        return Err(PyTypeError::new_err(message));
    }
    Ok(map_arguments(&given, |given| match given {
        Given::Sample(tensor) => tensor.clone(),
        Given::Array(_) | Given::Traced(_) | Given::Meta(_) => unreachable!("checked above"),
    }))
}

macro_rules! tensor_sources {
    ($type:ident { $($others:tt)* }) => {
        #[pymethods]
        impl $type {
            /// The element type that the samples are made for.
            #[getter]
            fn dtype(&self) -> PyDType {
                PyDType(self.state().source.samples.dtype())
            }

            /// Standard normal values (small integers, booleans for those types) of the element type at hand.
            fn normal(&self, shape: Vec<usize>) -> PySampleTensor {
                self.state().source.draw(|s| s.normal(shape))
            }

            /// Values from `low` to `high` of the element type at hand.
            fn uniform(&self, low: f64, high: f64, shape: Vec<usize>) -> PySampleTensor {
                self.state().source.draw(|s| s.uniform(low, high, shape))
            }

            /// int64 values from `low` up to, not including, `high`.
            fn integers(&self, low: i64, high: i64, shape: Vec<usize>) -> PySampleTensor {
                self.state().source.draw(|s| s.integers(low, high, shape))
            }

            /// Booleans, about half of them true.
            fn booleans(&self, shape: Vec<usize>) -> PySampleTensor {
                self.state().source.draw(|s| s.booleans(shape))
            }

            /// The given values in row-major order (repeated if there are too few), of the element type at hand.
            fn values(&self, shape: Vec<usize>, values: Vec<f64>) -> PySampleTensor {
                self.state().source.draw(|s| s.values(shape, values))
            }

            /// A tensor of another element type, normally distributed.
            fn of(&self, dtype: &Bound<'_, PyAny>, shape: Vec<usize>) -> PyResult<PySampleTensor> {
                let dtype = element_type(dtype)?;
                Ok(self.state().source.draw(|s| s.of(dtype, shape)))
            }

            $($others)*
        }
    };
}

struct State<T> {
    source: Source,
    cases: Vec<T>,
}

/// Collects the samples of an operator for one element type.
#[pyclass(frozen, name = "Samples", module = "fulgurite.testing")]
pub(crate) struct PySamples {
    def: &'static OperatorDef,
    state: Mutex<State<Sample>>,
}

impl PySamples {
    fn state(&self) -> MutexGuard<'_, State<Sample>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the samples of a family, whose values follow those that were drawn before.
    fn family(&self, add: impl FnOnce(&mut Samples)) {
        let mut state = self.state();
        let mut samples = Samples::new(Some(self.def), state.source.samples.dtype());
        for _ in 0..state.source.drawn {
            samples.normal([]);
        }
        add(&mut samples);
        let cases = samples.into_cases();
        for _ in cases.iter().flat_map(|sample| &sample.arguments).flat_map(Arg::tensors) {
            state.source.draw(|s| s.normal([]));
        }
        state.cases.extend(cases);
    }
}

/// `"all"`, `"positive"`, `"unit"`, or the lowest and the highest number.
fn read(value: &Bound<'_, PyAny>) -> PyResult<Domain> {
    if let Ok((low, high)) = value.extract::<(f64, f64)>() {
        return Ok(Domain::range(low, high));
    }
    match value.extract::<String>().as_deref() {
        Ok("all") => Ok(Domain::ALL),
        Ok("positive") => Ok(Domain::POSITIVE),
        Ok("unit") => Ok(Domain::UNIT),
        _ => Err(PyValueError::new_err(format!(
            "the domain is {value}, expected 'all', 'positive', 'unit', or the lowest and the highest number"
        ))),
    }
}

/// Checks that families of samples have as many tensors as the operator.
fn takes(def: &OperatorDef, most: usize) -> PyResult<()> {
    use fulgurite::operator::ParamKind;
    let tensors = def.params.iter().filter(|param| matches!(param.kind, ParamKind::Tensor(_))).count();
    let others = def.params.iter().any(|param| param.kind == ParamKind::Attribute && param.default.is_none());
    if tensors <= most && !others {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "this family has {most} tensors and defaults for the rest, {} takes more: add calls with s.case(...)",
        def.signature()
    )))
}

tensor_sources!(PySamples {
    /// Adds a call, with the arguments of the operator.
    #[pyo3(signature = (*arguments, **keywords))]
    fn case(
        slf: Bound<'_, Self>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Case> {
        let arguments = bound(slf.py(), slf.get().def, arguments, keywords)?;
        let mut state = slf.get().state();
        state.cases.push(Sample { arguments, forward_only: None, gradients: None });
        let index = state.cases.len() - 1;
        drop(state);
        Ok(Case { samples: slf.unbind(), index })
    }

    /// The usual shapes for an elementwise function of one tensor, and the special values where the domain has them.
    #[pyo3(signature = (domain=None))]
    fn elementwise_unary(&self, domain: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        takes(self.def, 1)?;
        let of = domain.map_or(Ok(Domain::ALL), read)?;
        self.family(|samples| samples.elementwise_unary(of));
        Ok(())
    }

    /// As `elementwise_unary`, fewer shapes: for what consists of elementwise operators.
    #[pyo3(signature = (domain=None))]
    fn composed_unary(&self, domain: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        takes(self.def, 1)?;
        let of = domain.map_or(Ok(Domain::ALL), read)?;
        self.family(|samples| samples.composed_unary(of));
        Ok(())
    }

    /// As `elementwise_unary`, of two tensors of one shape.
    #[pyo3(signature = (left=None, right=None))]
    fn elementwise_binary(&self, left: Option<&Bound<'_, PyAny>>, right: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        takes(self.def, 2)?;
        let (left, right) = (left.map_or(Ok(Domain::ALL), read)?, right.map_or(Ok(Domain::ALL), read)?);
        self.family(|samples| samples.elementwise_binary(left, right));
        Ok(())
    }

    /// As `composed_unary`, of two tensors, which broadcast.
    #[pyo3(signature = (left=None, right=None))]
    fn composed_binary(&self, left: Option<&Bound<'_, PyAny>>, right: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        takes(self.def, 2)?;
        let (left, right) = (left.map_or(Ok(Domain::ALL), read)?, right.map_or(Ok(Domain::ALL), read)?);
        self.family(|samples| samples.composed_binary(left, right));
        Ok(())
    }
});

/// One sample.
#[pyclass(frozen, module = "fulgurite.testing")]
pub(crate) struct Case {
    samples: Py<PySamples>,
    index: usize,
}

#[pymethods]
impl Case {
    /// Excludes the sample from the tests of gradients, with the reason.
    fn forward_only<'py>(slf: Bound<'py, Self>, reason: &str) -> Bound<'py, Self> {
        let own = slf.get();
        own.samples.get().state().cases[own.index].forward_only = Some(interned(reason));
        slf
    }

    /// States the gradients of the floating-point tensors, for cotangents of 1, 2, 3, ...
    fn gradients(slf: Bound<'_, Self>, gradients: Vec<Vec<f64>>) -> Bound<'_, Self> {
        let own = slf.get();
        own.samples.get().state().cases[own.index].gradients = Some(gradients);
        slf
    }
}

/// A sample that is refused: while it is traced or when it runs, with this code, arguments, and text.
struct Refused {
    when_run: bool,
    code: &'static str,
    arguments: Vec<Arg<SampleTensor>>,
    text: &'static str,
}

/// Collects the calls that an operator refuses.
#[pyclass(frozen, name = "ErrorSamples", module = "fulgurite.testing")]
pub(crate) struct PyErrorSamples {
    def: &'static OperatorDef,
    state: Mutex<State<Refused>>,
}

impl PyErrorSamples {
    fn state(&self) -> MutexGuard<'_, State<Refused>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, when_run: bool, (code, text): (&str, &str), arguments: Vec<Arg<SampleTensor>>) {
        let (code, text) = (interned(code), interned(text));
        self.state().cases.push(Refused { when_run, code, arguments, text });
    }
}

tensor_sources!(PyErrorSamples {
    /// Adds a call that must fail with `code` and a message that contains `text`.
    #[pyo3(signature = (code, text, *arguments, **keywords))]
    fn case(
        &self,
        py: Python<'_>,
        code: &str,
        text: &str,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.add(false, (code, text), bound(py, self.def, arguments, keywords)?);
        Ok(())
    }

    /// Adds a call that is traced, and must fail with `code` and a message that contains `text` when it runs.
    #[pyo3(signature = (code, text, *arguments, **keywords))]
    fn when_run(
        &self,
        py: Python<'_>,
        code: &str,
        text: &str,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.add(true, (code, text), bound(py, self.def, arguments, keywords)?);
        Ok(())
    }
});

/// Ends a test: samples have no failures.
fn raised(py: Python<'_>, who: &str, error: PyErr) -> ! {
    let failure = super::raised::failure(py, who, error);
    panic!("{}", failure.message)
}

fn def_of(own: &Own) -> &'static OperatorDef {
    own.get().copied().unwrap_or_else(|| panic!("the operator is being registered"))
}

/// The samples of a declaration.
pub(super) fn rule(function: Py<PyAny>, own: Own) -> impl Fn(&mut Samples) + Send + Sync + 'static {
    move |samples| {
        let (def, dtype) = (def_of(&own), samples.dtype());
        let made = Python::attach(|py| {
            let state = State { source: Source::new(dtype), cases: Vec::new() };
            let called = || {
                let collected = Bound::new(py, PySamples { def, state: Mutex::new(state) })?;
                function.bind(py).call1((&collected,))?;
                let cases = std::mem::take(&mut collected.get().state().cases);
                PyResult::Ok(cases)
            };
            called().unwrap_or_else(|error| raised(py, "samples", error))
        });
        for Sample { arguments, forward_only, gradients } in made {
            let added = samples.arguments(arguments);
            (added.forward_only, added.gradients) = (forward_only, gradients);
        }
    }
}

/// The error samples of a declaration.
pub(super) fn errors_rule(function: Py<PyAny>, own: Own) -> impl Fn(&mut ErrorSamples) + Send + Sync + 'static {
    move |samples| {
        let (def, dtype) = (def_of(&own), samples.dtype());
        let made = Python::attach(|py| {
            let state = State { source: Source::new(dtype), cases: Vec::new() };
            let called = || {
                let collected = Bound::new(py, PyErrorSamples { def, state: Mutex::new(state) })?;
                function.bind(py).call1((&collected,))?;
                let cases = std::mem::take(&mut collected.get().state().cases);
                PyResult::Ok(cases)
            };
            called().unwrap_or_else(|error| raised(py, "errors", error))
        });
        for Refused { when_run, code, arguments, text } in made {
            match when_run {
                true => samples.when_run(code, arguments, text),
                false => samples.case(Precondition::new(code), arguments, text),
            }
        }
    }
}
