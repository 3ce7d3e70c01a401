use fulgurite_ops_macros::operator;

use super::arrays::{remade, reshaped};
use super::parts;

/// The same elements in row-major order in another shape; one extent may be -1 and is then computed from the others.
#[operator(torch = "reshape", complex)]
pub mod reshape {
    fn reshape(input: Tensor, shape: Vec<i64>) -> Tensor;

    fn meta(input: &TensorMeta, shape: &[i64]) -> Result<TensorMeta> {
        let resolved = super::resolved(input.shape(), shape);
        require!(
            resolved.is_some(),
            ElementCount,
            "input has shape {:?}, which cannot be read as {shape:?}",
            input.shape()
        );
        Ok(input.with_shape(resolved.unwrap_or_default()))
    }

    fn decomposition(input: Tensor, shape: &[i64]) -> Tensor {
        let from = input.shape();
        match super::resolved(&from, shape) {
            Some(to) if *to != *from => parts::reshape(input, to),
            _ => input,
        }
    }

    fn reference(input: &ReferenceTensor, shape: &[i64]) -> ReferenceTensor {
        let known: i64 = shape.iter().filter(|extent| **extent >= 0).product();
        let rest = input.floats().len() as i64 / known.max(1);
        let shape: Vec<usize> = shape.iter().map(|extent| if *extent < 0 { rest } else { *extent } as usize).collect();
        remade(input, |a| reshaped(a, &shape), |a| reshaped(a, &shape))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 6]), [3, 8]));
        s.case(with(s.normal([4, 6]), [-1]));
        s.case(with(s.normal([4, 6]), [2, -1, 3]));
        s.case(with(s.normal([4, 6]), [4, 6]));
        s.case(with(s.normal([]), [1, 1]));
        s.case(with(s.normal([1]), []));
        s.case(with(s.normal([0, 3]), [3, 0]));
        s.case(with(s.normal([0, 3]), [-1, 5]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ElementCount, with(e.normal([2, 3]), [4]), "input has shape [2, 3], which cannot be read as [4]");
        e.case(ElementCount, with(e.normal([2, 3]), [-1, 4]), "cannot be read as [-1, 4]");
        e.case(ElementCount, with(e.normal([2, 3]), [-1, -1]), "cannot be read as [-1, -1]");
        e.case(ElementCount, with(e.normal([0]), [-1, 0]), "cannot be read as [-1, 0]");
    }
}

/// As [`mod@reshape`]; whether memory is copied is decided by the layout pass in either case.
#[operator(torch = "Tensor.view", complex)]
pub mod view {
    fn view(input: Tensor, size: Vec<i64>) -> Tensor;

    fn meta(input: &TensorMeta, size: &[i64]) -> Result<TensorMeta> {
        let resolved = super::resolved(input.shape(), size);
        require!(
            resolved.is_some(),
            ElementCount,
            "input has shape {:?}, which cannot be read as {size:?}",
            input.shape()
        );
        Ok(input.with_shape(resolved.unwrap_or_default()))
    }

    fn decomposition(input: Tensor, size: &[i64]) -> Tensor {
        super::reshape(input, size)
    }

    fn reference(input: &ReferenceTensor, size: &[i64]) -> ReferenceTensor {
        let known: i64 = size.iter().filter(|extent| **extent >= 0).product();
        let rest = input.floats().len() as i64 / known.max(1);
        let size: Vec<usize> = size.iter().map(|extent| if *extent < 0 { rest } else { *extent } as usize).collect();
        remade(input, |a| reshaped(a, &size), |a| reshaped(a, &size))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 6]), [2, -1, 3]));
        s.case(with(s.normal([4, 6]), [24]));
        s.case(with(s.normal([0, 3]), [3, 0]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ElementCount, with(e.normal([2, 3]), [4]), "cannot be read as [4]");
    }
}

/// `shape` with its -1 filled in, if it has as many elements as `from`.
pub(crate) fn resolved(from: &[usize], shape: &[i64]) -> Option<Vec<usize>> {
    let len: usize = from.iter().product();
    let known: usize = shape
        .iter()
        .filter(|extent| **extent != -1)
        .try_fold(1usize, |product, extent| product.checked_mul(usize::try_from(*extent).ok()?))?;
    let open = shape.iter().filter(|extent| **extent == -1).count();
    let rest = match open {
        0 if known == len => 1,
        1 if known > 0 && len.is_multiple_of(known) => len / known,
        _ => return None,
    };
    Some(shape.iter().map(|extent| usize::try_from(*extent).unwrap_or(rest)).collect())
}
