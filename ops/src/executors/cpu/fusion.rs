//! The kernels of regions on the host.

use fulgurite::executor::{HostKernel, Strided};
use fulgurite::rules::fulgurite_kernels::fused::{FusedKernel, OutputLayout};
use fulgurite::rules::*;
use fulgurite::trace::{Block, BoundSymbol, Callee};
use fulgurite::transforms::Fuel;

use crate::executors::regions::{Limits, fuse as gather, iteration_shape, program_of, seen_in, stored_in};

/// Beyond 48 symbols tiles no longer fit the cache.
const LIMITS: Limits = Limits { executor: "cpu", members: "cpu", symbols: 48 };

/// The operators whose arithmetic divides, to be named when an integer was divided by zero.
const DIVIDING: [&str; 2] = ["prims::remainder", "prims::floor_divide"];

/// Groups the symbols that this executor claimed into regions.
pub fn fuse(block: &Block, fuel: &mut Fuel) -> Block {
    gather(block, LIMITS, fuel)
}

/// The kernel of a region: its body as a fused program for the layouts at hand.
pub fn prepare_region(body: &Block, operands: &[Strided], results: &[Strided]) -> Result<HostKernel> {
    let iteration =
        iteration_shape(body).ok_or_else(|| Failure::new("Region", "a region of the cpu executor is empty"))?;
    let program = program_of(body, LIMITS.executor)?;
    let inputs: Vec<(Vec<usize>, Vec<isize>)> =
        operands.iter().map(|operand| (iteration.clone(), seen_in(operand, &iteration))).collect();
    let stored: Vec<(Vec<usize>, Vec<isize>)> = results.iter().map(|result| stored_in(result, &iteration)).collect();
    let input_strides: Vec<&[isize]> = inputs.iter().map(|(_, strides)| &strides[..]).collect();
    let layouts: Vec<OutputLayout<'_>> =
        stored.iter().map(|(shape, strides)| OutputLayout { shape, strides }).collect();
    let divides = |symbol: &&BoundSymbol| {
        let integers = symbol.results.iter().any(|id| body.meta(*id).dtype().is_integer());
        integers && matches!(symbol.callee, Callee::Operator(def) if DIVIDING.contains(&def.name))
    };
    let dividing: Vec<String> = body.symbols.iter().filter(divides).map(|symbol| symbol.name().to_owned()).collect();
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
            .map_err(|error| Failure::new("DivisionByZero", format!("{error} by {}", dividing.join(" or "))))
    }))
}
