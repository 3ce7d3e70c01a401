//! Elements of an image between its own, at positions that a tensor holds, and the positions of an affine map.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::{ArrayD, IxDyn};
use fulgurite_runtime::{DType, Tensor};

use super::{cubic_weights, linear_weights};
use crate::core::promotion::{accumulating, cast, constant_like};
use crate::core::read_as;
use crate::prims;

fulgurite_runtime::attribute_enum! {
    /// How an element at a position between others is computed.
    pub enum GridMode {
        /// The line between neighbours in each dimension.
        Bilinear = "bilinear",
        /// The nearest element, the one at the even position of two that are as near.
        Nearest = "nearest",
        /// Cubic convolution of four neighbours in each of two dimensions. Keys, 1981, with a = -0.75.
        Bicubic = "bicubic",
    }
}

fulgurite_runtime::attribute_enum! {
    /// What is at positions outside of the image.
    pub enum GridPadding {
        /// Zeros.
        Zeros = "zeros",
        /// The elements at the border.
        Border = "border",
        /// What the image is when mirrored at its borders, as often as the position asks for: at the centers of the
        /// outermost elements with `align_corners`, else at their edges.
        Reflection = "reflection",
    }
}

/// One dimension of an image.
#[derive(Clone, Copy)]
struct Axis {
    extent: usize,
    padding: GridPadding,
    aligned: bool,
}

/// Elements that a position reads in one dimension: where they are, what they count, and where they are inside of the
/// image if that is not always so.
#[derive(Clone, Copy)]
struct Tap {
    place: Tensor,
    weight: Option<Tensor>,
    inside: Option<Tensor>,
}

impl Axis {
    fn last(self) -> f64 {
        self.extent as f64 - 1.0
    }

    /// Positions from -1 to 1 in elements, which are between the centers of the outermost elements or their edges.
    #[track_caller]
    fn elements(self, position: Tensor) -> Tensor {
        let from_start = prims::add(position, 1.0);
        match self.aligned {
            true => prims::mul(from_start, self.last() / 2.0),
            false => prims::sub(prims::mul(from_start, self.extent as f64 / 2.0), 0.5),
        }
    }

    /// Positions moved inside of the image, without a gradient at its ends and outside. NaN is moved to the start.
    #[track_caller]
    fn clipped(self, place: Tensor) -> Tensor {
        let below = prims::select(prims::lt(place, self.last()), place, self.last());
        prims::select(prims::gt(place, 0.0), below, 0.0)
    }

    /// Positions inside of the image mirrored at its borders.
    #[track_caller]
    fn reflected(self, place: Tensor) -> Tensor {
        let (low, span) = if self.aligned { (0.0, self.last()) } else { (-0.5, self.extent as f64) };
        if span == 0.0 {
            return constant_like(place, 0.0);
        }
        let from_low = prims::sub(place, low);
        let distance = prims::select(prims::lt(from_low, 0.0), prims::neg(from_low), from_low);
        let rest = prims::remainder(distance, span);
        let turns = prims::remainder(prims::floor(prims::div(distance, span)), 2.0);
        let back = prims::add(prims::sub(span, rest), low);
        prims::select(prims::eq(turns, 0.0), prims::add(rest, low), back)
    }

    #[track_caller]
    fn padded(self, place: Tensor) -> Tensor {
        match self.padding {
            GridPadding::Zeros => place,
            GridPadding::Border => self.clipped(place),
            GridPadding::Reflection => self.clipped(self.reflected(place)),
        }
    }

    /// The element at integer positions, of which those outside of the image are masked unless there are none.
    #[track_caller]
    fn tap(self, place: Tensor, weight: Option<Tensor>, may_leave: bool) -> Tap {
        if !may_leave {
            return Tap { place: cast(place, DType::I64), weight, inside: None };
        }
        let inside = prims::logical_and(prims::ge(place, 0.0), prims::le(place, self.last()));
        let place = cast(prims::select(inside, place, 0.0), DType::I64);
        Tap { place, weight, inside: Some(inside) }
    }

