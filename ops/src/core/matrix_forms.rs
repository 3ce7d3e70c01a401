//! Other forms of results of linear algebra: with a number of the failure, of other shapes, of other factors. They are
//! computed in f32 and f64; f16 and bf16 are refused, as in PyTorch.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::{ArrayD, ReferenceTensor};
use fulgurite_runtime::{DType, Tensor};
use ndarray::Array2;

use super::arrays::{array, rearranged, reshaped};
use super::promotion::{broadcast, constant};
use super::{Triangle, are_vectors};
use super::{cholesky, cumprod, diagonal, eliminated, from_triangle, inv, inverses, mirrored, solutions, solve};
use crate::prims;
use crate::prims::matrices::{are_matrices, are_square, as_columns, as_rows, extents, matrices, stacked, transposed};

/// A number for each matrix, i32: 0, since a matrix that the operation does not work for is an error when the program
/// runs.
#[track_caller]
fn no_failure(a: Tensor) -> Tensor {
    prims::full(extents(&a.shape()).0, 0i64, DType::I32, a.device())
}

/// For references: as [`no_failure`].
fn zeros(shape: &[usize]) -> ReferenceTensor {
    let numbers = ArrayD::zeros(extents(shape).0);
    ReferenceTensor::from_integers(DType::I32, numbers)
}

/// [`mod@cholesky`](super::cholesky) and a number for each matrix that says where it failed. The number is 0: a matrix
/// that is not positive-definite is an error when the program runs, whatever `check_errors` says, where PyTorch has its
/// number and no factor.
#[operator(
    torch = "linalg.cholesky_ex",
    dtypes(f32, f64),
    waive(check_errors = "errors are always checked"),
    skip(gradient, second_gradient, reason = "its gradient is that of symmetric matrices, see from_triangle")
)]
pub mod cholesky_ex {
    #[results(l, info)]
    fn cholesky_ex(
        a: Tensor<Floating>,
        #[default(false)] upper: bool,
        #[default(false)] check_errors: bool,
    ) -> (Tensor, Tensor);

    fn requires(a: &TensorMeta) -> Result<()> {
        are_square(("a", a), Code::Square)
    }

    fn decomposition(a: Tensor, upper: bool, _check_errors: bool) -> (Tensor, Tensor) {
        (cholesky::with(a).upper(upper).call(), super::no_failure(a))
    }

    fn reference(a: &ArrayD<f64>, upper: bool) -> Result<(ArrayD<f64>, ReferenceTensor)> {
        let whole = mirrored(a, if upper { Triangle::Upper } else { Triangle::Lower });
        let factor = |(number, matrix): (usize, Array2<f64>)| {
            let factor = prims::factor_of(matrix).map_err(|place| prims::not_positive_definite(number, place))?;
            Ok(if upper { factor.reversed_axes() } else { factor })
        };
        let factors = matrices(&whole).into_iter().enumerate().map(factor).collect::<Result<Vec<_>>>()?;
        let (_, n, _) = extents(a.shape());
        Ok((stacked(a.shape(), &[n, n], &factors), super::zeros(a.shape())))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.values([3, 3], prims::positive_definite(1, 3))));
        s.case(with(s.values([2, 3, 3], prims::positive_definite(2, 3))).upper(true));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
        let matrix = e.values([2, 2], [1.0, 2.0, 2.0, 1.0]);
        e.when_run("NotPositiveDefinite", with(matrix), "its leading minor of order 2 is not positive");
    }
}

