//! One sample of one operator in one element type, made ready to be tested: its data, its trace, and the programs that
//! it is compiled to, each made once and kept for every template that asks.

use crate::operator::RuleSet;
use crate::rules::TestRules;
use crate::tracer::rules::TracingRules;
use crate::transforms::autodiff::rules::GradientRules;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fulgurite_kernels::DType;
use rustc_hash::FxHashMap;

use super::directives::Tolerance;
use super::exact::is_elementwise;
use super::executor_list::List;
use super::interpret::compare_rounded_below;
use super::problem::{Check, Problem, ensure};
use super::samples::{Random, Sample, SampleTensor, Samples, classes_fit, round_to};
use super::tolerance::{self, Expected, relative_error};
use crate::argument::{Arg, map_arguments};
use crate::arithmetic::Arithmetic;
use crate::array::Array;
use crate::elementwise::{as_rounded, rounded_numbers};
use crate::error::{Place, Result};
use crate::executor::ExecutorDef;
use crate::meta::{Device, Target, TensorMeta};
use crate::operator::OperatorDef;
use crate::program::Program;
use crate::reference::ReferenceTensor;
use crate::trace::{Block, Input, InputRole, Output, StageName, Trace};
use crate::tracer::{self, trace_rule};
use crate::transforms;
use crate::transforms::decompose::decompose;

/// The most elements of a sample that is not [large](Subject::is_large).
const LARGE: usize = 1 << 13;

/// A program, what it was run on, and what came out.
#[derive(Debug)]
pub(crate) struct Ran {
    pub program: Program,
    pub inputs: Vec<Array>,
    pub outputs: Vec<Array>,
    /// How many of the outputs are the operator's own; the others are gradients.
    pub own: usize,
}

/// Data of the arguments in, values of the results out.
type Evaluate<'a> = Box<dyn Fn(&[Array]) -> Check<Vec<Vec<f64>>> + 'a>;
type Kept<T> = Mutex<FxHashMap<String, Arc<T>>>;

/// A sample made ready; see the module.
pub(crate) struct Subject {
    pub def: &'static OperatorDef,
    pub dtype: DType,
    pub index: usize,
    pub sample: Sample,
    pub metas: Vec<Arg<TensorMeta>>,
    /// The tensors among the arguments, in order, contiguous.
    pub arrays: Vec<Array>,
    trace: OnceLock<Check<Trace>>,
    reference: OnceLock<Check<Option<Vec<ReferenceTensor>>>>,
    expected: OnceLock<Check<Option<Vec<Expected>>>>,
    forward: Kept<Check<Ran>>,
    joint: Kept<Check<Option<Ran>>>,
    twin: OnceLock<Option<Arc<Subject>>>,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} sample {}", self.def.name, self.index)
    }
}

fn kept<T>(map: &Kept<T>, key: &str, make: impl FnOnce() -> T) -> Arc<T> {
    if let Some(known) = map.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
        return known.clone();
    }
    let made = Arc::new(make());
    map.lock().unwrap_or_else(PoisonError::into_inner).entry(key.to_owned()).or_insert(made).clone()
}

/// The samples of `def` in `dtype` whose arguments are of classes that the signature accepts, with their indices.
pub(crate) fn accepted_samples(def: &'static OperatorDef, dtype: DType) -> Vec<(usize, Sample)> {
    Samples::of_operator(def, dtype).into_iter().enumerate().filter(|(_, sample)| classes_fit(def, sample)).collect()
}

/// The metas of a sample's arguments.
pub(crate) fn sample_metas(sample: &Sample, device: Device) -> Vec<Arg<TensorMeta>> {
    map_arguments(&sample.arguments, |tensor| tensor.meta(device))
}

/// So many operators in an element type are kept ready. Tests come sorted by operator, and each subject keeps programs
/// with their memory: all of them together do not fit on a small device.
const KEPT_SUBJECTS: usize = 24;

