use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use super::arrays::rearranged;
use super::piece;
use super::promotion::{broadcast, fills, operand_number};
use crate::prims;

/// `input` with `pad` more elements before and after each dimension: pairs, those of the last dimension first. A
/// negative number cuts elements off. The new elements are `value`, or as `mode` says; modes other than `constant` pad
/// one to three dimensions and leave the first one or two as they are.
#[operator(torch = "nn.functional.pad")]
pub mod pad {
    fn pad(
        input: Tensor,
        pad: Vec<i64>,
        #[default(PadMode::Constant)] mode: PadMode,
        #[default(None)] value: Option<f64>,
    ) -> Tensor;

    fn meta(input: &TensorMeta, pad: &[i64], mode: PadMode, value: Option<f64>) -> Result<TensorMeta> {
        fills("value", Scalar::Float(value.unwrap_or(0.0)), input.dtype(), Code::Value.name())?;
        require!(
            pad.len().is_multiple_of(2) && pad.len() / 2 <= input.rank(),
            PadLength,
            "pad has {} numbers, expected two for each of at most {} dimensions",
            pad.len(),
            input.rank()
        );
        let shape: Vec<i64> = super::each(pad, input.rank())
            .zip(input.shape())
            // What saturates is refused for its size.
            .map(|((low, high), extent)| (*extent as i64).saturating_add(low).saturating_add(high))
            .collect();
        let fits = super::each(pad, input.rank())
            .zip(input.shape())
            .all(|((low, high), extent)| (*extent as i64).saturating_add(low.min(0)).saturating_add(high.min(0)) >= 0);
        require!(
            fits,
            PaddedExtent,
            "input has shape {:?}, from which pad {pad:?} cuts more than there is",
            input.shape()
        );
        if mode != PadMode::Constant {
            require!(
                value.is_none_or(|value| value == 0.0),
                ValueOfMode,
                "value is {value:?}, which mode {} does not take",
                mode.to_attribute()
            );
            require!(
                input.dtype() != DType::Bool || mode == PadMode::Circular,
                ModeOfBool,
                "input is bool, which mode {} does not take",
                mode.to_attribute()
            );
            let dims = pad.len() / 2;
            require!(
                (1..=3).contains(&dims) && (dims + 1..=dims + 2).contains(&input.rank()),
                PaddedDims,
                "pad has {} numbers for an input of rank {}: this mode pads one to three dimensions behind one or \
                 two others",
                pad.len(),
                input.rank()
            );
            for (dim, (low, high)) in super::each(pad, input.rank()).enumerate().filter(|(_, pair)| *pair != (0, 0)) {
                let (extent, most) = (input.shape()[dim] as i64, low.max(high));
                let enough = match mode {
                    PadMode::Constant => true,
                    PadMode::Reflect => most < extent,
                    PadMode::Replicate => extent > 0,
                    PadMode::Circular => most <= extent + low.min(0) + high.min(0),
                };
                require!(
                    enough,
                    SourceExtent,
                    "pad {pad:?} needs more elements than the {extent} of dimension {dim} to take new ones from"
                );
            }
            require!(
                input.shape()[1..].iter().all(|extent| *extent > 0) || input.rank() == dims + 2,
                SourceExtent,
                "input has shape {:?}, expected elements to take new ones from",
                input.shape()
            );
        }
        Ok(input.with_shape(shape.into_iter().map(|extent| extent as usize).collect::<Vec<_>>()))
    }

    fn decomposition(input: Tensor, pad: &[i64], mode: PadMode, value: Option<f64>) -> Tensor {
        let shape = input.shape();
        if mode != PadMode::Constant {
            return super::each(pad, shape.len())
                .enumerate()
                .fold(input, |padded, (dim, (low, high))| super::continued(padded, dim, low, high, mode));
        }
        let pairs: Vec<(i64, i64)> = super::each(pad, shape.len()).collect();
        let mut result = input;
        if pairs.iter().any(|(low, high)| *low < 0 || *high < 0) {
            let starts: Vec<usize> = pairs.iter().map(|(low, _)| (-low).max(0) as usize).collect();
            let ends: Vec<usize> =
                pairs.iter().zip(shape.iter()).map(|((_, high), extent)| extent - (-high).max(0) as usize).collect();
            result = prims::slice(result, starts, ends, vec![1; shape.len()]);
        }
        if pairs.iter().any(|(low, high)| *low > 0 || *high > 0) {
            let low: Vec<usize> = pairs.iter().map(|(low, _)| (*low).max(0) as usize).collect();
            let high: Vec<usize> = pairs.iter().map(|(_, high)| (*high).max(0) as usize).collect();
            let value = operand_number(Scalar::Float(value.unwrap_or(0.0)), input.dtype());
            result = prims::pad(result, low, high, value);
        }
        result
    }

