//! Largest elements of windows of images, and the gradient by the images: what pools are computed by. A device may have
//! a kernel for each, which reads images in either order of dimensions.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;
use fulgurite_runtime::strided::Channels;

use super::Placement;
use super::placed_windows::{Windows, placed_extents};
use super::placement::as_floats;
use super::pooling::{first_largest, largest, largest_of_windows, picked};
use crate::core::read_as;
use crate::prims;

/// The shape of images of which `shape` has the batch and the channels, with the extents `placed`.
fn with_extents(shape: &[usize], placed: &[usize], channels_innermost: bool) -> Vec<usize> {
    match channels_innermost {
        true => [&shape[..1], placed, &shape[shape.len() - 1..]].concat(),
        false => [&shape[..2], placed].concat(),
    }
}

/// The dimensions of images with channels innermost in the order [N, C, L1, ...], or back.
fn order(rank: usize, back: bool) -> Vec<usize> {
    match back {
        false => [0, rank - 1].into_iter().chain(1..rank - 1).collect(),
        true => [0].into_iter().chain(2..rank).chain([1]).collect(),
    }
}

/// Images as [N, C, L1, ...].
#[track_caller]
fn outermost(images: Tensor, channels_innermost: bool) -> Tensor {
    if channels_innermost { prims::permute(images, order(images.rank(), false)) } else { images }
}

/// Images [N, C, L1, ...] in the order that is asked for.
#[track_caller]
fn ordered(images: Tensor, channels_innermost: bool) -> Tensor {
    if channels_innermost { prims::permute(images, order(images.rank(), true)) } else { images }
}

/// That a kernel takes all its images with channels innermost, as soon as another of the program does.
fn as_others(images: &'static [bool]) -> Option<Channels> {
    Some(Channels { images, gains: false })
}

/// For references: the places in the images [N, C, L1, ...] of a window's elements, that of the result's element `at`.
fn places(windows: &[Placement], at: &[usize]) -> Vec<Vec<usize>> {
    let mut places = vec![at[..2].to_vec()];
    for (placed, o) in windows.iter().zip(&at[2..]) {
        let inside = (0..placed.size).filter_map(|k| {
            let place = (o * placed.step + k * placed.dilation).checked_sub(placed.low)?;
            (place < placed.extent).then_some(place)
        });
        let inside: Vec<usize> = inside.collect();
        places = places.iter().flat_map(|place| inside.iter().map(|at| [&place[..], &[*at]].concat())).collect();
    }
    places
}

/// The largest elements of windows of `input` [N, C, L1, ...], and their positions: the first of equal ones in
/// row-major order, or the first NaN if there is one. Window `o` of a dimension has the elements `o * steps + k *
/// dilations - low`, `k` below `sizes`; those outside of the images are never chosen, and each window has one inside.
/// Both results are [N, C, counts]; positions are those in L1 · ... elements. With `channels_innermost` the input is
/// [N, L1, ..., C] and the results are [N, counts, C].
#[operator(waive(d_positions = "positions are integers, which have no gradient"))]
pub mod max_of_windows {
    #[results(values, positions)]
    fn max_of_windows(
        input: Tensor<Number>,
        counts: Vec<usize>,
        sizes: Vec<usize>,
        steps: Vec<usize>,
        low: Vec<usize>,
        dilations: Vec<usize>,
        #[default(false)] channels_innermost: bool,
    ) -> (Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta)> {
        let Args { input, counts, sizes, steps, low, dilations, channels_innermost } = args;
        require!(input.rank() > 2, Rank, "input is {input}, expected [N, C, L1, ...]");
        let windows =
            super::Windows { counts: &counts, sizes: &sizes, steps: &steps, low: &low, dilations: &dilations };
        windows.check(input.rank() - 2, [Code::Lists, Code::Positive])?;
        let extents = super::placed_extents(input.shape(), channels_innermost);
        let leading = super::with_extents(input.shape(), &[], channels_innermost);
        windows.check_reach((&leading, extents), [Code::Reach, Code::MemorySize])?;
        let shape = super::with_extents(input.shape(), &counts, channels_innermost);
        Ok((input.with_shape(shape.clone()), TensorMeta::new(shape, DType::I64, input.device())))
    }