/// The samples of `def` in `dtype`, made ready. Those asked for last are kept, for every template that asks.
pub(crate) fn subjects(def: &'static OperatorDef, dtype: DType) -> Check<Arc<Vec<Subject>>> {
    /// The record, which another one of its name may follow, and the state of the registrations: what is kept has
    /// programs.
    type Key = (usize, u64, DType);
    /// The one asked for last is the last.
    type Known = Vec<(Key, Arc<Vec<Subject>>)>;
    static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
    let key = (std::ptr::from_ref(def).addr(), fulgurite_ir::registered::epoch(), dtype);
    let find = |known: &mut Known| {
        let at = known.iter().position(|(other, _)| *other == key)?;
        let found = known.remove(at);
        known.push(found.clone());
        Some(found.1)
    };
    if let Some(subjects) = find(&mut KNOWN.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(subjects);
    }
    let made: Vec<Subject> = accepted_samples(def, dtype)
        .into_iter()
        .map(|(index, sample)| Subject::new(def, dtype, index, sample))
        .collect::<Check<_>>()?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(subjects) = find(&mut known) {
        return Ok(subjects);
    }
    let subjects = Arc::new(made);
    known.push((key, subjects.clone()));
    let surplus = known.len().saturating_sub(KEPT_SUBJECTS);
    let dropped: Vec<_> = known.drain(..surplus).collect();
    // Their programs are waited for, and nobody else should wait meanwhile.
    drop(known);
    drop(dropped);
    Ok(subjects)
}

/// A trace of one block: named inputs, outputs `result` or `result0`, `result1`, ...
pub(crate) fn trace_of(name: &str, block: Block) -> Trace {
    let outputs = match block.results.len() {
        1 => vec![Output { path: "result".into() }],
        n => (0..n).map(|i| Output { path: format!("result{i}") }).collect(),
    };
    Trace {
        name: name.to_owned(),
        target: Target::cpu(),
        history: vec![StageName::Acquire.name().into()],
        inputs: vec![Input { role: InputRole::Input, donated: false, strides: None }; block.parameters.len()],
        outputs,
        arena: None,
        block: block.canonical(),
    }
}

/// The trace of one call.
pub(crate) fn trace_call(def: &'static OperatorDef, metas: &[Arg<TensorMeta>]) -> Result<Trace> {
    let block = trace_rule(def, metas, |arguments| {
        // An error there is read by the operator's author.
        tracer::calls::call_at(def, arguments.to_vec(), Place::declared(def))
    })?;
    Ok(trace_of(def.short_name(), block))
}

/// Random numbers like the elements of `meta`.
pub(crate) fn random_like(meta: &TensorMeta, seed: u64) -> Result<Array> {
    let mut random = Random::new(seed ^ 0x5EED);
    let values: Vec<f64> =
        (0..meta.len() * meta.dtype().parts()).map(|_| round_to(random.normal(), meta.dtype())).collect();
    Array::from_f64(meta.shape(), meta.dtype(), &values)
}

/// Indices of the inputs of a trace that gradients exist for.
pub(crate) fn differentiable_inputs(trace: &Trace) -> Vec<usize> {
    let block = &trace.block;
    (0..block.parameters.len()).filter(|i| block.meta(block.parameters[*i]).dtype().is_differentiable()).collect()
}

