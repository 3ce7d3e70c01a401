//! Pools of one to three dimensions: means, largest elements and norms of windows. Means of bf16 and f16 are computed
//! in f32.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::argument::{Operand, Scalar};
use fulgurite_runtime::rules::{ArrayD, Failure, IxDyn, Precondition, ReferenceTensor};
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::placement::{
    Placement, addressable, as_floats, fits_dimensions, for_each, last, moved_from_last, moved_last, positions_along,
    positive_for_each, whole_windows, windows_of,
};
use crate::core::promotion::{accumulating, cast, number};
use crate::core::{RoundingMode, div, mul, pow, read_as};
use crate::nn::relu;
use crate::prims;

/// What says where the windows of a pool are; lists have one number, or one for each dimension.
#[derive(Clone, Copy)]
struct Pool<'a> {
    rank: usize,
    kernel_size: &'a [usize],
    /// The size of windows if it is absent or empty.
    stride: Option<&'a [usize]>,
    padding: &'a [usize],
    dilation: &'a [usize],
    ceil_mode: bool,
}

impl Pool<'_> {
    /// For metas: fails with one of the caller's codes if there are no such windows.
    fn check(&self, input: &TensorMeta, codes: [Precondition; 5]) -> Result<(), Failure> {
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
    fn windows(&self, shape: &[usize]) -> Vec<Placement> {
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
fn check_shape(input: &TensorMeta, rank: usize, code: Precondition) -> Result<(), Failure> {
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
fn behind(leading: usize, rank: usize) -> Vec<usize> {
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
fn means(input: Tensor, placed: &[Placement], count_include_pad: bool, divisor: Option<i64>) -> Tensor {
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
fn lowest(dtype: DType) -> Scalar {
    match dtype {
        DType::I64 => Scalar::Int(i64::MIN),
        DType::I32 => Scalar::Int(i32::MIN.into()),
        DType::U8 | DType::Bool => number(Scalar::Int(0), dtype),
        _ => Scalar::Float(f64::NEG_INFINITY),
    }
}

/// Largest elements and their positions, row by row of the last dimensions of `input`, found one dimension after the
/// other from the last on: `along` finds them along one dimension. In a row the first of equal elements counts, and of
/// rows whose largest elements are equal the first, so the first in row-major order does.
#[track_caller]
fn largest(input: Tensor, rank: usize, along: impl Fn(Tensor, usize) -> Tensor) -> (Tensor, Tensor) {
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

/// Positions along dimension `dim` of the largest elements of windows along it.
#[track_caller]
fn largest_of_windows(values: Tensor, dim: usize, placed: &Placement) -> Tensor {
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
fn window(pool: &Pool<'_>, shape: &[usize], at: &[usize]) -> (Vec<Vec<usize>>, usize) {
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
fn of_windows<T>(input: &ArrayD<f64>, pool: &Pool<'_>, compute: impl Fn(&[Vec<usize>], usize) -> T) -> ArrayD<T> {
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
fn first_largest(input: &ArrayD<f64>, places: &[Vec<usize>]) -> usize {
    let value = |i: usize| input[places[i].as_slice()];
    let better = |best: usize, i: usize| match value(best).is_nan() || value(i) <= value(best) {
        true => best,
        false => i,
    };
    (1..places.len()).fold(0, better)
}

/// For references: the position of an element in row-major order of the last `rank` dimensions.
fn flat(shape: &[usize], place: &[usize], rank: usize) -> i64 {
    let leading = shape.len() - rank;
    (leading..shape.len()).fold(0, |at, i| at * shape[i] as i64 + place[i] as i64)
}

// Declares means of windows.
operators! {
    #[operator(torch = $torch, dtypes(i64, bf16, f16, f32, f64))]
    pub mod $name {
        fn $name(
            input: Tensor<Number>,
            kernel_size: Vec<usize>,
            #[default(None)] stride: Option<Vec<usize>>,
            #[default(vec![0])] padding: Vec<usize>,
            #[default(false)] ceil_mode: bool,
            #[default(true)] count_include_pad: bool,
            #[default(None)] divisor_override: Option<i64>,
        ) -> Tensor;

        fn requires(
            Args { input, kernel_size, stride, padding, ceil_mode, divisor_override, .. }: Args<&TensorMeta>,
        ) -> Result<()> {
            let pool = pool(&kernel_size, stride.as_deref(), &padding, ceil_mode);
            pool.check(input, [Code::InputShape, Code::Lists, Code::Positive, Code::HalfPadding, Code::NoWindow])?;
            require!(divisor_override != Some(0), Divisor, "divisor_override is 0, expected another number");
            Ok(())
        }

        fn pool<'a>(
            kernel_size: &'a [usize],
            stride: Option<&'a [usize]>,
            padding: &'a [usize],
            ceil_mode: bool,
        ) -> Pool<'a> {
            Pool { rank: $rank, kernel_size, stride, padding, dilation: &[1], ceil_mode }
        }

        fn decomposition(
            Args { input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override }: Args<Tensor>,
        ) -> Tensor {
            let placed = pool(&kernel_size, stride.as_deref(), &padding, ceil_mode).windows(&input.shape());
            super::means(input, &placed, count_include_pad, divisor_override)
        }

        fn reference(
            Args { input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override }: Args<
                &ReferenceTensor,
            >,
        ) -> ReferenceTensor {
            let pool = pool(&kernel_size, stride.as_deref(), &padding, ceil_mode);
            let values = as_floats(input);
            let means = super::of_windows(&values, &pool, |places, padded| {
                let counted = if count_include_pad { padded } else { places.len() };
                let divisor = divisor_override.unwrap_or(counted as i64);
                places.iter().map(|place| values[place.as_slice()]).sum::<f64>() / divisor as f64
            });
            match input.dtype().is_floating() {
                true => ReferenceTensor::from_floats(input.dtype(), means),
                false => ReferenceTensor::from_integers(input.dtype(), means.mapv(|x| x as i64)),
            }
        }

        fn samples(s: &mut Samples) {
            let some = |extents: [usize; 3]| last($rank, extents);
            let shape = |leading: &[usize]| [leading, &some([3, 4, 5])].concat();
            s.case(with(s.normal(shape(&[2, 3])), [2]));
            s.case(with(s.normal(shape(&[3])), some([1, 2, 3])).stride(some([1, 1, 2])).padding(some([0, 1, 1])));
            let cut = |s: &Samples| with(s.normal(shape(&[1, 2])), [2]).padding([1]).ceil_mode(true);
            s.case(cut(s).stride([2]).count_include_pad(false));
            s.case(cut(s).stride([2]));
            s.case(cut(s).stride([]).divisor_override(-3));
            s.case(with(s.normal(shape(&[0, 2])), [3]).stride([1]));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            let plain = |kernel: &[usize]| with(e.normal(shape(&[1, 2])), kernel);
            e.case(InputShape, with(e.normal(shape(&[])), [1]), "none of them empty but that of a batch");
            e.case(InputShape, with(e.normal(shape(&[1, 1, 2])), [1]), "input has shape [1, 1, 2, 4");
            e.case(InputShape, with(e.normal(shape(&[2, 0])), [1]), "input has shape [2, 0, 4");
            e.case(Lists, plain(&[1; 4]), "kernel_size is [1, 1, 1, 1], expected one number");
            e.case(Lists, plain(&[1]).stride([1; 4]), "stride is [1, 1, 1, 1]");
            e.case(Lists, plain(&[1]).padding([0; 4]), "padding is [0, 0, 0, 0]");
            e.case(Positive, plain(&[0]), "kernel_size is [0]");
            e.case(Positive, plain(&[1]).stride([0]), "stride is [0]");
            e.case(HalfPadding, plain(&[3]).padding([2]), "padding is [2], expected at most half of kernel_size [3]");
            e.case(NoWindow, plain(&[5]), "there is no window");
            e.case(Divisor, plain(&[2]).divisor_override(0), "divisor_override is 0");
        }
    }

    table($name, $torch, $rank) {
        /// The means of windows of `input` [N, C, L] (or [C, L]), `stride` apart (their size if absent). Zeros of the
        /// padding count unless `count_include_pad` is false; sums are divided by `divisor_override` if there is one,
        /// which PyTorch has for more dimensions only. With `ceil_mode` a last window may reach beyond the end; what is
        /// beyond the padding does not count. Quotients of integers are rounded towards zero.
        avg_pool1d, "nn.functional.avg_pool1d", 1;
        /// As [`mod@avg_pool1d`], of two dimensions: [N, C, H, W] (or [C, H, W]).
        avg_pool2d, "nn.functional.avg_pool2d", 2;
        /// As [`mod@avg_pool1d`], of three dimensions: [N, C, D, H, W] (or [C, D, H, W]).
        avg_pool3d, "nn.functional.avg_pool3d", 3;
    }
}

// Declares largest elements of windows, with their positions.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        #[results(values, indices)]
        fn $name(
            input: Tensor<Number>,
            kernel_size: Vec<usize>,
            #[default(None)] stride: Option<Vec<usize>>,
            #[default(vec![0])] padding: Vec<usize>,
            #[default(vec![1])] dilation: Vec<usize>,
            #[default(false)] ceil_mode: bool,
        ) -> (Tensor, Tensor);

        fn requires(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<&TensorMeta>,
        ) -> Result<()> {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            pool.check(input, [Code::InputShape, Code::Lists, Code::Positive, Code::HalfPadding, Code::NoWindow])
        }

        fn decomposition(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<Tensor>,
        ) -> (Tensor, Tensor) {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            let (placed, leading) = (pool.windows(&input.shape()), input.rank() - $rank);
            super::largest(input, $rank, |values, i| super::largest_of_windows(values, leading + i, &placed[i]))
        }

        fn reference(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<&ReferenceTensor>,
        ) -> (ReferenceTensor, ArrayD<i64>) {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            let values = as_floats(input);
            let best = super::of_windows(&values, &pool, |places, _| {
                places[super::first_largest(&values, places)].clone()
            });
            super::picked(input, &best, $rank)
        }

        fn samples(s: &mut Samples) {
            let some = |extents: [usize; 3]| last($rank, extents);
            let shape = |leading: &[usize]| [leading, &some([3, 4, 6])].concat();
            s.case(with(s.normal(shape(&[2, 3])), [2]));
            s.case(with(s.normal(shape(&[3])), some([1, 2, 3])).stride(some([1, 1, 2])).padding(some([0, 1, 1])));
            s.case(with(s.normal(shape(&[1, 2])), [2]).stride([2]).padding([1]).ceil_mode(true));
            s.case(with(s.normal(shape(&[1, 2])), some([1, 2, 3])).stride([]).dilation(some([1, 2, 2])).padding([0]));
            s.case(with(s.normal(shape(&[0, 2])), [3]).stride([1]));
            let count = some([3, 4, 6]).iter().product::<usize>();
            let ties: Vec<f64> = (0..count).map(|i| (i * 7 % 3) as f64).collect();
            let tied = with(s.values(shape(&[1]), ties), [3]).stride([1]).padding([1]);
            s.case(tied).forward_only("ties");
            if s.dtype().is_floating() {
                let low: Vec<f64> = (0..count).map(|i| if i == 4 { f64::NAN } else { f64::NEG_INFINITY }).collect();
                let low = with(s.values(shape(&[1]), low), [2]).stride([1]).padding([1]);
                s.case(low).forward_only("special values");
            }
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            let plain = |kernel: &[usize]| with(e.normal(shape(&[1, 2])), kernel);
            e.case(InputShape, with(e.normal(shape(&[])), [1]), "none of them empty but that of a batch");
            e.case(InputShape, with(e.normal(shape(&[2, 0])), [1]), "input has shape [2, 0, 4");
            e.case(Lists, plain(&[1; 4]), "kernel_size is [1, 1, 1, 1], expected one number");
            e.case(Lists, plain(&[1]).stride([1; 4]), "stride is [1, 1, 1, 1]");
            e.case(Lists, plain(&[1]).padding([0; 4]), "padding is [0, 0, 0, 0]");
            e.case(Lists, plain(&[1]).dilation([1; 4]), "dilation is [1, 1, 1, 1]");
            e.case(Positive, plain(&[0]), "kernel_size is [0]");
            e.case(Positive, plain(&[1]).stride([0]), "stride is [0]");
            e.case(Positive, plain(&[1]).dilation([0]), "dilation is [0]");
            e.case(HalfPadding, plain(&[3]).padding([2]), "padding is [2], expected at most half of kernel_size [3]");
            e.case(NoWindow, plain(&[5]), "there is no window");
        }
    }

    table($name, $torch, $rank) {
        /// The largest elements of windows of `input` [N, C, L] (or [C, L]), `stride` apart (their size if absent), and
        /// their positions in `input`: of equal ones the first. If one is NaN it is chosen, the first of several, where
        /// PyTorch's is the last. Padding is never chosen.
        /// With `ceil_mode` a last window may reach beyond the end.
        max_pool1d_with_indices, "nn.functional.max_pool1d_with_indices", 1;
        /// As [`mod@max_pool1d_with_indices`], of two dimensions: [N, C, H, W] (or [C, H, W]). Positions are those in
        /// H · W elements.
        max_pool2d_with_indices, "nn.functional.max_pool2d_with_indices", 2;
        /// As [`mod@max_pool1d_with_indices`], of three dimensions: [N, C, D, H, W] (or [C, D, H, W]). Positions are
        /// those in D · H · W elements.
        max_pool3d_with_indices, "nn.functional.max_pool3d_with_indices", 3;
    }
}

/// For references: the elements at places, and their positions in row-major order of the last `rank` dimensions.
fn picked(input: &ReferenceTensor, best: &ArrayD<Vec<usize>>, rank: usize) -> (ReferenceTensor, ArrayD<i64>) {
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

// Declares largest elements of windows.
operators! {
    #[operator(torch = $torch, $dtypes)]
    pub mod $name {
        fn $name(
            input: Tensor<Number>,
            kernel_size: Vec<usize>,
            #[default(None)] stride: Option<Vec<usize>>,
            #[default(vec![0])] padding: Vec<usize>,
            #[default(vec![1])] dilation: Vec<usize>,
            #[default(false)] ceil_mode: bool,
        ) -> Tensor;

        fn requires(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<&TensorMeta>,
        ) -> Result<()> {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            pool.check(input, [Code::InputShape, Code::Lists, Code::Positive, Code::HalfPadding, Code::NoWindow])
        }

        fn decomposition(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<Tensor>,
        ) -> Tensor {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            let (placed, leading) = (pool.windows(&input.shape()), input.rank() - $rank);
            super::largest(input, $rank, |values, i| super::largest_of_windows(values, leading + i, &placed[i])).0
        }

        fn reference(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<&ReferenceTensor>,
        ) -> ReferenceTensor {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            let values = as_floats(input);
            let best = super::of_windows(&values, &pool, |places, _| {
                places[super::first_largest(&values, places)].clone()
            });
            super::picked(input, &best, $rank).0
        }

        fn samples(s: &mut Samples) {
            let some = |extents: [usize; 3]| last($rank, extents);
            let shape = |leading: &[usize]| [leading, &some([3, 4, 6])].concat();
            s.case(with(s.normal(shape(&[3])), some([1, 2, 3])).stride(some([1, 1, 2])).padding(some([0, 1, 1])));
            s.case(with(s.normal(shape(&[1, 2])), [2]).stride([2]).padding([1]).ceil_mode(true));
            s.case(with(s.normal(shape(&[1, 2])), some([1, 2, 3])).dilation(some([1, 2, 2])));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            let plain = |kernel: &[usize]| with(e.normal(shape(&[1, 2])), kernel);
            e.case(InputShape, with(e.normal(shape(&[])), [1]), "none of them empty but that of a batch");
            e.case(Lists, plain(&[1; 4]), "kernel_size is [1, 1, 1, 1], expected one number");
            e.case(Positive, plain(&[1]).stride([0]), "stride is [0]");
            e.case(HalfPadding, plain(&[3]).padding([2]), "padding is [2], expected at most half of kernel_size [3]");
            e.case(NoWindow, plain(&[5]), "there is no window");
        }
    }

    table($name, $torch, $dtypes, $rank) {
        /// The values of [`mod@max_pool1d_with_indices`]. The gradient of a window goes to the first of its largest
        /// elements.
        max_pool1d, "nn.functional.max_pool1d", dtypes(bf16, f16, f32, f64), 1;
        /// The values of [`mod@max_pool2d_with_indices`]. The gradient of a window goes to the first of its largest
        /// elements.
        max_pool2d, "nn.functional.max_pool2d", _, 2;
        /// The values of [`mod@max_pool3d_with_indices`]. The gradient of a window goes to the first of its largest
        /// elements.
        max_pool3d, "nn.functional.max_pool3d", _, 3;
    }
}

/// A dimension of `extent` elements in `count` parts: part `i` from `⌊i · extent / count⌋` to
/// `⌈(i + 1) · extent / count⌉`. Where `count` divides `extent` they are windows side by side.
#[derive(Clone, Copy)]
struct Parts {
    extent: usize,
    count: usize,
}

impl Parts {
    /// Of the last dimensions; a size that is absent is the dimension's.
    fn all(shape: &[usize], sizes: &[Option<usize>], rank: usize) -> Vec<Parts> {
        let sizes = for_each(sizes, rank).unwrap_or_else(|| vec![None; rank]);
        let extents = &shape[shape.len() - rank..];
        (0..rank).map(|i| Parts { extent: extents[i], count: sizes[i].unwrap_or(extents[i]) }).collect()
    }

    /// The windows that the parts are, if they are equally large.
    fn windows(self) -> Option<Placement> {
        let Parts { extent, count } = self;
        let size = extent.checked_div(count).unwrap_or(1);
        let equal = count == 0 || extent.is_multiple_of(count);
        equal.then_some(Placement { extent, low: 0, size, step: size, dilation: 1, count })
    }

    /// The most elements of a part.
    fn most(self) -> usize {
        (self.extent / self.count.max(1)).saturating_add(2).min(self.extent)
    }

    /// The starts of the parts, and their numbers of elements.
    #[track_caller]
    fn starts(self, like: Tensor) -> [Tensor; 2] {
        let (shape, extent, count) = ([self.count], self.extent as i64, self.count as i64);
        let quotient = |numerator: Tensor| div::with(numerator, count).rounding_mode(Some(RoundingMode::Floor)).call();
        let start = quotient(positions_along(like, &shape, 0, 0, extent));
        let end = quotient(positions_along(like, &shape, 0, extent.saturating_add(count - 1), extent));
        [start, prims::sub(end, start)]
    }

    /// The elements of the parts of the last dimension, [..., count, most]: behind its last element a part has that
    /// element again.
    #[track_caller]
    fn elements(self, last: Tensor, [start, length]: [Tensor; 2]) -> Tensor {
        let grid = [self.count, self.most()];
        let inside = prims::minimum(
            positions_along(last, &grid, 1, 0, 1),
            prims::broadcast_in_dim(prims::sub(length, 1), grid, [0]),
        );
        let places = prims::add(prims::broadcast_in_dim(start, grid, [0]), inside);
        let shape = last.shape().to_vec();
        let leading = &shape[..shape.len() - 1];
        let taken = prims::index_select(last, leading.len(), read_as(places, &[grid[0].saturating_mul(grid[1])]));
        prims::reshape(taken, [leading, &grid].concat())
    }
}

/// For metas: fails with one of the caller's codes unless `sizes` has a number for each dimension, and memory holds the
/// elements of all parts.
fn check_parts(
    input: &TensorMeta,
    sizes: &[Option<usize>],
    rank: usize,
    [length, memory]: [Precondition; 2],
) -> Result<(), Failure> {
    fits_dimensions(("output_size", sizes), rank, length)?;
    let shape = input.shape();
    let parts = Parts::all(shape, sizes, rank).into_iter();
    let longest: Vec<usize> =
        parts.map(|parts| parts.count.saturating_mul(parts.most()).max(parts.count).max(parts.extent)).collect();
    if addressable(&[&shape[..shape.len() - rank], &longest].concat()) {
        return Ok(());
    }
    Err(memory.unmet(format_args!(
        "output_size is {sizes:?}, input has shape {shape:?}: the parts are larger than any memory"
    )))
}

/// The means of the parts of dimension `dim`.
#[track_caller]
fn means_of_parts(values: Tensor, dim: usize, parts: Parts) -> Tensor {
    let last = moved_last(values, dim);
    if let Some(placed) = parts.windows() {
        return moved_from_last(means(last, &[placed], true, None), dim);
    }
    let [start, length] = parts.starts(values);
    let elements = parts.elements(last, [start, length]);
    let (shape, rank) = (elements.shape().to_vec(), elements.rank());
    let grid = &shape[rank - 2..];
    let own = prims::lt(positions_along(values, grid, 1, 0, 1), prims::broadcast_in_dim(length, grid, [0]));
    let own = prims::broadcast_in_dim(own, &shape, [rank - 2, rank - 1]);
    let total = prims::sum(prims::select(own, elements, 0.0), [rank - 1]);
    let counts = prims::broadcast_in_dim(cast(length, total.dtype()), total.shape(), [rank - 2]);
    moved_from_last(prims::div(total, counts), dim)
}

/// Positions along dimension `dim` of the largest elements of its parts.
#[track_caller]
fn largest_of_parts(values: Tensor, dim: usize, parts: Parts) -> Tensor {
    if let Some(placed) = parts.windows() {
        return largest_of_windows(values, dim, &placed);
    }
    let [start, length] = parts.starts(values);
    let elements = parts.elements(moved_last(values, dim), [start, length]);
    // An element that is there again is not the first of equal ones.
    let best = moved_from_last(prims::argmax(elements, elements.rank() - 1), dim);
    prims::add(best, prims::broadcast_in_dim(start, best.shape(), [dim]))
}

/// For references: the places of the elements of each part, in row-major order.
fn of_parts<T>(
    input: &ArrayD<f64>,
    sizes: &[Option<usize>],
    rank: usize,
    compute: impl Fn(&[Vec<usize>]) -> T,
) -> ArrayD<T> {
    let leading = input.ndim() - rank;
    let extents = &input.shape()[leading..];
    let counts: Vec<usize> = (0..rank).map(|i| sizes[i % sizes.len()].unwrap_or(extents[i])).collect();
    let shape = [&input.shape()[..leading], &counts[..]].concat();
    ArrayD::from_shape_fn(IxDyn(&shape), |at| {
        let at = ndarray::Dimension::slice(&at);
        let mut places = vec![at[..leading].to_vec()];
        for ((&extent, &count), &part) in extents.iter().zip(&counts).zip(&at[leading..]) {
            let inside = part * extent / count..((part + 1) * extent).div_ceil(count);
            let longer = |place: &Vec<usize>| -> Vec<Vec<usize>> {
                inside.clone().map(|at| [&place[..], &[at]].concat()).collect()
            };
            places = places.iter().flat_map(longer).collect();
        }
        compute(&places)
    })
}

// Declares means of parts.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor<Floating>, output_size: Vec<Option<usize>>) -> Tensor;

        fn requires(input: &TensorMeta, output_size: &[Option<usize>]) -> Result<()> {
            super::check_shape(input, $rank, Code::InputShape)?;
            super::check_parts(input, output_size, $rank, [Code::OutputSize, Code::MemorySize])
        }

        fn decomposition(input: Tensor, output_size: &[Option<usize>]) -> Tensor {
            let parts = Parts::all(&input.shape(), output_size, $rank);
            let windows: Option<Vec<Placement>> = parts.iter().map(|parts| parts.windows()).collect();
            if let Some(placed) = windows {
                return super::means(input, &placed, true, None);
            }
            let (wide, leading) = (accumulating(input), input.rank() - $rank);
            let parts = parts.into_iter().enumerate();
            cast(parts.fold(wide, |all, (i, parts)| super::means_of_parts(all, leading + i, parts)), input.dtype())
        }

        fn reference(input: &ArrayD<f64>, output_size: &[Option<usize>]) -> ArrayD<f64> {
            super::of_parts(input, output_size, $rank, |places| {
                places.iter().map(|place| input[place.as_slice()]).sum::<f64>() / places.len() as f64
            })
        }

        fn samples(s: &mut Samples) {
            let shape = |leading: &[usize]| [leading, &last($rank, [3, 4, 6])].concat();
            let some = |sizes: [Option<usize>; 3]| last($rank, sizes);
            s.case(with(s.normal(shape(&[2, 3])), some([Some(1), Some(2), Some(3)])));
            s.case(with(s.normal(shape(&[3])), some([Some(2), None, Some(4)])));
            s.case(with(s.normal(shape(&[1, 2])), [Some(5)]));
            s.case(with(s.normal(shape(&[1, 2])), [Some(0)]));
            s.case(with(s.normal(shape(&[0, 2])), [None]));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            e.case(InputShape, with(e.normal(shape(&[])), [Some(1)]), "none of them empty but that of a batch");
            e.case(OutputSize, with(e.normal(shape(&[2])), [None; 4]), "expected one number");
            let many = with(e.normal(shape(&[2])), [Some(1usize << 50)]);
            e.case(MemorySize, many, "the parts are larger than any memory");
        }
    }

    table($name, $torch, $rank) {
        /// The means of `output_size` parts of `input` [N, C, L] (or [C, L]); part i from `⌊i L / size⌋` to
        /// `⌈(i + 1) L / size⌉`. A size that is absent is L.
        adaptive_avg_pool1d, "nn.functional.adaptive_avg_pool1d", 1;
        /// As [`mod@adaptive_avg_pool1d`], of two dimensions: [N, C, H, W] (or [C, H, W]).
        adaptive_avg_pool2d, "nn.functional.adaptive_avg_pool2d", 2;
        /// As [`mod@adaptive_avg_pool1d`], of three dimensions: [N, C, D, H, W] (or [C, D, H, W]).
        adaptive_avg_pool3d, "nn.functional.adaptive_avg_pool3d", 3;
    }
}

// Declares largest elements of parts, with their positions.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        #[results(values, indices)]
        fn $name(input: Tensor<Floating>, output_size: Vec<Option<usize>>) -> (Tensor, Tensor);

        fn requires(input: &TensorMeta, output_size: &[Option<usize>]) -> Result<()> {
            super::check_shape(input, $rank, Code::InputShape)?;
            super::check_parts(input, output_size, $rank, [Code::OutputSize, Code::MemorySize])
        }

        fn decomposition(input: Tensor, output_size: &[Option<usize>]) -> (Tensor, Tensor) {
            let parts = Parts::all(&input.shape(), output_size, $rank);
            let leading = input.rank() - $rank;
            super::largest(input, $rank, |values, i| super::largest_of_parts(values, leading + i, parts[i]))
        }

        fn reference(input: &ReferenceTensor, output_size: &[Option<usize>]) -> (ReferenceTensor, ArrayD<i64>) {
            let best = super::of_parts(input.floats(), output_size, $rank, |places| {
                places[super::first_largest(input.floats(), places)].clone()
            });
            super::picked(input, &best, $rank)
        }

        fn samples(s: &mut Samples) {
            let shape = |leading: &[usize]| [leading, &last($rank, [3, 4, 6])].concat();
            let some = |sizes: [Option<usize>; 3]| last($rank, sizes);
            s.case(with(s.normal(shape(&[2, 3])), some([Some(1), Some(2), Some(3)])));
            s.case(with(s.normal(shape(&[3])), some([Some(2), None, Some(4)])));
            s.case(with(s.normal(shape(&[1, 2])), [Some(5)]));
            s.case(with(s.normal(shape(&[0, 2])), [None]));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            e.case(InputShape, with(e.normal(shape(&[])), [Some(1)]), "none of them empty but that of a batch");
            e.case(OutputSize, with(e.normal(shape(&[2])), [None; 4]), "expected one number");
            let many = with(e.normal(shape(&[2])), [Some(1usize << 50)]);
            e.case(MemorySize, many, "the parts are larger than any memory");
        }
    }

    table($name, $torch, $rank) {
        /// The largest elements of the parts of [`mod@adaptive_avg_pool1d`], and their positions: of equal ones the
        /// first; the first NaN if there is one.
        adaptive_max_pool1d_with_indices, "nn.functional.adaptive_max_pool1d_with_indices", 1;
        /// As [`mod@adaptive_max_pool1d_with_indices`], of two dimensions. Positions are those in H · W elements.
        adaptive_max_pool2d_with_indices, "nn.functional.adaptive_max_pool2d_with_indices", 2;
        /// As [`mod@adaptive_max_pool1d_with_indices`], of three dimensions. Positions are those in D · H · W elements.
        adaptive_max_pool3d_with_indices, "nn.functional.adaptive_max_pool3d_with_indices", 3;
    }
}

// Declares largest elements of parts.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor<Floating>, output_size: Vec<Option<usize>>) -> Tensor;

        fn requires(input: &TensorMeta, output_size: &[Option<usize>]) -> Result<()> {
            super::check_shape(input, $rank, Code::InputShape)?;
            super::check_parts(input, output_size, $rank, [Code::OutputSize, Code::MemorySize])
        }

        fn decomposition(input: Tensor, output_size: &[Option<usize>]) -> Tensor {
            let parts = Parts::all(&input.shape(), output_size, $rank);
            let leading = input.rank() - $rank;
            super::largest(input, $rank, |values, i| super::largest_of_parts(values, leading + i, parts[i])).0
        }

        fn reference(input: &ReferenceTensor, output_size: &[Option<usize>]) -> ReferenceTensor {
            let best = super::of_parts(input.floats(), output_size, $rank, |places| {
                places[super::first_largest(input.floats(), places)].clone()
            });
            super::picked(input, &best, $rank).0
        }

        fn samples(s: &mut Samples) {
            let shape = |leading: &[usize]| [leading, &last($rank, [3, 4, 6])].concat();
            let some = |sizes: [Option<usize>; 3]| last($rank, sizes);
            s.case(with(s.normal(shape(&[2, 3])), some([Some(1), Some(2), Some(3)])));
            s.case(with(s.normal(shape(&[3])), some([Some(2), None, Some(4)])));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            e.case(InputShape, with(e.normal(shape(&[])), [Some(1)]), "none of them empty but that of a batch");
            e.case(OutputSize, with(e.normal(shape(&[2])), [None; 4]), "expected one number");
            let many = with(e.normal(shape(&[2])), [Some(1usize << 50)]);
            e.case(MemorySize, many, "the parts are larger than any memory");
        }
    }

    table($name, $torch, $rank) {
        /// The values of [`mod@adaptive_max_pool1d_with_indices`].
        adaptive_max_pool1d, "nn.functional.adaptive_max_pool1d", 1;
        /// The values of [`mod@adaptive_max_pool2d_with_indices`].
        adaptive_max_pool2d, "nn.functional.adaptive_max_pool2d", 2;
        /// The values of [`mod@adaptive_max_pool3d_with_indices`].
        adaptive_max_pool3d, "nn.functional.adaptive_max_pool3d", 3;
    }
}

