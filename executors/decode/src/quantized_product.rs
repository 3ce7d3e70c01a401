use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::testing::samples::{SampleTensor, Samples};
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::{Product, Quantized, decode, quantized_fits, rows_times, same_form};
use fulgurite_ops::core::add;
use fulgurite_ops::nn::linear_quantized;

/// [`linear_quantized`] of few rows: input [..., in], weight i8 [out, in] or u8 [out, in / 2], scales and offsets
/// [out, in / group_size], bias [out]; out [..., out].
#[operator(name = "decode::quantized_product")]
pub mod quantized_product {
    fn quantized_product(
        input: Tensor<Floating>,
        weight: Tensor<Integer>,
        scales: Tensor<Floating>,
        group_size: usize,
        bits: usize,
        #[default(None)] offsets: Option<Tensor<Floating>>,
        #[default(None)] bias: Option<Tensor<Floating>>,
    ) -> Tensor;

    fn decomposition(Args { input, weight, scales, group_size, bits, offsets, bias }: Args<Tensor>) -> Tensor {
        linear_quantized::with(input, weight, scales, group_size, bits).offsets(offsets).bias(bias).call()
    }

    fn reference(
        Args { input, weight, scales, group_size, bits, offsets, bias }: Args<&ReferenceTensor>,
    ) -> ArrayD<f64> {
        rows_times(input, &numbers_of(weight, scales, offsets, (group_size, bits)), bias)
    }

    fn samples(s: &mut Samples) {
        // One row, and as many as fit; outputs that end within a block; groups of each size.
        for (rows, inputs, outputs, group) in
            [(1, 128, 40, 32), (2, 256, 16, 64), (8, 128, 34, 128), (9, 256, 18, 128), (16, 384, 24, 32)]
        {
            let (inputs, group) = (extent(s, inputs), extent(s, group));
            for bits in [8, 4] {
                let (weight, scales) = packed(s, [outputs, inputs], group, bits);
                s.case(with(s.normal([rows, inputs]), weight, scales, group, bits));
            }
        }
        for bits in [8, 4] {
            let inputs = extent(s, 128);
            let (weight, scales) = packed(s, [24, inputs], 64, bits);
            let (offsets, bias) = (s.uniform(-0.2, 0.2, [24, inputs / 64]), s.normal([24]));
            s.case(with(s.normal([2, 3, inputs]), weight, scales, 64, bits).offsets(offsets).bias(bias));
            // Many steps, for the kernel; an odd number of scales in a row, and of steps.
            if s.dtype().size() == 2 {
                let (weight, scales) = packed(s, [8, 2176], 128, bits);
                s.case(with(s.normal([5, 2176]), weight, scales, 128, bits));
                let (weight, scales) = packed(s, [6, 4096], 32, bits);
                s.case(with(s.normal([1, 4096]), weight, scales.cast(DType::F16), 32, bits).bias(s.normal([6])));
                // Outputs of two blocks each.
                let (weight, scales) = packed(s, [1082, 1152], 128, bits);
                s.case(with(s.normal([9, 1152]), weight, scales.cast(DType::F32), 128, bits));
            }
            // What the kernel leaves to others.
            let (weight, scales) = packed(s, [4, 64], 32, bits);
            s.case(with(s.normal([17, 64]), weight, scales, 32, bits));
            let (weight, scales) = packed(s, [4, 48], 8, bits);
            s.case(with(s.normal([2, 48]), weight, scales, 8, bits));
        }
    }
}

/// For samples: so many inputs, or 64 in types that the kernel does not take: a sum of more numbers of f32 differs by
/// its order alone.
pub(crate) fn extent(s: &Samples, inputs: usize) -> usize {
    if s.dtype().size() == 2 { inputs } else { inputs.min(64) }
}

/// For samples: a weight [out, in] of any integers, and its scales.
pub(crate) fn packed(
    s: &Samples,
    [outputs, inputs]: [usize; 2],
    group_size: usize,
    bits: usize,
) -> (SampleTensor, SampleTensor) {
    let weight = match bits {
        8 => s.integers(-128, 128, [outputs, inputs]).cast(DType::I8),
        _ => s.integers(0, 256, [outputs, inputs / 2]).cast(DType::U8),
    };
    // Sums of numbers of either width are of one size.
    let most = if bits == 8 { 0.002 } else { 0.03 };
    (weight, s.uniform(most / 8.0, most, [outputs, inputs / group_size]))
}

/// For references: the numbers [out, in] that a quantized weight stands for.
pub(crate) fn numbers_of(
    weight: &ndarray::ArrayD<i64>,
    scales: &ndarray::ArrayD<f64>,
    offsets: Option<&ndarray::ArrayD<f64>>,
    (group_size, bits): (usize, usize),
) -> ndarray::ArrayD<f64> {
    let shape = [scales.shape()[0], scales.shape()[1] * group_size];
    ndarray::ArrayD::from_shape_fn(ndarray::IxDyn(&shape), |at| {
        let (output, input) = (at[0], at[1]);
        let group = [output, input / group_size];
        let number = match bits {
            8 => weight[[output, input]],
            _ => (weight[[output, input / 2]] >> (4 * (input % 2))) & 15,
        };
        let center = if bits == 4 && offsets.is_none() { 8.0 } else { 0.0 };
        (number as f64 - center) * scales[group] + offsets.map_or(0.0, |offsets| offsets[group])
    })
}

