//! Divisors of integers, of one shape and one element type. A number may replace either tensor.

use fulgurite_ops_macros::operator;

use super::support::zip;

/// The greatest common divisor of two integers, elementwise, not negative; of zeros 0.
#[operator(prim, torch = "gcd", commutes, no_grad = "integers have no gradient")]
pub mod gcd {
    fn gcd(input: Operand<Integer>, other: Operand<Integer>) -> Tensor;

    fn scalar(input: Expr, other: Expr) -> Expr {
        input.gcd(other)
    }

    fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> ReferenceTensor {
        let [input, other] = filled([input, other]);
        super::zip(&input, &other, |a, _b| a, super::largest_divisor)
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[0, 3], &[4, 8], &[67, 65]] {
            let (left, right) = (s.integers(0, 200, shape), s.integers(0, 60, shape));
            s.case(with(left.cast(s.dtype()), right.cast(s.dtype())));
        }
        if !s.dtype().is_unsigned() {
            let (left, right) = ([-12.0, 0.0, 0.0, 1_836_311_903.0, -7.0], [18.0, -5.0, 0.0, 1_134_903_170.0, -21.0]);
            s.case(with(s.values([5], left), s.values([5], right)));
        }
    }
}

/// For references: the greatest common divisor by halves and differences (Stein's algorithm).
fn largest_divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    if a == 0 || b == 0 {
        return (a | b) as i64;
    }
    let twos = (a | b).trailing_zeros();
    a >>= a.trailing_zeros();
    while b != 0 {
        b >>= b.trailing_zeros();
        (a, b) = (a.min(b), a.abs_diff(b));
    }
    (a << twos) as i64
}
