//! Eigenvalues and singular values.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::{Failure, Tensor};
use ndarray::{Array1, Array2, s};

use super::matrices::{
    are_matrices, are_square, as_columns, as_rows, block, extents, jacobi, matrices, on_diagonal, settled, stacked,
    transposed, with_matrix, work,
};
use crate::prims;
use crate::prims::matmul;

/// The eigenvalues of `(A + Aᵀ) / 2` for each matrix `A` of `input`, ascending, and orthonormal eigenvectors as the
/// columns of `vectors`. The first element of an eigenvector whose magnitude is at least 0.4142 of its largest is
/// positive (LAPACK leaves signs open). A matrix with elements that are not finite has NaN for all results.
///
/// The gradient is that of Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
/// differentiation", 2008; that by the vectors is finite only if all eigenvalues differ.
#[operator(prim, dtypes(f32, f64))]
pub mod eigh {
    #[results(values, vectors)]
    fn eigh(input: Tensor<Floating>) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        are_square(("input", input), Code::Square)?;
        let (_, n, _) = extents(input.shape());
        Ok((with_matrix(input, &[n]), input.clone()))
    }

    fn flops(input: &TensorMeta) -> u64 {
        let (_, n, _) = extents(input.shape());
        work(input, 9, &[n, n, n])
    }

    #[allow(clippy::type_complexity)]
    fn grad(input: Tensor) -> ((Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>)) -> Grads) {
        let (values, vectors) = eigh(input);
        ((values, vectors), move |(d_values, d_vectors): (Option<Tensor>, Option<Tensor>)| {
            let n = super::last_extent(values);
            // In the basis of the eigenvectors.
            let by_values = d_values.map(|d_values| matmul(super::by_columns(vectors, d_values), transposed(vectors)));
            let by_vectors = d_vectors.map(|d_vectors| {
                let turned = super::antisymmetric(matmul(transposed(vectors), d_vectors));
                let gaps = prims::sub(as_rows(values, n), as_columns(values, n));
                let inner = prims::mul(super::over_gaps(turned, gaps), 0.5);
                matmul(vectors, matmul(inner, transposed(vectors)))
            });
            Grads { input: super::total([by_values, by_vectors], input) }
        })
    }

    fn reference(input: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        let one = |matrix: Array2<f64>| super::eigenvectors(&((&matrix + &matrix.t()) / 2.0));
        let (values, vectors): (Vec<_>, Vec<_>) = matrices(input).into_iter().map(one).unzip();
        let (_, n, _) = extents(input.shape());
        (stacked(input.shape(), &[n], &values), stacked(input.shape(), &[n, n], &vectors))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.values([3, 3], [2.0, 1.0, 0.5, 1.0, -1.0, 0.25, 0.5, 0.25, 4.0])));
        s.case(with(s.normal([2, 2, 4, 4])));
        s.case(with(s.normal([2, 2])));
        s.case(with(s.normal([1, 1])));
        s.case(with(s.normal([2, 0, 0])));
        s.case(with(s.normal([0, 3, 3])));
        s.case(with(s.values([3, 3], [3.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 2.0]))).forward_only("signs of zeros");
        s.case(with(s.values([2, 2], [f64::NAN, 0.0, 0.0, 1.0]))).forward_only("special values");
        s.case(with(s.normal([12, 12]))).forward_only("large");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "input has shape [2, 3], expected square matrices");
    }
}

/// `U`, the singular values `S`, descending, and `Vᵀ` with `A = U · S · Vᵀ`, for each matrix `A` of `m` rows and `n`
/// columns of `input`. `U` has `min(m, n)` orthonormal columns and `Vᵀ` as many rows; with `full_matrices` all `m` and
/// `n`, of which those beyond have no gradient. The first element of a row of `Vᵀ` whose magnitude is at least 0.4142
/// of its largest is positive (LAPACK leaves signs open). An element that is not finite is an error when the program
/// runs.
///
/// The gradient is that of Townsend, "Differentiating the singular value decomposition", 2016; that by the vectors is
/// finite only if all singular values differ, and are not zero unless the matrix is square.
#[operator(prim, dtypes(f32, f64))]
pub mod svd {
    #[results(u, s, vh)]
    fn svd(input: Tensor<Floating>, full_matrices: bool) -> (Tensor, Tensor, Tensor);

