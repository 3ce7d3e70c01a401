use fulgurite_ops_macros::operator;

use super::arrays::{remade, spread};
use super::promotion::{broadcast, broadcast_shapes};

/// `input` repeated along dimensions of extent one, and along new leading ones, to `size`; -1 leaves an extent as it
/// is.
#[operator(torch = "Tensor.expand", complex)]
pub mod expand {
    fn expand(input: Tensor, size: Vec<i64>) -> Tensor;

    fn meta(input: &TensorMeta, size: &[i64]) -> Result<TensorMeta> {
        let shape = super::expanded(input.shape(), size);
        require!(
            shape.is_some(),
            ExpandedSize,
            "input has shape {:?}, which does not expand to {size:?}",
            input.shape()
        );
        Ok(input.with_shape(shape.unwrap_or_default()))
    }

    fn decomposition(input: Tensor, size: &[i64]) -> Tensor {
        broadcast(input, &super::expanded(&input.shape(), size).unwrap_or_default())
    }

    fn reference(input: &ReferenceTensor, size: &[i64]) -> ReferenceTensor {
        let first = size.len() - input.shape().len();
        let extent = |(i, extent): (usize, &i64)| if *extent < 0 { input.shape()[i - first] } else { *extent as usize };
        let shape: Vec<usize> = size.iter().enumerate().map(extent).collect();
        remade(input, |a| spread(a, &shape), |a| spread(a, &shape))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 1]), [3, 4]));
        s.case(with(s.normal([3, 1]), [2, -1, 4]));
        s.case(with(s.normal([]), [2, 2]));
        s.case(with(s.normal([3]), [3]));
        s.case(with(s.normal([1]), [0]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ExpandedSize, with(e.normal([3, 2]), [3, 4]), "does not expand to [3, 4]");
        e.case(ExpandedSize, with(e.normal([3, 2]), [2]), "does not expand to [2]");
        e.case(ExpandedSize, with(e.normal([3]), [-1, 3]), "does not expand to [-1, 3]");
    }
}

/// `input` repeated along dimensions of extent one, and along new leading ones, to `size`.
#[operator(torch = "broadcast_to", complex)]
pub mod broadcast_to {
    fn broadcast_to(input: Tensor, size: Vec<usize>) -> Tensor;

    fn meta(input: &TensorMeta, size: &[usize]) -> Result<TensorMeta> {
        require!(
            broadcast_shapes(&[input.shape(), size]).as_deref() == Some(size),
            BroadcastSize,
            "input has shape {:?}, which does not broadcast to {size:?}",
            input.shape()
        );
        Ok(input.with_shape(size))
    }

    fn decomposition(input: Tensor, size: &[usize]) -> Tensor {
        broadcast(input, size)
    }

    fn reference(input: &ReferenceTensor, size: &[usize]) -> ReferenceTensor {
        remade(input, |a| spread(a, size), |a| spread(a, size))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 1]), [2, 3, 4]));
        s.case(with(s.normal([]), [2, 2]));
        s.case(with(s.normal([3]), [3]));
        s.case(with(s.normal([1]), [0]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(BroadcastSize, with(e.normal([3, 2]), [3, 4]), "does not broadcast to [3, 4]");
    }
}

fn expanded(from: &[usize], size: &[i64]) -> Option<Vec<usize>> {
    let first = size.len().checked_sub(from.len())?;
    let mut shape = Vec::with_capacity(size.len());
    for (i, extent) in size.iter().enumerate() {
        let known = i.checked_sub(first).map(|i| from[i]);
        shape.push(match (usize::try_from(*extent), known) {
            (Ok(extent), None | Some(1)) => extent,
            (Ok(extent), Some(known)) if extent == known => extent,
            (Err(_), Some(known)) if *extent == -1 => known,
            _ => return None,
        });
    }
    Some(shape)
}