/// The joint trace of `trace` and its vjp, if it has floating-point inputs and outputs.
pub(crate) fn joint_trace(trace: &Trace, executors: &[&'static ExecutorDef]) -> Result<Option<Trace>> {
    let wrt = differentiable_inputs(trace);
    let floating = trace.block.results.iter().any(|id| trace.block.meta(*id).dtype().is_differentiable());
    if wrt.is_empty() || !floating {
        return Ok(None);
    }
    transforms::vjp(trace, &wrt, executors).map(Some)
}

/// Compiles and runs, on copies: a kernel that writes to its inputs is found by the templates that look for it, and
/// spoils nothing for the others.
pub(crate) fn execute(trace: Trace, list: &List, inputs: Vec<Array>, own: usize) -> Check<Ran> {
    let program = list.compile(&trace)?;
    let copies = inputs.iter().map(Array::to_contiguous).collect::<Result<Vec<Array>>>()?;
    let outputs = program.run(copies)?.iter().map(Array::to_host).collect::<Result<Vec<Array>>>()?;
    Ok(Ran { program, inputs, outputs, own })
}

impl Subject {
    /// Whether the tensors among the arguments have more elements than a program's plan, order and rules depend on:
    /// such a sample is there for the tiles, blocks and registers of kernels.
    pub fn is_large(&self) -> bool {
        self.arrays.iter().map(|array| array.shape().iter().product::<usize>()).sum::<usize>() > LARGE
    }

    /// A sample, ready.
    pub fn new(def: &'static OperatorDef, dtype: DType, index: usize, sample: Sample) -> Check<Subject> {
        let metas = sample_metas(&sample, Device::CPU);
        let arrays = sample
            .arguments
            .iter()
            .flat_map(Arg::tensors)
            .map(|tensor| Array::from_f64(tensor.shape(), tensor.dtype(), &tensor.values()))
            .collect::<Result<Vec<Array>>>()?;
        Ok(Subject::with(def, dtype, index, sample, metas, arrays))
    }

    pub fn with(
        def: &'static OperatorDef,
        dtype: DType,
        index: usize,
        sample: Sample,
        metas: Vec<Arg<TensorMeta>>,
        arrays: Vec<Array>,
    ) -> Subject {
        Subject {
            def,
            dtype,
            index,
            sample,
            metas,
            arrays,
            trace: OnceLock::new(),
            reference: OnceLock::new(),
            expected: OnceLock::new(),
            forward: Kept::default(),
            joint: Kept::default(),
            twin: OnceLock::new(),
        }
    }

    /// A call that is no sample.
    pub fn of_arguments(def: &'static OperatorDef, dtype: DType, arguments: Vec<Arg<SampleTensor>>) -> Check<Subject> {
        Subject::new(def, dtype, 0, Sample { arguments, forward_only: None, gradients: None })
    }

    /// A sample of the same operator with other arguments.
    pub fn variant(&self, sample: Sample) -> Check<Subject> {
        Subject::new(self.def, self.dtype, self.index, sample)
    }

    /// The trace of the call.
    pub fn trace(&self) -> Check<&Trace> {
        self.trace.get_or_init(|| Ok(trace_call(self.def, &self.metas)?)).as_ref().map_err(Clone::clone)
    }

    /// Metas of the results.
    pub fn results(&self) -> Check<Vec<TensorMeta>> {
        let block = &self.trace()?.block;
        Ok(block.results.iter().map(|id| block.meta(*id).clone()).collect())
    }

    /// Whether gradients are checked here.
    pub fn differentiable(&self) -> Check<bool> {
        Ok(GradientRules::of(self.def).no_grad.is_none()
            && self.sample.forward_only.is_none()
            && !differentiable_inputs(self.trace()?).is_empty()
            && self.results()?.iter().any(|meta| meta.dtype().is_differentiable()))
    }

    /// The call as run by the executors of `list`.
    pub fn forward(&self, list: &List) -> Arc<Check<Ran>> {
        kept(&self.forward, &list.name, || {
            let trace = self.trace()?;
            execute(trace.clone(), list, self.arrays.clone(), trace.block.results.len())
        })
    }

    /// The call and its gradients for random cotangents, as run by the executors of `list`.
    pub fn joint(&self, list: &List) -> Arc<Check<Option<Ran>>> {
        kept(&self.joint, &list.name, || {
            let trace = self.trace()?;
            let Some(joint) = joint_trace(&list.placed(trace)?, &list.executors)? else { return Ok(None) };
            let mut inputs = self.arrays.clone();
            for (i, id) in joint.block.parameters.iter().enumerate().skip(inputs.len()) {
                inputs.push(random_like(joint.block.meta(*id), i as u64)?);
            }
            execute(joint, list, inputs, trace.block.results.len()).map(Some)
        })
    }

    /// The arguments as the reference takes them, with other arrays for the tensors.
    pub fn reference_arguments(&self, arrays: &[Array]) -> Result<Vec<Arg<ReferenceTensor>>> {
        let mut tensors = arrays.iter().map(Array::to_reference).collect::<Result<Vec<_>>>()?.into_iter();
        let given =
            map_arguments(&self.metas, |_| tensors.next().unwrap_or_else(|| unreachable!("one for each tensor")));
        Ok(as_rounded(self.def.params, &given))
    }

    /// What the independent reference says, if there is one.
    pub fn reference(&self) -> Check<Option<&[ReferenceTensor]>> {
        self.reference
            .get_or_init(|| match TestRules::of(self.def).reference {
                None => Ok(None),
                Some(rule) => {
                    let results = rule(&self.reference_arguments(&self.arrays)?)
                        .map_err(|failure| Problem::from(failure).within("the reference fails"))?;
                    Ok(Some(results))
                }
            })
            .as_ref()
            .map(|results| results.as_deref())
            .map_err(Clone::clone)
    }

    /// The same call with every floating-point tensor in f64, holding the same numbers. `None` if it is no f64
    /// operator.
    pub fn twin(&self) -> Option<&Arc<Subject>> {
        self.twin
            .get_or_init(|| {
                let rounded = self.with_rounded_numbers();
                let metas = map_arguments(&rounded.metas, |meta| meta.with_dtype(widest(meta.dtype())));
                self.def.check_arguments(&metas).ok()?;
                trace_call(self.def, &metas).ok()?;
                let arrays = self.arrays.iter().map(wide).collect::<Result<Vec<Array>>>().ok()?;
                let sample = Sample { forward_only: self.sample.forward_only, ..self.sample.clone() };
                Some(Arc::new(Subject::with(self.def, DType::F64, self.index, sample, metas, arrays)))
            })
            .as_ref()
    }

    /// The same call with the numbers that stand for tensors as their element type holds them.
    pub fn with_rounded_numbers(&self) -> Subject {
        let metas = match Arithmetic::of(self.def).scalar {
            Some(_) => rounded_numbers(self.def.params, &self.metas, self.dtype),
            None => self.metas.clone(),
        };
        Subject::with(self.def, self.dtype, self.index, self.sample.clone(), metas, self.arrays.clone())
    }

    /// Each result as it should be, by the reference, or else by the decomposition in f64; `None` if there is neither.
    pub fn expected(&self) -> Check<Option<&[Expected]>> {
        self.expected.get_or_init(|| self.make_expected()).as_ref().map(|e| e.as_deref()).map_err(Clone::clone)
    }

    fn make_expected(&self) -> Check<Option<Vec<Expected>>> {
        let metas = self.results()?;
        let kinds: Vec<DType> = metas.iter().map(TensorMeta::dtype).collect();
        let evaluate: Evaluate<'_> = match (TestRules::of(self.def).reference, self.twin()) {
            (Some(rule), _) => Box::new(move |arrays: &[Array]| {
                let results = rule(&self.reference_arguments(arrays)?)
                    .map_err(|failure| Problem::from(failure).within("the reference fails"))?;
                Ok(results.iter().zip(&kinds).map(|(result, dtype)| values_of(result, *dtype)).collect())
            }),
            (None, Some(twin)) if TracingRules::of(self.def).decomposition.is_some() => {
                let ran = twin.forward(&List::plain()?);
                Box::new(move |arrays: &[Array]| {
                    let ran = ran.as_ref().as_ref().map_err(Clone::clone)?;
                    let arrays = arrays.iter().map(wide).collect::<Result<Vec<Array>>>()?;
                    Ok(ran.program.run(arrays)?.iter().map(Array::to_f64).collect::<Result<_>>()?)
                })
            }
            _ => return Ok(None),
        };
        let values = evaluate(&self.arrays)?;
        ensure!(values.len() == metas.len(), "the reference gives {} results, meta {}", values.len(), metas.len());
        let mut responses: Vec<Vec<Vec<f64>>> = vec![Vec::new(); metas.len()];
        if metas.iter().any(|meta| meta.dtype().is_differentiable()) {
            for seed in 0..2 {
                // A reference that refuses moved data has a precondition on values; it gets no response.
                let Ok(moved) = evaluate(&perturbed(&self.arrays, seed, None)?) else { continue };
                for (all, moved) in responses.iter_mut().zip(moved) {
                    all.push(moved);
                }
            }
        }
        let elementwise = is_elementwise(self.trace()?);
        let expected = values.into_iter().zip(&metas).zip(responses).map(|((values, meta), responses)| {
            let same_length = responses.iter().all(|moved| moved.len() == values.len());
            if !meta.dtype().is_differentiable() || !same_length {
                return Expected::exact(values);
            }
            let expected = Expected::rounded(values, meta.dtype()).with_responses(&responses);
            if elementwise { expected.with_signs_of_zeros() } else { expected }
        });
        Ok(Some(expected.collect()))
    }

    /// Compares an executor's results with what is expected, with room for the error of the plain decomposition in this
    /// element type. `false` if nothing is known to compare with.
    pub fn compare(&self, outputs: &[Array], tolerance: Tolerance) -> Check<bool> {
        let Some(expected) = self.expected()? else { return Ok(false) };
        let low =
            self.arrays.iter().any(|array| array.dtype().is_differentiable() && array.dtype().part() != DType::F64);
        let plain = if low && TracingRules::of(self.def).decomposition.is_some() {
            Some(self.forward(&List::plain()?))
        } else {
            None
        };
        for (i, (output, expected)) in outputs.iter().zip(expected).enumerate() {
            let mut expected = expected.clone();
            if let Some(Ok(plain)) = plain.as_deref().map(Result::as_ref).filter(|_| output.dtype().is_differentiable())
            {
                let error = relative_error(&plain.outputs[i].to_f64()?, &expected.values);
                expected = expected.with_relative(tolerance::PLAIN * error);
            }
            compare_rounded_below(self.trace()?, &self.arrays, i, &expected.loosened(tolerance), output)
                .map_err(|problem| problem.within(format!("result {i}")))?;
        }
        Ok(true)
    }

    /// Compares the results of the plain decomposition with what is expected, by its own conditioning.
    pub fn compare_plain(&self, outputs: &[Array], tolerance: Tolerance) -> Check<bool> {
        self.compare_rounded(self.trace()?, outputs, tolerance)
    }

    /// As [`Subject::compare_plain`], of the results of another trace of the call, with other roundings.
    pub fn compare_rounded(&self, trace: &Trace, outputs: &[Array], tolerance: Tolerance) -> Check<bool> {
        let Some(expected) = self.expected()? else { return Ok(false) };
        let opened = decompose(trace, |_| true);
        let depth = opened.block.symbols.len().max(1);
        let coarsest = coarsest(&opened.block);
        let floor = 2.0 * tolerance::CHAIN as f64 * coarsest.epsilon() * self.usual_input()?;
        for (i, (output, expected)) in outputs.iter().zip(expected).enumerate() {
            let expected = if output.dtype().is_differentiable() {
                expected.clone().of_chain(depth, coarsest).with_floor(floor)
            } else {
                expected.clone()
            };
            expected.loosened(tolerance).compare(output).map_err(|problem| problem.within(format!("result {i}")))?;
        }
        Ok(true)
    }

    /// The size of an input's usual element, the largest of them; one if there is none.
    pub fn usual_input(&self) -> Result<f64> {
        let floating = self.arrays.iter().filter(|array| array.dtype().is_differentiable() && !array.meta().is_empty());
        let mut usual = 0.0f64;
        for array in floating {
            usual = usual.max(tolerance::root_mean_square(array.to_f64()?.into_iter()));
        }
        Ok(if usual > 0.0 { usual.min(1.0) } else { 1.0 })
    }

    /// The call as a reader sees it: `f32[4, 8], [8], none, 1e-5`.
    pub fn describe(&self) -> String {
        describe(&self.metas)
    }
}

