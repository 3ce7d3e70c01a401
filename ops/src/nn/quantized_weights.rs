//! Weights as integers of 8 or 4 bits, of which a group of neighbours along the inputs shares a scale.
//!
//! Integers of 8 bits are i8 `[out, in]`. Of 4 bits two neighbours share a byte, u8 `[out, in / 2]`: the lower four
//! bits are input `2 j`, the upper four input `2 j + 1`.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Scalar;
use fulgurite_runtime::testing::samples::{SampleTensor, Samples, round_to};
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use crate::core::promotion::{accumulating, broadcast, cast};
use crate::prims;

/// What is wrong with a weight of so many bits, in words; or the numbers of outputs and inputs.
pub(crate) fn quantized_extents(weight: &TensorMeta, bits: usize) -> Result<[usize; 2], String> {
    let dtype = match bits {
        8 => DType::I8,
        4 => DType::U8,
        _ => return Err(format!("bits is {bits}, expected 8 or 4")),
    };
    if weight.rank() != 2 || weight.dtype() != dtype {
        let form = if bits == 8 { "[out, in]" } else { "[out, in / 2]" };
        return Err(format!("weight is {weight}, expected {dtype}{form} for {bits} bits"));
    }
    Ok([weight.shape()[0], weight.shape()[1] * (8 / bits)])
}

/// What is wrong with groups of so many of these inputs, in words; or their number.
pub(crate) fn quantized_groups(inputs: usize, group_size: usize, bits: usize) -> Result<usize, String> {
    if group_size == 0 || !inputs.is_multiple_of(group_size) {
        return Err(format!("group_size is {group_size}, expected a divisor of {inputs}, the number of inputs"));
    }
    if bits == 4 && !group_size.is_multiple_of(2) {
        return Err(format!("group_size is {group_size}, expected an even number: two inputs of 4 bits share a byte"));
    }
    Ok(inputs / group_size)
}

/// The integer that one of 4 bits stands for where there are no offsets: 0 to 15 stand for -8 to 7.
const CENTER: i64 = 8;

/// The numbers that a quantized weight stands for, `[out, in]`, in the type of `scales`:
///
/// - 8 bits: `q · scale`, q from -128 to 127.
/// - 4 bits: `(q − 8) · scale`, q from 0 to 15.
/// - either with `offsets`: `q · scale + offset`.
///
/// `weight` is i8 `[out, in]` of 8 bits, and of 4 bits u8 `[out, in / 2]`: the lower four bits of a byte are the first
/// of two neighbours. `scales` and `offsets` are `[out, in / group_size]`: `group_size` neighbours along the inputs
/// share one. Each result is rounded to the type of `scales`.
#[operator]
pub mod dequantize_weight {
    fn dequantize_weight(
        weight: Tensor<Integer>,
        scales: Tensor<Floating>,
        group_size: usize,
        bits: usize,
        #[default(None)] offsets: Option<Tensor<Floating>>,
    ) -> Tensor;

    fn meta(Args { weight, scales, group_size, bits, offsets }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let extents = super::quantized_extents(weight, bits);
        require!(extents.is_ok(), Weight, "{}", extents.err().unwrap_or_default());
        let [outputs, inputs] = extents.unwrap_or_default();
        let groups = super::quantized_groups(inputs, group_size, bits);
        require!(groups.is_ok(), GroupSize, "{}", groups.err().unwrap_or_default());
        let expected = [outputs, groups.unwrap_or_default()];
        require!(scales.shape() == expected, Scales, "scales has shape {:?}, expected {expected:?}", scales.shape());
        if let Some(offsets) = offsets {
            require!(offsets == scales, Offsets, "offsets is {offsets}, expected {scales}, as scales");
        }
        Ok(scales.with_shape([outputs, inputs]))
    }

    fn decomposition(Args { weight, scales, group_size, bits, offsets }: Args<Tensor>) -> Tensor {
        let (outputs, groups) = (scales.size(0), scales.size(1));
        let mut codes = weight;
        if bits == 4 {
            let pairs = prims::reshape(weight, [outputs, weight.size(1), 1]);
            let both = [outputs, weight.size(1), 2];
            let shifts = prims::iota(2, Scalar::Int(0), Scalar::Int(4), DType::U8, weight.device());
            let shifted = prims::bitwise_right_shift(broadcast(pairs, &both), broadcast(shifts, &both));
            codes = prims::bitwise_and(shifted, 15);
        }
        let grouped = [outputs, groups, group_size];
        let of_groups = |one: Tensor| broadcast(prims::reshape(one, [outputs, groups, 1]), &grouped);
        let mut codes = cast(prims::reshape(codes, grouped), scales.dtype());
        if bits == 4 && offsets.is_none() {
            codes = prims::sub(codes, super::CENTER as f64);
        }
        let mut out = prims::mul(codes, of_groups(scales));
        if let Some(offsets) = offsets {
            out = prims::add(out, of_groups(offsets));
        }
        prims::reshape(out, [outputs, groups * group_size])
    }

