use fulgurite_ops_macros::operator;

use super::checks::dimension;
use super::support::{with_extent, zeros};
use crate::prims::scatter_add;

/// The `k` largest elements along dimension `dim` (the smallest if not `largest`), best first, and their positions. Of
/// equal elements the earlier comes first; NaN is larger than every number.
#[operator(prim, exact, torch = "topk", waive(d_indices = "positions have no gradient"))]
pub mod topk {
    #[results(values, indices)]
    fn topk(input: Tensor<Number>, k: usize, dim: usize, largest: bool) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta, k: usize, dim: usize) -> Result<(TensorMeta, TensorMeta)> {
        dimension(dim, ("input", input), Code::DimensionRange)?;
        require!(
            k <= input.shape()[dim],
            Count,
            "k is {k}, expected at most {}, the extent of dimension {dim}",
            input.shape()[dim]
        );
        let values = input.with_shape(with_extent(input.shape(), dim, k));
        let indices = values.with_dtype(DType::I64);
        Ok((values, indices))
    }

    #[allow(clippy::type_complexity)]
    fn grad(
        arguments: Arguments,
        input: Tensor,
        dim: usize,
    ) -> ((Tensor, Tensor), impl FnOnce((Tensor, Option<Tensor>)) -> Grads) {
        let (values, indices) = call(arguments);
        ((values, indices), move |(d_values, _d_indices): (Tensor, Option<Tensor>)| Grads {
            input: scatter_add(zeros(&input.meta()), dim, indices, d_values),
        })
    }

    fn reference(input: &ReferenceTensor, k: usize, dim: usize, largest: bool) -> (ReferenceTensor, ReferenceTensor) {
        let shape = IxDyn(&with_extent(input.shape(), dim, k));
        let (mut values, mut indices) = (ArrayD::zeros(shape.clone()), ArrayD::zeros(shape.clone()));
        let mut whole = ArrayD::<i64>::zeros(shape);
        let axis = ndarray::Axis(dim);
        let lanes = input.floats().lanes(axis).into_iter().zip(input.integers().lanes(axis));
        let targets = values.lanes_mut(axis).into_iter().zip(whole.lanes_mut(axis)).zip(indices.lanes_mut(axis));
        for ((floats, integers), ((mut values, mut whole), mut indices)) in lanes.zip(targets) {
            let mut order: Vec<usize> = (0..floats.len()).collect();
            let ascending = |a: &usize, b: &usize| {
                let nan = floats[*a].is_nan().cmp(&floats[*b].is_nan());
                nan.then(integers_or_floats(input, (integers[*a], integers[*b]), (floats[*a], floats[*b])))
            };
            order.sort_by(|a, b| if largest { ascending(b, a) } else { ascending(a, b) });
            for (rank, from) in order.into_iter().take(k).enumerate() {
                values[rank] = floats[from];
                whole[rank] = integers[from];
                indices[rank] = from as i64;
            }
        }
        let values = match input.dtype().is_floating() {
            true => ReferenceTensor::from_floats(input.dtype(), values),
            false => ReferenceTensor::from_integers(input.dtype(), whole),
        };
        (values, indices.into())
    }

    fn integers_or_floats(input: &ReferenceTensor, integers: (i64, i64), floats: (f64, f64)) -> std::cmp::Ordering {
        match input.dtype().is_floating() {
            true => floats.0.partial_cmp(&floats.1).unwrap_or(std::cmp::Ordering::Equal),
            false => integers.0.cmp(&integers.1),
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 3, 0, true));
        s.case(with(s.normal([7]), 7, 0, false));
        s.case(with(s.normal([4, 6]), 2, 1, true));
        s.case(with(s.normal([4, 6]), 1, 0, false));
        s.case(with(s.normal([3, 1, 5]), 4, 2, true));
        s.case(with(s.normal([4, 6]), 0, 1, true));
        s.case(with(s.normal([0, 3]), 2, 1, true));
        s.case(with(s.normal([5, 1030]), 9, 1, true));
        // More than kernels hold in one place.
        let near = "neighbours in the order are nearer to each other than a step of differences";
        s.case(with(s.normal([1030]), 600, 0, true)).forward_only(near);
        s.case(with(s.normal([3, 1100]), 1025, 1, false)).forward_only(near);
        s.case(with(s.normal([600, 3]), 513, 0, true)).forward_only(near);
        s.case(with(s.values([2, 5], [1.0, 3.0, 3.0, 2.0, 3.0]), 4, 1, true))
            .forward_only("ties")
            .gradients([&[0.0, 1.0, 2.0, 4.0, 3.0, 0.0, 5.0, 6.0, 8.0, 7.0]]);
        if s.dtype().is_floating() {
            let special = [1.0, f64::NAN, f64::INFINITY, f64::NAN, f64::NEG_INFINITY, 0.0];
            s.case(with(s.values([6], special), 5, 0, true)).forward_only("special values");
            s.case(with(s.values([6], special), 5, 0, false)).forward_only("special values");
        }
        // The ends of integers, and where unsigned ones have another sign. The largest i64 is no f64.
        if let Some((least, largest)) = s.dtype().limits().filter(|_| s.dtype() != DType::I64) {
            let ends = [largest / 2, largest, least, largest / 2 + 1, 1].map(|x| x as f64);
            s.case(with(s.values([5], ends), 5, 0, true));
            s.case(with(s.values([5], ends), 4, 0, false));
        }
        // More than a block puts in order by itself; lines that several blocks share; many lines of which a part is
        // wanted.
        s.case(with(s.normal([2, 1500]), 700, 1, true)).forward_only("large");
        s.case(with(s.normal([1500, 2]), 1500, 0, false)).forward_only("large");
        s.case(with(s.normal([1, 50_000]), 20, 1, true)).forward_only("large");
        s.case(with(s.normal([66, 4900]), 600, 1, false)).forward_only("large");
        s.case(with(s.normal([2, 40_000]), 20, 1, true)).forward_only("large");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DimensionRange, with(e.normal([2]), 1, 1, true), "dim is 1");
        e.case(Count, with(e.normal([2]), 3, 0, true), "k is 3, expected at most 2");
    }
}
