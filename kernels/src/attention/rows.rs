//! What is done with the rows of tiles between their products.

use crate::vector::exponential::exp;
use crate::vector::{multiply_add, multiversion};

/// Sums and maxima of a row have so many parts, whatever the width of vectors is.
const LANES: usize = 16;

multiversion! {
    /// Turns rows of scores into exponentials less the largest score so far: `top` and `sum` of each row are brought up
    /// to date, and `factor` is what was summed before is to be multiplied by.
    pub(super) fn soften[FMA](
        scores: &mut [f32],
        columns: usize,
        top: &mut [f32],
        sum: &mut [f32],
        factor: &mut [f32],
    ) {
        for ((row, (top, sum)), factor) in
            scores.chunks_exact_mut(columns).zip(top.iter_mut().zip(sum.iter_mut())).zip(factor.iter_mut())
        {
            let mut most = [*top; LANES];
            let mut parts = row.chunks_exact(LANES);
            for part in &mut parts {
                for lane in 0..LANES {
                    // This way round a NaN is left out; it comes back as an exponential.
                    most[lane] = if part[lane] > most[lane] { part[lane] } else { most[lane] };
                }
            }
            for (most, score) in most.iter_mut().zip(parts.remainder()) {
                *most = if *score > *most { *score } else { *most };
            }
            let largest = most.iter().fold(f32::NEG_INFINITY, |most, one| if *one > most { *one } else { most });
            // A row of which nothing was seen has no exponentials but 0.
            let base = if largest == f32::NEG_INFINITY { 0.0 } else { largest };
            let mut sums = [0.0f32; LANES];
            let mut parts = row.chunks_exact_mut(LANES);
            for part in &mut parts {
                for lane in 0..LANES {
                    part[lane] = exp::<FMA>(part[lane] - base);
                    sums[lane] += part[lane];
                }
            }
            for (sum, score) in sums.iter_mut().zip(parts.into_remainder()) {
                *score = exp::<FMA>(*score - base);
                *sum += *score;
            }
            *factor = exp::<FMA>(*top - base);
            *sum = multiply_add::<FMA>(*sum, *factor, sums.iter().sum::<f32>());
            *top = largest;
        }
    }
}

multiversion! {
    /// Multiplies each row by its factor.
    pub(super) fn scale_rows[FMA](rows: &mut [f32], columns: usize, factor: &[f32]) {
        let _ = FMA;
        for (row, factor) in rows.chunks_exact_mut(columns).zip(factor) {
            if *factor != 1.0 {
                row.iter_mut().for_each(|value| *value *= factor);
            }
        }
    }
}

multiversion! {
    /// Weights from scores, `exp(score - log_sum)`, and the gradients of scores from those of weights,
    /// `weight · (d_weight - delta) · scale`, each in the place of the other.
    pub(super) fn gradients[FMA](
        scores: &mut [f32],
        d_weights: &mut [f32],
        columns: usize,
        log_sums: &[f32],
        deltas: &[f32],
        scale: f32,
    ) {
        let rows = scores.chunks_exact_mut(columns).zip(d_weights.chunks_exact_mut(columns));
        for ((scores, d_weights), (log_sum, delta)) in rows.zip(log_sums.iter().zip(deltas)) {
            for (score, d_weight) in scores.iter_mut().zip(d_weights) {
                let weight = exp::<FMA>(*score - log_sum);
                *score = weight;
                *d_weight = weight * (*d_weight - delta) * scale;
            }
        }
    }
}

multiversion! {
    /// Adds `Σ exp(score - log_sum) · d_weight` of each row to its sum.
    pub(super) fn add_weighted[FMA](
        scores: &[f32],
        d_weights: &[f32],
        columns: usize,
        log_sums: &[f32],
        sums: &mut [f32],
    ) {
        let rows = scores.chunks_exact(columns).zip(d_weights.chunks_exact(columns));
        for ((scores, d_weights), (log_sum, sum)) in rows.zip(log_sums.iter().zip(sums)) {
            let mut sums = [0.0f32; LANES];
            let (mut a, mut b) = (scores.chunks_exact(LANES), d_weights.chunks_exact(LANES));
            for (a, b) in (&mut a).zip(&mut b) {
                for lane in 0..LANES {
                    sums[lane] = multiply_add::<FMA>(exp::<FMA>(a[lane] - log_sum), b[lane], sums[lane]);
                }
            }
            for (sum, (a, b)) in sums.iter_mut().zip(a.remainder().iter().zip(b.remainder())) {
                *sum = multiply_add::<FMA>(exp::<FMA>(*a - log_sum), *b, *sum);
            }
            *sum += sums.iter().sum::<f32>();
        }
    }
}

multiversion! {
    /// `Σ left · right` of two rows of one length.
    pub(super) fn dot[FMA](left: &[f32], right: &[f32]) -> f32 {
        let mut sums = [0.0f32; LANES];
        let (mut a, mut b) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
        for (a, b) in (&mut a).zip(&mut b) {
            for lane in 0..LANES {
                sums[lane] = multiply_add::<FMA>(a[lane], b[lane], sums[lane]);
            }
        }
        for (sum, (a, b)) in sums.iter_mut().zip(a.remainder().iter().zip(b.remainder())) {
            *sum = multiply_add::<FMA>(*a, *b, *sum);
        }
        sums.iter().sum()
    }
}
