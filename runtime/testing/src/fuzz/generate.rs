//! Random programs and single calls from a seed, made of the samples of every registered operator.

use crate::kernel::KernelRules;
use crate::operator::RuleSet;
use crate::rules::TestRules;
use crate::tracer::rules::TracingRules;
use crate::transforms::autodiff::rules::GradientRules;
use fulgurite_kernels::DType;

use super::arrange::Arrangement;
use super::case::{Call, Case, Input, Work, has_gradient, largest, resized_attributes, work};
use super::extents;
use crate::argument::{Arg, map_arguments};
use crate::generate::is_further_integer;
use crate::meta::{Device, TensorMeta};
use crate::operator::{OperatorDef, OperatorKind};
use crate::samples::{Random, Sample, SampleTensor};
use crate::subject::{accepted_samples, trace_call};
use fulgurite_ir::registry::operators;

/// The most elements of a value, and how many of so many cases may have them.
const BUDGETS: [(usize, u64); 3] = [(6_000, 14), (50_000, 3), (400_000, 1)];
/// One of so many cases is large: from this many elements on a value of f32 has the 8 MiB from which recomputation
/// starts.
const LARGE_ONE_IN: u64 = 48;
const LARGE: usize = 2_200_000;
/// The most symbols of a program's decomposition, which every way to run it compiles, and the most elements of all its
/// values: a case takes seconds.
const SYMBOLS: usize = 1_000;
const ELEMENTS: usize = 1 << 27;
/// The most operations of factorizations: one of a matrix of some 90 rows, or of a narrow one of 128. (The references
/// of one of 256 took more than a minute.)
const OPERATIONS: u64 = 1 << 24;
/// Calls in a program.
const LENGTH: u64 = 9;
/// Calls in a large one.
const LARGE_LENGTH: u64 = 4;

/// The element types that programs are written in, the usual ones more often.
const BASES: [DType; 16] = {
    use DType::{BF16, F16, F32, F64, I32, I64, U8};
    [F32, F32, F32, F32, F32, F32, F32, BF16, BF16, BF16, F16, F16, F64, I64, I32, U8]
};

/// The samples of an operator in one element type.
struct Part {
    def: &'static OperatorDef,
    dtype: DType,
    samples: Vec<Sample>,
}

/// What cases are made of.
pub(super) struct Parts {
    parts: Vec<Part>,
    /// The places of each operator's parts.
    operators: Vec<Vec<usize>>,
    /// The element types that programs are written in.
    bases: Vec<DType>,
}

impl Parts {
    /// The parts of the operators that run on this kind of device; of those named alone, if any are, and in these
    /// element types.
    pub(super) fn new(device: &str, names: &[String], dtypes: &[DType]) -> Parts {
        let runs = |def: &OperatorDef| match def.kind {
            OperatorKind::Symbol(_) => {
                KernelRules::of(def).runs_on(device)
                    && (TestRules::of(def).reference.is_some() || TracingRules::of(def).decomposition.is_some())
            }
            _ => true,
        };
        let wanted = |def: &OperatorDef| names.is_empty() || names.iter().any(|name| name == def.name);
        let fits = |def: &&OperatorDef| !def.effects.collective && runs(def) && wanted(def);
        let taken = |dtype: &DType| dtypes.is_empty() || dtypes.contains(dtype);
        let mut bases: Vec<DType> = BASES.into_iter().filter(taken).collect();
        if bases.is_empty() {
            bases = dtypes.to_vec();
        }
        let mut parts = Parts { parts: Vec::new(), operators: Vec::new(), bases };
        for def in operators().into_iter().filter(fits) {
            let first = parts.parts.len();
            // One of the integers that are computed as others are, in turn: most programs have floating-point numbers.
            let further: Vec<DType> = DType::REAL.into_iter().filter(|dtype| is_further_integer(*dtype)).collect();
            let one = further[parts.operators.len() % further.len()];
            let drawn =
                |dtype: &DType| taken(dtype) && (!dtypes.is_empty() || *dtype == one || !further.contains(dtype));
            for dtype in DType::REAL.into_iter().filter(drawn) {
                let samples: Vec<Sample> = accepted_samples(def, dtype).into_iter().map(|(_, sample)| sample).collect();
                if !samples.is_empty() {
                    parts.parts.push(Part { def, dtype, samples });
                }
            }
            if parts.parts.len() > first {
                parts.operators.push((first..parts.parts.len()).collect());
            }
        }
        parts
    }

