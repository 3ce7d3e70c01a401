//! Eigenvalues and eigenvectors of symmetric matrices: reflections make a tridiagonal matrix, and rotations with
//! Wilkinson's shift make that diagonal (Golub and Van Loan, "Matrix Computations", 8.3).

use super::{
    Fault, add_multiple, cubed, dot, each, largest, parts, read, reflect, rotate, settled_sign, shaped, squares,
    symmetrize, two_rows, write,
};
use crate::scratch;
use crate::view::{TensorMut, TensorRef};

/// Steps for each eigenvalue before the search is given up; two or three are usual.
const STEPS: usize = 60;

/// The eigenvalues of `(A + Aᵀ) / 2` for each matrix `A`, ascending, and orthonormal eigenvectors as columns. The first
/// element of an eigenvector whose magnitude is at least 0.4142 of its largest is positive. A matrix with elements that
/// are not finite has NaN for all results. Panics if the results are not `[..., n]` and `[..., n, n]`.
///
/// # Errors
/// A matrix for which the search is given up, and the number of the eigenvalue.
pub fn eigh(input: TensorRef<'_>, values: TensorMut<'_>, vectors: TensorMut<'_>) -> Result<(), Fault> {
    let (count, n) = squares("eigh", "input", input.shape());
    shaped("eigh", "values", values.shape(), input.shape(), &[n]);
    shaped("eigh", "vectors", vectors.shape(), input.shape(), &[n, n]);
    let mut data = read(input);
    let mut diagonal = scratch::zeroed::<f64>(count * n);
    let tasks = parts(&mut data, count).into_iter().zip(parts(&mut diagonal, count)).collect();
    each(tasks, cubed(n).saturating_mul(4), |(a, values)| decompose(a, values))?;
    write(&diagonal, values);
    write(&data, vectors);
    Ok(())
}

/// Makes the eigenvectors of a matrix, and its eigenvalues. Returns the number of the one that is not found.
fn decompose(a: &mut [f64], values: &mut [f64]) -> Option<usize> {
    let n = values.len();
    let size = largest(a);
    if size.is_nan() {
        a.fill(f64::NAN);
        values.fill(f64::NAN);
        return None;
    }
    // A power of two: squares neither overflow nor vanish, and no digit is lost.
    let scale = if size > 0.0 { size.log2().floor().clamp(-1000.0, 1000.0).exp2() } else { 1.0 };
    a.iter_mut().for_each(|x| *x /= scale);
    symmetrize(a, n);
    let mut beside: Vec<f64> = scratch::zeroed(n);
    let mut rows = tridiagonal(a, values, &mut beside);
    if let Some(place) = diagonalize(values, &mut beside, &mut rows) {
        return Some(place);
    }
    let mut order: Vec<usize> = scratch::collected(0..n);
    order.sort_by(|i, j| values[*i].total_cmp(&values[*j]));
    let sorted: Vec<f64> = scratch::collected(order.iter().map(|i| values[*i] * scale));
    values.copy_from_slice(&sorted);
    for (column, from) in order.into_iter().enumerate() {
        let vector = &rows[from * n..(from + 1) * n];
        let sign = settled_sign(vector.iter().copied());
        vector.iter().enumerate().for_each(|(row, x)| a[row * n + column] = sign * x);
    }
    None
}

/// Reflects a symmetric matrix until it is tridiagonal: its diagonal, what is beside it, and the transpose of the
/// orthogonal matrix `Q` with `A = Q · T · Qᵀ`.
fn tridiagonal(a: &mut [f64], diagonal: &mut [f64], beside: &mut [f64]) -> Vec<f64> {
    let n = diagonal.len();
    let mut taus: Vec<f64> = scratch::zeroed(n);
    let mut projected: Vec<f64> = scratch::zeroed(n);
    for k in 0..n.saturating_sub(2) {
        // Row k is column k; its part behind the diagonal becomes the reflection.
        let (above, below) = a.split_at_mut((k + 1) * n);
        let vector = &mut above[k * n + k + 1..];
        taus[k] = reflect(vector);
        beside[k] = vector[0];
        if taus[k] == 0.0 {
            continue;
        }
        vector[0] = 1.0;
        let inner = &mut projected[k + 1..];
        for (row, projected) in below.chunks_exact(n).zip(inner.iter_mut()) {
            *projected = taus[k] * dot(&row[k + 1..], vector);
        }
        let half = 0.5 * taus[k] * dot(inner, vector);
        add_multiple(inner, -half, vector);
        for (i, row) in below.chunks_exact_mut(n).enumerate() {
            add_multiple(&mut row[k + 1..], -vector[i], inner);
            add_multiple(&mut row[k + 1..], -inner[i], vector);
        }
    }
    if n >= 2 {
        beside[n - 2] = a[(n - 2) * n + n - 1];
    }
    (0..n).for_each(|i| diagonal[i] = a[i * n + i]);
    // The transpose of a product of reflections: each is applied to the rows from the right, the last first.
    let mut rows: Vec<f64> = scratch::zeroed(n * n);
    (0..n).for_each(|i| rows[i * n + i] = 1.0);
    for k in (0..n.saturating_sub(2)).rev().filter(|k| taus[*k] != 0.0) {
        let vector = &a[k * n + k + 1..(k + 1) * n];
        for row in rows.chunks_exact_mut(n) {
            let factor = taus[k] * dot(&row[k + 1..], vector);
            add_multiple(&mut row[k + 1..], -factor, vector);
        }
    }
    rows
}

/// Rotates a tridiagonal matrix until it is diagonal, and the rows with it.
fn diagonalize(diagonal: &mut [f64], beside: &mut [f64], rows: &mut [f64]) -> Option<usize> {
    let n = diagonal.len();
    let mut high = n.saturating_sub(1);
    let mut steps = 0;
    while high > 0 {
        let vanishes = |i: usize| {
            let around = diagonal[i].abs() + diagonal[i + 1].abs();
            beside[i].abs() <= f64::EPSILON * around || beside[i].abs() < f64::MIN_POSITIVE
        };
        if vanishes(high - 1) {
            (high, steps) = (high - 1, 0);
            continue;
        }
        let low = (0..high).rev().find(|i| vanishes(*i)).map_or(0, |i| i + 1);
        steps += 1;
        if steps > STEPS {
            return Some(high);
        }
        // The eigenvalue of the last two rows that is nearer to the last element.
        let (half, b) = (0.5 * (diagonal[high - 1] - diagonal[high]), beside[high - 1]);
        let shift = diagonal[high] - b * (b / (half + half.hypot(b).copysign(half)));
        let (mut x, mut z) = (diagonal[low] - shift, beside[low]);
        for k in low..high {
            let size = x.hypot(z);
            let (cos, sin) = if size == 0.0 { (1.0, 0.0) } else { (x / size, z / size) };
            if k > low {
                beside[k - 1] = size;
            }
            let (a, b, c) = (diagonal[k], beside[k], diagonal[k + 1]);
            let twice = 2.0 * cos * sin * b;
            diagonal[k] = cos * cos * a + twice + sin * sin * c;
            diagonal[k + 1] = sin * sin * a - twice + cos * cos * c;
            beside[k] = cos * sin * (c - a) + (cos * cos - sin * sin) * b;
            if k + 1 < high {
                (x, z) = (beside[k], sin * beside[k + 1]);
                beside[k + 1] *= cos;
            }
            rotate(two_rows(rows, n, k, k + 1), cos, sin);
        }
    }
    None
}
