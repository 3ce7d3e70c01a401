//! Matrix products.

use fulgurite_kernels::DType;
use fulgurite_kernels::matmul::matmul;

use super::layouts::{Call, Operand, some_widths, types};

#[test]
#[cfg_attr(miri, ignore = "products of floating-point numbers are those of a crate with instructions that Miri lacks")]
fn products_of_every_type() {
    for dtype in types([
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ]) {
        for width in some_widths() {
            for [batch, m, k, n] in [[1, width, 3, 2], [2, 2, 3, width], [1, 3, width, 2], [2, 1, 2, width]] {
                let (a, b) = (Operand::numbers(dtype, &[batch, m, k], 1), Operand::numbers(dtype, &[batch, k, n], 2));
                let dot = |i: usize| -> f64 {
                    let (p, row, column) = (i / (m * n), i / n % m, i % n);
                    (0..k).map(|x| a.values[(p * m + row) * k + x] * b.values[(p * k + x) * n + column]).sum()
                };
                // 16-bit results of long products would be rounded, and narrow integers would wrap alike.
                let to = if dtype.is_floating() { DType::F64 } else { DType::I64 };
                Call {
                    name: "matmul",
                    expected: vec![(0..batch * m * n).map(dot).collect()],
                    inputs: vec![a.clone(), b.clone()],
                    outputs: vec![(to, vec![batch, m, n])],
                    run: &|inputs, outputs| {
                        outputs.into_iter().for_each(|output| matmul(inputs[0], inputs[1], output, false));
                    },
                }
                .check();
            }
        }
    }
}
