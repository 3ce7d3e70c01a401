//! Tensors made from nothing.

use fulgurite_kernels::DType;
use fulgurite_kernels::philox::{Numbers, fill, iota, iota_integer, uniform};

use super::elementwise::shapes;
use super::layouts::{Call, types, widths};

#[test]
fn constants_and_evenly_spaced_numbers() {
    for dtype in types([DType::Bool, DType::U8, DType::U16, DType::BF16, DType::I32, DType::F32, DType::I64]) {
        for width in widths() {
            for shape in shapes(width) {
                let count = shape.iter().product::<usize>();
                let boolean = dtype == DType::Bool;
                Call {
                    name: "fill",
                    inputs: vec![],
                    expected: vec![vec![if boolean { 1.0 } else { 3.0 }; count]],
                    outputs: vec![(dtype, shape.clone())],
                    run: &|_, outputs| outputs.into_iter().for_each(|output| fill(output, 3.0)),
                }
                .check();
                if boolean {
                    continue;
                }
                let numbers = |step: f64| (0..count).map(|i| 2.0 + i as f64 * step).collect();
                // Numbers that wrap are for the integer form.
                if dtype.is_floating() {
                    Call {
                        name: "iota",
                        inputs: vec![],
                        expected: vec![numbers(0.5)],
                        outputs: vec![(dtype, shape.clone())],
                        run: &|_, outputs| outputs.into_iter().for_each(|output| iota(output, 2.0, 0.5)),
                    }
                    .check();
                } else {
                    Call {
                        name: "iota_integer",
                        inputs: vec![],
                        expected: vec![numbers(3.0)],
                        outputs: vec![(dtype, shape)],
                        run: &|_, outputs| outputs.into_iter().for_each(|output| iota_integer(output, 2, 3)),
                    }
                    .check();
                }
            }
        }
    }
}

#[test]
fn random_numbers() {
    for dtype in types([DType::F16, DType::BF16, DType::F32, DType::F64]) {
        for width in widths() {
            for shape in [vec![width], vec![3, width]] {
                Call {
                    name: "uniform",
                    inputs: vec![],
                    expected: vec![],
                    outputs: vec![(dtype, shape)],
                    run: &|_, outputs| {
                        outputs.into_iter().for_each(|output| uniform(output, Numbers::new(7, 1 << 33), -1.0, 2.0))
                    },
                }
                .check();
            }
        }
    }
}