    /// How many operators there are.
    pub(super) fn len(&self) -> usize {
        self.operators.len()
    }

    /// The case of this seed.
    pub(super) fn case(&self, seed: u64) -> Option<Case> {
        let mut random = Random::new(seed);
        let large = random.next().is_multiple_of(LARGE_ONE_IN);
        let budget = if large { LARGE } else { budget(&mut random) };
        let mut case = match random.next() % 5 {
            0 | 1 if !large => self.call(&mut random, budget)?,
            _ => self.program(&mut random, budget, large)?,
        };
        decorate(&mut case, &mut random);
        let trace = case.trace().ok()?;
        case.gradient &= has_gradient(&trace);
        let Work { symbols, elements, operations } = work(&trace.block);
        (symbols <= SYMBOLS && elements <= ELEMENTS && operations <= OPERATIONS).then_some(case)
    }

    /// A part of an operator drawn evenly, in `dtype` if it has samples in it.
    fn part(&self, random: &mut Random, dtype: Option<DType>) -> Option<&Part> {
        let own = &self.operators[below(random, self.operators.len())];
        let fitting: Vec<usize> =
            own.iter().copied().filter(|at| dtype.is_none_or(|dtype| self.parts[*at].dtype == dtype)).collect();
        if fitting.is_empty() {
            return None;
        }
        Some(&self.parts[fitting[below(random, fitting.len())]])
    }

    /// One call, at other sizes than the sample's.
    fn call(&self, random: &mut Random, budget: usize) -> Option<Case> {
        let part = self.part(random, None)?;
        let sample = &part.samples[below(random, part.samples.len())];
        let mut best = None;
        for attempt in 0..8 {
            let mut known: Vec<(usize, usize)> = Vec::new();
            let extents = sample.arguments.iter().flat_map(Arg::tensors).flat_map(|tensor| tensor.shape().to_vec());
            for extent in extents {
                if !known.iter().any(|(old, _)| *old == extent) {
                    let other = match attempt < 7 && !random.next().is_multiple_of(3) {
                        true => extents::extent(random, budget),
                        false => extent,
                    };
                    known.push((extent, other));
                }
            }
            let resize = |extent: usize| known.iter().find(|(old, _)| *old == extent).map_or(extent, |(_, new)| *new);
            let mut inputs = Vec::new();
            let arguments = map_arguments(&resized_attributes(part.def, &sample.arguments, &resize), |tensor| {
                inputs.push(input(tensor.clone().resized(&resize)));
                inputs.len() - 1
            });
            let metas = map_arguments(&arguments, |value| inputs[*value].tensor.meta(Device::CPU));
            if let Some(results) = results_of(part.def, &metas, 4 * budget) {
                let (first, count) = (inputs.len(), results.len());
                let call = Call { def: part.def, arguments, results: count };
                // With its gradient a composite is often opened, and its own kernels do not run.
                let gradient = sample.forward_only.is_none()
                    && GradientRules::of(part.def).no_grad.is_none()
                    && random.next().is_multiple_of(2);
                inputs.iter_mut().for_each(|input: &mut Input| {
                    input.tensor = input.tensor.clone().reseeded(random.next() >> 8);
                });
                best = Some(Case { inputs, calls: vec![call], results: (first..first + count).collect(), gradient });
                break;
            }
        }
        best
    }

