use fulgurite_ops_macros::operator;

use super::parts;
use super::promotion::{fills, operand_number, scalar_type};
use crate::prims;

/// A tensor of `size`, every element `fill_value`; without `dtype` of the type that the number brings along (f32, i64,
/// bool).
#[operator(torch = "full", complex)]
pub mod full {
    fn full(
        size: Vec<usize>,
        fill_value: Scalar,
        #[default(None)] dtype: Option<DType>,
        #[default("cpu")] device: String,
    ) -> Tensor;

    fn meta(size: &[usize], fill_value: Scalar, dtype: Option<DType>, device: &str) -> Result<TensorMeta> {
        let parsed = device.parse::<Device>();
        require!(parsed.is_ok(), UnknownDevice, "'{device}' is not a device, expected 'cpu', 'cuda:0', ...");
        let device = parsed.unwrap_or(Device::CPU);
        let dtype = dtype.unwrap_or_else(|| scalar_type(fill_value));
        fills("fill_value", fill_value, dtype, Code::FillValue.name())?;
        Ok(TensorMeta::new(size, dtype, device))
    }

    fn decomposition(size: &[usize], fill_value: Scalar, dtype: Option<DType>, device: &str) -> Tensor {
        let dtype = dtype.unwrap_or_else(|| scalar_type(fill_value));
        let number = operand_number(fill_value, dtype);
        match dtype.is_complex() {
            true => parts::full(number, size, dtype, device),
            false => prims::full(size, number, dtype, device),
        }
    }

    fn reference(size: &[usize], fill_value: Scalar) -> ArrayD<f64> {
        ArrayD::from_elem(IxDyn(size), fill_value.to_f64())
    }

    fn samples(s: &mut Samples) {
        s.case(with([2, 3], 1.5));
        s.case(with([], -2i64));
        s.case(with([3], true));
        s.case(with([0, 2], 1i64).dtype(s.dtype()));
        s.case(with([5], 3i64).dtype(s.dtype()).device("cpu"));
        if s.dtype().is_integer() {
            s.case(with([2], 2.75).dtype(s.dtype()));
        }
        if s.dtype() == DType::U8 {
            s.case(with([2], 255.5).dtype(DType::U8));
            s.case(with([2], -0.0).dtype(DType::U8));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(UnknownDevice, with([2], 1.0).device("?"), "'?' is not a device");
        e.case(FillValue, with([2], f64::NAN).dtype(DType::I64), "fill_value is nan, which i64 cannot hold");
        e.case(FillValue, with([2], 256i64).dtype(DType::U8), "fill_value is 256, which u8 cannot hold");
        e.case(FillValue, with([2], 1e6).dtype(DType::F16), "which f16 cannot hold");
        e.case(FillValue, with([2], -2.5).dtype(DType::U16), "fill_value is -2.5, which u16 cannot hold");
        e.case(FillValue, with([2], -0.5).dtype(DType::U8), "fill_value is -0.5, which u8 cannot hold");
        e.case(FillValue, with([2], -256i64).dtype(DType::U8), "fill_value is -256, which u8 cannot hold");
    }
}

/// A tensor of `size`, every element zero; f32 unless `dtype` says otherwise.
#[operator(torch = "zeros", complex)]
pub mod zeros {
    fn zeros(size: Vec<usize>, #[default(None)] dtype: Option<DType>, #[default("cpu")] device: String) -> Tensor;

    fn decomposition(size: &[usize], dtype: Option<DType>, device: &str) -> Tensor {
        super::full::with(size, 0.0).dtype(dtype.unwrap_or(DType::F32)).device(device).call()
    }

    fn reference(size: &[usize]) -> ArrayD<f64> {
        ArrayD::zeros(IxDyn(size))
    }

    fn samples(s: &mut Samples) {
        s.case(with([2, 3]));
        s.case(with([]).dtype(s.dtype()));
        s.case(with([0]).dtype(s.dtype()));
    }
}

/// A tensor of `size`, every element one; f32 unless `dtype` says otherwise.
#[operator(torch = "ones", complex)]
pub mod ones {
    fn ones(size: Vec<usize>, #[default(None)] dtype: Option<DType>, #[default("cpu")] device: String) -> Tensor;

    fn decomposition(size: &[usize], dtype: Option<DType>, device: &str) -> Tensor {
        super::full::with(size, 1.0).dtype(dtype.unwrap_or(DType::F32)).device(device).call()
    }

    fn reference(size: &[usize]) -> ArrayD<f64> {
        ArrayD::ones(IxDyn(size))
    }

    fn samples(s: &mut Samples) {
        s.case(with([2, 3]));
        s.case(with([]).dtype(s.dtype()));
        s.case(with([0]).dtype(s.dtype()));
    }
}