/// What a reference computed, as a result of `dtype` holds it before it is rounded: integers wrap.
pub(crate) fn values_of(result: &ReferenceTensor, dtype: DType) -> Vec<f64> {
    match dtype {
        _ if dtype.is_integer() => result.integers().iter().map(|value| dtype.wrapped(*value) as f64).collect(),
        // A reference may give real numbers where imaginary parts are zero.
        _ if dtype.is_complex() => result.complex().iter().flat_map(|number| [number.re, number.im]).collect(),
        _ => result.floats().iter().copied().collect(),
    }
}

/// The floating-point or complex type of the most digits; any other type is its own.
pub(crate) fn widest(dtype: DType) -> DType {
    match dtype {
        _ if dtype.is_floating() => DType::F64,
        _ if dtype.is_complex() => DType::C128,
        _ => dtype,
    }
}

/// The floating-point type of the lowest precision among the values of a block.
pub(crate) fn coarsest(block: &Block) -> DType {
    let dtypes = block.values.iter().map(|value| value.meta.dtype()).filter(|dtype| dtype.is_differentiable());
    dtypes.max_by(|a, b| a.epsilon().total_cmp(&b.epsilon())).unwrap_or(DType::F64)
}

/// The same numbers in the [widest] type.
pub(crate) fn wide(array: &Array) -> Result<Array> {
    if array.dtype().is_differentiable() {
        Array::from_f64(array.shape(), widest(array.dtype()), &array.to_f64()?)
    } else {
        Ok(array.clone())
    }
}

