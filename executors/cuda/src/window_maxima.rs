//! Largest elements of windows, a thread for each; and their gradient, a thread for each element of the images, which
//! adds what the windows that it is in give to it, in their order. Nothing is added atomically, so every run gives the
//! same bits. Images have their dimensions in either order: neighbouring threads have neighbouring elements of results,
//! and with channels innermost a thread has several.

use fulgurite_ops::nn::placed_windows::{Windows, placed_extents};
use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, Plan, Result};
use fulgurite_runtime::{TensorMeta, binds, refuse_unless, source_files};

use super::cuda;
use super::support::{WIDEST, coordinates, index_type, one_thread_each, type_of};

/// Elements from which on places in an image are counted by 64 bits: sums of two of them and of paddings fit 32 below.
const FAR: usize = 1 << 29;

/// Whether each window has an element inside of the images: no other is ever chosen.
fn each_reaches(input: &TensorMeta, windows: &Windows<'_>, channels_innermost: bool) -> Claim {
    let extents = placed_extents(input.shape(), channels_innermost);
    for placed in windows.of(extents) {
        let inside = |o: usize| {
            // The first element of the window that is not before the image.
            let start = o * placed.step;
            let k = placed.low.saturating_sub(start).div_ceil(placed.dilation);
            k < placed.size && start + k * placed.dilation - placed.low < placed.extent
        };
        refuse_unless!((0..placed.count).all(inside), "a window has no element of {input}");
    }
    Ok(())
}

#[implementation(of = fulgurite_ops::nn::max_of_windows, by = cuda, strided)]
mod max_of_windows_by_cuda {
    fn checker(args: Args<&TensorMeta>) -> Claim {
        let Args { input, counts, sizes, steps, low, dilations, channels_innermost } = args;
        let windows = Windows { counts: &counts, sizes: &sizes, steps: &steps, low: &low, dilations: &dilations };
        super::each_reaches(input, &windows, channels_innermost)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, values: &DeviceTensor, positions: &DeviceTensor) -> Result<()> {
        let Args { input, counts, sizes, steps, low, dilations, channels_innermost } = args;
        if values.meta.is_empty() {
            return Ok(());
        }
        let windows = Windows { counts: &counts, sizes: &sizes, steps: &steps, low: &low, dilations: &dilations };
        let extents = placed_extents(input.shape(), channels_innermost);
        super::describe(plan, &windows, extents, values, channels_innermost);
        plan.define("FORWARD", "1");
        super::read(plan, input, values, channels_innermost, ["OUTER(i)", "STRIDES"]);
        let pack = super::pack(&[input], &[values, positions], channels_innermost);
        plan.define("PACK", pack.to_string());
        let count = values.meta.len() / pack;
        plan.launch("max_of_windows", one_thread_each(count), binds![input, values, positions, count])
    }
}

#[implementation(of = fulgurite_ops::nn::max_of_windows_backward, by = cuda, strided)]
mod max_of_windows_backward_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { d_values, positions, extents, sizes, steps, low, dilations, channels_innermost } = args;
        if out.meta.is_empty() {
            return Ok(());
        }
        let counts = placed_extents(d_values.shape(), channels_innermost);
        let windows = Windows { counts, sizes: &sizes, steps: &steps, low: &low, dilations: &dilations };
        super::describe(plan, &windows, &extents, out, channels_innermost);
        super::read(plan, d_values, out, channels_innermost, ["OUTER(i)", "STRIDES"]);
        super::read(plan, positions, out, channels_innermost, ["OUTER_OF_POSITIONS(i)", "STRIDES_OF_POSITIONS"]);
        let pack = super::pack(&[d_values, positions], &[out], channels_innermost);
        plan.define("PACK", pack.to_string());
        let count = out.meta.len() / pack;
        plan.launch("max_of_windows_backward", one_thread_each(count), binds![d_values, positions, out, count])
    }
}

