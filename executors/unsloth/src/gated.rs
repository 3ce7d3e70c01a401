//! A gated linear unit and the layer after it. Forward keeps nothing of the unit; the gradient computes it again beside
//! the unit's gradients, in one pass over gate, up and cotangent, which may all be written over.

use fulgurite_ops_macros::{implementation, operator, rewrite};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::DeviceTensor;
use fulgurite_runtime::{Tensor, TensorMeta, refuse_unless};

use super::unsloth;
use fulgurite_executor_liger::{self as liger, Activation};
use fulgurite_ops::core::arrays::{permuted, product, reshaped};
use fulgurite_ops::nn::{Approximate, geglu, linear, swiglu};
use fulgurite_ops::prims::{self, checks};

/// The fewest rows for which it is worth it not to keep the unit: fewer are rather read by kernels for few rows.
const FEWEST_ROWS: usize = 64;

/// For references: an activated gate times `up`, and its derivatives by both.
fn plain(activation: Activation, gate: f64, up: f64) -> [f64; 3] {
    let [value, slope] = match activation {
        Activation::Silu => {
            let share = 1.0 / (1.0 + (-gate).exp());
            [gate * share, share + gate * share * (1.0 - share)]
        }
        Activation::Gelu => liger::plain_gelu(gate, Approximate::None),
        Activation::TanhGelu => liger::plain_gelu(gate, Approximate::Tanh),
    };
    [value * up, slope * up, value]
}

/// The unit by the library's operators.
#[track_caller]
fn by_operators(gate: Tensor, up: Tensor, activation: Activation) -> Tensor {
    let gelu = |approximate: Approximate| geglu::with(gate, up).approximate(approximate).call();
    match activation {
        Activation::Silu => swiglu(gate, up),
        Activation::Gelu => gelu(Approximate::None),
        Activation::TanhGelu => gelu(Approximate::Tanh),
    }
}

/// The unit by the kernels.
#[track_caller]
fn by_kernels(gate: Tensor, up: Tensor, activation: Activation) -> Tensor {
    match activation {
        Activation::Silu => liger::swiglu(gate, up),
        Activation::Gelu => liger::geglu(gate, up, Approximate::None),
        Activation::TanhGelu => liger::geglu(gate, up, Approximate::Tanh),
    }
}

/// The leading dimensions of `shape` as one.
fn rows(shape: &[usize]) -> [usize; 2] {
    let (width, leading) = shape.split_last().map_or((1, &[][..]), |(width, leading)| (*width, leading));
    [leading.iter().product(), width]
}

/// Of `activation(gate) · up`, elementwise, and its cotangent `d_unit`: the unit itself, rounded as forward, and the
/// gradients of both operands. Each may have the memory of an operand.
#[operator(
    executor = unsloth,
    name = "unsloth::gated_backward",
    dtypes(f32, bf16, f16),
    in_place,
    no_grad = "a gradient is not differentiated again"
)]
pub mod gated_backward {
    #[results(unit, d_gate, d_up)]
    fn gated_backward(
        gate: Tensor<Floating>,
        up: Tensor<Floating>,
        d_unit: Tensor<Floating>,
        activation: Activation,
    ) -> (Tensor, Tensor, Tensor);

    fn meta(gate: &TensorMeta, up: &TensorMeta, d_unit: &TensorMeta) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        checks::is_like(("up", up), gate, Code::SameMeta)?;
        checks::is_like(("d_unit", d_unit), gate, Code::Cotangent)?;
        Ok((gate.clone(), gate.clone(), up.clone()))
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let Args { gate, up, d_unit, activation } = args;
        let part = |which: usize| {
            ArrayD::from_shape_fn(gate.raw_dim(), |at| super::plain(activation, gate[&at], up[&at])[which])
        };
        (part(0), part(1) * d_unit, part(2) * d_unit)
    }

    fn plan(
        plan: &mut Plan,
        Args { gate, up, d_unit, activation }: Args<&DeviceTensor>,
        unit: &DeviceTensor,
        d_gate: &DeviceTensor,
        d_up: &DeviceTensor,
    ) -> Result<()> {
        let tensors: [&DeviceTensor; 6] = [gate, up, d_unit, unit, d_gate, d_up];
        liger::each_gated_element(plan, "gated_backward_and_unit", activation, &tensors)
    }

    fn samples(s: &mut Samples) {
        for activation in [Activation::Silu, Activation::Gelu, Activation::TanhGelu] {
            for shape in [&[][..], &[0], &[7], &[4, 8], &[3, 2051]] {
                s.case(with(s.uniform(-6.0, 6.0, shape), s.normal(shape), s.normal(shape), activation));
            }
            let special = s.values([6], [0.0, -0.0, 30.0, -30.0, f64::NAN, 1.0]);
            s.case(with(special, s.normal([6]), s.normal([6]), activation));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let [three, four] = [3, 4].map(|count| e.of(DType::F32, [count]));
        let short = with(three.clone(), four.clone(), three.clone(), Activation::Silu);
        e.case(SameMeta, short, "up is f32[4], expected f32[3]");
        e.case(Cotangent, with(three.clone(), three, four, Activation::Silu), "d_unit is f32[4], expected f32[3]");
    }
}

