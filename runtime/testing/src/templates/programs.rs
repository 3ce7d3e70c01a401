//! Random programs made of samples: unfused = reference, fused at least as near as twice the unfused error, for every
//! list of executors and every amount of fuel.

use crate::operator::RuleSet;
use crate::transforms::autodiff::rules::GradientRules;
use std::sync::OnceLock;

use fulgurite_kernels::DType;

use super::bits::same_however;
use super::lowered;
use crate::argument::{Arg, Attribute, map_arguments};
use crate::array::Array;
use crate::compile::compile;
use crate::error::{Place, Result};
use crate::executor::{ExecutorDef, executors};
use crate::executor_list::List;
use crate::fuel::Fuel;
use crate::interpret::{Interpreter, Moves};
use crate::meta::{Device, TensorMeta};
use crate::operator::{Autocast, OperatorDef, OperatorKind};
use crate::problem::{Check, Problem, ensure};
use crate::samples::{ErrorSamples, Random, Sample, round_to};
use crate::subject::{accepted_samples, joint_trace, perturbed, random_like, sample_metas, trace_call, trace_of};
use crate::test::{Outcome, PASSED, nothing};
use crate::tolerance::{Expected, relative_error, same_bits};
use crate::trace::Trace;
use crate::tracer::{self, trace_block};
use fulgurite_ir::registry::operators;

/// How many programs are made for each executor.
pub(crate) const SEEDS: u64 = 24;
/// Calls in a program.
const LENGTH: usize = 12;
/// How many samples and operands are tried of an operator before the next one's turn.
const TRIES: u64 = 3;
/// Amounts of fuel; the first opens every composite, the last is as good as none.
const FUEL: [u64; 5] = [0, 1, 2, 5, 1 << 20];

/// What roundings in f32 move by more than this part of its size jumps.
const JUMP: f64 = 1e-3;

/// One call: the operator, and for each tensor the value it reads.
#[derive(Debug)]
struct Step {
    def: &'static OperatorDef,
    arguments: Vec<Arg<usize>>,
}

/// A program: metas of the inputs, calls, and the values that nothing reads.
pub(super) struct RandomProgram {
    inputs: Vec<TensorMeta>,
    steps: Vec<Step>,
    pub(super) results: Vec<usize>,
}

/// An operator and those of its samples that programs are made of.
type Part = (&'static OperatorDef, Vec<Sample>);

/// Operators whose samples programs are made of: without effects, differentiable (so smooth nearly everywhere),
/// floating.
fn parts() -> &'static [Part] {
    static PARTS: OnceLock<Vec<Part>> = OnceLock::new();
    PARTS.get_or_init(|| {
        let fits = |def: &&'static OperatorDef| {
            def.effects.mergeable()
                && GradientRules::of(def).no_grad.is_none()
                && !matches!(def.kind, OperatorKind::Symbol(_))
                // What it is given here is made by others, and may be a singular matrix.
                && ErrorSamples::of_data(def, DType::F32).is_empty()
        };
        let sample_fits = |sample: &Sample| {
            let tensors = || sample.arguments.iter().flat_map(Arg::tensors);
            let dtype_named = sample.arguments.iter().any(|a| matches!(a, Arg::Attribute(Attribute::DType(_))));
            sample.forward_only.is_none()
                && !dtype_named
                && tensors().next().is_some()
                && tensors()
                    .all(|tensor| tensor.dtype() == DType::F32 && tensor.shape().iter().product::<usize>() <= 256)
        };
        operators()
            .iter()
            .copied()
            .filter(fits)
            .filter_map(|def| {
                let samples: Vec<Sample> = accepted_samples(def, DType::F32)
                    .into_iter()
                    .map(|(_, sample)| sample)
                    .filter(sample_fits)
                    .collect();
                (!samples.is_empty()).then_some((def, samples))
            })
            .collect()
    })
}

fn results_of(def: &'static OperatorDef, metas: &[Arg<TensorMeta>]) -> Option<Vec<TensorMeta>> {
    def.check_arguments(metas).ok()?;
    let trace = trace_call(def, metas).ok()?;
    Some(trace.block.results.iter().map(|id| trace.block.meta(*id).clone()).collect())
}

