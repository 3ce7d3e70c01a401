//! The exponential of matrices: a quotient of polynomials of degree 13 of the matrix, scaled by a power of two, and
//! repeated squares. Higham, "The scaling and squaring method for the matrix exponential revisited", 2005.

use super::factor::eliminate;
use super::{add_multiple, cubed, each, parts, read, squares, write};
use crate::extents;
use crate::scratch;
use crate::view::{TensorMut, TensorRef};

/// The coefficients of the numerator; those of the denominator have alternating signs.
const COEFFICIENTS: [f64; 14] = [
    64_764_752_532_480_000.0,
    32_382_376_266_240_000.0,
    7_771_770_303_897_600.0,
    1_187_353_796_428_800.0,
    129_060_195_264_000.0,
    10_559_470_521_600.0,
    670_442_572_800.0,
    33_522_128_640.0,
    1_323_241_920.0,
    40_840_800.0,
    960_960.0,
    16_380.0,
    182.0,
    1.0,
];

/// The largest norm for which the quotient is exact to the last place.
const NORM: f64 = 5.371_920_351_148_152;

/// `eᴬ` of each matrix `A`; NaN where an element of `A` is not finite. Panics if matrices are not square or `target`
/// has another shape.
pub fn matrix_exp(input: TensorRef<'_>, target: TensorMut<'_>) {
    let (count, n) = squares("matrix_exp", "input", input.shape());
    extents::shape("matrix_exp", "target", target.shape(), input.shape());
    let mut data = read(input);
    let done = each(parts(&mut data, count), cubed(n).saturating_mul(12), |a| {
        exponential(a, n);
        None
    });
    assert!(done.is_ok(), "every matrix has an exponential");
    write(&data, target);
}

fn exponential(a: &mut [f64], n: usize) {
    if !a.iter().all(|x| x.is_finite()) {
        a.fill(f64::NAN);
        return;
    }
    let sum_of_column = |column: usize| a.iter().skip(column).step_by(n).map(|x| x.abs()).sum::<f64>();
    let norm = (0..n).map(sum_of_column).fold(0.0, f64::max);
    let squares = (norm / NORM).log2().ceil().clamp(0.0, 2000.0);
    // In two steps: the reciprocal of a large power is zero.
    let half = (-0.5 * squares).exp2();
    a.iter_mut().for_each(|x| *x = *x * half * half);
    let [square, fourth, sixth] = powers(a, n);
    // The even and the odd terms, those from degree 7 on by one product more.
    let sum = |from: usize, fill: f64| {
        let mut sum: Vec<f64> = scratch::zeroed(n * n);
        for (power, i) in [(&square, from), (&fourth, from + 2), (&sixth, from + 4)] {
            add_multiple(&mut sum, COEFFICIENTS[i], power);
        }
        (0..n).for_each(|i| sum[i * n + i] += fill);
        sum
    };
    let with_high = |low: Vec<f64>, high: Vec<f64>| {
        let mut whole = product(&sixth, &high, n);
        add_multiple(&mut whole, 1.0, &low);
        whole
    };
    let odd = product(a, &with_high(sum(3, COEFFICIENTS[1]), sum(9, 0.0)), n);
    let even = with_high(sum(2, COEFFICIENTS[0]), sum(8, 0.0));
    let (mut below, mut above) = (even.clone(), even);
    add_multiple(&mut below, -1.0, &odd);
    add_multiple(&mut above, 1.0, &odd);
    // The denominator of a matrix of that norm is regular.
    eliminate(&mut below, n, &mut above, n);
    for _ in 0..squares as usize {
        above = product(&above, &above, n);
    }
    a.copy_from_slice(&above);
}

/// The second, fourth and sixth power.
fn powers(a: &[f64], n: usize) -> [Vec<f64>; 3] {
    let square = product(a, a, n);
    let fourth = product(&square, &square, n);
    let sixth = product(&square, &fourth, n);
    [square, fourth, sixth]
}

fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    let mut out: Vec<f64> = scratch::zeroed(n * n);
    for (out, row) in out.chunks_exact_mut(n.max(1)).zip(a.chunks_exact(n.max(1))) {
        for (factor, other) in row.iter().zip(b.chunks_exact(n)) {
            add_multiple(out, *factor, other);
        }
    }
    out
}