/// A gated linear unit and the layer after it: `(activation(gate) · up) · weightᵀ`. gate and up `[..., in]`, weight
/// `[out, in]`; out `[..., out]`.
///
/// The rewrites that write it come before autocast, which converts gate and up with the weight. Where these are results
/// of products, as in a decoder, they have the low-precision type already, and nothing changes. A gate or up in f32 is
/// rounded before the activation, whereas of `swiglu` and `linear` the unit alone would be. Were no class declared,
/// autocast would write these two operators in its place, in decoders as well.
#[operator(name = "unsloth::gated_linear", autocast = low)]
pub mod gated_linear {
    fn gated_linear(
        gate: Tensor<Floating>,
        up: Tensor<Floating>,
        weight: Tensor<Floating>,
        activation: Activation,
    ) -> Tensor;

    fn decomposition(gate: Tensor, up: Tensor, weight: Tensor, activation: Activation) -> Tensor {
        linear(by_operators(gate, up, activation), weight)
    }

    fn reference(gate: &ArrayD<f64>, up: &ArrayD<f64>, weight: &ArrayD<f64>, activation: Activation) -> ArrayD<f64> {
        let unit = ArrayD::from_shape_fn(gate.raw_dim(), |at| plain(activation, gate[&at], up[&at])[0]);
        let mut shape = gate.shape().to_vec();
        shape.pop();
        shape.push(weight.shape()[0]);
        reshaped(&product(&reshaped(&unit, &rows(gate.shape())), &permuted(weight, &[1, 0])), &shape)
    }

    fn samples(s: &mut Samples) {
        let call = |s: &Samples, shape: &[usize], outputs: usize, activation: Activation| {
            let width = shape[shape.len() - 1];
            with(s.normal(shape), s.normal(shape), s.uniform(-0.5, 0.5, [outputs, width]), activation)
        };
        for activation in [Activation::Silu, Activation::Gelu, Activation::TanhGelu] {
            s.case(call(s, &[4, 8], 3, activation));
            s.case(call(s, &[2, 33, 24], 5, activation));
        }
        s.case(call(s, &[6], 2, Activation::Silu));
        s.case(call(s, &[0, 6], 2, Activation::Silu));
        s.case(call(s, &[130, 40], 17, Activation::Silu));
    }
}

#[implementation(of = gated_linear, by = unsloth)]
mod gated_linear_by_unsloth {
    fn checker(gate: &TensorMeta, weight: &TensorMeta) -> Claim {
        liger::takes("gate", gate)?;
        refuse_unless!(weight.rank() == 2, "weight is {weight}, takes a matrix");
        let [rows, _] = super::rows(gate.shape());
        refuse_unless!(rows >= super::FEWEST_ROWS, "takes {} rows or more, not {rows}", super::FEWEST_ROWS);
        Ok(())
    }

    fn execution(gate: Tensor, up: Tensor, weight: Tensor, activation: Activation) -> Tensor {
        linear(super::by_kernels(gate, up, activation), weight)
    }

    fn grad(Args { gate, up, weight, activation }: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = linear(super::by_kernels(gate, up, activation), weight);
        (out, move |d_out: Tensor| {
            let d_rows = prims::reshape(d_out, super::rows(&d_out.shape()));
            let d_unit = prims::reshape(prims::matmul(d_rows, weight), gate.shape());
            let (unit, d_gate, d_up) = gated_backward(gate, up, d_unit, activation);
            let unit = prims::reshape(unit, super::rows(&gate.shape()));
            Grads { gate: d_gate, up: d_up, weight: prims::matmul(prims::permute(d_rows, [1, 0]), unit) }
        })
    }
}

/// `swiglu` and the layer after it become one `unsloth::gated_linear`, which keeps nothing of the unit for the backward
/// pass, where an executor runs it.
#[rewrite(default, claimed)]
pub mod merge_swiglu_linear {
    fn pattern(gate: Tensor, up: Tensor, weight: Tensor) -> Tensor {
        linear(swiglu(gate, up), weight)
    }

    fn replacement(gate: Tensor, up: Tensor, weight: Tensor) -> Tensor {
        gated_linear(gate, up, weight, Activation::Silu)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([4, 8]), s.normal([3, 8])));
        s.case(with(s.normal([2, 3, 5]), s.normal([2, 3, 5]), s.normal([7, 5])));
    }
}

/// As [`merge_swiglu_linear`], of `geglu` by the error function or by a hyperbolic tangent.
#[rewrite(default, claimed)]
pub mod merge_geglu_linear {
    fn pattern(gate: Tensor, up: Tensor, weight: Tensor, approximate: Approximate) -> Tensor {
        linear(geglu::with(gate, up).approximate(approximate).call(), weight)
    }

    fn replacement(gate: Tensor, up: Tensor, weight: Tensor, approximate: Approximate) -> Tensor {
        let activation = match approximate {
            Approximate::None => Activation::Gelu,
            Approximate::Tanh => Activation::TanhGelu,
        };
        gated_linear(gate, up, weight, activation)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([4, 8]), s.normal([3, 8]), Approximate::None));
        s.case(with(s.normal([2, 3, 5]), s.normal([2, 3, 5]), s.normal([7, 5]), Approximate::Tanh));
    }
}
