use fulgurite_ops_macros::operator;

use super::promotion::cast;

/// `input` in another element type. Floating-point numbers become integers by truncation, booleans by whether they
/// differ from zero. Real numbers become complex ones with imaginary parts of zero, and complex ones no real ones.
#[operator(torch = "Tensor.to", complex)]
pub mod to {
    fn to(input: Tensor, dtype: DType) -> Tensor;

    fn meta(input: &TensorMeta, dtype: DType) -> Result<TensorMeta> {
        require!(
            dtype.is_complex() || !input.dtype().is_complex(),
            ComplexToReal,
            "input is {}, which becomes no {dtype}; convert `real(input)`",
            input.dtype()
        );
        Ok(input.with_dtype(dtype))
    }

    fn decomposition(input: Tensor, dtype: DType) -> Tensor {
        cast(input, dtype)
    }

    fn reference(input: &ReferenceTensor, dtype: DType) -> ReferenceTensor {
        match (input.dtype().is_floating(), dtype.is_integer()) {
            _ if input.imaginary().is_some() => input.complex().into(),
            _ if dtype == DType::Bool => input.booleans().clone().into(),
            (false, true) => input.integers().clone().into(),
            (true, true) => input.floats().mapv(|x| x.trunc() as i64).into(),
            _ => input.floats().clone().into(),
        }
    }

    fn samples(s: &mut Samples) {
        let why = "rounding to another type is no smooth function";
        if !s.dtype().is_complex() {
            for dtype in DType::REAL {
                s.case(with(s.uniform(0.0, 9.0, [3, 5]), dtype)).forward_only(why);
            }
            s.case(with(s.normal([]), DType::F32));
            s.case(with(s.normal([0, 2]), DType::F64));
        }
        s.case(with(s.uniform(0.0, 9.0, [3, 5]), DType::C64)).forward_only(why);
        s.case(with(s.normal([2]), DType::C128));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ComplexToReal, with(e.of(DType::C64, [2]), DType::F32), "input is c64, which becomes no f32");
    }
}
