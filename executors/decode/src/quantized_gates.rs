use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::{Tensor, TensorMeta, refuse_unless};

use super::{
    Product, Quantized, decode, eps_of, extent, form, normalized, numbers_of, packed, quantized_fits, rows_times,
};
use fulgurite_ops::nn::{linear_quantized, rms_norm, swiglu};
use fulgurite_runtime::DType;

/// Whether the kernel is written for a row of these, its norm, and this quantized weight: see `norm_product`.
fn quantized_norm_fits(
    (input, gain): (&TensorMeta, &TensorMeta),
    (weight, scales): (&TensorMeta, &TensorMeta),
    group_size: usize,
    bits: usize,
) -> Claim {
    refuse_unless!(input.dtype() == DType::BF16, "input is {}, takes bf16", input.dtype());
    quantized_fits(input, weight, scales, group_size, bits)?;
    let expected = input.with_shape([input.shape()[input.rank() - 1]]);
    refuse_unless!(*gain == expected, "gain is {gain}, takes {expected}");
    Ok(())
}

/// `linear_quantized` of `rms_norm(input)`: input [..., in], gain [in], which is the norm's weight, weight i8 [out, in]
/// or u8 [out, in / 2], scales [out, in / group_size]; out [..., out].
#[operator(name = "decode::norm_quantized_product")]
pub mod norm_quantized_product {
    fn norm_quantized_product(
        input: Tensor<Floating>,
        gain: Tensor<Floating>,
        weight: Tensor<Integer>,
        scales: Tensor<Floating>,
        group_size: usize,
        bits: usize,
        eps: f64,
        offset: f64,
    ) -> Tensor;

    fn decomposition(Args { input, gain, weight, scales, group_size, bits, eps, offset }: Args<Tensor>) -> Tensor {
        let row = rms_norm::with(input, gain.shape()).weight(gain).eps(eps).offset(offset).call();
        linear_quantized(row, weight, scales, group_size, bits)
    }

    fn reference(
        Args { input, gain, weight, scales, group_size, bits, eps, offset }: Args<&ReferenceTensor>,
    ) -> ArrayD<f64> {
        let numbers = numbers_of(weight, scales, None, (group_size, bits));
        rows_times(&normalized(input, gain, eps, offset), &numbers, None)
    }

    fn samples(s: &mut Samples) {
        for (rows, inputs, outputs, offset) in
            [(1, 128, 40, 0.0), (8, 256, 34, 1.0), (16, 128, 18, 0.0), (17, 128, 4, 0.0)]
        {
            let inputs = extent(s, inputs);
            for (group, bits) in [(32, 8), (64, 4)] {
                let (weight, scales) = packed(s, [outputs, inputs], group, bits);
                let gain = s.uniform(0.5 - offset, 1.5 - offset, [inputs]);
                s.case(with(s.normal([rows, inputs]), gain, weight, scales, group, bits, 1e-5, offset));
            }
        }
        // Rows so small that `eps` counts, and many steps, for the kernel.
        let inputs = extent(s, 128);
        let (small, (weight, scales)) = (s.uniform(-0.002, 0.002, [2, 3, inputs]), packed(s, [24, inputs], 32, 4));
        s.case(with(small, s.uniform(0.5, 1.5, [inputs]), weight, scales, 32, 4, 1e-5, 0.0));
        if s.dtype().size() == 2 {
            let (weight, scales) = packed(s, [8, 2176], 128, 4);
            let gain = s.uniform(0.5, 1.5, [2176]);
            s.case(with(s.normal([3, 2176]), gain, weight, scales, 128, 4, 1e-6, 0.0));
            // Outputs of two blocks each.
            let (weight, scales) = packed(s, [1090, 1024], 128, 8);
            let gain = s.uniform(0.5, 1.5, [1024]);
            s.case(with(s.normal([11, 1024]), gain, weight, scales, 128, 8, 1e-5, 0.0));
        }
    }
}

