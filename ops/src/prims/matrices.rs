//! What prims of matrices share: parts and products of the last two dimensions, checks, and the writing of references.

use fulgurite_runtime::rules::{ArrayD, Failure, IxDyn, Precondition};
use fulgurite_runtime::{Tensor, TensorMeta};
use ndarray::Array2;

use super::checks::{Named, same_dtype};
use crate::prims;

/// Fails with `code` unless the argument has at least two dimensions.
pub fn are_matrices((name, given): Named<'_>, code: Precondition) -> Result<(), Failure> {
    if given.rank() >= 2 {
        return Ok(());
    }
    Err(code.unmet(format_args!("{name} has shape {:?}, expected at least two dimensions", given.shape())))
}

/// Fails with `code` unless the argument has at least two dimensions, the last two of one extent.
pub fn are_square((name, given): Named<'_>, code: Precondition) -> Result<(), Failure> {
    if matches!(given.shape(), [.., rows, columns] if rows == columns) {
        return Ok(());
    }
    Err(code.unmet(format_args!("{name} has shape {:?}, expected square matrices", given.shape())))
}

/// The meta of `X` in `A · X = B`, that of `b`. Fails with these codes unless `a` has square matrices, `b` as many
/// matrices of as many rows, and both one dtype.
pub fn solution(
    a: &TensorMeta,
    b: &TensorMeta,
    [square, rows, dtype]: [Precondition; 3],
) -> Result<TensorMeta, Failure> {
    are_square(("a", a), square)?;
    let ((batch, n, _), (other, own, _)) = (extents(a.shape()), extents(b.shape()));
    if b.rank() < 2 || own != n || batch != other {
        let shapes = format_args!("a has shape {:?}, b {:?}", a.shape(), b.shape());
        return Err(rows.unmet(format_args!("{shapes}, expected equal leading extents and {n} rows")));
    }
    same_dtype(("a", a), ("b", b), dtype)?;
    Ok(b.clone())
}

/// The leading extents, the rows and the columns of matrices; of fewer dimensions ones.
pub fn extents(shape: &[usize]) -> (&[usize], usize, usize) {
    match shape {
        [batch @ .., rows, columns] => (batch, *rows, *columns),
        _ => (&[], 1, 1),
    }
}

/// `meta` with other rows and columns.
pub fn with_matrix(meta: &TensorMeta, matrix: &[usize]) -> TensorMeta {
    meta.with_shape([extents(meta.shape()).0, matrix].concat())
}

/// An estimate of multiplications: `factor` for each of `extents` multiplied, of each matrix.
pub fn work(meta: &TensorMeta, factor: u64, extents: &[usize]) -> u64 {
    let (batch, ..) = self::extents(meta.shape());
    batch.iter().chain(extents).fold(factor, |work, extent| work.saturating_mul(*extent as u64))
}

/// The transposes.
#[track_caller]
pub fn transposed(matrix: Tensor) -> Tensor {
    let mut dims: Vec<usize> = (0..matrix.rank()).collect();
    if let [.., rows, columns] = dims.as_mut_slice() {
        std::mem::swap(rows, columns);
    }
    prims::permute(matrix, dims)
}

/// The part on and below the diagonal so many places above the main one; zeros elsewhere.
#[track_caller]
pub fn lower(matrix: Tensor, diagonal: i64) -> Tensor {
    let kept = prims::le(crate::core::column_minus_row(&matrix.meta()), diagonal);
    prims::select(over_matrices(kept, &matrix.shape()), matrix, 0.0)
}

/// The part on and above the main diagonal; zeros elsewhere.
#[track_caller]
pub fn upper(matrix: Tensor) -> Tensor {
    let kept = prims::ge(crate::core::column_minus_row(&matrix.meta()), 0);
    prims::select(over_matrices(kept, &matrix.shape()), matrix, 0.0)
}

/// One matrix in place of each of those of `shape`.
#[track_caller]
fn over_matrices(matrix: Tensor, shape: &[usize]) -> Tensor {
    let rank = shape.len();
    if rank == 2 { matrix } else { prims::broadcast_in_dim(matrix, shape, [rank - 2, rank - 1]) }
}

/// Whether a place is on or below the diagonal, for each place of matrices like `matrix`.
#[track_caller]
pub fn on_or_below_diagonal(matrix: Tensor) -> Tensor {
    over_matrices(prims::le(crate::core::column_minus_row(&matrix.meta()), 0), &matrix.shape())
}

/// Whether a place is on the diagonal, for each place of matrices like `matrix`.
#[track_caller]
pub fn on_diagonal(matrix: Tensor) -> Tensor {
    over_matrices(prims::eq(crate::core::column_minus_row(&matrix.meta()), 0), &matrix.shape())
}

/// Unit matrices in place of those of `like`.
#[track_caller]
pub fn unit(like: Tensor) -> Tensor {
    prims::convert_element_type(on_diagonal(like), like.dtype())
}

/// Vectors `[..., n]` as the rows of matrices `[..., rows, n]`, each as often as there are rows.
#[track_caller]
pub fn as_rows(vectors: Tensor, rows: usize) -> Tensor {
    let shape = vectors.shape();
    let (length, batch) = shape.split_last().map_or((1, &[][..]), |(length, batch)| (*length, batch));
    let dims: Vec<usize> = (0..batch.len()).chain([batch.len() + 1]).collect();
    prims::broadcast_in_dim(vectors, [batch, &[rows, length]].concat(), dims)
}

/// Vectors `[..., m]` as the columns of matrices `[..., m, columns]`.
#[track_caller]
pub fn as_columns(vectors: Tensor, columns: usize) -> Tensor {
    let shape = [&*vectors.shape(), &[columns]].concat();
    let dims: Vec<usize> = (0..vectors.rank()).collect();
    prims::broadcast_in_dim(vectors, shape, dims)
}

