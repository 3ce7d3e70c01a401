use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::{DType, Tensor, TensorMeta, refuse_unless};

use super::{Product, decode, is_worth_it, product_fits, rows_times, swiglu_product};
use fulgurite_ops::nn::{linear, rms_norm, swiglu};

/// Whether the kernel is written for a row of these, its norm, and this weight. What is multiplied is the row times
/// `gain` before it is divided by its root mean square, for which f16 has no room.
fn norm_fits(input: &TensorMeta, gain: &TensorMeta, weight: &TensorMeta) -> Claim {
    refuse_unless!(input.dtype() == DType::BF16, "input is {}, takes bf16", input.dtype());
    product_fits(input, weight)?;
    let inputs = weight.shape()[1];
    refuse_unless!(*gain == input.with_shape([inputs]), "gain is {gain}, takes {}", input.with_shape([inputs]));
    Ok(())
}

/// For references: rows normalized by their root mean square.
pub(crate) fn normalized(
    input: &ndarray::ArrayD<f64>,
    gain: &ndarray::ArrayD<f64>,
    eps: f64,
    offset: f64,
) -> ndarray::ArrayD<f64> {
    let mut out = input.clone();
    for mut row in out.rows_mut() {
        let squares: f64 = row.iter().map(|x| x * x).sum();
        let root = (squares / row.len() as f64 + eps).sqrt();
        row.iter_mut().zip(gain).for_each(|(x, gain)| *x *= (gain + offset) / root);
    }
    out
}

/// `rms_norm(input) · weightᵀ`: input [..., in], gain [in], which is the norm's weight, weight [out, in]; out
/// [..., out].
#[operator(name = "decode::norm_product")]
pub mod norm_product {
    fn norm_product(
        input: Tensor<Floating>,
        gain: Tensor<Floating>,
        weight: Tensor<Floating>,
        eps: f64,
        offset: f64,
    ) -> Tensor;

    fn decomposition(input: Tensor, gain: Tensor, weight: Tensor, eps: f64, offset: f64) -> Tensor {
        linear(rms_norm::with(input, gain.shape()).weight(gain).eps(eps).offset(offset).call(), weight)
    }

    fn reference(input: &ArrayD<f64>, gain: &ArrayD<f64>, weight: &ArrayD<f64>, eps: f64, offset: f64) -> ArrayD<f64> {
        rows_times(&super::normalized(input, gain, eps, offset), weight, None)
    }

    fn samples(s: &mut Samples) {
        for (rows, inputs, outputs, offset) in [(1, 64, 40, 0.0), (8, 32, 33, 1.0), (16, 96, 17, 0.0), (17, 32, 3, 0.0)]
        {
            let (gain, weight) = (s.uniform(0.5 - offset, 1.5 - offset, [inputs]), s.normal([outputs, inputs]));
            s.case(with(s.normal([rows, inputs]), gain, weight, 1e-5, offset));
        }
        // Rows so small that `eps` counts, and many steps, for the kernel.
        let small = s.uniform(-0.002, 0.002, [2, 3, 64]);
        s.case(with(small, s.uniform(0.5, 1.5, [64]), s.normal([24, 64]), 1e-5, 0.0));
        if s.dtype().size() == 2 {
            s.case(with(s.normal([3, 544]), s.uniform(0.5, 1.5, [544]), s.normal([7, 544]), 1e-6, 0.0));
            // Outputs of two blocks each.
            s.case(with(s.normal([11, 256]), s.uniform(0.5, 1.5, [256]), s.normal([1090, 256]), 1e-5, 0.0));
        }
    }
}

#[implementation(of = norm_product, by = decode, strided)]
mod norm_product_by_decode {
    fn checker(input: &TensorMeta, gain: &TensorMeta, weight: &TensorMeta) -> Claim {
        super::norm_fits(input, gain, weight)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { input, gain, weight, eps, offset } = args;
        let norm = Some((gain, offset, eps));
        super::Product { input, weights: &[weight], norm, bias: None, residual: None, quantized: None }.plan(plan, out)
    }
}

/// `swiglu` of two linear layers of `rms_norm(input)`: input [..., in], gain [in], gate and up [out, in]; out
/// [..., out].
#[operator(name = "decode::norm_swiglu_product")]
pub mod norm_swiglu_product {
    fn norm_swiglu_product(
        input: Tensor<Floating>,
        gain: Tensor<Floating>,
        gate: Tensor<Floating>,
        up: Tensor<Floating>,
        eps: f64,
        offset: f64,
    ) -> Tensor;

