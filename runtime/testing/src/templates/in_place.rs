//! A result laid over an operand, wherever the kernel says that it may be, has the bits that it has in memory of its
//! own.

use crate::array::Array;
use crate::compile::{compile, stages};
use crate::directives::Tolerance;
use crate::executor_list::List;
use crate::meta::Device;
use crate::problem::{Check, Problem, ensure};
use crate::program::Program;
use crate::subject::{Ran, Subject, joint_trace};
use crate::test::{Context, Outcome, PASSED, nothing};
use crate::tolerance::{Expected, same_bits};
use crate::trace::in_place::may_lie_over;
use crate::trace::{
    Block, BoundSymbol, Callee, Input, InputRole, Output, StageName, Storage, Trace, ValueId, print_symbol,
};
use crate::transforms::layout::layouts;

/// The most pairs of a result and an operand that are tried for one trace.
const MOST: usize = 12;

/// Runs each line that may write over an operand alone, on what it reads when the sample runs, with the result there.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let list = context.list()?;
    let forward = subject.forward(&list);
    let forward = forward.as_ref().as_ref().map_err(Problem::clone)?;
    let mut tried = all(&list.placed(subject.trace()?)?, &list, forward, context.tolerance)?;
    if subject.differentiable()? {
        let joint = subject.joint(&list);
        if let (Some(ran), Some(trace)) = (
            joint.as_ref().as_ref().map_err(Problem::clone)?,
            joint_trace(&list.placed(subject.trace()?)?, &list.executors)?,
        ) {
            tried +=
                all(&trace, &list, ran, context.tolerance).map_err(|problem| problem.within("with its gradient"))?;
        }
    }
    if tried > 0 { PASSED } else { nothing("no result may be written over an operand") }
}

/// A line, the result that is written over an operand, and the operand.
type Pair = (usize, ValueId, ValueId);

fn pairs(trace: &Trace) -> Vec<Pair> {
    let block = &trace.block;
    let layouts = layouts(trace);
    let mut found = Vec::new();
    for (line, symbol) in block.symbols.iter().enumerate() {
        let own = |id: ValueId| layouts[id.index()].root == id && !block.meta(id).is_empty();
        if symbol.callee == Callee::Delete || !symbol.operands().chain(symbol.results.iter().copied()).all(own) {
            continue;
        }
        for result in &symbol.results {
            let mut tried: Vec<ValueId> = Vec::new();
            for operand in symbol.operands() {
                if !tried.contains(&operand) && may_lie_over(block, &layouts, symbol, *result, operand) {
                    tried.push(operand);
                    found.push((line, *result, operand));
                }
            }
        }
    }
    found.truncate(MOST);
    found
}

fn all(trace: &Trace, list: &List, ran: &Ran, tolerance: Tolerance) -> Check<usize> {
    let options = list.options();
    let laid_out = stages(trace.clone(), &options)?.into_iter().find(|stage| stage.is(StageName::Layout));
    let Some(trace) = laid_out.map(|stage| stage.trace) else { return Ok(0) };
    let pairs = pairs(&trace);
    if pairs.is_empty() {
        return Ok(0);
    }
    // What these lines read and give when the program runs.
    let mut shown: Vec<ValueId> = Vec::new();
    for (line, ..) in &pairs {
        let symbol = &trace.block.symbols[*line];
        for id in symbol.operands().chain(symbol.results.iter().copied()) {
            if !shown.contains(&id) {
                shown.push(id);
            }
        }
    }
    let mut showing = trace.clone();
    showing.block.results = shown.clone();
    showing.outputs = shown.iter().map(|id| Output { path: format!("shown.{}", id.0) }).collect();
    let copies = ran.inputs.iter().map(Array::to_contiguous).collect::<Result<Vec<_>, _>>()?;
    let values = compile(showing, &options)?.0.run(copies)?;
    let value = |id: ValueId| {
        let at = shown.iter().position(|other| *other == id).unwrap_or_else(|| unreachable!("all are shown"));
        &values[at]
    };
    for pair @ (line, result, operand) in &pairs {
        let symbol = &trace.block.symbols[*line];
        let said = || {
            let (result, operand) = (&trace.block.value(*result).name, &trace.block.value(*operand).name);
            format!(
                "'{result}' over '{operand}', where its kernel says it may be, in '{}'",
                print_symbol(&trace.block, symbol)
            )
        };
        over(&trace, symbol, *pair, (list.device(), tolerance), &value).map_err(|problem| problem.within(said()))?;
    }
    Ok(pairs.len())
}

fn over<'a>(
    trace: &Trace,
    symbol: &BoundSymbol,
    (_, result, operand): Pair,
    (device, tolerance): (&str, Tolerance),
    value: &impl Fn(ValueId) -> &'a Array,
) -> Check {
    let mut parameters: Vec<ValueId> = Vec::new();
    for id in symbol.operands() {
        if !parameters.contains(&id) {
            parameters.push(id);
        }
    }
    let mut values = trace.block.values.clone();
    values.iter_mut().for_each(|value| value.storage = None);
    for id in &symbol.results {
        values[id.index()].storage = Some(Storage::Output);
    }
    values[result.index()].storage = Some(Storage::Shared(operand));
    let input = |id: &ValueId| Input { role: InputRole::Input, donated: *id == operand, strides: None };
    let block = Block {
        values,
        parameters: parameters.clone(),
        symbols: vec![symbol.clone()],
        results: symbol.results.to_vec(),
    };
    let mut history = trace.history.clone();
    history.extend([StageName::Donate, StageName::PlanMemory].map(|stage| stage.name().to_owned()));
    let alone = Trace {
        history,
        inputs: parameters.iter().map(input).collect(),
        outputs: symbol.results.iter().map(|id| Output { path: format!("shown.{}", id.0) }).collect(),
        arena: Some(0),
        block: block.canonical(),
        ..trace.clone()
    };
    let program = Program::new(alone, None)?;
    let device = Device::new(device, 0);
    let arrays =
        || parameters.iter().map(|id| value(*id).to_contiguous()?.to_device(device)).collect::<Result<Vec<_>, _>>();
    let outputs = program.run(arrays()?).map_err(|error| {
        Problem::from(error).within(
            "fails there (a kernel in place reads by `elements` and writes by `elements_mut`: what it reads and writes \
             at once has no slices, and no building block reads it after it has written)",
        )
    })?;
    for (id, output) in symbol.results.iter().zip(&outputs) {
        let name = &trace.block.value(*id).name;
        ensure!(output.meta() == trace.block.meta(*id), "'{name}' is {}", output.meta());
        let expected = value(*id).to_host()?;
        let output = output.to_host()?;
        let scaled = tolerance.scaled_of(output.dtype());
        if scaled > 0.0 {
            // A directive says why the bits are not the same.
            Expected::rounded(expected.to_f64()?, expected.dtype()).with_relative(scaled).compare(&output)?;
            continue;
        }
        same_bits(&output, &expected)
            .map_err(|problem| problem.within(format!("'{name}' differs from what it is in memory of its own")))?;
    }
    Ok(())
}
