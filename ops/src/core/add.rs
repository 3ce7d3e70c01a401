use fulgurite_ops_macros::operator;

use super::complex_references::{as_array, both};
use super::parts;
use super::promotion::{alpha_fits, elementwise_meta, operands_meet, result_type, with_scaled};
use crate::prims;

/// `input + alpha · other`, elementwise, with broadcasting and type promotion. Of booleans it is the disjunction.
#[operator(torch = "add", overload = Add, commutes, complex)]
pub mod add {
    fn add(input: Operand, other: Operand, #[default(1i64)] alpha: Scalar) -> Tensor;

    fn meta(input: Operand<&TensorMeta>, other: Operand<&TensorMeta>, alpha: Scalar) -> Result<TensorMeta> {
        let operands = [input, other];
        operands_meet(&operands, "other", [Code::NoTensor.name(), Code::Broadcast.name()])?;
        let dtype = result_type(&operands);
        alpha_fits(alpha, dtype, Code::AlphaType.name())?;
        Ok(elementwise_meta(&operands, dtype))
    }

    fn decomposition(input: Operand<Tensor>, other: Operand<Tensor>, alpha: Scalar) -> Tensor {
        let dtype = result_type(&[input, other]);
        with_scaled([input, other], alpha, dtype, |input, other| match dtype {
            DType::Bool => prims::logical_or(input, other),
            _ => parts::add(input, other),
        })
    }

    fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>, alpha: Scalar) -> ReferenceTensor {
        let alpha = alpha.to_f64();
        both(&as_array(input), &as_array(other), |a, b| a + alpha * b, |a, b| a + b * alpha)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_binary(Domain::ALL, Domain::ALL);
        s.case(with(s.normal([4, 1, 3]), s.normal([5, 1])));
        s.case(with(s.normal([0, 3]), s.normal([1])));
        s.case(with(s.normal([3]), s.of(DType::I32, [2, 3])));
        s.case(with(s.normal([3]), s.of(DType::F32, [])));
        s.case(with(s.normal([3]), 2));
        s.case(with(2.5, s.normal([2, 2])));
        s.case(with(s.normal([3]), s.normal([3])).alpha(2i64));
        if s.dtype().is_floating() {
            s.case(with(s.normal([2, 3]), s.normal([3])).alpha(1.5));
            // Numbers whose product with alpha is neither their sum nor their quotient.
            s.case(with(s.normal([3]), 2.0).alpha(-0.5));
            s.case(with(s.normal([3]), 3).alpha(-0.5));
            // An alpha that types of 16 bits round.
            s.case(with(s.normal([7]), s.normal([7])).alpha(0.1));
            s.case(with(s.normal([7]), 1.2345).alpha(0.1));
        }
        s.case(with(s.normal([3]), 3).alpha(2i64));
        s.case(with(s.normal([3]), true).alpha(2i64));
        if s.dtype() == DType::Bool {
            s.case(with(s.normal([3]), true).alpha(0i64));
            s.case(with(s.normal([3]), false).alpha(2i64));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensor, with(1, 2.0), "expected at least one tensor");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        e.case(AlphaType, with(e.of(DType::I64, [2]), 1).alpha(0.5), "the result is i64");
    }
}