    fn reference(input: &ReferenceTensor, pad: &[i64], mode: PadMode, value: Option<f64>) -> ReferenceTensor {
        let rank = input.shape().len();
        let low = |dim: usize| pad.get(2 * (rank - 1 - dim)).copied().unwrap_or(0);
        let high = |dim: usize| pad.get(2 * (rank - 1 - dim) + 1).copied().unwrap_or(0);
        let shape: Vec<usize> =
            (0..rank).map(|dim| (input.shape()[dim] as i64 + low(dim) + high(dim)) as usize).collect();
        rearranged(input, &shape, value.unwrap_or(0.0), |at| {
            let source = |dim: usize, i: usize| {
                let (place, extent) = (i as i64 - low(dim), input.shape()[dim] as i64);
                match mode {
                    PadMode::Constant => place,
                    PadMode::Replicate => place.clamp(0, extent - 1),
                    PadMode::Reflect if place < 0 => -place,
                    PadMode::Reflect if place >= extent => 2 * (extent - 1) - place,
                    PadMode::Reflect => place,
                    PadMode::Circular => {
                        // What is cut off does not come back on the other side.
                        let (first, last) = ((-low(dim)).max(0), extent + high(dim).min(0));
                        first + (place - first).rem_euclid(last - first)
                    }
                }
            };
            let from = at.iter().enumerate().map(|(dim, i)| usize::try_from(source(dim, *i)).ok());
            let from = from.collect::<Option<Vec<usize>>>()?;
            from.iter().zip(input.shape()).all(|(i, extent)| i < extent).then_some(from)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3]), [1, 2]));
        s.case(with(s.normal([2, 3]), [0, 1, 2, 0]).value(1.0));
        s.case(with(s.normal([2, 3]), [1, -1, -1, 2]).value(5.0));
        s.case(with(s.normal([5]), [-2, -3]));
        s.case(with(s.normal([2, 2]), []));
        s.case(with(s.normal([0, 3]), [1, 0, 1, 1]));
        s.case(with(s.normal([3]), [0, 0]));
        for mode in [PadMode::Reflect, PadMode::Replicate, PadMode::Circular] {
            if s.dtype() == DType::Bool && mode != PadMode::Circular {
                continue;
            }
            s.case(with(s.normal([2, 5]), [3, 2]).mode(mode));
            s.case(with(s.normal([2, 3, 4]), [1, 3, 2, 0]).mode(mode));
            s.case(with(s.normal([2, 1, 2, 3, 3]), [1, 1, 2, 0, 0, 1]).mode(mode));
            s.case(with(s.normal([2, 6]), [2, -1]).mode(mode));
            s.case(with(s.normal([2, 6]), [-2, 3]).mode(mode));
            s.case(with(s.normal([0, 2, 4]), [1, 2]).mode(mode));
        }
        // One side alone, longer or shorter.
        for one in [[0, 2], [2, 0], [0, -2], [-2, 0]] {
            s.case(with(s.normal([2, 5]), one).value(1.0));
        }
        s.case(with(s.normal([2, 0, 4]), [1, 2]).mode(PadMode::Circular).value(0.0));
        if s.dtype() != DType::Bool {
            s.case(with(s.normal([2, 1]), [2, 1]).mode(PadMode::Replicate));
            s.case(with(s.normal([2, 3]), [2, 2]).mode(PadMode::Reflect));
        }
        // All that there is.
        s.case(with(s.normal([2, 3]), [3, 3]).mode(PadMode::Circular));
        for one in [[0, 1], [1, 0]] {
            s.case(with(s.normal([2, 5]), one).value(1.0));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let beyond = with(e.of(DType::U8, [2]), vec![0, 1]).value(Some(300.0));
        e.case(Value, beyond, "value is 300.0, which u8 cannot hold");
        let limits = [
            (DType::I64, 2f64.powi(63)),
            (DType::F16, 7e4),
            (DType::F16, -7e4),
            (DType::U8, -300.0),
            (DType::I32, 2.5e9),
        ];
        for (dtype, value) in limits {
            e.case(Value, with(e.of(dtype, [2]), vec![0, 1]).value(Some(value)), "cannot hold");
        }
        e.case(PadLength, with(e.normal([3]), [1]), "pad has 1 numbers");
        e.case(PadLength, with(e.normal([3]), [1, 1, 1, 1]), "at most 1 dimensions");
        let valued = with(e.normal([2, 3]), [1, 1]).mode(PadMode::Reflect).value(2.0);
        e.case(ValueOfMode, valued, "value is Some(2.0)");
        let boolean = with(e.booleans([2, 3]), [1, 1]).mode(PadMode::Replicate);
        e.case(ModeOfBool, boolean, "input is bool, which mode \"replicate\" does not take");
        e.case(
            PaddedDims,
            with(e.normal([3]), [1, 1]).mode(PadMode::Circular),
            "pad has 2 numbers for an input of rank 1",
        );
        for (shape, count) in [(&[2, 2, 2, 3][..], 1), (&[2, 3], 0), (&[2; 5], 4)] {
            let outer = with(e.normal(shape), vec![1; 2 * count]).mode(PadMode::Circular);
            e.case(PaddedDims, outer, "behind one or two others");
        }
        e.case(SourceExtent, with(e.normal([2, 3]), [3, 0]).mode(PadMode::Reflect), "than the 3 of dimension 1");
        e.case(SourceExtent, with(e.normal([2, 3]), [4, 0]).mode(PadMode::Circular), "than the 3 of dimension 1");
        for pad in [[-2, -2], [2, -4], [-4, 2]] {
            e.case(PaddedExtent, with(e.normal([3]), pad), "cuts more than there is");
        }
        for pad in [[3, -1], [-1, 3]] {
            e.case(SourceExtent, with(e.normal([2, 3]), pad).mode(PadMode::Circular), "than the 3 of dimension 1");
        }
        let none = with(e.normal([2, 0]), [1, 0]).mode(PadMode::Replicate);
        e.case(SourceExtent, none, "than the 0 of dimension 1");
        let none = with(e.normal([2, 0]), [0, 0]).mode(PadMode::Circular);
        e.case(SourceExtent, none, "expected elements to take new ones from");
    }
}

