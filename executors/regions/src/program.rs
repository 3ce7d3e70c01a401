//! What the kernel of a region is given: the program, and strides in the iteration's shape.

use fulgurite_runtime::DType;
use fulgurite_runtime::arithmetic::Arithmetic;
use fulgurite_runtime::kernels::fused::{FusedNode, FusedProgram};
use fulgurite_runtime::kernels::scalar::ScalarNode;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::rules::*;
use fulgurite_runtime::strided::Strided;
use fulgurite_runtime::trace::Block;

use crate::grouping::{Kind, Limits, kind_of};
use crate::rules::admits;

/// What a region computes, whatever the layout of its operands. The output of a sum over all rows is what is summed, in
/// f32: [`sums_of`] says which outputs these are.
pub fn program_of(body: &Block, limits: Limits) -> Result<FusedProgram> {
    let executor = limits.executor;
    let broken = |what: &str| Failure::new("Region", format!("a region {what}"));
    // Regions are made elsewhere too, and the verifier may be off.
    admits(body, limits)
        .map_err(|reason| Failure::new("Region", format!("'{executor}' does not run this region: {reason}")))?;
    let mut nodes: Vec<FusedNode> = Vec::new();
    let mut known: Vec<Option<u32>> = vec![None; body.values.len()];
    let mut push = |node: FusedNode| {
        nodes.push(node);
        (nodes.len() - 1) as u32
    };
    for (i, parameter) in body.parameters.iter().enumerate() {
        known[parameter.index()] = Some(push(FusedNode::Input(i as u32)));
    }
    for symbol in &body.symbols {
        let kind = kind_of(body, symbol, executor).ok_or_else(|| broken("holds a symbol that cannot be fused"))?;
        let arguments: Vec<u32> = symbol
            .operands()
            .map(|id| known[id.index()].ok_or_else(|| broken("reads a value that it does not define")))
            .collect::<Result<_>>()?;
        let dtype = body.meta(symbol.results[0]).dtype();
        // A value has the bits that its type says, wherever it is computed: narrow integers wrap and 16-bit numbers are
        // rounded after every symbol, as they are when each result is stored. (Kernels leave out conversions that
        // change nothing.)
        let node = match kind {
            Kind::Reshape | Kind::Broadcast | Kind::SumRows => arguments[0],
            Kind::Convert => push(FusedNode::Convert(dtype, arguments[0])),
            Kind::Reduce(reduction) => {
                let result = push(FusedNode::Reduce(reduction, arguments[0]));
                push(FusedNode::Convert(dtype, result))
            }
            Kind::Elementwise | Kind::Fill => {
                let rule = symbol
                    .operator()
                    .and_then(|def| Arithmetic::of(def).scalar)
                    .ok_or_else(|| broken("lost a scalar rule"))?;
                let (program, numbers) = rule(&body.argument_metas(symbol));
                let mut local: Vec<u32> = Vec::with_capacity(program.nodes.len());
                for node in &program.nodes {
                    local.push(match *node {
                        ScalarNode::Input(input) => arguments[input as usize],
                        ScalarNode::Number(number) => push(FusedNode::Constant(numbers[number as usize])),
                        ScalarNode::Constant(value) => push(FusedNode::Constant(value)),
                        ScalarNode::Apply(op, operands) => {
                            // Unused operands are 0, which may not exist yet in this program's numbering.
                            let mut mapped = [0; 3];
                            for (slot, operand) in mapped.iter_mut().zip(operands).take(op.arity()) {
                                *slot = local[operand as usize];
                            }
                            push(FusedNode::Apply(op, mapped))
                        }
                    });
                }
                push(FusedNode::Convert(dtype, local[program.results[0] as usize]))
            }
        };
        known[symbol.results[0].index()] = Some(node);
    }
    let sums = sums_of(body, executor);
    let outputs: Vec<(u32, DType)> = body
        .results
        .iter()
        .zip(sums)
        .map(|(id, summed)| {
            Ok((
                known[id.index()].ok_or_else(|| broken("returns a value that it does not define"))?,
                if summed { DType::F32 } else { body.meta(*id).dtype() },
            ))
        })
        .collect::<Result<_>>()?;
    let input_dtypes = body.parameters.iter().map(|id| body.meta(*id).dtype()).collect();
    Ok(FusedProgram { input_dtypes, nodes, outputs })
}

/// For each result of a region, whether it is a sum over all rows.
pub fn sums_of(body: &Block, executor: &str) -> Vec<bool> {
    let sums = body.symbols.iter().filter(|symbol| kind_of(body, symbol, executor) == Some(Kind::SumRows));
    let sums: Vec<_> = sums.map(|symbol| symbol.results[0]).collect();
    body.results.iter().map(|id| sums.contains(id)).collect()
}

/// Strides of an operand seen in the iteration shape; a value per row is repeated along the last dimension.
pub fn seen_in(operand: &Strided, iteration: &[usize]) -> Vec<isize> {
    let mut strides = operand.strides.clone();
    if operand.meta.shape() != iteration {
        strides.truncate(iteration.len().saturating_sub(1));
        strides.push(0);
    }
    strides
}

/// Shape and strides of a result in the form that the fused kernel stores.
pub fn stored_in(result: &Strided, iteration: &[usize]) -> (Vec<usize>, Vec<isize>) {
    let meta = &result.meta;
    let (mut shape, mut strides) = (meta.shape().to_vec(), result.strides.clone());
    if shape.len() < iteration.len() {
        shape.push(1);
        strides.push(1);
    }
    (shape, strides)
}