    /// Calls that read each other's results.
    fn program(&self, random: &mut Random, budget: usize, large: bool) -> Option<Case> {
        let dtype = self.bases[below(random, self.bases.len())];
        let rank = 1 + below(random, 3);
        let shape = match large {
            true => large_shape(random, rank),
            false => extents::shape(random, rank, budget),
        };
        let length = 1 + random.next() % if large { LARGE_LENGTH } else { LENGTH };
        let mut maker = Maker {
            case: Case { inputs: Vec::new(), calls: Vec::new(), results: Vec::new(), gradient: true },
            metas: Vec::new(),
        };
        for _ in 0..1 + below(random, 3) {
            maker.input(drawn(random, &shape, dtype));
        }
        // A column, a row, or a part of the shape beside it.
        if rank > 1 && random.next().is_multiple_of(2) {
            let mut part = shape.clone();
            part[below(random, rank)] = 1;
            maker.input(drawn(random, &part, dtype));
        }
        for _ in 0..if large { 40 } else { 120 } {
            if maker.case.calls.len() as u64 >= length {
                break;
            }
            let wanted = if random.next().is_multiple_of(8) { None } else { Some(dtype) };
            let Some(part) = self.part(random, wanted) else { continue };
            let sample = &part.samples[below(random, part.samples.len())];
            maker.call(random, part.def, sample, 2 * budget);
        }
        maker.finish(random)
    }
}

fn below(random: &mut Random, bound: usize) -> usize {
    (random.next() % bound.max(1) as u64) as usize
}

fn budget(random: &mut Random) -> usize {
    let all: u64 = BUDGETS.iter().map(|(_, weight)| weight).sum();
    let mut drawn = random.next() % all;
    for (budget, weight) in BUDGETS {
        if drawn < weight {
            return budget;
        }
        drawn -= weight;
    }
    BUDGETS[0].0
}

/// More elements than recomputation starts from, in about equal dimensions.
fn large_shape(random: &mut Random, rank: usize) -> Vec<usize> {
    let mut shape = vec![extents::extent(random, 2100).max(2); rank.max(2) - 1];
    let rest: usize = shape.iter().product();
    shape.insert(below(random, shape.len() + 1), (LARGE / rest).max(1));
    shape
}

fn input(tensor: SampleTensor) -> Input {
    Input { tensor, arrangement: Arrangement::Dense, donated: false, same_as: None }
}

/// Values of one of several kinds: positive, of both signs, whole numbers.
fn drawn(random: &mut Random, shape: &[usize], dtype: DType) -> SampleTensor {
    let seed = random.next() >> 8;
    let (low, high) = match random.next() % 4 {
        _ if !dtype.is_floating() => (-9.0, 9.0),
        0 => (-2.0, 2.0),
        1 => (-6.0, 6.0),
        _ => (0.25, 1.75),
    };
    SampleTensor::uniform(shape, dtype, low, high, seed)
}

/// Metas of the results, if the operator takes these arguments, no value of its decomposition is larger than `most`,
/// and there are not too many of them.
fn results_of(def: &'static OperatorDef, metas: &[Arg<TensorMeta>], most: usize) -> Option<Vec<TensorMeta>> {
    def.check_arguments(metas).ok()?;
    let trace = trace_call(def, metas).ok()?;
    let block = &trace.block;
    // The oracle reads numbers, not pairs of them.
    let real = !block.values.iter().any(|value| value.meta.dtype().is_complex());
    let fits = real && !block.results.is_empty() && largest(block) <= most && work(block).symbols <= SYMBOLS;
    fits.then(|| trace.block.results.iter().map(|id| trace.block.meta(*id).clone()).collect())
}

/// A program in the making. Inputs may be added at any time: values are numbered in the order they are made, and
/// renumbered at the end.
struct Maker {
    case: Case,
    /// Metas of the values, and the input each one is, if it is one.
    metas: Vec<(TensorMeta, Option<usize>)>,
}

impl Maker {
    fn input(&mut self, tensor: SampleTensor) -> usize {
        self.metas.push((tensor.meta(Device::CPU), Some(self.case.inputs.len())));
        self.case.inputs.push(input(tensor));
        self.metas.len() - 1
    }

