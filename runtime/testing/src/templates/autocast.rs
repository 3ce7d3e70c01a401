//! Mixed precision: a call under autocast has the types of its class, keeps its signature, and is as near to the
//! reference as arithmetic in those types can be.

use fulgurite_kernels::DType;

use crate::argument::Arg;
use crate::executor_list::List;
use crate::meta::TensorMeta;
use crate::operator::Autocast;
use crate::problem::{Check, Problem, ensure};
use crate::subject::{Subject, execute, trace_of};
use crate::test::{Context, Outcome, PASSED, nothing};
use crate::trace::{Trace, diff, parse};
use crate::transforms::autocast::autocast;
use crate::transforms::decompose::decompose;

/// The low-precision types that programs are taken to.
const LOW: [DType; 2] = [DType::BF16, DType::F16];

/// The largest number of f16.
const LARGEST_F16: f64 = 65504.0;
/// The largest number of bf16, of 8 bits: (2 - 2^-7)·2^127.
const LARGEST_BF16: f64 = 3.389_531_389_251_535_5e38;

/// See the module.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    // In a wider type a number would be rounded less than the reference has it, where a tensor keeps the bits that it
    // has.
    let subject = &subject.with_rounded_numbers();
    let trace = subject.trace()?;
    for low in LOW {
        one(context, subject, trace, low).map_err(|problem| problem.within(format!("autocast to {low}")))?;
    }
    if trace.block.symbols.is_empty() { nothing("the call is no line of its trace") } else { PASSED }
}

fn one(context: &Context, subject: &Subject, trace: &Trace, low: DType) -> Check {
    let mixed = autocast(trace, low)?;
    mixed.verify().map_err(|error| Problem::from(error).within("what it makes"))?;
    let text = mixed.to_string();
    let parsed = parse(&text).map_err(|error| Problem(format!("its text does not parse: {error}\n{text}")))?;
    ensure!(parsed == mixed, "its text parses to another trace:\n{}\n{text}", diff(&mixed, &parsed));
    let again = autocast(&mixed, low)?;
    ensure!(again.block == mixed.block, "once more changes the trace:\n{}\n{text}", diff(&mixed, &again));
    let metas = |trace: &Trace, of: &[crate::trace::ValueId]| {
        of.iter().map(|id| trace.block.meta(*id).clone()).collect::<Vec<_>>()
    };
    let kept = metas(&mixed, &mixed.block.parameters) == metas(trace, &trace.block.parameters)
        && metas(&mixed, &mixed.block.results) == metas(trace, &trace.block.results);
    ensure!(kept, "the types of arguments or results change:\n{text}");
    let untouched = subject.arrays.iter().all(|array| !array.dtype().is_floating() || array.dtype() == DType::F64);
    ensure!(!untouched || mixed.block == trace.block, "a call without f32, f16 and bf16 changes:\n{text}");
    follows_class(subject, &mixed, low).map_err(|problem| problem.within(format!("in\n{text}")))?;
    // What a sample computes may be beyond the range of f16, which needs scaled losses for that reason; the largest
    // numbers of f32 are beyond that of bf16.
    if mixed.block == trace.block || begins_beyond_bf16(subject)? || (low == DType::F16 && leaves_f16(subject)?) {
        return Ok(());
    }
    let ran = execute(mixed.clone(), &context.list()?, subject.arrays.clone(), trace.block.results.len())?;
    subject.compare_rounded(&mixed, &ran.outputs, context.tolerance).map(|_| ())
}

/// Whether some finite input is more than bf16 can hold, so that autocast makes an infinity of it.
fn begins_beyond_bf16(subject: &Subject) -> Check<bool> {
    for array in subject.arrays.iter().filter(|array| array.dtype().is_floating()) {
        if array.to_f64()?.iter().any(|value| value.is_finite() && value.abs() > LARGEST_BF16) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether some value on the way to the results, in f64, is more than f16 can hold.
fn leaves_f16(subject: &Subject) -> Check<bool> {
    let Some(twin) = subject.twin() else { return Ok(true) };
    let mut block = decompose(twin.trace()?, |_| true).block;
    block.results = (0..block.values.len() as u32)
        .map(crate::trace::ValueId)
        .filter(|id| block.meta(*id).dtype().is_floating())
        .collect();
    let count = block.results.len();
    let ran = execute(trace_of("every_value", block), &List::plain()?, twin.arrays.clone(), count)?;
    for output in &ran.outputs {
        if output.to_f64()?.iter().any(|value| value.abs() > LARGEST_F16) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The operator's own line reads what its class says.
fn follows_class(subject: &Subject, mixed: &Trace, low: DType) -> Check {
    let block = &mixed.block;
    let is_kept = |name: &str| subject.def.autocast_keeps.contains(&name);
    let Some(line) = block.symbols.iter().find(|symbol| symbol.operator() == Some(subject.def)) else {
        ensure!(subject.def.autocast.is_none(), "the call is gone, though its class is declared");
        return Ok(());
    };
    let params = || line.arguments.iter().zip(subject.def.params).zip(&subject.metas);
    // What is kept loses no digits.
    for ((argument, param), written) in params().filter(|((_, param), _)| is_kept(param.name)) {
        let here = argument.tensors().iter().map(|id| block.meta(*id).dtype());
        let mut both = here.zip(written.tensors().iter().map(TensorMeta::dtype));
        let kept = both.all(|(here, written)| written != DType::F32 || here == written);
        ensure!(kept, "'{}' is to be kept in f32", param.name);
    }
    let others = || params().filter(|((_, param), _)| !is_kept(param.name)).flat_map(|((of, _), _)| of.tensors());
    let read = || others().map(|id| block.meta(*id).dtype()).filter(|dtype| dtype.is_floating());
    let double = read().any(|dtype| dtype == DType::F64);
    let told = subject.def.param("dtype").map(|i| &line.arguments[i]);
    for dtype in read().filter(|dtype| *dtype != DType::F64) {
        let right = match subject.def.autocast {
            Some(Autocast::Low) => dtype == low || double,
            Some(Autocast::Full) => dtype == DType::F32 || matches!(told, Some(Arg::Attribute(_))),
            _ => true,
        };
        ensure!(right, "an operand is {dtype}");
    }
    Ok(())
}
