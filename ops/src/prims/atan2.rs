use fulgurite_ops_macros::operator;

use super::support::zip;
use crate::prims::*;

/// The angle of the point (`other`, `input`) with the axis of `other`, elementwise, in radians from -π to π. Signs of
/// zeros say on which side of an axis a point is.
#[operator(prim, torch = "atan2")]
pub mod atan2 {
    fn atan2(input: Operand<Floating>, other: Operand<Floating>) -> Tensor;

    fn scalar(input: Expr, other: Expr) -> Expr {
        input.atan2(other)
    }

    fn grad(input: Operand<Tensor>, other: Operand<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (atan2(input, other), move |d_out: Tensor| {
            // At the origin the angle has no slope; PyTorch's is zero.
            let square = add(squared(input, d_out), squared(other, d_out));
            let slope = select(eq(square, 0.0), 0.0, div(d_out, square));
            Grads { input: input.cotangent(|| mul(slope, other)), other: other.cotangent(|| neg(mul(slope, input))) }
        })
    }

    /// The square of an operand, of a number as it is rounded beside `like`.
    fn squared(operand: Operand<Tensor>, like: Tensor) -> Operand<Tensor> {
        match operand {
            Operand::Tensor(tensor) => mul(tensor, tensor).into(),
            Operand::Scalar(number) => like.dtype().nearest(number.to_f64()).powi(2).into(),
        }
    }

    fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> ReferenceTensor {
        let [input, other] = filled([input, other]);
        zip(&input, &other, f64::atan2, |a, _b| a)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_binary(Domain::ALL, Domain::ALL);
        s.case(with(s.normal([67, 65]), s.uniform(0.5, 3.0, [67, 65])));
        let [y, x] = [[0.0, -0.0, 0.0, -0.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0, 0.0, -0.0]];
        s.case(with(s.values([6], y), s.values([6], x))).forward_only("the axes");
    }
}
