use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::ArrayD;
use fulgurite_runtime::{DType, Tensor};

use super::placement::{as_floats, for_each};
use crate::core::matmul;
use crate::core::promotion::{accumulating, cast};
use crate::nn::{adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d};
use crate::prims;

fulgurite_runtime::attribute_enum! {
    /// How elements between others are computed.
    pub enum InterpolationMode {
        /// The element below, by a source position that is the quotient of the extents times the position.
        Nearest = "nearest",
        /// The element whose center is nearest.
        NearestExact = "nearest-exact",
        /// The line between two neighbours, of one dimension.
        Linear = "linear",
        /// The line between neighbours in each of two dimensions.
        Bilinear = "bilinear",
        /// Cubic convolution of four neighbours in each of two dimensions. Keys, 1981, with a = -0.75.
        Bicubic = "bicubic",
        /// The line between neighbours in each of three dimensions.
        Trilinear = "trilinear",
        /// The mean of the elements that an element of the result covers.
        Area = "area",
    }
}

impl InterpolationMode {
    /// The numbers of dimensions that it interpolates.
    fn ranks(self) -> std::ops::RangeInclusive<usize> {
        match self {
            InterpolationMode::Nearest | InterpolationMode::NearestExact | InterpolationMode::Area => 1..=3,
            InterpolationMode::Linear => 1..=1,
            InterpolationMode::Bilinear | InterpolationMode::Bicubic => 2..=2,
            InterpolationMode::Trilinear => 3..=3,
        }
    }

    /// Whether corners may be aligned.
    fn aligns(self) -> bool {
        use InterpolationMode::{Bicubic, Bilinear, Linear, Trilinear};
        matches!(self, Linear | Bilinear | Bicubic | Trilinear)
    }
}

/// One dimension: its extents in the operand and in the result, and how many elements of the operand one of the result
/// is behind another, if the caller says it.
#[derive(Clone, Copy)]
struct Resized {
    from: usize,
    to: usize,
    given: Option<f64>,
}

impl Resized {
    /// Of the dimensions behind the first two; `None` if the lists do not fit, or if the result is empty or infinite.
    fn all(
        shape: &[usize],
        size: Option<&[usize]>,
        scale_factor: Option<&[f64]>,
        recomputed: bool,
    ) -> Option<Vec<Resized>> {
        let extents = shape.get(2..)?;
        let resized: Vec<Resized> = match (size, scale_factor) {
            (Some(size), None) => {
                let sizes = for_each(size, extents.len())?;
                extents.iter().zip(sizes).map(|(from, to)| Resized { from: *from, to, given: None }).collect()
            }
            (None, Some(factors)) => {
                let factors = for_each(factors, extents.len())?;
                let all = extents.iter().zip(factors).map(|(from, factor)| {
                    let to = (*from as f64 * factor).floor();
                    let given = (!recomputed).then_some(1.0 / factor);
                    Resized { from: *from, to: if to < 2f64.powi(62) { to as usize } else { 0 }, given }
                });
                all.collect()
            }
            _ => return None,
        };
        resized.iter().all(|one| one.from > 0 && one.to > 0 && one.given != Some(0.0)).then_some(resized)
    }

    /// Elements of the operand from one element of the result to the next, in f32 or f64.
    fn scale(self, aligned: bool, dtype: DType) -> f64 {
        let quotient = |a: usize, b: usize| match dtype {
            DType::F64 => a as f64 / b as f64,
            _ => f64::from(a as f32 / b as f32),
        };
        match self.given {
            _ if aligned && self.to > 1 => quotient(self.from - 1, self.to - 1),
            _ if aligned => 0.0,
            Some(given) => given,
            None => quotient(self.from, self.to),
        }
    }

    /// Positions in the operand of the elements of the result, which are not integers.
    #[track_caller]
    fn sources(self, like: Tensor, aligned: bool, dtype: DType) -> Tensor {
        let scale = self.scale(aligned, dtype);
        let places = prims::iota(self.to, 0.0, 1.0, dtype, like.device());
        match aligned {
            true => prims::mul(places, scale),
            false => prims::sub(prims::mul(prims::add(places, 0.5), scale), 0.5),
        }
    }