    fn meta(input: &TensorMeta, full_matrices: bool) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        are_matrices(("input", input), Code::Rank)?;
        let (_, m, n) = extents(input.shape());
        let k = m.min(n);
        let (columns, rows) = if full_matrices { (m, n) } else { (k, k) };
        let of = |matrix: &[usize]| with_matrix(input, matrix);
        Ok((of(&[m, columns]), of(&[k]), of(&[rows, n])))
    }

    fn flops(input: &TensorMeta) -> u64 {
        let (_, m, n) = extents(input.shape());
        work(input, 20, &[m, n, m.min(n)])
    }

    #[allow(clippy::type_complexity)]
    fn grad(
        input: Tensor,
        full_matrices: bool,
    ) -> ((Tensor, Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>, Option<Tensor>)) -> Grads) {
        let (u, s, vh) = svd(input, full_matrices);
        ((u, s, vh), move |(d_u, d_s, d_vh): (Option<Tensor>, Option<Tensor>, Option<Tensor>)| {
            let shape = input.shape();
            let (_, m, n) = extents(&shape);
            let k = m.min(n);
            let (left, right) = (block(u, [0, m], [0, k]), block(vh, [0, k], [0, n]));
            let by_s = d_s.map(|d_s| matmul(super::by_columns(left, d_s), right));
            // The gaps of the squares: their factors keep the digits of near ones.
            let (across, down) = (as_rows(s, k), as_columns(s, k));
            let gaps = || prims::mul(prims::sub(across, down), prims::add(across, down));
            let by_left = d_u.map(|d_u| {
                let d_left = block(d_u, [0, m], [0, k]);
                let turned = matmul(transposed(left), d_left);
                let inner = prims::mul(super::over_gaps(super::antisymmetric(turned), gaps()), across);
                let within = matmul(left, inner);
                let whole = match m > k {
                    true => {
                        let beside = prims::sub(d_left, matmul(left, turned));
                        prims::add(within, prims::div(beside, as_rows(s, m)))
                    }
                    false => within,
                };
                matmul(whole, right)
            });
            let by_right = d_vh.map(|d_vh| {
                let d_right = block(d_vh, [0, k], [0, n]);
                let turned = matmul(right, transposed(d_right));
                let inner = prims::mul(super::over_gaps(super::antisymmetric(turned), gaps()), down);
                let within = matmul(inner, right);
                let whole = match n > k {
                    true => {
                        let beside = prims::sub(d_right, matmul(transposed(turned), right));
                        prims::add(within, prims::div(beside, as_columns(s, n)))
                    }
                    false => within,
                };
                matmul(left, whole)
            });
            Grads { input: super::total([by_s, by_left, by_right], input) }
        })
    }

    fn reference(input: &ArrayD<f64>, full_matrices: bool) -> Result<(ArrayD<f64>, ArrayD<f64>, ArrayD<f64>)> {
        let (_, m, n) = extents(input.shape());
        let k = m.min(n);
        let (columns, rows) = if full_matrices { (m, n) } else { (k, k) };
        let (mut lefts, mut values, mut rights) = (Vec::new(), Vec::new(), Vec::new());
        for (number, matrix) in matrices(input).into_iter().enumerate() {
            if !matrix.iter().all(|x| x.is_finite()) {
                return Err(super::no_spectrum(number, 0));
            }
            let (left, s, right) = super::singular_vectors(&matrix);
            lefts.push(super::completed(left, columns));
            rights.push(super::completed(right, rows).reversed_axes());
            values.push(s);
        }
        let of = |own: &[usize], parts: &[Array2<f64>]| stacked(input.shape(), own, parts);
        let s = stacked(input.shape(), &[k], &values);
        Ok((of(&[m, columns], &lefts), s, of(&[rows, n], &rights)))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3]), false));
        s.case(with(s.normal([2, 4, 2]), false));
        s.case(with(s.normal([2, 1, 3, 4]), false));
        s.case(with(s.normal([1, 1]), false));
        s.case(with(s.normal([2, 0, 3]), false));
        s.case(with(s.normal([0, 2, 2]), false));
        s.case(with(s.normal([3, 4]), true)).forward_only("a row that completes the basis");
        s.case(with(s.normal([3, 2]), true)).forward_only("a column that completes the basis");
        s.case(with(s.normal([0, 2]), true));
        s.case(with(s.normal([10, 12]), false)).forward_only("large");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3]), false), "input has shape [3], expected at least two dimensions");
        for element in [f64::NAN, f64::INFINITY] {
            let second = e.values([2, 1, 1], [1.0, element]);
            e.when_run("NotFinite", with(second, false), "matrix 1 of the batch holds a number that is not finite");
        }
    }
}

