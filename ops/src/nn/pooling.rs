//! What pools share: their windows, and what is made of the elements of each.

use fulgurite_runtime::argument::{Operand, Scalar};
use fulgurite_runtime::rules::{ArrayD, Failure, IxDyn, Precondition, ReferenceTensor};
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::placement::{
    Placement, fits_dimensions, for_each, moved_from_last, moved_last, positions_along, positive_for_each,
    whole_windows, windows_of,
};
use crate::core::promotion::{accumulating, cast, number};
use crate::core::{RoundingMode, div, read_as};
use crate::nn::max_of_windows;
use crate::prims;

/// What says where the windows of a pool are; lists have one number, or one for each dimension.
#[derive(Clone, Copy)]
pub(super) struct Pool<'a> {
    pub rank: usize,
    pub kernel_size: &'a [usize],
    /// The size of windows if it is absent or empty.
    pub stride: Option<&'a [usize]>,
    pub padding: &'a [usize],
    pub dilation: &'a [usize],
    pub ceil_mode: bool,
}

impl Pool<'_> {
    /// For metas: fails with one of the caller's codes if there are no such windows.
    pub fn check(&self, input: &TensorMeta, codes: [Precondition; 5]) -> Result<(), Failure> {
        let [shape, lists, positive, padding, no_window] = codes;
        check_shape(input, self.rank, shape)?;
        positive_for_each(("kernel_size", self.kernel_size), self.rank, [lists, positive])?;
        if let Some(stride) = self.stride.filter(|stride| !stride.is_empty()) {
            positive_for_each(("stride", stride), self.rank, [lists, positive])?;
        }
        positive_for_each(("dilation", self.dilation), self.rank, [lists, positive])?;
        fits_dimensions(("padding", self.padding), self.rank, lists)?;
        let placed = self.windows(input.shape());
        if placed.iter().any(|placed| placed.low > placed.span() / 2) {
            let text = format_args!(
                "padding is {:?}, expected at most half of kernel_size {:?} with dilation {:?}",
                self.padding, self.kernel_size, self.dilation
            );
            return Err(padding.unmet(text));
        }
        if placed.iter().any(|placed| placed.count == 0) {
            let text = format_args!(
                "input has shape {:?}, kernel_size is {:?}, padding {:?}: there is no window",
                input.shape(),
                self.kernel_size,
                self.padding
            );
            return Err(no_window.unmet(text));
        }
        Ok(())
    }

    /// The windows of each dimension, of lists that were checked.
    pub fn windows(&self, shape: &[usize]) -> Vec<Placement> {
        let each = |list: &[usize]| for_each(list, self.rank).unwrap_or_else(|| vec![1; self.rank]);
        let sizes = each(self.kernel_size);
        let steps = self.stride.filter(|stride| !stride.is_empty()).map_or_else(|| sizes.clone(), each);
        let (low, dilations) = (each(self.padding), each(self.dilation));
        let extents = &shape[shape.len() - self.rank..];
        let placed = |i: usize| Placement {
            extent: extents[i],
            low: low[i],
            size: sizes[i],
            step: steps[i],
            // There is no distance between the elements of a window of one.
            dilation: if sizes[i] == 1 { 1 } else { dilations[i] },
            count: 0,
        };
        (0..self.rank).map(|i| whole_windows(placed(i), low[i], self.ceil_mode)).collect()
    }
}

/// For metas: fails with the caller's code unless `input` has channels, elements, and perhaps a batch.
pub(super) fn check_shape(input: &TensorMeta, rank: usize, code: Precondition) -> Result<(), Failure> {
    let shape = input.shape();
    let fits = (rank + 1..=rank + 2).contains(&shape.len()) && !shape[shape.len() - rank - 1..].contains(&0);
    if fits {
        return Ok(());
    }
    Err(code.unmet(format_args!(
        "input has shape {shape:?}, expected {} or {} dimensions, none of them empty but that of a batch",
        rank + 1,
        rank + 2
    )))
}

/// The dimensions behind the first `leading` of `rank`.
pub(super) fn behind(leading: usize, rank: usize) -> Vec<usize> {
    (leading..rank).collect()
}

/// How many elements the windows of a dimension have, with those of the padding that are counted: one number if they
/// are the same, or one for each window.
enum Counts {
    Same(usize),
    Each { high: i64, low: i64 },
}

fn counts(placed: &Placement, count_include_pad: bool) -> Counts {
    let padding = if count_include_pad { placed.low as i64 } else { 0 };
    let (low, high) = (-padding, (placed.extent as i64).saturating_add(padding));
    let start = |window: usize| (window as i64).saturating_mul(placed.step as i64).saturating_sub(placed.low as i64);
    let whole = |window: usize| start(window) >= low && start(window).saturating_add(placed.size as i64) <= high;
    if placed.count == 0 || (whole(0) && whole(placed.count - 1)) {
        return Counts::Same(placed.size);
    }
    Counts::Each { high, low }
}

