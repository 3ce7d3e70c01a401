//! Row operations against plain loops in f64.

use super::*;
use crate::indexing::IndexOutOfRange;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| (((i + seed) * 2_654_435_761) % 4093) as f32 / 1024.0 - 2.0).collect()
}

fn near(got: &[f32], exact: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), exact.len());
    for (index, (&got, &exact)) in got.iter().zip(exact).enumerate() {
        assert!(
            (f64::from(got) - exact).abs() <= tolerance * exact.abs().max(1.0),
            "{what} at {index}: {got} for {exact}"
        );
    }
}

#[test]
fn cross_entropy_and_its_gradient() {
    for (rows, width, smoothing) in [(5, 11, 0.0), (3, 20_000, 0.1), (200, 70, 0.2), (0, 4, 0.0)] {
        let logits = numbers(rows * width, 1);
        let mut targets: Vec<i64> = (0..rows).map(|row| ((row * 31) % width) as i64).collect();
        if rows > 2 {
            targets[2] = -100;
        }
        let scales: Vec<f32> = (0..rows).map(|row| 0.5 + row as f32).collect();
        let (mut losses, mut totals) = (vec![f32::NAN; rows], vec![f32::NAN; rows]);
        let (shape, strides, count) = ([rows, width], [width as isize, 1], [rows]);
        let logits_view = TensorRef::from_slice(&logits, &shape, &strides);
        let target_view = TensorRef::from_slice(&targets, &count, &[1]);
        cross_entropy_forward(
            logits_view,
            target_view,
            -100,
            smoothing,
            TensorMut::from_slice(&mut losses, &count, &[1]),
            TensorMut::from_slice(&mut totals, &count, &[1]),
        )
        .unwrap();
        let mut gradient = vec![f32::NAN; rows * width];
        cross_entropy_backward(
            logits_view,
            target_view,
            TensorRef::from_slice(&totals, &count, &[1]),
            TensorRef::from_slice(&scales, &count, &[1]),
            -100,
            smoothing,
            TensorMut::from_slice(&mut gradient, &shape, &strides),
        )
        .unwrap();
        for row in 0..rows {
            let x: Vec<f64> = logits[row * width..][..width].iter().map(|&x| f64::from(x)).collect();
            let total = x.iter().map(|x| x.exp()).sum::<f64>().ln();
            let mean = x.iter().sum::<f64>() / width as f64;
            let ignored = targets[row] == -100;
            let target = if ignored { 0 } else { targets[row] as usize };
            let loss = (1.0 - smoothing) * (total - x[target]) + smoothing * (total - mean);
            near(&totals[row..=row], &[total], 1e-6, "log-sum-exp");
            near(&losses[row..=row], &[if ignored { 0.0 } else { loss }], 1e-6, "loss");
            let exact: Vec<f64> = (0..width)
                .map(|class| {
                    let hot = if class == target { 1.0 - smoothing } else { 0.0 };
                    let value = (x[class] - total).exp() - hot - smoothing / width as f64;
                    if ignored { 0.0 } else { value * f64::from(scales[row]) }
                })
                .collect();
            near(&gradient[row * width..][..width], &exact, 1e-6, "gradient");
        }
    }
}

/// Losses and gradient of contiguous logits, or of their transpose in memory; in place where it is asked for.
fn both_ways(logits: &[f32], [rows, width]: [usize; 2], transposed: bool, in_place: bool) -> (Vec<f32>, Vec<f32>) {
    let place = |row: usize, class: usize| if transposed { class * rows + row } else { row * width + class };
    let mut stored = vec![0f32; rows * width];
    (0..rows * width).for_each(|i| stored[place(i / width, i % width)] = logits[i]);
    let strides = if transposed { [1, rows as isize] } else { [width as isize, 1] };
    let (shape, count) = ([rows, width], [rows]);
    let targets: Vec<i64> = (0..rows).map(|row| ((row * 31 + 7) % width) as i64).collect();
    let targets = TensorRef::from_slice(&targets, &count, &[1]);
    let (mut losses, mut totals) = (vec![f32::NAN; rows], vec![f32::NAN; rows]);
    let [losses_view, totals_view] =
        [&mut losses, &mut totals].map(|values| TensorMut::from_slice(values, &count, &[1]));
    let address = stored.as_mut_ptr().cast::<u8>();
    // SAFETY: the strides stay within the vector, which lives as long.
    let view = unsafe { TensorRef::new(DType::F32, &shape, &strides, address) };
    cross_entropy_forward(view, targets, -100, 0.1, losses_view, totals_view).unwrap();
    let scales = vec![0.5f32; rows];
    let [totals, scales] = [&totals, &scales].map(|values| TensorRef::from_slice(values, &count, &[1]));
    let mut gradient = vec![f32::NAN; rows * width];
    let result = if in_place { address } else { gradient.as_mut_ptr().cast() };
    // SAFETY: as above; in place, an element is read before it is written.
    let target = unsafe { TensorMut::new(DType::F32, &shape, &strides, result) };
    cross_entropy_backward(view, targets, totals, scales, -100, 0.1, target).unwrap();
    if in_place {
        gradient = stored;
    }
    (losses, (0..rows * width).map(|i| gradient[place(i / width, i % width)]).collect())
}

