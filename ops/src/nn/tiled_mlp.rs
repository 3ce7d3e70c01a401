//! Layers that are applied to parts of a sequence, one after the other.

use fulgurite_runtime::Tensor;
use fulgurite_runtime::tracer::checkpoint;

use crate::prims;

/// `f` of `x` [..., T, H], applied to `num_shards` parts of the dimension T one after the other; `f` computes each
/// position by itself, as the MLP of a block does. Without `num_shards` there are `T / H` parts, rounded up; there are
/// at least one and at most T. Of what `f` computes in between, only that of one part exists: each part is a
/// [`checkpoint`], which the backward pass computes again. Values are the same; gradients of what `f` uses beside its
/// argument are summed part by part. As in Liger-Kernel and DeepSpeed. A tensor of less than two dimensions is one
/// part.
#[track_caller]
pub fn tiled_mlp(x: Tensor, num_shards: Option<usize>, f: impl Fn(Tensor) -> Tensor) -> Tensor {
    let shape = x.shape().to_vec();
    let [.., length, width] = shape[..] else { return checkpoint("tile", || f(x)) };
    let dim = shape.len() - 2;
    let shards = num_shards.unwrap_or(length.div_ceil(width.max(1))).clamp(1, length.max(1));
    let each = length.div_ceil(shards).max(1);
    let parts = (0..length.max(1)).step_by(each).map(|from| {
        let (mut starts, mut ends) = (vec![0; shape.len()], shape.clone());
        (starts[dim], ends[dim]) = (from, length.min(from + each));
        let part = if each >= length { x } else { prims::slice(x, starts, ends, vec![1; shape.len()]) };
        checkpoint("tile", || f(part))
    });
    match &parts.collect::<Vec<_>>()[..] {
        [part] => *part,
        parts => prims::cat(parts, dim),
    }
}
