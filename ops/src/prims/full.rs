use fulgurite_ops_macros::operator;

/// A tensor of shape `size`, every element `fill_value`. A fraction is cut off for integer dtypes, and whatever is not
/// zero is true. Integers must be exact in f64, in which scalar rules hold their numbers.
#[operator(prim, exact, torch = "full", overload = Full)]
pub mod full {
    fn full(size: Vec<usize>, fill_value: Scalar, dtype: DType, device: String) -> Tensor;

    fn meta(size: &[usize], fill_value: Scalar, dtype: DType, device: &str) -> Result<TensorMeta> {
        let place = device.parse::<Device>();
        require!(place.is_ok(), DeviceName, "device is '{device}', expected 'cpu', 'cuda', 'cuda:1', ...");
        require!(
            fill_value.is_exact(),
            ExactFillValue,
            "fill_value is {}, which f64, the type of numbers in programs, does not hold exactly; give it as a tensor",
            fill_value.to_attribute()
        );
        require!(
            fill_value.fits(dtype),
            FillValue,
            "fill_value is {}, which {dtype} cannot hold",
            fill_value.to_attribute()
        );
        Ok(TensorMeta::new(size, dtype, place.unwrap_or(Device::CPU)))
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
        e.case(FillValue, with([2], 256.0, DType::U8, "cpu"), "which u8 cannot hold");
        e.case(FillValue, with([2], -1.0, DType::U8, "cpu"), "which u8 cannot hold");
        e.case(ExactFillValue, with([2], i64::MAX, DType::I64, "cpu"), "does not hold exactly");
        e.case(FillValue, with([2], f64::NAN, DType::I32, "cpu"), "cannot hold");
    }
}