fn bits((losses, gradient): &(Vec<f32>, Vec<f32>)) -> Vec<u32> {
    losses.iter().chain(gradient).map(|value| value.to_bits()).collect()
}

#[test]
fn cross_entropy_has_the_same_bits_in_every_layout_and_on_any_number_of_threads() {
    // The last is written past the caches where it is contiguous and not in place.
    let large = crate::tile::stream::streaming_threshold() / 4;
    for [rows, width] in [[3, 1], [7, 2047], [7, 2048], [7, 2049], [40, 5000], [3, large / 3 + 77]] {
        let logits = numbers(rows * width, 5);
        let one = bits(&both_ways(&logits, [rows, width], false, false));
        for (transposed, in_place) in [(true, false), (false, true), (true, true)] {
            let other = bits(&both_ways(&logits, [rows, width], transposed, in_place));
            assert!(other == one, "{rows}x{width}, transposed {transposed}, in place {in_place}");
        }
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let other = pool.install(|| bits(&both_ways(&logits, [rows, width], false, false)));
            assert!(other == one, "{rows}x{width} on {threads} threads");
        }
    }
}

#[test]
fn cross_entropy_of_logits_that_are_not_finite() {
    let [rows, width] = [4, 6000];
    let mut logits = numbers(rows * width, 9);
    // A whole block without weight, a NaN in the second block, an infinity in the last one.
    logits[..2048].fill(f32::NEG_INFINITY);
    logits[width + 3000] = f32::NAN;
    logits[2 * width + 5999] = f32::INFINITY;
    let (losses, gradient) = both_ways(&logits, [rows, width], false, false);
    let total: f64 = logits[2048..width].iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
    assert!(losses[0].is_infinite(), "the mean of the logits is infinite: {}", losses[0]);
    near(&gradient[..1], &[-0.05 / width as f64], 1e-6, "gradient of a class without weight");
    near(
        &gradient[5000..5001],
        &[0.5 * ((f64::from(logits[5000]) - total).exp() - 0.1 / width as f64)],
        1e-9,
        "gradient",
    );
    for row in [1, 2] {
        assert!(losses[row].is_nan(), "row {row} has the loss {}", losses[row]);
        assert!(gradient[row * width].is_nan(), "row {row}");
    }
    assert!(losses[3].is_finite() && gradient[3 * width..].iter().all(|value| value.is_finite()));
}

#[test]
fn a_target_out_of_range_is_an_error() {
    let logits = [0f32; 6];
    let (mut losses, mut totals) = ([0f32; 2], [0f32; 2]);
    let result = cross_entropy_forward(
        TensorRef::from_slice(&logits, &[2, 3], &[3, 1]),
        TensorRef::from_slice(&[1i64, 3], &[2], &[1]),
        -100,
        0.0,
        TensorMut::from_slice(&mut losses, &[2], &[1]),
        TensorMut::from_slice(&mut totals, &[2], &[1]),
    );
    assert_eq!(result, Err(IndexOutOfRange { index: 3, position: 1, size: 3 }));
}

