use fulgurite_ops_macros::operator;

use super::among;

/// `input` of the rank at the place `root` of `axis`, on each rank along it.
#[operator(prim, exact, effects(collective), no_grad = "what only one rank gives is not trained")]
pub mod broadcast {
    fn broadcast(input: Tensor<Number>, axis: String, root: usize) -> Tensor;

    fn meta(input: &TensorMeta, axis: &str, root: usize) -> Result<TensorMeta> {
        let ranks = among::extent(axis, Code::Axis)?;
        require!(
            root < ranks,
            Root,
            "root is {root}, expected a place below {ranks}, the number of ranks along the axis"
        );
        Ok(input.clone())
    }

    fn reference(input: &ReferenceTensor, axis: &str, root: usize) -> Result<ReferenceTensor> {
        let (all, _) = among::all_ranks(&format!("broadcast from {root}"), axis, input)?;
        Ok(all[root].clone())
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[7], &[4, 6], &[0, 3], &[67, 65]] {
            s.case(with(s.normal(shape), "data=1", 0));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with(e.normal([2]), "data=x", 0), "'data=x' is not an axis of a mesh");
        e.case(Root, with(e.normal([2]), "data=2", 2), "root is 2, expected a place below 2");
    }
}