/// The failure of a matrix without singular values, by the place that the kernel gives; of one without eigenvalues it
/// is above 0 as well.
pub fn no_spectrum(matrix: usize, place: usize) -> Failure {
    match place {
        0 => Failure::new("NotFinite", format!("matrix {matrix} of the batch holds a number that is not finite")),
        _ => Failure::new("NoConvergence", format!("matrix {matrix} of the batch: the search does not converge")),
    }
}

#[track_caller]
fn last_extent(vectors: Tensor) -> usize {
    vectors.shape().last().copied().unwrap_or(1)
}

/// Each column of matrices times the element of `factors` for it.
#[track_caller]
fn by_columns(matrix: Tensor, factors: Tensor) -> Tensor {
    let rows = extents(&matrix.shape()).1;
    prims::mul(matrix, as_rows(factors, rows))
}

/// A matrix less its transpose.
#[track_caller]
fn antisymmetric(matrix: Tensor) -> Tensor {
    prims::sub(matrix, transposed(matrix))
}

/// `matrix / gaps`; zero on the diagonal, where the gaps are.
#[track_caller]
fn over_gaps(matrix: Tensor, gaps: Tensor) -> Tensor {
    prims::div(matrix, prims::select(on_diagonal(gaps), 1.0, gaps))
}

/// The sum of what there is; zeros like `like` if there is nothing.
#[track_caller]
fn total<const N: usize>(terms: [Option<Tensor>; N], like: Tensor) -> Tensor {
    let sum = terms.into_iter().flatten().reduce(|sum, term| prims::add(sum, term));
    sum.unwrap_or_else(|| super::support::constant(like, 0.0))
}

/// For references: eigenvalues, ascending, and eigenvectors of a symmetric matrix, with their settled signs.
pub fn eigenvectors(matrix: &Array2<f64>) -> (Array1<f64>, Array2<f64>) {
    let n = matrix.nrows();
    if !matrix.iter().all(|x| x.is_finite()) {
        return (Array1::from_elem(n, f64::NAN), Array2::from_elem((n, n), f64::NAN));
    }
    let (values, vectors) = jacobi(matrix);
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|i, j| values[*i].total_cmp(&values[*j]));
    let signs: Vec<f64> = (0..n).map(|i| settled(&vectors.column(i).to_owned())).collect();
    let sorted = Array2::from_shape_fn((n, n), |(row, i)| signs[order[i]] * vectors[[row, order[i]]]);
    (order.iter().map(|i| values[*i]).collect(), sorted)
}

/// For references: singular values and vectors, as columns, by the eigenvectors of `[[0, A], [Aᵀ, 0]]`, which are those
/// of `A` one above the other.
pub fn singular_vectors(matrix: &Array2<f64>) -> (Array2<f64>, Array1<f64>, Array2<f64>) {
    let (m, n) = matrix.dim();
    let k = m.min(n);
    let mut both = Array2::zeros((m + n, m + n));
    both.slice_mut(s![..m, m..]).assign(matrix);
    both.slice_mut(s![m.., ..m]).assign(&matrix.t());
    let (values, vectors) = jacobi(&both);
    let mut order: Vec<usize> = (0..m + n).collect();
    order.sort_by(|i, j| values[*j].total_cmp(&values[*i]));
    order.truncate(k);
    let sign = |i: usize| settled(&vectors.slice(s![m.., i]).to_owned()) * 2f64.sqrt();
    let left = Array2::from_shape_fn((m, k), |(row, i)| sign(order[i]) * vectors[[row, order[i]]]);
    let right = Array2::from_shape_fn((n, k), |(row, i)| sign(order[i]) * vectors[[m + row, order[i]]]);
    (left, order.iter().map(|i| values[*i].max(0.0)).collect(), right)
}

/// For references: orthonormal columns and those that complete them: each the unit vector that is farthest from the
/// columns before it, less its projection.
pub fn completed(columns: Array2<f64>, count: usize) -> Array2<f64> {
    let (length, known) = columns.dim();
    let mut out = Array2::zeros((length, count.max(known)));
    out.slice_mut(s![.., ..known]).assign(&columns);
    for next in known..count {
        let before = out.slice(s![.., ..next]).to_owned();
        let rest = Array2::<f64>::eye(length) - before.dot(&before.t());
        let far = (0..length).fold(0, |far, i| if rest[[i, i]] > rest[[far, far]] + 1e-9 { i } else { far });
        let vector = rest.column(far).to_owned();
        let size = vector.dot(&vector).sqrt() * settled(&vector);
        out.slice_mut(s![.., next]).assign(&(vector / size));
    }
    out
}