    /// What positions from -1 to 1 read.
    #[track_caller]
    fn taps(self, position: Tensor, mode: GridMode) -> Vec<Tap> {
        let place = self.elements(position);
        let leaves = self.padding == GridPadding::Zeros;
        match mode {
            GridMode::Nearest => vec![self.tap(prims::round(self.padded(place)), None, leaves)],
            GridMode::Bilinear => {
                let place = self.padded(place);
                let first = prims::floor(place);
                let weights = linear_weights(prims::sub(place, first)).into_iter();
                // Behind the last element there is none, whose weight is zero.
                let of = |(k, weight)| match k {
                    0 => self.tap(first, Some(weight), leaves),
                    k => self.tap(prims::add(first, k as f64), Some(weight), true),
                };
                weights.map(of).collect()
            }
            GridMode::Bicubic => {
                let first = prims::floor(place);
                let weights = cubic_weights(prims::sub(place, first)).into_iter();
                let at = |k: i64| self.padded(prims::add(first, k as f64));
                weights.map(|(k, weight)| self.tap(at(k), Some(weight), leaves)).collect()
            }
        }
    }
}

/// What two dimensions read together: positions in row-major order, products of weights.
#[track_caller]
fn joined(outer: Tap, inner: Tap, extent: usize) -> Tap {
    let both = |a: Option<Tensor>, b: Option<Tensor>, join: fn(Tensor, Tensor) -> Tensor| match (a, b) {
        (Some(a), Some(b)) => Some(join(a, b)),
        (a, b) => a.or(b),
    };
    Tap {
        place: prims::add(prims::mul(outer.place, extent as i64), inner.place),
        weight: both(outer.weight, inner.weight, |a, b| prims::mul(a, b)),
        inside: both(outer.inside, inner.inside, |a, b| prims::logical_and(a, b)),
    }
}

/// The elements of `input` [N, C, H, W] at the positions `grid` [N, h, w, 2], or of [N, C, D, H, W] at [N, d, h, w, 3]:
/// [N, C, h, w], or [N, C, d, h, w]. A position is x, y and perhaps z, along the last dimension and those before it,
/// from -1 to 1 over the image: between the centers of its outermost elements with `align_corners`, else between their
/// edges. Elements outside are what `padding_mode` says, those between others what `mode` says. Jaderberg et al.,
/// "Spatial Transformer Networks", 2015. A position that is NaN gives NaN, and with mode "nearest" or padding "border"
/// and "reflection" the element at the start or zero; PyTorch leaves open what it gives, and what gradient it has. f16
/// and bf16 are computed in f32 and rounded once, where PyTorch's host kernels round the weights.
#[operator(torch = "nn.functional.grid_sample", autocast = widest)]
pub mod grid_sample {
    fn grid_sample(
        input: Tensor<Floating>,
        grid: Tensor<Floating>,
        #[default(GridMode::Bilinear)] mode: GridMode,
        #[default(GridPadding::Zeros)] padding_mode: GridPadding,
        #[default(None)] align_corners: Option<bool>,
    ) -> Tensor;

    fn requires(Args { input, grid, mode, .. }: Args<&TensorMeta>) -> Result<()> {
        let shape = input.shape();
        require!(
            shape.len() == 4 || shape.len() == 5,
            InputRank,
            "input has shape {shape:?}, expected two or three dimensions behind batch and channels"
        );
        require!(
            !shape[2..].contains(&0),
            EmptyImage,
            "input has shape {shape:?}, expected elements in each dimension behind the channels"
        );
        require!(
            mode != GridMode::Bicubic || shape.len() == 4,
            BicubicRank,
            "input has shape {shape:?}, expected two dimensions behind the channels for mode bicubic"
        );
        let rank = shape.len() - 2;
        require!(
            grid.rank() == shape.len() && grid.shape()[0] == shape[0] && grid.shape()[rank + 1] == rank,
            GridShape,
            "grid has shape {:?}, expected {} positions of {rank} numbers in {rank} dimensions",
            grid.shape(),
            shape[0]
        );
        prims::checks::same_dtype(("input", input), ("grid", grid), Code::SameDType)
    }

