//! Extents that the library has fast products for, and when it is worth having them.
//!
//! Its fast kernels move 16 bytes at once, and a matrix whose rows are no multiple of that is multiplied by others.
//! Measured on an H200 (`benches/RESULTS.md`, "Odd extents"): hidden states of 16384 x 768 times the weights of 50257
//! classes, in bf16 and in TF32, by leading dimensions of 50304, so that only the extents were odd.

use fulgurite_runtime::DType;
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::strided::Strided;

/// How fast products of an element type are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    /// What extents are a multiple of in fast products.
    multiple: usize,
    /// Seconds that an operation takes longer in others.
    lost: f64,
}

/// Products of 16-bit types: 690 TFLOP/s, and 95 where extents are odd.
pub(crate) const HALVES: Rates = Rates { multiple: 8, lost: 1.0 / 95e12 - 1.0 / 690e12 };
/// Products of f32 rounded to TF32: 320 TFLOP/s, and 130 where extents are odd; 90 to 120 of 256 rows.
const TF32: Rates = Rates { multiple: 4, lost: 1.0 / 105e12 - 1.0 / 320e12 };

/// Those of products in a precision: in IEEE arithmetic those of f32 and f64 do not depend on the extents.
pub(crate) fn of(precision: Precision, dtype: DType) -> Option<Rates> {
    match precision {
        Precision::Tf32 => Some(TF32),
        _ => matches!(dtype, DType::BF16 | DType::F16).then_some(HALVES),
    }
}

/// From so many elements on, an extent that does not fit becomes a multiple of 64: 50304 classes took 7 to 15 % less
/// time than 50264 in bf16, and 1 to 5 % less in TF32.
const LONG: usize = 4096;

impl Rates {
    /// The extent that a fast product has instead.
    fn up(self, extent: usize) -> usize {
        match extent.is_multiple_of(self.multiple) {
            true => extent,
            false => extent.next_multiple_of(if extent < LONG { self.multiple } else { 64 }),
        }
    }
}

/// Seconds that a copy takes to begin, and bytes that it moves in a second.
const LAUNCH: f64 = 3e-6;
const COPY: f64 = 4e12;

/// Whether larger operands save more time than copies of these bytes take. In a program copies often take less: weights
/// that several products read are copied once, and a value that the program computes may be computed in the larger
/// form.
fn is_worth(rates: Rates, operations: f64, copies: &[usize]) -> bool {
    let copies: f64 = copies.iter().map(|bytes| LAUNCH + 2.0 * *bytes as f64 / COPY).sum();
    rates.lost * operations > copies
}

/// The shapes of operands if some are to be larger, and that is worth it. `extents` are the rows and columns of the
/// result, each beside what it becomes. A result that gets larger counts as copied, since its readers may need it in
/// its own extents.
fn decided(
    rates: Rates,
    operations: f64,
    operands: &[(&Strided, Vec<usize>)],
    extents: [(usize, usize); 2],
) -> Option<Vec<Vec<usize>>> {
    let changed = operands.iter().filter(|(operand, shape)| operand.meta.shape() != shape);
    let mut copies: Vec<usize> =
        changed.map(|(operand, shape)| shape.iter().product::<usize>() * operand.meta.dtype().size()).collect();
    if extents.iter().any(|(own, wide)| own != wide) {
        // Each element of the result takes two operations for each element of a row of the input.
        let inputs = operands[0].0.meta.shape().last().copied().unwrap_or(1).max(1);
        let elements = (operations / (2 * inputs) as f64) as usize;
        copies.push(elements * operands[0].0.meta.dtype().size());
    }
    let worth = !copies.is_empty() && is_worth(rates, operations, &copies);
    worth.then(|| operands.iter().map(|(_, shape)| shape.clone()).collect())
}