    /// The elements at integer positions, which are moved inside of the operand.
    #[track_caller]
    fn at(self, input: Tensor, dim: usize, places: Tensor) -> Tensor {
        let inside = prims::minimum(prims::maximum(cast(places, DType::I64), 0), self.from as i64 - 1);
        prims::index_select(input, dim, inside)
    }
}

/// Dimension `dim` with the nearest elements.
#[track_caller]
fn nearest(input: Tensor, dim: usize, resized: Resized, exact: bool) -> Tensor {
    let Resized { from, to, .. } = resized;
    let places = prims::iota(to, 0.0, 1.0, DType::F32, input.device());
    let source = match exact {
        true => prims::mul(prims::add(places, 0.5), resized.scale(false, DType::F32)),
        // PyTorch's shortcuts, which count where the caller's factor says something else.
        false if from == to => return input,
        false if to == 2 * from => prims::mul(places, 0.5),
        false => prims::mul(places, resized.scale(false, DType::F32)),
    };
    resized.at(input, dim, prims::floor(source))
}

/// Dimension `dim` with sums of neighbours: those at `floor(source) + k` times the weights of `source - floor(source)`.
#[track_caller]
fn weighted(
    input: Tensor,
    dim: usize,
    resized: Resized,
    source: Tensor,
    weights: impl Fn(Tensor) -> Vec<(i64, Tensor)>,
) -> Tensor {
    let first = prims::floor(source);
    let terms = weights(prims::sub(source, first)).into_iter().map(|(k, weight)| {
        let elements = resized.at(input, dim, prims::add(first, k as f64));
        let weight = prims::broadcast_in_dim(cast(weight, elements.dtype()), elements.shape(), [dim]);
        prims::mul(elements, weight)
    });
    terms.reduce(|a, b| prims::add(a, b)).unwrap_or(input)
}

/// Weights of the two neighbours.
pub(crate) fn linear_weights(t: Tensor) -> Vec<(i64, Tensor)> {
    vec![(0, prims::sub(1.0, t)), (1, t)]
}

/// Weights of the four neighbours, from the one before: `((a + 2) x - (a + 3)) x² + 1` up to a distance of one, `((a x
/// - 5 a) x + 8 a) x - 4 a` up to two.
pub(crate) fn cubic_weights(t: Tensor) -> Vec<(i64, Tensor)> {
    let (near, far) = (|x: Tensor| cubic_near(x, SHARP), |x: Tensor| cubic_far(x, SHARP));
    let rest = prims::sub(1.0, t);
    vec![(-1, far(prims::add(t, 1.0))), (0, near(t)), (1, near(rest)), (2, far(prims::add(rest, 1.0)))]
}

/// The slope at a distance of one of the cubic convolution of neighbours, and of that of smoothed elements.
pub(crate) const SHARP: f64 = -0.75;
const SMOOTH: f64 = -0.5;

/// The kernel of cubic convolution at distances up to one, with the slope `a` there.
#[track_caller]
fn cubic_near(x: Tensor, a: f64) -> Tensor {
    let inner = prims::sub(prims::mul(x, a + 2.0), a + 3.0);
    prims::add(prims::mul(prims::mul(inner, x), x), 1.0)
}

/// The kernel of cubic convolution at distances from one to two, with the slope `a` at one.
#[track_caller]
fn cubic_far(x: Tensor, a: f64) -> Tensor {
    let inner = prims::add(prims::mul(prims::sub(prims::mul(x, a), 5.0 * a), x), 8.0 * a);
    prims::sub(prims::mul(inner, x), 4.0 * a)
}

/// One of the last two dimensions with sums of all elements by a kernel that is as wide as an element of the result,
/// and at least as an element of the operand: a product with the weights, which have the sum one.
#[track_caller]
fn smoothed(values: Tensor, is_last: bool, resized: Resized, aligned: bool, mode: InterpolationMode) -> Tensor {
    let (dtype, shape) = (values.dtype(), [resized.to, resized.from]);
    let scale = resized.scale(aligned, dtype);
    let centers = |extent: usize| prims::iota(extent, 0.5, 1.0, dtype, values.device());
    let own = prims::broadcast_in_dim(prims::mul(centers(resized.to), scale), shape, [0]);
    let elements = prims::broadcast_in_dim(centers(resized.from), shape, [1]);
    let distance = prims::div(prims::abs(prims::sub(elements, own)), scale.max(1.0));
    let weights = match mode {
        InterpolationMode::Bicubic => {
            let far = prims::select(prims::lt(distance, 2.0), cubic_far(distance, SMOOTH), 0.0);
            prims::select(prims::lt(distance, 1.0), cubic_near(distance, SMOOTH), far)
        }
        _ => prims::maximum(prims::sub(1.0, distance), 0.0),
    };
    let weights = prims::div(weights, prims::broadcast_in_dim(prims::sum(weights, [1]), shape, [0]));
    if is_last { matmul(values, prims::permute(weights, [1, 0])) } else { matmul(weights, values) }
}