    fn decomposition(input: Tensor, gain: Tensor, gate: Tensor, up: Tensor, eps: f64, offset: f64) -> Tensor {
        let row = rms_norm::with(input, gain.shape()).weight(gain).eps(eps).offset(offset).call();
        swiglu(linear(row, gate), linear(row, up))
    }

    fn reference(Args { input, gain, gate, up, eps, offset }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let row = super::normalized(input, gain, eps, offset);
        rows_times(&row, gate, None).mapv(|x| x / (1.0 + (-x).exp())) * rows_times(&row, up, None)
    }

    fn samples(s: &mut Samples) {
        for (rows, inputs, outputs, offset) in [(1, 64, 40, 0.0), (8, 32, 33, 1.0), (16, 96, 17, 0.0), (17, 32, 3, 0.0)]
        {
            let gain = s.uniform(0.5 - offset, 1.5 - offset, [inputs]);
            let weight = || s.uniform(-0.2, 0.2, [outputs, inputs]);
            s.case(with(s.normal([rows, inputs]), gain, weight(), weight(), 1e-5, offset));
        }
        if s.dtype().size() == 2 {
            let weight = || s.uniform(-0.1, 0.1, [7, 544]);
            s.case(with(s.normal([3, 544]), s.uniform(0.5, 1.5, [544]), weight(), weight(), 1e-6, 0.0));
        }
    }
}

#[implementation(of = norm_swiglu_product, by = decode, strided)]
mod norm_swiglu_product_by_decode {
    fn checker(input: &TensorMeta, gain: &TensorMeta, gate: &TensorMeta) -> Claim {
        super::norm_fits(input, gain, gate)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { input, gain, gate, up, eps, offset } = args;
        let norm = Some((gain, offset, eps));
        super::Product { input, weights: &[gate, up], norm, bias: None, residual: None, quantized: None }
            .plan(plan, out)
    }
}

/// The norm's own `eps`, or that of the type in which it computes.
pub(crate) fn eps_of(input: Tensor, eps: Option<f64>) -> f64 {
    eps.unwrap_or(input.dtype().accumulator().epsilon())
}

/// The norm of a linear layer's input, with any `eps` and `offset`.
#[rewrite(executor = decode)]
pub mod linear_of_norm {
    fn pattern(
        input: Tensor,
        #[rank(1)] gain: Tensor,
        #[rank(2)] weight: Tensor,
        eps: Option<f64>,
        offset: f64,
    ) -> Tensor {
        let columns = gain.shape().to_vec();
        linear(rms_norm::with(input, columns).weight(gain).eps(eps).offset(offset).call(), weight)
    }

    fn replacement(input: Tensor, gain: Tensor, weight: Tensor, eps: Option<f64>, offset: f64) -> Tensor {
        norm_product(input, gain, weight, super::eps_of(input, eps), offset)
    }

    fn condition(weight: &TensorMeta) -> Claim {
        is_worth_it(weight)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([8]), s.normal([16, 8]), 1e-5, 0.0));
        s.case(with(s.normal([2, 3, 5]), s.normal([5]), s.normal([8, 5]), 1e-6, 1.0));
    }
}

/// As [`linear_of_norm`], of the two layers of a gated unit, once `swiglu_of_linear` has joined them: rewrites run in
/// the order of their names.
#[rewrite(executor = decode)]
pub mod swiglu_of_norm {
    fn pattern(
        input: Tensor,
        #[rank(1)] gain: Tensor,
        gate: Tensor,
        up: Tensor,
        eps: Option<f64>,
        offset: f64,
    ) -> Tensor {
        let columns = gain.shape().to_vec();
        swiglu_product(rms_norm::with(input, columns).weight(gain).eps(eps).offset(offset).call(), gate, up)
    }

    fn replacement(input: Tensor, gain: Tensor, gate: Tensor, up: Tensor, eps: Option<f64>, offset: f64) -> Tensor {
        norm_swiglu_product(input, gain, gate, up, super::eps_of(input, eps), offset)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([8]), s.normal([16, 8]), s.normal([16, 8]), 1e-5, 0.0));
        s.case(with(s.normal([2, 3, 5]), s.normal([5]), s.normal([8, 5]), s.normal([8, 5]), 1e-6, 1.0));
    }
}
