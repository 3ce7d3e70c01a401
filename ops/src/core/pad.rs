use fulgurite_ops_macros::operator;

use super::arrays::rearranged;
use super::promotion::{fills, operand_number};
use crate::prims;

/// `input` with `pad` more elements of `value` before and after each dimension: pairs, those of the last dimension first.
/// A negative number cuts elements off.
#[operator(torch = "nn.functional.pad", waive(mode = "there is one mode"))]
pub mod pad {
    fn pad(
        input: Tensor,
        pad: Vec<i64>,
        #[default(PadMode::Constant)] mode: PadMode,
        #[default(None)] value: Option<f64>,
    ) -> Tensor;

    fn meta(input: &TensorMeta, pad: &[i64], value: Option<f64>) -> Result<TensorMeta> {
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
        Ok(input.with_shape(shape.into_iter().map(|extent| extent as usize).collect::<Vec<_>>()))
    }

    fn decomposition(input: Tensor, pad: &[i64], _mode: PadMode, value: Option<f64>) -> Tensor {
        let shape = input.shape();
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

    fn reference(input: &ReferenceTensor, pad: &[i64], value: Option<f64>) -> ReferenceTensor {
        let rank = input.shape().len();
        let low = |dim: usize| pad.get(2 * (rank - 1 - dim)).copied().unwrap_or(0);
        let high = |dim: usize| pad.get(2 * (rank - 1 - dim) + 1).copied().unwrap_or(0);
        let shape: Vec<usize> =
            (0..rank).map(|dim| (input.shape()[dim] as i64 + low(dim) + high(dim)) as usize).collect();
        rearranged(input, &shape, value.unwrap_or(0.0), |at| {
            let from = at.iter().enumerate().map(|(dim, i)| usize::try_from(*i as i64 - low(dim)).ok());
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
    }

    fn errors(e: &mut ErrorSamples) {
        let beyond = with(e.of(DType::U8, [2]), vec![0, 1]).value(Some(300.0));
        e.case(Value, beyond, "value is 300.0, which u8 cannot hold");
        e.case(PadLength, with(e.normal([3]), [1]), "pad has 1 numbers");
        e.case(PadLength, with(e.normal([3]), [1, 1, 1, 1]), "at most 1 dimensions");
        e.case(PaddedExtent, with(e.normal([3]), [-2, -2]), "cuts more than there is");
    }
}

fulgurite::attribute_enum! {
    /// What a tensor is continued with.
    pub enum PadMode {
        /// One value.
        Constant = "constant",
    }
}

/// Before and after each dimension, the first dimension first.
fn each(pad: &[i64], rank: usize) -> impl Iterator<Item = (i64, i64)> {
    (0..rank).rev().map(move |i| (pad.get(2 * i).copied().unwrap_or(0), pad.get(2 * i + 1).copied().unwrap_or(0)))
}
