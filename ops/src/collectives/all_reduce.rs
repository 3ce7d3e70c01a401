use fulgurite_ops_macros::{operator, rewrite};
use fulgurite_runtime::Tensor;

use super::among::{self, Reduce};
use super::{all_gather, reduce_scatter};
use crate::prims::{cat, convert_element_type, div, eq, mul, reshape, slice};

/// What each of `inputs` of the ranks along `axis` is together, on each of them: by `op` the sum, the mean, the
/// largest, the smallest or the product, elementwise. The tensors have one dtype and go through one exchange. Sums and
/// products of types of 16 bits are f32 until the end, or with `dtype` f32 in the end too; integers wrap. The executor
/// chooses the order in which ranks are added.
#[operator(prim, effects(collective), overload = AllReduce)]
pub mod all_reduce {
    fn all_reduce(
        inputs: Vec<Tensor<Number>>,
        axis: String,
        op: Reduce,
        #[default(None)] dtype: Option<DType>,
    ) -> Vec<Tensor>;

    fn meta(inputs: &[TensorMeta], axis: &str, op: Reduce, dtype: Option<DType>) -> Result<Vec<TensorMeta>> {
        among::extent(axis, Code::Axis)?;
        among::one_dtype(inputs, [Code::NoTensors, Code::SameDType])?;
        require!(
            op != Reduce::Mean || inputs[0].dtype().is_floating(),
            FloatingDType,
            "inputs are {}, expected a floating-point dtype, which a mean has",
            inputs[0].dtype()
        );
        let dtype = among::result_dtype((inputs[0].dtype(), op), dtype, Code::ResultDType)?;
        Ok(inputs.iter().map(|input| input.with_dtype(dtype)).collect())
    }

    fn grad(
        inputs: Vec<Tensor>,
        axis: String,
        op: Reduce,
        dtype: Option<DType>,
    ) -> (Vec<Tensor>, impl FnOnce(Vec<Tensor>) -> Grads) {
        let out = all_reduce::with(&inputs, &axis, op).dtype(dtype).call();
        let results = out.clone();
        (out, move |d_out: Vec<Tensor>| match op {
            Reduce::Sum | Reduce::Mean => {
                Grads { inputs: among::narrowed(all_reduce(d_out, axis, op), inputs[0].dtype()) }
            }
            Reduce::Product => Grads { inputs: super::of_products(&inputs, &axis, &d_out) },
            // Ranks that share the extremum share the cotangent.
            Reduce::Max | Reduce::Min => {
                let is_best =
                    |(input, result): (&Tensor, &Tensor)| convert_element_type(eq(*input, *result), input.dtype());
                let best: Vec<Tensor> = inputs.iter().zip(&results).map(is_best).collect();
                let sums = all_reduce([&d_out[..], &best].concat(), axis, Reduce::Sum);
                let (cotangents, counts) = sums.split_at(inputs.len());
                let shared = |i: usize| mul(best[i], div(cotangents[i], counts[i]));
                Grads { inputs: (0..inputs.len()).map(shared).collect() }
            }
        })
    }

