use fulgurite_ops_macros::{operator, rewrite};

use super::{Reduce, all_gather_one, among, reduce_scatter_one};
use crate::prims;

/// The tensor of this shape of which each rank along `axis` has a part: its elements in row-major order, divided into
/// equal parts, one after another. What is behind the last element is padding. The gradient of a part is its part of
/// the sum of the gradients of all ranks, and zero for padding.
#[operator(effects(collective), overload = Whole)]
pub mod whole {
    fn whole(part: Tensor<Number>, axis: String, shape: Vec<usize>) -> Tensor;

    fn requires(part: &TensorMeta, axis: &str, shape: &[usize]) -> Result<()> {
        let ranks = among::extent(axis, Code::Axis)?;
        require!(part.rank() == 1, PartRank, "part has shape {:?}, expected one dimension", part.shape());
        let wanted = part.with_shape(shape);
        let there = among::joined_extent(("part", part.shape()[0]), ranks, Code::Extent)?;
        require!(
            wanted.addressable().is_ok() && wanted.len() <= there,
            PartLength,
            "part has {} elements, and {ranks} of them are fewer than those of shape {shape:?}",
            part.len()
        );
        Ok(())
    }

    fn decomposition(part: Tensor, axis: String, shape: Vec<usize>) -> Tensor {
        let gathered = all_gather_one(part, &axis, 0);
        let elements: usize = shape.iter().product();
        prims::reshape(prims::slice(gathered, [0], [elements], [1]), shape)
    }

    // The line stays whole, so that it can be gathered in another type, or again.
    fn grad(part: Tensor, axis: String, shape: Vec<usize>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (whole(part, &axis, &shape), move |d_out: Tensor| {
            let elements: usize = shape.iter().product();
            let all = part.shape()[0] * among::extent(&axis, Code::Axis).unwrap_or(1);
            let flat = prims::reshape(d_out, [elements]);
            let padding = all.saturating_sub(elements);
            let padded = if padding > 0 { prims::pad(flat, [0], [padding], 0.0) } else { flat };
            Grads { part: reduce_scatter_one(padded, &axis, 0, Reduce::Sum) }
        })
    }

    fn reference(part: &ReferenceTensor, axis: &str, shape: &[usize]) -> Result<ReferenceTensor> {
        let (all, _) = among::all_ranks("whole", axis, part)?;
        Ok(among::shaped(&among::joined(&all, 0), shape))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([12]), "data=1", [3, 4]));
        s.case(with(s.normal([7]), "data=1", [5]));
        s.case(with(s.normal([1]), "data=1", []));
        s.case(with(s.normal([3]), "data=1", [0, 2]));
        s.case(with(s.normal([67 * 65]), "data=1", [67, 65]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with(e.normal([2]), "data", [2]), "'data' is not an axis of a mesh");
        e.case(PartRank, with(e.normal([2, 1]), "data=1", [2]), "part has shape [2, 1]");
        e.case(PartLength, with(e.normal([2]), "data=2", [5]), "part has 2 elements, and 2 of them are fewer");
        e.case(Extent, with(e.normal([1 << 46]), "data=4", [1]), "part: 4 tensors of extent 70368744177664 are larger");
    }
}

/// What is only read in a type of fewer bytes is gathered in that type.
#[rewrite(default, late)]
pub mod gather_narrow {
    fn pattern(part: Tensor, axis: String, shape: Vec<usize>, dtype: DType) -> Tensor {
        prims::convert_element_type(whole(part, axis, shape), dtype)
    }

    fn condition(part: &TensorMeta, dtype: DType) -> Claim {
        let narrower = dtype.size() < part.dtype().size();
        refuse_unless!(narrower, "part is {}, which is not larger than {dtype}", part.dtype());
        refuse_unless!(dtype != DType::Bool, "dtype is bool, which no part has");
        Ok(())
    }

    fn replacement(part: Tensor, axis: String, shape: Vec<usize>, dtype: DType) -> Tensor {
        whole(prims::convert_element_type(part, dtype), axis, shape)
    }

    fn samples(s: &mut Samples) {
        for dtype in [DType::BF16, DType::F16] {
            s.case(with(s.normal([12]), "data=1", [3, 4], dtype)).forward_only("it comes after gradients are taken");
        }
    }
}
