use fulgurite_ops_macros::operator;

use super::support::{others, rearranged};
use crate::prims::{reshape, sum};

/// `input` in a larger shape: its dimension `i` becomes dimension `dims[i]` of the result, extents of one and the
/// dimensions that are not named are repeated.
#[operator(prim, overload = Broadcast, elements = broadcast)]
pub mod broadcast_in_dim {
    fn broadcast_in_dim(input: Tensor, shape: Vec<usize>, dims: Vec<usize>) -> Tensor;

    fn meta(input: &TensorMeta, shape: &[usize], dims: &[usize]) -> Result<TensorMeta> {
        require!(
            dims.len() == input.rank()
                && dims.windows(2).all(|pair| pair[0] < pair[1])
                && dims.iter().all(|dim| *dim < shape.len()),
            Placement,
            "dims is {dims:?}, expected {} ascending dimensions of shape {shape:?}",
            input.rank()
        );
        require!(
            input.shape().iter().zip(dims).all(|(extent, dim)| *extent == 1 || *extent == shape[*dim]),
            Extent,
            "input has shape {:?}, expected ones or the extents of {shape:?} at {dims:?}",
            input.shape()
        );
        Ok(input.with_shape(shape))
    }

    fn view(input: &Strided, shape: &[usize], dims: &[usize]) -> Option<View> {
        let mut strides = vec![0; shape.len()];
        for (i, dim) in dims.iter().enumerate() {
            if input.meta.shape()[i] == shape[*dim] {
                strides[*dim] = input.strides[i];
            }
        }
        Some(View { strides, offset: 0 })
    }

    fn grad(input: Tensor, shape: &[usize], dims: &[usize]) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = broadcast_in_dim(input, shape, dims);
        let from = input.shape();
        let mut repeated = others(shape.len(), dims);
        repeated.extend(from.iter().zip(dims).filter(|(extent, dim)| **extent != shape[**dim]).map(|(_, dim)| *dim));
        repeated.sort_unstable();
        (out, move |d_out: Tensor| {
            let total = if repeated.is_empty() { d_out } else { sum(d_out, repeated) };
            let same = *total.shape() == *from;
            Grads { input: if same { total } else { reshape(total, from) } }
        })
    }

    fn reference(input: &ReferenceTensor, shape: &[usize], dims: &[usize]) -> ReferenceTensor {
        rearranged(input, shape, Scalar::Int(0), |index| {
            Some(
                dims.iter()
                    .zip(input.shape())
                    .map(|(dim, extent)| if *extent == 1 { 0 } else { index[*dim] })
                    .collect(),
            )
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), [], []));
        s.case(with(s.normal([]), [3, 4], []));
        s.case(with(s.normal([3]), [3, 4], [0]));
        s.case(with(s.normal([4]), [3, 4], [1]));
        s.case(with(s.normal([3, 1]), [3, 4], [0, 1]));
        s.case(with(s.normal([1, 5]), [2, 3, 4, 5], [1, 3]));
        s.case(with(s.normal([3, 4]), [3, 4], [0, 1]));
        s.case(with(s.normal([1]), [0], [0]));
        s.case(with(s.normal([0, 1]), [2, 0, 3], [1, 2]));
        s.case(with(s.normal([65]), [67, 65], [1]));
        s.case(with(s.normal([67]), [67, 65], [0]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Placement, with(e.normal([2, 3]), [3, 2], [1, 0]), "dims is [1, 0]");
        e.case(Placement, with(e.normal([2]), [2], [1]), "dims is [1]");
        e.case(Placement, with(e.normal([2, 2]), [3, 2], [1, 1]), "dims is [1, 1]");
        e.case(Placement, with(e.normal([2, 3]), [2, 3], [0]), "expected 2 ascending dimensions");
        e.case(Extent, with(e.normal([2]), [3], [0]), "input has shape [2]");
    }
}
