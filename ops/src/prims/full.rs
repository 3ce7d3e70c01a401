use fulgurite_ops_macros::operator;

/// A tensor of shape `size`, every element `fill_value`. A fraction is cut off for integer dtypes, and whatever is not zero is
/// true. Integers must be exact in f64, in which scalar rules hold their numbers.
#[operator(prim, torch = "full", overload = Full)]
pub mod full {
    fn full(size: Vec<usize>, fill_value: Scalar, dtype: DType, device: String) -> Tensor;

    fn meta(size: &[usize], fill_value: Scalar, dtype: DType, device: &str) -> Result<TensorMeta> {
        let place = device.parse::<Device>();
        require!(place.is_ok(), DeviceName, "device is '{device}', expected 'cpu', 'cuda', 'cuda:1', ...");
        require!(
            fits(fill_value, dtype),
            FillValue,
            "fill_value is {}, which {dtype} cannot hold",
            fill_value.to_attribute()
        );
        Ok(TensorMeta::new(size, dtype, place.unwrap_or(Device::CPU)))
    }

    fn fits(value: Scalar, dtype: DType) -> bool {
        let limits = match dtype {
            DType::U8 => (0, u8::MAX.into()),
            DType::I32 => (i32::MIN.into(), i32::MAX.into()),
            DType::I64 => (i64::MIN, i64::MAX),
            _ => return true,
        };
        match value {
            Scalar::Bool(_) => true,
            Scalar::Int(value) => {
                value as f64 as i128 == i128::from(value) && (limits.0..=limits.1).contains(&value)
            }
            Scalar::Float(value) => value.trunc() >= limits.0 as f64 && value.trunc() < limits.1 as f64 + 1.0,
        }
    }

    fn scalar(fill_value: Expr) -> Expr {
        fill_value
    }

    fn reference(size: &[usize], fill_value: Scalar, dtype: DType) -> ReferenceTensor {
        let size = IxDyn(size);
        match dtype.is_integer() {
            true => ArrayD::from_elem(size, fill_value.to_i64()).into(),
            false => ArrayD::from_elem(size, fill_value.to_f64()).into(),
        }
    }

    fn samples(s: &mut Samples) {
        for size in [&[][..], &[1], &[7], &[4, 8], &[3, 0, 5], &[67, 65]] {
            s.case(with(size, 1, s.dtype(), "cpu"));
        }
        s.case(with([3], 2.75, s.dtype(), "cpu"));
        s.case(with([3], true, s.dtype(), "cpu"));
        if s.dtype().is_floating() {
            s.case(with([2, 3], f64::NEG_INFINITY, s.dtype(), "cpu"));
        }
        if s.dtype() == DType::I64 {
            s.case(with([2], i64::MIN, s.dtype(), "cpu"));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(DeviceName, with([2], 1.0, e.dtype(), "the gpu"), "device is 'the gpu'");
        e.case(FillValue, with([2], 256, DType::U8, "cpu"), "fill_value is 256, which u8 cannot hold");
        e.case(FillValue, with([2], i64::MAX, DType::I64, "cpu"), "cannot hold");
        e.case(FillValue, with([2], f64::NAN, DType::I32, "cpu"), "cannot hold");
    }
}
