//! A value has the bits that its type says, wherever it is computed: fused with its neighbours or alone, kept for the
//! backward pass or computed again, in a checkpoint or without one.
//!
//! The call is between products of its floating-point operands and results with numbers, so that something can be
//! fused with it and its operands can be computed again; only these show a value that was left unrounded in a register.
//!
//! A number for an operand gives what a tensor filled with it gives.

use std::sync::Arc;

use crate::argument::{Arg, Attribute, map_arguments};
use crate::arithmetic::Arithmetic;
use crate::array::Array;
use crate::directives::Tolerance;
use crate::error::Place;
use crate::executor_list::List;
use crate::interpret::{Interpreter, Moved};
use crate::meta::Device;
use crate::operator::{OperatorDef, ParamKind, RuleSet};
use crate::problem::{Check, Problem, ensure};
use crate::program::Program;
use crate::subject::{Subject, joint_trace, random_like, trace_of};
use crate::test::{Context, Outcome, PASSED, nothing};
use crate::tolerance::{Expected, roundings, same_numbers};
use crate::trace::{Block, BoundSymbol, Callee, Pass, Trace, ValueId};
use crate::tracer::{self, Tensor, trace_rule};
use fulgurite_kernels::DType;

/// What operands and results are multiplied by. Neither is a power of two: the products round.
const BEFORE: f64 = 0.875_976_562_5;
const AFTER: f64 = 0.685_546_875;

/// See the module.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let Some(executor) = context.executor else { return nothing("no executor runs it") };
    let list = List::of(executor);
    if let Some(filled) = filled(subject)? {
        same_as_filled(subject, &filled, &list)?;
    }
    let trace = surrounded(subject)?;
    let mut inputs = subject.arrays.clone();
    let differentiable = subject.differentiable()?;
    let joint = if differentiable { joint_trace(&list.placed(&trace)?, &list.executors)? } else { None };
    let Some(joint) = joint else {
        same_however(&trace, &list, &inputs, Some(context.tolerance))?;
        return PASSED;
    };
    for (i, id) in joint.block.parameters.iter().enumerate().skip(inputs.len()) {
        inputs.push(random_like(joint.block.meta(*id), i as u64)?);
    }
    same_however(&joint, &list, &inputs, Some(context.tolerance))?;
    same_in_a_checkpoint(&trace, &joint, &list, &inputs)?;
    PASSED
}

/// Compares a program, whose joint trace is `joint`, with the same program as one checkpoint, both unfused, without
/// rewrites and without batches. A rewrite that puts two operators into one call of a library, which rounds once,
/// matches where nobody reads the value between them; in the forward pass of a checkpoint the backward pass does not.
/// A batch is another product of the library than its parts, with another algorithm; programs with checkpoints have
/// none.
fn same_in_a_checkpoint(trace: &Trace, joint: &Trace, list: &List, inputs: &[Array]) -> Check {
    let list = List { rewrites: false, batch: false, ..list.clone() };
    let (_, expected) = run(joint, &list, inputs, false, None)?;
    let whole = joint_trace(&checkpointed(&list.placed(trace)?), &list.executors)?;
    let Some(whole) = whole else { return Err("a checkpoint of it has no gradient".into()) };
    let (program, outputs) = run(&whole, &list, inputs, false, None)?;
    ensure!(outputs.len() == expected.len(), "a checkpoint gives {} results", outputs.len());
    for (output, (expected, named)) in outputs.iter().zip(expected.iter().zip(&whole.outputs)) {
        let within = |problem: Problem| {
            problem.within(format!("{}, in a checkpoint, against without, of\n{}", named.path, program.trace()))
        };
        same_numbers(output, expected).map_err(within)?;
    }
    Ok(())
}

