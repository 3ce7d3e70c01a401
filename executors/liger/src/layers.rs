//! Layers whose contracts are those of `llmc` as well: its symbols run them.

use fulgurite_ops_macros::implementation;

use super::liger;
use fulgurite_executor_llmc as llmc;

#[implementation(of = fulgurite_ops::nn::layer_norm, by = liger)]
mod layer_norm_by_liger {
    fn checker(Args { input, normalized_shape, weight, bias, .. }: Args<&TensorMeta>) -> Claim {
        llmc::layernorm_fits(input, &normalized_shape, weight, bias)
    }

    fn execution(Args { input, normalized_shape, weight, bias, eps }: Args<Tensor>) -> Tensor {
        let (weight, bias) = llmc::layernorm_parameters(weight, bias);
        llmc::layernorm(input, normalized_shape, weight, bias, eps).0
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, normalized_shape, weight, bias, eps } = args;
        let (weight, bias) = llmc::layernorm_parameters(weight, bias);
        let (out, mean, rstd) = llmc::layernorm(input, &normalized_shape, weight, bias, eps);
        (out, move |d_out: Tensor| {
            let grads = llmc::layernorm_backward(d_out, input, normalized_shape, weight, mean, rstd);
            Grads { input: grads.0, weight: Some(grads.1), bias: Some(grads.2) }
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
