use fulgurite_ops_macros::operator;

use super::arrays::{joined, reduce};
use super::parts;
use super::promotion::{MOST_NAMED, accumulating, cast, keep_dims, position, reduced_shape};

/// The product of the elements along `dim` (all dimensions if absent). Integers and booleans are multiplied as i64 and
/// wrap; a product in bool says whether no element is zero; f16 and bf16 are multiplied in f32. The gradient is right
/// also where elements are zero.
#[operator(torch = "prod", autocast = full, complex)]
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
        require!(
            dtype.is_complex() || !input.dtype().is_complex(),
            RealProduct,
            "a product of {} has no dtype {dtype}; multiply `real(input)`",
            input.dtype()
        );
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
        let wide = match dtype {
            DType::Bool => cast(cast(input, dtype), DType::I64),
            _ => accumulating(cast(input, dtype)),
        };
        let product = if dims.is_empty() { wide } else { parts::prod(wide, &dims) };
        keep_dims(cast(product, dtype), &input.shape(), &dims, keepdim)
    }

    fn result(input: DType, dtype: Option<DType>) -> DType {
        dtype.unwrap_or(if input.is_differentiable() { input } else { DType::I64 })
    }

    fn reference(input: &ReferenceTensor, dim: Option<i64>, keepdim: bool, dtype: Option<DType>) -> ReferenceTensor {
        let dims = dim.map(|dim| vec![dim]);
        let dtype = result(input.dtype(), dtype);
        if dtype.is_complex() {
            // Products in polar form: of magnitudes, and sums of angles.
            let numbers = input.complex();
            let size = reduce(&numbers.mapv(|z| z.re.hypot(z.im)), dims.as_deref(), keepdim, |row| {
                row.iter().product::<f64>()
            });
            let angle =
                reduce(&numbers.mapv(|z| z.im.atan2(z.re)), dims.as_deref(), keepdim, |row| row.iter().sum::<f64>());
            return joined(&(&size * &angle.mapv(f64::cos)), &(&size * &angle.mapv(f64::sin)));
        }
        let whole = input.dtype().is_floating() && !dtype.is_floating() && dtype != DType::Bool;
        let values = if whole { input.floats().mapv(f64::trunc) } else { input.floats().clone() };
        let floats = reduce(&values, dims.as_deref(), keepdim, |row| row.iter().product::<f64>());
        if dtype.is_floating() {
            return floats.into();
        }
        if dtype == DType::Bool {
            return floats.mapv(|x| x != 0.0).into();
        }
        // Products of small integers are exact in f64.
        floats.mapv(|x| x as i64).into()
    }

    fn samples(s: &mut Samples) {
        let near_one = |shape: &[usize]| match s.dtype().is_differentiable() {
            true => s.uniform(0.5, 1.5, shape),
            false => s.values(shape, [1.0, 2.0, -1.0]),
        };
        let cases = [
            with(near_one(&[4, 8])),
            with(near_one(&[])).dim(-1),
            with(near_one(&[3, 5, 7])).dim(-2).keepdim(true),
            with(near_one(&[0, 3])).dim(0),
            with(near_one(&[2, 3])).keepdim(true),
            with(near_one(&[2, 3])).dtype(if s.dtype().is_complex() { DType::C128 } else { DType::F32 }).dim(1),
            // Rows of no zero, one, two and three; of complex numbers two rows, of no zero and of one.
            match s.dtype().is_complex() {
                true => with(s.values([2, 3], [1.0, 2.0, 3.0, -1.0, 2.0, 3.0, 0.5, -2.0, 0.0, 0.0, 1.0, 0.5])).dim(1),
                false => with(s.values([4, 3], [1.0, 2.0, 3.0, 0.0, 2.0, 3.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0])).dim(1),
            },
            match s.dtype().is_complex() {
                true => with(s.values([3], [2.0, 1.0, 0.0, 0.0, 3.0, -1.0])),
                false => with(s.values([3], [2.0, 0.0, 3.0])),
            },
        ];
        for case in cases {
            s.case(case);
        }
        if !s.dtype().is_complex() {
            let some = s.values([2, 3], [1.0, 2.0, 3.0, 2.0, 0.0, 1.0]);
            s.case(with(some).dtype(DType::Bool).dim(1));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([1; 65])).dim(0), "at most 64 where one is named");
        e.case(RealProduct, with(e.of(DType::C64, [2])).dtype(DType::F32), "a product of c64 has no dtype f32");
    }
}
