//! Whatever verifies runs right: planned traces are changed at random (storage, order, claims, bodies, devices,
//! streams), and those that the verifier lets through must give what the same lines give without a plan.
//!
//! `programs` makes planned traces of operators' samples and of random programs, with gradients; `change` changes them;
//! [`judge`] says whether one was refused, or ran right.

mod change;
mod planned;
mod programs;

use super::executor_list::List;
use super::fuzz::agrees;
use super::problem::{Check, Problem, ensure};
use super::tolerance::same_bits;
use crate::array::Array;
use crate::compile::{Options, compile};
use crate::program::Program;
use crate::trace::{Callee, Input, StageName, Trace};
use crate::transforms::flatten::{Flattener, inline};

pub use change::changed;
pub use planned::Planned;
pub use programs::{planned, random_programs, sampled_programs};

/// The outcome for a changed trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The verifier refused it.
    Refused,
    /// It verifies, and preparing or running it is an error, with and without a plan.
    Fails,
    /// It verifies, and gives what its lines give without a plan.
    Right,
}

/// How far elements may be from those of the lines run one by one, as a part of their size and that of their tensor: a
/// fused sum is added in another order. What a wrong plan gives is poison or another value.
const TOLERANCE: f64 = 2e-3;

/// Verifies and runs a changed trace.
///
/// # Errors
/// If it verifies and differs from what its lines give without a plan.
pub fn judge(changed: &Trace, inputs: &[Array]) -> Result<Verdict, String> {
    verdict(changed, inputs).map_err(|Problem(message)| message)
}

fn verdict(changed: &Trace, inputs: &[Array]) -> Check<Verdict> {
    if changed.verify().is_err() {
        return Ok(Verdict::Refused);
    }
    let program = match Program::trusted(changed.clone(), None) {
        Ok(program) => program,
        // What is refused before it runs is refused.
        Err(_) => return Ok(Verdict::Fails),
    };
    // What is donated is nobody else's.
    let copies = || inputs.iter().map(fresh).collect::<crate::Result<Vec<Array>>>();
    let plain = without_plan(changed).and_then(|program| Ok(program.run_checked(copies()?)?));
    let apart = program.run_checked(copies()?).map_err(Problem::from);
    let planned = program.run_planned(copies()?).map_err(Problem::from);
    let (planned, apart, plain) = match (planned, apart, plain) {
        (Ok(planned), Ok(apart), Ok(plain)) => (planned, apart, plain),
        (Err(problem), Err(_), Ok(_)) if problem.0.contains("the kernel panicked") => {
            return Err(problem.within("as planned it panics, its lines one by one do not"));
        }
        // As planned a line that nothing depends on runs too, and may refuse its data.
        (Err(_), Err(_), _) => return Ok(Verdict::Fails),
        (Err(problem), Ok(_), _) => return Err(problem.within("as planned it fails, with values apart it does not")),
        (Ok(_), Err(problem), _) => return Err(problem.within("with values apart it fails, as planned it does not")),
        (Ok(_), Ok(_), Err(problem)) => return Err(problem.within("its lines one by one fail, as planned they do not")),
    };
    let run = program.run(copies()?)?;
    for (i, planned) in planned.iter().enumerate() {
        let within = |problem: Problem, what: &str| problem.within(format!("result {i} {what}"));
        let expected = changed.block.meta(changed.block.results[i]);
        // It is on the host by now.
        let same = planned.shape() == expected.shape() && planned.dtype() == expected.dtype();
        ensure!(same, "result {i} is {}, the trace says {expected}", planned.meta());
        same_bits(planned, &apart[i]).map_err(|problem| within(problem, "as planned against values apart"))?;
        same_bits(&run[i], planned).map_err(|problem| within(problem, "of a run against one in poisoned memory"))?;
    }
    let pairs = planned.iter().zip(&plain);
    let apart = pairs.map(|(planned, plain)| far_apart(planned, plain)).collect::<Check<Vec<_>>>()?;
    if let Some(i) = apart.iter().position(|elements| !elements.is_empty()) {
        // Where terms cancel, other roundings give other results: the references tell how far.
        agrees(&unplanned(changed), inputs, &planned, &apart).map_err(|problem| {
            let j = apart[i][0];
            problem.within(format!("result {i} against the lines one by one: element {j} differs; the references"))
        })?;
    }
    Ok(Verdict::Right)
}

