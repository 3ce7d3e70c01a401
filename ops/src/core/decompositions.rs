//! Matrices as products of others. They are computed in f32 and f64; f16 and bf16 are refused, as in PyTorch.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::ArrayD;
use ndarray::Array2;

use super::promotion::{accumulating, broadcast, cast};
use crate::prims;
use crate::prims::matrices::{
    are_matrices, are_square, as_columns, block, extents, lower, matrices, on_diagonal, on_or_below_diagonal, stacked,
    transposed, upper,
};

fulgurite_runtime::attribute_enum! {
    /// The triangle of a symmetric matrix that is read.
    pub enum Triangle {
        /// The one on and below the diagonal.
        Lower = "L",
        /// The one on and above it.
        Upper = "U",
    }
}

fulgurite_runtime::attribute_enum! {
    /// The shapes of the factors of a matrix of `m` rows and `n` columns.
    pub enum QrMode {
        /// `[m, k]` and `[k, n]` with `k = min(m, n)`.
        Reduced = "reduced",
        /// `[m, m]` and `[m, n]`.
        Complete = "complete",
        /// The triangle `[k, n]` alone; the first factor is empty.
        Triangle = "r",
    }
}

/// The symmetric matrices whose triangle on and below the diagonal, or on and above it, `input` has; the other elements
/// are not read. The gradient is that of the result, as if `input` were symmetric and stayed so: that is PyTorch's of
/// functions of symmetric matrices, where differences of one triangle would have twice of it there and nothing in the
/// other.
#[operator(skip(
    gradient,
    second_gradient,
    decomposition,
    reason = "the gradient is that of symmetric matrices, which differences of one triangle are not"
))]
pub mod from_triangle {
    fn from_triangle(input: Tensor<Floating>, triangle: Triangle) -> Tensor;

    fn requires(input: &TensorMeta) -> Result<()> {
        are_square(("input", input), Code::Square)
    }

    fn decomposition(input: Tensor, triangle: Triangle) -> Tensor {
        let turned = transposed(input);
        let below = on_or_below_diagonal(input);
        match triangle {
            Triangle::Lower => prims::select(below, input, turned),
            Triangle::Upper => prims::select(below, turned, input),
        }
    }

    fn grad(input: Tensor, triangle: Triangle) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (from_triangle(input, triangle), move |d_out: Tensor| Grads { input: d_out })
    }

    fn reference(input: &ArrayD<f64>, triangle: Triangle) -> ArrayD<f64> {
        super::mirrored(input, triangle)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3]), Triangle::Lower));
        s.case(with(s.normal([2, 2, 2]), Triangle::Upper));
        let unread = with(s.values([2, 2], [1.0, f64::NAN, 2.0, 3.0]), Triangle::Lower);
        s.case(unread).forward_only("NaN that is not read");
        s.case(with(s.normal([0, 0]), Triangle::Lower));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3]), Triangle::Lower), "input has shape [2, 3], expected square matrices");
    }
}

