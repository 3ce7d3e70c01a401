//! Factorizations and solutions of many small matrices: the last two dimensions are the matrices, those before them
//! count these. Everything is computed in f64 and rounded once to the element type. One thread works on a matrix, so
//! that the bits do not depend on the number of threads.
//!
//! Vectors that have no sign of their own (eigenvectors, singular vectors) get one: see `settled_sign`.

mod eigen;
mod exponential;
mod factor;
mod orthogonal;
mod singular;
mod triangular;

use rayon::prelude::*;

use crate::dtype::Element;
use crate::elementwise::convert;
use crate::extents;
use crate::scratch;
use crate::view::{TensorMut, TensorRef, contiguous_strides};

pub use eigen::eigh;
pub use exponential::matrix_exp;
pub use factor::{cholesky, lu, solve};
pub use orthogonal::qr;
pub use singular::svd;
pub use triangular::triangular_solve;

/// The first matrix of the batch that an algorithm cannot go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The number of the matrix in the batch, row-major.
    pub matrix: usize,
    /// The row and column where it fails, from 0.
    pub place: usize,
}

/// Multiplications from which on matrices are spread over threads.
const THREADED: usize = 1 << 16;

/// The number of matrices, and the rows and columns of each.
#[track_caller]
fn matrices(function: &str, operand: &str, shape: &[usize]) -> (usize, usize, usize) {
    let [batch @ .., rows, columns] = shape else {
        panic!("{function}: {operand} has shape {shape:?}, expected at least two dimensions");
    };
    (batch.iter().product(), *rows, *columns)
}

/// As [`matrices`], of square ones.
#[track_caller]
fn squares(function: &str, operand: &str, shape: &[usize]) -> (usize, usize) {
    let (count, rows, columns) = matrices(function, operand, shape);
    assert!(rows == columns, "{function}: {operand} has shape {shape:?}, expected square matrices");
    (count, rows)
}

/// Fails unless `tensor` has the leading extents of `like` and these rows and columns.
#[track_caller]
fn shaped(function: &str, operand: &str, shape: &[usize], like: &[usize], own: &[usize]) {
    let batch = &like[..like.len() - 2];
    extents::shape(function, operand, shape, &[batch, own].concat());
}

/// All elements in row-major order.
fn read(tensor: TensorRef<'_>) -> Vec<f64> {
    let mut data = scratch::zeroed::<f64>(tensor.len());
    let strides = contiguous_strides(tensor.shape());
    convert(tensor, TensorMut::from_slice(&mut data, tensor.shape(), &strides));
    data
}

/// Rounds values in row-major order to the elements of `target`.
fn write<T: Element>(data: &[T], target: TensorMut<'_>) {
    let shape = target.shape().to_vec();
    let strides = contiguous_strides(&shape);
    convert(TensorRef::from_slice(data, &shape, &strides), target);
}

/// As many equal parts, one for each matrix; they may be empty.
fn parts<T>(data: &mut [T], count: usize) -> Vec<&mut [T]> {
    let size = data.len() / count.max(1);
    let mut rest = data;
    let mut parts = scratch::room(count);
    for _ in 0..count {
        let (part, behind) = std::mem::take(&mut rest).split_at_mut(size);
        parts.push(part);
        rest = behind;
    }
    parts
}

/// Works on each matrix, whose cost is about `cost` multiplications. `work` returns the place where it fails.
fn each<T: Send>(tasks: Vec<T>, cost: usize, work: impl Fn(T) -> Option<usize> + Send + Sync) -> Result<(), Fault> {
    let places: Vec<Option<usize>> = match tasks.len() > 1 && cost.saturating_mul(tasks.len()) >= THREADED {
        true => tasks.into_par_iter().map(work).collect(),
        false => tasks.into_iter().map(work).collect(),
    };
    let first = places.iter().enumerate().find_map(|(matrix, place)| place.map(|place| Fault { matrix, place }));
    first.map_or(Ok(()), Err)
}

/// The cost of an algorithm of the third order.
fn cubed(extent: usize) -> usize {
    extent.saturating_mul(extent).saturating_mul(extent)
}

