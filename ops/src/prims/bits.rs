//! Operations on the bits of integers of one shape and one element type. A number may replace either tensor.

use fulgurite_ops_macros::operators;

use super::support::zip;

operators! {
    #[operator(prim, torch = $torch, $commutes, no_grad = "integers have no gradient")]
    pub mod $name {
        fn $name(input: Operand<Integer>, other: Operand<Integer>) -> Tensor;

        fn scalar(input: Expr, other: Expr) -> Expr {
            input.$method(other)
        }

        fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> ReferenceTensor {
            let [input, other] = filled([input, other]);
            zip(&input, &other, |a, _b| a, $reference)
        }

        fn samples(s: &mut Samples) {
            for shape in [&[][..], &[0, 3], &[4, 8], &[67, 65]] {
                let (left, right) = (s.integers(0, 200, shape), s.integers(0, $largest, shape));
                s.case(with(left.cast(s.dtype()), right.cast(s.dtype())));
            }
            if !s.dtype().is_unsigned() {
                let (left, right) = (s.values([6], [-5.0, 7.0, -1.0, 1e9, -1e9, 0.0]), s.values([6], $special));
                s.case(with(left, right));
            }
        }
    }

    table($name, $torch, $commutes, $method, $largest, $special, $reference) {
        /// The bits that both elements have.
        bitwise_and, "bitwise_and", commutes, bit_and, 200, [3.0, -2.0, 5.0, -1e9, 77.0, -1.0], |a, b| a & b;
        /// The bits that either element has.
        bitwise_or, "bitwise_or", commutes, bit_or, 200, [3.0, -2.0, 5.0, -1e9, 77.0, -1.0], |a, b| a | b;
        /// The bits that one of two elements has.
        bitwise_xor, "bitwise_xor", commutes, bit_xor, 200, [3.0, -2.0, 5.0, -1e9, 77.0, -1.0], |a, b| a ^ b;
        /// The bits of `input` moved to the left, each 2 to the power `other` times as large. Those beyond the element
        /// type are lost; a shift by 64 and more, or by a negative number, leaves none.
        bitwise_left_shift, "bitwise_left_shift", _, shift_left, 8,
            [0.0, 1.0, 31.0, 3.0, 64.0, -1.0],
            |a, b| a.checked_shl(u32::try_from(b).unwrap_or(64)).unwrap_or(0);
        /// The bits of `input` moved to the right, with copies of its sign: the quotient by 2 to the power `other`,
        /// rounded down. A shift by 64 and more, or by a negative number, leaves copies of the sign.
        bitwise_right_shift, "bitwise_right_shift", _, shift_right, 8,
            [1.0, 1.0, 31.0, 3.0, 64.0, -1.0],
            |a, b| a.checked_shr(u32::try_from(b).unwrap_or(64)).unwrap_or(a >> 63);
    }
}