#[implementation(of = quantized_product, by = decode, strided)]
mod quantized_product_by_decode {
    fn checker(input: &TensorMeta, weight: &TensorMeta, scales: &TensorMeta, group_size: usize, bits: usize) -> Claim {
        super::quantized_fits(input, weight, scales, group_size, bits)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { input, weight, scales, group_size, bits, offsets, bias } = args;
        let quantized = super::Quantized { scales: &[scales], offsets, group_size, bits };
        let quantized = Some(quantized);
        super::Product { input, weights: &[weight], norm: None, bias, residual: None, quantized }.plan(plan, out)
    }
}

/// Of any size: without this kernel the numbers of the weight are written, and read again.
#[implementation(of = linear_quantized, by = decode)]
mod linear_quantized_by_decode {
    fn checker(input: &TensorMeta, weight: &TensorMeta, scales: &TensorMeta, group_size: usize, bits: usize) -> Claim {
        super::quantized_fits(input, weight, scales, group_size, bits)
    }

    fn execution(Args { input, weight, scales, group_size, bits, offsets, bias }: Args<Tensor>) -> Tensor {
        super::quantized_product::with(input, weight, scales, group_size, bits).offsets(offsets).bias(bias).call()
    }
}

/// `residual + linear_quantized(input, weight)`, in the place of the residual: operands as of
/// [`mod@quantized_product`]; residual and out [..., out].
#[operator(name = "decode::residual_quantized_product")]
pub mod residual_quantized_product {
    fn residual_quantized_product(
        residual: Tensor<Floating>,
        input: Tensor<Floating>,
        weight: Tensor<Integer>,
        scales: Tensor<Floating>,
        group_size: usize,
        bits: usize,
    ) -> Tensor;

    fn decomposition(Args { residual, input, weight, scales, group_size, bits }: Args<Tensor>) -> Tensor {
        add(residual, linear_quantized(input, weight, scales, group_size, bits))
    }

    fn reference(Args { residual, input, weight, scales, group_size, bits }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        rows_times(input, &numbers_of(weight, scales, None, (group_size, bits)), None) + residual
    }

    fn samples(s: &mut Samples) {
        for (rows, inputs, outputs, group) in [(1, 128, 40, 32), (8, 256, 34, 128), (16, 128, 18, 64), (17, 128, 4, 32)]
        {
            let (inputs, group) = (extent(s, inputs), extent(s, group));
            for bits in [8, 4] {
                let (weight, scales) = packed(s, [outputs, inputs], group, bits);
                let (residual, input) = (s.normal([rows, outputs]), s.normal([rows, inputs]));
                s.case(with(residual, input, weight, scales, group, bits));
            }
        }
        let inputs = extent(s, 128);
        let (weight, scales) = packed(s, [24, inputs], 64, 4);
        s.case(with(s.normal([2, 3, 24]), s.normal([2, 3, inputs]), weight, scales, 64, 4));
        if s.dtype().size() == 2 {
            let (weight, scales) = packed(s, [8, 2176], 128, 4);
            s.case(with(s.normal([3, 8]), s.normal([3, 2176]), weight, scales, 128, 4));
        }
    }
}

#[implementation(of = residual_quantized_product, by = decode, strided, in_place(residual))]
mod residual_quantized_product_by_decode {
    fn checker(Args { residual, input, weight, scales, group_size, bits }: Args<&TensorMeta>) -> Claim {
        super::quantized_fits(input, weight, scales, group_size, bits)?;
        super::same_form(residual, input, weight)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { residual, input, weight, scales, group_size, bits } = args;
        let residual = Some(residual);
        let quantized = Some(super::Quantized { scales: &[scales], offsets: None, group_size, bits });
        super::Product { input, weights: &[weight], norm: None, bias: None, residual, quantized }.plan(plan, out)
    }
}

/// The size of the groups and the bits of a weight, which shapes and its type tell.
pub(crate) fn form(input: Tensor, weight: Tensor, scales: Tensor) -> (usize, usize) {
    let bits = if weight.dtype() == DType::I8 { 8 } else { 4 };
    (input.size(-1) / scales.size(-1).max(1), bits)
}

/// A quantized layer that is added to a residual.
#[rewrite(executor = decode)]
pub mod residual_of_quantized {
    fn pattern(residual: Tensor, input: Tensor, weight: Tensor, scales: Tensor) -> Tensor {
        let (group_size, bits) = super::form(input, weight, scales);
        add(residual, linear_quantized(input, weight, scales, group_size, bits))
    }

    fn replacement(residual: Tensor, input: Tensor, weight: Tensor, scales: Tensor) -> Tensor {
        let (group_size, bits) = super::form(input, weight, scales);
        residual_quantized_product(residual, input, weight, scales, group_size, bits)
    }

    fn condition(residual: &TensorMeta, input: &TensorMeta, weight: &TensorMeta) -> Claim {
        super::same_form(residual, input, weight)
    }

    fn samples(s: &mut Samples) {
        let (weight, scales) = super::packed(s, [16, 8], 4, 8);
        s.case(with(s.normal([4, 16]), s.normal([4, 8]), weight, scales));
        let (weight, scales) = super::packed(s, [8, 12], 6, 4);
        s.case(with(s.normal([2, 3, 8]), s.normal([2, 3, 12]), weight, scales));
    }
}
