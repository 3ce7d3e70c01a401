use fulgurite_ops_macros::operator;

use super::arrays::rearranged;
use super::parts;
use super::promotion::position;
use super::{at_least_1d, in_range};

/// The slices of `input` along `dim` at the positions `index`, of one dimension or none. A tensor without dimensions
/// has position 0 alone. A position out of range is an error when the program runs.
#[operator(torch = "index_select", complex)]
pub mod index_select {
    fn index_select(input: Tensor, dim: i64, index: Tensor<Integer>) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64, index: &TensorMeta) -> Result<TensorMeta> {
        let dim = normalize_dim(dim, input.rank())?;
        require!(index.rank() <= 1, IndexRank, "index has shape {:?}, expected one dimension at most", index.shape());
        require!(
            input.rank() > 0 || index.len() == 1,
            Rank,
            "input has no dimensions, and index {} positions, expected one",
            index.len()
        );
        let mut shape = input.shape().to_vec();
        if let Some(extent) = shape.get_mut(dim) {
            *extent = index.len();
        }
        Ok(input.with_shape(shape))
    }

    fn decomposition(input: Tensor, dim: i64, index: Tensor) -> Tensor {
        let picked = parts::index_select(at_least_1d(input), position(dim, input.rank()), at_least_1d(index));
        if input.rank() == 0 { parts::reshape(picked, []) } else { picked }
    }

    fn reference(input: &ReferenceTensor, dim: i64, index: &ArrayD<i64>) -> Result<ReferenceTensor> {
        let mut shape = input.shape().to_vec();
        let dim = position(dim, shape.len());
        in_range(index, shape.get(dim).copied().unwrap_or(1))?;
        let positions: Vec<i64> = index.iter().copied().collect();
        if let Some(extent) = shape.get_mut(dim) {
            *extent = positions.len();
        }
        Ok(rearranged(input, &shape, 0.0, |at| {
            let mut from = at.to_vec();
            if let Some(place) = from.get_mut(dim) {
                *place = positions[at[dim]] as usize;
            }
            Some(from)
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 5]), 0, s.integers(0, 4, [7])));
        s.case(with(s.normal([4, 5]), -1, s.integers(0, 5, [2])));
        s.case(with(s.normal([6]), 0, s.integers(0, 6, [1])));
        s.case(with(s.normal([2, 3, 4]), 1, s.integers(0, 3, [5])));
        s.case(with(s.normal([4, 5]), 1, s.integers(0, 5, [0])));
        s.case(with(s.normal([]), 0, s.integers(0, 1, [1])));
        s.case(with(s.normal([4, 5]), 1, s.integers(0, 5, [])));
        s.case(with(s.normal([6]), 0, s.integers(0, 6, [4])));
    }

    fn errors(e: &mut ErrorSamples) {
        for index in [3.0, -1.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 3]), 1, index), "of size 3");
        }
        e.case(Rank, with(e.normal([]), 0, e.integers(0, 1, [2])), "input has no dimensions");
        e.case(IndexRank, with(e.normal([2, 3]), 0, e.integers(0, 2, [1, 2])), "index has shape [1, 2]");
    }
}
