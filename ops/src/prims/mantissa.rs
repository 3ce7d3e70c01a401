use fulgurite_ops_macros::operator;

use crate::prims::*;

/// The fraction from 0.5 to 1 that a power of two makes the magnitude of each element, with its sign; zeros, infinities
/// and NaN are their own.
#[operator(prim)]
pub mod mantissa {
    fn mantissa(input: Tensor<Floating>) -> Tensor;

    // Products with powers of two are exact. Those that f32 does not have are infinite and zero there, and never taken.
    fn scalar(input: Expr) -> Expr {
        let mut fraction = input;
        // 512 twice for the least numbers of f64; 64 thrice, since f32 has no power of two beyond 2^127.
        for exponent in [512, 512, 256, 64, 64, 64, 32, 16, 8, 4, 2, 1] {
            let factor = 2f64.powi(exponent);
            let (large, small) = (fraction.abs().ge(factor), fraction.abs().lt(1.0 / factor));
            fraction = large.select(fraction * (1.0 / factor), small.select(fraction * factor, fraction));
        }
        // What is left is from 0.5 to 2.
        let fraction = fraction.abs().ge(1.0).select(fraction * 0.5, fraction);
        (input.is_finite() & input.ne(0.0)).select(fraction, input)
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = mantissa(input);
        (out, move |d_out: Tensor| {
            let has_power = logical_and(isfinite(input), ne(input, 0.0));
            // Of the power of two and its reciprocal the one that the element type has.
            let small = lt(abs(input), 1.0);
            let slope = select(small, div(input, out), div(out, input));
            let slope = select(has_power, slope, 1.0);
            Grads { input: select(small, div(d_out, slope), mul(d_out, slope)) }
        })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| {
            let mut fraction = x;
            while fraction.is_finite() && fraction.abs() >= 1.0 {
                fraction /= 2.0;
            }
            while fraction != 0.0 && fraction.abs() < 0.5 {
                fraction *= 2.0;
            }
            fraction
        })
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::range(2.1, 3.9));
        s.case(with(s.uniform(0.035, 0.06, [5])));
        let values = [0.0, -0.0, 1.0, -1.0, 0.5, 0.49, -3e4, 6e-8, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-4];
        s.case(with(s.values([12], values))).forward_only("jumps");
        if s.dtype().epsilon() < 1e-5 {
            s.case(with(s.values([4], [3e38, 1e-45, -1.2e-38, 2e-40]))).forward_only("jumps");
        }
        if s.dtype() == DType::F64 {
            s.case(with(s.values([4], [1.7e308, 5e-324, -2.3e-308, 1e-310]))).forward_only("jumps");
        }
    }
}