/// The means of windows: their sums, divided by the numbers of their elements or by `divisor`. Integers are divided
/// without a rest.
#[track_caller]
pub(super) fn means(input: Tensor, placed: &[Placement], count_include_pad: bool, divisor: Option<i64>) -> Tensor {
    let dtype = input.dtype();
    let wide = accumulating(input);
    let windows = windows_of(wide, placed, number(Scalar::Int(0), wide.dtype()));
    let leading = input.rank().saturating_sub(placed.len());
    let total = prims::sum(windows, behind(leading + placed.len(), windows.rank()));
    let shape = total.shape().to_vec();
    let divided = |total: Tensor, divisor: Operand<Tensor>| match dtype.is_floating() {
        true => prims::div(total, divisor),
        false => div::with(total, divisor).rounding_mode(Some(RoundingMode::Trunc)).call(),
    };
    let factor = |number: f64| match dtype.is_floating() {
        true => Scalar::Float(number),
        false => Scalar::Int(number as i64),
    };
    if let Some(divisor) = divisor {
        return cast(divided(total, Operand::Scalar(factor(divisor as f64))), dtype);
    }
    let (mut same, mut others) = (1f64, Vec::new());
    for (i, placed) in placed.iter().enumerate() {
        match counts(placed, count_include_pad) {
            Counts::Same(count) => same *= count as f64,
            Counts::Each { high, low } => {
                let counted = [placed.count];
                let start = positions_along(total, &counted, 0, -(placed.low as i64), placed.step as i64);
                let end = prims::minimum(prims::add(start, placed.size as i64), high);
                let count = cast(prims::sub(end, prims::maximum(start, low)), total.dtype());
                others.push(prims::broadcast_in_dim(count, &shape[leading..], [i]));
            }
        }
    }
    let Some(all) = others.into_iter().reduce(|a, b| prims::mul(a, b)) else {
        return cast(divided(total, Operand::Scalar(factor(same))), dtype);
    };
    let all = if same == 1.0 { all } else { prims::mul(all, factor(same)) };
    let spread = prims::broadcast_in_dim(all, &shape, behind(leading, shape.len()));
    cast(divided(total, Operand::Tensor(spread)), dtype)
}

/// The number that no element of the type is below.
pub(super) fn lowest(dtype: DType) -> Scalar {
    match dtype.limits() {
        Some((least, _)) => Scalar::Int(least),
        None if dtype == DType::Bool => Scalar::Bool(false),
        None => Scalar::Float(f64::NEG_INFINITY),
    }
}

/// Largest elements and their positions, row by row of the last dimensions of `input`, found one dimension after the
/// other from the last on: `along` finds them along one dimension. In a row the first of equal elements counts, and of
/// rows whose largest elements are equal the first, so the first in row-major order does.
#[track_caller]
pub(super) fn largest(input: Tensor, rank: usize, along: impl Fn(Tensor, usize) -> Tensor) -> (Tensor, Tensor) {
    let shape = input.shape().to_vec();
    let leading = shape.len() - rank;
    let (mut values, mut found, mut inner) = (input, None, 1i64);
    for dim in (leading..shape.len()).rev() {
        let at = along(values, dim - leading);
        found = Some(match found {
            None => at,
            Some(before) => prims::add(prims::mul(at, inner), prims::gather(before, dim, at)),
        });
        inner *= shape[dim] as i64;
        if dim > leading {
            values = prims::gather(values, dim, at);
        }
    }
    let Some(found) = found else { return (input, input) };
    let places = found.shape().to_vec();
    let line = |shape: &[usize]| [&shape[..leading], &[shape[leading..].iter().product::<usize>()]].concat();
    let picked = prims::gather(read_as(input, &line(&shape)), leading, read_as(found, &line(&places)));
    (read_as(picked, &places), found)
}

/// Largest elements of windows of images, [N, C, L1, ...] or [C, L1, ...], and their positions.
#[track_caller]
pub(super) fn maxima(input: Tensor, placed: &[Placement]) -> (Tensor, Tensor) {
    let shape = input.shape().to_vec();
    let batched = shape.len() == placed.len() + 2;
    let images = if batched { input } else { read_as(input, &[&[1], &shape[..]].concat()) };
    let column = |of: fn(&Placement) -> usize| placed.iter().map(of).collect::<Vec<_>>();
    let (counts, sizes, steps) = (column(|p| p.count), column(|p| p.size), column(|p| p.step));
    let (values, positions) = max_of_windows(images, counts, sizes, steps, column(|p| p.low), column(|p| p.dilation));
    let own = |of: Tensor| if batched { of } else { read_as(of, &of.shape().to_vec()[1..]) };
    (own(values), own(positions))
}