#[implementation(of = norm_quantized_product, by = decode, strided)]
mod norm_quantized_product_by_decode {
    fn checker(Args { input, gain, weight, scales, group_size, bits, .. }: Args<&TensorMeta>) -> Claim {
        super::quantized_norm_fits((input, gain), (weight, scales), group_size, bits)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { input, gain, weight, scales, group_size, bits, eps, offset } = args;
        let norm = Some((gain, offset, eps));
        let quantized = Some(super::Quantized { scales: &[scales], offsets: None, group_size, bits });
        super::Product { input, weights: &[weight], norm, bias: None, residual: None, quantized }.plan(plan, out)
    }
}

/// `swiglu` of two quantized layers of one input [..., in]: gate and up i8 [out, in] or u8 [out, in / 2], their scales
/// [out, in / group_size]; out [..., out].
#[operator(name = "decode::swiglu_quantized_product")]
pub mod swiglu_quantized_product {
    fn swiglu_quantized_product(
        input: Tensor<Floating>,
        gate: Tensor<Integer>,
        gate_scales: Tensor<Floating>,
        up: Tensor<Integer>,
        up_scales: Tensor<Floating>,
        group_size: usize,
        bits: usize,
    ) -> Tensor;

    fn decomposition(Args { input, gate, gate_scales, up, up_scales, group_size, bits }: Args<Tensor>) -> Tensor {
        let layer = |weight: Tensor, scales: Tensor| linear_quantized(input, weight, scales, group_size, bits);
        swiglu(layer(gate, gate_scales), layer(up, up_scales))
    }

    fn reference(
        Args { input, gate, gate_scales, up, up_scales, group_size, bits }: Args<&ReferenceTensor>,
    ) -> ArrayD<f64> {
        let kind = (group_size, bits);
        let [gate, up] = [numbers_of(gate, gate_scales, None, kind), numbers_of(up, up_scales, None, kind)];
        rows_times(input, &gate, None).mapv(|x| x / (1.0 + (-x).exp())) * rows_times(input, &up, None)
    }

    fn samples(s: &mut Samples) {
        for (rows, inputs, outputs) in [(1, 128, 40), (8, 256, 34), (16, 128, 18), (17, 128, 4)] {
            let inputs = extent(s, inputs);
            for (group, bits) in [(32, 8), (64, 4), (extent(s, 128), 4)] {
                let [(gate, gates), (up, ups)] = [(); 2].map(|()| packed(s, [outputs, inputs], group, bits));
                s.case(with(s.uniform(-0.5, 0.5, [rows, inputs]), gate, gates, up, ups, group, bits));
            }
        }
        if s.dtype().size() == 2 {
            let [(gate, gates), (up, ups)] = [(); 2].map(|()| packed(s, [8, 2176], 128, 4));
            s.case(with(s.uniform(-0.2, 0.2, [3, 2176]), gate, gates, up, ups, 128, 4));
        }
    }
}

#[implementation(of = swiglu_quantized_product, by = decode, strided)]
mod swiglu_quantized_product_by_decode {
    fn checker(Args { input, gate, gate_scales, up_scales, group_size, bits, .. }: Args<&TensorMeta>) -> Claim {
        refuse_unless!(gate_scales == up_scales, "scales are {gate_scales} and {up_scales}, takes those of one form");
        super::quantized_fits(input, gate, gate_scales, group_size, bits)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { input, gate, gate_scales, up, up_scales, group_size, bits } = args;
        let quantized = super::Quantized { scales: &[gate_scales, up_scales], offsets: None, group_size, bits };
        let (weights, quantized) = (&[gate, up], Some(quantized));
        super::Product { input, weights, norm: None, bias: None, residual: None, quantized }.plan(plan, out)
    }
}

/// [`mod@swiglu_quantized_product`] of `rms_norm(input)`: gain [in].
#[operator(name = "decode::norm_swiglu_quantized_product")]
pub mod norm_swiglu_quantized_product {
    fn norm_swiglu_quantized_product(
        input: Tensor<Floating>,
        gain: Tensor<Floating>,
        gate: Tensor<Integer>,
        gate_scales: Tensor<Floating>,
        up: Tensor<Integer>,
        up_scales: Tensor<Floating>,
        group_size: usize,
        bits: usize,
        eps: f64,
        offset: f64,
    ) -> Tensor;

