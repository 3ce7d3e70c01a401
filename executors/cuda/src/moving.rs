//! Elements moved as they are, in words of up to 16 bytes. Operands may have any strides.
//!
//! `flip` has no kernel: it is always a view.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::philox;
use fulgurite_runtime::rules::{Address, DeviceTensor, Plan, Result, Scalar, TensorMut};
use fulgurite_runtime::{DType, binds, source_files};

use super::cuda;
use super::support::{
    Dimension, bits_of, collapsed, coordinates, dimensions, index_type, literal, offset, one_thread_each, packed,
    positions,
};

/// Copies all elements of `from` to a tensor of these strides at `to`, whose address is a multiple of `alignment`
/// bytes.
fn copy_to(plan: &mut Plan, from: &DeviceTensor, to: Address, strides: &[isize], alignment: usize) -> Result<()> {
    if from.meta.is_empty() {
        return Ok(());
    }
    let size = from.meta.dtype().size();
    let mut dims = collapsed(dimensions(from.shape(), [&from.strides, strides]));
    let pack = packed(&mut dims, size, [Some(from.alignment), Some(alignment)], &[]);
    let count = positions(&dims);
    plan.source(source_files!["moving.cu"]);
    plan.define("ELEMENT", bits_of(size));
    plan.define("WORD", bits_of(size * pack));
    plan.define("INDEX", index_type(count));
    plan.define("FROM(i)", offset(&dims, 0, "i"));
    plan.define("TO(i)", offset(&dims, 1, "i"));
    plan.launch("move", one_thread_each(count), binds![from, to, count])
}

/// Copies an operand of any strides to a result of its shape.
pub fn copy(plan: &mut Plan, from: &DeviceTensor, to: &DeviceTensor) -> Result<()> {
    if from.is_contiguous() {
        if !from.meta.is_empty() {
            plan.copy(from, to);
        }
        return Ok(());
    }
    copy_to(plan, from, to.address, &to.strides, to.alignment)
}

#[implementation(of = fulgurite_ops::prims::cat, by = cuda, strided)]
mod cat_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, tensors: &[DeviceTensor], dim: usize, out: &DeviceTensor) -> Result<()> {
        let mut start = 0;
        for tensor in tensors {
            let bytes = start * out.strides[dim].unsigned_abs() * out.meta.dtype().size();
            let alignment = if bytes == 0 { out.alignment } else { out.alignment.min(1 << bytes.trailing_zeros()) };
            super::copy_to(plan, tensor, out.address.offset(bytes as u64), &out.strides, alignment)?;
            start += tensor.shape()[dim];
        }
        Ok(())
    }
}

/// A dimension of a padded tensor: the extent of the result, the elements before the operand's, and the operand's
/// extent and stride.
#[derive(Clone, Copy)]
struct Padded {
    extent: usize,
    low: usize,
    inside: usize,
    stride: isize,
}

impl Padded {
    fn is_plain(&self) -> bool {
        self.extent == self.inside
    }
}

/// A dimension without padding is merged into the one before it if the operand's elements are adjacent.
fn joined(dims: impl Iterator<Item = Padded>) -> Vec<Padded> {
    let mut all: Vec<Padded> = Vec::new();
    for dim in dims.filter(|dim| dim.extent != 1 || !dim.is_plain()) {
        match all.last_mut() {
            Some(outer) if dim.is_plain() && outer.stride == dim.stride * dim.inside as isize => {
                let times = dim.inside;
                let Padded { extent, low, inside, .. } = *outer;
                *outer =
                    Padded { extent: extent * times, low: low * times, inside: inside * times, stride: dim.stride };
            }
            _ => all.push(dim),
        }
    }
    all
}

/// Counts the innermost dimension in packs of as many elements as can be moved at once: no pack is half padding.
fn in_packs(dims: &mut [Padded], size: usize, alignment: usize) -> usize {
    let Some((last, outer)) = dims.split_last_mut() else { return 1 };
    let mut whole: Vec<Dimension<1>> = outer.iter().map(|dim| (dim.extent, [dim.stride])).collect();
    whole.push((last.extent, [last.stride]));
    let pack = packed(&mut whole, size, [Some(alignment)], &[last.low as isize, last.inside as isize]);
    if pack > 1 {
        *last = Padded {
            extent: last.extent / pack,
            low: last.low / pack,
            inside: last.inside / pack,
            stride: pack as isize,
        };
    }
    pack
}

/// An element of `value`, converted as the host converts it, until eight bytes are full.
fn fill_of(dtype: DType, value: Scalar) -> u64 {
    let mut bytes = [0u64; 1];
    let shape = [8 / dtype.size()];
    // SAFETY: eight bytes, aligned for eight, are as many elements of any type.
    let target = unsafe { TensorMut::new(dtype, &shape, &[1], bytes.as_mut_ptr().cast()) };
    match value {
        Scalar::Int(value) if dtype.is_integer() => philox::iota_integer(target, value, 0),
        value => philox::fill(target, value.to_f64()),
    }
    bytes[0]
}

#[implementation(of = fulgurite_ops::prims::pad, by = cuda, strided)]
mod pad_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, low: &[usize], value: Scalar, out: &DeviceTensor) -> Result<()> {
        super::pad(plan, input, low, value, out)
    }
}

fn pad(plan: &mut Plan, input: &DeviceTensor, low: &[usize], value: Scalar, out: &DeviceTensor) -> Result<()> {
    if out.meta.is_empty() {
        return Ok(());
    }
    let size = out.meta.dtype().size();
    let mut dims = joined((0..low.len()).map(|i| Padded {
        extent: out.shape()[i],
        low: low[i],
        inside: input.shape()[i],
        stride: input.strides[i],
    }));
    let pack = in_packs(&mut dims, size, input.alignment.min(out.alignment));
    let extents: Vec<usize> = dims.iter().map(|dim| dim.extent).collect();
    let count: usize = extents.iter().product();
    let (mut inside, mut from) = (Vec::new(), Vec::new());
    for (at, dim) in coordinates(&extents, "i").iter().zip(&dims) {
        // Before the operand's first element the difference wraps and is large.
        let inner = if dim.low == 0 { at.clone() } else { format!("({at}-{})", literal(dim.low)) };
        if !dim.is_plain() {
            inside.push(format!("{inner}<{}", literal(dim.inside)));
        }
        from.push(format!("(i64){inner}*({}LL)", dim.stride));
    }
    let or = |terms: Vec<String>, none: &str, between: &str| match terms.is_empty() {
        true => none.to_owned(),
        false => format!("({})", terms.join(between)),
    };
    plan.source(source_files!["padding.cu"]);
    plan.define("ELEMENT", bits_of(size));
    plan.define("WORD", bits_of(size * pack));
    plan.define("INDEX", index_type(count));
    plan.define("INSIDE(i)", or(inside, "true", "&&"));
    plan.define("FROM(i)", or(from, "0", "+"));
    plan.launch(
        "pad",
        one_thread_each(count),
        binds![input, out, super::moving::fill_of(out.meta.dtype(), value), count],
    )
}
