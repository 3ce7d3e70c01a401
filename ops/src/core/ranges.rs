//! Numbers at equal distances, and powers of them.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::{Operand, Scalar};
use fulgurite_runtime::{DType, Device, Tensor, TensorMeta};

use super::arrays::array;
use super::promotion::{cast, constant};
use crate::prims;

/// `steps` numbers at equal distances from `start` to `end`, both included; f32 unless `dtype` says otherwise. Integers
/// are cut off. One step may be a boolean: false where `start` is 0, and true otherwise.
#[operator(torch = "linspace", no_grad = "PyTorch takes the bounds for constants")]
pub mod linspace {
    fn linspace(
        start: Operand,
        end: Operand,
        steps: usize,
        #[default(None)] dtype: Option<DType>,
        #[default("cpu")] device: String,
    ) -> Tensor;

    fn requires(
        start: Operand<&TensorMeta>,
        end: Operand<&TensorMeta>,
        steps: usize,
        dtype: Option<DType>,
        device: &str,
    ) -> Result<()> {
        require!(device.parse::<Device>().is_ok(), UnknownDevice, "'{device}' is not a device, expected 'cpu', ...");
        require!(super::are_numbers([start, end]), Rank, "{}", super::bounds_text([start, end]));
        require!(
            dtype != Some(DType::Bool) || steps < 2,
            Booleans,
            "dtype is bool for {steps} steps, expected a type of numbers, or at most one step"
        );
        Ok(())
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { start, end, steps, dtype, device } = args;
        match dtype {
            Some(whole) if steps < 2 && (whole.is_integer() || whole == DType::Bool) => {
                super::alone([start, end], steps, whole, &device)
            }
            _ => super::spaced([start, end], steps, dtype, &device, |x| x),
        }
    }

    fn reference(start: ArrayD<f64>, end: ArrayD<f64>, steps: usize, dtype: Option<DType>) -> ArrayD<f64> {
        super::line([start[[]], end[[]]], steps, dtype, |x| x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(0.0, 1.0, 5));
        s.case(with(-2i64, 7.0, 4).dtype(if s.dtype() == DType::Bool { DType::U8 } else { s.dtype() }));
        s.case(with(3.0, 3.5, 1));
        s.case(with(10i64, 1i64, 0));
        s.case(with(1i64, 10i64, 6).dtype(DType::I64));
        s.case(with(0.5, 1.0, 1).dtype(DType::Bool));
        s.case(with(0.0, 1.0, 1).dtype(DType::Bool));
        s.case(with(0i64, 1i64, 0).dtype(DType::Bool));
        s.case(with(1.5, 4.0, 1).dtype(DType::I32));
        if s.dtype().is_floating() {
            s.case(with(s.values([], [1.5]), s.values([], [-0.5]), 4).dtype(s.dtype()));
            s.case(with(0.5, s.values([], [2.0]), 3));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(UnknownDevice, with(0.0, 1.0, 2).device("?"), "'?' is not a device");
        e.case(Booleans, with(0.0, 1.0, 2).dtype(DType::Bool), "dtype is bool for 2 steps");
        e.case(Rank, with(0.0, e.normal([2]), 2), "expected numbers or tensors without dimensions");
    }
}

/// `base` to the power of `steps` numbers at equal distances from `start` to `end`, both included; f32 unless `dtype`
/// says otherwise. Integers are cut off: the bounds of several steps, and the results. One step may be a boolean:
/// false where it is 0, and true otherwise.
#[operator(torch = "logspace", no_grad = "PyTorch takes the bounds for constants")]
pub mod logspace {
    fn logspace(
        start: Operand,
        end: Operand,
        steps: usize,
        #[default(10.0)] base: f64,
        #[default(None)] dtype: Option<DType>,
        #[default("cpu")] device: String,
    ) -> Tensor;

    fn requires(
        start: Operand<&TensorMeta>,
        end: Operand<&TensorMeta>,
        steps: usize,
        dtype: Option<DType>,
        device: &str,
    ) -> Result<()> {
        require!(device.parse::<Device>().is_ok(), UnknownDevice, "'{device}' is not a device, expected 'cpu', ...");
        require!(super::are_numbers([start, end]), Rank, "{}", super::bounds_text([start, end]));
        require!(
            dtype != Some(DType::Bool) || steps < 2,
            Booleans,
            "dtype is bool for {steps} steps, expected a type of numbers, or at most one step"
        );
        Ok(())
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { start, end, steps, base, dtype, device } = args;
        super::spaced([start, end], steps, dtype, &device, |x| prims::pow(base, x))
    }

    fn reference(Args { start, end, steps, base, dtype, .. }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let number = |operand: Operand<&ReferenceTensor>| match operand {
            Operand::Tensor(tensor) => tensor.floats()[[]],
            Operand::Scalar(number) => number.to_f64(),
        };
        super::line([number(start), number(end)], steps, dtype, |x| base.powf(x))
    }

