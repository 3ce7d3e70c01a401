use fulgurite_ops_macros::operator;

use crate::core::arrays::{array, values};
use crate::core::promotion::cast;
use crate::nn::layer_norm;
use crate::prims;

/// `(x - mean) / √(var + eps) · weight + bias` of `input` [N, C, ...]: mean and biased variance are those of each of
/// `num_groups` groups of neighbouring channels of an item of the batch; `weight` [C] and `bias` [C] are the channels'.
/// Computed in f32 for f16 and bf16. Wu & He, 2018.
#[operator(cheap, torch = "nn.functional.group_norm", autocast = full)]
pub mod group_norm {
    fn group_norm(
        input: Tensor<Floating>,
        num_groups: usize,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(None)] bias: Option<Tensor<Floating>>,
        #[default(1e-5)] eps: f64,
    ) -> Tensor;

    fn meta(Args { input, num_groups, weight, bias, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        require!(input.rank() > 1, InputRank, "input is {input}, expected [N, C, ...]");
        let empty = input.shape()[1..].contains(&0);
        require!(!empty, Empty, "input is {input}, expected a channel and a place of each or more");
        let channels = input.shape()[1];
        require!(
            num_groups > 0 && channels.is_multiple_of(num_groups),
            Groups,
            "num_groups is {num_groups}, expected a divisor of the {channels} channels"
        );
        if let Some(weight) = weight {
            let shape = weight.shape();
            require!(shape == [channels], WeightShape, "weight has shape {shape:?}, expected [{channels}]");
        }
        if let Some(bias) = bias {
            let shape = bias.shape();
            require!(shape == [channels], BiasShape, "bias has shape {shape:?}, expected [{channels}]");
        }
        Ok(input.clone())
    }

    fn decomposition(Args { input, num_groups, weight, bias, eps }: Args<Tensor>) -> Tensor {
        let (shape, wide) = (input.shape().to_vec(), input.dtype().accumulator());
        let (channels, places) = (shape[1], shape[2..].iter().product::<usize>());
        // Reductions over the last dimension alone are fused with what is computed of them.
        let rows = [shape[0], num_groups, channels / num_groups * places];
        let x = cast(prims::reshape(input, rows), wide);
        let normal = layer_norm::with(x, [rows[2]]).eps(eps).call();
        let spread = |channel: Tensor| {
            let channel = prims::broadcast_in_dim(cast(channel, wide), [channels, places], [0]);
            prims::broadcast_in_dim(prims::reshape(channel, &rows[1..]), rows, [1, 2])
        };
        let scaled = weight.map_or(normal, |weight| prims::mul(normal, spread(weight)));
        let moved = bias.map_or(scaled, |bias| prims::add(scaled, spread(bias)));
        prims::reshape(cast(moved, input.dtype()), shape)
    }

    fn reference(Args { input, num_groups, weight, bias, eps }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let (channels, each) = (input.shape()[1], input.shape()[2..].iter().product::<usize>());
        let group = channels / num_groups * each;
        let mut out = Vec::with_capacity(input.len());
        for (index, row) in values(input).chunks(group.max(1)).enumerate() {
            let mean = row.iter().sum::<f64>() / group as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / group as f64;
            for (i, x) in row.iter().enumerate() {
                let channel = index % num_groups * (channels / num_groups) + i / each;
                let normal = (x - mean) / (variance + eps).sqrt();
                out.push(normal * weight.map_or(1.0, |w| w[[channel]]) + bias.map_or(0.0, |b| b[[channel]]));
            }
        }
        array(input.shape(), out)
    }

    fn samples(s: &mut Samples) {
        let calls = [(&[2, 6, 5][..], 3), (&[4, 8], 2), (&[2, 4, 3, 5], 1), (&[3, 4, 5], 4), (&[0, 4, 3], 2)];
        for (shape, groups) in calls {
            let channels = shape[1];
            s.case(with(s.normal(shape), groups).weight(s.normal([channels])).bias(s.normal([channels])));
        }
        s.case(with(s.normal([2, 6, 5]), 2));
        s.case(with(s.normal([2, 6, 5]), 2).weight(s.normal([6])).eps(1e-2));
        s.case(with(s.normal([2, 6, 5]), 3).bias(s.normal([6])));
        s.case(with(s.normal([2, 32, 9, 17]), 8).weight(s.normal([32])).bias(s.normal([32])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.normal([4]), 2), "input is f32[4], expected [N, C, ...]");
        e.case(Empty, with(e.normal([2, 0]), 1), "expected a channel and a place of each or more");
        e.case(Empty, with(e.normal([2, 4, 0]), 2), "expected a channel and a place of each or more");
        e.case(Groups, with(e.normal([2, 4, 3]), 3), "num_groups is 3, expected a divisor of the 4 channels");
        e.case(Groups, with(e.normal([2, 4, 3]), 0), "num_groups is 0, expected a divisor of the 4 channels");
        e.case(WeightShape, with(e.normal([2, 4]), 2).weight(e.normal([3])), "weight has shape [3], expected [4]");
        e.case(BiasShape, with(e.normal([2, 4]), 2).bias(e.normal([3])), "bias has shape [3], expected [4]");
    }
}
