use fulgurite_ops_macros::operator;

use super::promotion::cast;

/// `input` in another element type. Floating-point numbers become integers by truncation, booleans by whether they
/// differ from zero.
#[operator(torch = "Tensor.to")]
pub mod to {
    fn to(input: Tensor, dtype: DType) -> Tensor;

    fn meta(input: &TensorMeta, dtype: DType) -> Result<TensorMeta> {
        Ok(input.with_dtype(dtype))
    }

    fn decomposition(input: Tensor, dtype: DType) -> Tensor {
        cast(input, dtype)
    }

    fn reference(input: &ReferenceTensor, dtype: DType) -> ReferenceTensor {
        match (input.dtype().is_floating(), dtype.is_integer()) {
            _ if dtype == DType::Bool => input.booleans().clone().into(),
            (false, true) => input.integers().clone().into(),
            (true, true) => input.floats().mapv(|x| x.trunc() as i64).into(),
            _ => input.floats().clone().into(),
        }
    }

    fn samples(s: &mut Samples) {
        for dtype in DType::ALL {
            let why = "rounding to another type is no smooth function";
            s.case(with(s.uniform(0.0, 9.0, [3, 5]), dtype)).forward_only(why);
        }
        s.case(with(s.normal([]), DType::F32));
        s.case(with(s.normal([0, 2]), DType::F64));
    }
}
