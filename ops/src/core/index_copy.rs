use fulgurite_ops_macros::operator;

use super::promotion::position;
use super::{at_least_1d, in_range};
use crate::prims;
use crate::prims::checks::same_dtype;

/// `input` with the parts along `dim` that `index` names replaced by those of `source`: for `dim = 0`
/// `out[index[i]] = source[i]`. Of several for one place the last is kept. A position out of range is an error when the
/// program runs. Over a donated `input` that nothing reads later, the parts are written in place.
#[operator(torch = "index_copy", autocast = widest)]
pub mod index_copy {
    fn index_copy(input: Tensor, dim: i64, index: Tensor<Integer>, source: Tensor) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64, index: &TensorMeta, source: &TensorMeta) -> Result<TensorMeta> {
        let dim = normalize_dim(dim, input.rank())?;
        require!(index.rank() <= 1, IndexRank, "index has shape {:?}, expected one dimension at most", index.shape());
        let one = |shape: &[usize]| if shape.is_empty() { vec![1] } else { shape.to_vec() };
        let mut expected = one(input.shape());
        expected[dim] = index.len();
        require!(
            one(source.shape()) == expected,
            SourceShape,
            "source has shape {:?}, expected {expected:?}: input's, with a part for each index",
            source.shape()
        );
        same_dtype(("input", input), ("source", source), Code::SameDType)?;
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, dim: i64, index: Tensor, source: Tensor) -> Tensor {
        let (scalar, dim) = (input.shape().is_empty(), position(dim, input.rank()));
        let [input, index, source] = [input, index, source].map(at_least_1d);
        // The same position for all elements of a part.
        let places = prims::broadcast_in_dim(index, source.shape(), [dim]);
        let out = prims::scatter(input, dim, places, source);
        if scalar { prims::reshape(out, []) } else { out }
    }

    fn reference(Args { input, dim, index, source }: Args<&ReferenceTensor>) -> Result<ReferenceTensor> {
        let dim = position(dim, input.shape().len());
        // Of parts without elements nothing is written, wherever.
        if source.shape().contains(&0) {
            return Ok(input.clone());
        }
        in_range(index, input.shape().get(dim).copied().unwrap_or(1))?;
        let places: Vec<i64> = index.iter().copied().collect();
        Ok(prims::support::replaced(input, source, |at| {
            let mut to = at.to_vec();
            if input.shape().is_empty() {
                return Vec::new();
            }
            to[dim] = places[to[dim]] as usize;
            to
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 0, s.values([3], [5.0, 0.0, 2.0]).cast(DType::I64), s.normal([3])));
        s.case(with(s.normal([4, 6]), -1, s.values([2], [4.0, 1.0]).cast(DType::I32), s.normal([4, 2])));
        // As many rows as columns: another `dim` fits as well and gives another result.
        s.case(with(s.normal([3, 3]), 1, s.values([3], [2.0, 0.0, 1.0]).cast(DType::I64), s.normal([3, 3])));
        // A cache of keys: batch, heads, positions, width.
        let positions = s.values([3], [4.0, 5.0, 6.0]).cast(DType::I64);
        s.case(with(s.normal([2, 3, 9, 4]), 2, positions, s.normal([2, 3, 3, 4])));
        s.case(with(s.normal([]), 0, s.integers(0, 1, [1]), s.normal([])));
        s.case(with(s.normal([4]), 0, s.integers(0, 4, []), s.normal([1])));
        s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [0]), s.normal([0, 6])));
        s.case(with(s.normal([4, 0]), 0, s.values([1], [7.0]).cast(DType::I64), s.normal([1, 0])));
        // More parts than are compared one by one, several of them for one place.
        s.case(with(s.normal([50, 6]), 0, s.integers(0, 50, [90]), s.normal([90, 6])));
        s.case(with(s.normal([2, 3, 140, 4]), 2, s.integers(0, 140, [70]), s.normal([2, 3, 70, 4])));
    }

    fn errors(e: &mut ErrorSamples) {
        let wide = with(e.normal([2, 3]), 1, e.integers(0, 2, [2, 3]), e.normal([2, 3]));
        e.case(IndexRank, wide, "index has shape [2, 3]");
        let short = with(e.normal([2, 3]), 0, e.integers(0, 2, [4]), e.normal([3, 3]));
        e.case(SourceShape, short, "source has shape [3, 3], expected [4, 3]");
        for index in [3.0, -1.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 3]), 1, index, e.normal([2, 2])), "of size 3");
        }
        let other = with(e.normal([2]), 0, e.integers(0, 2, [2]), e.of(DType::I32, [2]));
        e.case(SameDType, other, "source is i32");
    }
}