/// `input` [N, C, L], [N, C, H, W] or [N, C, D, H, W] with other extents behind the channels: `size`, or
/// `⌊extent · scale_factor⌋`. Elements between those of `input` are computed by `mode`. With `align_corners` the first
/// and the last elements stay in their places, else the borders of the outermost elements do. A scale factor says how
/// far elements are apart too, unless it is recomputed from the extents. With `antialias` the modes bilinear and
/// bicubic have kernels as wide as the elements of the result, where these are fewer, and of the latter with a = -0.5;
/// PyTorch has integers of 8 bits then, too. bf16 and f16 are computed in f32.
#[operator(torch = "nn.functional.interpolate", autocast = keep, dtypes(u8, bf16, f16, f32, f64))]
pub mod interpolate {
    fn interpolate(
        input: Tensor<Number>,
        #[default(None)] size: Option<Vec<usize>>,
        #[default(None)] scale_factor: Option<Vec<f64>>,
        #[default(InterpolationMode::Nearest)] mode: InterpolationMode,
        #[default(None)] align_corners: Option<bool>,
        #[default(None)] recompute_scale_factor: Option<bool>,
        #[default(false)] antialias: bool,
    ) -> Tensor;

    fn requires(
        Args { input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias }: Args<&TensorMeta>,
    ) -> Result<()> {
        let shape = input.shape();
        require!(
            (3..=5).contains(&shape.len()) && mode.ranks().contains(&(shape.len() - 2)),
            InputRank,
            "input has shape {shape:?}, expected {} to {} dimensions behind the channels for mode {}",
            mode.ranks().start(),
            mode.ranks().end(),
            mode.to_attribute()
        );
        require!(
            size.is_some() != scale_factor.is_some(),
            SizeOrScale,
            "size is {size:?}, scale_factor {scale_factor:?}, expected one of them"
        );
        require!(
            align_corners.is_none() || mode.aligns(),
            AlignCorners,
            "align_corners is {align_corners:?}, expected none for mode {}",
            mode.to_attribute()
        );
        require!(
            !antialias || matches!(mode, InterpolationMode::Bilinear | InterpolationMode::Bicubic),
            Antialias,
            "antialias is true, mode {}, expected bilinear or bicubic",
            mode.to_attribute()
        );
        let recomputed = recompute_scale_factor == Some(true);
        require!(!recomputed || size.is_none(), Recomputed, "recompute_scale_factor is true, size is {size:?}");
        require!(
            input.dtype().is_floating() || matches!(mode, InterpolationMode::Nearest | InterpolationMode::NearestExact),
            Floating,
            "input is {}, expected a floating-point type for mode {}",
            input.dtype(),
            mode.to_attribute()
        );
        require!(
            Resized::all(shape, size.as_deref(), scale_factor.as_deref(), recomputed).is_some(),
            Extents,
            "input has shape {shape:?}, size is {size:?}, scale_factor {scale_factor:?}, expected a number for each \
             dimension behind the channels, and elements in each, before and after"
        );
        Ok(())
    }