/// The program of that number.
fn generate(seed: u64, parts: &[Part]) -> RandomProgram {
    let shape: &[usize] = [&[4, 8][..], &[3, 5], &[2, 3, 4], &[16]][(drawn(&[seed], "shape") % 4) as usize];
    generate_of(shape, seed, parts, |_| false)
}

/// A number that depends on these words alone: not on what was drawn before, and not on how many operators there are.
fn drawn(numbers: &[u64], name: &str) -> u64 {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).chain(name.bytes());
    // FNV-1a, then mixed: names differ in few bits.
    let hash =
        bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    Random::new(hash).next()
}

/// A program of values that mostly have this shape. Every third call is of operators that are `preferred`, if there are
/// any.
///
/// For each call the operators have an order of their own, by a hash of their names, and the first that takes what
/// there is is called. So an operator more changes a program only where it comes first and fits; all others stay as
/// they were.
fn generate_of(shape: &[usize], seed: u64, parts: &[Part], preferred: fn(&OperatorDef) -> bool) -> RandomProgram {
    let meta = TensorMeta::new(shape, DType::F32, Device::CPU);
    let mut program =
        RandomProgram { inputs: vec![meta.clone(), meta.clone()], steps: Vec::new(), results: Vec::new() };
    // Values of the program: metas, and where they come from.
    let mut values: Vec<TensorMeta> = vec![meta.clone(), meta];
    let mut from_input = vec![true, true];
    for step in 0..LENGTH as u64 {
        let mut order: Vec<(bool, u64, &Part)> = parts
            .iter()
            .map(|part| {
                let favoured = step % 3 == 2 && preferred(part.0);
                (!favoured, drawn(&[seed, step], part.0.name), part)
            })
            .collect();
        order.sort_by_key(|(other, rank, _)| (*other, *rank));
        let called = order.iter().find_map(|(_, _, (def, samples))| {
            (0..TRIES).find_map(|attempt| {
                let draw = |what: u64| drawn(&[seed, step, attempt, what], def.name);
                let sample = &samples[(draw(0) % samples.len() as u64) as usize];
                // Newer values are likelier, so that chains grow.
                let mut operand = 0;
                let arguments = map_arguments(&sample.arguments, |_| {
                    operand += 1;
                    let mut random = Random::new(draw(operand));
                    let back = (random.unit() * random.unit() * values.len() as f64) as usize;
                    values.len() - 1 - back.min(values.len() - 1)
                });
                let metas = map_arguments(&arguments, |value| values[*value].clone());
                let results = results_of(def, &metas)?;
                let usable = |meta: &TensorMeta| meta.dtype() == DType::F32 && meta.len() <= 4096 && !meta.is_empty();
                (!results.is_empty() && results.iter().all(usable)).then_some((Step { def, arguments }, results))
            })
        });
        let Some((step, results)) = called else { break };
        program.steps.push(step);
        from_input.extend(results.iter().map(|_| false));
        values.extend(results);
    }
    let read: Vec<usize> = program
        .steps
        .iter()
        .flat_map(|step| step.arguments.iter().flat_map(|argument| argument.tensors().to_vec()))
        .collect();
    program.results = (0..values.len()).filter(|value| !from_input[*value] && !read.contains(value)).collect();
    program
}

impl RandomProgram {
    /// The program of that number among those with products: of square matrices, which fit each other.
    pub(super) fn with_products(seed: u64) -> RandomProgram {
        generate_of(&[6, 6], seed, parts(), |def| def.autocast == Some(Autocast::Low))
    }

    /// Positive and moderate, so that logarithms and roots stay defined where they come first.
    pub(super) fn inputs(&self, seed: u64) -> Result<Vec<Array>> {
        let mut random = Random::new(seed);
        let mut array = |meta: &TensorMeta| {
            let values: Vec<f64> = (0..meta.len()).map(|_| round_to(0.25 + 1.5 * random.unit(), DType::F32)).collect();
            Array::from_f64(meta.shape(), DType::F32, &values)
        };
        self.inputs.iter().map(&mut array).collect()
    }

