//! Singular values by rotations of columns until they are orthogonal: Hestenes, "Inversion of matrices by
//! biorthogonalization and related results", 1958. Small singular values keep their digits.

use super::{
    Fault, complete, dot, each, largest, matrices, parts, read, rotate, settled_sign, shaped, two_rows, write,
};
use crate::scratch;
use crate::view::{TensorMut, TensorRef};

/// Rounds over all pairs of columns before the search is given up; ten are usual.
const ROUNDS: usize = 60;
/// The square of a line that is nothing, where the largest element of the matrix is about one: each rotation leaves
/// less of a line that depends on others, and what underflows would never be orthogonal.
const NOTHING: f64 = 1e-200;

/// `U`, the singular values `S`, descending, and `Vᵀ` of each matrix `A` of `m` rows and `n` columns, with `A = U · S ·
/// Vᵀ` and orthonormal columns of `U` and rows of `Vᵀ`. The shapes of the results choose the form: `[..., m, k]`,
/// `[..., k]` and `[..., k, n]` with `k = min(m, n)`, or all `m` columns of `U` and all `n` rows of `Vᵀ`. The first
/// element of a row of `Vᵀ` whose magnitude is at least 0.4142 of its largest is positive; that of a column of `U` that
/// belongs to no row of `Vᵀ` likewise. Panics if the results have other shapes.
///
/// # Errors
/// The first matrix with an element that is not finite (place 0), or for which the search is given up (place 1).
pub fn svd(input: TensorRef<'_>, u: TensorMut<'_>, s: TensorMut<'_>, vh: TensorMut<'_>) -> Result<(), Fault> {
    let (count, m, n) = matrices("svd", "input", input.shape());
    let k = m.min(n);
    let ((_, _, left), (_, right, _)) = (matrices("svd", "u", u.shape()), matrices("svd", "vh", vh.shape()));
    assert!((left == m || left == k) && (right == n || right == k), "svd: u has {left} columns, vh {right} rows");
    shaped("svd", "u", u.shape(), input.shape(), &[m, left]);
    shaped("svd", "s", s.shape(), input.shape(), &[k]);
    shaped("svd", "vh", vh.shape(), input.shape(), &[right, n]);
    let data = read(input);
    let mut lefts = scratch::zeroed::<f64>(count * m * left);
    let mut values = scratch::zeroed::<f64>(count * k);
    let mut rights = scratch::zeroed::<f64>(count * right * n);
    let outs = parts(&mut lefts, count).into_iter().zip(parts(&mut values, count)).zip(parts(&mut rights, count));
    let cost = m.saturating_mul(n).saturating_mul(k).saturating_mul(8);
    each(outs.enumerate().collect(), cost, |(i, ((u, s), vh))| {
        decompose(&data[i * m * n..(i + 1) * m * n], [m, n, left, right], u, s, vh)
    })?;
    write(&lefts, u);
    write(&values, s);
    write(&rights, vh);
    Ok(())
}

fn decompose(
    a: &[f64],
    [m, n, left, right]: [usize; 4],
    u: &mut [f64],
    s: &mut [f64],
    vh: &mut [f64],
) -> Option<usize> {
    let k = s.len();
    let size = largest(a);
    if size.is_nan() {
        return Some(0);
    }
    let scale = if size > 0.0 { size.log2().floor().clamp(-1000.0, 1000.0).exp2() } else { 1.0 };
    // The shorter side is rotated: its lines, as rows of `long` elements.
    let tall = m >= n;
    let long = m.max(n);
    let mut lines: Vec<f64> = scratch::zeroed(k * long);
    for line in 0..k {
        for at in 0..long {
            let from = if tall { at * n + line } else { line * n + at };
            lines[line * long + at] = a[from] / scale;
        }
    }
    let mut turns: Vec<f64> = scratch::zeroed(k * k);
    (0..k).for_each(|i| turns[i * k + i] = 1.0);
    if !orthogonalize(&mut lines, &mut turns, k, long) {
        return Some(1);
    }
    let norms: Vec<f64> =
        scratch::collected(lines.chunks_exact(long.max(1)).take(k).map(|line| dot(line, line).sqrt()));
    let mut order: Vec<usize> = scratch::collected(0..k);
    order.sort_by(|i, j| norms[*j].total_cmp(&norms[*i]));
    // Lines that are roundings have no direction.
    let least = order.first().map_or(0.0, |first| norms[*first]) * f64::EPSILON * long as f64;
    let sizes = [if tall { left } else { right }, if tall { right } else { left }];
    let mut own: Vec<f64> = scratch::zeroed(sizes[0] * long);
    let mut other: Vec<f64> = scratch::zeroed(sizes[1] * k);
    let mut known = 0;
    for (at, from) in order.into_iter().enumerate() {
        s[at] = norms[from] * scale;
        other[at * k..(at + 1) * k].copy_from_slice(&turns[from * k..(from + 1) * k]);
        if norms[from] > least {
            known = at + 1;
            let line = &lines[from * long..(from + 1) * long];
            own[at * long..(at + 1) * long].iter_mut().zip(line).for_each(|(to, x)| *to = x / norms[from]);
        }
    }
    complete(&mut own, long, known);
    // Signs, by the rows of the transpose of V.
    for at in 0..k {
        let (own, other) = (&mut own[at * long..(at + 1) * long], &mut other[at * k..(at + 1) * k]);
        let (rows, columns) = if tall { (other, own) } else { (own, other) };
        let sign = settled_sign(rows.iter().copied());
        rows.iter_mut().chain(columns).for_each(|x| *x *= sign);
    }
    let (columns, rows) = if tall { (&own, &other) } else { (&other, &own) };
    vh.copy_from_slice(rows);
    for (column, values) in columns.chunks_exact(m.max(1)).take(left).enumerate() {
        values.iter().enumerate().for_each(|(row, x)| u[row * left + column] = *x);
    }
    None
}

/// Rotates pairs of lines until all are orthogonal, and the rows of `turns` with them. Whether that was reached.
fn orthogonalize(lines: &mut [f64], turns: &mut [f64], count: usize, length: usize) -> bool {
    for _ in 0..ROUNDS {
        let mut orthogonal = true;
        for first in 0..count {
            for second in first + 1..count {
                let (a, b) = two_rows(lines, length, first, second);
                let (alpha, beta, gamma) = (dot(a, a), dot(b, b), dot(a, b));
                if gamma == 0.0
                    || alpha.min(beta) < NOTHING
                    || gamma.abs() <= 4.0 * f64::EPSILON * (alpha * beta).sqrt()
                {
                    continue;
                }
                orthogonal = false;
                let zeta = (beta - alpha) / (2.0 * gamma);
                let tan = -zeta.signum() / (zeta.abs() + 1f64.hypot(zeta));
                let cos = 1.0 / 1f64.hypot(tan);
                rotate((a, b), cos, cos * tan);
                rotate(two_rows(turns, count, first, second), cos, cos * tan);
            }
        }
        if orthogonal {
            return true;
        }
    }
    false
}
