use fulgurite_ops_macros::operator;

use super::in_range;
use super::promotion::{accumulating, cast, position};
use crate::prims;

/// `input` with `src[i][j]` added at `[index[i][j]][j]` for `dim = 0`, likewise for other dimensions, in row-major order of
/// `index`. f16 and bf16 are added in f32.
#[operator(torch = "scatter_add", autocast = widest)]
pub mod scatter_add {
    fn scatter_add(input: Tensor<Number>, dim: i64, index: Tensor<Integer>, src: Tensor<Number>) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64, index: &TensorMeta, src: &TensorMeta) -> Result<TensorMeta> {
        let dim = normalize_dim(dim, input.rank())?;
        let rank = input.rank();
        let fits = index.rank() == rank
            && src.rank() == rank
            && (0..rank).all(|i| index.shape()[i] <= src.shape()[i])
            && (0..rank).all(|i| i == dim || index.shape()[i] <= input.shape()[i]);
        require!(
            fits,
            IndexShape,
            "index has shape {:?}, expected no extent above those of src, {:?}, and of input, {:?}, but in dimension {dim}",
            index.shape(),
            src.shape(),
            input.shape()
        );
        require!(
            input.dtype() == src.dtype(),
            SameDType,
            "input is {}, src is {}, expected equal dtypes",
            input.dtype(),
            src.dtype()
        );
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, dim: i64, index: Tensor, src: Tensor) -> Tensor {
        if input.rank() == 0 {
            return if index.meta().is_empty() { input } else { prims::add(input, src) };
        }
        let (dtype, extents) = (input.dtype(), index.shape());
        let zeros = vec![0; extents.len()];
        let used = match *src.shape() == *extents {
            true => src,
            false => prims::slice(src, zeros, &*extents, vec![1; extents.len()]),
        };
        let wide = accumulating;
        let sum = prims::scatter_add(wide(input), position(dim, input.rank()), index, wide(used));
        cast(sum, dtype)
    }

    fn reference(input: &ArrayD<f64>, dim: i64, index: &ArrayD<i64>, src: &ArrayD<f64>) -> Result<ArrayD<f64>> {
        let dim = position(dim, input.ndim());
        in_range(index, input.shape().get(dim).copied().unwrap_or(1))?;
        let mut out = input.clone();
        for (at, target) in index.indexed_iter() {
            let mut to = ndarray::Dimension::slice(&at).to_vec();
            if let Some(place) = to.get_mut(dim) {
                *place = *target as usize;
            }
            out[to.as_slice()] += src[at];
        }
        Ok(out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 5]), 0, s.integers(0, 4, [3, 5]), s.normal([3, 5])));
        s.case(with(s.normal([4, 5]), -1, s.integers(0, 5, [2, 7]), s.normal([3, 8])));
        s.case(with(s.normal([6]), 0, s.integers(0, 2, [9]), s.normal([9])));
        s.case(with(s.normal([]), 0, s.integers(0, 1, []), s.normal([])));
        s.case(with(s.normal([4, 5]), 1, s.integers(0, 5, [0, 2]), s.normal([3, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        let index = e.integers(0, 2, [2, 3]);
        e.case(IndexShape, with(e.normal([2, 3]), 0, index, e.normal([1, 3])), "index has shape [2, 3]");
        let index = e.integers(0, 2, [2]);
        e.case(SameDType, with(e.normal([2]), 0, index, e.of(DType::I32, [2])), "src is i32");
    }
}
