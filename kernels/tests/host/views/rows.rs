//! Operations on rows: softmax, losses, layer normalization, and fused programs that store a value per row beside one
//! per element.

use fulgurite_kernels::fused::{FusedNode, FusedProgram};
use fulgurite_kernels::row::{cross_entropy_backward, cross_entropy_forward, layer_norm_backward, layer_norm_forward};
use fulgurite_kernels::row::{log_softmax, softmax};
use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::{DType, Reduction, TensorRef};

use super::layouts::{Call, Operand, some_widths, types, widths};

const TYPES: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

#[test]
fn sums_of_rows_beside_the_rows_less_their_sums() {
    for dtype in types([DType::I32, DType::I64, DType::BF16, DType::F32, DType::F64]) {
        let wide = if dtype.is_floating() { DType::F64 } else { DType::I64 };
        let program = FusedProgram {
            input_dtypes: vec![dtype],
            nodes: vec![
                FusedNode::Input(0),
                FusedNode::Reduce(Reduction::Sum, 0),
                FusedNode::Apply(ScalarOp::Sub, [1, 0, 0]),
                FusedNode::Reduce(Reduction::Max, 2),
            ],
            outputs: vec![(1, wide), (2, wide), (3, wide)],
        };
        for width in widths() {
            for shape in [[3, width], [width, 3], [1, width]] {
                if shape[1] == 0 {
                    continue;
                }
                let input = Operand::numbers(dtype, &shape, 1);
                let rows: Vec<&[f64]> = input.values.chunks(shape[1]).collect();
                let sums: Vec<f64> = rows.iter().map(|row| row.iter().sum()).collect();
                let rest: Vec<f64> =
                    rows.iter().zip(&sums).flat_map(|(row, sum)| row.iter().map(move |value| sum - value)).collect();
                let largest = rows
                    .iter()
                    .zip(&sums)
                    .map(|(row, sum)| sum - row.iter().copied().fold(f64::MAX, f64::min))
                    .collect();
                Call {
                    name: "rows",
                    expected: vec![sums, rest, largest],
                    inputs: vec![input.clone()],
                    outputs: [vec![shape[0], 1], shape.to_vec(), vec![shape[0], 1]].map(|shape| (wide, shape)).to_vec(),
                    run: &|inputs, mut outputs| program.run(inputs[0].shape(), inputs, &mut outputs).unwrap(),
                }
                .check();
            }
        }
    }
}

#[test]
fn softmax_of_rows() {
    type Function = fn(TensorRef<'_>, fulgurite_kernels::TensorMut<'_>);
    let functions: [(&str, Function); 2] = [("softmax", softmax), ("log_softmax", log_softmax)];
    for dtype in types(TYPES) {
        for width in some_widths() {
            for (name, function) in functions {
                Call {
                    name,
                    inputs: vec![Operand::numbers(dtype, &[3, width], 1)],
                    expected: vec![],
                    outputs: vec![(dtype, vec![3, width])],
                    run: &|inputs, outputs| outputs.into_iter().for_each(|output| function(inputs[0], output)),
                }
                .check();
            }
        }
    }
}

#[test]
fn losses_and_their_gradients() {
    for dtype in types(TYPES) {
        for width in some_widths() {
            let logits = Operand::numbers(dtype, &[3, width], 1);
            let targets = Operand::of(DType::I64, &[3], vec![(width - 1) as f64, -100.0, 0.0]);
            let each = Operand::of(DType::F64, &[3], vec![8.0, 9.0, 10.0]);
            for smoothing in [0.0, 0.1] {
                Call {
                    name: "cross_entropy_forward",
                    inputs: vec![logits.clone(), targets.clone()],
                    expected: vec![],
                    outputs: vec![(dtype, vec![3]), (DType::F64, vec![3])],
                    run: &|inputs, outputs| {
                        let [losses, totals] = <[_; 2]>::try_from(outputs).unwrap();
                        cross_entropy_forward(inputs[0], inputs[1], -100, smoothing, losses, totals).unwrap();
                    },
                }
                .check();
                Call {
                    name: "cross_entropy_backward",
                    inputs: vec![logits.clone(), targets.clone(), each.clone(), each.clone()],
                    expected: vec![],
                    outputs: vec![(dtype, vec![3, width])],
                    run: &|inputs, outputs| {
                        for output in outputs {
                            let [logits, targets, totals, scales] = [0, 1, 2, 3].map(|i| inputs[i]);
                            cross_entropy_backward(logits, targets, totals, scales, -100, smoothing, output).unwrap();
                        }
                    },
                }
                .check();
            }
        }
    }
}

#[test]
fn normalization_and_its_gradients() {
    for dtype in types(TYPES) {
        for width in some_widths() {
            let [d, x] = [1, 2].map(|seed| Operand::numbers(dtype, &[3, width], seed));
            let [weight, bias] = [3, 4].map(|seed| Operand::numbers(dtype, &[width], seed));
            let [mean, deviation] = [5, 6].map(|seed| Operand::numbers(DType::F32, &[3], seed));
            Call {
                name: "layer_norm_forward",
                inputs: vec![x.clone(), weight.clone(), bias],
                expected: vec![],
                outputs: vec![(dtype, vec![3, width]), (DType::F32, vec![3]), (DType::F32, vec![3])],
                run: &|inputs, outputs| {
                    let [output, mean, deviation] = <[_; 3]>::try_from(outputs).unwrap();
                    layer_norm_forward(inputs[0], Some(inputs[1]), Some(inputs[2]), 1e-5, output, mean, deviation);
                },
            }
            .check();
            Call {
                name: "layer_norm_backward",
                inputs: vec![d, x, weight, mean, deviation],
                expected: vec![],
                outputs: vec![(dtype, vec![3, width]), (dtype, vec![width]), (dtype, vec![width])],
                run: &|inputs, outputs| {
                    let [input, weight, bias] = <[_; 3]>::try_from(outputs).unwrap();
                    let [d, x, w, mean, deviation] = [0, 1, 2, 3, 4].map(|i| inputs[i]);
                    layer_norm_backward(d, x, Some(w), mean, deviation, Some(input), Some(weight), Some(bias));
                },
            }
            .check();
        }
    }
}
