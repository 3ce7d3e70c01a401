//! A value has the bits that its type says, wherever it is computed: fused with its neighbours or alone, kept for the backward
//! pass or computed again.
//!
//! The call stands between products of its floating-point operands and results with numbers, so that something can be fused
//! with it and its operands can be computed again; only these show a value that was left unrounded in a register.

use super::{Context, Outcome, PASSED, nothing};
use crate::argument::{Arg, map_arguments};
use crate::array::Array;
use crate::error::Place;
use crate::operator::OperatorDef;
use crate::program::Program;
use crate::testing::problem::{Check, Problem, ensure};
use crate::testing::subject::{List, Subject, joint_trace, random_like, trace_of};
use crate::testing::tolerance::same_numbers;
use crate::trace::{BoundSymbol, Callee, Trace};
use crate::tracer::{self, Tensor, trace_rule};

/// What operands and results are multiplied by. Neither is a power of two: the products round.
const BEFORE: f64 = 0.875_976_562_5;
const AFTER: f64 = 0.685_546_875;

/// See the module.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let Some(executor) = context.executor else { return nothing("no executor runs it") };
    let list = List::of(executor);
    let trace = surrounded(subject)?;
    let mut inputs = subject.arrays.clone();
    let joint = if subject.differentiable()? { joint_trace(&list.placed(&trace)?, &list.executors)? } else { None };
    let Some(joint) = joint else {
        return same_however(&trace, &list, &inputs).map(|()| Outcome::Passed);
    };
    for (i, id) in joint.block.parameters.iter().enumerate().skip(inputs.len()) {
        inputs.push(random_like(joint.block.meta(*id), i as u64)?);
    }
    same_however(&joint, &list, &inputs)?;
    PASSED
}

/// The call between products.
fn surrounded(subject: &Subject) -> Check<Trace> {
    let def: &'static OperatorDef = subject.def;
    let scaled = |tensor: Tensor, by: f64| if tensor.dtype().is_floating() { tensor * by } else { tensor };
    let block = trace_rule(def, &subject.metas, |arguments| {
        let arguments: Vec<Arg<Tensor>> = arguments
            .iter()
            .enumerate()
            // What the operator writes over is not a value in between.
            .map(|(i, argument)| match def.effects.mutates.contains(&i) {
                true => argument.clone(),
                false => argument.map(|tensor| scaled(*tensor, BEFORE)),
            })
            .collect();
        let results = tracer::call_at(def, map_arguments(&arguments, |tensor| *tensor), Place::declared(def));
        results.into_iter().map(|result| scaled(result, AFTER)).collect()
    })?;
    Ok(trace_of(def.short_name(), block))
}

/// Runs a program fused and unfused, with everything that is cheap computed again and with nothing, and compares the bits.
pub(crate) fn same_however(trace: &Trace, list: &List, inputs: &[Array]) -> Check {
    let run = |fuse: bool, recompute: Option<u64>| -> Check<(Program, Vec<Array>)> {
        let how = || how(fuse, recompute);
        let list = List { fuse, recompute, ..list.clone() };
        let program = list.compile(trace).map_err(|error| Problem::from(error).within(how()))?;
        let outputs = program.run(inputs.to_vec()).map_err(|error| Problem::from(error).within(how()))?;
        Ok((program, outputs))
    };
    let (plain, expected) = run(false, None)?;
    for (fuse, recompute) in [(false, Some(0)), (true, None), (true, Some(0))] {
        let (program, outputs) = run(fuse, recompute)?;
        // On a device a sum in a region is added by another kernel, in another order, and so is all that follows from it.
        if fuse && list.device() != "cpu" && reduces(program.trace()) {
            continue;
        }
        for (i, (output, expected)) in outputs.iter().zip(&expected).enumerate() {
            same_numbers(output, expected).map_err(|problem| {
                let text = program.trace().to_string();
                let name = &plain.trace().outputs[i].path;
                problem.within(format!("{name}, {}, against unfused and kept, of\n{text}", how(fuse, recompute)))
            })?;
        }
        ensure!(outputs.len() == expected.len(), "{} gives {} results", how(fuse, recompute), outputs.len());
    }
    Ok(())
}

fn how(fuse: bool, recompute: Option<u64>) -> String {
    let fused = if fuse { "fused" } else { "unfused" };
    format!("{fused} and {}", if recompute.is_some() { "computed again" } else { "kept" })
}

/// Whether a region has fewer elements of some value than that is computed from.
fn reduces(trace: &Trace) -> bool {
    let reduces = |region: &BoundSymbol| {
        let Some(body) = region.body.as_deref().filter(|_| matches!(region.callee, Callee::Region { .. })) else {
            return false;
        };
        body.symbols.iter().any(|symbol| {
            let most = symbol.operands().map(|id| body.meta(id).len()).max().unwrap_or(0);
            symbol.results.iter().any(|id| body.meta(*id).len() < most)
        })
    };
    trace.block.symbols.iter().any(reduces)
}