    fn reference(Args { weight, scales, group_size, bits, offsets }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let inputs = scales.shape()[1] * group_size;
        ArrayD::from_shape_fn(IxDyn(&[scales.shape()[0], inputs]), |at| {
            let (output, group) = (at[0], at[1] / group_size);
            let code = match bits {
                8 => weight[[output, at[1]]],
                _ => weight[[output, at[1] / 2]] / if at[1] % 2 == 0 { 1 } else { 16 } % 16,
            };
            let scale = scales[[output, group]];
            match offsets {
                Some(offsets) => code as f64 * scale + offsets[[output, group]],
                None => (code - if bits == 4 { 8 } else { 0 }) as f64 * scale,
            }
        })
    }

    fn samples(s: &mut Samples) {
        for (outputs, inputs, group) in [(3, 64, 32), (7, 128, 64), (2, 384, 128), (5, 6, 2), (1, 32, 32), (0, 64, 32)]
        {
            for bits in [8, 4] {
                let weight = super::quantized_codes(s, [outputs, inputs], bits);
                let [scales, offsets] = [0.1, 0.2].map(|most| s.uniform(0.01, most, [outputs, inputs / group]));
                s.case(with(weight.clone(), scales.clone(), group, bits));
                s.case(with(weight, scales, group, bits).offsets(offsets));
            }
        }
        // Every integer; groups of odd numbers.
        let all: Vec<f64> = (-128..128).map(f64::from).collect();
        s.case(with(s.values([2, 128], all).cast(DType::I8), s.values([2, 2], [1.0, 0.5, -2.0, 0.0]), 64, 8));
        let all: Vec<f64> = (0..256).map(f64::from).collect();
        s.case(with(s.values([2, 128], all).cast(DType::U8), s.values([2, 2], [1.0, 0.5, -2.0, 0.0]), 128, 4));
        s.case(with(super::quantized_codes(s, [4, 15], 8), s.uniform(0.01, 0.1, [4, 3]), 5, 8));
    }

    fn errors(e: &mut ErrorSamples) {
        let bytes = |shape: [usize; 2]| e.integers(0, 100, shape).cast(DType::U8);
        e.case(Weight, with(bytes([2, 8]), e.normal([2, 1]), 8, 3), "bits is 3, expected 8 or 4");
        e.case(Weight, with(bytes([2, 8]), e.normal([2, 1]), 8, 8), "expected i8[out, in] for 8 bits");
        e.case(Weight, with(e.integers(0, 9, [8]).cast(DType::U8), e.normal([1]), 8, 4), "expected u8[out, in / 2]");
        e.case(GroupSize, with(bytes([2, 8]), e.normal([2, 2]), 5, 4), "expected a divisor of 16");
        e.case(GroupSize, with(bytes([2, 8]), e.normal([2, 2]), 0, 4), "expected a divisor of 16");
        e.case(GroupSize, with(bytes([2, 15]), e.normal([2, 2]), 15, 4), "expected an even number");
        e.case(Scales, with(bytes([2, 8]), e.normal([2, 3]), 8, 4), "scales has shape [2, 3], expected [2, 2]");
        let other = with(bytes([2, 8]), e.normal([2, 2]), 8, 4).offsets(e.normal([2, 1]));
        e.case(Offsets, other, "offsets is f32[2, 1]");
    }
}

/// For samples: a quantized weight with so many outputs and inputs, of any integers.
pub(crate) fn quantized_codes(s: &Samples, [outputs, inputs]: [usize; 2], bits: usize) -> SampleTensor {
    match bits {
        8 => s.integers(-128, 128, [outputs, inputs]).cast(DType::I8),
        _ => s.integers(0, 256, [outputs, inputs / 2]).cast(DType::U8),
    }
}

/// A weight `[out, in]` as integers of 8 or 4 bits and their scales, for [`mod@dequantize_weight`], symmetric by
/// groups: of `group_size` neighbours along the inputs the scale is the largest magnitude over 127, or over 7, rounded
/// to `scale_dtype`; each number is divided by this scale and rounded to the nearest, ties to even. So no number is
/// farther from what stands for it than half of its scale, but for what the rounding of the scale cuts off: at most
/// half of the scale's last place times 127, or 7. Of a group of zeros the scale is 0. Numbers are finite.
#[operator(no_grad = "integers have no gradient")]
pub mod quantize_weight {
    #[results(codes, scales)]
    fn quantize_weight(
        weight: Tensor<Floating>,
        group_size: usize,
        bits: usize,
        scale_dtype: DType,
    ) -> (Tensor, Tensor);

    fn meta(
        weight: &TensorMeta,
        group_size: usize,
        bits: usize,
        scale_dtype: DType,
    ) -> Result<(TensorMeta, TensorMeta)> {
        require!(weight.rank() == 2, Weight, "weight has shape {:?}, expected [out, in]", weight.shape());
        require!(matches!(bits, 4 | 8), Bits, "bits is {bits}, expected 8 or 4");
        let (outputs, inputs) = (weight.shape()[0], weight.shape()[1]);
        let groups = super::quantized_groups(inputs, group_size, bits);
        require!(groups.is_ok(), GroupSize, "{}", groups.err().unwrap_or_default());
        require!(scale_dtype.is_floating(), ScaleType, "scale_dtype is {scale_dtype}, expected a floating-point type");
        let (dtype, width) = if bits == 8 { (DType::I8, inputs) } else { (DType::U8, inputs / 2) };
        let scales = weight.with_shape([outputs, groups.unwrap_or_default()]).with_dtype(scale_dtype);
        Ok((weight.with_shape([outputs, width]).with_dtype(dtype), scales))
    }

