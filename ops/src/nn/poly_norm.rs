use fulgurite_ops_macros::operator;

use super::chunked_linear::added;
use super::{reduced_along, restored_along};
use crate::core::arrays::along;
use crate::core::promotion::{accumulating, broadcast, cast};
use crate::nn::rms_norm;
use crate::prims;

/// The polynomial composition `w₀ norm(x³) + w₁ norm(x²) + w₂ norm(x) + bias` over the last dimension, with
/// `norm(u) = u / √(mean(u²) + eps)`: `weight` [3] holds the w, `bias` [1] one number. Computed in f32 for f16 and
/// bf16. Zhuo and others, "Polynomial Composition Activations", 2024.
#[operator(cheap, autocast = full)]
pub mod poly_norm {
    fn poly_norm(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        bias: Tensor<Floating>,
        #[default(1e-6)] eps: f64,
    ) -> Tensor;

    fn meta(input: &TensorMeta, weight: &TensorMeta, bias: &TensorMeta) -> Result<TensorMeta> {
        require!(input.rank() > 0, InputRank, "input is zero-dimensional, expected one dimension or more");
        require!(weight.shape() == [3], WeightShape, "weight has shape {:?}, expected [3]", weight.shape());
        require!(bias.shape() == [1], BiasShape, "bias has shape {:?}, expected [1]", bias.shape());
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, weight: Tensor, bias: Tensor, eps: f64) -> Tensor {
        let (x, shape) = (accumulating(input), input.shape());
        let width = shape[shape.len() - 1];
        let square = prims::mul(x, x);
        let terms = [prims::mul(square, x), square, x];
        let mut out = broadcast(cast(bias, x.dtype()), &shape);
        for (i, term) in terms.into_iter().enumerate() {
            let factor = prims::slice(cast(weight, x.dtype()), vec![i], vec![i + 1], vec![1]);
            let normal = rms_norm::with(term, [width]).eps(eps).call();
            out = prims::add(out, prims::mul(normal, broadcast(factor, &shape)));
        }
        cast(out, input.dtype())
    }

    // With S the sum over a row of cotangent times power, all that a weight's gradient reads of a row is one number: no
    // tensor of the input's size is written for it.
    fn grad(input: Tensor, weight: Tensor, bias: Tensor, eps: f64) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input, weight, bias).eps(eps).call();
        (out, move |d_out: Tensor| {
            let ([x, d], shape) = ([input, d_out].map(accumulating), input.shape());
            let width = shape[shape.len() - 1].max(1);
            let rows: Vec<usize> = (0..shape.len() - 1).collect();
            let per_row = |of: Tensor| reduced_along(of, -1, |of, dims| prims::sum(of, dims));
            let all = |of_rows: Tensor| prims::reshape(prims::sum(of_rows, &rows), [1]);
            let spread = |of_row: Tensor| restored_along(of_row, x, -1);
            let square = prims::mul(x, x);
            // x³, x², x, and their derivatives.
            let powers = [prims::mul(square, x), square, x];
            let slopes = [Some(prims::mul(square, 3.0)), Some(prims::mul(x, 2.0)), None];
            let (mut d_input, mut d_weight) = (None, Vec::new());
            for (i, (power, slope)) in powers.into_iter().zip(slopes).enumerate() {
                let mean = prims::mul(per_row(prims::mul(power, power)), 1.0 / width as f64);
                let rstd = prims::rsqrt(prims::add(mean, eps));
                let along = prims::mul(per_row(prims::mul(d, power)), rstd);
                d_weight.push(all(along));
                let pull = prims::mul(prims::mul(along, prims::mul(rstd, rstd)), 1.0 / width as f64);
                let inner = prims::sub(prims::mul(d, spread(rstd)), prims::mul(power, spread(pull)));
                let inner = slope.map_or(inner, |slope| prims::mul(inner, slope));
                let factor = prims::slice(cast(weight, x.dtype()), vec![i], vec![i + 1], vec![1]);
                added(&mut d_input, prims::mul(inner, broadcast(factor, &shape)));
            }
            Grads {
                input: cast(d_input.unwrap_or(x), input.dtype()),
                weight: cast(prims::cat(d_weight, 0), weight.dtype()),
                bias: cast(all(per_row(d)), bias.dtype()),
            }
        })
    }

    fn reference(input: &ArrayD<f64>, weight: &ArrayD<f64>, bias: &ArrayD<f64>, eps: f64) -> ArrayD<f64> {
        along(input, -1, |row| {
            let root = |power: i32| {
                let squares: f64 = row.iter().map(|x| x.powi(2 * power)).sum();
                (squares / row.len() as f64 + eps).sqrt()
            };
            let roots = [root(3), root(2), root(1)];
            let term = |x: f64, i: usize| weight[[i]] * x.powi(3 - i as i32) / roots[i];
            row.iter().map(|x| (0..3).map(|i| term(*x, i)).sum::<f64>() + bias[[0]]).collect()
        })
    }

    fn samples(s: &mut Samples) {
        for shape in [&[4, 8][..], &[7], &[2, 3, 5], &[0, 4], &[3, 515], &[3, 1]] {
            s.case(with(s.normal(shape), s.normal([3]), s.normal([1])));
        }
        s.case(with(s.normal([4, 8]), s.normal([3]), s.normal([1])).eps(1e-2));
        s.case(with(s.normal([3, 0]), s.normal([3]), s.normal([1])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.normal([]), e.normal([3]), e.normal([1])), "input is zero-dimensional");
        e.case(WeightShape, with(e.normal([4]), e.normal([2]), e.normal([1])), "weight has shape [2], expected [3]");
        e.case(BiasShape, with(e.normal([4]), e.normal([3]), e.normal([4])), "bias has shape [4], expected [1]");
    }
}