/// How many channels a thread has: neighbours that are read and written at once, where they are innermost.
fn pack(operands: &[&DeviceTensor], results: &[&DeviceTensor], channels_innermost: bool) -> usize {
    let fits = |pack: usize| {
        let operand = |tensor: &&DeviceTensor| {
            let Some((inner, outer)) = tensor.strides.split_last() else { return false };
            *inner == 1 && outer.iter().all(|stride| stride.unsigned_abs().is_multiple_of(pack))
        };
        let whole =
            |tensor: &&DeviceTensor| tensor.shape().last().is_some_and(|channels| channels.is_multiple_of(pack));
        let aligned =
            |tensor: &&DeviceTensor| tensor.alignment.is_multiple_of((pack * tensor.dtype().size()).min(WIDEST));
        operands.iter().all(|tensor| operand(tensor) && whole(tensor) && aligned(tensor)) && results.iter().all(aligned)
    };
    let mut pack = if channels_innermost { WIDEST / results[0].dtype().size() } else { 1 };
    while pack > 1 && !fits(pack) {
        pack /= 2;
    }
    pack
}

/// Numbers as an initializer of an array.
fn list(numbers: impl IntoIterator<Item = i64>) -> String {
    let all: Vec<String> = numbers.into_iter().map(|number| format!("{number}LL")).collect();
    format!("{{{}}}", all.join(","))
}

/// The dimensions that windows are placed in.
fn placed_dims(rank: usize, channels_innermost: bool) -> std::ops::Range<usize> {
    if channels_innermost { 1..rank - 1 } else { 2..rank }
}

/// Defines the windows of images with these extents, and where the element of `out` of a thread is.
fn describe(plan: &mut Plan, windows: &Windows<'_>, extents: &[usize], out: &DeviceTensor, channels_innermost: bool) {
    let Windows { counts, sizes, steps, low, dilations } = *windows;
    let places = coordinates(out.shape(), "i");
    let placed = placed_dims(out.shape().len(), channels_innermost);
    let places: Vec<String> = places[placed].iter().map(|at| format!("(AT){at}")).collect();
    // Beyond the windows' reach a step or a dilation is that of a single window or element.
    let reach = |i: usize| extents[i].saturating_add(low[i]).saturating_add(1);
    let far = (0..extents.len()).any(|i| reach(i).saturating_add(sizes[i]) >= FAR);
    let elements = extents.iter().fold(1usize, |all, extent| all.saturating_mul(*extent));
    let numbers = |of: &[usize]| list(of.iter().map(|number| *number as i64));
    let factors = |of: &[usize]| list(of.iter().enumerate().map(|(i, number)| (*number).min(reach(i)) as i64));
    plan.source(source_files!["window_maxima.cu"]);
    plan.define("ELEMENT", type_of(out.meta.dtype()));
    plan.define("INDEX", index_type(out.meta.len()));
    plan.define("AT", if far || elements >= FAR { "i64" } else { "i32" });
    plan.define("RANK", extents.len().to_string());
    plan.define("EXTENTS", numbers(extents));
    plan.define("COUNTS", numbers(counts));
    plan.define("SIZES", numbers(sizes));
    plan.define("STEPS", factors(steps));
    plan.define("LOW", numbers(low));
    plan.define("DILATIONS", factors(dilations));
    plan.define("PLACES(i)", format!("{{{}}}", places.join(",")));
}

/// Defines where a thread reads an operand: the start of the image that its element of `out` belongs to, and strides.
fn read(plan: &mut Plan, operand: &DeviceTensor, out: &DeviceTensor, channels_innermost: bool, names: [&str; 2]) {
    let rank = out.shape().len();
    let placed = placed_dims(rank, channels_innermost);
    let at = coordinates(out.shape(), "i");
    let outer = (0..rank).filter(|dim| !placed.contains(dim));
    let outer: Vec<String> = outer.map(|dim| format!("(i64){}*({}LL)", at[dim], operand.strides[dim])).collect();
    plan.define(names[0], format!("({})", outer.join("+")));
    plan.define(names[1], list(operand.strides[placed].iter().map(|stride| *stride as i64)));
}
