use fulgurite_ops_macros::operator;

use super::arrays::reshaped;
use super::promotion::{accumulating, cast, position};
use super::{at_least_1d, in_range};
use crate::prims;
use crate::prims::checks::same_dtype;

/// `input` with `src[i][j]` added at `[index[i][j]][j]` for `dim = 0`, likewise for other dimensions, in row-major
/// order of `index`. f16 and bf16 are added in f32; of booleans the result is whether one of them holds. A tensor
/// without dimensions counts as one of a single element.
#[operator(torch = "scatter_add", autocast = widest)]
pub mod scatter_add {
    fn scatter_add(input: Tensor, dim: i64, index: Tensor<Integer>, src: Tensor) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64, index: &TensorMeta, src: &TensorMeta) -> Result<TensorMeta> {
        let dim = normalize_dim(dim, input.rank())?;
        let one = |shape: &[usize]| if shape.is_empty() { vec![1] } else { shape.to_vec() };
        let [to, at, from] = [input, index, src].map(|tensor| one(tensor.shape()));
        let fits = at.len() == to.len()
            && from.len() == to.len()
            && (0..to.len()).all(|i| at[i] <= from[i] && (i == dim || at[i] <= to[i]));
        require!(
            fits,
            IndexShape,
            "index has shape {:?}, expected no extent above those of src, {:?}, and of input, {:?}, but in dimension \
             {dim}",
            index.shape(),
            src.shape(),
            input.shape()
        );
        same_dtype(("input", input), ("src", src), Code::SameDType)?;
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, dim: i64, index: Tensor, src: Tensor) -> Tensor {
        let (shape, place) = (input.shape(), position(dim, input.rank()));
        let [input, index, src] = [input, index, src].map(at_least_1d);
        let (dtype, extents) = (input.dtype(), index.shape());
        let zeros = vec![0; extents.len()];
        let used = match *src.shape() == *extents {
            true => src,
            false => prims::slice(src, zeros, &*extents, vec![1; extents.len()]),
        };
        let wide = |tensor: Tensor| match tensor.dtype() {
            DType::Bool => cast(tensor, DType::I64),
            _ => accumulating(tensor),
        };
        let sum = prims::scatter_add(wide(input), place, index, wide(used));
        let sum = match dtype {
            DType::Bool => prims::ne(sum, 0),
            _ => cast(sum, dtype),
        };
        if shape.is_empty() { prims::reshape(sum, []) } else { sum }
    }

    fn reference(input: &ArrayD<f64>, dim: i64, index: &ArrayD<i64>, src: &ArrayD<f64>) -> Result<ArrayD<f64>> {
        let dim = position(dim, input.ndim());
        in_range(index, input.shape().get(dim).copied().unwrap_or(1))?;
        let one = |array: &ArrayD<f64>| if array.ndim() == 0 { reshaped(array, &[1]) } else { array.clone() };
        let (mut out, src) = (one(input), one(src));
        for (at, target) in index.indexed_iter() {
            let mut to = ndarray::Dimension::slice(&at).to_vec();
            to.resize(out.ndim(), 0);
            let from = to.clone();
            to[dim] = *target as usize;
            out[to.as_slice()] += src[from.as_slice()];
        }
        Ok(reshaped(&out, input.shape()))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 5]), 0, s.integers(0, 4, [3, 5]), s.normal([3, 5])));
        s.case(with(s.normal([4, 5]), -1, s.integers(0, 5, [2, 7]), s.normal([3, 8])));
        s.case(with(s.normal([6]), 0, s.integers(0, 2, [9]), s.normal([9])));
        s.case(with(s.normal([]), 0, s.integers(0, 1, []), s.normal([])));
        s.case(with(s.normal([4, 5]), 1, s.integers(0, 5, [0, 2]), s.normal([3, 2])));
        s.case(with(s.normal([]), 0, s.integers(0, 1, [3]), s.normal([4])));
        s.case(with(s.normal([4]), 0, s.integers(0, 4, []), s.normal([])));
    }

    fn errors(e: &mut ErrorSamples) {
        let index = e.integers(0, 2, [2, 3]);
        e.case(IndexShape, with(e.normal([2, 3]), 0, index, e.normal([1, 3])), "index has shape [2, 3]");
        let index = e.integers(0, 2, [2, 3]);
        e.case(IndexShape, with(e.normal([2, 3]), 0, index, e.normal([6])), "index has shape [2, 3]");
        for (index, src) in [(&[4][..], &[2, 3][..]), (&[4], &[4]), (&[2, 4], &[2, 4])] {
            let call = with(e.normal([2, 3]), 0, e.integers(0, 2, index), e.normal(src));
            e.case(IndexShape, call, "expected no extent above those of src");
        }
        let beyond = with(e.normal([4]), 0, e.integers(0, 2, [2]), e.normal([]));
        e.case(IndexShape, beyond, "index has shape [2]");
        for index in [3.0, -1.0] {
            let index = e.values([1, 2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 3]), 1, index, e.normal([1, 2])), "of size 3");
        }
        let index = e.integers(0, 2, [2]);
        e.case(SameDType, with(e.normal([2]), 0, index, e.of(DType::I32, [2])), "src is i32");
    }
}
