use fulgurite_ops_macros::operator;

use super::all_gather;
use super::among::{self, Reduce};
use crate::prims::div;

/// The sum or the mean of each of `inputs` over the ranks along `axis`, in equal parts along dimension `dim`: each rank
/// has the part of its place. The tensors have one dtype and go through one exchange. Sums of types of 16 bits are f32
/// until the end; integers wrap. The executor chooses the order in which ranks are added.
#[operator(prim, effects(collective))]
pub mod reduce_scatter {
    fn reduce_scatter(inputs: Vec<Tensor<Number>>, axis: String, dim: usize, op: Reduce) -> Vec<Tensor>;

    fn meta(inputs: &[TensorMeta], axis: &str, dim: usize, op: Reduce) -> Result<Vec<TensorMeta>> {
        let ranks = among::extent(axis, Code::Axis)?;
        among::one_dtype(inputs, [Code::NoTensors, Code::SameDType])?;
        require!(matches!(op, Reduce::Sum | Reduce::Mean), SumOrMean, "op is {op:?}, expected a sum or a mean");
        require!(
            op != Reduce::Mean || inputs[0].dtype().is_floating(),
            FloatingDType,
            "inputs are {}, expected a floating-point dtype, which a mean has",
            inputs[0].dtype()
        );
        let mut results = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.iter().enumerate() {
            let name = format!("inputs[{i}]");
            let codes = [Code::DimensionRange, Code::Divisible];
            among::divisible(("dim", dim), (&name, input.shape()), ranks, codes)?;
            let mut shape = input.shape().to_vec();
            shape[dim] /= ranks;
            results.push(input.with_shape(shape));
        }
        Ok(results)
    }

    fn grad(
        inputs: Vec<Tensor>,
        axis: String,
        dim: usize,
        op: Reduce,
    ) -> (Vec<Tensor>, impl FnOnce(Vec<Tensor>) -> Grads) {
        (reduce_scatter(inputs, &axis, dim, op), move |d_out: Vec<Tensor>| {
            let ranks = among::ranks_of(&axis);
            let gathered = all_gather(d_out, axis, dim);
            let mean = |whole: Tensor| div(whole, ranks as f64);
            Grads { inputs: if op == Reduce::Mean { gathered.into_iter().map(mean).collect() } else { gathered } }
        })
    }

    fn reference(inputs: &[ReferenceTensor], axis: &str, dim: usize, op: Reduce) -> Result<Vec<ReferenceTensor>> {
        let (all, place) = among::all_ranks_of_each(&format!("reduce_scatter of dim {dim} by {op:?}"), axis, inputs)?;
        let own = |all: &Vec<ReferenceTensor>| among::part(&among::reduced(all, op), dim, place, all.len());
        Ok(all.iter().map(own).collect())
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([8])], "data=1", 0, Reduce::Sum));
        s.case(with([s.normal([4, 6])], "data=1", 0, Reduce::Sum));
        s.case(with([s.normal([3, 8, 2])], "data=1", 1, Reduce::Sum));
        s.case(with([s.normal([0, 3])], "data=1", 0, Reduce::Sum));
        s.case(with([s.normal([64, 65])], "data=1", 0, Reduce::Sum));
        if s.dtype().is_floating() {
            s.case(with([s.normal([4, 6])], "data=1", 0, Reduce::Mean));
            s.case(with([s.normal([4, 6]), s.normal([8])], "data=1", 0, Reduce::Mean));
        }
        s.case(with([s.normal([4, 3]), s.normal([4, 3])], "data=1", 0, Reduce::Sum));
        s.case(with([s.normal([3, 8, 2]), s.normal([2, 0]), s.normal([5, 4])], "data=1", 1, Reduce::Sum));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with([e.normal([2])], "", 0, Reduce::Sum), "'' is not an axis of a mesh");
        e.case(NoTensors, with([], "data=1", 0, Reduce::Sum), "inputs is empty");
        let other = crate::prims::support::another(e.dtype());
        e.case(SameDType, with([e.normal([2]), e.of(other, [2])], "data=1", 0, Reduce::Sum), "inputs[1] is ");
        e.case(DimensionRange, with([e.normal([2])], "data=1", 1, Reduce::Sum), "dim is 1");
        let uneven = with([e.normal([4]), e.normal([6])], "data=4", 0, Reduce::Sum);
        e.case(Divisible, uneven, "of inputs[1], of extent 6, is divided among 4 ranks");
        e.case(SumOrMean, with([e.normal([2])], "data=1", 0, Reduce::Max), "op is Max");
        e.case(FloatingDType, with([e.of(DType::I64, [2])], "data=1", 0, Reduce::Mean), "inputs are i64");
    }
}
