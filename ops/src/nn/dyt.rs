use fulgurite_ops_macros::operator;

use super::restored_along;
use crate::core::promotion::{broadcast, cast};
use crate::prims;

/// Dynamic tanh, which replaces a normalization: `tanh(alpha · input) · gamma + beta`, with one number `alpha` [1] and
/// a number of `gamma` and `beta` for each position of the last dimension. Computed in f32 for f16 and bf16. Zhu and
/// others, "Transformers without Normalization", 2025.
#[operator(cheap, autocast = full)]
pub mod dyt {
    fn dyt(
        input: Tensor<Floating>,
        alpha: Tensor<Floating>,
        gamma: Tensor<Floating>,
        #[default(None)] beta: Option<Tensor<Floating>>,
    ) -> Tensor;

    fn meta(Args { input, alpha, gamma, beta }: Args<&TensorMeta>) -> Result<TensorMeta> {
        require!(input.rank() > 0, InputRank, "input is zero-dimensional, expected one dimension or more");
        let width = input.shape()[input.rank() - 1];
        require!(alpha.shape() == [1], AlphaShape, "alpha has shape {:?}, expected [1]", alpha.shape());
        require!(gamma.shape() == [width], GammaShape, "gamma has shape {:?}, expected [{width}]", gamma.shape());
        if let Some(beta) = beta {
            require!(beta.shape() == [width], BetaShape, "beta has shape {:?}, expected [{width}]", beta.shape());
        }
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, alpha: Tensor, gamma: Tensor, beta: Option<Tensor>) -> Tensor {
        let (shape, wide) = (input.shape().to_vec(), input.dtype().accumulator());
        let spread = |parameter: Tensor| broadcast(cast(parameter, wide), &shape);
        let x = cast(input, wide);
        // By way of the rows, so that the gradient of alpha is summed row by row, in the pass that computes its terms.
        let rows = prims::reshape(cast(alpha, wide), Vec::<usize>::new());
        let rows = broadcast(rows, &shape[..shape.len() - 1]);
        let bent = prims::tanh(prims::mul(x, restored_along(rows, x, -1)));
        let scaled = prims::mul(bent, spread(gamma));
        cast(beta.map_or(scaled, |beta| prims::add(scaled, spread(beta))), input.dtype())
    }

    fn reference(Args { input, alpha, gamma, beta }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let scaled = elementwise(input, |x| (alpha[[0]] * x).tanh()) * gamma;
        beta.map_or(scaled.clone(), |beta| scaled + beta)
    }

    fn samples(s: &mut Samples) {
        for shape in [&[4, 8][..], &[7], &[2, 3, 5], &[0, 4], &[3, 515]] {
            let width = shape[shape.len() - 1];
            s.case(with(s.normal(shape), s.uniform(0.2, 0.9, [1]), s.normal([width])).beta(s.normal([width])));
        }
        s.case(with(s.normal([4, 8]), s.values([1], [-1.5]), s.normal([8])));
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || with(e.normal([2, 3]), e.normal([1]), e.normal([3]));
        e.case(InputRank, with(e.normal([]), e.normal([1]), e.normal([1])), "input is zero-dimensional");
        e.case(AlphaShape, with(e.normal([2, 3]), e.normal([3]), e.normal([3])), "alpha has shape [3], expected [1]");
        e.case(GammaShape, with(e.normal([2, 3]), e.normal([1]), e.normal([2])), "gamma has shape [2], expected [3]");
        e.case(BetaShape, good().beta(e.normal([2])), "beta has shape [2], expected [3]");
    }
}
