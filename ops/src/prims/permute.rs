use fulgurite_ops_macros::operator;

use super::checks::distinct;
use super::support::rearranged;

/// The dimensions in another order: dimension `i` of the result is dimension `dims[i]` of `input`.
#[operator(prim, torch = "permute", overload = Permute)]
pub mod permute {
    fn permute(input: Tensor, dims: Vec<usize>) -> Tensor;

    fn meta(input: &TensorMeta, dims: &[usize]) -> Result<TensorMeta> {
        require!(
            dims.len() == input.rank() && distinct(dims) && dims.iter().all(|dim| *dim < input.rank()),
            Permutation,
            "dims is {dims:?}, expected each of the {} dimensions of input once",
            input.rank()
        );
        Ok(input.with_shape(dims.iter().map(|dim| input.shape()[*dim]).collect::<Vec<_>>()))
    }

    fn view(input: &Strided, dims: &[usize]) -> Option<View> {
        Some(View { strides: dims.iter().map(|dim| input.strides[*dim]).collect(), offset: 0 })
    }

    fn grad(input: Tensor, dims: &[usize]) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let mut inverse = vec![0; dims.len()];
        dims.iter().enumerate().for_each(|(i, dim)| {
            if let Some(at) = inverse.get_mut(*dim) {
                *at = i;
            }
        });
        (permute(input, dims), move |d_out: Tensor| Grads { input: permute(d_out, inverse) })
    }

    fn reference(input: &ReferenceTensor, dims: &[usize]) -> ReferenceTensor {
        let shape: Vec<usize> = dims.iter().map(|dim| input.shape()[*dim]).collect();
        rearranged(input, &shape, Scalar::Int(0), |index| {
            let mut source = vec![0; dims.len()];
            index.iter().zip(dims).for_each(|(i, dim)| source[*dim] = *i);
            Some(source)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), []));
        s.case(with(s.normal([7]), [0]));
        s.case(with(s.normal([4, 6]), [1, 0]));
        s.case(with(s.normal([2, 3, 5]), [2, 0, 1]));
        s.case(with(s.normal([2, 3, 5]), [0, 1, 2]));
        s.case(with(s.normal([0, 3]), [1, 0]));
        s.case(with(s.normal([67, 65]), [1, 0]));
        s.case(with(s.normal([3, 33, 2, 29]), [0, 2, 1, 3]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Permutation, with(e.normal([2, 3]), [0, 0]), "dims is [0, 0]");
        e.case(Permutation, with(e.normal([2, 3]), [0]), "dims is [0]");
        e.case(Permutation, with(e.normal([2, 3]), [0, 2]), "dims is [0, 2]");
    }
}
