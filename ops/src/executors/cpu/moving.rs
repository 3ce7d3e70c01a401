//! Elements moved as they are.

use fulgurite::rules::fulgurite_kernels::elementwise::copy;
use fulgurite::rules::fulgurite_kernels::philox;
use fulgurite::rules::{Scalar, TensorMut};
use fulgurite_ops_macros::implementation;

use super::cpu;

/// The elements of `tensor` from `starts` on, `shape` many.
///
/// # Panics
/// If the window reaches beyond the tensor.
fn window<'a>(tensor: &'a mut TensorMut<'_>, starts: &[usize], shape: &'a [usize]) -> TensorMut<'a> {
    let inside = |(start, extent, of): (&usize, &usize, &usize)| start + extent <= *of;
    let extents = starts.iter().zip(shape).zip(tensor.shape());
    assert!(extents.map(|((start, extent), of)| (start, extent, of)).all(inside), "a window lies inside of its tensor");
    let offset: isize = starts.iter().zip(tensor.strides()).map(|(start, stride)| *start as isize * stride).sum();
    let first = tensor.as_mut_ptr().wrapping_offset(offset * tensor.dtype().size() as isize);
    // SAFETY: the elements belong to `tensor`, which stays borrowed for as long.
    unsafe { TensorMut::new(tensor.dtype(), shape, tensor.strides(), first) }
}

/// Writes `value` to every element, integers exactly.
fn fill(target: TensorMut<'_>, value: Scalar) {
    match value {
        Scalar::Int(value) if target.dtype().is_integer() => philox::iota_integer(target, value, 0),
        value => philox::fill(target, value.to_f64()),
    }
}

#[implementation(of = crate::prims::pad, by = cpu, strided)]
mod pad_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, low: &[usize], high: &[usize], value: Scalar, out: &mut TensorMut) -> Result<()> {
        if low.iter().chain(high).any(|n| *n > 0) {
            fill(out.reborrow(), value);
        }
        copy(input, window(out, low, input.shape()));
        Ok(())
    }
}

#[implementation(of = crate::prims::cat, by = cpu, strided)]
mod cat_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(tensors: &[TensorRef], dim: usize, out: &mut TensorMut) -> Result<()> {
        let mut starts = vec![0; out.shape().len()];
        for tensor in tensors {
            copy(*tensor, window(out, &starts, tensor.shape()));
            starts[dim] += tensor.shape()[dim];
        }
        Ok(())
    }
}