fulgurite_runtime::attribute_enum! {
    /// What a tensor is continued with.
    pub enum PadMode {
        /// One value.
        Constant = "constant",
        /// The elements in reverse order, without the outermost.
        Reflect = "reflect",
        /// The outermost element.
        Replicate = "replicate",
        /// The elements of the other end.
        Circular = "circular",
    }
}

/// Dimension `dim` with `low` elements before and `high` after it, made from its own; negative numbers cut off.
#[track_caller]
fn continued(input: Tensor, dim: usize, low: i64, high: i64, mode: PadMode) -> Tensor {
    // Circular padding continues what is left, the others continue the whole.
    let circular = mode == PadMode::Circular;
    let input = if circular { cropped(input, dim, low, high) } else { input };
    let (before, after) = (low.max(0) as usize, high.max(0) as usize);
    let shape = input.shape();
    let extent = shape[dim];
    let repeated = |at: usize, count: usize| {
        let mut shape = shape.to_vec();
        shape[dim] = count;
        broadcast(piece(input, dim, at, 1), &shape)
    };
    let reversed = |at: usize, count: usize| prims::flip(piece(input, dim, at, count), [dim]);
    let (first, last) = match mode {
        PadMode::Reflect => {
            ((before > 0).then(|| reversed(1, before)), (after > 0).then(|| reversed(extent - 1 - after, after)))
        }
        PadMode::Circular => (
            (before > 0).then(|| piece(input, dim, extent - before, before)),
            (after > 0).then(|| piece(input, dim, 0, after)),
        ),
        PadMode::Constant | PadMode::Replicate => {
            ((before > 0).then(|| repeated(0, before)), (after > 0).then(|| repeated(extent - 1, after)))
        }
    };
    let parts: Vec<Tensor> = [first, Some(input), last].into_iter().flatten().collect();
    let padded = if parts.len() == 1 { input } else { prims::cat(parts, dim) };
    if circular { padded } else { cropped(padded, dim, low, high) }
}

/// Without `-low` elements at the beginning of dimension `dim` and `-high` at its end, where these are positive.
#[track_caller]
fn cropped(input: Tensor, dim: usize, low: i64, high: i64) -> Tensor {
    let (first, last) = ((-low).max(0) as usize, (-high).max(0) as usize);
    piece(input, dim, first, input.shape()[dim] - first - last)
}

/// Before and after each dimension, the first dimension first.
fn each(pad: &[i64], rank: usize) -> impl Iterator<Item = (i64, i64)> {
    (0..rank).rev().map(move |i| (pad.get(2 * i).copied().unwrap_or(0), pad.get(2 * i + 1).copied().unwrap_or(0)))
}