/// The triangle `L` with positive diagonal and `L · Lᵀ = A` for each symmetric positive-definite matrix `A`, of which
/// the lower triangle is read; if `upper`, `U` with `Uᵀ · U = A`, and the upper one is read. Another matrix is an error
/// when the program runs. The gradient is that of symmetric matrices: see [`mod@from_triangle`].
#[operator(
    torch = "linalg.cholesky",
    dtypes(f32, f64),
    skip(gradient, second_gradient, reason = "its gradient is that of symmetric matrices, see from_triangle")
)]
pub mod cholesky {
    fn cholesky(input: Tensor<Floating>, #[default(false)] upper: bool) -> Tensor;

    fn requires(input: &TensorMeta) -> Result<()> {
        are_square(("input", input), Code::Square)
    }

    fn decomposition(input: Tensor, upper: bool) -> Tensor {
        match upper {
            false => prims::cholesky(super::from_triangle(input, Triangle::Lower)),
            true => transposed(prims::cholesky(super::from_triangle(input, Triangle::Upper))),
        }
    }

    fn reference(input: &ArrayD<f64>, upper: bool) -> Result<ArrayD<f64>> {
        let whole = super::mirrored(input, if upper { Triangle::Upper } else { Triangle::Lower });
        let factor = |(number, matrix): (usize, Array2<f64>)| {
            let factor = prims::factor_of(matrix).map_err(|place| prims::not_positive_definite(number, place))?;
            Ok(if upper { factor.reversed_axes() } else { factor })
        };
        let factors = matrices(&whole).into_iter().enumerate().map(factor).collect::<Result<Vec<_>>>()?;
        let (_, n, _) = extents(input.shape());
        Ok(stacked(input.shape(), &[n, n], &factors))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.values([3, 3], prims::positive_definite(1, 3))));
        s.case(with(s.values([2, 3, 3], prims::positive_definite(2, 3))).upper(true));
        // The other triangle is not read.
        s.case(with(s.values([2, 2], [4.0, -1.0, 2.0, 5.0])));
        s.case(with(s.values([2, 2], [4.0, -1.0, 2.0, 5.0])).upper(true));
        s.case(with(s.normal([0, 0])));
        s.case(with(s.normal([0, 2, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "input has shape [2, 3], expected square matrices");
        let matrix = e.values([2, 2], [1.0, 2.0, 2.0, 1.0]);
        e.when_run("NotPositiveDefinite", with(matrix), "its leading minor of order 2 is not positive");
    }
}

/// `Q` with orthonormal columns and the triangle `R` with `Q · R = A` for each matrix `A`, in the shapes of `mode`. The
/// signs are LAPACK's: see [`mod@crate::prims::qr`]. All columns of `Q` of a matrix with more rows than columns have no
/// gradient, as in PyTorch; the triangle alone has one.
#[operator(torch = "linalg.qr", dtypes(f32, f64))]
pub mod qr {
    #[results(q, r)]
    fn qr(a: Tensor<Floating>, #[default(QrMode::Reduced)] mode: QrMode) -> (Tensor, Tensor);

    fn requires(a: &TensorMeta) -> Result<()> {
        are_matrices(("a", a), Code::Rank)
    }

    fn decomposition(a: Tensor, mode: QrMode) -> (Tensor, Tensor) {
        let shape = a.shape();
        let (_, m, n) = extents(&shape);
        match mode {
            QrMode::Complete if m > n => prims::complete_qr(a),
            QrMode::Reduced | QrMode::Complete => prims::qr(a),
            QrMode::Triangle => (prims::full([0], 0.0, a.dtype(), a.device()), prims::qr(a).1),
        }
    }

    fn reference(a: &ArrayD<f64>, mode: QrMode) -> (ArrayD<f64>, ArrayD<f64>) {
        let (_, m, n) = extents(a.shape());
        let (q, r) = prims::reflected(a, if mode == QrMode::Complete { m } else { m.min(n) });
        (if mode == QrMode::Triangle { ArrayD::zeros(IxDyn(&[0])) } else { q }, r)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 4, 2])));
        s.case(with(s.normal([2, 3])).mode(QrMode::Complete));
        s.case(with(s.normal([3, 2])).mode(QrMode::Complete)).forward_only("a column that completes the basis");
        s.case(with(s.normal([3, 2])).mode(QrMode::Triangle));
        s.case(with(s.normal([0, 2])));
        s.case(with(s.normal([2, 0])).mode(QrMode::Complete)).forward_only("columns that complete the basis");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "a has shape [3], expected at least two dimensions");
    }
}