/// [`mod@inv`](super::inv) and a number for each matrix that says where it failed. The number is 0: a singular matrix
/// is an error when the program runs, whatever `check_errors` says, where PyTorch has its number and no inverse.
#[operator(torch = "linalg.inv_ex", dtypes(f32, f64), waive(check_errors = "errors are always checked"))]
pub mod inv_ex {
    #[results(inverse, info)]
    fn inv_ex(a: Tensor<Floating>, #[default(false)] check_errors: bool) -> (Tensor, Tensor);

    fn requires(a: &TensorMeta) -> Result<()> {
        are_square(("a", a), Code::Square)
    }

    fn decomposition(a: Tensor, _check_errors: bool) -> (Tensor, Tensor) {
        (inv(a), super::no_failure(a))
    }

    fn reference(a: &ArrayD<f64>) -> Result<(ArrayD<f64>, ReferenceTensor)> {
        Ok((inverses(a)?, super::zeros(a.shape())))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 2, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
        e.when_run("Singular", with(e.values([1, 1], [0.0])), "its pivot 1 is zero");
    }
}

/// [`mod@solve`](super::solve) and a number for each matrix that says where it failed. The number is 0: a singular
/// matrix is an error when the program runs, whatever `check_errors` says, where PyTorch has its number and no
/// solution.
#[operator(torch = "linalg.solve_ex", dtypes(f32, f64), waive(check_errors = "errors are always checked"))]
pub mod solve_ex {
    #[results(result, info)]
    fn solve_ex(
        a: Tensor<Floating>,
        b: Tensor<Floating>,
        #[default(true)] left: bool,
        #[default(false)] check_errors: bool,
    ) -> (Tensor, Tensor);

    fn decomposition(a: Tensor, b: Tensor, left: bool, _check_errors: bool) -> (Tensor, Tensor) {
        (solve::with(a, b).left(left).call(), super::no_failure(a))
    }

    fn reference(a: &ArrayD<f64>, b: &ArrayD<f64>, left: bool) -> Result<(ArrayD<f64>, ReferenceTensor)> {
        let vectors = are_vectors(a.shape(), b.shape());
        let wide = if vectors { reshaped(b, &[b.shape(), &[1]].concat()) } else { b.clone() };
        let found = solutions(a, &wide, left)?;
        let shape = found.shape().to_vec();
        let found = if vectors { reshaped(&found, &shape[..shape.len() - 1]) } else { found };
        Ok((found, super::zeros(a.shape())))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3]), s.normal([3, 2])));
        s.case(with(s.normal([2, 2, 2]), s.normal([2, 2])));
        s.case(with(s.normal([2, 2]), s.normal([1, 2])).left(false));
    }

    fn errors(e: &mut ErrorSamples) {
        e.when_run("Singular", with(e.values([1, 1], [0.0]), e.normal([1])), "its pivot 1 is zero");
    }
}

/// The factors and the exchanged rows of [`mod@lu_factor`](super::lu_factor), and for each matrix the number, from 1
/// on, of its first pivot that is zero, or 0. Singular matrices are no error here, whatever `check_errors` says.
#[operator(
    torch = "linalg.lu_factor_ex",
    dtypes(f32, f64),
    waive(check_errors = "no error can be made of the number", pivot = "without exchanges nothing is computed")
)]
pub mod lu_factor_ex {
    #[results(lu, pivots, info)]
    fn lu_factor_ex(
        a: Tensor<Floating>,
        #[default(true)] pivot: bool,
        #[default(false)] check_errors: bool,
    ) -> (Tensor, Tensor, Tensor);

    fn requires(a: &TensorMeta, pivot: bool) -> Result<()> {
        require!(pivot, Exchanges, "pivot is false, expected true: rows are exchanged");
        are_matrices(("a", a), Code::Rank)
    }

    fn decomposition(a: Tensor, _pivot: bool, _check_errors: bool) -> (Tensor, Tensor, Tensor) {
        let shape = a.shape();
        let (batch, m, n) = extents(&shape);
        let k = m.min(n);
        let (factors, pivots, _) = prims::lu(a, false);
        if k == 0 {
            return (factors, pivots, super::no_failure(a));
        }
        let zeros = prims::eq(diagonal::with(factors).dim1(-2).dim2(-1).call(), 0.0);
        let place = broadcast(prims::iota(k, 1i64, 1i64, DType::I64, a.device()), &[batch, &[k]].concat());
        let first = prims::amin(prims::select(zeros, place, k as i64 + 1), [batch.len()]);
        let info = prims::select(prims::gt(first, k as i64), 0, first);
        (factors, pivots, prims::convert_element_type(info, DType::I32))
    }

