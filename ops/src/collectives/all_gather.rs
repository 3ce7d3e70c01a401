use fulgurite_ops_macros::operator;

use super::among::{self, Reduce};
use super::reduce_scatter;

/// Each of `inputs` of the ranks along `axis`, one after another along dimension `dim`, on each of them. The tensors
/// have one dtype and go through one exchange.
#[operator(prim, exact, effects(collective), overload = AllGather)]
pub mod all_gather {
    fn all_gather(inputs: Vec<Tensor<Number>>, axis: String, dim: usize) -> Vec<Tensor>;

    fn meta(inputs: &[TensorMeta], axis: &str, dim: usize) -> Result<Vec<TensorMeta>> {
        let ranks = among::extent(axis, Code::Axis)?;
        among::one_dtype(inputs, [Code::NoTensors, Code::SameDType])?;
        let mut results = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.iter().enumerate() {
            let name = format!("inputs[{i}]");
            crate::prims::checks::dimension(dim, (&name, input), Code::DimensionRange)?;
            let mut shape = input.shape().to_vec();
            shape[dim] = among::joined_extent((&name, shape[dim]), ranks, Code::Extent)?;
            results.push(input.with_shape(shape));
        }
        Ok(results)
    }

    fn grad(inputs: Vec<Tensor>, axis: String, dim: usize) -> (Vec<Tensor>, impl FnOnce(Vec<Tensor>) -> Grads) {
        (all_gather(inputs, &axis, dim), move |d_out: Vec<Tensor>| Grads {
            inputs: reduce_scatter(d_out, axis, dim, Reduce::Sum),
        })
    }

    fn reference(inputs: &[ReferenceTensor], axis: &str, dim: usize) -> Result<Vec<ReferenceTensor>> {
        let (all, _) = among::all_ranks_of_each(&format!("all_gather of dim {dim}"), axis, inputs)?;
        Ok(all.iter().map(|tensors| among::joined(tensors, dim)).collect())
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([7])], "data=1", 0));
        s.case(with([s.normal([4, 6])], "data=1", 0));
        s.case(with([s.normal([3, 5, 2])], "data=1", 1));
        s.case(with([s.normal([0, 3])], "data=1", 0));
        s.case(with([s.normal([67, 65])], "data=1", 1));
        s.case(with([s.normal([5, 2]), s.normal([5, 2])], "data=1", 0));
        s.case(with([s.normal([4, 6]), s.normal([3, 0]), s.normal([2, 5, 3])], "data=1", 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with([e.normal([2])], "data=0", 0), "'data=0' is not an axis of a mesh");
        e.case(NoTensors, with([], "data=1", 0), "inputs is empty");
        let other = crate::prims::support::another(e.dtype());
        e.case(SameDType, with([e.normal([2]), e.of(other, [2])], "data=1", 0), "inputs[1] is ");
        e.case(Extent, with([e.normal([0, 1 << 46])], "data=4", 1), "inputs[0]: 4 tensors of extent 70368744177664");
        e.case(DimensionRange, with([e.normal([2, 2]), e.normal([2])], "data=1", 1), "dim is 1");
    }
}
