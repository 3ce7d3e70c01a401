use fulgurite_ops_macros::operator;

use super::arrays::zip;
use super::promotion::{elementwise_meta, operands_meet, promoted, result_type};
use crate::prims;

/// The remainder of the division, with the divisor's sign, elementwise, with broadcasting and type promotion:
/// `a - b ⌊a/b⌋`. On the CPU an integer's remainder by zero is an error when the program runs; on a GPU it is 0.
#[operator(torch = "remainder")]
pub mod remainder {
    fn remainder(input: Operand, other: Operand) -> Tensor;

    fn meta(input: Operand<&TensorMeta>, other: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let operands = [input, other];
        operands_meet(&operands, "other", [Code::NoTensor.name(), Code::Broadcast.name()])?;
        let dtype = result_type(&operands);
        require!(dtype != DType::Bool, Booleans, "input and other are booleans, expected a number");
        Ok(elementwise_meta(&operands, dtype))
    }

    fn decomposition(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
        let [input, other] = promoted([input, other]);
        prims::remainder(input, other)
    }

    fn reference(input: ArrayD<f64>, other: ArrayD<f64>) -> ArrayD<f64> {
        zip(&input, &other, |a: f64, b: f64| {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        })
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::Bool {
            s.case(with(s.normal([3]), 2));
            return;
        }
        s.elementwise_binary(Domain::range(-9.0, 9.0), Domain::range(1.3, 4.0));
        s.case(with(s.uniform(-6.0, 6.0, [4, 1, 3]), s.uniform(1.3, 4.0, [5, 1])));
        s.case(with(s.normal([0, 3]), s.uniform(1.0, 4.0, [1])));
        s.case(with(s.of(DType::I32, [2, 3]), s.uniform(1.3, 4.0, [3])));
        s.case(with(s.uniform(-6.0, 6.0, [4]), 2));
        s.case(with(7.5, s.uniform(1.3, 2.4, [4])));
        if s.dtype().is_floating() {
            let (a, b) = ([3.0, -3.0, 0.0, -3.0, 3.0], [f64::INFINITY, f64::INFINITY, f64::INFINITY, 2.0, -2.0]);
            s.case(with(s.values([5], a), s.values([5], b))).forward_only("quotients at integers");
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensor, with(1, 2.0), "expected at least one tensor");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        e.case(Booleans, with(e.booleans([2]), e.booleans([2])), "expected a number");
    }
}