    fn reference(a: &ArrayD<f64>) -> (ArrayD<f64>, ReferenceTensor, ReferenceTensor) {
        let (factors, pivots, _) = eliminated(a);
        let info: Vec<i64> = matrices(&factors)
            .iter()
            .map(|matrix| matrix.diag().iter().position(|pivot| *pivot == 0.0).map_or(0, |place| place as i64 + 1))
            .collect();
        let info = array(extents(a.shape()).0, info);
        (factors, ReferenceTensor::from_integers(DType::I32, pivots), ReferenceTensor::from_integers(DType::I32, info))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 2, 3])));
        s.case(with(s.values([2, 2], [1.0, 2.0, 2.0, 4.0]))).forward_only("a singular matrix");
        s.case(with(s.normal([0, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "a has shape [3], expected at least two dimensions");
        e.case(Exchanges, with(e.normal([2, 2])).pivot(false), "pivot is false");
    }
}

/// [`mod@diagonal`](super::diagonal) of the matrices in the last two dimensions, unless `dim1` and `dim2` are others.
#[operator(torch = "linalg.diagonal")]
pub mod matrix_diagonal {
    fn matrix_diagonal(
        a: Tensor,
        #[default(0)] offset: i64,
        #[default(-2)] dim1: i64,
        #[default(-1)] dim2: i64,
    ) -> Tensor;

    fn decomposition(a: Tensor, offset: i64, dim1: i64, dim2: i64) -> Tensor {
        diagonal::with(a).offset(offset).dim1(dim1).dim2(dim2).call()
    }

    fn reference(a: &ReferenceTensor, offset: i64, dim1: i64, dim2: i64) -> ReferenceTensor {
        let rank = a.shape().len();
        let [first, second] = [dim1, dim2].map(|dim| dim.rem_euclid(rank as i64) as usize);
        let rest: Vec<usize> = (0..rank).filter(|dim| *dim != first && *dim != second).collect();
        let length = (0..a.shape()[first] as i64).filter(|i| (0..a.shape()[second] as i64).contains(&(i + offset)));
        let shape: Vec<usize> = rest.iter().map(|dim| a.shape()[*dim]).chain([length.count()]).collect();
        rearranged(a, &shape, 0.0, |at| {
            let mut from = vec![0; rank];
            rest.iter().zip(at).for_each(|(dim, at)| from[*dim] = *at);
            let along = at[rest.len()] as i64;
            (from[first], from[second]) = ((along - offset.min(0)) as usize, (along + offset.max(0)) as usize);
            Some(from)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 4])));
        s.case(with(s.normal([3, 3])).offset(-1));
        s.case(with(s.normal([3, 3, 3])).offset(1).dim1(0).dim2(2));
        s.case(with(s.normal([2, 3, 3])).offset(1).dim1(1).dim2(0));
    }
}

/// The powers of each element of `x`, from the power 0 to `n - 1`, along a new last dimension; `n` is the last extent
/// of `x` if it is absent.
#[operator(torch = "linalg.vander")]
pub mod vandermonde {
    fn vandermonde(x: Tensor<Number>, #[default(None)] n: Option<usize>) -> Tensor;

    fn requires(x: &TensorMeta, n: Option<usize>) -> Result<()> {
        require!(x.rank() > 0, Rank, "x has no dimensions, expected at least one");
        let n = n.unwrap_or(x.shape()[x.rank() - 1]);
        require!(n > 1, Powers, "n is {n}, expected more than one power");
        Ok(())
    }

    fn decomposition(x: Tensor, n: Option<usize>) -> Tensor {
        let shape = x.shape().to_vec();
        let n = n.unwrap_or(shape[shape.len() - 1]);
        let dims: Vec<usize> = (0..shape.len()).collect();
        let repeated = prims::broadcast_in_dim(x, [&shape[..], &[n - 1]].concat(), dims);
        let powers = cumprod(repeated, shape.len() as i64);
        let dtype = powers.dtype();
        let one = if dtype.is_floating() { 1.0.into() } else { Scalar::Int(1) };
        let ones = constant(one, &x.meta().with_dtype(dtype).with_shape([&shape[..], &[1]].concat()));
        prims::cat(vec![ones, powers], shape.len())
    }

    fn reference(x: &ReferenceTensor, n: Option<usize>) -> ReferenceTensor {
        let rank = x.shape().len();
        let n = n.unwrap_or(x.shape()[rank - 1]);
        let shape = [x.shape(), &[n]].concat();
        match x.dtype().is_floating() {
            true => ReferenceTensor::from_floats(
                x.dtype(),
                ArrayD::from_shape_fn(IxDyn(&shape), |at| {
                    x.floats()[&ndarray::Dimension::slice(&at)[..rank]].powi(at[rank] as i32)
                }),
            ),
            false => ReferenceTensor::from_integers(
                DType::I64,
                ArrayD::from_shape_fn(IxDyn(&shape), |at| {
                    x.integers()[&ndarray::Dimension::slice(&at)[..rank]].pow(at[rank] as u32)
                }),
            ),
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3])));
        s.case(with(s.normal([2, 3])).n(4usize));
        s.case(with(s.normal([0])).n(2usize));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([])), "x has no dimensions");
        e.case(Powers, with(e.normal([2])).n(1usize), "n is 1");
        e.case(Powers, with(e.normal([1])), "n is 1");
    }
}

