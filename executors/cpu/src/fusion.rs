//! The kernels of regions on the host.

use fulgurite_runtime::arithmetic::Arithmetic;
use fulgurite_runtime::executor::HostKernel;
use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::kernels::fused::{FusedKernel, OutputLayout};
use fulgurite_runtime::kernels::scalar::ScalarNode;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::rules::*;
use fulgurite_runtime::strided::Strided;
use fulgurite_runtime::trace::{Block, BoundSymbol};

use fulgurite_executor_regions::grouping::{Limits, fuse as gather, iteration_shape};
use fulgurite_executor_regions::program::{program_of, seen_in, stored_in};

/// Beyond 48 symbols tiles no longer fit the cache.
pub(crate) const LIMITS: Limits =
    Limits { executor: "cpu", members: "cpu", symbols: 48, scattered_rows: false, column_sums: None };

/// Groups the symbols that this executor claimed into regions.
pub fn fuse(block: &Block, fuel: &mut Fuel) -> Block {
    gather(block, LIMITS, fuel)
}

/// The kernel of a region: its body as a fused program for the layouts at hand.
pub fn prepare_region(body: &Block, operands: &[Strided], results: &[Strided]) -> Result<HostKernel> {
    let iteration =
        iteration_shape(body).ok_or_else(|| Failure::new("Region", "a region of the cpu executor is empty"))?;
    let program = program_of(body, LIMITS)?;
    let inputs: Vec<(Vec<usize>, Vec<isize>)> =
        operands.iter().map(|operand| (iteration.clone(), seen_in(operand, &iteration))).collect();
    let per_row = |shape: &[usize]| {
        iteration.split_last().is_some_and(|(_, rows)| shape == rows || (shape.split_last() == Some((&1, rows))))
    };
    if let Some(result) =
        results.iter().find(|result| result.meta.shape() != iteration && !per_row(result.meta.shape()))
    {
        let message =
            format!("a region over {iteration:?} gives {}, expected its shape or a number a row", result.meta);
        return Err(Failure::new("Region", message));
    }
    let stored: Vec<(Vec<usize>, Vec<isize>)> = results.iter().map(|result| stored_in(result, &iteration)).collect();
    let input_strides: Vec<&[isize]> = inputs.iter().map(|(_, strides)| &strides[..]).collect();
    let layouts: Vec<OutputLayout<'_>> =
        stored.iter().map(|(shape, strides)| OutputLayout { shape, strides }).collect();
    // To be named when an integer was divided by zero.
    let mut dividing: Vec<&str> =
        body.symbols.iter().filter(|symbol| divides_integers(body, symbol)).map(called).collect();
    dividing.dedup();
    let dividing = dividing.join(" or ");
    let kernel = FusedKernel::new(&program, &iteration, &input_strides, &layouts);
    Ok(Box::new(move |operands, results| {
        let lost = || Failure::new("Region", "an operand does not have the layout that the region was compiled for");
        let operands = operands
            .iter()
            .zip(&inputs)
            .map(|(operand, (shape, strides))| operand.reshaped(shape, strides).ok_or_else(lost))
            .collect::<Result<Vec<_>>>()?;
        let mut results = results
            .iter_mut()
            .zip(&stored)
            .map(|(result, (shape, strides))| result.reshaped(shape, strides).ok_or_else(lost))
            .collect::<Result<Vec<_>>>()?;
        kernel
            .run(&operands, &mut results)
            .map_err(|error| Failure::new("DivisionByZero", format!("{error} by {dividing}")))
    }))
}

/// Whether the arithmetic of a symbol divides integers.
fn divides_integers(body: &Block, symbol: &BoundSymbol) -> bool {
    let integers = symbol.operands().all(|id| body.meta(id).dtype().is_integer());
    let rule = symbol.operator().and_then(|def| Arithmetic::of(def).scalar);
    integers
        && rule.is_some_and(|rule| {
            let (program, _) = rule(&body.argument_metas(symbol));
            program.nodes.iter().any(|node| matches!(node, ScalarNode::Apply(op, _) if op.divides()))
        })
}

/// The operator that the author called, of which the symbol is a part, or the symbol's own.
fn called(symbol: &BoundSymbol) -> &str {
    symbol.place.and_then(|place| place.operator()).unwrap_or_else(|| symbol.name())
}