/// The largest magnitude; NaN if one element is not finite.
fn largest(data: &[f64]) -> f64 {
    if data.iter().all(|x| x.is_finite()) { data.iter().fold(0.0, |most, x| x.abs().max(most)) } else { f64::NAN }
}

/// Makes a square matrix symmetric: the mean of itself and its transpose.
fn symmetrize(a: &mut [f64], n: usize) {
    for i in 0..n {
        for j in 0..i {
            // Halves first, so that the sum does not overflow.
            let mean = 0.5 * a[i * n + j] + 0.5 * a[j * n + i];
            (a[i * n + j], a[j * n + i]) = (mean, mean);
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `a += factor · b`.
fn add_multiple(a: &mut [f64], factor: f64, b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += factor * b);
}

/// Two rows of a row-major matrix with rows of `length`, the first above the second.
fn two_rows(data: &mut [f64], length: usize, first: usize, second: usize) -> (&mut [f64], &mut [f64]) {
    let (above, below) = data.split_at_mut(second * length);
    (&mut above[first * length..(first + 1) * length], &mut below[..length])
}

/// `(a, b)` becomes `(cos · a + sin · b, cos · b - sin · a)`.
fn rotate((a, b): (&mut [f64], &mut [f64]), cos: f64, sin: f64) {
    for (a, b) in a.iter_mut().zip(b) {
        (*a, *b) = (cos * *a + sin * *b, cos * *b - sin * *a);
    }
}

/// Part of the largest magnitude from which on an element settles the sign of a vector. No ratio of small integers is
/// near to it: elements of structured matrices are often equal in magnitude, and roundings would choose among them.
const SETTLES: f64 = 0.4142;

/// The sign that a vector gets: 1 or -1, so that its first element whose magnitude is at least 0.4142 of the largest is
/// positive.
fn settled_sign(vector: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = vector.clone().fold(0.0, |most: f64, x| most.max(x.abs()));
    let mut vector = vector;
    if vector.find(|x| x.abs() >= SETTLES * most).is_some_and(|x| x < 0.0) { -1.0 } else { 1.0 }
}

/// A reflection `1 - tau · v · vᵀ` with `v[0] = 1` that makes `[beta, 0, 0, ...]` of `x`, which becomes `v` but for its
/// first element, `beta`; as LAPACK's `larfg`: `beta` has the other sign than `x[0]`, and what is zero but for its
/// first element stays. Returns `tau`.
fn reflect(x: &mut [f64]) -> f64 {
    let Some((alpha, tail)) = x.split_first_mut() else { return 0.0 };
    let most = tail.iter().fold(alpha.abs(), |most, x| most.max(x.abs()));
    if tail.iter().all(|x| *x == 0.0) {
        return 0.0;
    }
    let scaled = tail.iter().fold((*alpha / most).powi(2), |sum, x| sum + (x / most).powi(2));
    let beta = -(most * scaled.sqrt()).copysign(*alpha);
    let (tau, pivot) = ((beta - *alpha) / beta, *alpha - beta);
    tail.iter_mut().for_each(|x| *x /= pivot);
    *alpha = beta;
    tau
}

/// Makes the rows from `known` on, of `length` elements each, orthonormal to those before and to one another, which
/// are orthonormal: each is the unit vector that is farthest from the rows before it, less its projection on them.
fn complete(rows: &mut [f64], length: usize, known: usize) {
    for next in known..rows.len() / length.max(1) {
        let (before, rest) = rows.split_at_mut(next * length);
        let row = &mut rest[..length];
        let within = |column: usize| before.iter().skip(column).step_by(length).map(|x| x * x).sum::<f64>();
        // The first of equal ones, up to roundings.
        let (mut farthest, mut least) = (0, f64::INFINITY);
        for column in 0..length {
            let within = within(column);
            if within < least - 1e-9 {
                (farthest, least) = (column, within);
            }
        }
        row.fill(0.0);
        row[farthest] = 1.0;
        // What roundings leave after the first time is gone after the second.
        for _ in 0..2 {
            for other in before.chunks_exact(length) {
                add_multiple(row, -dot(row, other), other);
            }
        }
        let size = dot(row, row).sqrt() * settled_sign(row.iter().copied());
        row.iter_mut().for_each(|x| *x /= size);
    }
}

#[cfg(test)]
mod tests;
