//! Copies, conversions and scalar programs.

use fulgurite_kernels::elementwise::{convert, copy, elementwise};
use fulgurite_kernels::scalar::ScalarProgram;
use fulgurite_kernels::{DType, TensorRef};

use super::layouts::{Call, Operand, some_widths, types, widths};

/// The shapes that make a width the length of a row, of a column, or of what is left after rows are merged.
pub fn shapes(width: usize) -> [Vec<usize>; 4] {
    [vec![width], vec![width, 1], vec![2, width], vec![width, 2]]
}

#[test]
fn copies_of_every_type_and_width() {
    for dtype in types(DType::REAL) {
        for width in widths() {
            for shape in shapes(width) {
                let input = Operand::numbers(dtype, &shape, 1);
                let call = Call {
                    name: "copy",
                    expected: vec![input.values.clone()],
                    inputs: vec![input],
                    outputs: vec![(dtype, shape)],
                    run: &|inputs, outputs| outputs.into_iter().for_each(|output| copy(inputs[0], output)),
                };
                call.check();
            }
        }
    }
}

#[test]
fn conversions_between_types_of_every_size() {
    let pairs = [
        (DType::F32, DType::BF16),
        (DType::BF16, DType::F32),
        (DType::F32, DType::F64),
        (DType::I64, DType::U8),
        (DType::U8, DType::I32),
        (DType::F16, DType::I64),
        (DType::Bool, DType::F16),
    ];
    for (from, to) in pairs {
        for width in widths() {
            for shape in [vec![width], vec![2, width]] {
                let input = Operand::numbers(from, &shape, 2);
                let call = Call {
                    name: "convert",
                    expected: vec![input.values.clone()],
                    inputs: vec![input],
                    outputs: vec![(to, shape)],
                    run: &|inputs, outputs| outputs.into_iter().for_each(|output| convert(inputs[0], output)),
                };
                call.check();
            }
        }
    }
}

#[test]
fn programs_of_two_operands_and_two_results() {
    let program = ScalarProgram::record(2, 0, |x, _| vec![x[0] * 2.0 + x[1], x[0].maximum(x[1])]);
    for dtype in types([DType::U8, DType::I8, DType::U32, DType::I32, DType::BF16, DType::F32, DType::F64]) {
        for width in widths() {
            for shape in [vec![width], vec![3, width], vec![width, 1]] {
                let (a, b) = (Operand::numbers(dtype, &shape, 1), Operand::numbers(dtype, &shape, 2));
                let pairs = || a.values.iter().zip(&b.values);
                let call = Call {
                    name: "elementwise",
                    expected: vec![
                        pairs().map(|(a, b)| a * 2.0 + b).collect(),
                        pairs().map(|(a, b)| a.max(*b)).collect(),
                    ],
                    inputs: vec![a.clone(), b.clone()],
                    outputs: vec![(dtype, shape.clone()), (dtype, shape)],
                    run: &|inputs, mut outputs| elementwise(&program, inputs, &[], &mut outputs).unwrap(),
                };
                call.check();
            }
        }
    }
}

#[test]
fn programs_with_broadcast_operands() {
    let program = ScalarProgram::record(3, 0, |x, _| vec![x[0] + x[1] * x[2]]);
    for width in some_widths() {
        for dtype in types([DType::I16, DType::I32, DType::BF16, DType::F64]) {
            let shape = [3, width];
            let full = Operand::numbers(dtype, &shape, 1);
            let (rows, columns) = (Operand::numbers(dtype, &[3], 2), Operand::numbers(dtype, &[width], 3));
            let expected =
                (0..3 * width).map(|i| full.values[i] + rows.values[i / width] * columns.values[i % width]).collect();
            let call = Call {
                name: "broadcast",
                expected: vec![expected],
                inputs: vec![full, rows, columns],
                outputs: vec![(dtype, shape.to_vec())],
                run: &|inputs, mut outputs| {
                    let rows = [inputs[1].strides()[0], 0];
                    let columns = [0, inputs[2].strides()[0]];
                    let [rows, columns] = [(1, &rows), (2, &columns)].map(|(input, strides)| {
                        let tensor = inputs[input];
                        let view = if tensor.is_overlapped() { TensorRef::overlapped } else { TensorRef::new };
                        // SAFETY: the stride of zero reaches nothing new.
                        unsafe { view(tensor.dtype(), &shape, strides, tensor.as_ptr()) }
                    });
                    elementwise(&program, &[inputs[0], rows, columns], &[], &mut outputs).unwrap();
                },
            };
            call.check();
        }
    }
}