/// Runs a planned trace that the verifier has not seen, or refuses: to see what comes of it.
///
/// # Safety
/// Kernels read and write where the plan says, and when its events let them: the memory of the device must bear that.
///
/// # Errors
/// Those of the run.
pub unsafe fn run_unverified(trace: Trace, inputs: Vec<Array>) -> crate::Result<Vec<Array>> {
    Program::trusted(trace, None)?.run(inputs)
}

/// A copy with the same strides, which nobody else holds.
fn fresh(array: &Array) -> crate::Result<Array> {
    let mut copy = fulgurite_kernels::Buffer::uninitialized(array.buffer()?.len())?;
    copy.as_bytes_mut().copy_from_slice(array.buffer()?.as_bytes());
    let offset = array.byte_offset() / array.dtype().size().max(1);
    let strides = crate::array::Strides::from_slice(array.strides());
    Ok(Array::from_shared(std::sync::Arc::new(copy), array.meta().clone(), strides, offset))
}

/// The lines of a planned trace as they were before anybody took them: regions opened, no claims, no storage.
pub fn unplanned(trace: &Trace) -> Trace {
    let source = &trace.block;
    let (mut flattener, mut substitution) = Flattener::new(source);
    for symbol in &source.symbols {
        match (&symbol.callee, &symbol.body) {
            (Callee::Delete, _) => {}
            (Callee::Region { .. }, Some(body)) => {
                let mut write = |flattener: &mut Flattener, source: &_, symbol: &_, substitution: &mut _| {
                    flattener.copy(source, symbol, substitution).executor = None;
                    Ok::<(), std::convert::Infallible>(())
                };
                let Ok(()) = inline(&mut flattener, source, symbol, &mut substitution, body, &mut write);
            }
            _ => {
                let copied = flattener.copy(source, symbol, &mut substitution);
                copied.executor = None;
                copied.refusals.clear();
            }
        }
    }
    let inputs = trace.inputs.iter().map(|input| Input { donated: false, ..input.clone() }).collect();
    let block = flattener.finish(source, &substitution).canonical();
    Trace { history: vec![StageName::Acquire.name().into()], inputs, arena: None, block, ..trace.clone() }
}

fn without_plan(trace: &Trace) -> Check<Program> {
    let list = List { fuse: false, ..programs::default_list(trace.target.kind())? };
    let options = Options { rewrites: Some(Vec::new()), recompute: None, ..list.options() };
    Ok(compile(unplanned(trace), &options)?.0)
}

/// The elements in which two results are not the same but for the order of sums.
fn far_apart(got: &Array, expected: &Array) -> Check<Vec<usize>> {
    let (meta, dtype) = (got.meta(), expected.dtype());
    ensure!(got.shape() == expected.shape() && got.dtype() == dtype, "is {meta}, expected {}", expected.meta());
    if !dtype.is_floating() {
        let (got, expected) = (got.to_bytes()?, expected.to_bytes()?);
        let pairs = got.chunks(dtype.size()).zip(expected.chunks(dtype.size())).enumerate();
        return Ok(pairs.filter(|(_, (a, b))| a != b).map(|(i, _)| i).collect());
    }
    let (got, expected) = (got.to_f64()?, expected.to_f64()?);
    let finite = expected.iter().filter(|value| value.is_finite());
    let size = (finite.clone().map(|value| value * value).sum::<f64>() / finite.count().max(1) as f64).sqrt();
    let near = |a: f64, b: f64| {
        let same = a == b || (a.is_nan() && b.is_nan());
        // Beyond what f32 holds, or next to it, one order of a sum overflows and another does not.
        let beyond = !size.is_finite() || size > 1e30 || (!a.is_finite() && b.abs() > 1e30);
        same || beyond || (a - b).abs() <= TOLERANCE * (a.abs() + b.abs() + size)
    };
    Ok(got.iter().zip(&expected).enumerate().filter(|(_, (a, b))| !near(**a, **b)).map(|(i, _)| i).collect())
}