    /// Adds a call like the sample, of values that are there where they fit, if the operator takes it.
    fn call(&mut self, random: &mut Random, def: &'static OperatorDef, sample: &Sample, most: usize) {
        let Some(lead) = sample.arguments.iter().flat_map(Arg::tensors).next() else {
            return;
        };
        // Newer values are likelier, so that chains grow.
        let newer = |random: &mut Random, fitting: &[usize]| {
            let back = (random.unit() * random.unit() * fitting.len() as f64) as usize;
            fitting.len().checked_sub(1).map(|last| fitting[last - back.min(last)])
        };
        let of = |wanted: &dyn Fn(&TensorMeta) -> bool, metas: &[(TensorMeta, Option<usize>)]| -> Vec<usize> {
            (0..metas.len()).filter(|value| wanted(&metas[*value].0)).collect()
        };
        let same_kind = |meta: &TensorMeta| {
            meta.rank() == lead.shape().len() && (meta.dtype() == lead.dtype() || meta.dtype().is_floating())
        };
        let Some(first) = newer(random, &of(&same_kind, &self.metas)) else { return };
        let known: Vec<(usize, usize)> =
            lead.shape().iter().copied().zip(self.metas[first].0.shape().iter().copied()).collect();
        let resize = |extent: usize| known.iter().find(|(old, _)| *old == extent).map_or(extent, |(_, new)| *new);
        let repeated = random.next().is_multiple_of(6);
        let before = (self.case.inputs.len(), self.metas.len());
        let mut at = 0;
        let arguments = map_arguments(&resized_attributes(def, &sample.arguments, &resize), |tensor| {
            at += 1;
            if at == 1 || (repeated && tensor.dtype().is_floating()) {
                return first;
            }
            let wanted = tensor.clone().resized(&resize);
            let fits = |meta: &TensorMeta| meta.shape() == wanted.shape() && meta.dtype() == wanted.dtype();
            match newer(random, &of(&fits, &self.metas)) {
                Some(value) if !random.next().is_multiple_of(4) => value,
                _ => self.input(wanted.reseeded(random.next() >> 8)),
            }
        });
        let metas = map_arguments(&arguments, |value| self.metas[*value].0.clone());
        let small = metas.iter().flat_map(Arg::tensors).all(|meta| meta.len() <= most);
        match small.then(|| results_of(def, &metas, most)).flatten() {
            Some(results) => {
                self.case.calls.push(Call { def, arguments, results: results.len() });
                self.metas.extend(results.into_iter().map(|meta| (meta, None)));
            }
            None => {
                self.case.inputs.truncate(before.0);
                self.metas.truncate(before.1);
            }
        }
    }

    /// Returns what nothing reads, and now and then what something does.
    fn finish(self, random: &mut Random) -> Option<Case> {
        let Maker { mut case, metas } = self;
        let mut read = vec![false; metas.len()];
        let operands = case.calls.iter().flat_map(|call| call.arguments.iter().flat_map(Arg::tensors));
        operands.for_each(|value| read[*value] = true);
        let returned: Vec<usize> = (0..metas.len())
            .filter(|value| metas[*value].1.is_none() && (!read[*value] || random.next().is_multiple_of(5)))
            .collect();
        // Inputs first, then the results of calls.
        let mut next = case.inputs.len();
        let renumbered: Vec<usize> = metas
            .iter()
            .map(|(_, input)| {
                input.unwrap_or_else(|| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        for call in &mut case.calls {
            call.arguments = map_arguments(&call.arguments, |value| renumbered[*value]);
        }
        case.results = returned.iter().map(|value| renumbered[*value]).collect();
        case.gradient = case.calls.iter().all(|call| GradientRules::of(call.def).no_grad.is_none())
            && random.next().is_multiple_of(2);
        (!case.results.is_empty()).then(|| case.pruned())
    }
}

/// Layouts, donations and inputs that share memory.
fn decorate(case: &mut Case, random: &mut Random) {
    for at in 0..case.inputs.len() {
        if !random.next().is_multiple_of(3) {
            case.inputs[at].arrangement = Arrangement::ALL[below(random, Arrangement::ALL.len())];
        }
        case.inputs[at].donated = random.next().is_multiple_of(3);
        let (earlier, own) = case.inputs.split_at_mut(at);
        let own = &mut own[0];
        let like = |other: &&mut Input| {
            other.tensor.meta(Device::CPU) == own.tensor.meta(Device::CPU) && other.same_as.is_none()
        };
        let found = earlier.iter_mut().enumerate().find_map(|(i, other)| like(&other).then_some((i, other)));
        if let Some((i, other)) = found.filter(|_| random.next().is_multiple_of(6)) {
            // Memory that another input shares cannot be donated.
            (own.donated, other.donated) = (false, false);
            own.same_as = Some(i);
            own.arrangement = other.arrangement;
            own.tensor = other.tensor.clone();
        }
    }
}