    fn decomposition(Args { input, grid, mode, padding_mode, align_corners }: Args<Tensor>) -> Tensor {
        let (shape, aligned) = (input.shape().to_vec(), align_corners == Some(true));
        let (extents, points) = (&shape[2..], &grid.meta().shape()[1..shape.len() - 1].to_vec());
        let (batch, rank, count) = (shape[0], extents.len(), points.iter().product::<usize>());
        let positions = read_as(accumulating(grid), &[batch, count, rank]);
        let mut all: Option<Vec<Tap>> = None;
        for (dim, extent) in extents.iter().enumerate() {
            let component = rank - 1 - dim;
            let own = prims::slice(positions, [0, 0, component], [batch, count, component + 1], [1, 1, 1]);
            let axis = Axis { extent: *extent, padding: padding_mode, aligned };
            let taps = axis.taps(read_as(own, &[batch, count]), mode);
            all = Some(match all {
                None => taps,
                Some(outer) => {
                    let pairs = outer.iter().flat_map(|outer| taps.iter().map(|inner| (*outer, *inner)));
                    pairs.map(|(outer, inner)| super::joined(outer, inner, *extent)).collect()
                }
            });
        }
        let values = read_as(accumulating(input), &[batch, shape[1], extents.iter().product()]);
        let each = |tensor: Tensor| prims::broadcast_in_dim(tensor, [batch, shape[1], count], [0, 2]);
        let terms = all.into_iter().flatten().map(|tap| {
            let found = prims::gather(values, 2, each(tap.place));
            let found = tap.inside.map_or(found, |inside| prims::select(each(inside), found, 0.0));
            tap.weight.map_or(found, |weight| prims::mul(found, each(weight)))
        });
        let sum = terms.reduce(|a, b| prims::add(a, b)).unwrap_or(values);
        cast(read_as(sum, &[&shape[..2], &points[..]].concat()), input.dtype())
    }

    fn reference(Args { input, grid, mode, padding_mode, align_corners }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let (rank, aligned) = (input.ndim() - 2, align_corners == Some(true));
        let shape = [&input.shape()[..2], &grid.shape()[1..=rank]].concat();
        ArrayD::from_shape_fn(IxDyn(&shape), |at| {
            let at = ndarray::Dimension::slice(&at);
            let taps = (0..rank).map(|dim| {
                let extent = input.shape()[2 + dim] as f64;
                let position = [&at[..1], &at[2..], &[rank - 1 - dim]].concat();
                let span = if aligned { extent - 1.0 } else { extent };
                let place = (grid[position.as_slice()] + 1.0) / 2.0 * span - if aligned { 0.0 } else { 0.5 };
                super::taps_by_hand(place, extent, (mode, padding_mode, aligned))
            });
            let start = vec![(at[..2].to_vec(), 1.0)];
            let all = taps.fold(start, |all, taps| {
                let longer = |(place, weight): &(Vec<usize>, f64), (own, factor): &(usize, f64)| {
                    ([&place[..], &[*own]].concat(), weight * factor)
                };
                all.iter().flat_map(|one| taps.iter().map(move |tap| longer(one, tap))).collect()
            });
            all.iter().fold(0.0, |sum, (place, weight)| sum + weight * input[place.as_slice()])
        })
    }

