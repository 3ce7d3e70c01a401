use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use super::arrays::rearranged;
use super::parts;
use super::promotion::position;

/// `out[i][j] = input[index[i][j]][j]` for `dim = 0`, likewise for other dimensions. A tensor without dimensions counts
/// as one of a single element. An index out of range is an error when the program runs.
#[operator(torch = "gather", complex)]
pub mod gather {
    fn gather(input: Tensor, dim: i64, index: Tensor<Integer>) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64, index: &TensorMeta) -> Result<TensorMeta> {
        let dim = normalize_dim(dim, input.rank())?;
        let fits = index.rank().max(1) == input.rank().max(1)
            && (0..input.rank().min(index.rank())).all(|i| i == dim || index.shape()[i] <= input.shape()[i]);
        require!(
            fits,
            IndexShape,
            "index has shape {:?}, expected the rank of input and no extent above {:?} but in dimension {dim}",
            index.shape(),
            input.shape()
        );
        Ok(input.with_shape(index.shape()))
    }

    fn decomposition(input: Tensor, dim: i64, index: Tensor) -> Tensor {
        let picked = parts::gather(at_least_1d(input), position(dim, input.rank()), at_least_1d(index));
        if index.rank() == 0 { parts::reshape(picked, []) } else { picked }
    }

    fn reference(input: &ReferenceTensor, dim: i64, index: &ArrayD<i64>) -> Result<ReferenceTensor> {
        let dim = position(dim, input.shape().len());
        super::in_range(index, input.shape().get(dim).copied().unwrap_or(1))?;
        Ok(rearranged(input, index.shape(), 0.0, |at| {
            // Where one of both has no dimensions, the other has one at most.
            let mut from = if at.is_empty() { vec![0; input.shape().len()] } else { at.to_vec() };
            from.truncate(input.shape().len());
            if let Some(place) = from.get_mut(dim) {
                *place = index[at] as usize;
            }
            Some(from)
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 5]), 0, s.integers(0, 4, [3, 5])));
        s.case(with(s.normal([4, 5]), -1, s.integers(0, 5, [2, 7])));
        s.case(with(s.normal([6]), 0, s.integers(0, 6, [9])));
        s.case(with(s.normal([]), 0, s.integers(0, 1, [])));
        s.case(with(s.normal([4, 5]), 1, s.integers(0, 5, [0, 2])));
        s.case(with(s.normal([2, 3, 4]), 1, s.integers(0, 3, [2, 2, 4])));
        s.case(with(s.normal([]), -1, s.integers(0, 1, [3])));
        s.case(with(s.normal([5]), 0, s.integers(0, 5, [])));
    }

    fn errors(e: &mut ErrorSamples) {
        for index in [3.0, -1.0] {
            let index = e.values([1, 2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 3]), 1, index), "of size 3");
        }
        e.case(IndexShape, with(e.normal([2, 3]), 0, e.integers(0, 2, [4])), "index has shape [4]");
        e.case(IndexShape, with(e.normal([2, 3]), 0, e.integers(0, 2, [4, 4])), "no extent above [2, 3]");
        e.case(IndexShape, with(e.normal([2, 3]), 1, e.integers(0, 2, [3, 3])), "no extent above [2, 3]");
    }
}

/// `tensor`, or its one element along a dimension.
#[track_caller]
pub(crate) fn at_least_1d(tensor: Tensor) -> Tensor {
    if tensor.rank() == 0 { parts::reshape(tensor, [1]) } else { tensor }
}

/// For references: fails unless every index is below `extent`.
pub(crate) fn in_range(
    index: &fulgurite_runtime::rules::ArrayD<i64>,
    extent: usize,
) -> Result<(), fulgurite_runtime::Failure> {
    match index.iter().find(|i| usize::try_from(**i).map_or(true, |i| i >= extent)) {
        Some(i) => Err(fulgurite_runtime::Failure::new(
            "IndexOutOfRange",
            format!("index holds {i}, which is out of range for a dimension of size {extent}"),
        )),
        None => Ok(()),
    }
}