/// [`mod@svd`](super::svd) in PyTorch's older form: `U`, the singular values and `V`, whose columns are the vectors,
/// not its transpose; as many columns as there are singular values if `some`. Without `compute_uv` all elements of both
/// are zero.
#[operator(torch = "svd", dtypes(f32, f64))]
pub mod svd_by_columns {
    #[results(u, s, v)]
    fn svd_by_columns(
        input: Tensor<Floating>,
        #[default(true)] some: bool,
        #[default(true)] compute_uv: bool,
    ) -> (Tensor, Tensor, Tensor);

    fn requires(input: &TensorMeta) -> Result<()> {
        are_matrices(("input", input), Code::Rank)
    }

    fn decomposition(input: Tensor, some: bool, compute_uv: bool) -> (Tensor, Tensor, Tensor) {
        let shape = input.shape();
        let (batch, m, n) = extents(&shape);
        let (u, values, vh) = prims::svd(input, !some && compute_uv);
        if compute_uv {
            return (u, values, transposed(vh));
        }
        let zeros = |n: usize| prims::full([batch, &[n, n]].concat(), 0.0, input.dtype(), input.device());
        (zeros(m), values, zeros(n))
    }

    fn reference(input: &ArrayD<f64>, some: bool, compute_uv: bool) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let (batch, m, n) = extents(input.shape());
        let k = m.min(n);
        let (columns, rows) = if some { (k, k) } else { (m, n) };
        let (mut left, mut values, mut right) = (Vec::new(), Vec::new(), Vec::new());
        for matrix in matrices(input) {
            let (u, s, v) = prims::singular_vectors(&matrix);
            left.push(prims::completed(u, columns));
            values.push(s);
            right.push(prims::completed(v, rows));
        }
        let values = stacked(input.shape(), &[k], &values);
        if !compute_uv {
            let zeros = |n: usize| ArrayD::zeros(IxDyn(&[batch, &[n, n]].concat()));
            return (zeros(m), values, zeros(n));
        }
        (stacked(input.shape(), &[m, columns], &left), values, stacked(input.shape(), &[n, rows], &right))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 4, 2])));
        s.case(with(s.normal([2, 3])).some(false)).forward_only("a column that completes the basis");
        s.case(with(s.normal([2, 3])).compute_uv(false));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "input has shape [3], expected at least two dimensions");
    }
}

/// The symmetric positive-definite matrix `X` with `X · X = A` for each symmetric positive-definite matrix `A`, of
/// which the lower triangle is read. Eigenvalues below zero count as zero. The gradient is the solution of Sylvester's
/// equation `X · D + D · X = C` for the cotangent `C`, which is finite where eigenvalues are equal, and that of
/// symmetric matrices: see [`mod@from_triangle`](super::from_triangle).
#[operator(
    torch = "linalg.matrix_sqrth",
    dtypes(f32, f64),
    skip(gradient, second_gradient, decomposition, reason = "its gradient is that of symmetric matrices")
)]
pub mod matrix_sqrth {
    fn matrix_sqrth(a: Tensor<Floating>) -> Tensor;

    fn requires(a: &TensorMeta) -> Result<()> {
        are_square(("a", a), Code::Square)
    }

    fn decomposition(a: Tensor) -> Tensor {
        let (roots, vectors) = roots_and_vectors(a);
        scaled(vectors, roots)
    }

