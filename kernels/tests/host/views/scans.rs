//! Scans, combinations at indices and searches on views of every layout.

use fulgurite_kernels::DType;
use fulgurite_kernels::elementwise::copy;
use fulgurite_kernels::indexing::{Combination, scatter_combine};
use fulgurite_kernels::scan::{cummax, cummin, cumprod, linear_scan, logcumsumexp};
use fulgurite_kernels::search::searchsorted;

use super::layouts::{Call, Operand, some_widths, types};

/// What `next` makes of each line along the middle dimension, element by element.
fn scanned(input: &[f64], shape: [usize; 3], mut next: impl FnMut(Option<f64>, usize) -> f64) -> Vec<f64> {
    let [_, along, inner] = shape;
    let mut out = input.to_vec();
    for at in 0..input.len() {
        let before = (at / inner % along > 0).then(|| out[at - inner]);
        out[at] = next(before, at);
    }
    out
}

#[test]
fn lines_are_scanned() {
    for dtype in types([DType::U8, DType::I16, DType::I32, DType::BF16, DType::F32, DType::F64]) {
        for width in some_widths().into_iter().filter(|width| *width > 0) {
            for shape in [[2, width, 1], [1, 2, width], [width, 3, 1]] {
                let input = Operand::numbers(dtype, &shape, 4);
                let values = &input.values;
                for (name, largest) in [("cummax", true), ("cummin", false)] {
                    let mut places = vec![0.0; values.len()];
                    let best = scanned(values, shape, |before, at| match before {
                        Some(before) if (largest && before > values[at]) || (!largest && before < values[at]) => {
                            places[at] = places[at - shape[2]];
                            before
                        }
                        _ => {
                            places[at] = (at / shape[2] % shape[1]) as f64;
                            values[at]
                        }
                    });
                    Call {
                        name,
                        inputs: vec![input.clone()],
                        expected: vec![best, places],
                        outputs: vec![(dtype, shape.to_vec()), (DType::I64, shape.to_vec())],
                        run: &|inputs, outputs| {
                            let [values, indices] = <[_; 2]>::try_from(outputs).unwrap();
                            let scan = if largest { cummax } else { cummin };
                            scan(inputs[0], 1, values, indices);
                        },
                    }
                    .check();
                }
            }
        }
    }
}

#[test]
fn short_lines_are_multiplied_and_joined() {
    for dtype in types([DType::BF16, DType::F32, DType::F64]) {
        for width in some_widths().into_iter().filter(|width| *width > 0) {
            // Lines of two, whose results are exact.
            let shape = [width, 2, 3];
            let (input, factors) = (Operand::numbers(dtype, &shape, 5), Operand::numbers(dtype, &shape, 6));
            let (x, a) = (&input.values, &factors.values);
            Call {
                name: "cumprod",
                inputs: vec![input.clone()],
                expected: vec![scanned(x, shape, |before, at| before.unwrap_or(1.0) * x[at])],
                outputs: vec![(DType::F64, shape.to_vec())],
                run: &|inputs, outputs| outputs.into_iter().for_each(|output| cumprod(inputs[0], 1, output)),
            }
            .check();
            Call {
                name: "linear_scan",
                inputs: vec![factors.clone(), input.clone()],
                expected: vec![scanned(x, shape, |before, at| a[at] * before.unwrap_or(0.0) + x[at])],
                outputs: vec![(DType::F64, shape.to_vec())],
                run: &|inputs, outputs| {
                    outputs.into_iter().for_each(|output| linear_scan(inputs[0], inputs[1], 1, output));
                },
            }
            .check();
            // One element: its exponential's logarithm.
            let shape = [width, 1, 3];
            let input = Operand::numbers(dtype, &shape, 7);
            Call {
                name: "logcumsumexp",
                inputs: vec![input.clone()],
                expected: vec![input.values.clone()],
                outputs: vec![(DType::F64, shape.to_vec())],
                run: &|inputs, outputs| outputs.into_iter().for_each(|output| logcumsumexp(inputs[0], 1, output)),
            }
            .check();
        }
    }
}

#[test]
fn elements_are_combined_at_indices() {
    const TABLE: usize = 5;
    for dtype in types([DType::U8, DType::F16, DType::F32, DType::I64]) {
        for width in some_widths().into_iter().filter(|width| *width > 0) {
            let table = Operand::numbers(dtype, &[TABLE, width], 1);
            let places = (0..3 * width).map(|i| ((i * 3 + i / 5) % TABLE) as f64).collect();
            let (at, source) = (Operand::of(DType::I64, &[3, width], places), Operand::numbers(dtype, &[3, width], 3));
            for (how, combine) in [
                (Combination::Largest, f64::max as fn(f64, f64) -> f64),
                (Combination::Smallest, f64::min as fn(f64, f64) -> f64),
            ] {
                let mut expected = table.values.clone();
                for (i, value) in source.values.iter().enumerate() {
                    let place = &mut expected[at.values[i] as usize * width + i % width];
                    *place = combine(*place, *value);
                }
                Call {
                    name: "scatter_combine",
                    expected: vec![expected],
                    inputs: vec![table.clone(), at.clone(), source.clone()],
                    outputs: vec![(dtype, vec![TABLE, width])],
                    run: &|inputs, outputs| {
                        for mut output in outputs {
                            copy(inputs[0], output.reborrow());
                            scatter_combine(output, how, 0, inputs[1], inputs[2]).unwrap();
                        }
                    },
                }
                .check();
            }
        }
    }
}

#[test]
fn places_are_found() {
    for dtype in types([DType::I8, DType::I32, DType::F16, DType::F64]) {
        for width in some_widths().into_iter().filter(|width| *width > 0) {
            let sorted = Operand::of(dtype, &[2, 4], vec![0.0, 1.0, 1.0, 3.0, 1.0, 2.0, 4.0, 4.0]);
            let wanted = Operand::of(dtype, &[2, width], (0..2 * width).map(|i| (i * 7 % 6) as f64).collect());
            for right in [false, true] {
                let places = wanted.values.iter().enumerate().map(|(i, x)| {
                    let line = &sorted.values[i / width * 4..][..4];
                    line.iter().filter(|y| **y < *x || (right && **y == *x)).count() as f64
                });
                Call {
                    name: "searchsorted",
                    expected: vec![places.collect()],
                    inputs: vec![sorted.clone(), wanted.clone()],
                    outputs: vec![(DType::I64, vec![2, width])],
                    run: &|inputs, outputs| {
                        outputs.into_iter().for_each(|output| searchsorted(inputs[0], inputs[1], right, output));
                    },
                }
                .check();
            }
        }
    }
}
