//! Elementwise comparisons and connectives of two tensors of one shape and one element type; the result is
//! boolean. A number may replace either.

use fulgurite_ops_macros::operator;

/// Declares comparisons: their arithmetic, and their reference in f64, in i64 and on booleans.
macro_rules! comparison {
    ($(
        $(#[doc = $doc:tt])*
        $name:ident, torch = $torch:tt;
        scalar |$x:ident, $y:ident| $scalar:expr;
        reference |$a:ident, $b:ident| $reference:expr;
    )*) => {$(
        $(#[doc = $doc])*
        #[operator(prim, torch = $torch, no_grad = "a boolean has no gradient")]
        pub mod $name {
            fn $name(input: Operand, other: Operand) -> Tensor;

            fn scalar(input: Expr, other: Expr) -> Expr {
                let ($x, $y) = (input, other);
                $scalar
            }

            fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> ArrayD<bool> {
                let [input, other] = filled([input, other]);
                if input.dtype().is_floating() {
                    let (a, b) = (input.floats(), other.floats());
                    ndarray::Zip::from(a).and(b).map_collect(|$a, $b| $reference)
                } else {
                    let (a, b) = (input.integers(), other.integers());
                    ndarray::Zip::from(a).and(b).map_collect(|$a, $b| $reference)
                }
            }

            fn samples(s: &mut Samples) {
                s.elementwise_binary(Domain::ALL, Domain::ALL);
                s.case(with(s.values([3, 4], [1.0, 0.0, 3.0]), s.values([3, 4], [1.0, 3.0, 2.0, 0.0])));
                s.case(with(s.normal([67, 65]), s.normal([67, 65])));
            }
        }
    )*};
}

comparison! {
    /// Whether elements are equal. NaN equals nothing.
    eq, torch = "eq";
    scalar |x, y| x.eq(y);
    reference |a, b| a == b;

    /// Whether elements differ. NaN differs from everything.
    ne, torch = "ne";
    scalar |x, y| x.ne(y);
    reference |a, b| a != b;

    /// Whether each element of `input` is below that of `other`; false for NaN.
    lt, torch = "lt";
    scalar |x, y| x.lt(y);
    reference |a, b| a < b;

    /// Whether each element of `input` is not above that of `other`; false for NaN.
    le, torch = "le";
    scalar |x, y| x.le(y);
    reference |a, b| a <= b;

    /// Whether each element of `input` is above that of `other`; false for NaN.
    gt, torch = "gt";
    scalar |x, y| x.gt(y);
    reference |a, b| a > b;

    /// Whether each element of `input` is not below that of `other`; false for NaN.
    ge, torch = "ge";
    scalar |x, y| x.ge(y);
    reference |a, b| a >= b;

    /// Whether both elements differ from zero. NaN does.
    logical_and, torch = "logical_and";
    scalar |x, y| x.ne(0.0) & y.ne(0.0);
    reference |a, b| nonzero(a) && nonzero(b);

    /// Whether either element differs from zero. NaN does.
    logical_or, torch = "logical_or";
    scalar |x, y| x.ne(0.0) | y.ne(0.0);
    reference |a, b| nonzero(a) || nonzero(b);
}

fn nonzero<T: PartialEq + Default>(value: &T) -> bool {
    *value != T::default()
}
