use fulgurite_ops_macros::operator;

use super::checks::dimensions;
use super::support::rearranged;

/// The elements of the dimensions `dims` in reverse order.
#[operator(prim, torch = "flip")]
pub mod flip {
    fn flip(input: Tensor, dims: Vec<usize>) -> Tensor;

    fn meta(input: &TensorMeta, dims: &[usize]) -> Result<TensorMeta> {
        dimensions(dims, input, [Code::DimensionRange, Code::DimensionRepeated])?;
        Ok(input.clone())
    }

    fn view(input: &Strided, dims: &[usize]) -> Option<View> {
        let mut view = View { strides: input.strides.clone(), offset: 0 };
        if !input.meta.is_empty() {
            for dim in dims {
                view.offset += (input.meta.shape()[*dim] as isize - 1) * input.strides[*dim];
                view.strides[*dim] = -input.strides[*dim];
            }
        }
        Some(view)
    }

    fn grad(input: Tensor, dims: &[usize]) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let dims = dims.to_vec();
        (flip(input, &dims), move |d_out: Tensor| Grads { input: flip(d_out, dims) })
    }

    fn reference(input: &ReferenceTensor, dims: &[usize]) -> ReferenceTensor {
        rearranged(input, input.shape(), Scalar::Int(0), |index| {
            let turned = |i: usize| if dims.contains(&i) { input.shape()[i] - 1 - index[i] } else { index[i] };
            Some((0..index.len()).map(turned).collect())
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), []));
        s.case(with(s.normal([7]), [0]));
        s.case(with(s.normal([4, 6]), [1]));
        s.case(with(s.normal([2, 3, 5]), [2, 0]));
        s.case(with(s.normal([0, 3]), [0, 1]));
        s.case(with(s.normal([67, 65]), [0, 1]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DimensionRange, with(e.normal([2, 3]), [2]), "dims is [2]");
        e.case(DimensionRepeated, with(e.normal([2, 3]), [1, 1]), "dims is [1, 1]");
    }
}