    fn samples(s: &mut Samples) {
        s.case(with(0.0, 1.0, 5));
        s.case(with(-1.0, 1.5, 4).base(2.0).dtype(DType::F64));
        s.case(with(3i64, 0i64, 4).base(2.0).dtype(DType::I64));
        s.case(with(1.0, 2.0, 1));
        s.case(with(1.0, 2.0, 0));
        s.case(with(-1.0, 2.0, 1).dtype(DType::Bool));
        s.case(with(2.0, 2.0, 1).base(0.0).dtype(DType::Bool));
        s.case(with(0.0, 1.0, 0).dtype(DType::Bool));
        s.case(with(0.5, 2.0, 1).dtype(DType::I64));
        if s.dtype().is_floating() {
            s.case(with(s.values([], [0.5]), 1.0, 3).dtype(s.dtype()));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(UnknownDevice, with(0.0, 1.0, 2).device("?"), "'?' is not a device");
        e.case(Booleans, with(0.0, 1.0, 2).dtype(DType::Bool), "dtype is bool for 2 steps");
        e.case(Rank, with(e.normal([2]), 1.0, 2), "expected numbers or tensors without dimensions");
    }
}

fn are_numbers(bounds: [Operand<&TensorMeta>; 2]) -> bool {
    bounds.iter().all(|bound| bound.tensor().is_none_or(|meta| meta.rank() == 0))
}

fn bounds_text(bounds: [Operand<&TensorMeta>; 2]) -> String {
    let text = bounds.map(|bound| match bound {
        Operand::Tensor(meta) => format!("{meta}"),
        Operand::Scalar(number) => format!("{}", number.to_f64()),
    });
    format!("start is {}, end is {}, expected numbers or tensors without dimensions", text[0], text[1])
}

/// The first bound as one number of an integer or boolean type, or none. It is not held in f64, which has no place for
/// every i64.
#[track_caller]
fn alone(bounds: [Operand<Tensor>; 2], steps: usize, dtype: DType, device: &str) -> Tensor {
    let device = device_of(&bounds, device);
    let [first, _] = bounds;
    let own = match first {
        Operand::Tensor(tensor) => super::promotion::broadcast(tensor, &[steps]),
        Operand::Scalar(Scalar::Float(number)) => constant(number, &TensorMeta::new([steps], DType::F64, device)),
        Operand::Scalar(number) => prims::iota(steps, number.to_i64(), 1i64, DType::I64, device),
    };
    cast(own, dtype)
}

/// `of` numbers from the first to the second bound. The second half counts from the end, which is exact then.
#[track_caller]
fn spaced(
    bounds: [Operand<Tensor>; 2],
    steps: usize,
    dtype: Option<DType>,
    device: &str,
    of: impl FnOnce(Tensor) -> Tensor,
) -> Tensor {
    let device = device_of(&bounds, device);
    let dtype = dtype.unwrap_or(DType::F32);
    let wide = if dtype.is_floating() { dtype.accumulator() } else { DType::F64 };
    let meta = TensorMeta::new([steps], wide, device);
    // Bounds are rounded to the type of the result, as PyTorch's are, but for one step of another type than a
    // floating-point one.
    let of_bounds = if cuts_bounds(steps, dtype) { dtype } else { wide };
    let [first, last] = bounds.map(|bound| match bound {
        Operand::Tensor(tensor) => super::promotion::broadcast(cast(cast(tensor, of_bounds), wide), &[steps]),
        Operand::Scalar(number) => constant(rounded(number, of_bounds), &meta),
    });
    let place = prims::iota(steps, 0i64, 1i64, DType::I64, device);
    let gap = prims::div(prims::sub(last, first), steps.saturating_sub(1).max(1) as f64);
    let distance = |places: Tensor| prims::mul(cast(places, wide), gap);
    let ahead = prims::add(first, distance(place));
    let behind = prims::sub(last, distance(prims::sub(steps as i64 - 1, place)));
    let line = if steps < 2 { first } else { prims::select(prims::lt(place, steps as i64 / 2), ahead, behind) };
    cast(of(line), dtype)
}

/// The device of bounds that are tensors, or else the one that is asked for.
fn device_of(bounds: &[Operand<Tensor>; 2], asked: &str) -> Device {
    let tensor = bounds.iter().find_map(|bound| bound.tensor().copied());
    tensor.map_or_else(|| asked.parse().unwrap_or(Device::CPU), |tensor| tensor.device())
}

/// Whether bounds are cut off, or rounded, to the type of the result.
fn cuts_bounds(steps: usize, dtype: DType) -> bool {
    dtype.is_floating() || steps > 1
}

/// `number` in `dtype`, as f64.
fn rounded(number: Scalar, dtype: DType) -> f64 {
    if dtype.is_floating() { dtype.nearest(number.to_f64()) } else { number.to_f64().trunc() }
}

/// For references: `of` numbers between the bounds, cut off if integers are asked for.
fn line(
    bounds: [f64; 2],
    steps: usize,
    dtype: Option<DType>,
    of: impl Fn(f64) -> f64,
) -> fulgurite_runtime::rules::ArrayD<f64> {
    let dtype = dtype.unwrap_or(DType::F32);
    let is_whole = !dtype.is_floating() && cuts_bounds(steps, dtype);
    let [first, last] = bounds.map(|bound| if is_whole { bound.trunc() } else { bound });
    let at = |i: usize| match i {
        0 => first,
        _ if i + 1 == steps => last,
        _ => first + (last - first) * i as f64 / (steps - 1) as f64,
    };
    let whole = |x: f64| match dtype {
        DType::Bool => f64::from(u8::from(x != 0.0)),
        dtype if dtype.is_floating() => x,
        _ => x.trunc(),
    };
    array(&[steps], (0..steps).map(|i| whole(of(at(i)))).collect())
}