/// The same program as one checkpoint.
fn checkpointed(trace: &Trace) -> Trace {
    let source = &trace.block;
    let mut block = Block::default();
    let parameters =
        source.parameters.iter().map(|id| block.define(source.value(*id).name.clone(), source.meta(*id).clone()));
    block.parameters = parameters.collect();
    let results =
        source.results.iter().map(|id| block.define(format!("checkpoint.{}", id.0), source.meta(*id).clone()));
    block.results = results.collect();
    block.symbols.push(BoundSymbol {
        callee: Callee::Checkpoint,
        arguments: vec![Arg::List(block.parameters.clone())],
        results: block.results.iter().copied().collect(),
        body: Some(Arc::new(source.clone())),
        pass: Pass::Forward,
        executor: None,
        schedule: Default::default(),
        refusals: Vec::new(),
        place: None,
    });
    Trace { block, ..trace.clone() }
}

/// The call between products.
fn surrounded(subject: &Subject) -> Check<Trace> {
    let def: &'static OperatorDef = subject.def;
    let scaled = |tensor: Tensor, by: f64| if tensor.dtype().is_floating() { tensor * by } else { tensor };
    let block = trace_rule(def, &subject.metas, |arguments| {
        let arguments = map_arguments(arguments, |tensor| scaled(*tensor, BEFORE));
        let results = tracer::calls::call_at(def, arguments, Place::declared(def));
        results.into_iter().map(|result| scaled(result, AFTER)).collect()
    })?;
    Ok(trace_of(def.short_name(), block))
}

/// The call of an elementwise operator with tensors filled with the numbers that it is given for tensors, if it is
/// given any. Where a number has the accumulator's precision the tensors are converted to that type, and the results
/// back.
fn filled(subject: &Subject) -> Check<Option<Trace>> {
    let def: &'static OperatorDef = subject.def;
    let is_number = |place: usize| {
        let operand = matches!(def.params[place].kind, ParamKind::Operand(_));
        operand && matches!(subject.metas[place], Arg::Attribute(_))
    };
    if Arithmetic::of(def).scalar.is_none() || !(0..def.params.len()).any(is_number) {
        return Ok(None);
    }
    let block = trace_rule(def, &subject.metas, |arguments| {
        // What decides the element type is no mask.
        let operands = || arguments.iter().flat_map(Arg::tensors).copied();
        let like = operands().find(|tensor| tensor.dtype() != DType::Bool).or_else(|| operands().next());
        let accumulates = (0..def.params.len()).any(|place| is_number(place) && def.params[place].accumulates);
        let own = like.map_or(DType::F32, |like| like.dtype());
        let wide = if accumulates { own.accumulator() } else { own };
        let converted = |tensor: Tensor, from: DType, to: DType| match tensor.dtype() == from && from != to {
            true => tracer::calls::convert(tensor, to),
            false => tensor,
        };
        let like = like.map(|like| converted(like, own, wide));
        let filled = arguments.iter().enumerate().map(|(place, argument)| match (argument, like) {
            (Arg::Attribute(Attribute::Scalar(number)), Some(like)) if is_number(place) => {
                Arg::Tensor(tracer::full_like(like, def.params[place].number(number.to_f64(), own)))
            }
            _ => argument.map(|tensor| converted(*tensor, own, wide)),
        });
        let results = tracer::calls::call_at(def, filled.collect(), Place::declared(def));
        results.into_iter().map(|result| converted(result, wide, own)).collect()
    })?;
    Ok(Some(trace_of(def.short_name(), block)))
}

fn same_as_filled(subject: &Subject, filled: &Trace, list: &List) -> Check {
    let results = |trace: &Trace| -> Check<Vec<Array>> { Ok(list.compile(trace)?.run(subject.arrays.clone())?) };
    for (output, expected) in results(subject.trace()?)?.iter().zip(results(filled)?) {
        same_numbers(output, &expected)
            .map_err(|problem| problem.within("a number, against a tensor filled with it"))?;
    }
    Ok(())
}

