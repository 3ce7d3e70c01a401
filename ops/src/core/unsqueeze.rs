use fulgurite_ops_macros::operator;

use super::arrays::{remade, reshaped};
use super::parts;
use super::promotion::position;

/// A new dimension of extent one at position `dim` of the result.
#[operator(torch = "unsqueeze", complex)]
pub mod unsqueeze {
    fn unsqueeze(input: Tensor, dim: i64) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64) -> Result<TensorMeta> {
        let mut shape = input.shape().to_vec();
        shape.insert(normalize_dim(dim, input.rank() + 1)?, 1);
        Ok(input.with_shape(shape))
    }

    fn decomposition(input: Tensor, dim: i64) -> Tensor {
        let mut shape = input.shape().to_vec();
        shape.insert(position(dim, input.rank() + 1), 1);
        parts::reshape(input, shape)
    }

    fn reference(input: &ReferenceTensor, dim: i64) -> ReferenceTensor {
        let mut shape = input.shape().to_vec();
        shape.insert(dim.rem_euclid(shape.len() as i64 + 1) as usize, 1);
        remade(input, |a| reshaped(a, &shape), |a| reshaped(a, &shape))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3]), 0));
        s.case(with(s.normal([2, 3]), -1));
        s.case(with(s.normal([2, 3]), 1));
        s.case(with(s.normal([]), 0));
        s.case(with(s.normal([0]), 1));
    }
}

/// Without the dimensions `dim` where they have extent one; all such dimensions if `dim` is absent.
#[operator(torch = "squeeze", complex)]
pub mod squeeze {
    fn squeeze(input: Tensor, #[default(None)] dim: Option<Vec<i64>>) -> Tensor;

    fn meta(input: &TensorMeta, dim: Option<&[i64]>) -> Result<TensorMeta> {
        for dim in dim.unwrap_or_default() {
            normalize_dim(*dim, input.rank())?;
        }
        Ok(input.with_shape(super::squeezed(input.shape(), dim)))
    }

    fn decomposition(input: Tensor, dim: Option<&[i64]>) -> Tensor {
        let shape = super::squeezed(&input.shape(), dim);
        if shape.len() == input.rank() { input } else { parts::reshape(input, shape) }
    }

    fn reference(input: &ReferenceTensor, dim: Option<&[i64]>) -> ReferenceTensor {
        let rank = input.shape().len();
        let named =
            |i: usize| dim.is_none_or(|dim| dim.contains(&(i as i64)) || dim.contains(&(i as i64 - rank as i64)));
        let kept = input.shape().iter().enumerate().filter(|(i, extent)| **extent != 1 || !named(*i));
        let shape: Vec<usize> = kept.map(|(_, extent)| *extent).collect();
        remade(input, |a| reshaped(a, &shape), |a| reshaped(a, &shape))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([1, 3, 1])));
        s.case(with(s.normal([1, 3, 1])).dim(vec![-1]));
        s.case(with(s.normal([1, 3, 1])).dim(vec![1]));
        s.case(with(s.normal([1, 1])).dim(vec![0, 1]));
        s.case(with(s.normal([])));
        s.case(with(s.normal([0, 1])));
    }
}

fn squeezed(shape: &[usize], dims: Option<&[i64]>) -> Vec<usize> {
    let named: Option<Vec<usize>> = dims.map(|dims| dims.iter().map(|dim| position(*dim, shape.len())).collect());
    let dropped = |i: usize| shape[i] == 1 && named.as_ref().is_none_or(|named| named.contains(&i));
    (0..shape.len()).filter(|i| !dropped(*i)).map(|i| shape[i]).collect()
}