/// The eigenvalues of each symmetric matrix, ascending, and orthonormal eigenvectors as columns. One triangle is read,
/// `uplo`. The signs of the vectors are settled, where LAPACK's are open: see [`mod@crate::prims::eigh`]. The gradient
/// is that of symmetric matrices: see [`mod@from_triangle`].
#[operator(
    torch = "linalg.eigh",
    dtypes(f32, f64),
    skip(gradient, second_gradient, reason = "its gradient is that of symmetric matrices, see from_triangle")
)]
pub mod eigh {
    #[results(values, vectors)]
    fn eigh(a: Tensor<Floating>, #[default(Triangle::Lower)] uplo: Triangle) -> (Tensor, Tensor);

    fn requires(a: &TensorMeta) -> Result<()> {
        are_square(("a", a), Code::Square)
    }

    fn decomposition(a: Tensor, uplo: Triangle) -> (Tensor, Tensor) {
        prims::eigh(super::from_triangle(a, uplo))
    }

    fn reference(a: &ArrayD<f64>, uplo: Triangle) -> (ArrayD<f64>, ArrayD<f64>) {
        super::spectra(a, uplo)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.values([3, 3], [2.0, 1.0, 0.5, 1.0, -1.0, 0.25, 0.5, 0.25, 4.0])));
        s.case(with(s.normal([2, 3, 3])));
        s.case(with(s.normal([2, 2])).uplo(Triangle::Upper));
        s.case(with(s.normal([0, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
    }
}

/// The eigenvalues of each symmetric matrix, ascending; see [`mod@eigh`].
#[operator(
    torch = "linalg.eigvalsh",
    dtypes(f32, f64),
    skip(gradient, second_gradient, reason = "its gradient is that of symmetric matrices, see from_triangle")
)]
pub mod eigvalsh {
    fn eigvalsh(a: Tensor<Floating>, #[default(Triangle::Lower)] uplo: Triangle) -> Tensor;

    fn requires(a: &TensorMeta) -> Result<()> {
        are_square(("a", a), Code::Square)
    }

    fn decomposition(a: Tensor, uplo: Triangle) -> Tensor {
        prims::eigh(super::from_triangle(a, uplo)).0
    }

    fn reference(a: &ArrayD<f64>, uplo: Triangle) -> ArrayD<f64> {
        super::spectra(a, uplo).0
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 2, 2])).uplo(Triangle::Upper));
        s.case(with(s.normal([0, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
    }
}

/// `U`, the singular values, descending, and `Vᵀ` of each matrix `A = U · S · Vᵀ`: all columns of `U` and rows of `Vᵀ`,
/// or as many as there are singular values unless `full_matrices`. The signs of the vectors are settled, where LAPACK's
/// are open, and vectors that complete a basis have no gradient: see [`mod@crate::prims::svd`]. Elements that are not
/// finite are an error when the program runs.
#[operator(torch = "linalg.svd", dtypes(f32, f64))]
pub mod svd {
    #[results(u, s, vh)]
    fn svd(a: Tensor<Floating>, #[default(true)] full_matrices: bool) -> (Tensor, Tensor, Tensor);

    fn requires(a: &TensorMeta) -> Result<()> {
        are_matrices(("a", a), Code::Rank)
    }

    fn decomposition(a: Tensor, full_matrices: bool) -> (Tensor, Tensor, Tensor) {
        prims::svd(a, full_matrices)
    }

    fn reference(a: &ArrayD<f64>, full_matrices: bool) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let (_, m, n) = extents(a.shape());
        let k = m.min(n);
        let (columns, rows) = if full_matrices { (m, n) } else { (k, k) };
        let one = |matrix: Array2<f64>| {
            let (left, values, right) = prims::singular_vectors(&matrix);
            (prims::completed(left, columns), (values, prims::completed(right, rows).reversed_axes()))
        };
        let (left, rest): (Vec<_>, Vec<_>) = matrices(a).into_iter().map(one).unzip();
        let (values, right): (Vec<_>, Vec<_>) = rest.into_iter().unzip();
        let (u, vh) = (stacked(a.shape(), &[m, columns], &left), stacked(a.shape(), &[rows, n], &right));
        (u, stacked(a.shape(), &[k], &values), vh)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 4, 2])).full_matrices(false));
        s.case(with(s.normal([2, 3])).full_matrices(false));
        s.case(with(s.normal([2, 3]))).forward_only("a row that completes the basis");
        s.case(with(s.normal([0, 2])).full_matrices(false));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "a has shape [3], expected at least two dimensions");
    }
}

/// The singular values of each matrix, descending; see [`mod@svd`].
#[operator(torch = "linalg.svdvals", dtypes(f32, f64))]
pub mod svdvals {
    fn svdvals(a: Tensor<Floating>) -> Tensor;

    fn requires(a: &TensorMeta) -> Result<()> {
        are_matrices(("a", a), Code::Rank)
    }

