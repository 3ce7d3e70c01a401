use fulgurite_ops_macros::operator;

use super::arrays::{permuted, remade};
use super::parts;
use super::promotion::position;

/// Dimensions in another order: dimension `i` of the result is dimension `dims[i]` of `input`.
#[operator(torch = "permute", complex)]
pub mod permute {
    fn permute(input: Tensor, dims: Vec<i64>) -> Tensor;

    fn meta(input: &TensorMeta, dims: &[i64]) -> Result<TensorMeta> {
        let order = super::positions(dims, input.rank());
        require!(
            order.is_some(),
            Permutation,
            "dims is {dims:?}, expected every dimension of a tensor of rank {} once",
            input.rank()
        );
        Ok(input.with_shape(order.unwrap_or_default().iter().map(|dim| input.shape()[*dim]).collect::<Vec<_>>()))
    }

    fn decomposition(input: Tensor, dims: &[i64]) -> Tensor {
        parts::permute(input, super::positions(dims, input.rank()).unwrap_or_default())
    }

    fn reference(input: &ReferenceTensor, dims: &[i64]) -> ReferenceTensor {
        let rank = dims.len() as i64;
        let order: Vec<usize> = dims.iter().map(|dim| dim.rem_euclid(rank) as usize).collect();
        remade(input, |a| permuted(a, &order), |a| permuted(a, &order))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 4]), [2, 0, 1]));
        s.case(with(s.normal([2, 3, 4]), [0, -1, 1]));
        s.case(with(s.normal([5]), [0]));
        s.case(with(s.normal([]), []));
        s.case(with(s.normal([0, 3]), [1, 0]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Permutation, with(e.normal([2, 3]), [0]), "every dimension of a tensor of rank 2 once");
        e.case(Permutation, with(e.normal([2, 3]), [0, 0]), "every dimension of a tensor of rank 2 once");
        e.case(Permutation, with(e.normal([2, 3]), [0, 2]), "every dimension of a tensor of rank 2 once");
    }
}

/// Two dimensions exchanged.
#[operator(torch = "transpose", complex)]
pub mod transpose {
    fn transpose(input: Tensor, dim0: i64, dim1: i64) -> Tensor;

    fn meta(input: &TensorMeta, dim0: i64, dim1: i64) -> Result<TensorMeta> {
        let (first, second) = (normalize_dim(dim0, input.rank())?, normalize_dim(dim1, input.rank())?);
        let mut shape = input.shape().to_vec();
        if !shape.is_empty() {
            shape.swap(first, second);
        }
        Ok(input.with_shape(shape))
    }

    fn decomposition(input: Tensor, dim0: i64, dim1: i64) -> Tensor {
        let rank = input.rank();
        let mut dims: Vec<usize> = (0..rank).collect();
        let (first, second) = (position(dim0, rank), position(dim1, rank));
        if first == second {
            return input;
        }
        dims.swap(first, second);
        parts::permute(input, dims)
    }

    fn reference(input: &ReferenceTensor, dim0: i64, dim1: i64) -> ReferenceTensor {
        let rank = input.shape().len() as i64;
        let mut order: Vec<usize> = (0..rank as usize).collect();
        if rank > 0 {
            order.swap(dim0.rem_euclid(rank) as usize, dim1.rem_euclid(rank) as usize);
        }
        remade(input, |a| permuted(a, &order), |a| permuted(a, &order))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 4]), 0, 2));
        s.case(with(s.normal([2, 3, 4]), -1, -2));
        s.case(with(s.normal([2, 3]), 1, 1));
        s.case(with(s.normal([]), 0, -1));
        s.case(with(s.normal([0, 3]), 0, 1));
    }
}

fn positions(dims: &[i64], rank: usize) -> Option<Vec<usize>> {
    let mut seen = vec![false; rank];
    let order: Vec<usize> = dims
        .iter()
        .map(|dim| fulgurite_runtime::meta::normalize_dim(*dim, rank).ok().filter(|dim| *dim < rank))
        .collect::<Option<_>>()?;
    order.iter().for_each(|dim| seen[*dim] = true);
    (order.len() == rank && seen.into_iter().all(|seen| seen)).then_some(order)
}
