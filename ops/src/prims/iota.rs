use fulgurite_ops_macros::operator;

/// `start`, `start + step`, `start + 2 step`, ...: `length` numbers. Integers are computed exactly and wrap; others are
/// `start + i step` in f64, rounded to the dtype.
#[operator(prim, exact, overload = Iota, no_grad = "it has no tensor arguments")]
pub mod iota {
    fn iota(length: usize, start: Scalar, step: Scalar, dtype: DType, device: String) -> Tensor;

    fn meta(length: usize, dtype: DType, device: &str) -> Result<TensorMeta> {
        let place = device.parse::<Device>();
        require!(place.is_ok(), DeviceName, "device is '{device}', expected 'cpu', 'cuda', 'cuda:1', ...");
        require!(dtype != DType::Bool, NumberDType, "dtype is bool, expected a number");
        Ok(TensorMeta::new([length], dtype, place.unwrap_or(Device::CPU)))
    }

    fn reference(length: usize, start: Scalar, step: Scalar, dtype: DType) -> ReferenceTensor {
        let shape = IxDyn(&[length]);
        let exact = !matches!((start, step), (Scalar::Float(_), _) | (_, Scalar::Float(_)));
        if exact && dtype.is_integer() {
            let (start, step) = (start.to_i64(), step.to_i64());
            ArrayD::from_shape_fn(shape, |i| start.wrapping_add(step.wrapping_mul(i[0] as i64))).into()
        } else {
            let (start, step) = (start.to_f64(), step.to_f64());
            let values = ArrayD::from_shape_fn(shape, |i| start + step * i[0] as f64);
            ReferenceTensor::from_floats(DType::F64, values)
        }
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::Bool {
            return;
        }
        for length in [0, 1, 7, 100] {
            s.case(with(length, 0, 1, s.dtype(), "cpu"));
        }
        s.case(with(5, 3, 2, s.dtype(), "cpu"));
        if !s.dtype().is_unsigned() {
            s.case(with(5, 3, -2, s.dtype(), "cpu"));
            s.case(with(9, -1.0, 0.25, s.dtype(), "cpu"));
            s.case(with(2049, 0, 1, s.dtype(), "cpu"));
        }
        if s.dtype() == DType::I64 {
            s.case(with(4, i64::MAX - 8, 2, DType::I64, "cpu"));
            // No f64 is the number after 2^53; a step of a half is a fraction beside a start that is none.
            s.case(with(4, (1i64 << 53) + 1, 2, DType::I64, "cpu"));
            s.case(with(5, 0, 0.5, DType::I64, "cpu"));
        }
        if s.dtype() == DType::F32 {
            s.case(with(5000, 0, 1, DType::F32, "cpu"));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DeviceName, with(2, 0, 1, DType::F32, ""), "device is ''");
        e.case(NumberDType, with(2, 0, 1, DType::Bool, "cpu"), "dtype is bool");
    }
}
