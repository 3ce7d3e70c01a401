//! Every stage's trace prints, parses back equal, verifies, and runs to the same result.

use crate::array::Array;
use crate::compile::{Options, stages};
use crate::executor_list::List;
use crate::problem::{Check, Problem, ensure};
use crate::subject::{Ran, Subject, joint_trace};
use crate::test::{Context, Outcome, PASSED};
use crate::tolerance::same_bits;
use crate::trace::{StageName, Trace, diff, parse};

/// See the module.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let list = context.list()?;
    let forward = subject.forward(&list);
    all(&list.placed(subject.trace()?)?, &list, forward.as_ref().as_ref().map_err(Problem::clone)?)?;
    if subject.differentiable()? {
        let joint = subject.joint(&list);
        if let (Some(ran), Some(trace)) = (
            joint.as_ref().as_ref().map_err(Problem::clone)?,
            joint_trace(&list.placed(subject.trace()?)?, &list.executors)?,
        ) {
            all(&trace, &list, ran).map_err(|problem| problem.within("with its gradient"))?;
        }
    }
    PASSED
}

/// The stages whose texts are run.
const RUN: [StageName; 5] =
    [StageName::Acquire, StageName::Autodiff, StageName::Claim, StageName::Layout, StageName::DeleteLastUsed];

fn all(trace: &Trace, list: &List, ran: &Ran) -> Check {
    // Each is verified here.
    let stages = stages(trace.clone(), &Options { verify: false, ..list.options() })?;
    for (i, stage) in stages.iter().enumerate() {
        let run = RUN.iter().any(|run| stage.is(*run));
        // A pass that changes nothing leaves nothing to be said that was not said of the stage before.
        if !run && i > 0 && unchanged(&stages[i - 1].trace, &stage.trace) {
            continue;
        }
        one(&stage.trace, list, run.then_some((&ran.inputs, &ran.outputs)))
            .map_err(|problem| problem.within(format!("stage '{}'", stage.name)))?;
    }
    Ok(())
}

/// Whether a pass left the program as it was; its name is in the history all the same.
fn unchanged(before: &Trace, after: &Trace) -> bool {
    let parts = |trace: &Trace| (trace.arena, trace.target.clone());
    parts(before) == parts(after)
        && before.block == after.block
        && before.inputs == after.inputs
        && before.outputs == after.outputs
}

fn one(trace: &Trace, list: &List, run: Option<(&Vec<Array>, &Vec<Array>)>) -> Check {
    let text = trace.to_string();
    trace.verify().map_err(|error| Problem::from(error).within("as made"))?;
    let parsed = parse(&text).map_err(|error| Problem(format!("its text does not parse: {error}\n{text}")))?;
    ensure!(parsed == *trace, "its text parses to another trace:\n{}\n{text}", diff(trace, &parsed));
    ensure!(parsed.to_string() == text, "the parsed trace prints another text:\n{text}\n{parsed}");
    if let Some((inputs, outputs)) = run {
        let program = list.compile(&parsed)?;
        for (i, (output, expected)) in program.run(inputs.clone())?.iter().zip(outputs).enumerate() {
            same_bits(output, expected).map_err(|problem| problem.within(format!("result {i} of the parsed trace")))?;
        }
    }
    Ok(())
}
