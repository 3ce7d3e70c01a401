//! Elementwise comparisons and connectives of two tensors of one shape and one element type; the result is boolean.

use fulgurite_ops_macros::operator;

use super::support::{another, same_dtype, same_shape};

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
            fn $name(input: Tensor, other: Tensor) -> Tensor;

            fn meta(input: &TensorMeta, other: &TensorMeta) -> Result<TensorMeta> {
                same_shape(input, other, Code::SameShape.name())?;
                same_dtype(input, other, Code::SameDType.name())?;
                Ok(input.with_dtype(DType::Bool))
            }

            fn scalar(input: Expr, other: Expr) -> Expr {
                let ($x, $y) = (input, other);
                $scalar
            }

            fn reference(input: &ReferenceTensor, other: &ReferenceTensor) -> ArrayD<bool> {
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

            fn errors(e: &mut ErrorSamples) {
                e.case(SameShape, with(e.normal([2, 3]), e.normal([3])), "input has shape [2, 3], other has [3]");
                e.case(SameDType, with(e.normal([2]), e.of(another(e.dtype()), [2])), "expected equal dtypes");
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
