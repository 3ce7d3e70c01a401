use fulgurite_ops_macros::operator;

use super::complex_references::{as_array, both};
use super::parts;
use super::promotion::{elementwise_meta, operands_meet, promoted, result_type};
use crate::prims;

/// `input · other`, elementwise, with broadcasting and type promotion. Of booleans it is the conjunction.
#[operator(torch = "mul", overload = Mul, commutes, complex, accumulates(input, other))]
pub mod mul {
    fn mul(input: Operand, other: Operand) -> Tensor;

    fn meta(input: Operand<&TensorMeta>, other: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let operands = [input, other];
        operands_meet(&operands, "other", [Code::NoTensor.name(), Code::Broadcast.name()])?;
        Ok(elementwise_meta(&operands, result_type(&operands)))
    }

    fn decomposition(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
        let boolean = result_type(&[input, other]) == DType::Bool;
        let [input, other] = promoted([input, other]);
        if boolean { prims::logical_and(input, other) } else { parts::mul(input, other) }
    }

    fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> ReferenceTensor {
        both(&as_array(input), &as_array(other), |a, b| a * b, |a, b| a * b)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_binary(Domain::ALL, Domain::ALL);
        s.case(with(s.normal([4, 1, 3]), s.normal([5, 1])));
        s.case(with(s.normal([0, 3]), s.normal([1])));
        s.case(with(s.normal([3]), s.of(DType::I32, [2, 3])));
        s.case(with(s.normal([3]), s.of(DType::F32, [])));
        s.case(with(s.normal([3]), s.booleans([3])));
        s.case(with(s.normal([3]), 2));
        s.case(with(2.5, s.normal([2, 2])));
        if s.dtype().is_floating() {
            // Numbers that f16 does not hold, and their products, which it does.
            s.case(with(s.values([3], [0.001, -0.5, 0.25]), 65_536.0)).forward_only("gradients are beyond f16");
            s.case(with(s.values([3], [1e4, -3e4, 6e4]), 1e-8));
            s.case(with(0.1, s.normal([7])));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensor, with(1, 2.0), "expected at least one tensor");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
    }
}
