//! Sums over the paths of a lattice, in logarithms.

use rayon::prelude::*;

use crate::dtype::{DType, Element};
use crate::elementwise::convert;
use crate::extents;
use crate::parallel::THREADING_THRESHOLD;
use crate::scratch;
use crate::view::{TensorMut, TensorRef, contiguous_strides};

/// `target[n, t, s]`: the logarithm of the sum over all paths that are in state s at step t, of the products of what
/// they pass, whose logarithms are `emissions[n, t, s]`. A path begins in state 0 or 1; from each step to the next it
/// stays in its state, goes to the next one, or to the one after it if `skips[n, s]` of that one is not zero.
///
/// `emissions` and `target` [N, T, S] hold f32 or f64, `skips` [N, S] booleans or bytes. A row is summed in f64.
/// Panics if anything else is the case, or if an operand shares memory with `target`.
pub fn log_path_sums(emissions: TensorRef<'_>, skips: TensorRef<'_>, target: TensorMut<'_>) {
    let shape = emissions.shape();
    extents::rank("log_path_sums", "emissions", shape, 3);
    extents::shape("log_path_sums", "skips", skips.shape(), &[shape[0], shape[2]]);
    extents::shape("log_path_sums", "target", target.shape(), shape);
    assert!(
        matches!(skips.dtype(), DType::Bool | DType::U8),
        "log_path_sums: skips is {}, expected booleans or bytes",
        skips.dtype()
    );
    extents::dtype("log_path_sums", "target", target.dtype(), emissions.dtype());
    extents::apart("log_path_sums", "emissions", &emissions, &target);
    extents::apart("log_path_sums", "skips", &skips, &target);
    match emissions.dtype() {
        DType::F64 => in_type::<f64>(emissions, skips, target),
        DType::F32 => in_type::<f32>(emissions, skips, target),
        other => panic!("log_path_sums: emissions is {other}, expected f32 or f64"),
    }
}

/// A row-major copy as `T`.
fn copy<T: Element>(tensor: TensorRef<'_>) -> Vec<T> {
    let mut data = scratch::zeroed::<T>(tensor.len());
    convert(tensor, TensorMut::from_slice(&mut data, tensor.shape(), &contiguous_strides(tensor.shape())));
    data
}

fn in_type<T: Element>(emissions: TensorRef<'_>, skips: TensorRef<'_>, target: TensorMut<'_>) {
    let shape = emissions.shape().to_vec();
    let (steps, states) = (shape[1], shape[2]);
    if emissions.is_empty() {
        return;
    }
    let (mut sums, skips) = (copy::<T>(emissions), copy::<u8>(skips));
    let sequences = (steps * states, states);
    if sums.len() < THREADING_THRESHOLD / 8 {
        let all = sums.chunks_exact_mut(sequences.0).zip(skips.chunks_exact(sequences.1));
        all.for_each(|(sums, skips)| sequence(sums, skips));
    } else {
        let all = sums.par_chunks_exact_mut(sequences.0).zip(skips.par_chunks_exact(sequences.1));
        all.for_each(|(sums, skips)| sequence(sums, skips));
    }
    convert(TensorRef::from_slice(&sums, &shape, &contiguous_strides(&shape)), target);
}

/// The rows of one sequence, in place of what its states emit.
fn sequence<T: Element>(rows: &mut [T], skips: &[u8]) {
    let states = skips.len();
    let mut before = scratch::zeroed::<f64>(states);
    let mut row = scratch::zeroed::<f64>(states);
    for (t, emitted) in rows.chunks_exact_mut(states).enumerate() {
        for (s, skip) in skips.iter().enumerate() {
            let from = |back: usize| if back <= s { before[s - back] } else { f64::NEG_INFINITY };
            let skipped = if *skip != 0 { from(2) } else { f64::NEG_INFINITY };
            let up_to = match t {
                0 if s < 2 => 0.0,
                0 => f64::NEG_INFINITY,
                _ => log_sum([from(0), from(1), skipped]),
            };
            row[s] = up_to + emitted[s].to_f64();
            emitted[s] = T::from_f64(row[s]);
        }
        std::mem::swap(&mut before, &mut row);
    }
}

/// The logarithm of the sum of three exponentials, whatever their size; NaN if there is one.
fn log_sum(exponents: [f64; 3]) -> f64 {
    let most = exponents.into_iter().fold(f64::NEG_INFINITY, f64::max);
    if most.is_infinite() {
        return if exponents.iter().any(|x| x.is_nan()) { f64::NAN } else { most };
    }
    most + exponents.into_iter().map(|x| (x - most).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every path of three steps, one by one.
    #[test]
    fn paths_are_summed() {
        let emissions: Vec<f64> = (0..12).map(|i| ((i * 7 % 5) as f64 - 3.0) * 0.4).collect();
        let skips = [1u8, 1, 0, 1].map(|x| x != 0);
        let bits = skips.map(u8::from);
        let mut out = vec![0.0; 12];
        log_path_sums(
            TensorRef::from_slice(&emissions, &[1, 3, 4], &[12, 4, 1]),
            TensorRef::from_slice(&bits, &[1, 4], &[4, 1]),
            TensorMut::from_slice(&mut out, &[1, 3, 4], &[12, 4, 1]),
        );
        let may = |from: usize, to: usize| from == to || from + 1 == to || (from + 2 == to && skips[to]);
        for s in 0..4 {
            let mut sum = 0.0;
            for (a, b) in (0..2).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| may(*a, *b) && may(*b, s)) {
                sum += (emissions[a] + emissions[4 + b] + emissions[8 + s]).exp();
            }
            assert!((out[8 + s] - sum.ln()).abs() < 1e-12, "state {s}: {} and {}", out[8 + s], sum.ln());
        }
    }

    #[test]
    fn nothing_leads_to_a_state_too_far() {
        assert_eq!(log_sum([f64::NEG_INFINITY; 3]), f64::NEG_INFINITY);
        assert!(log_sum([f64::NEG_INFINITY, f64::NAN, 0.0]).is_nan());
        assert!((log_sum([-1000.0; 3]) - (3f64.ln() - 1000.0)).abs() < 1e-12);
    }
}