    fn channels() -> Option<Channels> {
        super::as_others(&[true, true, true])
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor) {
        let Args { input, counts, sizes, steps, low, dilations, channels_innermost } = args;
        let windows =
            super::Windows { counts: &counts, sizes: &sizes, steps: &steps, low: &low, dilations: &dilations };
        let images = super::outermost(input, channels_innermost);
        let placed = windows.of(&images.shape().to_vec()[2..]);
        let (values, positions) =
            super::largest(images, placed.len(), |values, i| super::largest_of_windows(values, 2 + i, &placed[i]));
        (super::ordered(values, channels_innermost), super::ordered(positions, channels_innermost))
    }

    fn grad(args: Args<Tensor>) -> ((Tensor, Tensor), impl FnOnce((Tensor, Option<Tensor>)) -> Grads) {
        let (values, positions) = args.call();
        let Args { input, sizes, steps, low, dilations, channels_innermost, .. } = args;
        ((values, positions), move |(d_values, _d_positions): (Tensor, Option<Tensor>)| {
            let extents = super::placed_extents(&input.shape(), channels_innermost).to_vec();
            let call = max_of_windows_backward::with(d_values, positions, extents, sizes, steps, low, dilations);
            Grads { input: call.channels_innermost(channels_innermost).call() }
        })
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ReferenceTensor, ArrayD<i64>) {
        let Args { input, counts, sizes, steps, low, dilations, channels_innermost } = args;
        let windows =
            super::Windows { counts: &counts, sizes: &sizes, steps: &steps, low: &low, dilations: &dilations };
        let rank = input.shape().len();
        let values = super::as_floats(input);
        let images = match channels_innermost {
            true => values.permuted_axes(IxDyn(&super::order(rank, false))).as_standard_layout().to_owned(),
            false => values,
        };
        let placed = windows.of(&images.shape()[2..]);
        let shape = super::with_extents(images.shape(), &counts, false);
        let best = ArrayD::from_shape_fn(IxDyn(&shape), |at| {
            let places = super::places(&placed, ndarray::Dimension::slice(&at));
            places[super::first_largest(&images, &places)].clone()
        });
        let own = match input.dtype().is_floating() {
            true => ReferenceTensor::from_floats(input.dtype(), images.clone()),
            false => ReferenceTensor::from_integers(input.dtype(), images.mapv(|x| x as i64)),
        };
        let (values, positions) = super::picked(&own, &best, rank - 2);
        if !channels_innermost {
            return (values, positions);
        }
        let back = super::order(rank, true);
        let turned = |of: &ArrayD<i64>| of.clone().permuted_axes(IxDyn(&back)).as_standard_layout().to_owned();
        let values = match input.dtype().is_floating() {
            true => {
                let values = values.floats().clone().permuted_axes(IxDyn(&back)).as_standard_layout().to_owned();
                ReferenceTensor::from_floats(input.dtype(), values)
            }
            false => ReferenceTensor::from_integers(input.dtype(), turned(values.integers())),
        };
        (values, turned(&positions))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 7]), [3], [3], [2], [0], [1]));
        for innermost in [false, true] {
            let of = |s: &Samples, channels: usize, placed: &[usize]| match innermost {
                true => s.normal([&[2], placed, &[channels]].concat()),
                false => s.normal([&[2, channels], placed].concat()),
            };
            let plain = with(of(s, 3, &[5, 6]), [3, 3], [3, 2], [2, 2], [1, 0], [1, 1]);
            s.case(plain.channels_innermost(innermost));
            let far = with(of(s, 1, &[4, 7]), [2, 3], [2, 3], [1, 1], [0, 1], [3, 2]);
            s.case(far.channels_innermost(innermost));
            let deep = with(of(s, 2, &[3, 1, 4]), [2, 1, 2], [2, 1, 3], [1, 1, 1], [0, 0, 0], [1, 1, 1]);
            s.case(deep.channels_innermost(innermost));
            // As many channels as are read at once in any type.
            let large = with(of(s, 16, &[17, 16]), [9, 8], [3, 3], [2, 2], [1, 1], [1, 1]);
            s.case(large.channels_innermost(innermost));
        }
        s.case(with(s.normal([0, 3, 5]), [2], [2], [2], [0], [1]));
        // A window that reaches far behind the image.
        s.case(with(s.normal([1, 1, 9]), [1], [5], [1], [0], [1000]));
        let ties: Vec<f64> = (0..24).map(|i| f64::from(i * 7 % 3)).collect();
        s.case(with(s.values([1, 1, 4, 6], ties), [4, 6], [3, 3], [1, 1], [1, 1], [1, 1])).forward_only("ties");
        if s.dtype().is_floating() {
            let low: Vec<f64> = (0..24).map(|i| if i == 4 { f64::NAN } else { f64::NEG_INFINITY }).collect();
            let low = with(s.values([1, 1, 4, 6], low), [5, 7], [2, 2], [1, 1], [1, 1], [1, 1]);
            s.case(low).forward_only("special values");
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |shape: &[usize], ones: usize| {
            let list = vec![1; ones];
            with(e.normal(shape), list.clone(), list.clone(), list.clone(), vec![0; ones], list)
        };
        e.case(Rank, call(&[2, 3], 0), "input is f32[2, 3], expected [N, C, L1, ...]");
        e.case(Lists, call(&[2, 3, 4], 2), "expected 1 each");
        e.case(Positive, ARGUMENTS.steps.set(call(&[2, 3, 4], 1), vec![0]), "steps [0]");
        e.case(MemorySize, ARGUMENTS.sizes.set(call(&[2, 3, 4], 1), vec![1 << 60]), "are too large");
        e.case(Reach, ARGUMENTS.low.set(call(&[2, 3, 4], 1), vec![1]), "expected windows that reach into it");
        e.case(Reach, ARGUMENTS.counts.set(call(&[2, 3, 4], 1), vec![5]), "expected windows that reach into it");
    }
}

