//! The host's executor: every elementwise operator from its `scalar` rule, every view where no view is possible, and
//! kernels for the other prims.

mod attention;
mod collectives;
mod fusion;
mod grouped;
mod indexing;
mod linalg;
mod losses;
mod making;
mod moving;
mod order;
mod paths;
mod products;
mod reducing;
pub mod reference;
mod scans;
mod windowed_attention;
mod windows;

use fulgurite_ops_macros::executor;
use fulgurite_runtime::arithmetic::Arithmetic;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::strided::LayoutRules;

/// Runs on the host's processors, over threads where the work is worth it.
#[executor(device = "cpu", priority = 10, strided, strided_results = 0)]
pub mod cpu {
    use fulgurite_runtime::executor::HostKernel;
    use fulgurite_runtime::fuel::Fuel;
    use fulgurite_runtime::kernels::fused::{DivisionByZero, FusedKernel, FusedNode, FusedProgram, OutputLayout};
    use fulgurite_runtime::kernels::view::contiguous_strides;
    use fulgurite_runtime::kernels::windows::{LayoutInside, in_shape};
    use fulgurite_runtime::operator::OperatorDef;
    use fulgurite_runtime::trace::Block;

    fn fuse(block: &Block, fuel: &mut Fuel) -> Block {
        super::fusion::fuse(block, fuel)
    }

    fn admits_region(body: &Block) -> Claim {
        fulgurite_executor_regions::rules::admits(body, crate::fusion::LIMITS)
    }

    fn prepare_region(body: &Block, operands: &[Strided], results: &[Strided]) -> Result<HostKernel> {
        super::fusion::prepare_region(body, operands, results)
    }

    fn claims(operator: &'static OperatorDef, _arguments: &[Arg<TensorMeta>]) -> Claim {
        refuse_unless!(
            Arithmetic::of(operator).scalar.is_some() || LayoutRules::of(operator).view.is_some(),
            "has no kernel for it"
        );
        Ok(())
    }

    fn prepare(operator: &'static OperatorDef, arguments: &[Arg<Strided>], results: &[Strided]) -> Result<HostKernel> {
        match (Arithmetic::of(operator).scalar, LayoutRules::of(operator).view) {
            (Some(scalar), _) => {
                let metas: Vec<Arg<TensorMeta>> =
                    arguments.iter().map(|argument| argument.map(|tensor| tensor.meta.clone())).collect();
                let (program, numbers) = scalar(&metas);
                elementwise(&program, &numbers, arguments, results)
            }
            (None, Some(view)) => copy(view(arguments), arguments, results),
            (None, None) => Err(Failure::new("NoKernel", format!("cpu has no kernel for {}", operator.name))),
        }
    }

    /// The arithmetic of one operator, prepared for the layouts at hand.
    fn elementwise(
        program: &ScalarProgram,
        numbers: &[f64],
        arguments: &[Arg<Strided>],
        results: &[Strided],
    ) -> Result<HostKernel> {
        let operands: Vec<&Strided> = arguments.iter().flat_map(Arg::tensors).collect();
        let inputs = operands.iter().map(|operand| operand.meta.dtype());
        let fused = FusedProgram::of(program, numbers, inputs, results.iter().map(|result| result.meta.dtype()));
        let shape = results.first().map_or(&[][..], |result| result.meta.shape());
        let inputs: Vec<&[isize]> = operands.iter().map(|operand| operand.strides.as_slice()).collect();
        let outputs: Vec<OutputLayout<'_>> = results.iter().map(layout).collect();
        let kernel = FusedKernel::new(&fused, shape, &inputs, &outputs);
        Ok(Box::new(move |operands, results| kernel.run(operands, results).map_err(by_zero)))
    }

    fn by_zero(error: DivisionByZero) -> Failure {
        Failure::new("DivisionByZero", error.to_string())
    }

    fn layout(tensor: &Strided) -> OutputLayout<'_> {
        OutputLayout { shape: tensor.meta.shape(), strides: &tensor.strides }
    }

    /// A copy that replaces a view: of what the view sees, or of all elements in row-major order.
    fn copy(view: Option<View>, arguments: &[Arg<Strided>], results: &[Strided]) -> Result<HostKernel> {
        let missing = || Failure::new("ViewForm", "an operator with a view rule has a tensor and one result");
        let operand = arguments.iter().flat_map(Arg::tensors).next().ok_or_else(missing)?;
        let [result] = results else { return Err(missing()) };
        let dtype = result.meta.dtype();
        let program =
            FusedProgram { input_dtypes: vec![dtype], nodes: vec![FusedNode::Input(0)], outputs: vec![(0, dtype)] };
        let Some(view) = view else {
            // The result is contiguous, as results of every kernel: it can be seen in the operand's shape.
            let shape = operand.meta.shape().to_vec();
            let strides = contiguous_strides(&shape);
            let target = OutputLayout { shape: &shape, strides: &strides };
            let kernel = FusedKernel::new(&program, &shape, &[&operand.strides], &[target]);
            return Ok(Box::new(move |operands, results| {
                let target = in_shape(&mut results[0], &shape, &strides)
                    .ok_or_else(|| Failure::new("ResultLayout", "the result of a copy is not contiguous"))?;
                kernel.run(operands, &mut [target]).map_err(by_zero)
            }));
        };
        let shape = result.meta.shape().to_vec();
        let kernel = FusedKernel::new(&program, &shape, &[&view.strides], &[layout(result)]);
        let beyond = || Failure::new("ViewLayout", "a view rule answers with elements that are not its operand's");
        let of = (operand.meta.shape(), operand.strides.as_slice());
        let seen = LayoutInside::new(of, &shape, &view.strides, view.offset).ok_or_else(beyond)?;
        Ok(Box::new(move |operands, results| {
            let source = seen.of(&operands[0]).ok_or_else(beyond)?;
            kernel.run(&[source], results).map_err(by_zero)
        }))
    }
}