    fn grad(a: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let (roots, vectors) = roots_and_vectors(a);
        (scaled(vectors, roots), move |d_out: Tensor| {
            let n = roots.shape()[roots.rank() - 1];
            let symmetric = prims::mul(prims::add(d_out, transposed(d_out)), 0.5);
            let inner = prims::matmul(prims::matmul(transposed(vectors), symmetric), vectors);
            let sums = prims::add(as_columns(roots, n), as_rows(roots, n));
            Grads { a: prims::matmul(prims::matmul(vectors, prims::div(inner, sums)), transposed(vectors)) }
        })
    }

    /// The square roots of the eigenvalues, and the eigenvectors as columns.
    #[track_caller]
    fn roots_and_vectors(a: Tensor) -> (Tensor, Tensor) {
        let (values, vectors) = prims::eigh(from_triangle(a, Triangle::Lower));
        (prims::sqrt(prims::maximum(values, 0.0)), vectors)
    }

    /// The sum of `root · v · vᵀ`.
    #[track_caller]
    fn scaled(vectors: Tensor, roots: Tensor) -> Tensor {
        let n = roots.shape()[roots.rank() - 1];
        prims::matmul(prims::mul(vectors, as_rows(roots, n)), transposed(vectors))
    }

    fn reference(a: &ArrayD<f64>) -> ArrayD<f64> {
        let one = |matrix: &Array2<f64>| {
            let (values, vectors) = prims::eigenvectors(matrix);
            let mut out = Array2::<f64>::zeros(matrix.raw_dim());
            for (i, value) in values.iter().enumerate() {
                for ((row, column), x) in out.indexed_iter_mut() {
                    *x += value.max(0.0).sqrt() * vectors[[row, i]] * vectors[[column, i]];
                }
            }
            out
        };
        let (_, n, _) = extents(a.shape());
        let all: Vec<Array2<f64>> = matrices(&mirrored(a, Triangle::Lower)).iter().map(one).collect();
        stacked(a.shape(), &[n, n], &all)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.values([3, 3], prims::positive_definite(1, 3))));
        s.case(with(s.values([2, 3, 3], prims::positive_definite(2, 3))));
        s.case(with(s.normal([0, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "a has shape [2, 3], expected square matrices");
    }
}

/// `U` with orthonormal columns and the symmetric positive-semidefinite `H` with `U · H = A` for each matrix `A` with
/// no fewer rows than columns.
#[operator(torch = "linalg.polar", dtypes(f32, f64))]
pub mod polar_factors {
    #[results(u, h)]
    fn polar_factors(a: Tensor<Floating>) -> (Tensor, Tensor);

    fn requires(a: &TensorMeta) -> Result<()> {
        are_matrices(("a", a), Code::Rank)?;
        let (_, m, n) = extents(a.shape());
        require!(m >= n, Rows, "a has {m} rows and {n} columns, expected at least as many rows");
        Ok(())
    }

    fn decomposition(a: Tensor) -> (Tensor, Tensor) {
        let n = a.shape()[a.rank() - 1];
        let (u, values, vh) = prims::svd(a, false);
        let scaled = prims::mul(transposed(vh), as_rows(values, n));
        (prims::matmul(u, vh), prims::matmul(scaled, vh))
    }

    fn reference(a: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        let (_, m, n) = extents(a.shape());
        let one = |matrix: &Array2<f64>| {
            // The root of `Aᵀ · A`, and `A` times its inverse.
            let (values, vectors) = prims::eigenvectors(&matrix.t().dot(matrix));
            let of = |power: f64| {
                let diagonal = Array2::from_diag(&ndarray::Array1::from_iter(values.iter().map(|x| x.powf(power))));
                vectors.dot(&diagonal).dot(&vectors.t())
            };
            (matrix.dot(&of(-0.5)), of(0.5))
        };
        let (left, right): (Vec<_>, Vec<_>) = matrices(a).iter().map(one).unzip();
        (stacked(a.shape(), &[m, n], &left), stacked(a.shape(), &[n, n], &right))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 4, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "a has shape [3], expected at least two dimensions");
        e.case(Rows, with(e.normal([2, 3])), "a has 2 rows and 3 columns");
    }
}