/// The gradient of the values of [`mod@max_of_windows`] by `input`, whose extents L1, ... are `extents`, from that by
/// the values, `d_values` [N, C, counts]: each element gets the sum of those of the windows whose largest element it
/// is. `positions` are those that [`mod@max_of_windows`] gives: each is that of an element of its window. With
/// `channels_innermost` both are [N, counts, C], and the gradient is [N, L1, ..., C]. Accumulated in f32 for bf16 and
/// f16.
#[operator(
    waive(sizes = "positions say which elements they are, for kernels that look for them in windows"),
    waive(steps = "positions say which elements they are, for kernels that look for them in windows"),
    waive(low = "positions say which elements they are, for kernels that look for them in windows"),
    waive(dilations = "positions say which elements they are, for kernels that look for them in windows"),
    skip(checker, reason = "positions of elements of windows are not those of other windows' elements")
)]
pub mod max_of_windows_backward {
    fn max_of_windows_backward(
        d_values: Tensor<Floating>,
        positions: Tensor<Integer>,
        extents: Vec<usize>,
        sizes: Vec<usize>,
        steps: Vec<usize>,
        low: Vec<usize>,
        dilations: Vec<usize>,
        #[default(false)] channels_innermost: bool,
    ) -> Tensor;

    fn meta(args: Args<&TensorMeta>) -> Result<TensorMeta> {
        let Args { d_values, positions, extents, sizes, steps, low, dilations, channels_innermost } = args;
        require!(d_values.rank() > 2, Rank, "d_values is {d_values}, expected [N, C, L1, ...]");
        require!(
            positions.dtype() == DType::I64 && positions.shape() == d_values.shape(),
            Positions,
            "positions is {positions}, expected i64 of the shape of d_values {d_values}"
        );
        let windows = super::Windows {
            counts: super::placed_extents(d_values.shape(), channels_innermost),
            sizes: &sizes,
            steps: &steps,
            low: &low,
            dilations: &dilations,
        };
        windows.check(extents.len(), [Code::Lists, Code::Positive])?;
        let leading = super::with_extents(d_values.shape(), &[], channels_innermost);
        windows.check_reach((&leading, &extents), [Code::Reach, Code::MemorySize])?;
        Ok(d_values.with_shape(super::with_extents(d_values.shape(), &extents, channels_innermost)))
    }