/// Positions along dimension `dim` of the largest elements of windows along it.
#[track_caller]
pub(super) fn largest_of_windows(values: Tensor, dim: usize, placed: &Placement) -> Tensor {
    let windows = windows_of(moved_last(values, dim), &[*placed], lowest(values.dtype()));
    let best = moved_from_last(prims::argmax(windows, windows.rank() - 1), dim);
    let shape = best.shape().to_vec();
    let inside = if placed.dilation == 1 { best } else { prims::mul(best, placed.dilation as i64) };
    let first = positions_along(values, &shape, dim, -(placed.low as i64), placed.step as i64);
    let mut at = prims::add(first, inside);
    // Padding is chosen only where every element is as low: then the first element counts.
    if placed.low > 0 {
        at = match placed.dilation {
            1 => prims::maximum(at, 0),
            dilation => prims::select(prims::lt(at, 0), prims::remainder(at, dilation as i64), at),
        };
    }
    if placed.high() > 0 || placed.low > 0 { prims::minimum(at, placed.extent as i64 - 1) } else { at }
}

/// For references: the elements of a window of the pool at `at`, with their positions in row-major order, and how many
/// elements it has with padding.
pub(super) fn window(pool: &Pool<'_>, shape: &[usize], at: &[usize]) -> (Vec<Vec<usize>>, usize) {
    let of = |list: &[usize], i: usize| list[i % list.len()];
    let leading = shape.len() - pool.rank;
    let (mut places, mut padded) = (vec![at[..leading].to_vec()], 1);
    for i in 0..pool.rank {
        let (extent, low) = (shape[leading + i] as i64, of(pool.padding, i) as i64);
        let stride = pool.stride.filter(|stride| !stride.is_empty()).unwrap_or(pool.kernel_size);
        let start = (at[leading + i] * of(stride, i)) as i64 - low;
        let inside = (0..of(pool.kernel_size, i)).map(|k| start + (k * of(pool.dilation, i)) as i64);
        let inside: Vec<i64> = inside.filter(|place| (0..extent).contains(place)).collect();
        padded *= (start + of(pool.kernel_size, i) as i64).min(extent + low) - start;
        let longer = |place: &Vec<usize>| -> Vec<Vec<usize>> {
            inside.iter().map(|at| [&place[..], &[*at as usize]].concat()).collect()
        };
        places = places.iter().flat_map(longer).collect();
    }
    (places, padded as usize)
}

/// For references: a number of each window of the pool, with PyTorch's extents of the result.
pub(super) fn of_windows<T>(
    input: &ArrayD<f64>,
    pool: &Pool<'_>,
    compute: impl Fn(&[Vec<usize>], usize) -> T,
) -> ArrayD<T> {
    let of = |list: &[usize], i: usize| list[i % list.len()];
    let leading = input.ndim() - pool.rank;
    let stride = pool.stride.filter(|stride| !stride.is_empty()).unwrap_or(pool.kernel_size);
    let extents = (0..pool.rank).map(|i| {
        let (extent, low) = (input.shape()[leading + i] as i64, of(pool.padding, i) as i64);
        let covered = ((of(pool.kernel_size, i) - 1) * of(pool.dilation, i) + 1) as i64;
        let (step, last) = (of(stride, i) as i64, extent + 2 * low - covered);
        // Windows start up to `last`; in ceil mode one more if it starts before the padding behind.
        let inside = |start: &i64| *start <= last || (pool.ceil_mode && *start < last + step && *start < extent + low);
        (0..).map(|window| window * step).take_while(inside).count()
    });
    let shape: Vec<usize> = input.shape()[..leading].iter().copied().chain(extents).collect();
    ArrayD::from_shape_fn(IxDyn(&shape), |at| {
        let (places, padded) = window(pool, input.shape(), ndarray::Dimension::slice(&at));
        compute(&places, padded)
    })
}

/// For references: the first of the largest elements, in row-major order; the first NaN if there is one.
pub(super) fn first_largest(input: &ArrayD<f64>, places: &[Vec<usize>]) -> usize {
    let value = |i: usize| input[places[i].as_slice()];
    let better = |best: usize, i: usize| match value(best).is_nan() || value(i) <= value(best) {
        true => best,
        false => i,
    };
    (1..places.len()).fold(0, better)
}

/// For references: the position of an element in row-major order of the last `rank` dimensions.
pub(super) fn flat(shape: &[usize], place: &[usize], rank: usize) -> i64 {
    let leading = shape.len() - rank;
    (leading..shape.len()).fold(0, |at, i| at * shape[i] as i64 + place[i] as i64)
}

/// For references: the elements at places, and their positions in row-major order of the last `rank` dimensions.
pub(super) fn picked(
    input: &ReferenceTensor,
    best: &ArrayD<Vec<usize>>,
    rank: usize,
) -> (ReferenceTensor, ArrayD<i64>) {
    let places = best.mapv(|place| flat(input.shape(), &place, rank));
    let values = match input.dtype().is_floating() {
        true => {
            let values = best.mapv(|place| input.floats()[place.as_slice()]);
            ReferenceTensor::from_floats(input.dtype(), values)
        }
        false => {
            let values = best.mapv(|place| input.integers()[place.as_slice()]);
            ReferenceTensor::from_integers(input.dtype(), values)
        }
    };
    (values, places)
}
