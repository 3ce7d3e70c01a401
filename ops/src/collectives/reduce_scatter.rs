use fulgurite_ops_macros::{operator, rewrite};

use super::all_gather;
use super::among::{self, Reduce};
use crate::prims::{convert_element_type, div, reshape};

/// The sum or the mean of each of `inputs` over the ranks along `axis`, in equal parts along dimension `dim`: each rank
/// has the part of its place. The tensors have one dtype and go through one exchange. Sums of types of 16 bits are f32
/// until the end, or with `dtype` f32 in the end too; integers wrap. The executor chooses the order in which ranks are
/// added.
#[operator(prim, effects(collective), overload = ReduceScatter)]
pub mod reduce_scatter {
    fn reduce_scatter(
        inputs: Vec<Tensor<Number>>,
        axis: String,
        dim: usize,
        op: Reduce,
        #[default(None)] dtype: Option<DType>,
    ) -> Vec<Tensor>;

    fn meta(
        inputs: &[TensorMeta],
        axis: &str,
        dim: usize,
        op: Reduce,
        dtype: Option<DType>,
    ) -> Result<Vec<TensorMeta>> {
        let ranks = among::extent(axis, Code::Axis)?;
        among::one_dtype(inputs, [Code::NoTensors, Code::SameDType])?;
        require!(matches!(op, Reduce::Sum | Reduce::Mean), SumOrMean, "op is {op:?}, expected a sum or a mean");
        require!(
            op != Reduce::Mean || inputs[0].dtype().is_floating(),
            FloatingDType,
            "inputs are {}, expected a floating-point dtype, which a mean has",
            inputs[0].dtype()
        );
        let dtype = among::result_dtype((inputs[0].dtype(), op), dtype, Code::ResultDType)?;
        let mut results = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.iter().enumerate() {
            let name = format!("inputs[{i}]");
            let codes = [Code::DimensionRange, Code::Divisible];
            among::divisible(("dim", dim), (&name, input.shape()), ranks, codes)?;
            let mut shape = input.shape().to_vec();
            shape[dim] /= ranks;
            results.push(input.with_shape(shape).with_dtype(dtype));
        }
        Ok(results)
    }

    fn grad(
        inputs: Vec<Tensor>,
        axis: String,
        dim: usize,
        op: Reduce,
        dtype: Option<DType>,
    ) -> (Vec<Tensor>, impl FnOnce(Vec<Tensor>) -> Grads) {
        let own = inputs[0].dtype();
        (reduce_scatter::with(inputs, &axis, dim, op).dtype(dtype).call(), move |d_out: Vec<Tensor>| {
            let ranks = among::ranks_of(&axis);
            let gathered = among::narrowed(all_gather(d_out, axis, dim), own);
            let mean = |whole: Tensor| div(whole, ranks as f64);
            Grads { inputs: if op == Reduce::Mean { gathered.into_iter().map(mean).collect() } else { gathered } }
        })
    }

    fn reference(
        inputs: &[ReferenceTensor],
        axis: &str,
        dim: usize,
        op: Reduce,
        dtype: Option<DType>,
    ) -> Result<Vec<ReferenceTensor>> {
        let (all, place) = among::all_ranks_of_each(&format!("reduce_scatter of dim {dim} by {op:?}"), axis, inputs)?;
        let own = |all: &Vec<ReferenceTensor>| among::part(&among::reduced(all, op, dtype), dim, place, all.len());
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
            let wide = s.dtype().accumulator();
            s.case(with([s.normal([4, 6]), s.normal([8])], "data=1", 0, Reduce::Mean).dtype(wide));
            s.case(with([s.normal([3, 8, 2])], "data=1", 1, Reduce::Sum).dtype(wide));
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
        let narrow = with([e.of(DType::F32, [2])], "data=1", 0, Reduce::Sum).dtype(DType::BF16);
        e.case(ResultDType, narrow, "dtype is bf16, expected f32, or none");
    }
}

/// What is widened before it is added, as gradients of sharded parameters are, goes to the other ranks as it was: sums
/// are made in the wide type all the same.
#[rewrite(default, late)]
pub mod reduce_scatter_widens {
    fn pattern(input: Tensor, axis: String, op: Reduce) -> Tensor {
        let wide = convert_element_type(input, DType::F32);
        let flat = if input.rank() == 1 { wide } else { reshape(wide, [input.shape().iter().product()]) };
        reduce_scatter([flat], axis, 0, op)[0]
    }

    fn condition(input: &TensorMeta, op: Reduce) -> Claim {
        among::widens(input.dtype(), op, DType::F32)
    }

    fn replacement(input: Tensor, axis: String, op: Reduce) -> Tensor {
        let flat = if input.rank() == 1 { input } else { reshape(input, [input.shape().iter().product()]) };
        reduce_scatter::with([flat], axis, 0, op).dtype(DType::F32).call()[0]
    }

    fn samples(s: &mut Samples) {
        for dtype in [DType::BF16, DType::F16] {
            for op in [Reduce::Sum, Reduce::Mean] {
                for shape in [&[12][..], &[4, 3], &[2, 3, 2]] {
                    let input = s.normal(shape).cast(dtype);
                    s.case(with(input, "data=1", op)).forward_only("it comes after gradients are taken");
                }
            }
        }
    }
}