    fn decomposition(
        Args { input, gain, gate, gate_scales, up, up_scales, group_size, bits, eps, offset }: Args<Tensor>,
    ) -> Tensor {
        let row = rms_norm::with(input, gain.shape()).weight(gain).eps(eps).offset(offset).call();
        let layer = |weight: Tensor, scales: Tensor| linear_quantized(row, weight, scales, group_size, bits);
        swiglu(layer(gate, gate_scales), layer(up, up_scales))
    }

    fn reference(
        Args { input, gain, gate, gate_scales, up, up_scales, group_size, bits, eps, offset }: Args<&ReferenceTensor>,
    ) -> ArrayD<f64> {
        let (row, kind) = (normalized(input, gain, eps, offset), (group_size, bits));
        let [gate, up] = [numbers_of(gate, gate_scales, None, kind), numbers_of(up, up_scales, None, kind)];
        rows_times(&row, &gate, None).mapv(|x| x / (1.0 + (-x).exp())) * rows_times(&row, &up, None)
    }

    fn samples(s: &mut Samples) {
        for (rows, inputs, outputs, offset) in
            [(1, 128, 40, 0.0), (8, 256, 34, 1.0), (16, 128, 18, 0.0), (17, 128, 4, 0.0)]
        {
            let inputs = extent(s, inputs);
            for (group, bits) in [(32, 8), (64, 4)] {
                let [(gate, gates), (up, ups)] = [(); 2].map(|()| packed(s, [outputs, inputs], group, bits));
                let (input, gain) = (s.normal([rows, inputs]), s.uniform(0.5 - offset, 1.5 - offset, [inputs]));
                s.case(with(input, gain, gate, gates, up, ups, group, bits, 1e-5, offset));
            }
        }
        if s.dtype().size() == 2 {
            let [(gate, gates), (up, ups)] = [(); 2].map(|()| packed(s, [8, 1152], 128, 4));
            let (input, gain) = (s.normal([3, 1152]), s.uniform(0.25, 0.75, [1152]));
            s.case(with(input, gain, gate, gates, up, ups, 128, 4, 1e-6, 0.0));
        }
    }
}

#[implementation(of = norm_swiglu_quantized_product, by = decode, strided)]
mod norm_swiglu_quantized_product_by_decode {
    fn checker(args: Args<&TensorMeta>) -> Claim {
        let Args { input, gain, gate, gate_scales, up_scales, group_size, bits, .. } = args;
        refuse_unless!(gate_scales == up_scales, "scales are {gate_scales} and {up_scales}, takes those of one form");
        super::quantized_norm_fits((input, gain), (gate, gate_scales), group_size, bits)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { input, gain, gate, gate_scales, up, up_scales, group_size, bits, eps, offset } = args;
        let quantized = super::Quantized { scales: &[gate_scales, up_scales], offsets: None, group_size, bits };
        let (weights, quantized, norm) = (&[gate, up], Some(quantized), Some((gain, offset, eps)));
        super::Product { input, weights, norm, bias: None, residual: None, quantized }.plan(plan, out)
    }
}

/// The norm of a quantized layer's input, with any `eps` and `offset`.
#[rewrite(executor = decode)]
pub mod quantized_of_norm {
    fn pattern(
        input: Tensor,
        #[rank(1)] gain: Tensor,
        weight: Tensor,
        scales: Tensor,
        eps: Option<f64>,
        offset: f64,
    ) -> Tensor {
        let columns = gain.shape().to_vec();
        let row = rms_norm::with(input, columns).weight(gain).eps(eps).offset(offset).call();
        let (group_size, bits) = super::form(input, weight, scales);
        linear_quantized(row, weight, scales, group_size, bits)
    }