/// Every floating-point element moved, up or down at random, by one rounding of `rounding`, or else of the type that
/// arithmetic is done in, as f64.
pub(crate) fn perturbed(arrays: &[Array], seed: u64, rounding: Option<DType>) -> Result<Vec<Array>> {
    let mut random = Random::new(seed.wrapping_add(77));
    arrays
        .iter()
        .map(|array| {
            if !array.dtype().is_differentiable() {
                return Ok(array.clone());
            }
            let unit = rounding.unwrap_or(array.dtype().accumulator()).epsilon();
            let values: Vec<f64> = array
                .to_f64()?
                .into_iter()
                .map(|v| if random.next().is_multiple_of(2) { v * (1.0 + unit) } else { v * (1.0 - unit) })
                .collect();
            Array::from_f64(array.shape(), widest(array.dtype()), &values)
        })
        .collect()
}

/// Arguments as a reader sees them.
pub(crate) fn describe(metas: &[Arg<TensorMeta>]) -> String {
    let one = |argument: &Arg<TensorMeta>| match argument {
        Arg::Tensor(meta) => meta.to_string(),
        Arg::Optional(meta) => meta.as_ref().map_or_else(|| "none".into(), TensorMeta::to_string),
        Arg::List(metas) => format!("[{}]", metas.iter().map(TensorMeta::to_string).collect::<Vec<_>>().join(", ")),
        Arg::Attribute(attribute) => attribute.to_string(),
    };
    metas.iter().map(one).collect::<Vec<_>>().join(", ")
}
