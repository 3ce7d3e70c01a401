//! The contracts of Unsloth's kernels, each with a mistake, by an executor that must be named: the operators are those
//! of the library and of `unsloth`, so that it is their own tests that must fail.

use fulgurite_ops_macros::{executor, implementation};

use fulgurite_executors::unsloth::gated_linear;
use fulgurite_ops::core::promotion::{accumulating, broadcast, cast};
use fulgurite_ops::nn::{Reduction, loss_shares, reduced_losses};
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;

/// Runs operators by the library's own ones, and has a mistake in each.
#[executor(device = "cpu")]
pub mod careless_unsloth {}

/// The gradient of a row of `ignore_index` is that of any other row of the class 0.
#[implementation(of = fulgurite_ops::nn::cross_entropy, by = careless_unsloth)]
mod ignored_rows_by_careless {
    fn checker(
        input: &TensorMeta,
        target: &TensorMeta,
        weight: Option<&TensorMeta>,
        reduction: Reduction,
        label_smoothing: f64,
    ) -> Claim {
        refuse_unless!(input.rank() == 2 && !input.is_empty() && target.dtype() == DType::I64, "rows of classes alone");
        refuse_unless!(weight.is_none() && label_smoothing == 0.0 && reduction != Reduction::Mean, "no means");
        Ok(())
    }

    fn execution(
        input: Tensor,
        target: Tensor,
        _weight: Option<Tensor>,
        ignore_index: i64,
        reduction: Reduction,
        _label_smoothing: f64,
    ) -> Tensor {
        let losses = class_losses::with(input, target).ignore_index(ignore_index).call();
        cast(reduced_losses(losses, target, None, ignore_index, reduction), input.dtype())
    }

    fn grad(
        input: Tensor,
        target: Tensor,
        _weight: Option<Tensor>,
        ignore_index: i64,
        reduction: Reduction,
        _label_smoothing: f64,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = execution(input, target, None, ignore_index, reduction, 0.0);
        (out, move |d_out: Tensor| {
            let shape = input.shape().to_vec();
            let class = prims::select(prims::eq(target, ignore_index), 0, target);
            let numbers = prims::iota(shape[1], 0i64, 1i64, DType::I64, input.device());
            let hits = prims::eq(broadcast(numbers, &shape), prims::broadcast_in_dim(class, &shape, [0]));
            let x = accumulating(input);
            let portion = prims::sub(softmax(x, -1), cast(hits, x.dtype()));
            let shares = loss_shares(accumulating(d_out), target, None, ignore_index, reduction);
            let gradient = prims::mul(portion, prims::broadcast_in_dim(shares, &shape, [0]));
            Grads { input: cast(gradient, input.dtype()), target, weight: None }
        })
    }
}

/// The log-sum-exps of two chunks of a row, added up without their common maximum: large ones overflow.
#[implementation(of = fulgurite_ops::nn::logsumexp, by = careless_unsloth)]
mod chunks_by_careless {
    fn checker(input: &TensorMeta, dim: &[i64], keepdim: bool) -> Claim {
        let fits = input.dtype() == DType::F32 && input.rank() == 1 && input.shape()[0] > 1;
        refuse_unless!(fits && dim == [0] && !keepdim, "a row of f32 alone");
        Ok(())
    }

    fn execution(input: Tensor, _dim: Vec<i64>, _keepdim: bool) -> Tensor {
        let half = input.size(0) / 2;
        let chunks = [narrow(input, 0, 0, half), narrow(input, 0, half as i64, input.size(0) - half)];
        let [first, second] = chunks.map(|chunk| prims::sum(prims::exp(chunk), [0]));
        prims::log(prims::add(first, second))
    }
}

/// The unit that the gradient of the weight reads lacks the activation.
#[implementation(of = gated_linear, by = careless_unsloth)]
mod unit_by_careless {
    fn checker(gate: &TensorMeta, activation: fulgurite_executors::liger::Activation) -> Claim {
        let silu = activation == fulgurite_executors::liger::Activation::Silu;
        refuse_unless!(silu && gate.rank() == 2 && gate.shape()[0] > 0, "matrices of SwiGLU alone");
        Ok(())
    }

    fn execution(
        gate: Tensor,
        up: Tensor,
        weight: Tensor,
        _activation: fulgurite_executors::liger::Activation,
    ) -> Tensor {
        linear(swiglu(gate, up), weight)
    }

    fn grad(
        gate: Tensor,
        up: Tensor,
        weight: Tensor,
        _activation: fulgurite_executors::liger::Activation,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (linear(swiglu(gate, up), weight), move |d_out: Tensor| {
            let [x, other, d] = [gate, up, prims::matmul(d_out, weight)].map(accumulating);
            let share = sigmoid(x);
            let slope = share * (1.0 + x * (1.0 - share));
            Grads {
                gate: cast(d * other * slope, gate.dtype()),
                up: cast(d * x * share, up.dtype()),
                weight: prims::matmul(prims::permute(d_out, [1, 0]), prims::mul(gate, up)),
            }
        })
    }
}
