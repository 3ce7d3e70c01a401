//! A wrong fuser, of an executor that must be named.

use fulgurite_ops_macros::executor;
use fulgurite_runtime::arithmetic::Arithmetic;
use fulgurite_runtime::operator::RuleSet;

/// Runs elementwise arithmetic, and keeps what a region computes in f32 whatever its type: values of 16 bits are
/// rounded where they are stored and nowhere else.
#[executor(device = "cpu", strided)]
pub mod unrounded {
    use fulgurite_executors::cpu::cpu;
    use fulgurite_executors::regions::grouping::Limits;
    use fulgurite_executors::regions::{grouping, program};
    use fulgurite_runtime::executor::HostKernel;
    use fulgurite_runtime::fuel::Fuel;
    use fulgurite_runtime::kernels::fused::{FusedKernel, FusedNode, OutputLayout};
    use fulgurite_runtime::operator::OperatorDef;
    use fulgurite_runtime::trace::Block;

    const LIMITS: Limits =
        Limits { executor: "unrounded", members: "unrounded", symbols: 48, scattered_rows: false, column_sums: None };

    fn fuse(block: &Block, fuel: &mut Fuel) -> Block {
        grouping::fuse(block, LIMITS, fuel)
    }

    fn claims(operator: &'static OperatorDef, _arguments: &[Arg<TensorMeta>]) -> Claim {
        refuse_unless!(Arithmetic::of(operator).scalar.is_some(), "is no arithmetic on elements");
        Ok(())
    }

    fn prepare(operator: &'static OperatorDef, arguments: &[Arg<Strided>], results: &[Strided]) -> Result<HostKernel> {
        let prepare = cpu::EXECUTOR.prepare.ok_or_else(|| Failure::new("NoKernel", "cpu prepares nothing"))?;
        prepare(operator, arguments, results)
    }

    fn prepare_region(body: &Block, operands: &[Strided], results: &[Strided]) -> Result<HostKernel> {
        let iteration = grouping::iteration_shape(body).unwrap_or_default();
        let mut program = program::program_of(body, LIMITS)?;
        for node in &mut program.nodes {
            if let FusedNode::Convert(dtype, of) = *node {
                *node = FusedNode::Convert(dtype.accumulator(), of);
            }
        }
        let strides: Vec<Vec<isize>> = operands.iter().map(|operand| program::seen_in(operand, &iteration)).collect();
        let strides: Vec<&[isize]> = strides.iter().map(Vec::as_slice).collect();
        let outputs: Vec<OutputLayout<'_>> = results
            .iter()
            .map(|result| OutputLayout { shape: result.meta.shape(), strides: &result.strides })
            .collect();
        let kernel = FusedKernel::new(&program, &iteration, &strides, &outputs);
        Ok(Box::new(move |operands, results| {
            kernel.run(operands, results).map_err(|error| Failure::new("DivisionByZero", error.to_string()))
        }))
    }
}
