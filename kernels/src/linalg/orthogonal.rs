//! QR by reflections.

use super::{add_multiple, each, matrices, parts, read, reflect, shaped, write};
use crate::scratch;
use crate::view::{TensorMut, TensorRef};

/// `Q` with orthonormal columns and the upper triangle `R` with `Q · R = A`, for each matrix `A` of `m` rows and `n`
/// columns. The shapes of the results choose the form: `[..., m, k]` and `[..., k, n]`, where `k` is `min(m, n)` or
/// `m`. By Householder's reflections with LAPACK's signs: an element of the diagonal of `R` has the other sign than
/// what the reflections before it made of that of `A`, unless what is below is zero already.
///
/// Panics if the results have other shapes.
pub fn qr(input: TensorRef<'_>, q: TensorMut<'_>, r: TensorMut<'_>) {
    let (count, m, n) = matrices("qr", "input", input.shape());
    let steps = m.min(n);
    let (_, _, k) = matrices("qr", "q", q.shape());
    assert!(k == steps || k == m, "qr: q has {k} columns, expected {steps} or {m}");
    shaped("qr", "q", q.shape(), input.shape(), &[m, k]);
    shaped("qr", "r", r.shape(), input.shape(), &[k, n]);
    let data = read(input);
    let mut orthogonal = scratch::zeroed::<f64>(count * m * k);
    let mut triangle = scratch::zeroed::<f64>(count * k * n);
    let outs = parts(&mut orthogonal, count).into_iter().zip(parts(&mut triangle, count));
    let tasks = outs.enumerate().collect();
    let cost = m.saturating_mul(n).saturating_mul(steps);
    let done = each(tasks, cost, |(i, (q, r))| {
        // Columns are rows here, so that reflections read neighbours.
        let a = &data[i * m * n..(i + 1) * m * n];
        let mut columns: Vec<f64> = scratch::zeroed(m * n);
        for (row, values) in a.chunks_exact(n.max(1)).enumerate() {
            values.iter().enumerate().for_each(|(column, x)| columns[column * m + row] = *x);
        }
        let mut taus: Vec<f64> = scratch::zeroed(steps);
        for step in 0..steps {
            let (before, behind) = columns.split_at_mut((step + 1) * m);
            let own = &mut before[step * m + step..];
            taus[step] = reflect(own);
            for other in behind.chunks_exact_mut(m) {
                apply(own, taus[step], &mut other[step..]);
            }
        }
        for column in 0..n {
            for row in 0..k.min(column + 1) {
                r[row * n + column] = columns[column * m + row];
            }
        }
        let mut own: Vec<f64> = scratch::zeroed(m * k);
        (0..k).for_each(|column| own[column * m + column] = 1.0);
        for step in (0..steps).rev() {
            let vector = &columns[step * m + step..(step + 1) * m];
            for column in own.chunks_exact_mut(m) {
                apply(vector, taus[step], &mut column[step..]);
            }
        }
        for (column, values) in own.chunks_exact(m.max(1)).enumerate() {
            values.iter().enumerate().for_each(|(row, x)| q[row * k + column] = *x);
        }
        None
    });
    assert!(done.is_ok(), "every matrix has factors");
    write(&orthogonal, q);
    write(&triangle, r);
}

/// Reflects `x` by `1 - tau · v · vᵀ`, where `v` is 1 and then what `vector` has behind its first element.
fn apply(vector: &[f64], tau: f64, x: &mut [f64]) {
    if tau == 0.0 {
        return;
    }
    let (Some((_, tail)), Some((first, rest))) = (vector.split_first(), x.split_first_mut()) else { return };
    let factor = tau * (*first + super::dot(tail, rest));
    *first -= factor;
    add_multiple(rest, -factor, tail);
}