// Declares norms of windows.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(
            input: Tensor<Floating>,
            norm_type: f64,
            kernel_size: Vec<usize>,
            #[default(None)] stride: Option<Vec<usize>>,
            #[default(false)] ceil_mode: bool,
        ) -> Tensor;

        fn requires(
            input: &TensorMeta,
            norm_type: f64,
            kernel_size: &[usize],
            stride: Option<&[usize]>,
            ceil_mode: bool,
        ) -> Result<()> {
            let pool = Pool { rank: $rank, kernel_size, stride, padding: &[0], dilation: &[1], ceil_mode };
            pool.check(input, [Code::InputShape, Code::Lists, Code::Positive, Code::Lists, Code::NoWindow])?;
            require!(norm_type != 0.0, NormType, "norm_type is 0, expected another number");
            Ok(())
        }

        fn decomposition(
            input: Tensor,
            norm_type: f64,
            kernel_size: &[usize],
            stride: Option<&[usize]>,
            ceil_mode: bool,
        ) -> Tensor {
            let pool = Pool { rank: $rank, kernel_size, stride, padding: &[0], dilation: &[1], ceil_mode };
            let placed = pool.windows(&input.shape());
            let elements: f64 = placed.iter().map(|placed| placed.size as f64).product();
            let means = super::means(pow(accumulating(input), norm_type), &placed, true, None);
            let sums = mul(mul(prims::sign(means), relu(prims::abs(means))), elements);
            cast(pow(sums, 1.0 / norm_type), input.dtype())
        }

        fn reference(
            input: &ArrayD<f64>,
            norm_type: f64,
            kernel_size: &[usize],
            stride: Option<&[usize]>,
            ceil_mode: bool,
        ) -> ArrayD<f64> {
            let pool = Pool { rank: $rank, kernel_size, stride, padding: &[0], dilation: &[1], ceil_mode };
            let elements: usize = (0..$rank).map(|i| kernel_size[i % kernel_size.len()]).product();
            super::of_windows(input, &pool, |places, counted| {
                let sum: f64 = places.iter().map(|place| input[place.as_slice()].powf(norm_type)).sum();
                (sum / counted as f64 * elements as f64).powf(1.0 / norm_type)
            })
        }

        fn samples(s: &mut Samples) {
            let some = |extents: [usize; 3]| last($rank, extents);
            let shape = |leading: &[usize]| [leading, &some([3, 4, 5])].concat();
            s.case(with(s.normal(shape(&[2, 3])), 2.0, some([1, 2, 3])));
            s.case(with(s.uniform(0.5, 2.0, shape(&[3])), 1.5, [2]).stride(some([1, 1, 2])).ceil_mode(true));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            let plain = |kernel: &[usize]| with(e.normal(shape(&[1, 2])), 2.0, kernel);
            e.case(InputShape, with(e.normal(shape(&[])), 2.0, [1]), "none of them empty but that of a batch");
            e.case(Lists, plain(&[1; 4]), "kernel_size is [1, 1, 1, 1], expected one number");
            e.case(Positive, plain(&[1]).stride([0]), "stride is [0]");
            e.case(NoWindow, plain(&[5]), "there is no window");
            e.case(NormType, with(e.normal(shape(&[2])), 0.0, [1]), "norm_type is 0");
        }
    }

    table($name, $torch, $rank) {
        /// The norms `(Σ xᵖ)^(1/p)` of windows of `input` [N, C, L] (or [C, L]), p being `norm_type`, `stride` apart
        /// (their size if absent). With `ceil_mode` a last window may reach beyond the end: its sum is scaled to that
        /// of a whole window. Negative numbers are not made positive.
        lp_pool1d, "nn.functional.lp_pool1d", 1;
        /// As [`mod@lp_pool1d`], of two dimensions: [N, C, H, W] (or [C, H, W]).
        lp_pool2d, "nn.functional.lp_pool2d", 2;
        /// As [`mod@lp_pool1d`], of three dimensions: [N, C, D, H, W] (or [C, D, H, W]).
        lp_pool3d, "nn.functional.lp_pool3d", 3;
    }
}
