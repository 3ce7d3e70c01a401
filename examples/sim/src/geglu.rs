//! The gated linear unit of GELU, forward and backward: an operator that the device runs by kernels of its own, in
//! blocks whose size is an option of the executor. All other composites are decomposed.

use fulgurite::device::{DeviceTensor, Plan};
use fulgurite::ops::nn::Approximate;
use fulgurite::prelude::*;

use crate::kernels::{Span, launch, read, written};
use crate::{sim, takes};

/// `gelu(x)` and its derivative.
pub(crate) fn gelu(x: f64, approximate: Approximate) -> [f64; 2] {
    match approximate {
        Approximate::None => {
            let share = 0.5 * (1.0 + fulgurite::ops::core::arrays::erf(x / 2f64.sqrt()));
            [x * share, share + x * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()]
        }
        Approximate::Tanh => {
            let rate = (2.0 / std::f64::consts::PI).sqrt();
            let bent = (rate * (x + 0.044715 * x * x * x)).tanh();
            let slope = rate * (1.0 + 3.0 * 0.044715 * x * x);
            [0.5 * x * (1.0 + bent), 0.5 * (1.0 + bent) + 0.5 * x * (1.0 - bent * bent) * slope]
        }
    }
}

/// Writes down one kernel for each `block` of the elements: `f` of the operands' elements, rounded once.
pub(crate) fn in_blocks<const N: usize>(
    plan: &mut Plan,
    name: &'static str,
    block: usize,
    operands: [&DeviceTensor; N],
    out: &DeviceTensor,
    f: impl Fn([f64; N]) -> f64 + Clone + Send + Sync + 'static,
) {
    let (dtype, size) = (out.dtype(), out.dtype().size());
    for first in (0..out.meta.len()).step_by(block) {
        let bytes = block.min(out.meta.len() - first) * size;
        let span = |tensor: &DeviceTensor| Span { address: tensor.address.offset((first * size) as u64), bytes };
        let f = f.clone();
        launch(plan, name, &operands.map(span), span(out), move |operands| {
            let operands: Vec<Vec<f64>> = operands.iter().map(|bytes| read(dtype, bytes)).collect();
            let elements = bytes / size;
            written(dtype, &(0..elements).map(|i| f(std::array::from_fn(|n| operands[n][i]))).collect::<Vec<f64>>())
        });
    }
}

/// `gelu(gate) up`, elementwise.
#[operator(
    executor = sim,
    waive(block = "how many elements a kernel takes at a time changes no result"),
    no_grad = "the implementation that uses it has a gradient of its own"
)]
pub mod geglu_forward {
    fn geglu_forward(gate: Tensor<Floating>, up: Tensor<Floating>, approximate: Approximate, block: usize) -> Tensor;

    fn meta(gate: &TensorMeta, up: &TensorMeta, block: usize) -> Result<TensorMeta> {
        require!(block > 0, EmptyBlock, "block is 0, a kernel takes an element at least");
        require!(up == gate, SameMeta, "up is {up}, expected {gate}");
        Ok(gate.clone())
    }

    fn reference(gate: &ArrayD<f64>, up: &ArrayD<f64>, approximate: Approximate) -> ArrayD<f64> {
        elementwise(gate, |x| super::gelu(x, approximate)[0]) * up
    }

    fn plan(
        plan: &mut Plan,
        gate: &DeviceTensor,
        up: &DeviceTensor,
        approximate: Approximate,
        block: usize,
        out: &DeviceTensor,
    ) -> Result<()> {
        super::in_blocks(plan, "geglu", block, [gate, up], out, move |[gate, up]| {
            super::gelu(gate, approximate)[0] * up
        });
        Ok(())
    }

