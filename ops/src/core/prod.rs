use fulgurite_ops_macros::operator;

use super::arrays::reduce;
use super::promotion::{MOST_NAMED, accumulating, cast, keep_dims, position, reduced_shape};
use crate::prims;

/// The product of the elements along `dim` (all dimensions if absent). Integers and booleans are multiplied as i64 and
/// wrap; f16 and bf16 are multiplied in f32. The gradient is right also where elements are zero.
#[operator(torch = "prod", autocast = full)]
pub mod prod {
    fn prod(
        input: Tensor,
        #[default(None)] dim: Option<i64>,
        #[default(false)] keepdim: bool,
        #[default(None)] dtype: Option<DType>,
    ) -> Tensor;

    fn meta(input: &TensorMeta, dim: Option<i64>, keepdim: bool, dtype: Option<DType>) -> Result<TensorMeta> {
        let rank = input.rank();
        let dims = match dim {
            Some(dim) => vec![normalize_dim(dim, rank)?],
            None => (0..rank).collect(),
        };
        require!(
            dim.is_none() || rank <= MOST_NAMED,
            Rank,
            "input has {rank} dimensions, expected at most {MOST_NAMED} where one is named"
        );
        let dtype = result(input.dtype(), dtype);
        require!(dtype != DType::Bool, ProductType, "a product has no dtype bool");
        Ok(input.with_shape(reduced_shape(input.shape(), &dims, keepdim)).with_dtype(dtype))
    }

    fn decomposition(input: Tensor, dim: Option<i64>, keepdim: bool, dtype: Option<DType>) -> Tensor {
        let dtype = result(input.dtype(), dtype);
        let rank = input.rank();
        let dims: Vec<usize> = match dim {
            _ if rank == 0 => Vec::new(),
            Some(dim) => vec![position(dim, rank)],
            None => (0..rank).collect(),
        };
        let wide = accumulating(cast(input, dtype));
        let product = if dims.is_empty() { wide } else { prims::prod(wide, &dims) };
        keep_dims(cast(product, dtype), &input.shape(), &dims, keepdim)
    }

    fn result(input: DType, dtype: Option<DType>) -> DType {
        dtype.unwrap_or(if input.is_floating() { input } else { DType::I64 })
    }

    fn reference(input: &ReferenceTensor, dim: Option<i64>, keepdim: bool, dtype: Option<DType>) -> ReferenceTensor {
        let dims = dim.map(|dim| vec![dim]);
        let dtype = result(input.dtype(), dtype);
        let whole = input.dtype().is_floating() && !dtype.is_floating();
        let values = if whole { input.floats().mapv(f64::trunc) } else { input.floats().clone() };
        let floats = reduce(&values, dims.as_deref(), keepdim, |row| row.iter().product::<f64>());
        if dtype.is_floating() {
            return floats.into();
        }
        // Products of small integers are exact in f64.
        floats.mapv(|x| x as i64).into()
    }

    fn samples(s: &mut Samples) {
        let near_one = |shape: &[usize]| match s.dtype().is_floating() {
            true => s.uniform(0.5, 1.5, shape),
            false => s.values(shape, [1.0, 2.0, -1.0]),
        };
        let cases = [
            with(near_one(&[4, 8])),
            with(near_one(&[])).dim(-1),
            with(near_one(&[3, 5, 7])).dim(-2).keepdim(true),
            with(near_one(&[0, 3])).dim(0),
            with(near_one(&[2, 3])).keepdim(true),
            with(near_one(&[2, 3])).dtype(DType::F32).dim(1),
            // Rows of no zero, one, two and three.
            with(s.values([4, 3], [1.0, 2.0, 3.0, 0.0, 2.0, 3.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0])).dim(1),
            with(s.values([3], [2.0, 0.0, 3.0])),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([1; 65])).dim(0), "at most 64 where one is named");
        e.case(ProductType, with(e.normal([2])).dtype(DType::Bool), "no dtype bool");
    }
}
