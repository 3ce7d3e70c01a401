use fulgurite_ops_macros::operator;

use super::among;

/// Parts for each other rank: `input` is divided along dimension `split` into as many parts as there are ranks along
/// `axis`, the part of each place goes to the rank at that place, and what a rank gets is put together along dimension
/// `concat`, in the order of ranks.
#[operator(prim, exact, effects(collective))]
pub mod all_to_all {
    fn all_to_all(input: Tensor<Number>, axis: String, split: usize, concat: usize) -> Tensor;

    fn meta(input: &TensorMeta, axis: &str, split: usize, concat: usize) -> Result<TensorMeta> {
        let ranks = among::extent(axis, Code::Axis)?;
        among::divisible(("split", split), ("input", input.shape()), ranks, [Code::SplitRange, Code::Divisible])?;
        let rank = input.rank();
        require!(
            concat < rank,
            ConcatRange,
            "concat is {concat}, expected a dimension below {rank}, the rank of input"
        );
        let mut shape = input.shape().to_vec();
        shape[split] /= ranks;
        shape[concat] = among::joined_extent(("input", shape[concat]), ranks, Code::Extent)?;
        Ok(input.with_shape(shape))
    }

    fn grad(input: Tensor, axis: String, split: usize, concat: usize) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (all_to_all(input, &axis, split, concat), move |d_out: Tensor| Grads {
            input: all_to_all(d_out, axis, concat, split),
        })
    }

    fn reference(input: &ReferenceTensor, axis: &str, split: usize, concat: usize) -> Result<ReferenceTensor> {
        let (all, place) = among::all_ranks(&format!("all_to_all of {split} to {concat}"), axis, input)?;
        let parts: Vec<_> = all.iter().map(|tensor| among::part(tensor, split, place, all.len())).collect();
        Ok(among::joined(&parts, concat))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([8]), "data=1", 0, 0));
        s.case(with(s.normal([4, 6]), "data=1", 0, 1));
        s.case(with(s.normal([3, 8, 2]), "data=1", 1, 0));
        s.case(with(s.normal([4, 0]), "data=1", 0, 1));
        s.case(with(s.normal([64, 65]), "data=1", 0, 0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with(e.normal([2]), "4", 0, 0), "'4' is not an axis of a mesh");
        e.case(SplitRange, with(e.normal([2]), "data=1", 1, 0), "split is 1");
        e.case(Extent, with(e.normal([0, 1 << 46]), "data=4", 0, 1), "4 tensors of extent 70368744177664 are larger");
        e.case(ConcatRange, with(e.normal([2]), "data=1", 0, 1), "concat is 1");
        e.case(Divisible, with(e.normal([6]), "data=4", 0, 0), "of extent 6, is divided among 4 ranks");
    }
}