    fn samples(s: &mut Samples) {
        for approximate in [Approximate::None, Approximate::Tanh] {
            for shape in super::SHAPES {
                s.case(with(s.uniform(-6.0, 6.0, shape), s.normal(shape), approximate, 256));
            }
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |up: usize, block| with(e.normal([3]), e.normal([up]), Approximate::None, block);
        e.case(SameMeta, call(4, 8), "up is f32[4], expected f32[3]");
        e.case(EmptyBlock, call(3, 0), "block is 0");
    }
}

/// The gradients of [`geglu_forward`] by its operands, for the cotangent `d_out`: (d_gate, d_up).
#[operator(
    executor = sim,
    waive(block = "how many elements a kernel takes at a time changes no result"),
    no_grad = "a gradient is not differentiated again"
)]
pub mod geglu_backward {
    #[results(d_gate, d_up)]
    fn geglu_backward(
        gate: Tensor<Floating>,
        up: Tensor<Floating>,
        d_out: Tensor<Floating>,
        approximate: Approximate,
        block: usize,
    ) -> (Tensor, Tensor);

    fn meta(gate: &TensorMeta, up: &TensorMeta, d_out: &TensorMeta, block: usize) -> Result<(TensorMeta, TensorMeta)> {
        require!(block > 0, EmptyBlock, "block is 0, a kernel takes an element at least");
        require!(up == gate, SameMeta, "up is {up}, expected {gate}");
        require!(d_out == gate, Cotangent, "d_out is {d_out}, expected {gate}");
        Ok((gate.clone(), up.clone()))
    }

    fn reference(
        gate: &ArrayD<f64>,
        up: &ArrayD<f64>,
        d_out: &ArrayD<f64>,
        approximate: Approximate,
    ) -> (ArrayD<f64>, ArrayD<f64>) {
        let part = |which: usize| elementwise(gate, |x| super::gelu(x, approximate)[which]);
        (part(1) * up * d_out, part(0) * d_out)
    }

    fn plan(
        plan: &mut Plan,
        gate: &DeviceTensor,
        up: &DeviceTensor,
        d_out: &DeviceTensor,
        approximate: Approximate,
        block: usize,
        d_gate: &DeviceTensor,
        d_up: &DeviceTensor,
    ) -> Result<()> {
        super::in_blocks(plan, "geglu_d_gate", block, [gate, up, d_out], d_gate, move |[gate, up, d_out]| {
            super::gelu(gate, approximate)[1] * up * d_out
        });
        super::in_blocks(plan, "geglu_d_up", block, [gate, d_out], d_up, move |[gate, d_out]| {
            super::gelu(gate, approximate)[0] * d_out
        });
        Ok(())
    }

    fn samples(s: &mut Samples) {
        for approximate in [Approximate::None, Approximate::Tanh] {
            for shape in super::SHAPES {
                s.case(with(s.uniform(-6.0, 6.0, shape), s.normal(shape), s.normal(shape), approximate, 256));
            }
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let [three, four] = [3, 4].map(|count| e.normal([count]));
        let call = |up: &SampleTensor, d_out: &SampleTensor, block| {
            with(three.clone(), up.clone(), d_out.clone(), Approximate::None, block)
        };
        e.case(SameMeta, call(&four, &three, 8), "expected f32[3]");
        e.case(Cotangent, call(&three, &four, 8), "d_out is f32[4], expected f32[3]");
        e.case(EmptyBlock, call(&three, &three, 0), "block is 0");
    }
}

/// Shapes of samples: one element, none, a part of a block, blocks with a rest.
const SHAPES: [&[usize]; 5] = [&[], &[0], &[7], &[4, 64], &[3, 2 * 256 + 5]];

#[implementation(of = fulgurite::ops::nn::geglu, by = sim)]
mod geglu_by_sim {
    fn checker(gate: &TensorMeta) -> Claim {
        refuse_unless!(sim::BLOCK.get() > 0, "sim.block is 0, a kernel takes an element at least");
        super::takes(gate)
    }

    fn execution(gate: Tensor, up: Tensor, approximate: Approximate) -> Tensor {
        super::geglu_forward(gate, up, approximate, sim::BLOCK.get())
    }

    fn grad(gate: Tensor, up: Tensor, approximate: Approximate) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let block = sim::BLOCK.get();
        (super::geglu_forward(gate, up, approximate, block), move |d_out: Tensor| {
            let (gate, up) = super::geglu_backward(gate, up, d_out, approximate, block);
            Grads { gate, up }
        })
    }
}
