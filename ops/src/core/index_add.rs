use fulgurite_ops_macros::operator;

use super::arrays::reshaped;
use super::promotion::{accumulating, alpha_fits, cast, number, position};
use super::{at_least_1d, in_range};
use crate::prims;
use crate::prims::checks::same_dtype;

/// `input` with `alpha` times the parts of `source` along `dim` added to those that `index` names, in order: for
/// `dim = 0` `out[index[i]] += alpha · source[i]`. f16 and bf16 are added in f32; of booleans the result is whether one
/// of them holds. A position out of range is an error when the program runs.
#[operator(torch = "index_add", autocast = widest)]
pub mod index_add {
    fn index_add(
        input: Tensor,
        dim: i64,
        index: Tensor<Integer>,
        source: Tensor,
        #[default(1i64)] alpha: Scalar,
    ) -> Tensor;

    fn meta(Args { input, dim, index, source, alpha }: Args<&TensorMeta>) -> Result<TensorMeta> {
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
        alpha_fits(alpha, input.dtype(), Code::AlphaType.name())?;
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, dim: i64, index: Tensor, source: Tensor, alpha: Scalar) -> Tensor {
        let (shape, dtype, place) = (input.shape(), input.dtype(), position(dim, input.rank()));
        let wide = |tensor: Tensor| match tensor.dtype() {
            DType::Bool => cast(tensor, DType::I64),
            _ => accumulating(tensor),
        };
        let [input, index, source] = [input, index, source].map(at_least_1d);
        let mut source = wide(source);
        if alpha.to_f64() != 1.0 {
            source = prims::mul(source, number(alpha, source.dtype()));
        }
        let sum = prims::index_add(wide(input), place, index, source);
        let sum = match dtype {
            DType::Bool => prims::ne(sum, 0),
            _ => cast(sum, dtype),
        };
        if shape.is_empty() { prims::reshape(sum, []) } else { sum }
    }

    fn reference(Args { input, dim, index, source, alpha }: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let input = input.floats();
        let source = source.floats();
        let one = |array: &ArrayD<f64>| if array.ndim() == 0 { reshaped(array, &[1]) } else { array.clone() };
        let dim = position(dim, input.ndim());
        let (mut out, source) = (one(input), one(source));
        in_range(index, out.shape()[dim])?;
        let places: Vec<i64> = index.iter().copied().collect();
        for (at, value) in source.indexed_iter() {
            let mut to = ndarray::Dimension::slice(&at).to_vec();
            to[dim] = places[to[dim]] as usize;
            out[to.as_slice()] += alpha.to_f64() * value;
        }
        Ok(reshaped(&out, input.shape()))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7]), 0, s.integers(0, 7, [12]), s.normal([12])));
        s.case(with(s.normal([4, 6]), -1, s.integers(0, 6, [5]).cast(DType::I32), s.normal([4, 5])));
        // As many rows as columns: another `dim` fits as well and gives another result.
        s.case(with(s.normal([3, 3]), 1, s.integers(0, 3, [3]), s.normal([3, 3])));
        s.case(with(s.normal([3, 2, 5]), 1, s.integers(0, 2, [3]), s.normal([3, 3, 5])));
        s.case(with(s.normal([]), 0, s.integers(0, 1, [1]), s.normal([])));
        s.case(with(s.normal([4]), 0, s.integers(0, 4, []), s.normal([1])));
        s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [0]), s.normal([0, 6])));
        if s.dtype() != DType::Bool {
            s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [9]), s.normal([9, 6])).alpha(2i64));
        }
        if s.dtype().is_floating() {
            s.case(with(s.normal([5, 3]), 0, s.integers(0, 5, [4]), s.normal([4, 3])).alpha(-0.5));
        }
        s.case(with(s.normal([]), 0, s.integers(0, 1, [1]), s.normal([1])));
    }

    fn errors(e: &mut ErrorSamples) {
        let wide = with(e.normal([2, 3]), 1, e.integers(0, 2, [2, 3]), e.normal([2, 3]));
        e.case(IndexRank, wide, "index has shape [2, 3]");
        let short = with(e.normal([2, 3]), 0, e.integers(0, 2, [4]), e.normal([3, 3]));
        e.case(SourceShape, short, "source has shape [3, 3], expected [4, 3]");
        for index in [3.0, -1.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            let call = with(e.normal([2, 3]), 1, index, e.normal([2, 2]));
            e.when_run("IndexOutOfRange", call, "of size 3");
        }
        let other = with(e.normal([2]), 0, e.integers(0, 2, [2]), e.of(DType::I32, [2]));
        e.case(SameDType, other, "source is i32");
        let whole = with(e.of(DType::I64, [2]), 0, e.integers(0, 2, [2]), e.of(DType::I64, [2])).alpha(0.5);
        e.case(AlphaType, whole, "alpha is a floating-point number");
    }
}
