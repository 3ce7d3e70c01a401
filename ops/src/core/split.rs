use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use super::arrays::rearranged;
use super::piece;
use super::promotion::position;
use crate::prims;

/// Pieces of `split_size` elements along `dim`; the last may be smaller.
#[operator(torch = "Tensor.split", complex)]
pub mod split {
    fn split(input: Tensor, split_size: usize, #[default(0)] dim: i64) -> Vec<Tensor>;

    fn meta(input: &TensorMeta, split_size: usize, dim: i64) -> Result<Vec<TensorMeta>> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        let dim = normalize_dim(dim, input.rank())?;
        require!(split_size > 0 || input.shape()[dim] == 0, SplitSize, "split_size is 0, expected a positive number");
        Ok(super::metas(input, &super::sizes(input.shape()[dim], split_size), dim))
    }

    fn decomposition(input: Tensor, split_size: usize, dim: i64) -> Vec<Tensor> {
        let dim = position(dim, input.rank());
        super::pieces(input, &super::sizes(input.shape()[dim], split_size), dim)
    }

    fn grad(input: Tensor, split_size: usize, dim: i64) -> (Vec<Tensor>, impl FnOnce(Vec<Tensor>) -> Grads) {
        let dim = position(dim, input.rank());
        let pieces = super::pieces(input, &super::sizes(input.shape()[dim], split_size), dim);
        (pieces, move |d_out: Vec<Tensor>| Grads { input: super::joined(&d_out, dim) })
    }

    fn reference(input: &ReferenceTensor, split_size: usize, dim: i64) -> Vec<ReferenceTensor> {
        let dim = dim.rem_euclid(input.shape().len() as i64) as usize;
        let extent = input.shape()[dim];
        let sizes: Vec<usize> =
            (0..extent).step_by(split_size.max(1)).map(|start| split_size.min(extent - start)).collect();
        super::cut(input, if sizes.is_empty() { &[0] } else { &sizes }, dim)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([6, 4]), 2));
        s.case(with(s.normal([7]), 3));
        s.case(with(s.normal([2, 7]), 3).dim(-1));
        s.case(with(s.normal([3]), 5));
        s.case(with(s.normal([0, 3]), 2));
        s.case(with(s.normal([0, 3]), 2).dim(1));
        s.case(with(s.normal([3]), 1));
        s.case(with(s.normal([0, 3]), 0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), 1), "input has no dimensions");
        e.case(SplitSize, with(e.normal([2]), 0), "split_size is 0");
        e.case(SplitSize, with(e.normal([1]), 0), "split_size is 0");
    }
}

/// Pieces of `split_sizes` elements along `dim`.
#[operator(torch = "split_with_sizes", complex)]
pub mod split_with_sizes {
    fn split_with_sizes(input: Tensor, split_sizes: Vec<usize>, #[default(0)] dim: i64) -> Vec<Tensor>;

    fn meta(input: &TensorMeta, split_sizes: &[usize], dim: i64) -> Result<Vec<TensorMeta>> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        let dim = normalize_dim(dim, input.rank())?;
        require!(
            split_sizes.iter().sum::<usize>() == input.shape()[dim],
            SplitSizes,
            "split_sizes is {split_sizes:?}, expected a sum of {}, the extent of dimension {dim}",
            input.shape()[dim]
        );
        Ok(super::metas(input, split_sizes, dim))
    }

    fn decomposition(input: Tensor, split_sizes: &[usize], dim: i64) -> Vec<Tensor> {
        super::pieces(input, split_sizes, position(dim, input.rank()))
    }

    fn grad(input: Tensor, split_sizes: &[usize], dim: i64) -> (Vec<Tensor>, impl FnOnce(Vec<Tensor>) -> Grads) {
        let dim = position(dim, input.rank());
        (super::pieces(input, split_sizes, dim), move |d_out: Vec<Tensor>| Grads { input: super::joined(&d_out, dim) })
    }

    fn reference(input: &ReferenceTensor, split_sizes: &[usize], dim: i64) -> Vec<ReferenceTensor> {
        super::cut(input, split_sizes, dim.rem_euclid(input.shape().len() as i64) as usize)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([6, 4]), [1, 3, 2]));
        s.case(with(s.normal([2, 7]), [3, 0, 4]).dim(-1));
        s.case(with(s.normal([3]), [3]));
        s.case(with(s.normal([0, 3]), [1, 2]).dim(1));
        s.case(with(s.normal([4, 4]), [1, 3]).dim(1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), [1]), "input has no dimensions");
        e.case(SplitSizes, with(e.normal([4]), [1, 2]), "expected a sum of 4");
    }
}

fn sizes(extent: usize, size: usize) -> Vec<usize> {
    let count = if size == 0 { 1 } else { extent.div_ceil(size).max(1) };
    (0..count).map(|i| (extent - i * size).min(size)).collect()
}

fn metas(input: &fulgurite_runtime::TensorMeta, sizes: &[usize], dim: usize) -> Vec<fulgurite_runtime::TensorMeta> {
    let mut shape = input.shape().to_vec();
    let with_extent = |size: &usize| {
        shape[dim] = *size;
        input.with_shape(&shape)
    };
    sizes.iter().map(with_extent).collect()
}

#[track_caller]
pub(crate) fn pieces(input: Tensor, sizes: &[usize], dim: usize) -> Vec<Tensor> {
    let mut start = 0;
    let mut out = Vec::with_capacity(sizes.len());
    for size in sizes {
        out.push(piece(input, dim, start, *size));
        start += size;
    }
    out
}

/// The gradient of a tensor from those of its pieces. (Padded one by one and added, as the gradients of slices are,
/// they take time that grows with the square of their number.)
#[track_caller]
fn joined(pieces: &[Tensor], dim: usize) -> Tensor {
    match pieces {
        [only] => *only,
        _ => prims::cat(pieces, dim),
    }
}

/// For references: the pieces of `tensor`.
pub(crate) fn cut(
    input: &fulgurite_runtime::reference::ReferenceTensor,
    sizes: &[usize],
    dim: usize,
) -> Vec<fulgurite_runtime::reference::ReferenceTensor> {
    let mut start = 0;
    let mut shape = input.shape().to_vec();
    let part = |size: &usize| {
        shape[dim] = *size;
        let piece = rearranged(input, &shape, 0.0, |at| {
            let mut from = at.to_vec();
            from[dim] += start;
            Some(from)
        });
        start += size;
        piece
    };
    sizes.iter().map(part).collect()
}
