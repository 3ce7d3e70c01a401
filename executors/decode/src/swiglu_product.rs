use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::TensorMeta;
use fulgurite_runtime::executor::Claim;

use super::{Product, decode, is_worth_it, product_fits, rows_times};
use fulgurite_ops::nn::{linear, swiglu};

/// `swiglu(input · gateᵀ, input · upᵀ)`: input [..., in], gate and up [out, in]; out [..., out].
#[operator(name = "decode::swiglu_product")]
pub mod swiglu_product {
    fn swiglu_product(input: Tensor<Floating>, gate: Tensor<Floating>, up: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor, gate: Tensor, up: Tensor) -> Tensor {
        swiglu(linear(input, gate), linear(input, up))
    }

    fn reference(input: &ArrayD<f64>, gate: &ArrayD<f64>, up: &ArrayD<f64>) -> ArrayD<f64> {
        rows_times(input, gate, None).mapv(|x| x / (1.0 + (-x).exp())) * rows_times(input, up, None)
    }

    fn samples(s: &mut Samples) {
        for (rows, inputs, outputs) in [(1, 64, 40), (8, 32, 33), (16, 96, 17), (17, 32, 3)] {
            let half = |shape: [usize; 2]| s.uniform(-0.5, 0.5, shape);
            s.case(with(half([rows, inputs]), half([outputs, inputs]), half([outputs, inputs])));
        }
        // Many steps, for the kernel.
        if s.dtype().size() == 2 {
            s.case(with(s.normal([3, 544]), s.uniform(-0.1, 0.1, [7, 544]), s.uniform(-0.1, 0.1, [7, 544])));
        }
        s.case(with(s.normal([2, 3, 64]), s.uniform(-0.5, 0.5, [24, 64]), s.uniform(-0.5, 0.5, [24, 64])));
    }
}

#[implementation(of = swiglu_product, by = decode, strided)]
mod swiglu_product_by_decode {
    fn checker(input: &TensorMeta, gate: &TensorMeta) -> Claim {
        super::product_fits(input, gate)
    }

    fn plan(plan: &mut Plan, Args { input, gate, up }: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        super::Product { input, weights: &[gate, up], norm: None, bias: None, residual: None, quantized: None }
            .plan(plan, out)
    }
}

/// The gated unit of two linear layers of one input.
#[rewrite(executor = decode)]
pub mod swiglu_of_linear {
    fn pattern(input: Tensor, gate: Tensor, up: Tensor) -> Tensor {
        swiglu(linear(input, gate), linear(input, up))
    }

    fn replacement(input: Tensor, gate: Tensor, up: Tensor) -> Tensor {
        swiglu_product(input, gate, up)
    }

    fn condition(gate: &TensorMeta) -> Claim {
        is_worth_it(gate)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([16, 8]), s.normal([16, 8])));
        s.case(with(s.normal([2, 3, 5]), s.normal([8, 5]), s.normal([8, 5])));
    }
}