/// Those of `input` `[..., M, K]` times `other` `[..., K, N]`. Rows of `input` count only where they are neighbours in
/// memory.
pub(crate) fn of_matmul(rates: Rates, input: &Strided, other: &Strided) -> Option<Vec<Vec<usize>>> {
    let up = |extent: usize| rates.up(extent);
    let ([batch @ .., m, k], [other_batch @ .., _, n]) = (input.meta.shape(), other.meta.shape()) else { return None };
    let transposed = matches!(input.strides[..], [.., 1, column] if column != 1);
    let operations = 2.0 * batch.iter().chain([m, k, n]).map(|extent| *extent as f64).product::<f64>();
    let wide = if transposed { up(*m) } else { *m };
    decided(
        rates,
        operations,
        &[(input, [batch, &[wide, up(*k)]].concat()), (other, [other_batch, &[up(*k), up(*n)]].concat())],
        [(*m, wide), (*n, up(*n))],
    )
}

/// Those of `input` `[..., K]` times the transpose of `weight` `[N, K]`, and of `bias` `[N]`.
pub(crate) fn of_linear(
    rates: Rates,
    input: &Strided,
    weight: &Strided,
    bias: Option<&Strided>,
) -> Option<Vec<Vec<usize>>> {
    let up = |extent: usize| rates.up(extent);
    let ([rows @ .., k], [n, _]) = (input.meta.shape(), weight.meta.shape()) else { return None };
    let operations = 2.0 * rows.iter().chain([k, n]).map(|extent| *extent as f64).product::<f64>();
    let mut operands = vec![(input, [rows, &[up(*k)]].concat()), (weight, vec![up(*n), up(*k)])];
    operands.extend(bias.map(|bias| (bias, vec![up(*n)])));
    decided(rates, operations, &operands, [(*n, up(*n)); 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_runtime::TensorMeta;

    fn strided(shape: &[usize], strides: &[isize]) -> Strided {
        Strided { meta: TensorMeta::new(shape, DType::BF16, fulgurite_runtime::Device::CPU), strides: strides.to_vec() }
    }

    #[test]
    fn large_products_of_odd_extents_get_larger_operands() {
        let (input, weight) = (strided(&[16, 1024, 768], &[786_432, 768, 1]), strided(&[50_257, 768], &[768, 1]));
        let shapes = of_linear(HALVES, &input, &weight, None).unwrap();
        assert_eq!(shapes, [vec![16, 1024, 768], vec![50_304, 768]]);
        let bias = strided(&[50_257], &[1]);
        assert_eq!(of_linear(HALVES, &input, &weight, Some(&bias)).unwrap()[2], [50_304]);
        // Of a transposed operand the rows are neighbours.
        let (gradient, hidden) = (strided(&[50_257, 16_384], &[1, 50_257]), strided(&[16_384, 768], &[768, 1]));
        let shapes = of_matmul(HALVES, &gradient, &hidden).unwrap();
        assert_eq!(shapes, [vec![50_304, 16_384], vec![16_384, 768]]);
        // A result that is as dear to copy as what is gained.
        let (input, weight) = (strided(&[65_536, 32], &[32, 1]), strided(&[4001, 32], &[32, 1]));
        assert_eq!(of_linear(HALVES, &input, &weight, None), None);
        let gradient = strided(&[50_257, 16_384], &[16_384, 1]);
        assert_eq!(of_matmul(HALVES, &gradient, &hidden), None);
    }

    #[test]
    fn what_fits_and_what_is_small_stays() {
        let (input, weight) = (strided(&[16_384, 768], &[768, 1]), strided(&[50_304, 768], &[768, 1]));
        assert_eq!(of_linear(HALVES, &input, &weight, None), None);
        let (input, weight) = (strided(&[64, 33], &[33, 1]), strided(&[7, 33], &[33, 1]));
        assert_eq!(of_linear(HALVES, &input, &weight, None), None);
        let (input, other) = (strided(&[64, 33], &[33, 1]), strided(&[33, 65], &[65, 1]));
        assert_eq!(of_matmul(HALVES, &input, &other), None);
    }
}