    fn decomposition(
        Args { input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias }: Args<Tensor>,
    ) -> Tensor {
        let (recomputed, aligned) = (recompute_scale_factor == Some(true), align_corners == Some(true));
        let all = Resized::all(&input.shape(), size.as_deref(), scale_factor.as_deref(), recomputed);
        let all = all.unwrap_or_default();
        if mode == InterpolationMode::Area {
            let sizes: Vec<Option<usize>> = all.iter().map(|resized| Some(resized.to)).collect();
            return match sizes.len() {
                1 => adaptive_avg_pool1d(input, sizes),
                2 => adaptive_avg_pool2d(input, sizes),
                _ => adaptive_avg_pool3d(input, sizes),
            };
        }
        if antialias {
            let each = all.into_iter().enumerate();
            let of_dim = |values: Tensor, (i, resized): (usize, Resized)| {
                super::smoothed(values, i == 1, resized, aligned, mode)
            };
            return cast(each.fold(accumulating(input), of_dim), input.dtype());
        }
        let dtype = if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let start = if mode.aligns() { accumulating(input) } else { input };
        let out = all.into_iter().enumerate().fold(start, |values, (i, resized)| match mode {
            InterpolationMode::Nearest => super::nearest(values, 2 + i, resized, false),
            InterpolationMode::NearestExact => super::nearest(values, 2 + i, resized, true),
            InterpolationMode::Bicubic => {
                let source = resized.sources(values, aligned, dtype);
                super::weighted(values, 2 + i, resized, source, super::cubic_weights)
            }
            _ => {
                let source = prims::maximum(resized.sources(values, aligned, dtype), 0.0);
                super::weighted(values, 2 + i, resized, source, super::linear_weights)
            }
        });
        cast(out, input.dtype())
    }

    fn reference(
        Args { input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias }: Args<
            &ReferenceTensor,
        >,
    ) -> ArrayD<f64> {
        let values = as_floats(input);
        let extents = values.shape()[2..].to_vec();
        let of = |i: usize| {
            let from = extents[i] as f64;
            let factor = scale_factor.as_ref().map(|factors| factors[i % factors.len()]);
            let to = match (&size, factor) {
                (Some(size), _) => size[i % size.len()],
                (None, factor) => (from * factor.unwrap_or(1.0)).floor() as usize,
            };
            let between = match factor {
                _ if align_corners == Some(true) && to == 1 => 0.0,
                _ if align_corners == Some(true) => (from - 1.0) / (to as f64 - 1.0),
                Some(factor) if recompute_scale_factor != Some(true) => 1.0 / factor,
                _ => from / to as f64,
            };
            (to, between)
        };
        (0..extents.len()).fold(values, |values, i| {
            let (to, between) = of(i);
            if antialias {
                return super::smoothed_by_hand(&values, 2 + i, to, between, mode);
            }
            super::resampled(&values, 2 + i, to, |at, element| {
                let last = extents[i] as f64 - 1.0;
                let center = if align_corners == Some(true) { at * between } else { (at + 0.5) * between - 0.5 };
                let is = |place: f64| f64::from(u8::from(place.clamp(0.0, last) == element));
                match mode {
                    InterpolationMode::Nearest => is((at * between).floor()),
                    InterpolationMode::NearestExact => is(((at + 0.5) * between).floor()),
                    InterpolationMode::Area => {
                        let (start, ratio) = ((at * (last + 1.0) / to as f64).floor(), (last + 1.0) / to as f64);
                        let end = ((at + 1.0) * ratio - 1e-9).ceil();
                        if (start..end).contains(&element) { 1.0 / (end - start) } else { 0.0 }
                    }
                    InterpolationMode::Bicubic => {
                        let places = (-1..=2).map(|k| center.floor() + f64::from(k));
                        places.map(|place| is(place) * super::keys((center - place).abs(), super::SHARP)).sum()
                    }
                    _ => (1.0 - (center.clamp(0.0, last) - element).abs()).max(0.0),
                }
            })
        })
    }

    fn samples(s: &mut Samples) {
        use InterpolationMode::{Area, Bicubic, Bilinear, Linear, NearestExact, Trilinear};
        s.case(with(s.normal([2, 3, 4])).size([7]));
        s.case(with(s.normal([1, 2, 3, 5])).scale_factor([1.7, 0.6]));
        s.case(with(s.normal([1, 2, 3, 5])).scale_factor([1.7]).recompute_scale_factor(true));
        s.case(with(s.normal([1, 1, 2, 3, 4])).size([4, 2, 3]).mode(NearestExact));
        if s.dtype().is_floating() {
            s.case(with(s.normal([2, 2, 4])).size([7]).mode(Linear));
            s.case(with(s.normal([2, 2, 4])).size([1]).mode(Linear).align_corners(true));
            s.case(with(s.normal([1, 2, 3, 4])).size([5, 3]).mode(Bilinear).align_corners(true));
            s.case(with(s.normal([1, 2, 3, 4])).scale_factor([1.7, 0.6]).mode(Bilinear).align_corners(false));
            s.case(with(s.normal([1, 2, 3, 4])).size([5, 3]).mode(Bicubic));
            s.case(with(s.normal([1, 1, 3, 4])).scale_factor([2.0]).mode(Bicubic).align_corners(true));
            s.case(with(s.normal([1, 1, 2, 3, 4])).size([3, 2, 6]).mode(Trilinear));
            s.case(with(s.normal([1, 2, 4, 5])).size([2, 3]).mode(Area));
            s.case(with(s.normal([1, 2, 5, 4])).size([2, 7]).mode(Bilinear).antialias(true));
            s.case(with(s.normal([1, 1, 5, 7])).size([1, 3]).mode(Bicubic).align_corners(true).antialias(true));
            s.case(with(s.normal([1, 1, 5, 3])).scale_factor([0.5, 1.7]).mode(Bicubic).antialias(true));
        }
        s.case(with(s.normal([0, 2, 4])).size([2]));
        s.case(with(s.normal([1, 1, 3])).scale_factor([4.0]));
    }

