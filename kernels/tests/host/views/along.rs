//! Reductions, and what depends on the order of elements along a dimension.

use fulgurite_kernels::DType;
use fulgurite_kernels::order::{argmax, topk};
use fulgurite_kernels::reduce::{Reduction, reduce};
use fulgurite_kernels::scan::cumsum;

use super::layouts::{Call, Operand, some_widths, types, widths};

/// `[outer, along, inner]`, and the values of each line along the middle dimension.
fn lines(values: &[f64], shape: [usize; 3]) -> Vec<Vec<f64>> {
    let [outer, along, inner] = shape;
    (0..outer * inner)
        .map(|line| (0..along).map(|i| values[(line / inner * along + i) * inner + line % inner]).collect())
        .collect()
}

/// Long lines, many lines side by side, and many short lines.
fn shapes(width: usize) -> [[usize; 3]; 4] {
    [[3, width, 1], [1, 3, width], [width, 3, 1], [2, 2, width]]
}

#[test]
fn reductions_of_lines_of_every_width() {
    for dtype in types([
        DType::Bool,
        DType::U8,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::I64,
        DType::BF16,
        DType::F32,
        DType::F64,
    ]) {
        let sums = match dtype {
            DType::Bool | DType::U8 => DType::I64,
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        };
        for width in widths() {
            for shape in shapes(width) {
                let input = Operand::numbers(dtype, &shape, 3);
                let lines = lines(&input.values, shape);
                let kept = vec![shape[0], shape[2]];
                for reduction in [Reduction::Sum, Reduction::Product, Reduction::Max, Reduction::Min] {
                    let (to, fold): (DType, fn(f64, f64) -> f64) = match reduction {
                        Reduction::Sum => (sums, |a, b| a + b),
                        Reduction::Product => (sums, |a, b| a * b),
                        Reduction::Max => (dtype, f64::max),
                        Reduction::Min => (dtype, f64::min),
                    };
                    // Nothing has no largest; and what differs between reductions does not differ by width.
                    if reduction != Reduction::Sum && (shape[1] == 0 || !some_widths().contains(&width)) {
                        continue;
                    }
                    let expected = lines.iter().map(|line| line.iter().copied().reduce(fold).unwrap_or(0.0)).collect();
                    Call {
                        name: "reduce",
                        inputs: vec![input.clone()],
                        expected: vec![expected],
                        outputs: vec![(to, kept.clone())],
                        run: &|inputs, outputs| {
                            outputs.into_iter().for_each(|output| reduce(reduction, inputs[0], &[1], output));
                        },
                    }
                    .check();
                }
            }
        }
    }
}

#[test]
fn running_sums_and_positions_of_the_largest() {
    for dtype in types([DType::U8, DType::I8, DType::I32, DType::BF16, DType::F32, DType::F64]) {
        for width in widths() {
            for shape in [[2, width, 1], [1, 2, width]] {
                let input = Operand::numbers(dtype, &shape, 4);
                let (sums, indices) = (if dtype.is_floating() { DType::F64 } else { DType::I64 }, DType::I64);
                let lines = lines(&input.values, shape);
                let mut running = vec![0.0; input.values.len()];
                for (number, line) in lines.iter().enumerate() {
                    let mut total = 0.0;
                    for (i, value) in line.iter().enumerate() {
                        total += value;
                        running[(number / shape[2] * shape[1] + i) * shape[2] + number % shape[2]] = total;
                    }
                }
                Call {
                    name: "cumsum",
                    inputs: vec![input.clone()],
                    expected: vec![running],
                    outputs: vec![(sums, shape.to_vec())],
                    run: &|inputs, outputs| outputs.into_iter().for_each(|output| cumsum(inputs[0], 1, output)),
                }
                .check();
                if shape[1] == 0 {
                    continue;
                }
                let first_of = |line: &Vec<f64>| {
                    let largest = line.iter().copied().fold(f64::MIN, f64::max);
                    line.iter().position(|value| *value == largest).unwrap_or(0) as f64
                };
                Call {
                    name: "argmax",
                    inputs: vec![input],
                    expected: vec![lines.iter().map(first_of).collect()],
                    outputs: vec![(indices, vec![shape[0], 1, shape[2]])],
                    run: &|inputs, outputs| outputs.into_iter().for_each(|output| argmax(inputs[0], 1, output)),
                }
                .check();
            }
        }
    }
}

#[test]
fn the_largest_in_order() {
    for dtype in types([DType::U8, DType::I64, DType::F16, DType::F32]) {
        for width in some_widths() {
            for k in [1, 2, width / 2, width - 1, width].into_iter().filter(|k| *k <= width) {
                let shape = [2, width];
                let input = Operand::numbers(dtype, &shape, 5);
                for largest in [true, false] {
                    let (mut values, mut indices) = (Vec::new(), Vec::new());
                    for line in input.values.chunks(width) {
                        let mut order: Vec<usize> = (0..width).collect();
                        order.sort_by(|a, b| {
                            let order = line[*a].total_cmp(&line[*b]);
                            if largest { order.reverse() } else { order }
                        });
                        values.extend(order[..k.min(width)].iter().map(|index| line[*index]));
                        indices.extend(order[..k.min(width)].iter().map(|index| *index as f64));
                    }
                    Call {
                        name: "topk",
                        inputs: vec![input.clone()],
                        expected: vec![values, indices],
                        outputs: vec![(dtype, vec![2, k]), (DType::I64, vec![2, k])],
                        run: &|inputs, outputs| {
                            let [values, indices] = <[_; 2]>::try_from(outputs).unwrap();
                            topk(inputs[0], 1, largest, values, indices);
                        },
                    }
                    .check();
                }
            }
        }
    }
}