    fn channels() -> Option<Channels> {
        super::as_others(&[true, true, true])
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        // Positions say everything: no list that places windows is needed to add at them.
        let Args { d_values, positions, extents, sizes: _, steps: _, low: _, dilations: _, channels_innermost } = args;
        let [d, at] = [d_values, positions].map(|images| super::outermost(images, channels_innermost));
        let shape = [&d.shape().to_vec()[..2], &extents[..]].concat();
        let line = |shape: &[usize]| [shape[0], shape[1], shape[2..].iter().product()];
        let none = prims::full(line(&shape), 0.0, d.dtype(), d.device());
        let own = line(&d.shape());
        let lines = prims::scatter_add(none, 2, read_as(at, &own), read_as(d, &own));
        super::ordered(read_as(lines, &shape), channels_innermost)
    }

    fn reference(
        d_values: &ArrayD<f64>,
        positions: &ReferenceTensor,
        extents: &[usize],
        channels_innermost: bool,
    ) -> ArrayD<f64> {
        let rank = d_values.ndim();
        let mut out = ArrayD::zeros(super::with_extents(d_values.shape(), extents, channels_innermost));
        let positions = positions.integers();
        for (at, d) in d_values.indexed_iter() {
            let at = ndarray::Dimension::slice(&at);
            let mut left = positions[at] as usize;
            let mut place = vec![0; extents.len()];
            for (i, extent) in extents.iter().enumerate().rev() {
                (place[i], left) = (left % extent, left / extent);
            }
            let place = match channels_innermost {
                true => [&at[..1], &place, &at[rank - 1..]].concat(),
                false => [&at[..2], &place].concat(),
            };
            out[place.as_slice()] += d;
        }
        out
    }

    fn samples(s: &mut Samples) {
        for innermost in [false, true] {
            // Windows of 3 x 2 elements, 2 apart, of images of 5 x 6 elements; of each the element `k`.
            let (counts, channels) = ([2, 3], 2);
            let shape = if innermost { vec![1, 2, 3, channels] } else { vec![1, channels, 2, 3] };
            let all = shape.iter().product::<usize>();
            let positions = (0..all).map(|i| {
                let [o, p, k] = match innermost {
                    true => [i / (3 * channels), i / channels % 3, i],
                    false => [i / 3 % counts[0], i % 3, i],
                };
                ((2 * o + k % 3) * 6 + 2 * p + k % 2) as f64
            });
            let positions = s.values(shape.clone(), positions.collect::<Vec<_>>()).cast(DType::I64);
            let call = with(s.normal(shape), positions, [5, 6], [3, 2], [2, 2], [0, 0], [1, 1]);
            s.case(call.channels_innermost(innermost));
        }
        // Windows that overlap, and have the same largest element.
        let positions = s.values([1, 1, 4], vec![0.0, 2.0, 2.0, 4.0]).cast(DType::I64);
        s.case(with(s.normal([1, 1, 4]), positions, [5], [3], [1], [1], [1]));
        let positions = s.values([2, 1, 2], vec![0.0, 4.0, 2.0, 2.0]).cast(DType::I64);
        s.case(with(s.normal([2, 1, 2]), positions, [6], [2], [2], [0], [2]));
        let positions = s.integers(0, 5, [0, 3, 2]);
        s.case(with(s.normal([0, 3, 2]), positions, [5], [5], [1], [0], [1]));
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |shape: &[usize], ones: usize| {
            let list = vec![1; ones];
            let positions = e.integers(0, 1, shape);
            with(e.normal(shape), positions, list.clone(), list.clone(), list.clone(), vec![0; ones], list)
        };
        e.case(Rank, call(&[2, 3], 0), "d_values is f32[2, 3], expected [N, C, L1, ...]");
        e.case(Lists, call(&[2, 3, 4], 2), "expected 2 each");
        e.case(Positive, ARGUMENTS.sizes.set(call(&[2, 3, 4], 1), vec![0]), "sizes are [0]");
        e.case(Reach, ARGUMENTS.low.set(call(&[2, 3, 1], 1), vec![1]), "expected windows that reach into it");
        e.case(MemorySize, ARGUMENTS.sizes.set(call(&[2, 3, 1], 1), vec![1 << 60]), "are too large");
        let other = ARGUMENTS.positions.set(call(&[2, 3, 4], 1), e.integers(0, 1, [2, 3, 5]));
        e.case(Positions, other, "positions is i64[2, 3, 5], expected i64 of the shape of d_values");
    }
}