    fn errors(e: &mut ErrorSamples) {
        use InterpolationMode::{Bilinear, Linear};
        let plain = || with(e.normal([1, 2, 4]));
        e.case(InputRank, with(e.normal([2, 4])).size([3]), "input has shape [2, 4]");
        e.case(InputRank, plain().size([3]).mode(Bilinear), "expected 2 to 2 dimensions");
        e.case(SizeOrScale, plain(), "size is None, scale_factor None");
        e.case(SizeOrScale, plain().size([3]).scale_factor([2.0]), "expected one of them");
        e.case(AlignCorners, plain().size([3]).align_corners(true), "align_corners is Some(true)");
        e.case(Antialias, plain().size([3]).antialias(true), r#"antialias is true, mode "nearest""#);
        e.case(Antialias, plain().size([3]).mode(Linear).antialias(true), "expected bilinear or bicubic");
        e.case(Recomputed, plain().size([3]).recompute_scale_factor(true), "recompute_scale_factor is true");
        e.case(Floating, with(e.of(DType::U8, [1, 2, 4])).size([3]).mode(Linear), "input is u8");
        e.case(Extents, plain().size([3, 3]), "expected a number for each dimension");
        e.case(Extents, plain().size([0]), "size is Some([0])");
        e.case(Extents, plain().scale_factor([0.1]), "scale_factor Some([0.1])");
        e.case(Extents, plain().scale_factor([-1.0]), "scale_factor Some([-1.0])");
        e.case(Extents, with(e.normal([1, 2, 0])).size([3]), "input has shape [1, 2, 0]");
    }
}

/// For references: the kernel of cubic convolution at a distance.
pub(crate) fn keys(x: f64, a: f64) -> f64 {
    match x {
        x if x <= 1.0 => (a + 2.0) * x.powi(3) - (a + 3.0) * x.powi(2) + 1.0,
        x if x < 2.0 => a * (x.powi(3) - 5.0 * x.powi(2) + 8.0 * x - 4.0),
        _ => 0.0,
    }
}

/// For references: dimension `dim` with `to` means of all its elements, weighted by a kernel around the centers.
fn smoothed_by_hand(values: &ArrayD<f64>, dim: usize, to: usize, between: f64, mode: InterpolationMode) -> ArrayD<f64> {
    let kernel = |at: f64, element: f64| {
        let distance = ((at + 0.5) * between - element - 0.5).abs() / between.max(1.0);
        if mode == InterpolationMode::Bicubic { keys(distance, SMOOTH) } else { (1.0 - distance).max(0.0) }
    };
    let total = |at: f64| (0..values.shape()[dim]).map(|element| kernel(at, element as f64)).sum::<f64>();
    resampled(values, dim, to, |at, element| kernel(at, element) / total(at))
}

/// For references: dimension `dim` with `to` sums of all its elements, each with the weight of both positions.
fn resampled(values: &ArrayD<f64>, dim: usize, to: usize, weight: impl Fn(f64, f64) -> f64) -> ArrayD<f64> {
    let mut shape = values.shape().to_vec();
    let from = std::mem::replace(&mut shape[dim], to);
    ArrayD::from_shape_fn(shape, |at| {
        let mut place = at.clone();
        let terms = (0..from).map(|element| {
            place[dim] = element;
            let weight = weight(at[dim] as f64, element as f64);
            if weight == 0.0 { 0.0 } else { weight * values[&place] }
        });
        terms.sum()
    })
}
