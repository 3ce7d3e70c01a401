//! Rates of a device, measured: large copies, and large products of random numbers.

use std::collections::BTreeMap;

use fulgurite_kernels::launch::CopyRange;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::compile::{Choose, Options};
use fulgurite_runtime::device::{DeviceMemory, DeviceState, find_kind};
use fulgurite_runtime::executor::{ExecutorDef, rounded_to};
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::{Array, DType, Device, Error, Result, Target, Tensor, jit};

use super::bandwidth;

/// Runs before those that are timed: the first ones compile and choose algorithms.
const WARM_UP: usize = 2;
/// Runs that are timed, of which the median counts on a device.
const RUNS: usize = 7;
/// How long a product should take, in seconds, at the rate that a device's kind names for 16-bit operands.
const PRODUCT_SECONDS: f64 = 1.2e-3;
/// The edge of the larger of the host's matrices.
const HOST_EDGE: usize = 2048;
/// Bytes of a copy on a device whose kind knows its rates, and on one of which nothing is known.
const COPIED: [usize; 2] = [512 << 20, 8 << 20];

/// Bytes that a large copy on `device` reads and writes in a second.
pub(super) fn copy_rate(device: Device) -> Result<f64> {
    if device.is_cpu() {
        return Ok(bandwidth::of_host());
    }
    let bytes = COPIED[usize::from(rates(device)?.is_none())];
    let seconds = driver_copy(device, bytes)?.min(kernel_copy(device, bytes)?);
    rate("copy", 2.0 * bytes as f64, seconds)
}

/// Floating-point operations in a second of large products on `device`, by what their operands are rounded to: the
/// faster of two sizes, since the largest products are slowed down by the power that they take.
pub(super) fn product_rates(device: Device) -> Result<BTreeMap<String, f64>> {
    let largest = match (device.is_cpu(), rates(device)?) {
        (true, _) => HOST_EDGE,
        // A power of two: one that suits the hardware whatever its tiles are.
        (false, Some(per_second)) => {
            let fits = (PRODUCT_SECONDS * per_second / 2.0).cbrt() as usize;
            (fits.max(512).next_power_of_two() / 2).clamp(512, 8192)
        }
        (false, None) => 256,
    };
    let options = Options { device: (!device.is_cpu()).then_some(device), choose: Choose::Never, ..Options::default() };
    let rounded = in_tf32(&options.executor_list(device.kind()));
    let mut found = BTreeMap::new();
    for (name, dtype) in [("bf16", DType::BF16), ("f16", DType::F16), ("tf32", DType::F32), ("f32", DType::F32)] {
        let (largest, options) = match (name, &rounded) {
            ("tf32", Some(list)) => (largest, Options { executors: Some(list.clone()), ..options.clone() }),
            ("tf32", None) => continue,
            // IEEE products are slower by an order of magnitude on devices.
            ("f32", _) if !device.is_cpu() => (largest / 2, options.clone()),
            _ => (largest, options.clone()),
        };
        let mut fastest = 0.0f64;
        for edge in [largest, largest / 2] {
            let seconds = product(edge, dtype, options.clone(), device.is_cpu())?;
            fastest = fastest.max(rate(name, 2.0 * (edge as f64).powi(3), seconds)?);
        }
        found.insert(name.to_owned(), fastest);
    }
    Ok(found)
}

/// `list` with products of f32 rounded to TF32; `None` where no executor does that.
fn in_tf32(list: &[&'static ExecutorDef]) -> Option<Vec<&'static ExecutorDef>> {
    let list = rounded_to(Precision::Tf32, list);
    list.iter().any(|executor| executor.precision == Precision::Tf32).then_some(list)
}

/// What the kind of `device` names for its 16-bit products, in operations a second.
fn rates(device: Device) -> Result<Option<f64>> {
    if device.is_cpu() {
        return Ok(None);
    }
    let target = Target::of(device)?;
    Ok(find_kind(device.kind())?.rates(target.architecture()).map(|rates| rates.flops_per_second))
}

fn rate(what: &str, amount: f64, seconds: f64) -> Result<f64> {
    match seconds > 0.0 && seconds.is_finite() {
        true => Ok(amount / seconds),
        false => Err(Error::Argument {
            argument: "device".into(),
            message: format!("its clock says that the measured {what} took {seconds} s, expected a time above 0"),
        }),
    }
}

/// The times of the timed runs of `run` in seconds, the shortest first.
fn times(mut run: impl FnMut() -> Result<f64>) -> Result<Vec<f64>> {
    let mut times = (0..WARM_UP + RUNS).map(|_| run()).collect::<Result<Vec<f64>>>()?.split_off(WARM_UP);
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// The median time of the timed runs, in seconds.
fn median(run: impl FnMut() -> Result<f64>) -> Result<f64> {
    Ok(times(run)?[RUNS / 2])
}

/// A copy of `bytes` by the driver.
fn driver_copy(device: Device, bytes: usize) -> Result<f64> {
    let state = DeviceState::of(device)?;
    let block = || -> Result<Box<dyn DeviceMemory>> { Ok(state.context().allocate(bytes)?) };
    let (from, to) = (block()?, block()?);
    let range = CopyRange { from: from.address(), to: to.address(), bytes };
    let seconds = median(|| {
        let (start, end) = (state.context().event(true)?, state.context().event(true)?);
        state.stream().record(&*start)?;
        // SAFETY: both blocks are this function's, and hold so many bytes.
        unsafe { state.stream().copy(range) }?;
        state.stream().record(&*end)?;
        end.synchronize()?;
        Ok(end.milliseconds_since(&*start)? * 1e-3)
    });
    // What was enqueued must have ended before its memory goes.
    state.synchronize()?;
    seconds
}

/// A kernel that reads and writes `bytes`: negation.
fn kernel_copy(device: Device, bytes: usize) -> Result<f64> {
    let options = Options { device: Some(device), choose: Choose::Never, ..Options::default() };
    let negated = jit(|x: Tensor| prims::neg(x)).options(options.clone());
    let x = drawn(&[bytes / DType::F32.size()], DType::F32, options)?;
    median(|| Ok(negated.profile(x.clone())?.1.total().as_secs_f64()))
}

/// The product of two square matrices. `is_shared` is whether others may use the processors: the shortest time counts,
/// which they disturbed least.
fn product(edge: usize, dtype: DType, options: Options, is_shared: bool) -> Result<f64> {
    let product = jit(|(a, b): (Tensor, Tensor)| matmul(a, b)).options(options.clone());
    let (a, b) = (drawn(&[edge, edge], dtype, options.clone())?, drawn(&[edge, edge], dtype, options)?);
    let times = times(|| Ok(product.profile((a.clone(), b.clone()))?.1.total().as_secs_f64()))?;
    Ok(times[if is_shared { 0 } else { RUNS / 2 }])
}

/// Random numbers: what a product of equal numbers takes, whose wires hardly switch, says little.
fn drawn(shape: &[usize], dtype: DType, options: Options) -> Result<Array> {
    let device = options.device.unwrap_or(Device::CPU);
    let shape = shape.to_vec();
    let draw = jit(move |generator: Tensor| prims::uniform(shape.clone(), -1.0, 1.0, dtype, generator));
    draw.options(options).call(Array::new([2], &[42i64, 7])?.to_device(device)?)
}
