//! Reading and adding at indices.

use fulgurite_kernels::DType;
use fulgurite_kernels::elementwise::copy;
use fulgurite_kernels::indexing::{gather, index_add, index_select, scatter, scatter_add};

use super::layouts::{Call, Operand, types, widths};

const TABLE: usize = 5;

/// Indices below [`TABLE`].
fn indices(shape: &[usize]) -> Operand {
    let count: usize = shape.iter().product();
    Operand::of(DType::I64, shape, (0..count).map(|i| ((i * 3 + i / 5) % TABLE) as f64).collect())
}

#[test]
fn rows_and_elements_are_read_at_indices() {
    // One of each size.
    for dtype in types([DType::Bool, DType::I16, DType::BF16, DType::I32, DType::F64]) {
        for width in widths() {
            let table = Operand::numbers(dtype, &[TABLE, width], 1);
            let at = indices(&[3]);
            let selected = (0..3 * width).map(|i| table.values[at.values[i / width] as usize * width + i % width]);
            Call {
                name: "index_select",
                expected: vec![selected.collect()],
                inputs: vec![table.clone(), at],
                outputs: vec![(dtype, vec![3, width])],
                run: &|inputs, outputs| {
                    outputs.into_iter().for_each(|output| index_select(inputs[0], 0, inputs[1], output).unwrap());
                },
            }
            .check();
            let at = indices(&[2, width]);
            let gathered = (0..2 * width).map(|i| table.values[at.values[i] as usize * width + i % width]);
            Call {
                name: "gather",
                expected: vec![gathered.collect()],
                inputs: vec![table, at],
                outputs: vec![(dtype, vec![2, width])],
                run: &|inputs, outputs| {
                    outputs.into_iter().for_each(|output| gather(inputs[0], 0, inputs[1], output).unwrap());
                },
            }
            .check();
            // Along the last dimension, from rows of a few.
            let rows = Operand::numbers(dtype, &[2, TABLE], 2);
            let at = indices(&[width]);
            let selected =
                (0..2 * width).map(|i| rows.values[i / width.max(1) * TABLE + at.values[i % width] as usize]);
            Call {
                name: "index_select",
                expected: vec![selected.collect()],
                inputs: vec![rows, at],
                outputs: vec![(dtype, vec![2, width])],
                run: &|inputs, outputs| {
                    outputs.into_iter().for_each(|output| index_select(inputs[0], 1, inputs[1], output).unwrap());
                },
            }
            .check();
        }
    }
}

#[test]
fn rows_and_elements_are_added_at_indices() {
    for dtype in types([DType::U8, DType::F16, DType::F32, DType::I64]) {
        for width in widths() {
            let table = Operand::numbers(dtype, &[TABLE, width], 1);
            let (at, rows) = (indices(&[3]), Operand::numbers(dtype, &[3, width], 2));
            let mut sums = table.values.clone();
            for (i, value) in rows.values.iter().enumerate() {
                sums[at.values[i / width] as usize * width + i % width] += value;
            }
            Call {
                name: "index_add",
                expected: vec![sums],
                inputs: vec![table.clone(), at, rows],
                outputs: vec![(dtype, vec![TABLE, width])],
                run: &|inputs, outputs| {
                    for mut output in outputs {
                        copy(inputs[0], output.reborrow());
                        index_add(output, 0, inputs[1], inputs[2]).unwrap();
                    }
                },
            }
            .check();
            let (at, source) = (indices(&[2, width]), Operand::numbers(dtype, &[2, width], 3));
            let mut sums = table.values.clone();
            for (i, value) in source.values.iter().enumerate() {
                sums[at.values[i] as usize * width + i % width] += value;
            }
            Call {
                name: "scatter_add",
                expected: vec![sums],
                inputs: vec![table, at, source],
                outputs: vec![(dtype, vec![TABLE, width])],
                run: &|inputs, outputs| {
                    for mut output in outputs {
                        copy(inputs[0], output.reborrow());
                        scatter_add(output, 0, inputs[1], inputs[2]).unwrap();
                    }
                },
            }
            .check();
        }
    }
}

#[test]
fn elements_are_written_at_indices() {
    for dtype in types([DType::Bool, DType::I16, DType::BF16, DType::I32, DType::F64]) {
        for width in widths() {
            let table = Operand::numbers(dtype, &[TABLE, width], 1);
            let (at, source) = (indices(&[7, width]), Operand::numbers(dtype, &[7, width], 3));
            // More of them than there are places: the last one for a place stays.
            let mut expected = table.values.clone();
            for (i, value) in source.values.iter().enumerate() {
                expected[at.values[i] as usize * width + i % width] = *value;
            }
            Call {
                name: "scatter",
                expected: vec![expected],
                inputs: vec![table, at, source],
                outputs: vec![(dtype, vec![TABLE, width])],
                run: &|inputs, outputs| {
                    for mut output in outputs {
                        copy(inputs[0], output.reborrow());
                        scatter(output, 0, inputs[1], inputs[2]).unwrap();
                    }
                },
            }
            .check();
        }
    }
}
