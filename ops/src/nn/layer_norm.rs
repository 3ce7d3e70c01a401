use fulgurite_ops_macros::operator;

use super::Rows;
use crate::core::arrays::{array, values};
use crate::prims;

/// `(x - mean) / √(var + eps) · weight + bias` over the trailing `normalized_shape` dimensions, with the biased
/// variance; computed in f32 for f16 and bf16. Ba, Kiros & Hinton, 2016.
#[operator(cheap, torch = "nn.functional.layer_norm", autocast = full)]
pub mod layer_norm {
    fn layer_norm(
        input: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(None)] bias: Option<Tensor<Floating>>,
        #[default(1e-5)] eps: f64,
    ) -> Tensor;

    fn meta(Args { input, normalized_shape, weight, bias, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        require!(
            !normalized_shape.is_empty() && input.shape().ends_with(&normalized_shape),
            TrailingShape,
            "input has shape {:?}, expected it to end with {normalized_shape:?}, one dimension or more",
            input.shape()
        );
        if let Some(weight) = weight {
            require!(
                weight.shape() == normalized_shape,
                WeightShape,
                "weight has shape {:?}, expected {normalized_shape:?}",
                weight.shape()
            );
        }
        if let Some(bias) = bias {
            require!(
                bias.shape() == normalized_shape,
                BiasShape,
                "bias has shape {:?}, expected {normalized_shape:?}",
                bias.shape()
            );
        }
        Ok(input.clone())
    }

    fn decomposition(Args { input, normalized_shape, weight, bias, eps }: Args<Tensor>) -> Tensor {
        let rows = Rows::of(input, &normalized_shape);
        let x = rows.wide(input);
        let centred = prims::sub(x, rows.spread(rows.mean(x)));
        let variance = rows.mean(prims::mul(centred, centred));
        let rstd = prims::rsqrt(prims::add(variance, eps));
        let mut y = prims::mul(centred, rows.spread(rstd));
        if let Some(weight) = weight {
            y = prims::mul(y, rows.per_column(weight));
        }
        if let Some(bias) = bias {
            y = prims::add(y, rows.per_column(bias));
        }
        rows.narrowed(y)
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = args.call();
        let Args { input, normalized_shape, weight, bias, eps } = args;
        let rows = Rows::of(input, &normalized_shape);
        let x = rows.wide(input);
        let mean = rows.mean(x);
        let centred = prims::sub(x, rows.spread(mean));
        let variance = rows.mean(prims::mul(centred, centred));
        let rstd = prims::rsqrt(prims::add(variance, eps));
        (out, move |d_out: Tensor| {
            let d = rows.wide(d_out);
            let scale = rows.spread(rstd);
            let normal = prims::mul(prims::sub(rows.wide(input), rows.spread(mean)), scale);
            let g = weight.map_or(d, |weight| prims::mul(d, rows.per_column(weight)));
            let along = prims::mul(normal, rows.spread(rows.mean(prims::mul(g, normal))));
            let inner = prims::sub(prims::sub(g, rows.spread(rows.mean(g))), along);
            Grads {
                input: rows.narrowed(prims::mul(inner, scale)),
                weight: weight.map(|weight| rows.column_sums(prims::mul(d, normal), weight)),
                bias: bias.map(|bias| rows.column_sums(d, bias)),
            }
        })
    }

    fn reference(Args { input, normalized_shape, weight, bias, eps }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let columns: usize = normalized_shape.iter().product();
        let (weight, bias) = (weight.map(values), bias.map(values));
        let mut out = Vec::with_capacity(input.len());
        for row in values(input).chunks(columns.max(1)) {
            let mean = row.iter().sum::<f64>() / columns as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / columns as f64;
            for (i, x) in row.iter().enumerate() {
                let normal = (x - mean) / (variance + eps).sqrt();
                out.push(normal * weight.as_ref().map_or(1.0, |w| w[i]) + bias.as_ref().map_or(0.0, |b| b[i]));
            }
        }
        array(input.shape(), out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), [8]).weight(s.normal([8])).bias(s.normal([8])));
        s.case(with(s.normal([4, 8]), [8]));
        s.case(with(s.normal([4, 8]), [8]).weight(s.normal([8])).eps(1e-2));
        s.case(with(s.normal([4, 8]), [8]).bias(s.normal([8])));
        s.case(with(s.normal([2, 3, 5]), [3, 5]).weight(s.normal([3, 5])).bias(s.normal([3, 5])));
        s.case(with(s.normal([7]), [7]).weight(s.normal([7])));
        s.case(with(s.normal([0, 4]), [4]).weight(s.normal([4])).bias(s.normal([4])));
        s.case(with(s.normal([3, 515]), [515]).weight(s.normal([515])).bias(s.normal([515])));
        s.case(with(s.normal([3, 1]), [1]).weight(s.normal([1])).bias(s.normal([1])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(TrailingShape, with(e.normal([4, 8]), [7]), "end with [7]");
        e.case(TrailingShape, with(e.normal([4, 8]), []), "one dimension or more");
        e.case(WeightShape, with(e.normal([4, 8]), [8]).weight(e.normal([7])), "weight has shape [7], expected [8]");
        e.case(BiasShape, with(e.normal([4, 8]), [8]).bias(e.normal([7])), "bias has shape [7], expected [8]");
    }
}
