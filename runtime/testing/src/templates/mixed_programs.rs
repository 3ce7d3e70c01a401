//! Random programs under autocast: as near to the same program in f64 as their roundings to bf16 allow, and by every
//! executor no further from it than by the plain executors.

use crate::operator::RuleSet;
use crate::strided::LayoutRules;
use fulgurite_kernels::DType;

use super::lowered::{JUMP, LOW, mixed};
use super::programs::{RandomProgram, run, settled};
use crate::executor::ExecutorDef;
use crate::executor_list::List;
use crate::interpret::Interpreter;
use crate::problem::{Check, ensure};
use crate::subject::perturbed;
use crate::test::{Outcome, PASSED, nothing};
use crate::tolerance::{Expected, PLAIN, relative_error};
use crate::trace::Trace;
use crate::transforms::autocast::autocast;
use crate::transforms::decompose::decompose;

/// See the module.
pub(crate) fn check(seed: u64, executor: &'static ExecutorDef) -> Check<Outcome> {
    let program = RandomProgram::with_products(seed);
    if program.results.is_empty() {
        return nothing("no operators to make a program of");
    }
    let trace = program.trace(DType::F32)?;
    let mixed = mixed(&trace)?;
    mixed.verify()?;
    ensure!(autocast(&mixed, LOW)?.block == mixed.block, "once more changes the trace:\n{mixed}");
    let roundings = roundings(&mixed);
    if roundings == 0 {
        return nothing("the program has no product");
    }
    let inputs = program.inputs(seed)?;
    let exact = program.in_f64()?;
    let values = exact(&inputs)?;
    let moved = |seed: u64| -> Check<Vec<Vec<f64>>> { exact(&perturbed(&inputs, seed, Some(LOW))?) };
    let responses = [moved(1)?, moved(2)?];
    let moves = Interpreter::new(&mixed).moves(&inputs)?;
    let plain = run(&mixed, &List::plain()?, &inputs)?;
    let outputs = run(&mixed, &List::of(executor).able_to_run(&mixed), &inputs)?;
    for (i, (output, plain)) in outputs.iter().zip(&plain).enumerate() {
        let within = |what: &str| format!("result {i}, {what}, of\n{mixed}");
        ensure!(output.dtype() == DType::F32, "result {i} is {}: a function keeps its types", output.dtype());
        let own = responses.each_ref().map(|response| response[i].as_slice());
        let near: Vec<&[f64]> = moves.near.iter().map(|results| results[i].as_slice()).collect();
        let expected = Expected::of_roundings(&values[i], &own, roundings, LOW).with_moves(&near);
        settled(plain, &expected, &moves, i, JUMP)
            .map_err(|problem| problem.within(within("by the plain executors, against the references in f64")))?;
        let error = relative_error(&plain.to_f64()?, &values[i]);
        settled(output, &Expected::rounded(values[i].clone(), LOW).with_relative(PLAIN * error), &moves, i, JUMP)
            .map_err(|problem| problem.within(within("as near to the references in f64 as by the plain executors")))?;
    }
    PASSED
}

/// How many symbols give bf16, those left out that only move what there is.
fn roundings(mixed: &Trace) -> usize {
    let block = decompose(mixed, |_| true).block;
    let computes = |def: &'static crate::operator::OperatorDef| LayoutRules::of(def).view.is_none();
    let low = |line: &&crate::trace::BoundSymbol| line.results.iter().any(|id| block.meta(*id).dtype() == LOW);
    block.symbols.iter().filter(|line| line.operator().is_some_and(computes)).filter(low).count()
}