    fn reference(
        inputs: &[ReferenceTensor],
        axis: &str,
        op: Reduce,
        dtype: Option<DType>,
    ) -> Result<Vec<ReferenceTensor>> {
        let (all, _) = among::all_ranks_of_each(&format!("all_reduce by {op:?}"), axis, inputs)?;
        Ok(all.iter().map(|tensors| among::reduced(tensors, op, dtype)).collect())
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[7], &[4, 6], &[0, 3], &[67, 65]] {
            s.case(with([s.normal(shape)], "data=1", Reduce::Sum));
        }
        for op in [Reduce::Mean, Reduce::Max, Reduce::Min, Reduce::Product] {
            if op != Reduce::Mean || s.dtype().is_floating() {
                s.case(with([s.normal([8, 3])], "data=1", op));
            }
        }
        if s.dtype().is_floating() {
            let wide = s.dtype().accumulator();
            s.case(with([s.normal([33, 7]), s.normal([9])], "data=1", Reduce::Mean).dtype(wide));
            s.case(with([s.normal([5])], "data=1", Reduce::Sum).dtype(wide));
        }
        // A bucket.
        s.case(with([s.normal([5]), s.normal([5])], "data=1", Reduce::Sum));
        s.case(with([s.normal([4, 6]), s.normal([0, 3]), s.normal([])], "data=1", Reduce::Sum));
        s.case(with([s.normal([33, 7]), s.normal([9])], "data=1", Reduce::Max));
        s.case(with([s.normal([0]), s.normal([3, 5])], "data=1", Reduce::Product));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with([e.normal([2])], "data", Reduce::Sum), "'data' is not an axis of a mesh");
        e.case(NoTensors, with([], "data=1", Reduce::Sum), "inputs is empty");
        let other = crate::prims::support::another(e.dtype());
        e.case(SameDType, with([e.normal([2]), e.of(other, [2])], "data=1", Reduce::Sum), "inputs[1] is ");
        e.case(FloatingDType, with([e.of(DType::I64, [2])], "data=1", Reduce::Mean), "inputs are i64");
        let narrow = with([e.of(DType::F32, [2])], "data=1", Reduce::Sum).dtype(DType::BF16);
        e.case(ResultDType, narrow, "dtype is bf16, expected f32, or none");
        let largest = with([e.of(DType::BF16, [2])], "data=1", Reduce::Max).dtype(DType::F32);
        e.case(ResultDType, largest, "dtype is f32, expected bf16, or none");
    }
}

/// What is widened before it is added goes to the other ranks as it was: sums are made in the wide type all the same.
#[rewrite(default, late)]
pub mod all_reduce_widens {
    fn pattern(input: Tensor, axis: String, op: Reduce) -> Tensor {
        all_reduce([convert_element_type(input, DType::F32)], axis, op)[0]
    }

    fn condition(input: &TensorMeta, op: Reduce) -> Claim {
        among::widens(input.dtype(), op, DType::F32)
    }

    fn replacement(input: Tensor, axis: String, op: Reduce) -> Tensor {
        all_reduce::with([input], axis, op).dtype(DType::F32).call()[0]
    }

    fn samples(s: &mut Samples) {
        for dtype in [DType::BF16, DType::F16] {
            for op in [Reduce::Sum, Reduce::Mean] {
                let input = s.normal([5, 3]).cast(dtype);
                s.case(with(input, "data=1", op)).forward_only("it comes after gradients are taken");
            }
        }
    }
}

/// The cotangents of what was multiplied: of each rank the sum, over the ranks, of the cotangent times the product of
/// all others. Each rank computes it for all ranks, so that zeros need no quotient; they exchange their parts.
#[track_caller]
fn of_products(inputs: &[Tensor], axis: &str, d_out: &[Tensor]) -> Vec<Tensor> {
    let rows = |tensors: &[Tensor]| -> Vec<Tensor> {
        tensors.iter().map(|tensor| reshape(*tensor, [&[1][..], &*tensor.shape()].concat())).collect()
    };
    let of_ranks = |all: Tensor, cotangent: Tensor| {
        let (shape, ranks) = (all.shape().to_vec(), all.shape()[0]);
        let of_rank = |rank: usize| {
            let (mut starts, mut ends) = (vec![0; shape.len()], shape.clone());
            (starts[0], ends[0]) = (rank, rank + 1);
            slice(all, starts, ends, vec![1; shape.len()])
        };
        let given: Vec<Tensor> = (0..ranks).map(of_rank).collect();
        let mut before = cotangent;
        let mut parts = Vec::with_capacity(ranks);
        for row in &given {
            parts.push(before);
            before = mul(before, *row);
        }
        let mut behind: Option<Tensor> = None;
        for (part, row) in parts.iter_mut().zip(&given).rev() {
            *part = behind.map_or(*part, |behind| mul(*part, behind));
            behind = Some(behind.map_or(*row, |behind| mul(behind, *row)));
        }
        cat(parts, 0)
    };
    let gathered = all_gather(rows(inputs), axis, 0);
    let parts: Vec<Tensor> = gathered.into_iter().zip(rows(d_out)).map(|(all, d_out)| of_ranks(all, d_out)).collect();
    let own = reduce_scatter(parts, axis, 0, Reduce::Sum);
    own.into_iter().zip(inputs).map(|(own, input)| reshape(own, input.shape())).collect()
}
