use fulgurite_ops_macros::operator;

use crate::core::arrays::{along, softmax_row};
use crate::core::promotion::{accumulating, cast, constant_like, position};
use crate::core::{argmax, detach, exponential_array, exponential_numbers};
use crate::nn::softmax;
use crate::prims;
use crate::prims::checks;

/// A random class of each row of `logits` along `dim`, as the softmax of `(logits + g) / tau` with a number g of the
/// Gumbel distribution for each element. With `hard` the result is 1 at the largest element (the first of equal ones)
/// and 0 elsewhere, and its gradient is that of the softmax. Computed in f32 for f16 and bf16. `generator` is that of
/// [`mod@crate::prims::uniform`]; g is `-log` of an exponential number, whose last place may differ between devices, as
/// that of the exponentials of the softmax. `eps` is PyTorch's and has no effect. Jang et al., 2017.
#[operator(
    torch = "nn.functional.gumbel_softmax",
    effects(random),
    autocast = full,
    waive(eps = "PyTorch keeps it for callers of earlier versions")
)]
pub mod gumbel_softmax {
    fn gumbel_softmax(
        logits: Tensor<Floating>,
        generator: Tensor<Integer>,
        #[default(1.0)] tau: f64,
        #[default(false)] hard: bool,
        #[default(1e-10)] eps: f64,
        #[default(-1)] dim: i64,
    ) -> Tensor;

    fn meta(logits: &TensorMeta, generator: &TensorMeta, tau: f64, dim: i64) -> Result<TensorMeta> {
        checks::generator(generator, Code::Generator)?;
        require!(tau > 0.0, Temperature, "tau is {tau}, expected above 0");
        let dim = normalize_dim(dim, logits.rank())?;
        require!(
            logits.rank() == 0 || logits.shape()[dim] > 0,
            Classes,
            "logits has shape {:?}, expected one class or more in dimension {dim}",
            logits.shape()
        );
        Ok(logits.clone())
    }

    fn decomposition(logits: Tensor, generator: Tensor, tau: f64, hard: bool, _eps: f64, dim: i64) -> Tensor {
        let (shape, x) = (logits.shape(), accumulating(logits));
        let gumbel = prims::neg(prims::log(exponential_numbers(&shape, x.dtype(), generator)));
        let soft = softmax(prims::div(prims::add(x, gumbel), tau), dim);
        if !hard {
            return cast(soft, logits.dtype());
        }
        let chosen = match shape.len() {
            0 => constant_like(soft, 1.0),
            rank => {
                let dim = position(dim, rank);
                let best = argmax::with(soft).dim(dim as i64).keepdim(false).call();
                let others: Vec<usize> = (0..rank).filter(|other| *other != dim).collect();
                let best = prims::broadcast_in_dim(best, &*shape, others);
                let places = prims::iota(shape[dim], 0i64, 1i64, DType::I64, logits.device());
                cast(prims::eq(prims::broadcast_in_dim(places, &*shape, [dim]), best), soft.dtype())
            }
        };
        // A zero with the gradient of the softmax.
        cast(prims::add(chosen, prims::sub(soft, detach(soft))), logits.dtype())
    }

    fn reference(
        logits: &ReferenceTensor,
        generator: &ArrayD<i64>,
        tau: f64,
        hard: bool,
        dim: i64,
    ) -> Result<ArrayD<f64>> {
        let gumbel = exponential_array(logits.shape(), logits.dtype(), generator)?.mapv(|e| -e.ln());
        let soft = along(&((logits.floats() + &gumbel) / tau), dim, softmax_row);
        Ok(match hard {
            false => soft,
            true => along(&soft, dim, |row| {
                let best = (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
                (0..row.len()).map(|i| f64::from(i == best)).collect()
            }),
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 7]), s.integers(0, 1 << 40, [2])));
        s.case(with(s.normal([3, 5, 2]), s.integers(0, 9, [3])).tau(0.5).dim(1));
        s.case(with(s.normal([]), s.integers(0, 9, [2])).dim(0));
        s.case(with(s.normal([0, 3]), s.integers(0, 9, [2])));
        for (shape, dim) in [(&[5, 9][..], 0), (&[2, 3, 4], -1), (&[], 0)] {
            s.case(with(s.normal(shape), s.integers(0, 9, [2])).hard(true).dim(dim))
                .forward_only("the gradient is that of the softmax");
        }
        s.case(with(s.normal([2, 3]), s.integers(0, 9, [2])).tau(0.25));
        s.case(with(s.normal([2, 1]), s.integers(0, 9, [2])));
    }

    fn errors(e: &mut ErrorSamples) {
        let generator = || e.integers(0, 9, [2]);
        e.case(Temperature, with(e.normal([2, 3]), generator()).tau(0.0), "tau is 0, expected above 0");
        e.case(Classes, with(e.normal([2, 0]), generator()), "expected one class or more in dimension 1");
        e.case(Generator, with(e.normal([2, 3]), e.integers(0, 9, [4])), "generator is i64[4]");
    }
}
