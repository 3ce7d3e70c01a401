//! Layers whose contracts are those of `llmc` as well: its symbols run them.

use fulgurite_ops_macros::implementation;

use super::liger;
use fulgurite_executor_llmc as llmc;

#[implementation(of = fulgurite_ops::nn::layer_norm, by = liger)]
mod layer_norm_by_liger {
    fn checker(
        input: &TensorMeta,
        normalized_shape: &[usize],
        weight: Option<&TensorMeta>,
        bias: Option<&TensorMeta>,
    ) -> Claim {
        llmc::layernorm_fits(input, normalized_shape, weight, bias)
    }

    fn execution(
        input: Tensor,
        normalized_shape: &[usize],
        weight: Option<Tensor>,
        bias: Option<Tensor>,
        eps: f64,
    ) -> Tensor {
        let (weight, bias) = llmc::layernorm_parameters(weight, bias);
        llmc::layernorm(input, normalized_shape, weight, bias, eps).0
    }

    fn grad(
        input: Tensor,
        normalized_shape: &[usize],
        weight: Option<Tensor>,
        bias: Option<Tensor>,
        eps: f64,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let (weight, bias) = llmc::layernorm_parameters(weight, bias);
        let (out, mean, rstd) = llmc::layernorm(input, normalized_shape, weight, bias, eps);
        let shape = normalized_shape.to_vec();
        (out, move |d_out: Tensor| {
            let (d_input, d_weight, d_bias) = llmc::layernorm_backward(d_out, input, shape, weight, mean, rstd);
            Grads { input: d_input, weight: Some(d_weight), bias: Some(d_bias) }
        })
    }
}

#[implementation(of = fulgurite_ops::nn::softmax, by = liger)]
mod softmax_by_liger {
    fn checker(input: &TensorMeta, dim: i64, dtype: Option<DType>) -> Claim {
        llmc::softmax_fits(input, dim, dtype)
    }

    fn execution(input: Tensor, _dim: i64, _dtype: Option<DType>) -> Tensor {
        llmc::softmax(input)
    }

    fn grad(input: Tensor, dim: i64, _dtype: Option<DType>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = llmc::softmax(input);
        (out, move |d_out: Tensor| Grads { input: llmc::gradient_of_rows(out, d_out, dim) })
    }
}
