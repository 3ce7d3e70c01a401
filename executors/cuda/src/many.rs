//! Lists of lines that do the same to tensors of their own: one generated kernel for all of them.

use fulgurite_executor_regions::grouping::Limits;
use fulgurite_executor_regions::lists::{each_once, program_of_line};
use fulgurite_runtime::device::Source;
use fulgurite_runtime::kernels::cuda::generate::{MOST_TENSORS, ManyKernel, OPTIONS};
use fulgurite_runtime::kernels::fused::FusedProgram;
use fulgurite_runtime::rules::{Address, DeviceTensor, Failure, Parameter, Plan, Result};
use fulgurite_runtime::trace::{Block, ValueId};
use rustc_hash::FxHashMap;

use super::elementwise::launch;
use super::support::WIDEST;

/// What one line of a list reads and writes.
struct Line {
    operands: Vec<DeviceTensor>,
    result: DeviceTensor,
}

impl Line {
    fn tensors(&self) -> impl Iterator<Item = &DeviceTensor> {
        self.operands.iter().chain([&self.result])
    }

    /// Whether all tensors are contiguous and aligned to the widest vector.
    fn is_plain(&self) -> bool {
        self.tensors().all(|tensor| tensor.is_contiguous() && tensor.alignment.is_multiple_of(WIDEST))
    }
}

/// Plans a region that is a list: those lines whose tensors are contiguous in one launch, or in as few as the arguments
/// have room for, and any other in a launch of its own.
pub fn plan(
    plan: &mut Plan,
    body: &Block,
    limits: Limits,
    operands: &[DeviceTensor],
    results: &[DeviceTensor],
) -> Result<()> {
    let broken = || Failure::new("Region", "a list of lines reads what it is not given");
    let lines = || body.symbols.iter().zip(results).filter(|(_, result)| !result.meta.is_empty());
    let Some((first, _)) = lines().next() else { return Ok(()) };
    let program = program_of_line(body, first, limits)?;
    let given: FxHashMap<ValueId, &DeviceTensor> = body.parameters.iter().copied().zip(operands).collect();
    let mut plain: Vec<Line> = Vec::new();
    for (symbol, result) in lines() {
        let read = each_once(symbol).into_iter().map(|id| given.get(&id).copied().cloned());
        let operands = read.map(|tensor| tensor.ok_or_else(broken)).collect::<Result<Vec<_>>>()?;
        let line = Line { operands, result: result.clone() };
        if line.is_plain() {
            plain.push(line);
        } else {
            one(plan, &program, &line)?;
        }
    }
    for lines in plain.chunks(MOST_TENSORS) {
        match lines {
            [line] => one(plan, &program, line)?,
            _ => many(plan, &program, lines)?,
        }
    }
    Ok(())
}

/// A line in a launch of its own.
fn one(plan: &mut Plan, program: &FusedProgram, Line { operands, result }: &Line) -> Result<()> {
    let operands: Vec<(&DeviceTensor, &[isize])> =
        operands.iter().map(|tensor| (tensor, &tensor.strides[..])).collect();
    launch(plan, "region", program, result.shape(), &operands, &[(result, result.shape(), &result.strides)])
}

/// Contiguous lines in one launch.
fn many(plan: &mut Plan, program: &FusedProgram, lines: &[Line]) -> Result<()> {
    let lengths: Vec<usize> = lines.iter().map(|line| line.result.len()).collect();
    let kernel = ManyKernel::new("list", program, &lengths, WIDEST)
        .map_err(|error| Failure::new("Generate", error.to_string()))?;
    let inputs = kernel.inputs.iter().flat_map(|input| lines.iter().map(|line| line.operands[*input].address));
    let pointers: Vec<Address> = inputs.chain(lines.iter().map(|line| line.result.address)).collect();
    let source = Source {
        name: format!("{}.cu", kernel.name).into(),
        text: kernel.source.into(),
        options: OPTIONS.iter().map(|option| (*option).to_owned()).collect(),
    };
    let parameters = vec![Parameter::from(pointers), Parameter::Value(kernel.table.into())];
    plan.launch_from(source, &kernel.name, kernel.shape, parameters);
    Ok(())
}
