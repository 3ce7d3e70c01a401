//! Elements moved as they are.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::elementwise::copy;
use fulgurite_runtime::kernels::philox;
use fulgurite_runtime::kernels::windows::window;
use fulgurite_runtime::rules::{Failure, Result, Scalar, TensorMut};

use super::cpu;

/// The elements of `tensor` from `starts` on, `shape` many.
fn part<'a>(tensor: &'a mut TensorMut<'_>, starts: &[usize], shape: &'a [usize]) -> Result<TensorMut<'a>> {
    let beyond = || Failure::new("Window", format!("{shape:?} elements from {starts:?} on are beyond the result"));
    window(tensor, starts, shape).ok_or_else(beyond)
}

/// Writes `value` to every element, integers exactly.
fn fill(target: TensorMut<'_>, value: Scalar) {
    match value {
        Scalar::Int(value) if target.dtype().is_integer() => philox::iota_integer(target, value, 0),
        value => philox::fill(target, value.to_f64()),
    }
}

#[implementation(of = fulgurite_ops::prims::pad, by = cpu, strided)]
mod pad_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, low: &[usize], high: &[usize], value: Scalar, out: &mut TensorMut) -> Result<()> {
        if low.iter().chain(high).any(|n| *n > 0) {
            fill(out.reborrow(), value);
        }
        copy(input, part(out, low, input.shape())?);
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::cat, by = cpu, strided)]
mod cat_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(tensors: &[TensorRef], dim: usize, out: &mut TensorMut) -> Result<()> {
        let mut starts = vec![0; out.shape().len()];
        for tensor in tensors {
            copy(*tensor, part(out, &starts, tensor.shape())?);
            starts[dim] += tensor.shape()[dim];
        }
        Ok(())
    }
}