#[test]
fn softmax_and_its_logarithm() {
    let (rows, width) = (4, 33);
    let x = numbers(rows * width, 3);
    let (shape, strides) = ([rows, width], [width as isize, 1]);
    let (mut y, mut log) = (vec![0f32; x.len()], vec![0f32; x.len()]);
    softmax(TensorRef::from_slice(&x, &shape, &strides), TensorMut::from_slice(&mut y, &shape, &strides));
    log_softmax(TensorRef::from_slice(&x, &shape, &strides), TensorMut::from_slice(&mut log, &shape, &strides));
    for row in 0..rows {
        let x: Vec<f64> = x[row * width..][..width].iter().map(|&x| f64::from(x)).collect();
        let total = x.iter().map(|x| x.exp()).sum::<f64>().ln();
        let exact: Vec<f64> = x.iter().map(|x| x - total).collect();
        near(&log[row * width..][..width], &exact, 1e-6, "logarithm");
        let exact: Vec<f64> = exact.iter().map(|x| x.exp()).collect();
        near(&y[row * width..][..width], &exact, 1e-6, "softmax");
    }
}

#[test]
fn layer_norm_and_its_gradients() {
    for (rows, width) in [(3, 5), (130, 768), (2, 10_000)] {
        let (x, d) = (numbers(rows * width, 5), numbers(rows * width, 6));
        let (weight, bias) = (numbers(width, 7), numbers(width, 8));
        let (shape, strides, count, columns) = ([rows, width], [width as isize, 1], [rows], [width]);
        let (mut y, mut d_x) = (vec![0f32; x.len()], vec![0f32; x.len()]);
        let (mut mean, mut reciprocal) = (vec![0f32; rows], vec![0f32; rows]);
        let (mut d_weight, mut d_bias) = (vec![0f32; width], vec![0f32; width]);
        let x_view = TensorRef::from_slice(&x, &shape, &strides);
        let weight_view = TensorRef::from_slice(&weight, &columns, &[1]);
        layer_norm_forward(
            x_view,
            Some(weight_view),
            Some(TensorRef::from_slice(&bias, &columns, &[1])),
            1e-5,
            TensorMut::from_slice(&mut y, &shape, &strides),
            TensorMut::from_slice(&mut mean, &count, &[1]),
            TensorMut::from_slice(&mut reciprocal, &count, &[1]),
        );
        layer_norm_backward(
            TensorRef::from_slice(&d, &shape, &strides),
            x_view,
            Some(weight_view),
            TensorRef::from_slice(&mean, &count, &[1]),
            TensorRef::from_slice(&reciprocal, &count, &[1]),
            Some(TensorMut::from_slice(&mut d_x, &shape, &strides)),
            Some(TensorMut::from_slice(&mut d_weight, &columns, &[1])),
            Some(TensorMut::from_slice(&mut d_bias, &columns, &[1])),
        );
        let (mut exact_weight, mut exact_bias) = (vec![0f64; width], vec![0f64; width]);
        let c = width as f64;
        for row in 0..rows {
            let wide =
                |data: &[f32]| -> Vec<f64> { data[row * width..][..width].iter().map(|&x| f64::from(x)).collect() };
            let (x, d) = (wide(&x), wide(&d));
            let average = x.iter().sum::<f64>() / c;
            let variance = x.iter().map(|x| (x - average).powi(2)).sum::<f64>() / c;
            let r = 1.0 / (variance + 1e-5).sqrt();
            let normal: Vec<f64> = x.iter().map(|x| (x - average) * r).collect();
            let g: Vec<f64> = (0..width).map(|i| d[i] * f64::from(weight[i])).collect();
            let mean_g = g.iter().sum::<f64>() / c;
            let mean_p = (0..width).map(|i| g[i] * normal[i]).sum::<f64>() / c;
            let out: Vec<f64> = (0..width).map(|i| normal[i] * f64::from(weight[i]) + f64::from(bias[i])).collect();
            let d_exact: Vec<f64> = (0..width).map(|i| r * (g[i] - mean_g - normal[i] * mean_p)).collect();
            near(&y[row * width..][..width], &out, 2e-6, "output");
            near(&d_x[row * width..][..width], &d_exact, 4e-6, "input gradient");
            for i in 0..width {
                exact_weight[i] += d[i] * normal[i];
                exact_bias[i] += d[i];
            }
        }
        near(&d_weight, &exact_weight, 1e-5, "weight gradient");
        near(&d_bias, &exact_bias, 1e-5, "bias gradient");
    }
}