/// Runs a program fused and unfused, with everything that is cheap computed again and with nothing, and compares the
/// bits. On a device a reduction in a region is added by another kernel, in another order: what depends on one is
/// compared by `sums`, the tolerance of the test, or by the caller if there is none. Where what depends on a reduction
/// cancels, it may be off as far as roundings move it that are made behind reductions.
pub(crate) fn same_however(trace: &Trace, list: &List, inputs: &[Array], sums: Option<Tolerance>) -> Check {
    let (plain, expected) = run(trace, list, inputs, false, None)?;
    for (fuse, recompute) in [(false, Some(0)), (true, None), (true, Some(0))] {
        let (program, outputs) = run(trace, list, inputs, fuse, recompute)?;
        let reduced = if fuse && !Device::is_host(list.device()) {
            reduced_in_regions(&program.trace().block)
        } else {
            Vec::new()
        };
        for (i, (output, expected)) in outputs.iter().zip(&expected).enumerate() {
            let compared = match (reduced.contains(&program.trace().block.results[i]), sums) {
                (false, _) => same_numbers(output, expected),
                (true, Some(tolerance)) => near(output, expected, tolerance, || {
                    let steps = Interpreter::new(trace).steps(inputs, Moved::FromReductions);
                    Some(steps.ok()?.swap_remove(i))
                }),
                (true, None) => Ok(()),
            };
            compared.map_err(|problem| {
                let text = program.trace().to_string();
                let name = &plain.trace().outputs[i].path;
                problem.within(format!("{name}, {}, against unfused and kept, of\n{text}", how(fuse, recompute)))
            })?;
        }
        ensure!(outputs.len() == expected.len(), "{} gives {} results", how(fuse, recompute), outputs.len());
    }
    Ok(())
}

/// Compiles and runs a program.
fn run(
    trace: &Trace,
    list: &List,
    inputs: &[Array],
    fuse: bool,
    recompute: Option<u64>,
) -> Check<(Program, Vec<Array>)> {
    let how = || how(fuse, recompute);
    let list = List { fuse, recompute, ..list.clone() };
    let program = list.compile(trace).map_err(|error| Problem::from(error).within(how()))?;
    let outputs = program.run(inputs.to_vec()).map_err(|error| Problem::from(error).within(how()))?;
    Ok((program, outputs))
}

/// Compares results of sums in different orders: each of the two may be off by what one may, of its own scale, or as
/// far as `steps` says that their roundings move them.
fn near(output: &Array, expected: &Array, tolerance: Tolerance, steps: impl FnOnce() -> Option<Vec<f64>>) -> Check {
    let dtype = expected.dtype();
    if !dtype.is_floating() {
        return same_numbers(output, expected);
    }
    let output = output.to_host()?;
    let expected = Expected::rounded(expected.to_f64()?, dtype)
        .with_relative(2.0 * tolerance.factor * roundings(dtype) * dtype.epsilon())
        .with_relative(2.0 * tolerance.scaled_of(dtype));
    let Err(problem) = expected.compare(&output) else { return Ok(()) };
    steps().map_or(Err(problem), |steps| expected.with_steps(&steps).compare(&output))
}

fn how(fuse: bool, recompute: Option<u64>) -> String {
    let fused = if fuse { "fused" } else { "unfused" };
    format!("{fused} and {}", if recompute.is_some() { "computed again" } else { "kept" })
}

/// The values of a program that depend on a value of a region that has fewer elements than what it is computed from.
fn reduced_in_regions(block: &Block) -> Vec<ValueId> {
    let mut found: Vec<ValueId> = Vec::new();
    for symbol in &block.symbols {
        let body = symbol.body.as_deref().filter(|_| matches!(symbol.callee, Callee::Region { .. }));
        let Some(body) = body else {
            if symbol.operands().any(|id| found.contains(&id)) {
                found.extend(&symbol.results);
            }
            continue;
        };
        let operands = symbol.operands().zip(&body.parameters);
        let mut inner: Vec<ValueId> = operands.filter(|(id, _)| found.contains(id)).map(|(_, own)| *own).collect();
        for line in &body.symbols {
            let most = line.operands().map(|id| body.meta(id).len()).max().unwrap_or(0);
            let reduces = line.results.iter().any(|id| body.meta(*id).len() < most);
            if reduces || line.operands().any(|id| inner.contains(&id)) {
                inner.extend(&line.results);
            }
        }
        let results = symbol.results.iter().zip(&body.results);
        found.extend(results.filter(|(_, own)| inner.contains(own)).map(|(id, _)| *id));
    }
    found
}
