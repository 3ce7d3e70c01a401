use fulgurite_ops_macros::operator;

/// The same values in another element type: floating-point numbers round to the nearest, or lose their fraction on
/// their way to integers; integers wrap; whatever is not zero is true. The gradient is converted back; none flows from
/// or to integers.
#[operator(prim, exact, torch = "ops.prims.convert_element_type", overload = Convert, elements = convert)]
pub mod convert_element_type {
    fn convert_element_type(input: Tensor, dtype: DType) -> Tensor;

    fn meta(input: &TensorMeta, dtype: DType) -> Result<TensorMeta> {
        Ok(input.with_dtype(dtype))
    }

    fn scalar(input: Expr) -> Expr {
        input
    }

    fn grad(input: Tensor, dtype: DType) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (convert_element_type(input, dtype), move |d_out: Tensor| Grads {
            input: convert_element_type(d_out, input.dtype()),
        })
    }

    fn reference(input: &ReferenceTensor, dtype: DType) -> ReferenceTensor {
        match dtype {
            DType::Bool => input.booleans().clone().into(),
            dtype if dtype.is_integer() => input.integers().clone().into(),
            _ => input.floats().clone().into(),
        }
    }

    fn samples(s: &mut Samples) {
        for dtype in DType::REAL {
            // What a negative number with a fraction becomes in an unsigned type is not defined, in PyTorch either.
            let low = if dtype.is_unsigned() { 0.0 } else { -9.0 };
            s.case(with(s.uniform(low, 9.0, [4, 8]), dtype));
        }
        let dtype = if s.dtype() == DType::F32 { DType::BF16 } else { DType::F32 };
        for shape in [&[][..], &[0, 3], &[1], &[3, 1, 5], &[67, 65]] {
            s.case(with(s.uniform(-9.0, 9.0, shape), dtype));
        }
        if s.dtype().is_floating() {
            let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e-9, 65520.0, 3.4e38, -1e-40];
            s.case(with(s.values([8], special), DType::F16)).forward_only("special values");
            s.case(with(s.values([8], special), DType::BF16)).forward_only("special values");
            s.case(with(s.values([8], special), DType::Bool)).forward_only("special values");
        }
        if s.dtype() == DType::I64 {
            for dtype in [DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::I32] {
                s.case(with(s.values([4], [300.0, -1.0, 4294967297.0, 40_000.0]), dtype));
            }
        }
    }
}
