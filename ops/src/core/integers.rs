//! Divisors and multiples of integers, elementwise, with broadcasting and type promotion.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::Tensor;
use fulgurite_runtime::argument::Operand;

use super::arrays::zip;
use super::promotion::{common_shape, describe_shapes, elementwise_meta, promoted, result_type};
use crate::prims;

operators! {
    #[operator(torch = $torch, commutes, no_grad = "integers have no gradient")]
    pub mod $name {
        fn $name(input: Tensor<Integer>, other: Tensor<Integer>) -> Tensor;

        fn meta(input: &TensorMeta, other: &TensorMeta) -> Result<TensorMeta> {
            let both = [Operand::Tensor(input), Operand::Tensor(other)];
            require!(common_shape(&both).is_some(), Broadcast, "shapes {} do not broadcast", describe_shapes(&both));
            Ok(elementwise_meta(&both, result_type(&both)))
        }

        fn decomposition(input: Tensor, other: Tensor) -> Tensor {
            let [a, b] = promoted([Operand::Tensor(input), Operand::Tensor(other)]);
            super::$compute(a, b)
        }

        fn reference(input: &ArrayD<i64>, other: &ArrayD<i64>) -> ArrayD<i64> {
            zip(input, other, |a, b| {
                // The largest of the numbers that divide both.
                let (a, b) = (a.abs(), b.abs());
                let divides = |n: &i64| a % n == 0 && b % n == 0;
                let divisor = (1..=a.max(b)).rev().find(divides).unwrap_or(0);
                let of: fn(i64, i64, i64) -> i64 = $reference;
                of(a, b, divisor)
            })
        }

        fn samples(s: &mut Samples) {
            let of = |shape: &[usize], most: i64| s.integers(0, most, shape).cast(s.dtype());
            let cases = [
                with(of(&[3, 1, 5], 120), of(&[7, 5], $most)),
                with(s.values([4], [4.0, 6.0, 10.0, 9.0]), s.values([4], [6.0, 9.0, 15.0, 12.0])),
                with(of(&[], 120), of(&[0], $most)),
                with(of(&[4], 120), s.integers(0, $most, [4])),
            ];
            for case in cases {
                s.case(case);
            }
            if !s.dtype().is_unsigned() {
                let (left, right) = ([-12.0, 0.0, 0.0, 6.0, -7.0], [18.0, -5.0, 0.0, 4.0, -21.0]);
                s.case(with(s.values([5], left), s.values([5], right)));
            }
        }

        fn errors(e: &mut ErrorSamples) {
            let apart = with(e.integers(0, 2, [3]), e.integers(0, 2, [4]));
            e.case(Broadcast, apart, "shapes [3] and [4] do not broadcast");
        }
    }

    table($name, $torch, $most, $compute, $reference) {
        /// The greatest common divisor of two integers, not negative; of zeros 0. The magnitude of the least integer
        /// is 2 to the power of its bits less one, where PyTorch calculates with a negative one.
        gcd, "gcd", 90, divisor, |_a, _b, divisor| divisor;
        /// The least common multiple of two integers, not negative; 0 if either is 0. Products wrap.
        lcm, "lcm", 2, multiple, |a, b, divisor| if divisor == 0 { 0 } else { a / divisor * b };
    }
}

/// The greatest common divisor.
#[track_caller]
fn divisor(a: Operand<Tensor>, b: Operand<Tensor>) -> Tensor {
    prims::gcd(a, b)
}

/// The least common multiple: the divisor divides first, so that no product is larger than the multiple.
#[track_caller]
fn multiple(a: Operand<Tensor>, b: Operand<Tensor>) -> Tensor {
    let divisor = prims::gcd(a, b);
    let divisor = prims::select(prims::eq(divisor, 0), 1, divisor);
    let product = prims::mul(prims::floor_divide(a, divisor), b);
    if product.dtype().is_unsigned() { product } else { prims::abs(product) }
}