    /// The program in f64, run by the references.
    pub(super) fn in_f64(&self) -> Check<impl Fn(&[Array]) -> Check<Vec<Vec<f64>>> + use<>> {
        let wide = self.trace(DType::F64).map_err(|error| Problem::from(error).within("in f64"))?;
        let (wide, _) = compile(wide, &List::plain()?.options())?;
        Ok(move |arrays: &[Array]| {
            let arrays = arrays
                .iter()
                .map(|array| Array::from_f64(array.shape(), DType::F64, &array.to_f64()?))
                .collect::<Result<Vec<Array>>>()?;
            Ok(wide.run(arrays)?.iter().map(Array::to_f64).collect::<Result<_>>()?)
        })
    }

    /// See [`super::bits`]: with all inputs in `dtype`, and with gradients. (A program whose operators refuse that
    /// type is none.) Fused and not, kept and computed again, but for what depends on a reduction in a region of a
    /// device: that is compared with the unfused error.
    fn has_the_same_bits(&self, dtype: DType, executor: &'static ExecutorDef) -> Check {
        let Ok(trace) = self.trace(dtype) else { return Ok(()) };
        let list = List::of(executor).able_to_run(&trace);
        let joint = joint_trace(&list.placed(&trace)?, &list.executors)?.unwrap_or(trace);
        let mut inputs = self
            .inputs(3)?
            .iter()
            .map(|array| Array::from_f64(array.shape(), dtype, &array.to_f64()?))
            .collect::<Result<Vec<Array>>>()?;
        for (i, id) in joint.block.parameters.iter().enumerate().skip(inputs.len()) {
            inputs.push(random_like(joint.block.meta(*id), i as u64)?);
        }
        same_however(&joint, &list, &inputs, None).map_err(|problem| problem.within(format!("in {dtype}")))
    }

    pub(super) fn trace(&self, dtype: DType) -> Result<Trace> {
        let parameters: Vec<_> = self
            .inputs
            .iter()
            .enumerate()
            .map(|(i, meta)| (std::sync::Arc::from(format!("x{i}")), meta.with_dtype(dtype)))
            .collect();
        let block = trace_block(&parameters, |handles| {
            let mut values = handles.to_vec();
            for step in &self.steps {
                let arguments = map_arguments(&step.arguments, |value| values[*value]);
                values.extend(tracer::calls::call_at(step.def, arguments, Place::declared(step.def)));
            }
            self.results.iter().map(|value| values[*value]).collect()
        })?;
        Ok(trace_of("random", block))
    }
}

/// The program of that number in f32 and what it is run on; `None` if there are no operators to make it of.
pub(crate) fn random_trace(seed: u64) -> Check<Option<(Trace, Vec<Array>)>> {
    let program = generate(seed, parts());
    if program.results.is_empty() {
        return Ok(None);
    }
    Ok(Some((program.trace(DType::F32)?, program.inputs(seed)?)))
}

/// See the module.
pub(crate) fn check(seed: u64, executor: &'static ExecutorDef) -> Check<Outcome> {
    let program = generate(seed, parts());
    if program.results.is_empty() {
        return nothing("no operators to make a program of");
    }
    let inputs = program.inputs(seed)?;
    let widened = program.in_f64()?;
    let values = widened(&inputs)?;
    let responses = [widened(&perturbed(&inputs, 1, None)?)?, widened(&perturbed(&inputs, 2, None)?)?];
    let trace = program.trace(DType::F32)?;
    let text = trace.to_string();
    let moves = Interpreter::new(&trace).moves(&inputs)?;
    let mut list = List::of(executor).able_to_run(&trace);
    list.fuse = false;
    let unfused = run(&trace, &list, &inputs)?;
    let steps = program.steps.len();
    let expected: Vec<Expected> = values
        .iter()
        .enumerate()
        .map(|(i, values)| {
            let moved: Vec<Vec<f64>> = responses.iter().map(|response| response[i].clone()).collect();
            Expected::rounded(values.clone(), DType::F32)
                .with_responses(&moved)
                .of_chain(8 * steps, DType::F32)
                // Inputs are of the size of one.
                .with_floor(16.0 * DType::F32.epsilon())
        })
        .collect();
    for (i, (output, expected)) in unfused.iter().zip(&expected).enumerate() {
        settled(output, expected, &moves, i, JUMP).map_err(|problem| {
            problem.within(format!("result {i}, unfused, against the references in f64, of\n{text}"))
        })?;
    }
    list.fuse = true;
    for fuel in FUEL {
        list.fuel = Fuel::limited(fuel);
        let fused = run(&trace, &list, &inputs).map_err(|problem| problem.within(format!("with fuel {fuel}")))?;
        let again = run(&trace, &list, &inputs)?;
        for (i, output) in fused.iter().enumerate() {
            let bound = expected[i].clone().with_relative(2.0 * relative_error(&unfused[i].to_f64()?, &values[i]));
            settled(output, &bound, &moves, i, JUMP)
                .map_err(|problem| problem.within(format!("result {i}, with fuel {fuel}, of\n{text}")))?;
            same_bits(&again[i], output)
                .map_err(|problem| problem.within(format!("result {i}, compiled again, of\n{text}")))?;
        }
    }
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        program.has_the_same_bits(dtype, executor)?;
    }
    PASSED
}

