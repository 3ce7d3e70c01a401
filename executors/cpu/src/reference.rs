//! The executor that is always there: every operator that declares a `reference` and does not decompose runs it, in
//! f64.

use fulgurite_ops_macros::executor;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::testing::rules::TestRules;
use fulgurite_runtime::tracer::rules::TracingRules;

/// Runs each operator's own f64 reference. Slow, simple, and the measure of all other executors.
#[executor(device = "cpu", priority = 90, strided)]
pub mod reference {
    use fulgurite_runtime::argument::map_arguments;
    use fulgurite_runtime::executor::HostKernel;
    use fulgurite_runtime::kernels::access::{read_f64, read_i64, write_f64, write_i64};
    use fulgurite_runtime::kernels::scratch;
    use fulgurite_runtime::operator::OperatorDef;
    use fulgurite_runtime::strided::Strided;

    fn claims(operator: &'static OperatorDef, _arguments: &[Arg<TensorMeta>]) -> Claim {
        // A composite is run by the executors that take its parts; its reference is only there to be compared with.
        refuse_unless!(TracingRules::of(operator).decomposition.is_none(), "runs what does not decompose");
        refuse_unless!(TestRules::of(operator).reference.is_some(), "declares no reference");
        Ok(())
    }

    fn prepare(operator: &'static OperatorDef, arguments: &[Arg<Strided>], results: &[Strided]) -> Result<HostKernel> {
        let rule =
            TestRules::of(operator).reference.ok_or_else(|| Failure::new("NoReference", "declares no reference"))?;
        let form = map_arguments(arguments, |_| ());
        let metas: Vec<TensorMeta> = results.iter().map(|result| result.meta.clone()).collect();
        Ok(Box::new(move |operands, results| {
            let mut operands = operands.iter();
            let arguments = map_arguments(&form, |()| {
                to_reference(operands.next().unwrap_or_else(|| unreachable!("one operand for each tensor")))
            });
            let computed = rule(&fulgurite_runtime::rules::as_rounded(operator.params, &arguments))?;
            if computed.len() != results.len() {
                return Err(Failure::new(
                    "ReferenceResults",
                    format!("the reference gives {} results, the signature has {}", computed.len(), results.len()),
                ));
            }
            for ((computed, result), meta) in computed.iter().zip(results).zip(&metas) {
                if computed.shape() != meta.shape() {
                    return Err(Failure::new(
                        "ReferenceShape",
                        format!("the reference gives shape {:?}, meta says {meta}", computed.shape()),
                    ));
                }
                if meta.dtype().is_integer() {
                    write_i64(result, &scratch::collected(computed.integers().iter().copied()));
                } else {
                    write_f64(result, &scratch::collected(computed.floats().iter().copied()));
                }
            }
            Ok(())
        }))
    }

    fn to_reference(tensor: &TensorRef<'_>) -> ReferenceTensor {
        let shape = IxDyn(tensor.shape());
        if tensor.dtype().is_integer() {
            let values = ArrayD::from_shape_vec(shape, read_i64(tensor));
            ReferenceTensor::from_integers(
                tensor.dtype(),
                values.unwrap_or_else(|_| unreachable!("a value for each element")),
            )
        } else {
            let values = ArrayD::from_shape_vec(shape, read_f64(tensor));
            ReferenceTensor::from_floats(
                tensor.dtype(),
                values.unwrap_or_else(|_| unreachable!("a value for each element")),
            )
        }
    }
}