    fn decomposition(weight: Tensor, group_size: usize, bits: usize, scale_dtype: DType) -> (Tensor, Tensor) {
        let (outputs, inputs) = (weight.size(0), weight.size(1));
        let grouped = [outputs, inputs / group_size, group_size];
        let numbers = accumulating(prims::reshape(weight, grouped));
        let most = super::largest(bits);
        let scales = cast(prims::div(prims::amax(prims::abs(numbers), [2]), most), scale_dtype);
        let divisors = cast(scales, numbers.dtype());
        // Numbers of a group whose scale is 0 are 0, or too small for a scale of this type.
        let divisors = prims::select(prims::eq(divisors, 0.0), f64::INFINITY, divisors);
        let divisors = broadcast(prims::reshape(divisors, [outputs, grouped[1], 1]), &grouped);
        let rounded = prims::round(prims::div(numbers, divisors));
        let rounded = prims::maximum(prims::minimum(rounded, most), -most);
        if bits == 8 {
            return (cast(prims::reshape(rounded, [outputs, inputs]), DType::I8), scales);
        }
        let codes = cast(prims::add(rounded, super::CENTER as f64), DType::U8);
        let pairs = prims::reshape(codes, [outputs, inputs / 2, 2]);
        let half = |place: usize| {
            let one = prims::slice(pairs, [0, 0, place], [outputs, inputs / 2, place + 1], [1, 1, 1]);
            prims::reshape(one, [outputs, inputs / 2])
        };
        (prims::bitwise_or(half(0), prims::bitwise_left_shift(half(1), 4)), scales)
    }

    fn reference(
        weight: &ArrayD<f64>,
        group_size: usize,
        bits: usize,
        scale_dtype: DType,
    ) -> (ArrayD<i64>, ArrayD<f64>) {
        let (outputs, inputs) = (weight.shape()[0], weight.shape()[1]);
        let most = if bits == 8 { 127.0 } else { 7.0 };
        let scales = ArrayD::from_shape_fn(IxDyn(&[outputs, inputs / group_size]), |at| {
            let group = at[1] * group_size..(at[1] + 1) * group_size;
            let largest = group.map(|input| weight[[at[0], input]].abs()).fold(0.0, f64::max);
            round_to(largest / most, scale_dtype)
        });
        let code = |output: usize, input: usize| {
            let scale = scales[[output, input / group_size]];
            let nearest = if scale == 0.0 { 0.0 } else { (weight[[output, input]] / scale).round_ties_even() };
            nearest.clamp(-most, most) as i64
        };
        let codes = match bits {
            8 => ArrayD::from_shape_fn(IxDyn(&[outputs, inputs]), |at| code(at[0], at[1])),
            _ => ArrayD::from_shape_fn(IxDyn(&[outputs, inputs / 2]), |at| {
                code(at[0], 2 * at[1]) + 8 + 16 * (code(at[0], 2 * at[1] + 1) + 8)
            }),
        };
        (codes, scales)
    }

    fn samples(s: &mut Samples) {
        for (outputs, inputs, group) in [(3, 64, 32), (7, 128, 64), (2, 384, 128), (5, 6, 2), (0, 64, 32)] {
            for bits in [8, 4] {
                let own = s.dtype();
                s.case(with(s.normal([outputs, inputs]), group, bits, own));
                s.case(with(s.uniform(-0.1, 0.1, [outputs, inputs]), group, bits, DType::BF16));
            }
        }
        // A group of zeros, one number alone, ties.
        let numbers = [0.0, 0.0, 0.0, 0.0, 0.0, 7.0, 0.0, 0.0, 3.5, -7.0, 2.5, -1.5];
        s.case(with(s.values([3, 4], numbers), 4, 4, DType::F32));
        s.case(with(s.values([1, 4], [127.0, -126.5, 0.5, 1.5]), 4, 8, DType::F32));
        s.case(with(s.normal([4, 15]), 5, 8, DType::F16));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Weight, with(e.normal([8]), 8, 8, DType::F32), "weight has shape [8], expected [out, in]");
        e.case(Bits, with(e.normal([2, 8]), 8, 2, DType::F32), "bits is 2, expected 8 or 4");
        e.case(GroupSize, with(e.normal([2, 8]), 3, 8, DType::F32), "expected a divisor of 8");
        e.case(GroupSize, with(e.normal([2, 9]), 3, 4, DType::F32), "expected an even number");
        e.case(ScaleType, with(e.normal([2, 8]), 8, 8, DType::I32), "scale_dtype is i32");
    }
}

/// The largest integer that a number is rounded to.
fn largest(bits: usize) -> f64 {
    if bits == 8 { 127.0 } else { 7.0 }
}