    fn samples(s: &mut Samples) {
        use GridMode::{Bicubic, Nearest};
        use GridPadding::{Border, Reflection};
        let flat = |s: &Samples, low: f64| with(s.normal([2, 2, 3, 4]), s.uniform(low, 1.7, [2, 2, 3, 2]));
        let deep = |s: &Samples| with(s.normal([1, 2, 2, 3, 2]), s.uniform(-1.6, 1.7, [1, 1, 2, 3, 3]));
        let cases = [
            flat(s, -1.5),
            flat(s, -1.4).align_corners(true),
            flat(s, -2.5).padding_mode(Border),
            flat(s, -4.6).padding_mode(Reflection),
            flat(s, -4.4).padding_mode(Reflection).align_corners(true),
            flat(s, -1.6).mode(Bicubic),
            flat(s, -1.9).mode(Bicubic).padding_mode(Border).align_corners(true),
            flat(s, -3.1).mode(Bicubic).padding_mode(Reflection),
            deep(s),
            deep(s).padding_mode(Reflection),
            with(s.normal([1, 1, 1, 2]), s.uniform(-3.0, 3.0, [1, 1, 5, 2]))
                .padding_mode(Reflection)
                .align_corners(true),
            with(s.normal([1, 2, 3, 2]), s.normal([1, 0, 2, 2])),
        ];
        for case in cases {
            s.case(case);
        }
        for padding in [GridPadding::Zeros, Border, Reflection] {
            s.case(flat(s, -3.3).mode(Nearest).padding_mode(padding)).forward_only("jumps");
        }
        s.case(deep(s).mode(Nearest).align_corners(true)).forward_only("jumps");
        let (infinity, nan) = (f64::INFINITY, f64::NAN);
        let apart = s.values([1, 1, 4, 2], [nan, 0.0, infinity, 0.0, 0.25, -infinity, 3e4, 0.0]);
        s.case(with(s.normal([1, 1, 3, 4]), apart)).forward_only("special values");
        // At the ends of the image a position has no gradient.
        let corners = s.values([1, 1, 2, 2], [1.0, 1.0, -1.0, -1.0]);
        let at_ends = with(s.normal([1, 1, 2, 2]), corners).padding_mode(Border).align_corners(true);
        s.case(at_ends).forward_only("kinks").gradients([&[2.0, 0.0, 0.0, 1.0], &[0.0; 4]]);
    }

    fn errors(e: &mut ErrorSamples) {
        let image = || e.normal([2, 1, 3, 3]);
        let points = || e.normal([2, 1, 4, 2]);
        e.case(InputRank, with(e.normal([2, 3, 3]), points()), "input has shape [2, 3, 3]");
        e.case(EmptyImage, with(e.normal([2, 1, 0, 3]), points()), "expected elements in each dimension");
        let deep = with(e.normal([2, 1, 3, 3, 3]), e.normal([2, 1, 1, 4, 3])).mode(GridMode::Bicubic);
        e.case(BicubicRank, deep, "expected two dimensions behind the channels");
        e.case(GridShape, with(image(), e.normal([2, 4, 2])), "grid has shape [2, 4, 2]");
        e.case(GridShape, with(image(), e.normal([1, 1, 4, 2])), "expected 2 positions of 2 numbers");
        e.case(GridShape, with(image(), e.normal([2, 1, 4, 3])), "grid has shape [2, 1, 4, 3]");
        let other = e.of(prims::support::another(e.dtype()), [2, 1, 4, 2]);
        e.case(SameDType, with(image(), other), "expected equal dtypes");
    }
}

/// For references: the elements that a position reads in one dimension, and their weights.
fn taps_by_hand(place: f64, extent: f64, (mode, padding, aligned): (GridMode, GridPadding, bool)) -> Vec<(usize, f64)> {
    let (low, span) = if aligned { (0.0, extent - 1.0) } else { (-0.5, extent) };
    let moved = |place: f64| match padding {
        GridPadding::Zeros => place,
        GridPadding::Border => place.clamp(0.0, extent - 1.0),
        GridPadding::Reflection if span == 0.0 => 0.0,
        GridPadding::Reflection => {
            // A wave of triangles, whose period is there and back again.
            let phase = (place - low).rem_euclid(2.0 * span);
            (low + phase.min(2.0 * span - phase)).clamp(0.0, extent - 1.0)
        }
    };
    let weights: Vec<(f64, f64)> = match mode {
        GridMode::Nearest => vec![(moved(place).round_ties_even(), 1.0)],
        GridMode::Bilinear => {
            let place = moved(place);
            (0..extent as usize).map(|i| (i as f64, 1.0 - (place - i as f64).abs())).filter(|tap| tap.1 > 0.0).collect()
        }
        GridMode::Bicubic => {
            let taps = (-1..=2).map(|k| place.floor() + f64::from(k));
            taps.map(|tap| (moved(tap), super::keys((place - tap).abs(), super::SHARP))).collect()
        }
    };
    match place.is_finite() || mode == GridMode::Nearest {
        true => {
            let inside = weights.into_iter().filter(|(at, _)| (0.0..extent).contains(at));
            inside.map(|(at, weight)| (at as usize, weight)).collect()
        }
        false => vec![(0, f64::NAN)],
    }
}

