//! Determinants, by the pivots of an elimination. They are computed in f32 and f64.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::ArrayD;
use fulgurite_runtime::{DType, Tensor};
use ndarray::Array2;

use super::{diagonal, prod};
use crate::prims;
use crate::prims::matrices::{are_square, extents, matrices, stacked};

/// The determinant of each square matrix. That of a matrix with one pivot of zero has the cofactors as gradient, where
/// PyTorch's is zero.
#[operator(torch = "linalg.det", dtypes(f32, f64))]
pub mod det {
    fn det(a: Tensor<Floating>) -> Tensor;

    fn requires(a: &TensorMeta) -> Result<()> {
        are_square(("a", a), Code::Square)
    }

    fn decomposition(a: Tensor) -> Tensor {
        let (pivots, sign) = super::pivots(a);
        prims::mul(super::products(pivots), sign)
    }

    fn reference(a: &ArrayD<f64>) -> ArrayD<f64> {
        super::determinants(a, |det| det)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 3, 2, 2])));
        s.case(with(s.values([4, 4], super::shifted())));
        s.case(with(s.normal([1, 1])));
        s.case(with(s.normal([2, 0, 0])));
        s.case(with(s.normal([0, 2, 2])));
        // The gradient is the cofactors: each element times the one across.
        let singular = with(s.values([2, 2], [1.0, 2.0, 2.0, 4.0]));
        s.case(singular).forward_only("singular").gradients([&[4.0, -2.0, -2.0, 1.0]]);
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
    }
}

/// The sign of the determinant of each square matrix, 1, -1 or 0, and the logarithm of its magnitude, which neither
/// overflows nor vanishes where the determinant does. The sign of a singular matrix is 0 and the logarithm -inf.
#[operator(torch = "linalg.slogdet", dtypes(f32, f64))]
pub mod slogdet {
    #[results(sign, logabsdet)]
    fn slogdet(a: Tensor<Floating>) -> (Tensor, Tensor);

    fn requires(a: &TensorMeta) -> Result<()> {
        are_square(("a", a), Code::Square)
    }

    fn decomposition(a: Tensor) -> (Tensor, Tensor) {
        super::sign_and_logarithm(a)
    }

    fn reference(a: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        let sign = |det: f64| if det == 0.0 { 0.0 } else { det.signum() };
        (super::determinants(a, sign), super::determinants(a, |det| det.abs().ln()))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 3, 2, 2])));
        s.case(with(s.values([4, 4], super::shifted())));
        s.case(with(s.normal([2, 0, 0])));
        s.case(with(s.values([2, 2], [1.0, 2.0, 2.0, 4.0]))).forward_only("singular");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
    }
}

/// The logarithm of the determinant of each square matrix; NaN where that is negative, -inf where it is zero.
#[operator(torch = "logdet", dtypes(f32, f64))]
pub mod logdet {
    fn logdet(input: Tensor<Floating>) -> Tensor;

    fn requires(input: &TensorMeta) -> Result<()> {
        are_square(("input", input), Code::Square)
    }

    fn decomposition(input: Tensor) -> Tensor {
        let (sign, logarithm) = super::sign_and_logarithm(input);
        prims::select(prims::lt(sign, 0.0), f64::NAN, logarithm)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        super::determinants(input, f64::ln)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.values([3, 3], [2.0, 0.5, 0.25, -0.5, 1.5, 0.0, 0.75, -1.0, 3.0])));
        s.case(with(s.values([2, 2, 2], [2.0, 1.0, 1.0, 3.0, 0.5, -1.0, 2.0, 1.0])));
        s.case(with(s.normal([0, 0])));
        s.case(with(s.values([2, 1, 1], [-2.0, 0.0]))).forward_only("not positive");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "input has shape [2, 3], expected square matrices");
    }
}

/// The pivots of each matrix, `[..., n]`, and the sign of the exchange of its rows.
#[track_caller]
fn pivots(a: Tensor) -> (Tensor, Tensor) {
    let (factors, exchanged, _) = prims::lu(a, false);
    let shape = exchanged.shape();
    let last = shape.len() - 1;
    let own = prims::iota(shape[last], 1i64, 1i64, DType::I32, a.device());
    let own = prims::broadcast_in_dim(own, &*shape, [last]);
    let moved = prims::convert_element_type(prims::ne(exchanged, own), a.dtype());
    let odd = prims::remainder(prims::sum(moved, [last]), 2.0);
    let diagonal = diagonal::with(factors).dim1(-2).dim2(-1).call();
    (diagonal, prims::sub(1.0, prims::mul(odd, 2.0)))
}

/// The products of vectors.
#[track_caller]
fn products(vectors: Tensor) -> Tensor {
    prod::with(vectors).dim(-1).call()
}

#[track_caller]
fn sign_and_logarithm(a: Tensor) -> (Tensor, Tensor) {
    let (pivots, sign) = pivots(a);
    let last = pivots.rank() - 1;
    let logarithm = prims::sum(prims::log(prims::abs(pivots)), [last]);
    (prims::mul(products(prims::sign(pivots)), sign), logarithm)
}

/// For samples: a matrix whose rows an elimination exchanges three times.
fn shifted() -> [f64; 16] {
    [0.5, 0.25, 0.0, 4.0, 3.0, 0.0, 0.5, 0.25, 0.25, 2.0, 0.5, 0.0, 0.0, 0.75, 1.5, 0.5]
}

/// For references: a function of the determinants of matrices.
fn determinants(a: &ArrayD<f64>, of: impl Fn(f64) -> f64) -> ArrayD<f64> {
    let found: Vec<_> = matrices(a).iter().map(|matrix| ndarray::arr0(of(determinant(matrix)))).collect();
    let shape = extents(a.shape()).0;
    let whole = stacked(&[shape, &[1, 1]].concat(), &[], &found);
    super::arrays::reshaped(&whole, shape)
}

/// For references: the determinant by its first row, Laplace's formula.
fn determinant(matrix: &Array2<f64>) -> f64 {
    let n = matrix.nrows();
    let minor = |column: usize| {
        Array2::from_shape_fn((n - 1, n - 1), |(i, j)| matrix[[i + 1, if j < column { j } else { j + 1 }]])
    };
    let term = |column: usize| {
        let sign = if column.is_multiple_of(2) { 1.0 } else { -1.0 };
        sign * matrix[[0, column]] * determinant(&minor(column))
    };
    if n == 0 { 1.0 } else { (0..n).map(term).sum() }
}
