use fulgurite_ops_macros::operator;

use super::{dequantize_weight, linear, quantized_codes, quantized_extents, quantized_groups};
use crate::core::promotion::cast;

/// [`linear`] of a weight of 8 or 4 bits: `input · Wᵀ + bias`, where W is [`mod@dequantize_weight`] of `weight`, and of
/// `scales` and `offsets` in the type of `input`.
///
/// - `input` is `[..., in]`, `bias` `[out]` of its type; out `[..., out]`.
/// - `weight` of 8 bits is i8 `[out, in]`; of 4 bits u8 `[out, in / 2]`, the lower four bits of a byte first.
/// - `scales` and `offsets` are `[out, in / group_size]`. Without offsets 4 bits are the integers -8 to 7, with them 0
///   to 15.
///
/// Each number of W is rounded to the input's type, as the parameters of a model in that type are; products are summed
/// as in [`linear`]. Integers have no gradient. Symmetric rounding by groups: Dettmers and Zettlemoyer, "The case for
/// 4-bit precision", 2023; the formats with offsets are llama.cpp's `Q4_1` and what AWQ and GPTQ store.
#[operator(autocast = low, waive(group_size = "the number of scales tells it: others are refused"))]
pub mod linear_quantized {
    fn linear_quantized(
        input: Tensor<Floating>,
        weight: Tensor<Integer>,
        scales: Tensor<Floating>,
        group_size: usize,
        bits: usize,
        #[default(None)] offsets: Option<Tensor<Floating>>,
        #[default(None)] bias: Option<Tensor<Floating>>,
    ) -> Tensor;

    fn meta(Args { input, weight, scales, group_size, bits, offsets, bias }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let extents = quantized_extents(weight, bits);
        require!(extents.is_ok(), Weight, "{}", extents.err().unwrap_or_default());
        let [outputs, inputs] = extents.unwrap_or_default();
        require!(
            input.shape().last() == Some(&inputs),
            InputWidth,
            "input has shape {:?}, expected its last extent to be {inputs}, the weight's inputs",
            input.shape()
        );
        let groups = quantized_groups(inputs, group_size, bits);
        require!(groups.is_ok(), GroupSize, "{}", groups.err().unwrap_or_default());
        let expected = [outputs, groups.unwrap_or_default()];
        require!(scales.shape() == expected, Scales, "scales has shape {:?}, expected {expected:?}", scales.shape());
        if let Some(offsets) = offsets {
            require!(offsets == scales, Offsets, "offsets is {offsets}, expected {scales}, as scales");
        }
        if let Some(bias) = bias {
            let expected = input.with_shape([outputs]);
            require!(*bias == expected, Bias, "bias is {bias}, expected {expected}");
        }
        let mut shape = input.shape()[..input.rank() - 1].to_vec();
        shape.push(outputs);
        Ok(input.with_shape(shape))
    }

    fn decomposition(Args { input, weight, scales, group_size, bits, offsets, bias }: Args<Tensor>) -> Tensor {
        let own = |numbers: Tensor| cast(numbers, input.dtype());
        let numbers = dequantize_weight::with(weight, own(scales), group_size, bits).offsets(offsets.map(own)).call();
        linear::with(input, numbers).bias(bias).call()
    }

    fn reference(
        Args { input, weight, scales, group_size, bits, offsets, bias }: Args<&ReferenceTensor>,
    ) -> ArrayD<f64> {
        let inputs = scales.shape()[1] * group_size;
        let number = |output: usize, i: usize| {
            let code = match bits {
                8 => weight[[output, i]],
                _ => (weight[[output, i / 2]] >> (4 * (i % 2))) & 15,
            };
            let (scale, offset) = (scales[[output, i / group_size]], offsets.map(|all| all[[output, i / group_size]]));
            let center = if bits == 4 && offset.is_none() { 8 } else { 0 };
            (code - center) as f64 * scale + offset.unwrap_or(0.0)
        };
        let mut shape = input.shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = scales.shape()[0];
        }
        ArrayD::from_shape_fn(IxDyn(&shape), |index| {
            let mut at: Vec<usize> = ndarray::Dimension::slice(&index).to_vec();
            let (end, output) = (at.len() - 1, at[at.len() - 1]);
            let products = (0..inputs).map(|i| {
                at[end] = i;
                input[at.as_slice()] * number(output, i)
            });
            products.sum::<f64>() + bias.map_or(0.0, |bias| bias[[output]])
        })
    }

    fn samples(s: &mut Samples) {
        let call = |s: &Samples, rows: &[usize], [inputs, outputs]: [usize; 2], group: usize, bits: usize| {
            // Sums of numbers of either width are of one size.
            let most = if bits == 8 { 0.002 } else { 0.03 };
            let scales = s.uniform(most / 8.0, most, [outputs, inputs / group]);
            let mut shape = rows.to_vec();
            shape.push(inputs);
            with(s.normal(shape), quantized_codes(s, [outputs, inputs], bits), scales, group, bits)
        };
        for bits in [8, 4] {
            let cases = [
                call(s, &[1], [64, 7], 32, bits),
                call(s, &[3], [64, 5], 64, bits),
                call(s, &[16], [128, 9], 128, bits),
                call(s, &[2, 3], [6, 4], 2, bits),
                call(s, &[], [32, 3], 32, bits),
                call(s, &[0], [32, 3], 32, bits),
                call(s, &[5], [0, 3], 2, bits),
            ];
            for case in cases {
                s.case(case);
            }
            let offsets = s.uniform(-0.2, 0.2, [7, 2]);
            s.case(call(s, &[2, 2], [64, 7], 32, bits).offsets(offsets).bias(s.normal([7])));
            s.case(call(s, &[4], [96, 6], 32, bits).bias(s.normal([6])));
        }
        // Scales of another type, groups of odd numbers.
        let scales = s.uniform(0.005, 0.05, [6, 3]).cast(DType::F32);
        s.case(with(s.normal([4, 15]), quantized_codes(s, [6, 15], 8), scales, 5, 8));
    }

    fn errors(e: &mut ErrorSamples) {
        let bytes = |shape: [usize; 2]| e.integers(0, 100, shape).cast(DType::U8);
        let (input, scales) = (|| e.normal([4, 16]), || e.normal([2, 2]));
        e.case(Weight, with(input(), bytes([2, 8]), scales(), 8, 5), "bits is 5, expected 8 or 4");
        e.case(Weight, with(input(), bytes([2, 16]), scales(), 8, 8), "expected i8[out, in] for 8 bits");
        e.case(InputWidth, with(e.normal([4, 8]), bytes([2, 8]), scales(), 8, 4), "expected its last extent to be 16");
        e.case(InputWidth, with(e.normal([]), bytes([2, 8]), scales(), 8, 4), "expected its last extent to be 16");
        e.case(GroupSize, with(input(), bytes([2, 8]), scales(), 6, 4), "expected a divisor of 16");
        e.case(Scales, with(input(), bytes([2, 8]), e.normal([2]), 8, 4), "scales has shape [2], expected [2, 2]");
        let other = with(input(), bytes([2, 8]), scales(), 8, 4).offsets(e.normal([2, 1]));
        e.case(Offsets, other, "offsets is f32[2, 1]");
        e.case(Bias, with(input(), bytes([2, 8]), scales(), 8, 4).bias(e.normal([3])), "bias is f32[3]");
    }
}
