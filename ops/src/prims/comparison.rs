//! Elementwise comparisons and connectives of two tensors of one shape and one element type; the result is
//! boolean. A number may replace either.

use fulgurite_ops_macros::operators;

// Declares comparisons: their arithmetic, and their reference in f64, in i64 and on booleans.
operators! {
    #[operator(prim, torch = $torch, $commutes, no_grad = "a boolean has no gradient")]
    pub mod $name {
        fn $name(input: Operand, other: Operand) -> Tensor;

        fn scalar(input: Expr, other: Expr) -> Expr {
            $scalar
        }

        fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> ArrayD<bool> {
            let [input, other] = filled([input, other]);
            if input.dtype().is_floating() {
                let (a, b) = (input.floats(), other.floats());
                ndarray::Zip::from(a).and(b).map_collect($reference)
            } else {
                let (a, b) = (input.integers(), other.integers());
                ndarray::Zip::from(a).and(b).map_collect($reference)
            }
        }

        fn samples(s: &mut Samples) {
            s.elementwise_binary(Domain::ALL, Domain::ALL);
            s.case(with(s.values([3, 4], [1.0, 0.0, 3.0]), s.values([3, 4], [1.0, 3.0, 2.0, 0.0])));
            s.case(with(s.normal([67, 65]), s.normal([67, 65])));
        }
    }

    table($name, $torch, $commutes, $scalar, $reference) {
        /// Whether elements are equal. NaN equals nothing.
        eq, "eq", commutes, input.eq(other), |a, b| a == b;
        /// Whether elements differ. NaN differs from everything.
        ne, "ne", commutes, input.ne(other), |a, b| a != b;
        /// Whether each element of `input` is below that of `other`; false for NaN.
        lt, "lt", overload = Less, input.lt(other), |a, b| a < b;
        /// Whether each element of `input` is not above that of `other`; false for NaN.
        le, "le", _, input.le(other), |a, b| a <= b;
        /// Whether each element of `input` is above that of `other`; false for NaN.
        gt, "gt", _, input.gt(other), |a, b| a > b;
        /// Whether each element of `input` is not below that of `other`; false for NaN.
        ge, "ge", _, input.ge(other), |a, b| a >= b;
        /// Whether both elements differ from zero. NaN does.
        logical_and, "logical_and", commutes, input.ne(0.0) & other.ne(0.0), |a, b| nonzero(a) && nonzero(b);
        /// Whether either element differs from zero. NaN does.
        logical_or, "logical_or", commutes, input.ne(0.0) | other.ne(0.0), |a, b| nonzero(a) || nonzero(b);
    }
}

fn nonzero<T: PartialEq + Default>(value: &T) -> bool {
    *value != T::default()
}