/// The rows and columns in these ranges.
#[track_caller]
pub fn block(matrix: Tensor, rows: [usize; 2], columns: [usize; 2]) -> Tensor {
    let shape = matrix.shape();
    let (batch, m, n) = extents(&shape);
    if [rows, columns] == [[0, m], [0, n]] {
        return matrix;
    }
    let starts = [vec![0; batch.len()], vec![rows[0], columns[0]]].concat();
    prims::slice(matrix, starts, [batch, &[rows[1], columns[1]]].concat(), vec![1; shape.len()])
}

/// `matrix · triangle⁻ᵀ` of an upper triangle.
#[track_caller]
pub fn behind_inverse_transpose(matrix: Tensor, triangle: Tensor) -> Tensor {
    transposed(prims::triangular_solve(triangle, transposed(matrix), true, false))
}

/// Each row of matrices at the number that `order`, `[..., rows]`, has for it: row `order[i]` of `matrix` as row `i`.
#[track_caller]
pub fn rows_at(matrix: Tensor, order: Tensor) -> Tensor {
    let (rank, columns) = (matrix.rank(), matrix.shape()[matrix.rank() - 1]);
    prims::gather(matrix, rank - 2, as_columns(order, columns))
}

/// The order that undoes a permutation `[..., n]`.
#[track_caller]
pub fn undone(permutation: Tensor) -> Tensor {
    let last = permutation.rank() - 1;
    prims::topk(permutation, permutation.shape()[last], last, false).1
}

/// For references: the matrices of the last two dimensions, in order.
pub fn matrices(array: &ArrayD<f64>) -> Vec<Array2<f64>> {
    let (batch, m, n) = extents(array.shape());
    let values: Vec<f64> = array.iter().copied().collect();
    let one = |i: usize| Array2::from_shape_fn((m, n), |(row, column)| values[(i * m + row) * n + column]);
    (0..batch.iter().product()).map(one).collect()
}

/// For references: arrays, one for each matrix, with the leading extents of `like` before their own.
pub fn stacked<D: ndarray::Dimension>(like: &[usize], own: &[usize], parts: &[ndarray::Array<f64, D>]) -> ArrayD<f64> {
    let shape = [extents(like).0, own].concat();
    let values: Vec<f64> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    ArrayD::from_shape_vec(IxDyn(&shape), values).unwrap_or_default()
}

/// For references: the sign that makes the first element of at least 0.4142 of the largest magnitude positive.
pub fn settled(vector: &ndarray::Array1<f64>) -> f64 {
    let most = vector.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    vector.iter().find(|x| x.abs() >= 0.4142 * most).map_or(1.0, |x| if *x < 0.0 { -1.0 } else { 1.0 })
}

/// For references: eigenvalues of a symmetric matrix and eigenvectors as columns, in no order, by Jacobi's rotations.
pub fn jacobi(matrix: &Array2<f64>) -> (Vec<f64>, Array2<f64>) {
    let n = matrix.nrows();
    let (mut a, mut vectors) = (matrix.clone(), Array2::eye(n));
    let size = a.iter().map(|x| x * x).sum::<f64>();
    // Rotations leave a rounding in each place, and convergence is quadratic: the sweep after these are reached is the
    // last.
    let roundings = 1e-32 * size * (n * n) as f64;
    let mut reached = false;
    for _ in 0..50 {
        let pairs = (0..n).flat_map(|p| (p + 1..n).map(move |q| (p, q)));
        let off = pairs.clone().map(|(p, q)| a[[p, q]].powi(2)).sum::<f64>();
        if reached || off <= 1e-40 * size {
            break;
        }
        reached = off <= roundings;
        for (p, q) in pairs {
            if a[[p, q]] == 0.0 {
                continue;
            }
            // The smaller of the two angles: with it the rotations converge.
            let angle = 0.5 * (2.0 * a[[p, q]] / (a[[p, p]] - a[[q, q]])).atan();
            let (sin, cos) = angle.sin_cos();
            let turned = |x: f64, y: f64| (cos * x + sin * y, cos * y - sin * x);
            for i in 0..n {
                (a[[i, p]], a[[i, q]]) = turned(a[[i, p]], a[[i, q]]);
                (vectors[[i, p]], vectors[[i, q]]) = turned(vectors[[i, p]], vectors[[i, q]]);
            }
            for i in 0..n {
                (a[[p, i]], a[[q, i]]) = turned(a[[p, i]], a[[q, i]]);
            }
        }
    }
    (a.diag().to_vec(), vectors)
}

/// For references: the solution of `a · x = b` by elimination of whole columns; the first place without a pivot.
pub fn solved(a: &Array2<f64>, b: &Array2<f64>) -> Result<Array2<f64>, usize> {
    let (mut a, mut x, n) = (a.clone(), b.clone(), a.nrows());
    for k in 0..n {
        let best = (k..n).fold(k, |best, i| if a[[i, k]].abs() > a[[best, k]].abs() { i } else { best });
        if a[[best, k]] == 0.0 {
            return Err(k);
        }
        for matrix in [&mut a, &mut x] {
            (0..matrix.ncols()).for_each(|column| matrix.swap([k, column], [best, column]));
        }
        // Each pivot clears its column above and below, so that a diagonal is left.
        for i in (0..n).filter(|i| *i != k) {
            let factor = a[[i, k]] / a[[k, k]];
            for matrix in [&mut a, &mut x] {
                (0..matrix.ncols()).for_each(|column| matrix[[i, column]] -= factor * matrix[[k, column]]);
            }
        }
    }
    Ok(Array2::from_shape_fn(x.dim(), |(i, j)| x[[i, j]] / a[[i, i]]))
}
