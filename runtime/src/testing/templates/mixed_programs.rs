//! Random programs under autocast: as near to the same program in f64 as arithmetic in bf16 can be, whoever runs them.

use fulgurite_kernels::DType;

use super::programs::{RandomProgram, run, settled};
use super::{Outcome, PASSED, nothing};
use crate::executor::ExecutorDef;
use crate::testing::problem::{Check, ensure};
use crate::testing::subject::{List, perturbed};
use crate::testing::tolerance::Expected;
use crate::transforms::autocast::autocast;

/// What products are computed in.
const LOW: DType = DType::BF16;

/// See the module.
pub(crate) fn check(seed: u64, executor: &'static ExecutorDef) -> Check<Outcome> {
    let program = RandomProgram::numbered(seed);
    if program.results.is_empty() {
        return nothing("no operators to make a program of");
    }
    let trace = program.trace(DType::F32)?;
    let mixed = autocast(&trace, LOW)?;
    mixed.verify()?;
    ensure!(autocast(&mixed, LOW)?.block == mixed.block, "once more changes the trace:\n{mixed}");
    let inputs = program.inputs(seed)?;
    let exact = program.in_f64()?;
    let values = exact(&inputs)?;
    // How far the results move when the inputs are rounded: a rounding on the way moves what follows it as much.
    let rounded = |seed: u64| -> Check<Vec<Vec<f64>>> { exact(&perturbed(&inputs, seed, Some(LOW))?) };
    let responses = [rounded(1)?, rounded(2)?];
    let steps = program.length();
    let list = List::of(executor);
    let outputs = run(&mixed, &list, &inputs)?;
    for (i, output) in outputs.iter().enumerate() {
        ensure!(
            output.dtype() == DType::F32,
            "result {i} is {}, expected f32: a function keeps its types",
            output.dtype()
        );
        let expected =
            Expected::of_steps(&values[i], &responses.each_ref().map(|moved| moved[i].as_slice()), steps, LOW);
        settled(output, &expected, &responses, i, JUMP)
            .map_err(|problem| problem.within(format!("result {i}, against the references in f64, of\n{mixed}")))?;
    }
    PASSED
}

/// A result that moves by more than this part of its size, when the inputs move by less than a hundredth, stands at a
/// discontinuity or is ill-conditioned, and says nothing about an executor.
const JUMP: f64 = 0.25;
