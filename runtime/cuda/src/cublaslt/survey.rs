//! How fast the library's best algorithm for a product is: what the choice of an algorithm is compared with.

use super::super::context::Context;
use super::super::error::Result;
use super::super::event::Event;
use super::super::measuring::random_bytes;
use super::super::memory::DeviceMemory;
use super::super::stream::Stream;
use super::library::CublasLt;
use super::plan::{MatmulOperands, MatmulPlan};
use super::problem::{Operand, Problem};
use fulgurite_kernels::DType;

/// Workspace that an algorithm may use, in bytes.
const WORKSPACE: usize = 64 << 20;
/// What is written between runs, so that operands come from memory: more than the L2 cache, in bytes.
const FLUSH: usize = 256 << 20;
/// Runs of each algorithm after the first, which loads the kernel; the median counts.
const RUNS: usize = 5;

/// The fastest algorithm of a product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Surveyed {
    /// Its median time in microseconds.
    pub microseconds: f32,
    /// How many algorithms were measured.
    pub tried: usize,
}

/// Measures the heuristics' first `most` algorithms for a problem without batch and epilogue on device `ordinal`, with
/// random operands and cold caches; `None` if the library has none.
///
/// # Errors
/// Those of the library or the driver, and too little memory.
pub fn survey(ordinal: usize, problem: &Problem, most: usize) -> Result<Option<Surveyed>> {
    let context = Context::new(ordinal)?;
    let _entered = context.enter()?;
    let (library, stream) = (CublasLt::new(&context)?, Stream::new(&context)?);
    let Problem { m, n, k, .. } = *problem;
    let operand = |operand: &Operand, rows: usize, columns: usize| -> Result<DeviceMemory> {
        filled(&context, &stream, operand.dtype, rows * columns)
    };
    let (a, b, d) = (operand(&problem.a, m, k)?, operand(&problem.b, k, n)?, operand(&problem.d, m, n)?);
    let (workspace, other) = (DeviceMemory::new(&context, WORKSPACE)?, DeviceMemory::new(&context, FLUSH)?);
    let operands = MatmulOperands {
        d: d.address(),
        a: a.address(),
        b: b.address(),
        workspace: workspace.address(),
        ..MatmulOperands::default()
    };
    let (start, end) = (Event::timed(&context)?, Event::timed(&context)?);
    let mut found: Option<Surveyed> = None;
    for algorithm in MatmulPlan::candidates(&library, problem, WORKSPACE, most)? {
        // The heuristics name algorithms that the library then does not take.
        let Ok(plan) = MatmulPlan::with_algorithm(&library, problem, &algorithm) else { continue };
        if plan.workspace_bytes() > WORKSPACE {
            continue;
        }
        let mut times = Vec::with_capacity(RUNS);
        for run in 0..=RUNS {
            // SAFETY: all memory is this function's, as large as the problem says, and used on this stream alone.
            unsafe {
                stream.fill_u8(other.address(), run as u8, FLUSH)?;
                start.record(&stream)?;
                plan.run(&stream, &operands, 1.0)?;
            }
            end.record(&stream)?;
            end.synchronize()?;
            if run > 0 {
                times.push(end.milliseconds_since(&start)? * 1e3);
            }
        }
        times.sort_by(f32::total_cmp);
        let median = times[RUNS / 2];
        let (least, tried) = found.map_or((median, 0), |found| (found.microseconds.min(median), found.tried));
        found = Some(Surveyed { microseconds: least, tried: tried + 1 });
    }
    stream.synchronize()?;
    Ok(found)
}

/// Memory with so many random numbers.
fn filled(context: &Context, stream: &Stream, dtype: DType, elements: usize) -> Result<DeviceMemory> {
    let bytes = elements * dtype.size();
    let mut memory = DeviceMemory::new(context, bytes)?;
    let block = random_bytes(dtype);
    let first = block.len().min(bytes);
    memory.write(stream, 0, &block[..first])?;
    let mut filled = first;
    while filled < bytes {
        let more = filled.min(bytes - filled);
        // SAFETY: both are parts of the memory, and the second begins where the first, no longer one ends.
        unsafe { stream.copy_on_device(memory.address().offset(filled), memory.address(), more) }?;
        filled += more;
    }
    Ok(memory)
}
