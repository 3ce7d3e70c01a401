//! Two runs give the same bits; on a device also replays of a graph, whatever the data they were recorded with.

use std::sync::OnceLock;

use crate::array::Array;
use crate::executor_list::REFERENCE;
use crate::problem::{Check, Problem};
use crate::program::Program;
use crate::subject::{Ran, Subject};
use crate::test::{Context, Outcome, PASSED};
use crate::tolerance::same_bits;

/// Runs forward and backward again, with one thread and with three.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let list = context.list()?;
    let ran = subject.forward(&list);
    again(ran.as_ref().as_ref().map_err(Problem::clone)?)?;
    if subject.differentiable()? {
        let joint = subject.joint(&list);
        if let Some(ran) = joint.as_ref().as_ref().map_err(Problem::clone)? {
            again(ran).map_err(|problem| problem.within("with its gradient"))?;
        }
    }
    PASSED
}

fn pools() -> Check<&'static [(usize, rayon::ThreadPool)]> {
    static POOLS: OnceLock<Check<Vec<(usize, rayon::ThreadPool)>>> = OnceLock::new();
    let make = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map(|pool| (threads, pool)).map_err(|error| Problem(format!("no pool of {threads} threads: {error}")))
    };
    POOLS.get_or_init(|| [1, 3].map(make).into_iter().collect()).as_deref().map_err(Problem::clone)
}

fn again(ran: &Ran) -> Check {
    let compare = |what: &str| -> Check {
        for (i, (output, expected)) in ran.program.run(ran.inputs.clone())?.iter().zip(&ran.outputs).enumerate() {
            same_bits(output, expected).map_err(|problem| problem.within(format!("result {i} of {what}")))?;
        }
        Ok(())
    };
    compare("a second run")?;
    for (threads, pool) in if has_threads(&ran.program) { pools()? } else { &[] } {
        pool.install(|| compare(&format!("a run on {threads} threads")))?;
    }
    if replayed(ran)? { compare("a run after others with other data") } else { Ok(()) }
}

/// Whether a line is run by anything but the reference of its operator, which has one thread.
fn has_threads(program: &Program) -> bool {
    program.trace().block.symbols.iter().any(|symbol| symbol.executor.is_some_and(|name| name != REFERENCE))
}

/// Gives the program, which has a graph by now, the inputs with their elements in reverse order: what comes out is what
/// a new program gives, which launches each kernel. A value that was recorded as a number would stay as it was. Returns
/// whether the program has graphs, and so was run.
fn replayed(ran: &Ran) -> Check<bool> {
    if ran.program.counts().is_none() {
        return Ok(false);
    }
    let inputs = ran.inputs.iter().map(reversed).collect::<Result<Vec<Array>, _>>()?;
    let hosts = |outputs: Vec<Array>| outputs.iter().map(Array::to_host).collect::<crate::Result<Vec<Array>>>();
    let fresh = Program::trusted(ran.program.trace().clone(), None)?.run(inputs.clone()).and_then(hosts);
    let replayed = ran.program.run(inputs).and_then(hosts);
    let (fresh, replayed) = match (fresh, replayed) {
        (Ok(fresh), Ok(replayed)) => (fresh, replayed),
        // In another order the data may be no operands, as a kernel then reports: an index of one tensor meets the
        // extent of another.
        (Err(crate::Error::Run { .. }), Err(crate::Error::Run { .. })) => return Ok(true),
        (Err(error @ crate::Error::Run { .. }), Ok(_)) => {
            return Err(Problem(format!("a replay accepts data that a new program refuses: {error}")));
        }
        (Err(error), _) | (Ok(_), Err(error)) => return Err(error.into()),
    };
    for (i, (output, expected)) in replayed.iter().zip(&fresh).enumerate() {
        same_bits(output, expected).map_err(|problem| {
            problem.within(format!("result {i} of a replay with other data, against a new program's"))
        })?;
    }
    Ok(true)
}

/// The elements from the last to the first.
fn reversed(array: &Array) -> crate::Result<Array> {
    let bytes = array.to_bytes()?;
    let elements = bytes.chunks_exact(array.dtype().size());
    Array::from_bytes(array.shape(), array.dtype(), &elements.rev().flatten().copied().collect::<Vec<u8>>())
}
