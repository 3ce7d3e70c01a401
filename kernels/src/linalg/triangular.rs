//! Equations of triangles.

use super::{add_multiple, each, matrices, parts, read, squares, write};
use crate::extents;
use crate::view::{TensorMut, TensorRef};

/// The solution `X` of `A · X = B` for each triangle `A`, of which only the part on and above the diagonal (`upper`) or
/// on and below it is read; with `unit_diagonal` the diagonal counts as ones. A zero on it gives infinities and NaN.
/// Panics unless `A` is square, `B` has its rows and leading extents, and `target` the shape of `B`.
pub fn triangular_solve(a: TensorRef<'_>, b: TensorRef<'_>, upper: bool, unit_diagonal: bool, target: TensorMut<'_>) {
    let (count, n) = squares("triangular_solve", "a", a.shape());
    let (_, _, columns) = matrices("triangular_solve", "b", b.shape());
    super::shaped("triangular_solve", "b", b.shape(), a.shape(), &[n, columns]);
    extents::shape("triangular_solve", "target", target.shape(), b.shape());
    let mut triangles = read(a);
    let mut data = read(b);
    let tasks = parts(&mut triangles, count).into_iter().zip(parts(&mut data, count)).collect();
    let solved = each(tasks, n.saturating_mul(n).saturating_mul(columns) / 2, |(a, x)| {
        for step in 0..n {
            let i = if upper { n - 1 - step } else { step };
            let known = if upper { i + 1..n } else { 0..i };
            for j in known {
                let (first, second) = super::two_rows(x, columns, i.min(j), i.max(j));
                let (row, other) = if i < j { (first, second) } else { (second, first) };
                add_multiple(row, -a[i * n + j], other);
            }
            if !unit_diagonal {
                x[i * columns..(i + 1) * columns].iter_mut().for_each(|x| *x /= a[i * n + i]);
            }
        }
        None
    });
    assert!(solved.is_ok(), "a triangle is always solved");
    write(&data, target);
}