/// The positions that an affine map `theta` [N, 2, 3] (or [N, 3, 4]) gives the elements of an image of `size` [N, C, H,
/// W] (or [N, C, D, H, W]): [N, H, W, 2] (or [N, D, H, W, 3]), for [`mod@grid_sample`]. An element's own position goes
/// from -1 to 1 over the image, between the centers of its outermost elements with `align_corners`, else between their
/// edges; the only element of a dimension is at 0. f16 and bf16 are computed in f32.
#[operator(torch = "nn.functional.affine_grid")]
pub mod affine_grid {
    fn affine_grid(theta: Tensor<Floating>, size: Vec<usize>, #[default(None)] align_corners: Option<bool>) -> Tensor;

    fn requires(theta: &TensorMeta, size: &[usize]) -> Result<()> {
        require!(
            (size.len() == 4 || size.len() == 5) && !size.contains(&0),
            Size,
            "size is {size:?}, expected four or five positive numbers: batch, channels, and those of the image"
        );
        let rank = size.len() - 2;
        require!(
            theta.shape() == [size[0], rank, rank + 1],
            ThetaShape,
            "theta has shape {:?}, expected {:?} for size {size:?}",
            theta.shape(),
            [size[0], rank, rank + 1]
        );
        Ok(())
    }

    fn decomposition(theta: Tensor, size: &[usize], align_corners: Option<bool>) -> Tensor {
        let (batch, extents) = (size[0], &size[2..]);
        let rank = extents.len();
        let shape = [&[batch], extents, &[rank]].concat();
        let map = accumulating(theta);
        let column = |j: usize| {
            let own = prims::slice(map, [0, 0, j], [batch, rank, j + 1], [1, 1, 1]);
            prims::broadcast_in_dim(read_as(own, &[batch, rank]), &*shape, [0, rank + 1])
        };
        let terms = extents.iter().rev().enumerate().map(|(j, extent)| {
            let last = *extent as f64 - 1.0;
            let whole = if align_corners == Some(true) { last.max(1.0) } else { *extent as f64 };
            let places = prims::div(prims::iota(*extent, -last, 2.0, map.dtype(), map.device()), whole);
            prims::mul(column(j), prims::broadcast_in_dim(places, &*shape, [rank - j]))
        });
        cast(terms.fold(column(rank), |sum, term| prims::add(sum, term)), theta.dtype())
    }

    fn reference(theta: &ArrayD<f64>, size: &[usize], align_corners: Option<bool>) -> ArrayD<f64> {
        let rank = size.len() - 2;
        ArrayD::from_shape_fn(IxDyn(&[&size[..1], &size[2..], &[rank]].concat()), |at| {
            let at = ndarray::Dimension::slice(&at);
            let own = (0..rank).map(|j| {
                let (place, extent) = (at[rank - j] as f64, size[size.len() - 1 - j] as f64);
                let position = match align_corners {
                    _ if extent == 1.0 => 0.0,
                    Some(true) => -1.0 + 2.0 * place / (extent - 1.0),
                    _ => -1.0 + (2.0 * place + 1.0) / extent,
                };
                theta[[at[0], at[rank + 1], j]] * position
            });
            own.sum::<f64>() + theta[[at[0], at[rank + 1], rank]]
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 2, 3]), [2, 1, 3, 4]));
        s.case(with(s.normal([1, 2, 3]), [1, 2, 1, 5]).align_corners(true));
        s.case(with(s.normal([2, 3, 4]), [2, 3, 2, 1, 3]));
        s.case(with(s.normal([1, 3, 4]), [1, 1, 2, 3, 2]).align_corners(true));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Size, with(e.normal([2, 2, 3]), [2, 3, 4]), "size is [2, 3, 4]");
        e.case(Size, with(e.normal([2, 2, 3]), [2, 3, 0, 4]), "size is [2, 3, 0, 4]");
        e.case(ThetaShape, with(e.normal([1, 2, 3]), [2, 1, 3, 4]), "expected [2, 2, 3] for size [2, 1, 3, 4]");
        e.case(ThetaShape, with(e.normal([2, 2, 3]), [2, 1, 2, 3, 4]), "expected [2, 3, 4]");
    }
}
