//! Products of triangles: Cholesky's, and LU with rows exchanged; and elimination.

use super::{
    Fault, add_multiple, cubed, dot, each, matrices, parts, read, shaped, squares, symmetrize, two_rows, write,
};
use crate::dtype::DType;
use crate::extents;
use crate::scratch;
use crate::view::{TensorMut, TensorRef};

/// The lower triangle `L` with `L · Lᵀ = (A + Aᵀ) / 2` of each matrix `A`. Panics if shapes differ or matrices are not
/// square.
///
/// # Errors
/// The first matrix that is not positive-definite, and the row and column of the minor that is not.
pub fn cholesky(input: TensorRef<'_>, target: TensorMut<'_>) -> Result<(), Fault> {
    let (count, n) = squares("cholesky", "input", input.shape());
    extents::shape("cholesky", "target", target.shape(), input.shape());
    let mut data = read(input);
    each(parts(&mut data, count), cubed(n) / 6, |a| {
        symmetrize(a, n);
        for j in 0..n {
            let (above, below) = a.split_at_mut((j + 1) * n);
            let row = &mut above[j * n..];
            let square = row[j] - dot(&row[..j], &row[..j]);
            // NaN is not above zero either.
            if square.is_nan() || square <= 0.0 {
                return Some(j);
            }
            row[j] = square.sqrt();
            row[j + 1..].fill(0.0);
            for other in below.chunks_exact_mut(n) {
                other[j] = (other[j] - dot(&other[..j], &row[..j])) / row[j];
            }
        }
        None
    })?;
    write(&data, target);
    Ok(())
}

/// Of each matrix `A` of `m` rows and `n` columns: the factors of `P · A = L · U` in one matrix, `L` below the diagonal
/// (its own is ones) and `U` from the diagonal on; the rows that were exchanged, `pivots[i]` with `i` one after the
/// other, counted from 1 (i32); and the row of `A` that each row of the product is (i64). The pivot is the largest
/// magnitude of the rest of a column, the first of equal ones.
///
/// Panics if the results have other shapes: `[..., m, n]`, `[..., min(m, n)]`, `[..., m]`.
///
/// # Errors
/// If `refuse_singular`: the first matrix with a pivot of zero, and its place.
pub fn lu(
    input: TensorRef<'_>,
    refuse_singular: bool,
    factors: TensorMut<'_>,
    pivots: TensorMut<'_>,
    permutation: TensorMut<'_>,
) -> Result<(), Fault> {
    let (count, m, n) = matrices("lu", "input", input.shape());
    let steps = m.min(n);
    extents::shape("lu", "factors", factors.shape(), input.shape());
    shaped("lu", "pivots", pivots.shape(), input.shape(), &[steps]);
    shaped("lu", "permutation", permutation.shape(), input.shape(), &[m]);
    extents::dtype("lu", "pivots", pivots.dtype(), DType::I32);
    extents::dtype("lu", "permutation", permutation.dtype(), DType::I64);
    let mut data = read(input);
    let mut exchanged = scratch::zeroed::<i32>(count * steps);
    let mut order = scratch::zeroed::<i64>(count * m);
    let tasks = parts(&mut data, count).into_iter().zip(parts(&mut exchanged, count)).zip(parts(&mut order, count));
    let cost = m.saturating_mul(n).saturating_mul(steps) / 3;
    each(tasks.collect(), cost, |((a, exchanged), order)| {
        order.iter_mut().zip(0..).for_each(|(row, i)| *row = i);
        let mut zero = None;
        for k in 0..steps {
            let size = |i: usize| a[i * n + k].abs();
            let pivot = (k..m).fold(k, |best, i| if size(i) > size(best) { i } else { best });
            exchanged[k] = pivot as i32 + 1;
            order.swap(k, pivot);
            if pivot != k {
                let (above, below) = two_rows(a, n, k, pivot);
                above.swap_with_slice(below);
            }
            let (above, below) = a.split_at_mut((k + 1) * n);
            let row = &above[k * n..];
            if row[k] == 0.0 {
                zero = zero.or(Some(k));
                continue;
            }
            for other in below.chunks_exact_mut(n) {
                let factor = other[k] / row[k];
                other[k] = factor;
                add_multiple(&mut other[k + 1..], -factor, &row[k + 1..]);
            }
        }
        zero.filter(|_| refuse_singular)
    })?;
    write(&data, factors);
    write(&exchanged, pivots);
    write(&order, permutation);
    Ok(())
}

/// The solution `X` of `A · X = B` for each square matrix `A` and matrix `B`, by elimination with the largest pivots.
/// Panics unless `B` has the rows and leading extents of `A`, and `target` the shape of `B`.
///
/// # Errors
/// The first matrix with a pivot of zero, and its place.
pub fn solve(a: TensorRef<'_>, b: TensorRef<'_>, target: TensorMut<'_>) -> Result<(), Fault> {
    let (count, n) = squares("solve", "a", a.shape());
    let (_, _, columns) = matrices("solve", "b", b.shape());
    shaped("solve", "b", b.shape(), a.shape(), &[n, columns]);
    extents::shape("solve", "target", target.shape(), b.shape());
    let (mut given, mut data) = (read(a), read(b));
    let tasks = parts(&mut given, count).into_iter().zip(parts(&mut data, count)).collect();
    let cost = n.saturating_mul(n).saturating_mul(n / 3 + columns);
    each(tasks, cost, |(a, b)| eliminate(a, n, b, columns))?;
    write(&data, target);
    Ok(())
}

/// Replaces `b`, of as many columns, by the solution of `a · x = b`, and `a` by its upper triangle. Returns the first
/// place with a pivot of zero.
pub(super) fn eliminate(a: &mut [f64], n: usize, b: &mut [f64], columns: usize) -> Option<usize> {
    for k in 0..n {
        let size = |i: usize| a[i * n + k].abs();
        let pivot = (k..n).fold(k, |best, i| if size(i) > size(best) { i } else { best });
        if pivot != k {
            let (above, below) = two_rows(a, n, k, pivot);
            above.swap_with_slice(below);
            let (above, below) = two_rows(b, columns, k, pivot);
            above.swap_with_slice(below);
        }
        if a[k * n + k] == 0.0 {
            return Some(k);
        }
        for i in k + 1..n {
            let factor = -a[i * n + k] / a[k * n + k];
            let (above, below) = two_rows(a, n, k, i);
            add_multiple(&mut below[k..], factor, &above[k..]);
            let (above, below) = two_rows(b, columns, k, i);
            add_multiple(below, factor, above);
        }
    }
    for i in (0..n).rev() {
        for j in i + 1..n {
            let (row, other) = two_rows(b, columns, i, j);
            add_multiple(row, -a[i * n + j], other);
        }
        b[i * columns..(i + 1) * columns].iter_mut().for_each(|x| *x /= a[i * n + i]);
    }
    None
}