    fn replacement(
        input: Tensor,
        gain: Tensor,
        weight: Tensor,
        scales: Tensor,
        eps: Option<f64>,
        offset: f64,
    ) -> Tensor {
        let (group_size, bits) = super::form(input, weight, scales);
        norm_quantized_product(input, gain, weight, scales, group_size, bits, super::eps_of(input, eps), offset)
    }

    fn samples(s: &mut Samples) {
        let (weight, scales) = super::packed(s, [16, 8], 4, 8);
        s.case(with(s.normal([4, 8]), s.normal([8]), weight, scales, 1e-5, 0.0));
        let (weight, scales) = super::packed(s, [8, 12], 6, 4);
        s.case(with(s.normal([2, 3, 12]), s.normal([12]), weight, scales, 1e-6, 1.0));
    }
}

/// The gated unit of two quantized layers of one input.
#[rewrite(executor = decode)]
pub mod swiglu_of_quantized {
    fn pattern(input: Tensor, gate: Tensor, gate_scales: Tensor, up: Tensor, up_scales: Tensor) -> Tensor {
        let (group_size, bits) = super::form(input, gate, gate_scales);
        let first = linear_quantized(input, gate, gate_scales, group_size, bits);
        swiglu(first, linear_quantized(input, up, up_scales, group_size, bits))
    }

    fn replacement(input: Tensor, gate: Tensor, gate_scales: Tensor, up: Tensor, up_scales: Tensor) -> Tensor {
        let (group_size, bits) = super::form(input, gate, gate_scales);
        swiglu_quantized_product(input, gate, gate_scales, up, up_scales, group_size, bits)
    }

    fn samples(s: &mut Samples) {
        let [(gate, gates), (up, ups)] = [(); 2].map(|()| super::packed(s, [16, 8], 4, 8));
        s.case(with(s.normal([4, 8]), gate, gates, up, ups));
        let [(gate, gates), (up, ups)] = [(); 2].map(|()| super::packed(s, [8, 12], 6, 4));
        s.case(with(s.normal([2, 3, 12]), gate, gates, up, ups));
    }
}

/// As [`quantized_of_norm`], of the two layers of a gated unit, once [`swiglu_of_quantized`] has joined them: rewrites
/// run in the order of their names.
#[rewrite(executor = decode)]
pub mod swiglu_quantized_of_norm {
    fn pattern(
        input: Tensor,
        #[rank(1)] gain: Tensor,
        gate: Tensor,
        gate_scales: Tensor,
        up: Tensor,
        up_scales: Tensor,
        eps: Option<f64>,
        offset: f64,
    ) -> Tensor {
        let columns = gain.shape().to_vec();
        let row = rms_norm::with(input, columns).weight(gain).eps(eps).offset(offset).call();
        let (group_size, bits) = super::form(input, gate, gate_scales);
        swiglu_quantized_product(row, gate, gate_scales, up, up_scales, group_size, bits)
    }

    fn replacement(
        input: Tensor,
        gain: Tensor,
        gate: Tensor,
        gate_scales: Tensor,
        up: Tensor,
        up_scales: Tensor,
        eps: Option<f64>,
        offset: f64,
    ) -> Tensor {
        let ((group_size, bits), eps) = (super::form(input, gate, gate_scales), super::eps_of(input, eps));
        norm_swiglu_quantized_product(input, gain, gate, gate_scales, up, up_scales, group_size, bits, eps, offset)
    }

    fn samples(s: &mut Samples) {
        let [(gate, gates), (up, ups)] = [(); 2].map(|()| super::packed(s, [16, 8], 4, 8));
        s.case(with(s.normal([4, 8]), s.normal([8]), gate, gates, up, ups, 1e-5, 0.0));
        let [(gate, gates), (up, ups)] = [(); 2].map(|()| super::packed(s, [8, 12], 6, 4));
        s.case(with(s.normal([2, 3, 12]), s.normal([12]), gate, gates, up, ups, 1e-6, 1.0));
    }
}
