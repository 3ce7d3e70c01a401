use fulgurite_ops_macros::operator;

use super::checks::dimension;
use crate::prims::flip;

/// The sum of all elements up to and including each, along dimension `dim`. Integers give i64 and wrap.
#[operator(prim, torch = "cumsum", autocast = full)]
pub mod cumsum {
    fn cumsum(input: Tensor<Number>, dim: usize) -> Tensor;

    fn meta(input: &TensorMeta, dim: usize) -> Result<TensorMeta> {
        dimension(dim, ("input", input), Code::DimensionRange)?;
        Ok(input.with_dtype(if input.dtype().is_integer() { DType::I64 } else { input.dtype() }))
    }

    fn flops(input: &TensorMeta) -> u64 {
        input.len() as u64
    }

    fn grad(input: Tensor, dim: usize) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (cumsum(input, dim), move |d_out: Tensor| Grads { input: flip(cumsum(flip(d_out, [dim]), dim), [dim]) })
    }

    fn reference(input: &ReferenceTensor, dim: usize) -> ReferenceTensor {
        let axis = ndarray::Axis(dim);
        if input.dtype().is_floating() {
            let mut values = input.floats().clone();
            values.accumulate_axis_inplace(axis, |before, value| *value += before);
            values.into()
        } else {
            let mut values = input.integers().clone();
            values.accumulate_axis_inplace(axis, |before, value| *value = value.wrapping_add(*before));
            values.into()
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 0));
        s.case(with(s.normal([1]), 0));
        s.case(with(s.normal([4, 6]), 0));
        s.case(with(s.normal([4, 6]), 1));
        s.case(with(s.normal([3, 2, 5]), 1));
        s.case(with(s.normal([0, 3]), 1));
        s.case(with(s.normal([3, 0]), 1));
        s.case(with(s.normal([5, 1030]), 1));
        // More than a block has in one round.
        s.case(with(s.normal([3, 4100]), 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DimensionRange, with(e.normal([2]), 1), "dim is 1");
    }
}