pub(super) fn run(trace: &Trace, list: &List, inputs: &[Array]) -> Check<Vec<Array>> {
    let program = list.compile(trace)?;
    Ok(program.run(inputs.to_vec())?)
}

/// Compares where the program is well behaved: an element that overflows, or that jumps when its program is moved by
/// roundings, says nothing about an executor. `jump` is the part of a value, or of one, that such a move is more than.
pub(super) fn settled(output: &Array, expected: &Expected, moves: &Moves, i: usize, jump: f64) -> Check {
    ensure!(
        output.meta().len() == expected.values.len(),
        "has {} elements, expected {}",
        output.meta().len(),
        expected.values.len()
    );
    let mut got = output.to_f64()?;
    for (j, value) in expected.values.iter().enumerate() {
        if !moves.settled(i, j, *value, jump) {
            got[j] = *value;
        }
    }
    expected.compare_values(&got, output.shape(), DType::F64)
}

/// An executor that takes symbols by their rules takes a sample of some operator: others run the programs of one that
/// does not, and nothing else would tell.
fn claims_are_made() -> Check {
    for executor in executors() {
        let Some(claims) = executor.claims else { continue };
        let device = if executor.device == "any" { Device::CPU } else { Device::new(executor.device, 0) };
        let takes = |def: &'static OperatorDef| {
            let samples = accepted_samples(def, DType::F32);
            samples.iter().any(|(_, sample)| claims(def, &sample_metas(sample, device)).is_ok())
        };
        ensure!(operators().into_iter().any(takes), "executor {} takes no operator by its rules", executor.name);
    }
    Ok(())
}

/// That programs depend on the operators that they call alone, and that most of their elements are compared.
pub(crate) fn check_all() -> Check<Outcome> {
    claims_are_made()?;
    let parts = parts();
    if parts.len() < 2 * LENGTH {
        return nothing("there are too few operators");
    }
    let steps = |program: &RandomProgram| {
        program.steps.iter().map(|step| (step.def.name, step.arguments.clone())).collect::<Vec<_>>()
    };
    let (mut compared, mut elements) = (0, 0);
    for seed in 0..SEEDS {
        let program = generate(seed, parts);
        // Without an operator that it does not call, one of every eleventh.
        for (left_out, (def, _)) in parts.iter().enumerate().skip(seed as usize % 11).step_by(11) {
            if program.steps.iter().any(|step| step.def == *def) {
                continue;
            }
            let others: Vec<Part> =
                parts.iter().enumerate().filter(|(i, _)| *i != left_out).map(|(_, part)| part.clone()).collect();
            ensure!(
                steps(&generate(seed, &others)) == steps(&program),
                "program {seed} changes without {}, which it does not call",
                def.name
            );
        }
        for (program, mixed) in [(program, false), (RandomProgram::with_products(seed), true)] {
            let trace = program.trace(DType::F32)?;
            let (trace, jump) = match mixed {
                true => (lowered::mixed(&trace)?, lowered::JUMP),
                false => (trace, JUMP),
            };
            let inputs = program.inputs(seed)?;
            let moves = Interpreter::new(&trace).moves(&inputs)?;
            for (i, values) in program.in_f64()?(&inputs)?.iter().enumerate() {
                elements += values.len();
                compared += values.iter().enumerate().filter(|(j, value)| moves.settled(i, *j, **value, jump)).count();
            }
        }
    }
    ensure!(2 * compared > elements, "only {compared} of {elements} elements of random programs are compared");
    PASSED
}