    fn decomposition(a: Tensor) -> Tensor {
        prims::svd(a, false).1
    }

    fn reference(a: &ArrayD<f64>) -> ArrayD<f64> {
        let (_, m, n) = extents(a.shape());
        let values: Vec<_> = matrices(a).iter().map(|matrix| prims::singular_vectors(matrix).1).collect();
        stacked(a.shape(), &[m.min(n)], &values)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 4, 2])));
        s.case(with(s.normal([2, 3])));
        s.case(with(s.normal([3, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "a has shape [3], expected at least two dimensions");
    }
}

/// The factors `L` and `U` of each matrix with its rows exchanged, in one matrix, and the rows that were exchanged,
/// counted from 1: see [`mod@crate::prims::lu`]. A pivot of zero is an error when the program runs. Factors without
/// exchanges, for which `pivot` would be false, are refused, as PyTorch refuses them on the CPU.
#[operator(torch = "linalg.lu_factor", dtypes(f32, f64), waive(pivot = "without exchanges nothing is computed"))]
pub mod lu_factor {
    #[results(factors, pivots)]
    fn lu_factor(a: Tensor<Floating>, #[default(true)] pivot: bool) -> (Tensor, Tensor);

    fn requires(a: &TensorMeta, pivot: bool) -> Result<()> {
        require!(pivot, Exchanges, "pivot is false, expected true: rows are exchanged");
        are_matrices(("a", a), Code::Rank)
    }

    fn decomposition(a: Tensor, _pivot: bool) -> (Tensor, Tensor) {
        let (factors, pivots, _) = prims::lu(a, true);
        (factors, pivots)
    }

    fn reference(a: &ArrayD<f64>) -> Result<(ReferenceTensor, ReferenceTensor)> {
        let (factors, pivots, _) = super::eliminated(a);
        match matrices(&factors)
            .iter()
            .enumerate()
            .find_map(|(i, matrix)| matrix.diag().iter().position(|pivot| *pivot == 0.0).map(|place| (i, place)))
        {
            Some((matrix, place)) => Err(prims::singular_matrix(matrix, place)),
            None => Ok((factors.into(), ReferenceTensor::from_integers(DType::I32, pivots))),
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 2, 3])));
        s.case(with(s.normal([3, 2])));
        s.case(with(s.normal([0, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "a has shape [3], expected at least two dimensions");
        e.case(Exchanges, with(e.normal([2, 2])).pivot(false), "pivot is false");
        let rows = e.values([2, 2], [1.0, 2.0, 2.0, 4.0]);
        e.when_run("Singular", with(rows), "matrix 0 of the batch is singular: its pivot 2 is zero");
    }
}

/// `P`, `L` and `U` with `P · L · U = A` for each matrix `A`: a permutation, a lower triangle with ones on its diagonal
/// and an upper triangle. Factors without exchanges, for which `pivot` would be false, are refused, as PyTorch refuses
/// them on the CPU.
#[operator(torch = "linalg.lu", dtypes(f32, f64), waive(pivot = "without exchanges nothing is computed"))]
pub mod lu {
    #[results(p, l, u)]
    fn lu(a: Tensor<Floating>, #[default(true)] pivot: bool) -> (Tensor, Tensor, Tensor);

    fn requires(a: &TensorMeta, pivot: bool) -> Result<()> {
        require!(pivot, Exchanges, "pivot is false, expected true: rows are exchanged");
        are_matrices(("a", a), Code::Rank)
    }

    fn decomposition(a: Tensor, _pivot: bool) -> (Tensor, Tensor, Tensor) {
        let shape = a.shape();
        let (batch, m, n) = extents(&shape);
        let k = m.min(n);
        let (factors, _, permutation) = prims::lu(a, false);
        // Row i of the product is the row of A that the permutation has there.
        let rows = prims::iota(m, 0i64, 1i64, DType::I64, a.device());
        let rows = as_columns(rows, m);
        let square = [batch, &[m, m]].concat();
        let from = prims::broadcast_in_dim(
            permutation,
            &*square,
            (0..batch.len()).chain([batch.len() + 1]).collect::<Vec<_>>(),
        );
        let p = prims::convert_element_type(prims::eq(broadcast(rows, &square), from), a.dtype());
        let l = block(factors, [0, m], [0, k]);
        let l = prims::select(on_diagonal(l), 1.0, lower(l, -1));
        (p, l, upper(block(factors, [0, k], [0, n])))
    }

    fn reference(a: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let (_, m, n) = extents(a.shape());
        let k = m.min(n);
        let (factors, _, orders) = super::eliminated(a);
        let (mut p, mut l, mut u) = (Vec::new(), Vec::new(), Vec::new());
        for (number, matrix) in matrices(&factors).into_iter().enumerate() {
            let order = &orders[number * m..(number + 1) * m];
            p.push(Array2::from_shape_fn((m, m), |(row, i)| f64::from(u8::from(order[i] == row as i64))));
            l.push(Array2::from_shape_fn((m, k), |(i, j)| match i.cmp(&j) {
                std::cmp::Ordering::Less => 0.0,
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Greater => matrix[[i, j]],
            }));
            u.push(Array2::from_shape_fn((k, n), |(i, j)| if i <= j { matrix[[i, j]] } else { 0.0 }));
        }
        let of = |own: &[usize], parts: &[Array2<f64>]| stacked(a.shape(), own, parts);
        (of(&[m, m], &p), of(&[m, k], &l), of(&[k, n], &u))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 2, 3])));
        s.case(with(s.normal([3, 2])));
        s.case(with(s.normal([2, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "a has shape [3], expected at least two dimensions");
        e.case(Exchanges, with(e.normal([2, 2])).pivot(false), "pivot is false");
    }
}

/// The exponential of each square matrix, `Σ Aᵏ / k!`; NaN where an element is not finite. f16 and bf16 are computed in
/// f32 and rounded once.
#[operator(torch = "linalg.matrix_exp")]
pub mod matrix_exp {
    fn matrix_exp(a: Tensor<Floating>) -> Tensor;

    fn requires(a: &TensorMeta) -> Result<()> {
        are_square(("a", a), Code::Square)
    }

    fn decomposition(a: Tensor) -> Tensor {
        cast(prims::matrix_exp(accumulating(a)), a.dtype())
    }

    fn reference(a: &ArrayD<f64>) -> ArrayD<f64> {
        prims::exponentials(a)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 2, 2])));
        s.case(with(s.normal([0, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
    }
}

/// For references: symmetric matrices of one triangle.
pub(crate) fn mirrored(a: &ArrayD<f64>, triangle: Triangle) -> ArrayD<f64> {
    let rank = a.ndim();
    ArrayD::from_shape_fn(a.raw_dim(), |at| {
        let mut from = at.clone();
        if (from[rank - 1] > from[rank - 2]) != (triangle == Triangle::Upper) {
            (from[rank - 1], from[rank - 2]) = (at[rank - 2], at[rank - 1]);
        }
        a[from]
    })
}

/// For references: eigenvalues and eigenvectors.
fn spectra(a: &ArrayD<f64>, triangle: Triangle) -> (ArrayD<f64>, ArrayD<f64>) {
    let (_, n, _) = extents(a.shape());
    let (values, vectors): (Vec<_>, Vec<_>) = matrices(&mirrored(a, triangle)).iter().map(prims::eigenvectors).unzip();
    (stacked(a.shape(), &[n], &values), stacked(a.shape(), &[n, n], &vectors))
}

/// For references: the factors of matrices in one, the exchanged rows, and the orders of the rows, one after the other.
pub(crate) fn eliminated(a: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<i64>, Vec<i64>) {
    let (batch, m, n) = extents(a.shape());
    let (mut factors, mut pivots, mut orders) = (Vec::new(), Vec::new(), Vec::new());
    for matrix in matrices(a) {
        let (matrix, exchanged, order) = prims::by_columns(matrix);
        factors.push(matrix);
        pivots.extend(exchanged);
        orders.extend(order);
    }
    let pivots = super::arrays::array(&[batch, &[m.min(n)]].concat(), pivots);
    (stacked(a.shape(), &[m, n], &factors), pivots, orders)
}
